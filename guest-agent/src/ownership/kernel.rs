//! Facts about processes as the kernel has them.

use std::fmt;

use nix::errno::Errno;
use pidfd_util::{PidFd, PidFdExt as _};
use procfs::process::Stat;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::ids::{Pgid, Pid, Sid};

/// Where a process or group belongs, as far as the agent can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership<T> {
    /// There is no such process or group.
    Gone,
    /// It exists, but what it belongs to has no number in the agent's pid
    /// namespace: it came from outside, as init or `docker exec` do.
    OutOfSight,
    /// It belongs to this.
    In(T),
}

impl<T> Membership<T> {
    /// What it belongs to, if that can be said.
    pub fn known(self) -> Option<T> {
        match self {
            Self::In(what) => Some(what),
            Self::Gone | Self::OutOfSight => None,
        }
    }

    /// From what getsid(2) and getpgid(2) return: 0 is a number out of sight.
    fn from_answer(answer: nix::Result<nix::unistd::Pid>, new: fn(i32) -> Option<T>) -> Self {
        match answer {
            Ok(number) => new(number.as_raw()).map_or(Self::OutOfSight, Self::In),
            Err(_) => Self::Gone,
        }
    }
}

/// What ownership asks the kernel.
pub trait Kernel {
    /// Holds on to a process, so that its number given out again is noticed.
    type Handle;

    /// Holds on to the process that has this number now.
    fn open(&self, pid: Pid) -> Option<Self::Handle>;
    /// Whether the process still has its number: it lives, or is an unreaped zombie.
    fn is_taken(&self, handle: &Self::Handle) -> bool;
    /// The session of the process held, `None` once it is reaped.
    fn session_of(&self, handle: &Self::Handle) -> Option<Sid>;
    /// The session of a process or thread (`getsid(2)`).
    fn session(&self, pid: Pid) -> Membership<Sid>;
    /// The process group of a process or thread (`getpgid(2)`).
    fn group(&self, pid: Pid) -> Membership<Pgid>;
    /// Whether a process group has any member.
    fn group_exists(&self, group: Pgid) -> bool;
    /// The members of a session. Slow: reads all of `/proc`.
    fn session_members(&self, sid: Sid) -> Vec<Pid>;
    /// The members of a process group. Slow: reads all of `/proc`.
    fn group_members(&self, group: Pgid) -> Vec<Pid>;
    /// The sessions of all processes. Slow: reads all of `/proc`.
    fn sessions(&self) -> Vec<Sid>;
    /// Whether a process descends from the agent. Slow: reads `/proc`.
    fn is_below_agent(&self, pid: Pid) -> bool;
}

/// The running kernel.
#[derive(Clone, Copy, Debug)]
pub struct Linux {
    agent: Pid,
}

/// A process held by a pidfd.
pub struct ProcessHandle {
    pid: Pid,
    pidfd: PidFd,
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessHandle").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl ProcessHandle {
    /// Sends a signal to the process held, and to no other.
    pub fn signal(&self, signal: i32) -> std::io::Result<()> {
        self.pidfd.send_signal(signal)
    }

    /// The number of the process held.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

/// Whether the process of a pidfd has ended and been reaped.
///
/// `pidfd_send_signal(2)` with signal 0 fails with ESRCH from then on; EPERM
/// still means that the process is there.
#[must_use]
pub fn is_reaped(pidfd: &PidFd) -> bool {
    pidfd.send_signal(0).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}

impl Linux {
    /// The kernel, as the agent with this number sees it.
    #[must_use]
    pub fn new(agent: Pid) -> Self {
        Self { agent }
    }

    /// What `/proc/PID/stat` says of every process.
    pub fn processes(self) -> procfs::ProcResult<Vec<Stat>> {
        // A process that ends meanwhile is left out, as if it had ended before.
        Ok(procfs::process::all_processes()?
            .filter_map(|process| process.ok()?.stat().ok())
            .collect())
    }

    fn select(self, wanted: impl Fn(&Stat) -> bool) -> Vec<Pid> {
        match self.processes() {
            Ok(stats) => stats
                .iter()
                .filter(|stat| wanted(stat))
                .filter_map(|stat| Pid::new(stat.pid))
                .collect(),
            Err(error) => {
                // Nothing found means nothing proved, which protects.
                tracing::warn!(%error, "cannot read /proc: sessions without leader count as ended");
                Vec::new()
            }
        }
    }

    fn parent(pid: Pid) -> Option<Pid> {
        let process = procfs::process::Process::new(pid.get()).ok()?;
        Pid::new(process.stat().ok()?.ppid)
    }
}

impl Kernel for Linux {
    type Handle = ProcessHandle;

    fn open(&self, pid: Pid) -> Option<ProcessHandle> {
        let raw = rustix::process::Pid::from_raw(pid.get())?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).ok()?;
        Some(ProcessHandle { pid, pidfd: pidfd.into() })
    }

    fn is_taken(&self, handle: &ProcessHandle) -> bool {
        !is_reaped(&handle.pidfd)
    }

    fn session_of(&self, handle: &ProcessHandle) -> Option<Sid> {
        let sid = self.session(handle.pid).known()?;
        // Asked by number, so it counts only if the number was still its own.
        self.is_taken(handle).then_some(sid)
    }

    fn session(&self, pid: Pid) -> Membership<Sid> {
        let answer = nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid.get())));
        Membership::from_answer(answer, Sid::new)
    }

    fn group(&self, pid: Pid) -> Membership<Pgid> {
        let answer = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid.get())));
        Membership::from_answer(answer, Pgid::new)
    }

    fn group_exists(&self, group: Pgid) -> bool {
        nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group.get()), None) != Err(Errno::ESRCH)
    }

    fn session_members(&self, sid: Sid) -> Vec<Pid> {
        self.select(|stat| stat.session == sid.get())
    }

    fn group_members(&self, group: Pgid) -> Vec<Pid> {
        self.select(|stat| stat.pgrp == group.get())
    }

    fn sessions(&self) -> Vec<Sid> {
        let mut sessions: Vec<_> = match self.processes() {
            Ok(stats) => stats.iter().filter_map(|stat| Sid::new(stat.session)).collect(),
            Err(error) => {
                tracing::warn!(%error, "cannot read /proc");
                Vec::new()
            }
        };
        sessions.sort();
        sessions.dedup();
        sessions
    }

    fn is_below_agent(&self, pid: Pid) -> bool {
        let mut current = pid;
        loop {
            let Some(parent) = Self::parent(current) else {
                return false;
            };
            if parent == self.agent {
                return true;
            }
            let Some(grandparent) = Self::parent(parent) else {
                // It ended meanwhile, so `current` has a new parent: look again.
                match Self::parent(current) {
                    Some(now) if now != parent => continue,
                    _ => return false,
                }
            };
            // A parent stays one until it ends: if it still is, then what was
            // read through its number was read of it.
            if Self::parent(current) == Some(parent) && grandparent != current {
                current = parent;
            }
        }
    }
}
