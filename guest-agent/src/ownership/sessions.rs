//! The table of workload sessions: pure, but for asking whether a handle lives.

use std::collections::HashMap;

use super::kernel::Kernel;
use crate::ids::{ExecId, Sid, Tgid};

/// Sessions between two sweeps, so that sweeping costs little per session.
const FIRST_SWEEP: usize = 64;

/// Why a session was not recorded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    /// Too many live already.
    #[error("the limit of {0} workload sessions is reached; end some or raise limits.max_sessions")]
    Limit(usize),
    /// The process that would found it has ended, or cannot be held.
    #[error("process {0} ended before its session could be recorded")]
    Gone(Tgid),
}

/// Tells one recording of a session number from a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// What the table alone can say of a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Not recorded.
    Unknown,
    /// Recorded, and the number cannot have been given out again.
    Proven(ExecId),
    /// Recorded, but only a living member can prove that it is the same session.
    NeedsWitness(Generation),
}

#[derive(Debug)]
struct Entry<H> {
    exec: ExecId,
    generation: Generation,
    leader: H,
    /// A member, once the leader is gone.
    witness: Option<H>,
}

#[derive(Debug)]
pub(super) struct Sessions<H> {
    entries: HashMap<Sid, Entry<H>>,
    next_generation: u64,
    sweep_at: usize,
    limit: usize,
}

impl<H> Sessions<H> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            next_generation: 0,
            sweep_at: FIRST_SWEEP.min(limit),
            limit,
        }
    }

    /// Whether ended sessions should be dropped before the next insertion.
    pub(super) fn wants_sweep(&self) -> bool {
        self.entries.len() >= self.sweep_at
    }

    pub(super) fn swept(&mut self) {
        self.sweep_at = (self.entries.len() * 2).clamp(FIRST_SWEEP, self.limit.max(FIRST_SWEEP));
    }

    /// Records a session. An older entry of the same number is replaced: the
    /// number was free, or is being founded again by the same process.
    pub(super) fn insert(&mut self, sid: Sid, exec: ExecId, leader: H) -> Result<(), RecordError> {
        if self.entries.len() >= self.limit && !self.entries.contains_key(&sid) {
            return Err(RecordError::Limit(self.limit));
        }
        self.next_generation += 1;
        let generation = Generation(self.next_generation);
        self.entries.insert(sid, Entry { exec, generation, leader, witness: None });
        Ok(())
    }

    pub(super) fn lookup<K: Kernel<Handle = H>>(&mut self, sid: Sid, kernel: &K) -> Lookup {
        let Some(entry) = self.entries.get_mut(&sid) else {
            return Lookup::Unknown;
        };
        if kernel.is_taken(&entry.leader) {
            return Lookup::Proven(entry.exec);
        }
        // The witness keeps the number taken as long as it is in the session;
        // it leaves when it founds one of its own.
        let witnessed =
            entry.witness.as_ref().is_some_and(|witness| kernel.session_of(witness) == Some(sid));
        if witnessed { Lookup::Proven(entry.exec) } else { Lookup::NeedsWitness(entry.generation) }
    }

    /// Takes in what the search for a witness found, unless the number was
    /// recorded anew meanwhile; without a witness the session has ended.
    pub(super) fn settle(
        &mut self,
        sid: Sid,
        generation: Generation,
        witness: Option<H>,
    ) -> Option<ExecId> {
        let entry = self.entries.get_mut(&sid)?;
        if entry.generation != generation {
            return Some(entry.exec);
        }
        let exec = entry.exec;
        if witness.is_none() {
            self.entries.remove(&sid);
            return None;
        }
        entry.witness = witness;
        Some(exec)
    }

    /// The sessions whose leader is gone.
    pub(super) fn leaderless<K: Kernel<Handle = H>>(&self, kernel: &K) -> Vec<(Sid, Generation)> {
        let gone = |entry: &Entry<H>| !kernel.is_taken(&entry.leader);
        self.entries
            .iter()
            .filter(|(_, entry)| gone(entry))
            .map(|(&sid, entry)| (sid, entry.generation))
            .collect()
    }

    pub(super) fn recorded(&self) -> Vec<Sid> {
        self.entries.keys().copied().collect()
    }
}
