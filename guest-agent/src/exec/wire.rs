//! Messages between the agent and a launcher, over a socket pair.
//!
//! A message is a length (four bytes, little endian) and a body in postcard's
//! format. Descriptors travel with the length. Once the command runs, the agent
//! takes whatever comes from the other end for untrusted.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::reaper::ExitStatus;
use super::spec::LaunchSpec;

/// The longest body. Arguments and environment of one execve(2) are limited to
/// 6 MiB (`_STK_LIM` * 3 / 4), which leaves room for the rest.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// The longest body that a running launcher sends; its messages are a few bytes.
pub(super) const MAX_REPORT: usize = 1024;

/// Descriptors with one message: standard input, output and error.
const MAX_DESCRIPTORS: usize = 3;

/// From the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToLauncher {
    /// What to run; with the descriptors of its streams.
    Spec(Box<LaunchSpec>),
    /// The session is recorded and the mediator answers: run the command.
    Go,
    /// Send a signal.
    Signal(Recipient, i32),
}

/// Whom the launcher sends a signal to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Recipient {
    /// The command's process group.
    Command,
    /// The process group with this number.
    Group(i32),
}

/// From the launcher.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromLauncher {
    /// The filter is installed; with its listener.
    Ready,
    /// A step failed; the launcher ends.
    Failed(Failure),
    /// The command runs, as this process.
    Started(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command was continued.
    Continued,
    /// The command ended; the launcher ends too.
    Exited(ExitStatus),
}

/// Which step failed, and with which errno.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) errno: i32,
}

/// A step of the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    /// The agent's messages.
    Protocol,
    /// setsid.
    Session,
    /// Making the terminal the session's.
    Terminal,
    /// setrlimit of this resource.
    Limit(String),
    /// setgroups, setgid, setuid.
    Credentials,
    /// Dropping capabilities.
    Capabilities,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// The working directory.
    Directory,
    /// The seccomp filter.
    Filter,
    /// fork.
    Fork,
    /// The child's process group and standard descriptors.
    ChildSetup,
    /// execve.
    Execute,
}

/// Why a message could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("the launcher's socket failed: {0}")]
    Io(#[from] io::Error),
    #[error("the other end closed the launcher's socket")]
    Closed,
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    #[error("a message is malformed: {0}")]
    Malformed(#[from] postcard::Error),
}

/// A message as bytes, length first.
pub(super) fn encode(message: &impl Serialize) -> Result<Vec<u8>, WireError> {
    let mut bytes = postcard::to_extend(message, vec![0; 4])?;
    let length = bytes.len() - 4;
    let prefix = u32::try_from(length).ok().filter(|_| length <= MAX_BODY);
    let prefix = prefix.ok_or(WireError::TooLong(length))?;
    bytes[..4].copy_from_slice(&prefix.to_le_bytes());
    Ok(bytes)
}

/// The length that a prefix announces, if a body of `limit` bytes can have it.
pub(super) fn body_length(prefix: [u8; 4], limit: usize) -> Result<usize, WireError> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length <= limit { Ok(length) } else { Err(WireError::TooLong(length)) }
}

/// The message in a body.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    Ok(postcard::from_bytes(body)?)
}

/// Sends a message with descriptors.
pub(super) fn send(
    mut socket: &UnixStream,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    let bytes = encode(message)?;
    let mut rest = bytes.as_slice();
    if !descriptors.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(WireError::TooLong(descriptors.len()));
        }
        let sent = rustix::io::retry_on_intr(|| {
            sendmsg(socket, &[IoSlice::new(&rest[..4])], &mut control, SendFlags::NOSIGNAL)
        })
        .map_err(io::Error::from)?;
        rest = &rest[sent..];
    }
    socket.write_all(rest)?;
    Ok(())
}

/// Receives a message and the descriptors that came with it.
pub(super) fn receive<T: DeserializeOwned>(
    mut socket: &UnixStream,
) -> Result<(T, Vec<OwnedFd>), WireError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut prefix = [0; 4];
    let received = rustix::io::retry_on_intr(|| {
        let mut buffer = [IoSliceMut::new(&mut prefix)];
        recvmsg(socket.as_fd(), &mut buffer, &mut control, RecvFlags::CMSG_CLOEXEC)
    })
    .map_err(io::Error::from)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if received.bytes == 0 {
        return Err(WireError::Closed);
    }
    socket.read_exact(&mut prefix[received.bytes..])?;
    let mut body = vec![0; body_length(prefix, MAX_BODY)?];
    socket.read_exact(&mut body)?;
    Ok((decode(&body)?, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_descriptors_arrive() {
        let (agent, launcher) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        send(&agent, &ToLauncher::Go, &[]).unwrap();
        send(&launcher, &FromLauncher::Ready, &[null.as_fd()]).unwrap();
        let (message, descriptors) = receive::<ToLauncher>(&launcher).unwrap();
        assert!(matches!(message, ToLauncher::Go) && descriptors.is_empty());
        let (message, descriptors) = receive::<FromLauncher>(&agent).unwrap();
        assert_eq!((message, descriptors.len()), (FromLauncher::Ready, 1));
    }

    #[test]
    fn a_closed_socket_is_told_from_a_broken_message() {
        let (agent, mut launcher) = UnixStream::pair().unwrap();
        launcher.write_all(&[1, 0, 0, 0, 0xff]).unwrap();
        launcher.write_all(&[0xff; 4]).unwrap();
        drop(launcher);
        assert!(matches!(receive::<FromLauncher>(&agent), Err(WireError::Malformed(_))));
        assert!(matches!(receive::<FromLauncher>(&agent), Err(WireError::TooLong(_))));
        assert!(matches!(receive::<FromLauncher>(&agent), Err(WireError::Closed)));
    }
}
