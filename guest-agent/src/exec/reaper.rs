//! The one place in the agent that waits for children.
//!
//! The agent gets children that it did not start: it is a subreaper, so orphans
//! of workloads become its own, and clone(2) with `CLONE_PARENT` makes more. It
//! also sees stops that it did not ask for, of children that called
//! `PTRACE_TRACEME`. Whatever the child and its state: it is reaped or passed over.

use std::collections::HashMap;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::process::{WaitId, WaitIdOptions, WaitOptions, wait, waitid};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::ids::Pid;

/// `__WALL`, linux/wait.h: also children whose exit signal is not SIGCHLD.
const WALL: u32 = 0x4000_0000;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It called exit.
    Code(i32),
    /// A signal ended it.
    Signal {
        /// Which.
        signal: i32,
        /// Whether a core was dumped.
        core_dumped: bool,
    },
}

impl ExitStatus {
    /// From what wait(2) returns; `None` for a process that has not ended.
    pub(super) fn from_wait(status: rustix::process::WaitStatus) -> Option<Self> {
        /// `WCOREDUMP`, wait(2).
        const CORE_DUMPED: i32 = 0x80;
        if let Some(code) = status.exit_status() {
            return Some(Self::Code(code));
        }
        let signal = status.terminating_signal()?;
        Some(Self::Signal { signal, core_dumped: status.as_raw() & CORE_DUMPED != 0 })
    }

    /// The exit code a shell gives: 128 and the number for a signal.
    #[must_use]
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal { signal, .. } => 128 + signal,
        }
    }
}

/// The end of a child, once it comes.
#[derive(Clone, Debug)]
pub struct ChildExit(watch::Receiver<Option<ExitStatus>>);

impl ChildExit {
    /// Waits for the end.
    pub async fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = *self.0.borrow_and_update() {
                return status;
            }
            if self.0.changed().await.is_err() {
                // The reaper never drops the sender of a child it has not reaped.
                return ExitStatus::Signal { signal: libc::SIGKILL, core_dumped: false };
            }
        }
    }
}

/// Starts children and reaps all there are.
#[derive(Clone, Debug)]
pub struct Reaper(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    children: Mutex<HashMap<Pid, watch::Sender<Option<ExitStatus>>>>,
    may_have_children: Condvar,
}

impl Reaper {
    /// Starts the thread that waits.
    pub fn start() -> std::io::Result<Self> {
        // Were SIGCHLD ignored, as whoever started the agent may have it, the
        // kernel would reap in our place.
        signal_hook::flag::register(libc::SIGCHLD, Arc::default())?;
        let reaper = Self(Arc::default());
        let thread = reaper.clone();
        std::thread::Builder::new().name("reaper".into()).spawn(move || thread.run())?;
        Ok(reaper)
    }

    /// Starts a child.
    pub fn spawn(&self, command: &mut Command) -> std::io::Result<(Pid, ChildExit)> {
        // Held until the child is known, so that it is not reaped before.
        let mut children = self.children();
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::new);
        let pid = pid.ok_or_else(|| std::io::Error::other("the child's number is out of range"))?;
        let (sender, receiver) = watch::channel(None);
        children.insert(pid, sender);
        drop(children);
        self.0.may_have_children.notify_one();
        Ok((pid, ChildExit(receiver)))
    }

    /// Whether a child of ours still has its number: it has not been reaped.
    #[must_use]
    pub fn holds(&self, pid: Pid) -> bool {
        self.children().contains_key(&pid)
    }

    fn children(&self) -> MutexGuard<'_, HashMap<Pid, watch::Sender<Option<ExitStatus>>>> {
        self.0.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let any_end = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let any_end = any_end | WaitIdOptions::from_bits_retain(WALL);
        loop {
            match waitid(WaitId::All, any_end) {
                Ok(_) => self.reap_ended(),
                Err(rustix::io::Errno::CHILD) => self.wait_for_children(),
                Err(_) => {}
            }
        }
    }

    /// Reaps under the lock, so that [`Self::holds`] is exact.
    fn reap_ended(&self) {
        let mut children = self.children();
        let ended = WaitOptions::NOHANG | WaitOptions::from_bits_retain(WALL);
        while let Ok(Some((pid, status))) = wait(ended) {
            // A stop of a traced child comes here too, and is none of our business.
            let Some(status) = ExitStatus::from_wait(status) else {
                continue;
            };
            let pid = Pid::new(pid.as_raw_nonzero().get());
            match pid.and_then(|pid| children.remove(&pid)) {
                Some(exit) => drop(exit.send_replace(Some(status))),
                None => tracing::trace!(?pid, "reaped an orphan"),
            }
        }
    }

    /// Sleeps until a child may exist. Orphans come only while their ancestors,
    /// our children, live: without children none can come.
    fn wait_for_children(&self) {
        let children = self.children();
        let none = |children: &mut HashMap<_, _>| children.is_empty();
        drop(self.0.may_have_children.wait_while(children, none));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_codes_that_shells_give() {
        assert_eq!(ExitStatus::Code(3).shell_code(), 3);
        assert_eq!(ExitStatus::Signal { signal: 9, core_dumped: false }.shell_code(), 137);
    }
}
