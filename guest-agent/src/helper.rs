//! Trusted processes that the agent runs beside the workload.
//!
//! They live in the agent's own session and group, and never leave them: they
//! start before the first workload, and are restarted in place. So no session or
//! group number of a workload can come to be theirs.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;

use crate::audit::{Audit, EventKind, HelperPhase};
use crate::config::Helper;
use crate::exec::{ChildExit, Reaper};

/// Pause before the first restart; doubled with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause: a helper that keeps failing costs nothing by then.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A helper that ran for this long has recovered.
const RECOVERED: Duration = Duration::from_secs(60);

/// The longest line of a helper's output that goes to the log as one, in bytes.
const LONGEST_LINE: u64 = 8 * 1024;

/// A helper cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("helper '{name}': cannot start {command}: {source}")]
pub struct HelperError {
    name: String,
    command: String,
    source: std::io::Error,
}

/// The pause before a restart, by what came before.
#[derive(Clone, Copy, Debug)]
struct Backoff(Duration);

impl Backoff {
    const fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// The pause after a run of this length, and the backoff from then on.
    fn after(self, ran: Duration) -> (Duration, Self) {
        let pause = if ran >= RECOVERED { FIRST_PAUSE } else { self.0 };
        (pause, Self((pause * 2).min(LONGEST_PAUSE)))
    }
}

/// Starts a helper and keeps it running until the agent ends.
pub fn start(helper: Helper, reaper: Reaper, audit: Audit) -> Result<(), HelperError> {
    let supervisor = Supervisor { helper, reaper, audit };
    let exit = supervisor.spawn()?;
    tokio::spawn(supervisor.keep(exit));
    Ok(())
}

struct Supervisor {
    helper: Helper,
    reaper: Reaper,
    audit: Audit,
}

impl Supervisor {
    async fn keep(self, mut exit: ChildExit) {
        let mut backoff = Backoff::new();
        let mut began = Instant::now();
        loop {
            let status = exit.wait().await;
            tracing::warn!(helper = %self.helper.name, ?status, "a helper ended");
            self.record(HelperPhase::Exited(status));
            loop {
                let (pause, next) = backoff.after(began.elapsed());
                backoff = next;
                tokio::time::sleep(pause).await;
                began = Instant::now();
                match self.spawn() {
                    Ok(started) => {
                        exit = started;
                        break;
                    }
                    Err(error) => {
                        tracing::error!(%error, "a helper cannot be restarted");
                        self.record(HelperPhase::Failed);
                    }
                }
            }
        }
    }

    fn spawn(&self) -> Result<ChildExit, HelperError> {
        let Helper { name, command, environment } = &self.helper;
        let (program, arguments) = command.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
        let failed =
            |source| HelperError { name: name.clone(), command: program.to_owned(), source };
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let output = Receiver::from_owned_fd(reader.into()).map_err(failed)?;
        let errors = writer.try_clone().map_err(failed)?;
        let mut process = Command::new(program);
        process.args(arguments).env_remove("MALLOC_ARENA_MAX").envs(environment).current_dir("/");
        process.stdin(Stdio::null()).stdout(writer).stderr(errors);
        let (pid, exit) = self.reaper.spawn(&mut process).map_err(failed)?;
        tracing::info!(helper = %name, %pid, "helper started");
        self.record(HelperPhase::Started(pid));
        tokio::spawn(log_output(name.clone(), output));
        Ok(exit)
    }

    fn record(&self, phase: HelperPhase) {
        self.audit.record(None, EventKind::Helper { name: self.helper.name.clone(), phase });
    }
}

/// Copies a helper's output to the log, line by line.
async fn log_output(helper: String, output: Receiver) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        let mut limited = tokio::io::AsyncReadExt::take(&mut output, LONGEST_LINE);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line);
                tracing::info!(%helper, "{}", line.trim_end());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_spaced_out() {
        let mut backoff = Backoff::new();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let (pause, next) = backoff.after(Duration::ZERO);
            pauses.push(pause);
            backoff = next;
        }
        assert_eq!(pauses[..3], [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]);
        assert_eq!(pauses[11], LONGEST_PAUSE);
        assert_eq!(backoff.after(RECOVERED).0, FIRST_PAUSE);
    }
}
