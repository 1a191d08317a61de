//! Exit codes and the one line that explains them.

use std::process::ExitCode;

use host_proto::error::Reason;
use tonic::{Code, Status};

/// Anything that is not the command's own failure.
const EXIT_ERROR: u8 = 125;

/// The command exists but cannot be executed.
const EXIT_NOT_EXECUTABLE: u8 = 126;

/// The command does not exist.
const EXIT_NOT_FOUND: u8 = 127;

/// Why agentctl ends without the command's status.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: Option<String>,
}

impl Failure {
    /// Prints the message and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            eprintln!("agentctl: {message}");
        }
        ExitCode::from(self.code)
    }

    /// A failure explained by a message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: EXIT_ERROR, message: Some(message.into()) }
    }

    /// A signal ended agentctl itself.
    pub(crate) fn signal(signal: i32) -> Self {
        Self { code: u8::try_from(128 + signal).unwrap_or(EXIT_ERROR), message: None }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(format!("{error:#}"))
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let code = match Reason::of(&status) {
            Some(Reason::CommandNotFound) => EXIT_NOT_FOUND,
            Some(Reason::CommandNotExecutable) => EXIT_NOT_EXECUTABLE,
            _ => EXIT_ERROR,
        };
        let is_transport = matches!(
            status.code(),
            Code::Cancelled | Code::Internal | Code::Unavailable | Code::Unknown
        );
        let message = match Reason::of(&status) {
            None if is_transport => {
                format!("lost the connection to the agent: {}", describe(&status))
            }
            _ => describe(&status),
        };
        Self { code, message: Some(message) }
    }
}

fn describe(status: &Status) -> String {
    if status.message().is_empty() {
        status.code().to_string()
    } else {
        status.message().to_owned()
    }
}

/// clap's own message, with the exit code of agentctl.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // Nothing better can be done if it cannot be printed.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(EXIT_ERROR) } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_codes_of_shells() {
        let code = |status: Status| Failure::from(status).code;
        assert_eq!(code(Reason::CommandNotFound.status("x")), 127);
        assert_eq!(code(Reason::CommandNotExecutable.status("x")), 126);
        assert_eq!(code(Reason::UnknownUser.status("x")), 125);
        assert_eq!(code(Status::not_found("x")), 125);
        assert_eq!(Failure::signal(15).code, 143);
    }

    #[test]
    fn a_status_of_the_transport_is_a_lost_connection() {
        let message = Failure::from(Status::unavailable("broken pipe")).message.unwrap();
        assert_eq!(message, "lost the connection to the agent: broken pipe");
        let message = Failure::from(Status::out_of_range("too large")).message.unwrap();
        assert_eq!(message, "too large");
    }
}
