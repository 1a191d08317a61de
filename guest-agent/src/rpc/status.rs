//! Errors of the layers below as statuses.

use host_proto::error::Reason;
use tonic::Status;

use crate::exec::{LaunchError, OrderError, StartError};

pub(super) fn of_start(error: &StartError) -> Status {
    let reason = match error {
        StartError::TooMany(_) => Reason::TooManyExecs,
        StartError::ShuttingDown => Reason::ShuttingDown,
        StartError::Account(_) => Reason::UnknownUser,
        StartError::UserSwitch { .. } => Reason::UserSwitch,
        StartError::Launch(error) => match error {
            LaunchError::Directory { .. } => Reason::InvalidDirectory,
            LaunchError::Limit { .. } => Reason::InvalidRlimit,
            LaunchError::CommandNotFound(_) => Reason::CommandNotFound,
            LaunchError::CommandNotExecutable { .. } => Reason::CommandNotExecutable,
            LaunchError::Credentials(_) => Reason::UserSwitch,
            LaunchError::Prepare { .. }
            | LaunchError::Step { .. }
            | LaunchError::Launcher(_)
            | LaunchError::Session(_) => Reason::LaunchFailed,
        },
    };
    reason.status(error.to_string())
}

pub(super) fn of_order(error: OrderError) -> Status {
    let reason = match error {
        OrderError::Ended => Reason::ExecEnded,
        OrderError::NoTerminal | OrderError::Terminal => Reason::NoTerminal,
        OrderError::Stuck => Reason::LauncherStuck,
    };
    reason.status(error.to_string())
}
