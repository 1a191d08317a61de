//! Which processes setpgid has moved into which group: hints, verified on use.

use std::collections::HashMap;

use crate::ids::{Pgid, Pid};

/// Members remembered of one group. One living one is enough, so the newest.
const MEMBERS: usize = 8;

/// Groups remembered at once; more than a busy machine's shells have. Beyond
/// that all hints are dropped: they save a search of `/proc`, no more.
const GROUPS: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct GroupMembers(HashMap<Pgid, Vec<Pid>>);

impl GroupMembers {
    pub(super) fn joined(&mut self, group: Pgid, member: Pid) {
        if self.0.len() >= GROUPS && !self.0.contains_key(&group) {
            self.0.clear();
        }
        let members = self.0.entry(group).or_default();
        if members.contains(&member) {
            return;
        }
        if members.len() >= MEMBERS {
            members.remove(0);
        }
        members.push(member);
    }

    /// The newest first.
    pub(super) fn members(&self, group: Pgid) -> Vec<Pid> {
        self.0
            .get(&group)
            .map(|members| members.iter().rev().copied().collect())
            .unwrap_or_default()
    }

    pub(super) fn forget(&mut self, group: Pgid) {
        self.0.remove(&group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    #[test]
    fn remembers_the_newest_members_of_a_group() {
        let group = Pgid::new(5).unwrap();
        let mut hints = GroupMembers::default();
        for number in 1..=20 {
            hints.joined(group, pid(number));
            hints.joined(group, pid(number));
        }
        let expected: Vec<_> = (13..=20).rev().map(pid).collect();
        assert_eq!(hints.members(group), expected);
        hints.forget(group);
        assert_eq!(hints.members(group), []);
    }

    #[test]
    fn stays_bounded() {
        let mut hints = GroupMembers::default();
        for number in 1..=20_000 {
            hints.joined(Pgid::new(number).unwrap(), pid(1));
        }
        assert!(hints.0.len() <= GROUPS);
    }
}
