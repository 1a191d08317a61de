//! Watches the command: reports its changes to the agent, sends it signals.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::super::reaper::ExitStatus;
use super::super::wire::{self, FromLauncher, Recipient, Step, ToLauncher};
use super::{AtStep, Stop};

/// Runs until the command has ended.
///
/// If the agent closes the socket the launcher ends; what becomes of the
/// command is then the guardian's or the agent's to decide.
pub(super) fn watch(socket: &UnixStream, command: Pid) -> Result<(), Stop> {
    let mut children = SigSet::empty();
    children.add(nix::sys::signal::SIGCHLD);
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let changes = SignalFd::with_flags(&children, flags).at(Step::Protocol)?;
    loop {
        // First, so that a change before the signal descriptor existed is seen.
        if report_changes(socket, command)? {
            return Ok(());
        }
        let mut polled = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::from_borrowed_fd(changes.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).at(Step::Protocol),
        }
        let (from_agent, from_children) = (polled[0].revents(), polled[1].revents());
        if !from_children.is_empty() {
            while matches!(changes.read_signal(), Ok(Some(_))) {}
        }
        if !from_agent.is_empty()
            && let (ToLauncher::Signal(recipient, signal), _) = wire::receive(socket)?
        {
            send_signal(command, recipient, signal);
        }
    }
}

/// Reports what happened to the command; whether it has ended.
fn report_changes(socket: &UnixStream, command: Pid) -> Result<bool, Stop> {
    let changes = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    while let Ok(Some((pid, status))) = wait(changes) {
        // clone(2) with CLONE_PARENT gives the launcher children it does not know.
        if pid.as_raw_nonzero().get() != command.as_raw() {
            continue;
        }
        let Some(report) = report(status) else {
            continue;
        };
        let ended = matches!(report, FromLauncher::Exited(_));
        wire::send(socket, &report, &[])?;
        if ended {
            return Ok(true);
        }
    }
    Ok(false)
}

fn report(status: WaitStatus) -> Option<FromLauncher> {
    if let Some(exit) = ExitStatus::from_wait(status) {
        return Some(FromLauncher::Exited(exit));
    }
    if status.continued() {
        return Some(FromLauncher::Continued);
    }
    status.stopping_signal().map(FromLauncher::Stopped)
}

/// Sends a signal as the workload that the launcher is: the mediator decides.
fn send_signal(command: Pid, recipient: Recipient, signal: i32) {
    let group = match recipient {
        Recipient::Command => command,
        Recipient::Group(group) => Pid::from_raw(group),
    };
    let sent = kill(-group.as_raw(), signal);
    // A command that left its group is still our child, so its number is its own.
    if sent == Err(Errno::ESRCH) && recipient == Recipient::Command {
        let _ = kill(command.as_raw(), signal);
    }
}

/// kill(2) with any signal number, real-time ones included.
#[allow(unsafe_code)]
fn kill(target: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes two numbers and touches no memory of ours.
    Errno::result(unsafe { libc::kill(target, signal) }).map(drop)
}
