//! What agentctl shows of an agent.

pub(crate) mod audit;
pub(crate) mod info;
mod json;
pub(crate) mod ps;

use std::io::Write as _;

use serde::Serialize;

use crate::exit::Failure;

/// Prints a line; a reader that has gone ends agentctl without a word.
fn print_line(line: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::signal(SIGPIPE),
        _ => Failure::new(format!("cannot write: {error}")),
    })
}

/// The same number on every system.
const SIGPIPE: i32 = 13;

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(anyhow::Error::from)?;
    print_line(&line)
}

/// An enum value's name without the prefix that protobuf wants: `DECISION_DENY`
/// becomes `deny`.
fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

fn time(timestamp: Option<prost_types::Timestamp>) -> Option<String> {
    let time = std::time::SystemTime::try_from(timestamp?).ok()?;
    Some(humantime::format_rfc3339_micros(time).to_string())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
