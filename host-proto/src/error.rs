//! Errors on the wire: a gRPC status with a stable reason.

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The `google.rpc.ErrorInfo` domain of every reason.
pub const DOMAIN: &str = "guestagent.v1";

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $code:ident;)*) => {
        /// Why a request failed. The words are part of the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The status code that goes with it.
            #[must_use]
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)* }
            }
        }
    };
}

reasons! {
    /// The request names another instance of the agent.
    InstanceMismatch = "INSTANCE_MISMATCH", FailedPrecondition;
    /// The bearer token is missing or wrong.
    BadToken = "BAD_TOKEN", Unauthenticated;
    /// Too many connections.
    TooManyConnections = "TOO_MANY_CONNECTIONS", ResourceExhausted;
    /// A grace period out of range.
    InvalidGracePeriod = "INVALID_GRACE_PERIOD", InvalidArgument;
    /// The first message of a run is not `start`.
    NoStart = "NO_START", InvalidArgument;
    /// A second `start`.
    AlreadyStarted = "ALREADY_STARTED", InvalidArgument;
    /// An empty or unusable command.
    InvalidCommand = "INVALID_COMMAND", InvalidArgument;
    /// An environment entry that is not `NAME=VALUE`.
    InvalidEnvironment = "INVALID_ENVIRONMENT", InvalidArgument;
    /// No such user or group.
    UnknownUser = "UNKNOWN_USER", InvalidArgument;
    /// The working directory cannot be entered.
    InvalidDirectory = "INVALID_DIRECTORY", InvalidArgument;
    /// No such resource limit, or one that cannot be set.
    InvalidRlimit = "INVALID_RLIMIT", InvalidArgument;
    /// A window without rows or columns.
    InvalidWindow = "INVALID_WINDOW", InvalidArgument;
    /// No such signal.
    InvalidSignal = "INVALID_SIGNAL", InvalidArgument;
    /// A message or enum value that this version does not know.
    InvalidTarget = "INVALID_TARGET", InvalidArgument;
    /// The exec has no terminal.
    NoTerminal = "NO_TERMINAL", FailedPrecondition;
    /// The exec's launcher takes no orders.
    LauncherStuck = "LAUNCHER_STUCK", FailedPrecondition;
    /// The command does not exist.
    CommandNotFound = "COMMAND_NOT_FOUND", NotFound;
    /// The command exists but cannot be executed.
    CommandNotExecutable = "COMMAND_NOT_EXECUTABLE", PermissionDenied;
    /// The agent has not the right to run commands as that user.
    UserSwitch = "USER_SWITCH", PermissionDenied;
    /// The limit of concurrent execs is reached.
    TooManyExecs = "TOO_MANY_EXECS", ResourceExhausted;
    /// The agent is ending.
    ShuttingDown = "SHUTTING_DOWN", Unavailable;
    /// A step of an exec's set-up failed.
    LaunchFailed = "LAUNCH_FAILED", Internal;
    /// No such exec.
    ExecNotFound = "EXEC_NOT_FOUND", NotFound;
    /// The exec has ended.
    ExecEnded = "EXEC_ENDED", FailedPrecondition;
    /// `/proc` cannot be read.
    ProcUnreadable = "PROC_UNREADABLE", Unavailable;
    /// A sequence number that was never reached.
    SequenceInFuture = "SEQUENCE_IN_FUTURE", OutOfRange;
}

impl Reason {
    /// The status that tells a client of this reason.
    pub fn status(self, message: impl Into<String>) -> Status {
        let details = ErrorDetails::with_error_info(self.as_str(), DOMAIN, []);
        Status::with_error_details(self.code(), message, details)
    }

    /// The reason that `status` carries, if it is one of ours.
    #[must_use]
    pub fn of(status: &Status) -> Option<Self> {
        let info = status.get_details_error_info()?;
        if info.domain != DOMAIN {
            return None;
        }
        Self::ALL.iter().copied().find(|reason| reason.as_str() == info.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_wire() {
        for &reason in Reason::ALL {
            let status = reason.status("text");
            assert_eq!(status.code(), reason.code());
            assert_eq!(Reason::of(&status), Some(reason));
        }
    }

    #[test]
    fn a_foreign_status_has_no_reason() {
        assert_eq!(Reason::of(&Status::internal("text")), None);
    }
}
