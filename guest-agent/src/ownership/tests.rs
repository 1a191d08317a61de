//! Ownership against a model of the kernel's process table.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::*;

/// A process table in which the test decides what happens.
#[derive(Clone, Default)]
struct Table(Rc<RefCell<HashMap<i32, Process>>>, Rc<Cell<u64>>);

#[derive(Clone, Copy)]
struct Process {
    birth: u64,
    sid: i32,
    pgid: i32,
    below_agent: bool,
}

impl Table {
    fn spawn(&self, pid: i32, sid: i32, pgid: i32, below_agent: bool) {
        let birth = self.1.get() + 1;
        self.1.set(birth);
        self.0.borrow_mut().insert(pid, Process { birth, sid, pgid, below_agent });
    }

    fn reap(&self, pid: i32) {
        self.0.borrow_mut().remove(&pid).unwrap();
    }

    fn get(&self, pid: Pid) -> Option<Process> {
        self.0.borrow().get(&pid.get()).copied()
    }

    fn select(&self, wanted: impl Fn(&Process) -> bool) -> Vec<Pid> {
        let table = self.0.borrow();
        table.iter().filter(|(_, p)| wanted(p)).filter_map(|(&pid, _)| Pid::new(pid)).collect()
    }
}

impl Kernel for Table {
    type Handle = (Pid, u64);

    fn open(&self, pid: Pid) -> Option<Self::Handle> {
        Some((pid, self.get(pid)?.birth))
    }
    fn is_taken(&self, &(pid, birth): &Self::Handle) -> bool {
        self.get(pid).is_some_and(|p| p.birth == birth)
    }
    fn session_of(&self, handle: &Self::Handle) -> Option<Sid> {
        self.is_taken(handle).then(|| self.session(handle.0).known()).flatten()
    }
    fn session(&self, pid: Pid) -> Membership<Sid> {
        membership(self.get(pid).map(|p| p.sid), Sid::new)
    }
    fn group(&self, pid: Pid) -> Membership<Pgid> {
        membership(self.get(pid).map(|p| p.pgid), Pgid::new)
    }
    fn group_exists(&self, group: Pgid) -> bool {
        !self.group_members(group).is_empty()
    }
    fn session_members(&self, sid: Sid) -> Vec<Pid> {
        self.select(|p| p.sid == sid.get())
    }
    fn group_members(&self, group: Pgid) -> Vec<Pid> {
        self.select(|p| p.pgid == group.get())
    }
    fn sessions(&self) -> Vec<Sid> {
        self.0.borrow().values().filter_map(|p| Sid::new(p.sid)).collect()
    }
    fn is_below_agent(&self, pid: Pid) -> bool {
        self.get(pid).is_some_and(|p| p.below_agent)
    }
}

fn membership<T>(number: Option<i32>, new: fn(i32) -> Option<T>) -> Membership<T> {
    match number {
        None => Membership::Gone,
        Some(number) => new(number).map_or(Membership::OutOfSight, Membership::In),
    }
}

fn tgid(number: i32) -> Tgid {
    Tgid::new(number).unwrap()
}
fn sid(number: i32) -> Sid {
    Sid::new(number).unwrap()
}
fn pgid(number: i32) -> Pgid {
    Pgid::new(number).unwrap()
}

const EXEC: ExecId = ExecId::new(1);

fn with_session_10() -> (Table, Ownership<Table>) {
    let table = Table::default();
    let ownership = Ownership::new(table.clone(), 1000);
    table.spawn(10, 10, 10, true);
    ownership.record(tgid(10), EXEC, || true).unwrap();
    (table, ownership)
}

#[test]
fn an_unknown_session_has_no_owner() {
    let (_, ownership) = with_session_10();
    assert_eq!(ownership.owner(sid(11)), None);
    assert_eq!(ownership.owner(sid(10)), Some(EXEC));
}

#[test]
fn a_session_outlives_its_leader_while_it_has_members() {
    let (table, ownership) = with_session_10();
    table.spawn(11, 10, 10, true);
    table.reap(10);
    assert_eq!(ownership.owner(sid(10)), Some(EXEC));
    // Its child takes over when the first witness goes.
    table.spawn(12, 10, 10, true);
    table.reap(11);
    assert_eq!(ownership.owner(sid(10)), Some(EXEC));
    table.reap(12);
    assert_eq!(ownership.owner(sid(10)), None);
    // And it does not come back.
    table.spawn(13, 10, 13, true);
    assert_eq!(ownership.owner(sid(10)), None);
}

