//! Who makes a call, from `/proc/TID/status`.

use procfs::process::{Process, Status};

use crate::ids::{Pid, Tgid};

/// A calling thread as the audit reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerIdentity {
    /// Its process.
    pub process: Tgid,
    /// Its real user id.
    pub uid: u32,
    /// Its name.
    pub comm: String,
}

impl CallerIdentity {
    /// Reads the identity of a thread; `None` if it is gone.
    #[must_use]
    pub fn read(thread: Pid) -> Option<Self> {
        let status = status(thread)?;
        Some(Self { process: Tgid::new(status.tgid)?, uid: status.ruid, comm: status.name })
    }
}

/// The process of a thread; `None` if it is gone.
pub(super) fn process_of(thread: Pid) -> Option<Tgid> {
    Tgid::new(status(thread)?.tgid)
}

/// Whether a thread is in a pid namespace below the reader's: then `NSpid` has
/// its number in each, from the reader's down (proc(5)).
pub(super) fn is_in_nested_pid_namespace(thread: Pid) -> bool {
    status(thread).and_then(|status| status.nspid).is_some_and(|numbers| numbers.len() > 1)
}

fn status(thread: Pid) -> Option<Status> {
    Process::new(thread.get()).ok()?.status().ok()
}
