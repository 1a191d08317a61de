//! Joins a command to the local streams, terminal and signals.

use std::io::ErrorKind;

use bytes::Bytes;
use host_proto::client::Client;
use host_proto::exec::{ExecControl, ExecEvent, ExecEvents, Exit, RunningExec};
use host_proto::v1;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, Stderr, Stdout};
use tokio::signal::unix::{Signal, SignalKind, signal};
use v1::{OutputStream, SignalTarget};

use crate::cli::Streams;
use crate::exit::Failure;
use crate::{input, terminal};

/// SIGPIPE and SIGCONT of a Linux guest.
const SIGPIPE: i32 = 13;
const SIGCONT: i32 = 18;

/// Runs a command to its end; returns the exit code for agentctl.
pub(crate) async fn run(
    client: &Client,
    start: v1::StartExec,
    streams: Streams,
) -> Result<u8, Failure> {
    let mut signals = Signals::watch()?;
    let running = tokio::select! {
        running = client.run(start) => running?,
        signal = signals.ending.next() => return Err(Failure::signal(signal)),
    };
    let RunningExec { events, control, .. } = running;
    if streams == Streams::Terminal {
        terminal::make_raw().map_err(anyhow::Error::from)?;
    }
    let input = tokio::spawn(input::forward(control.clone()));
    let bridge = Bridge::new(control.clone(), streams);
    let result = tokio::select! {
        exit = bridge.follow(events) => exit,
        signal = signals.forward(&control, streams) => Err(Failure::signal(signal)),
    };
    input.abort();
    terminal::restore();
    let code = result?.shell_code();
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

struct Bridge {
    control: ExecControl,
    streams: Streams,
    stdout: Local<Stdout>,
    stderr: Local<Stderr>,
}

/// A local output, until its reader goes.
enum Local<W> {
    Open(W),
    Closed,
}

impl Bridge {
    fn new(control: ExecControl, streams: Streams) -> Self {
        let stdout = Local::Open(tokio::io::stdout());
        Self { control, streams, stdout, stderr: Local::Open(tokio::io::stderr()) }
    }

    async fn follow(mut self, mut events: ExecEvents) -> Result<Exit, Failure> {
        while let Some(event) = events.next().await? {
            match event {
                ExecEvent::Stdout(data) => {
                    if !self.stdout.write(&data).await? {
                        self.lose(OutputStream::Stdout).await?;
                    }
                }
                ExecEvent::Stderr(data) => {
                    if !self.stderr.write(&data).await? {
                        self.lose(OutputStream::Stderr).await?;
                    }
                }
                ExecEvent::Stopped(_) => self.suspend().await?,
                ExecEvent::Continued => {}
                ExecEvent::Exited(exit) => return Ok(exit),
                ExecEvent::Rejected { message, .. } => return Err(Failure::new(message)),
            }
        }
        Err(Failure::new("lost the connection to the agent before the command ended"))
    }

    /// The reader of a local output has gone. With pipes the command learns it
    /// as it would locally; a terminal without its viewer has no use.
    async fn lose(&mut self, stream: OutputStream) -> Result<(), Failure> {
        if self.streams == Streams::Terminal {
            return Err(Failure::signal(SIGPIPE));
        }
        // If the command has ended meanwhile, its end is on the way.
        let _ = self.control.close_output(stream).await;
        Ok(())
    }

    /// The command was stopped: so is agentctl, and both go on together. Where
    /// nobody could continue it, a command with a terminal goes on at once; one
    /// with pipes stays stopped until somebody signals it.
    async fn suspend(&mut self) -> Result<(), Failure> {
        if !terminal::is_interactive() {
            if self.streams == Streams::Terminal {
                self.control.signal(SIGCONT, SignalTarget::Command).await?;
            }
            return Ok(());
        }
        terminal::suspend();
        if self.streams == Streams::Terminal {
            terminal::make_raw().map_err(anyhow::Error::from)?;
            if let Some(v1::WindowSize { rows, columns }) = terminal::size() {
                let _ = self.control.resize(rows, columns).await;
            }
        }
        self.control.signal(SIGCONT, SignalTarget::Command).await?;
        Ok(())
    }
}

impl<W: AsyncWrite + Unpin> Local<W> {
    /// Writes all; false once, when the reader is found to have gone.
    async fn write(&mut self, data: &Bytes) -> Result<bool, Failure> {
        let Self::Open(output) = self else {
            return Ok(true);
        };
        let mut written = output.write_all(data).await;
        if written.is_ok() {
            written = output.flush().await;
        }
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                *self = Self::Closed;
                Ok(false)
            }
            Err(error) => Err(Failure::new(format!("cannot write the command's output: {error}"))),
        }
    }
}

/// The signals that agentctl passes on.
struct Signals {
    window: Signal,
    ending: EndingSignals,
}

/// The signals that ask agentctl to end.
pub(crate) struct EndingSignals {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

fn watch(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::from(anyhow::Error::from(error)))
}

impl EndingSignals {
    /// Watches for them from now on.
    pub(crate) fn watch() -> Result<Self, Failure> {
        Ok(Self {
            hangup: watch(SignalKind::hangup())?,
            interrupt: watch(SignalKind::interrupt())?,
            quit: watch(SignalKind::quit())?,
            terminate: watch(SignalKind::terminate())?,
        })
    }

    /// The next one. The numbers of these four are the same on every system.
    pub(crate) async fn next(&mut self) -> i32 {
        let kind = tokio::select! {
            _ = self.hangup.recv() => SignalKind::hangup(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.quit.recv() => SignalKind::quit(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        };
        kind.as_raw_value()
    }
}

impl Signals {
    fn watch() -> Result<Self, Failure> {
        let window = watch(SignalKind::window_change())?;
        Ok(Self { window, ending: EndingSignals::watch()? })
    }

    /// Passes signals on. With a terminal those for agentctl end it, since keys
    /// go to the command as input; returns which one did.
    async fn forward(self, control: &ExecControl, streams: Streams) -> i32 {
        let Self { mut window, mut ending } = self;
        let resize = async {
            while window.recv().await.is_some() {
                if let (Streams::Terminal, Some(size)) = (streams, terminal::size()) {
                    let _ = control.resize(size.rows, size.columns).await;
                }
            }
            std::future::pending().await
        };
        let pass_on = async {
            loop {
                let signal = ending.next().await;
                if streams == Streams::Terminal {
                    return signal;
                }
                // The command may have ended meanwhile; its end is on the way.
                let _ = control.signal(signal, SignalTarget::Command).await;
            }
        };
        tokio::select! {
            signal = pass_on => signal,
            signal = resize => signal,
        }
    }
}
