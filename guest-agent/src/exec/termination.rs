//! Ends processes until none is left: of one exec, or below a process.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use procfs::process::Stat;

use crate::ids::{ExecId, Pid};
use crate::mediator::Context;
use crate::ownership::{Kernel as _, Linux};

/// A killed process needs a moment to end; passes in a row would only burn time.
const BETWEEN_PASSES: Duration = Duration::from_millis(2);

/// Between looks at whether all execs have ended by themselves; each reads /proc.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A process that a broken file system or device holds cannot be ended at all.
const PASSES_LIMIT: Duration = Duration::from_secs(30);

/// Ends every process of an exec, in all its sessions.
///
/// A process forked while the others are ended is found by the next pass; one
/// that has been killed forks no more, so the passes come to an end.
pub fn end_exec(context: &Context, exec: ExecId) {
    let began = Instant::now();
    while signal_exec(context, exec, libc::SIGKILL) > 0 {
        if began.elapsed() > PASSES_LIMIT {
            tracing::error!(%exec, "some processes do not end, though they were killed");
            return;
        }
        std::thread::sleep(BETWEEN_PASSES);
    }
}

/// Sends a signal to every process of an exec and returns how many there were
/// that had not ended yet.
pub fn signal_exec(context: &Context, exec: ExecId, signal: i32) -> usize {
    signal_execs(context, signal, |owner| owner == exec)
}

/// Asks all execs to end, and waits for it, at most for `grace`.
pub fn ask_to_end(context: &Context, grace: Duration) {
    let began = Instant::now();
    signal_execs(context, libc::SIGTERM, |_| true);
    // Signal 0 only counts.
    while began.elapsed() < grace && signal_execs(context, 0, |_| true) > 0 {
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

fn signal_execs(context: &Context, signal: i32, wanted: impl Fn(ExecId) -> bool) -> usize {
    let kernel = context.ownership.kernel();
    let sessions = context.ownership.owned_sessions();
    let is_wanted =
        |sid: i32| sessions.iter().any(|(owned, exec)| owned.get() == sid && wanted(*exec));
    let processes = kernel.processes().unwrap_or_default();
    let members = processes.iter().filter(|stat| is_alive(stat) && is_wanted(stat.session));
    members
        .filter_map(|stat| {
            let handle = kernel.open(Pid::new(stat.pid)?)?;
            // Asked again of the process held: the number may have changed hands.
            let sid = kernel.session_of(&handle)?;
            is_wanted(sid.get()).then(|| handle.signal(signal))
        })
        .count()
}

/// Ends every process below `ancestor`; with `reap` called between passes.
pub fn end_descendants(ancestor: Pid, mut reap: impl FnMut()) {
    let kernel = Linux::new(ancestor);
    let began = Instant::now();
    while began.elapsed() < PASSES_LIMIT {
        let processes = kernel.processes().unwrap_or_default();
        let below = descendants(ancestor, &processes);
        if below.is_empty() {
            return;
        }
        for pid in below {
            let Some(handle) = kernel.open(pid) else {
                continue;
            };
            if kernel.is_below_agent(pid) {
                // It may end by itself first.
                let _ = handle.signal(libc::SIGKILL);
            }
        }
        reap();
        std::thread::sleep(BETWEEN_PASSES);
    }
}

fn is_alive(stat: &Stat) -> bool {
    !matches!(stat.state, 'Z' | 'X' | 'x')
}

/// The living processes below an ancestor.
fn descendants(ancestor: Pid, processes: &[Stat]) -> Vec<Pid> {
    let links: Vec<(i32, i32)> = processes.iter().map(|stat| (stat.pid, stat.ppid)).collect();
    let below = closure(ancestor.get(), &links);
    let living = processes.iter().filter(|stat| is_alive(stat) && below.contains(&stat.pid));
    living.filter_map(|stat| Pid::new(stat.pid)).collect()
}

/// Everything that `links` (child, parent) lead to from `root`, without `root`.
fn closure(root: i32, links: &[(i32, i32)]) -> HashSet<i32> {
    let mut below = HashSet::new();
    let mut todo = vec![root];
    while let Some(parent) = todo.pop() {
        for &(child, _) in links.iter().filter(|link| link.1 == parent) {
            if child != root && below.insert(child) {
                todo.push(child);
            }
        }
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_followed_to_its_leaves() {
        let links = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 0), (7, 6)];
        assert_eq!(closure(2, &links), HashSet::from([3, 4]));
        assert_eq!(closure(1, &links), HashSet::from([2, 3, 4, 5]));
        assert_eq!(closure(4, &links), HashSet::new());
    }

    #[test]
    fn a_list_that_changed_while_it_was_read_does_not_loop() {
        assert_eq!(closure(1, &[(2, 1), (3, 2), (1, 3)]), HashSet::from([2, 3]));
    }
}
