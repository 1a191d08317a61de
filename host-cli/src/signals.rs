//! The signals that agentctl gets.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::Streams;
use crate::exit::Failure;

/// The numbers of a Linux guest, whatever the host is.
pub(crate) mod guest {
    /// A write that nobody reads.
    pub(crate) const PIPE: i32 = 13;
    /// Go on.
    pub(crate) const CONT: i32 = 18;
    /// Stop, as Ctrl-Z does.
    pub(crate) const TSTP: i32 = 20;
}

/// SIGTSTP of this system.
const TSTP: SignalKind = SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());

/// SIGCONT of this system.
const CONT: SignalKind = SignalKind::from_raw(rustix::process::Signal::CONT.as_raw());

/// A signal that is watched, unless agentctl was started with it ignored: nohup
/// and shells without job control mean it to stay so.
#[derive(Debug)]
struct Watched(Option<Signal>);

impl Watched {
    fn new(kind: SignalKind, ignored: u64) -> Result<Self, Failure> {
        let bit =
            u32::try_from(kind.as_raw_value() - 1).ok().and_then(|bit| 1_u64.checked_shl(bit));
        if bit.is_some_and(|bit| ignored & bit != 0) {
            return Ok(Self(None));
        }
        let watched = signal(kind).map_err(anyhow::Error::from)?;
        Ok(Self(Some(watched)))
    }

    async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// The signals that ask agentctl to end.
#[derive(Debug)]
pub(crate) struct EndingSignals {
    hangup: Watched,
    interrupt: Watched,
    quit: Watched,
    terminate: Watched,
}

impl EndingSignals {
    /// Watches for them from now on.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let ignored = ignored();
        Ok(Self {
            hangup: Watched::new(SignalKind::hangup(), ignored)?,
            interrupt: Watched::new(SignalKind::interrupt(), ignored)?,
            quit: Watched::new(SignalKind::quit(), ignored)?,
            terminate: Watched::new(SignalKind::terminate(), ignored)?,
        })
    }

    /// The next one. The numbers of these four are the same on every system.
    pub(crate) async fn next(&mut self) -> i32 {
        let kind = tokio::select! {
            () = self.hangup.recv() => SignalKind::hangup(),
            () = self.interrupt.recv() => SignalKind::interrupt(),
            () = self.quit.recv() => SignalKind::quit(),
            () = self.terminate.recv() => SignalKind::terminate(),
        };
        kind.as_raw_value()
    }
}

/// What a signal says while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// End, by this signal.
    End(i32),
    /// The local terminal has another size.
    Resized,
    /// Stop.
    Stop,
    /// Somebody has continued agentctl.
    Continued,
}

/// The signals that matter while a command runs.
#[derive(Debug)]
pub(crate) struct Signals {
    /// Those that ask agentctl to end.
    pub(crate) ending: EndingSignals,
    window: Watched,
    continued: Watched,
    stop: Watched,
}

impl Signals {
    /// Watches for them from now on.
    pub(crate) fn watch(streams: Streams) -> Result<Self, Failure> {
        let ending = EndingSignals::watch()?;
        let stop = match streams {
            Streams::Pipes => Watched::new(TSTP, ignored())?,
            // Ctrl-Z goes to the command as input. When that stops, the kernel
            // knows best whether agentctl can: SIGTSTP must not be caught.
            Streams::Terminal => Watched(None),
        };
        let window = Watched::new(SignalKind::window_change(), 0)?;
        Ok(Self { ending, window, continued: Watched::new(CONT, 0)?, stop })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Local {
        tokio::select! {
            signal = self.ending.next() => Local::End(signal),
            () = self.window.recv() => Local::Resized,
            () = self.continued.recv() => Local::Continued,
            () = self.stop.recv() => Local::Stop,
        }
    }
}

/// The mask of signals that this process was started with as ignored; nothing
/// where the system does not tell.
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored_in(&status))
}

fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001006\n";
        assert_eq!(ignored_in(status), 0x1006);
        assert_eq!(ignored_in("Name:\tx\n"), 0);
    }

    #[tokio::test]
    async fn an_ignored_signal_is_not_watched() {
        assert!(Watched::new(SignalKind::hangup(), 1).unwrap().0.is_none());
        assert!(Watched::new(SignalKind::hangup(), 2).unwrap().0.is_some());
    }
}