#[test]
fn a_recycled_number_is_not_mistaken_for_the_old_session() {
    for members_too in [false, true] {
        let (table, ownership) = with_session_10();
        table.reap(10);
        table.spawn(10, 10, 10, false);
        if members_too {
            table.spawn(14, 10, 10, false);
        }
        assert_eq!(ownership.owner(sid(10)), None);
    }
}

#[test]
fn a_foreign_session_without_leader_is_not_mistaken_either() {
    let (table, ownership) = with_session_10();
    table.reap(10);
    table.spawn(14, 10, 10, false);
    assert_eq!(ownership.owner(sid(10)), None);
}

#[test]
fn a_witness_that_leaves_the_session_proves_nothing() {
    let (table, ownership) = with_session_10();
    table.spawn(11, 10, 10, true);
    table.reap(10);
    assert_eq!(ownership.owner(sid(10)), Some(EXEC));
    table.0.borrow_mut().get_mut(&11).unwrap().sid = 11;
    assert_eq!(ownership.owner(sid(10)), None);
}

#[test]
fn a_group_is_found_by_founder_by_hint_and_by_search() {
    let (table, ownership) = with_session_10();
    table.spawn(20, 10, 20, true);
    assert_eq!(ownership.session_of_group(pgid(20)), Membership::In(sid(10)));
    table.spawn(21, 10, 20, true);
    ownership.joined(pgid(20), Pid::new(21).unwrap());
    table.reap(20);
    assert_eq!(ownership.session_of_group(pgid(20)), Membership::In(sid(10)));
    table.spawn(22, 10, 20, true);
    table.reap(21);
    assert_eq!(ownership.session_of_group(pgid(20)), Membership::In(sid(10)));
    table.reap(22);
    assert_eq!(ownership.session_of_group(pgid(20)), Membership::Gone);
    assert_eq!(ownership.session_of_group(pgid(9_999_999)), Membership::Gone);
}

#[test]
fn a_founder_that_moved_on_does_not_speak_for_its_old_group() {
    let (table, ownership) = with_session_10();
    table.spawn(20, 20, 20, true);
    table.spawn(21, 10, 20, true);
    table.0.borrow_mut().get_mut(&20).unwrap().pgid = 10;
    assert_eq!(ownership.session_of_group(pgid(20)), Membership::In(sid(10)));
}

#[test]
fn ended_sessions_make_room() {
    let table = Table::default();
    let ownership = Ownership::new(table.clone(), 100);
    for number in 1..10_000 {
        table.spawn(number, number, number, true);
        ownership.record(tgid(number), EXEC, || true).unwrap();
        table.reap(number);
    }
}

#[test]
fn living_sessions_are_limited() {
    let table = Table::default();
    let ownership = Ownership::new(table.clone(), 100);
    for number in 1..=100 {
        table.spawn(number, number, number, true);
        ownership.record(tgid(number), EXEC, || true).unwrap();
    }
    table.spawn(101, 101, 101, true);
    assert_eq!(ownership.record(tgid(101), EXEC, || true), Err(RecordError::Limit(100)));
    assert_eq!(ownership.owner(sid(101)), None);
    // Founding a known one again is no new session.
    ownership.record(tgid(50), EXEC, || true).unwrap();
}

#[test]
fn a_leader_that_changed_while_it_was_recorded_is_not_trusted() {
    let table = Table::default();
    let ownership = Ownership::new(table.clone(), 100);
    assert_eq!(ownership.record(tgid(5), EXEC, || true), Err(RecordError::Gone(tgid(5))));
    table.spawn(5, 5, 5, false);
    assert_eq!(ownership.record(tgid(5), EXEC, || false), Err(RecordError::Gone(tgid(5))));
    assert_eq!(ownership.owner(sid(5)), None);
}

#[test]
fn a_group_from_outside_exists_but_belongs_to_nobody_known() {
    let (table, ownership) = with_session_10();
    table.spawn(30, 0, 30, false);
    assert_eq!(ownership.session_of_group(pgid(30)), Membership::OutOfSight);
}
