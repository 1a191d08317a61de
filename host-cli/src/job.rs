//! Job control in the local shell: whether agentctl can stop, and stopping.

use rustix::process::{
    Pid, Signal, getpgid, getpid, getppid, getsid, kill_current_process_group, kill_process,
};

/// A process's place among sessions and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    pid: Pid,
    group: Pid,
    session: Pid,
}

/// Whether a shell is there to continue agentctl once it has stopped.
pub(crate) fn is_controlled() -> bool {
    let place = |pid: Pid| {
        Some(Place { pid, group: getpgid(Some(pid)).ok()?, session: getsid(Some(pid)).ok()? })
    };
    place(getpid()).is_some_and(|own| controls(getppid().and_then(place), own))
}

/// Whether `own` is in a group that is not orphaned, as far as its parent tells:
/// some member has a parent in another group of the session (POSIX).
fn controls(parent: Option<Place>, own: Place) -> bool {
    let Some(parent) = parent else { return false };
    let is_leader = parent.pid == parent.session;
    // A parent in the same group (a script) has one of its own, unless it leads
    // the session.
    parent.session == own.session && (parent.group != own.group || !is_leader)
}

/// Asks the whole job, agentctl included, to stop, as Ctrl-Z does.
///
/// Where agentctl does not catch SIGTSTP this returns once the job is continued;
/// in an orphaned group, which nobody could continue, the kernel discards the
/// signal and it returns at once. This thread is the first to take the signal,
/// so it stops before the call returns.
pub(crate) fn stop_all() {
    let _ = kill_current_process_group(Signal::TSTP);
}

/// Stops agentctl alone, if somebody can continue it; returns when continued.
pub(crate) fn stop_self() {
    if is_controlled() {
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pid: i32, group: i32, session: i32) -> Place {
        let number = |number| Pid::from_raw(number).unwrap();
        Place { pid: number(pid), group: number(group), session: number(session) }
    }

    #[test]
    fn a_job_needs_a_shell_outside_its_group() {
        let own = place(30, 30, 10);
        let cases = [
            ("an interactive shell", Some(place(10, 10, 10)), own, true),
            ("a script below a shell", Some(place(20, 20, 10)), place(30, 20, 10), true),
            ("a script that leads the session", Some(place(10, 10, 10)), place(30, 10, 10), false),
            ("a service manager", Some(place(1, 1, 1)), own, false),
            ("nobody, in a namespace of its own", None, own, false),
        ];
        for (what, parent, own, expected) in cases {
            assert_eq!(controls(parent, own), expected, "{what}");
        }
    }
}
