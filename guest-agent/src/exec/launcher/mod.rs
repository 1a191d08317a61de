//! The launcher: a small process of its own between the agent and a command.
//!
//! It is the session leader, so that the command, in a process group below it,
//! can be stopped and continued (the kernel discards Ctrl-Z in the group of a
//! session leader whose parent is elsewhere). It puts itself under the filter
//! before the command exists, and from then on is workload: no privilege, no
//! secret, and its signals are mediated like any other. It reports stops over
//! its socket rather than by stopping itself, so that it can always be asked to
//! continue the command, even as the first process of a pid namespace.

mod capabilities;
mod command;
mod setup;
mod watch;

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use super::spec::{LaunchSpec, StreamKind};
use super::wire::{self, Failure, FromLauncher, Step, ToLauncher, WireError};

/// The launcher's end of the socket pair: its standard input.
fn control() -> std::io::Result<UnixStream> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    Ok(UnixStream::from(socket))
}

/// Runs the launcher until its command has ended; returns its exit code.
#[must_use]
pub fn run() -> i32 {
    let Ok(socket) = control() else { return 1 };
    match launch(&socket) {
        Ok(()) => 0,
        Err(Stop::Failed(failure)) => {
            // If the agent is gone there is nobody left to tell.
            let _ = wire::send(&socket, &FromLauncher::Failed(failure), &[]);
            1
        }
        Err(Stop::AgentGone) => 1,
    }
}

/// Why the launcher ends before the command has.
enum Stop {
    /// A step failed.
    Failed(Failure),
    /// The agent closed the socket.
    AgentGone,
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Closed | WireError::Io(_) => Self::AgentGone,
            WireError::TooLong(_) | WireError::Malformed(_) => {
                Self::Failed(Failure { step: Step::Protocol, errno: libc::EBADMSG })
            }
        }
    }
}

/// Names the step that an error belongs to.
trait AtStep<T> {
    fn at(self, step: Step) -> Result<T, Stop>;
}

impl<T, E: Into<std::io::Error>> AtStep<T> for Result<T, E> {
    fn at(self, step: Step) -> Result<T, Stop> {
        self.map_err(|error| {
            let errno = error.into().raw_os_error().unwrap_or(libc::EIO);
            Stop::Failed(Failure { step, errno })
        })
    }
}

/// The descriptors of the command's streams.
enum Streams {
    Terminal(OwnedFd),
    Pipes { stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd },
}

impl Streams {
    fn from_descriptors(kind: StreamKind, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let streams = match kind {
            StreamKind::Terminal => Self::Terminal(descriptors.next()?),
            StreamKind::Pipes => Self::Pipes {
                stdin: descriptors.next()?,
                stdout: descriptors.next()?,
                stderr: descriptors.next()?,
            },
        };
        descriptors.next().is_none().then_some(streams)
    }
}

fn launch(socket: &UnixStream) -> Result<(), Stop> {
    let protocol = || Stop::Failed(Failure { step: Step::Protocol, errno: libc::EPROTO });
    let (ToLauncher::Spec(spec), descriptors) = wire::receive(socket)? else {
        return Err(protocol());
    };
    let spec: LaunchSpec = *spec;
    let streams = Streams::from_descriptors(spec.streams, descriptors).ok_or_else(protocol)?;
    setup::become_session(&streams)?;
    setup::apply_attributes(&spec)?;
    let listener = setup::enter_filter(&spec)?;
    wire::send(socket, &FromLauncher::Ready, &[listener.as_fd()])?;
    // Nobody but the agent may hold the listener: when the agent dies, the
    // kernel answers every further call with ENOSYS.
    drop(listener);
    let (ToLauncher::Go, _) = wire::receive(socket)? else {
        return Err(protocol());
    };
    let pid = command::start(&spec, streams)?;
    wire::send(socket, &FromLauncher::Started(pid.as_raw()), &[])?;
    watch::watch(socket, pid)
}
