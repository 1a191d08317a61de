//! Who owns a session, a process group, a process.
//!
//! A session is the unit of ownership: the kernel keeps a process group inside
//! one session (`setpgid(2)`), so the owner of a group is the owner of its
//! session. The agent records each workload session before it exists, so what
//! is not recorded is not workload.

mod groups;
mod kernel;
mod sessions;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use kernel::{Kernel, Linux, Membership, ProcessHandle, is_reaped};
pub use sessions::RecordError;

use crate::ids::{ExecId, Pgid, Pid, Sid, Tgid};
use groups::GroupMembers;
use sessions::{Lookup, Sessions};

/// The sessions of all workloads, shared by the mediators.
///
/// No lock is held while `/proc` is read: how long that takes is up to the
/// workload, and another exec's mediator must not wait for it.
#[derive(Debug)]
pub struct Ownership<K: Kernel = Linux> {
    kernel: K,
    sessions: Mutex<Sessions<K::Handle>>,
    groups: Mutex<GroupMembers>,
}

/// Locks even after a panic elsewhere: both tables are whole after each step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Kernel> Ownership<K> {
    /// Starts with no workload.
    pub fn new(kernel: K, max_sessions: usize) -> Self {
        Self { kernel, sessions: Mutex::new(Sessions::new(max_sessions)), groups: Mutex::default() }
    }

    /// The kernel whose facts these are.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Records that the session which `leader` founds belongs to `exec`.
    ///
    /// Upholds that the set of workload sessions is exact: it is called before
    /// the session exists. `still_leader` is asked once the process is held, so
    /// that a number given out again meanwhile is not recorded for the exec. If
    /// the founding then fails, the entry is harmless: while `leader` lives
    /// nobody else can found a session of that number, and once it is gone the
    /// entry proves nothing (see [`Self::owner`]).
    pub fn record(
        &self,
        leader: Tgid,
        exec: ExecId,
        still_leader: impl FnOnce() -> bool,
    ) -> Result<(), RecordError> {
        if lock(&self.sessions).wants_sweep() {
            self.sweep();
        }
        let handle = self.kernel.open(leader.pid()).ok_or(RecordError::Gone(leader))?;
        if !still_leader() {
            return Err(RecordError::Gone(leader));
        }
        lock(&self.sessions).insert(leader.founded_session(), exec, handle)
    }

    /// The exec that owns a session, or `None` for whatever is not provably workload.
    pub fn owner(&self, sid: Sid) -> Option<ExecId> {
        let lookup = lock(&self.sessions).lookup(sid, &self.kernel);
        match lookup {
            Lookup::Unknown => None,
            Lookup::Proven(exec) => Some(exec),
            Lookup::NeedsWitness(generation) => {
                let witness = self.find_witness(sid);
                lock(&self.sessions).settle(sid, generation, witness)
            }
        }
    }

    /// A living member of a session whose leader is gone.
    ///
    /// While the old session has a member its number cannot be given out again.
    /// After that it can, to a foreign process even; so a member counts only if
    /// it also descends from the agent, which as a subreaper adopts every orphan
    /// of a workload.
    fn find_witness(&self, sid: Sid) -> Option<K::Handle> {
        if self.kernel.session(sid.leader().pid()) != Membership::Gone {
            return None;
        }
        self.kernel.session_members(sid).into_iter().find_map(|pid| {
            let handle = self.kernel.open(pid)?;
            let is_member = self.kernel.session(pid) == Membership::In(sid)
                && self.kernel.is_below_agent(pid)
                && self.kernel.is_taken(&handle);
            is_member.then_some(handle)
        })
    }

    /// Drops the sessions that have no process any more.
    fn sweep(&self) {
        let candidates = lock(&self.sessions).leaderless(&self.kernel);
        let living = if candidates.is_empty() { Vec::new() } else { self.kernel.sessions() };
        let mut sessions = lock(&self.sessions);
        for (sid, generation) in candidates {
            if !living.contains(&sid) {
                sessions.settle(sid, generation, None);
            }
        }
        sessions.swept();
    }

    /// The session of a process group.
    pub fn session_of_group(&self, group: Pgid) -> Membership<Sid> {
        if let Some(sid) = self.session_through(group, group.founder()) {
            return Membership::In(sid);
        }
        if !self.kernel.group_exists(group) {
            lock(&self.groups).forget(group);
            return Membership::Gone;
        }
        // The founder is gone (`a | b` after `a`). Members that setpgid named
        // are asked first; only if none is left is /proc searched.
        let named = lock(&self.groups).members(group);
        let named = named.into_iter().find_map(|member| self.session_through(group, member));
        let found = named.or_else(|| {
            self.kernel.group_members(group).into_iter().find_map(|member| {
                let sid = self.session_through(group, member)?;
                lock(&self.groups).joined(group, member);
                Some(sid)
            })
        });
        found.map_or(Membership::OutOfSight, Membership::In)
    }

    /// The session of a group as one of its members has it.
    ///
    /// The member is asked for its group before and after, so that a number
    /// given out again in between does not answer for another process.
    fn session_through(&self, group: Pgid, member: Pid) -> Option<Sid> {
        if self.kernel.group(member) != Membership::In(group) {
            return None;
        }
        let sid = self.kernel.session(member).known()?;
        (self.kernel.group(member) == Membership::In(group)).then_some(sid)
    }

    /// Remembers a process that setpgid moves into a group, as a hint.
    pub fn joined(&self, group: Pgid, member: Pid) {
        lock(&self.groups).joined(group, member);
    }

    /// Every recorded session that still has a provable owner.
    pub fn owned_sessions(&self) -> Vec<(Sid, ExecId)> {
        let recorded = lock(&self.sessions).recorded();
        recorded.into_iter().filter_map(|sid| Some((sid, self.owner(sid)?))).collect()
    }
}

#[cfg(test)]
mod tests;
