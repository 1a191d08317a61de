//! Runs commands for the host: from a validated request to the exit status.

mod account;
mod environment;
mod launch;
pub mod launcher;
mod life;
mod reaper;
mod request;
mod spec;
mod streams;
mod table;
mod terminal;
mod termination;
mod wire;

pub use account::{Account, AccountError, Accounts};
pub use launch::LaunchError;
pub use life::{Exec, ExecEvent, ExecState, Input, OrderError, Output, Running};
pub use reaper::{ChildExit, ExitStatus, Reaper};
pub use request::{Directory, ExecRequest, TerminalRequest, UserRequest, Window};
pub use spec::{Limit, ResourceName};
pub use table::{Execs, StartError};
pub use termination::{ask_to_end, end_descendants, end_exec, signal_exec};
