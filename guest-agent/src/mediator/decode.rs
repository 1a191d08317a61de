//! From registers to what a call asks for. Reads nothing but its arguments.

use crate::filter::{Call, Calls};
use crate::ids::{Pgid, Pid};
use crate::notify::Notification;

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A signal.
    Signal {
        /// For whom.
        target: Target,
        /// Its number; 0 only asks whether the target exists.
        signal: i32,
    },
    /// A move of the caller or one of its children into a process group.
    SetPgid {
        /// Who moves; `None`: the caller.
        process: Option<Pid>,
        /// Where to; `None`: a group that the process founds itself.
        group: Option<Pgid>,
    },
    /// A new session with the caller as leader.
    SetSid,
    /// Something that workloads may not do at all.
    Refused(Refusal),
}

/// For whom a signal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The caller's own process group.
    OwnGroup,
    /// Another process group.
    Group(Pgid),
    /// A process or a thread.
    Process(Pid),
    /// Whomever the caller may signal.
    EveryProcess,
    /// Nobody: no process or group has such a number. Holds what the kernel answers.
    Nobody(i32),
}

/// A call that is refused whatever its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A socket that may be `AF_VSOCK`.
    Socket,
    /// A call whose effect cannot be seen; the answer is that of a kernel without it.
    Unavailable,
}

/// A 32-bit argument as the kernel reads it: the low half of the register, signed.
#[allow(clippy::cast_possible_truncation, reason = "the kernel ignores the high half")]
const fn int(register: u64) -> i32 {
    (register as u32).cast_signed()
}

/// Decodes a call; one without a row is refused.
#[must_use]
pub fn decode(notification: &Notification, calls: &Calls) -> Request {
    let [a0, a1, a2, ..] = notification.arguments;
    let Some((_, row)) = calls.row(notification.audit_arch, notification.number) else {
        return Request::Refused(Refusal::Unavailable);
    };
    match row.call {
        Call::Kill => Request::Signal { target: kill_target(int(a0)), signal: int(a1) },
        Call::Tkill => Request::Signal { target: thread(int(a0)), signal: int(a1) },
        // The kernel itself checks that the thread belongs to the process named.
        Call::Tgkill => Request::Signal { target: thread_of(int(a0), int(a1)), signal: int(a2) },
        Call::RtTgsigqueueinfo => {
            Request::Signal { target: thread_of(int(a0), int(a1)), signal: int(a2) }
        }
        Call::RtSigqueueinfo => Request::Signal {
            target: Pid::new(int(a0)).map_or(Target::Nobody(libc::ESRCH), Target::Process),
            signal: int(a1),
        },
        Call::Setpgid => set_pgid(int(a0), int(a1)),
        Call::Setsid => Request::SetSid,
        Call::Socket | Call::Socketcall => Request::Refused(Refusal::Socket),
        Call::PidfdSendSignal | Call::IoUringSetup => Request::Refused(Refusal::Unavailable),
    }
}

fn kill_target(pid: i32) -> Target {
    match pid {
        0 => Target::OwnGroup,
        -1 => Target::EveryProcess,
        // Its negation overflows; kernel/signal.c answers ESRCH.
        i32::MIN => Target::Nobody(libc::ESRCH),
        _ => Pid::new(pid)
            .map(Target::Process)
            .or_else(|| Pgid::new(-pid).map(Target::Group))
            .unwrap_or(Target::Nobody(libc::ESRCH)),
    }
}

fn thread(tid: i32) -> Target {
    Pid::new(tid).map_or(Target::Nobody(libc::EINVAL), Target::Process)
}

fn thread_of(process: i32, tid: i32) -> Target {
    if process > 0 { thread(tid) } else { Target::Nobody(libc::EINVAL) }
}

fn set_pgid(process: i32, group: i32) -> Request {
    if process < 0 || group < 0 {
        // The kernel refuses negative numbers before it looks at any process.
        return Request::SetPgid { process: None, group: None };
    }
    let process = Pid::new(process);
    let group = Pgid::new(group).filter(|group| Some(group.founder()) != process);
    Request::SetPgid { process, group }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(number: libc::c_long, arguments: [u64; 3]) -> Request {
        let [a0, a1, a2] = arguments;
        let notification = Notification {
            id: 1,
            caller: Pid::new(100),
            audit_arch: if cfg!(target_arch = "aarch64") { 0xC000_00B7 } else { 0xC000_003E },
            number: i32::try_from(number).unwrap(),
            arguments: [a0, a1, a2, 0, 0, 0],
        };
        decode(&notification, &Calls::new())
    }

    fn kill(pid: i64) -> Target {
        match call(libc::SYS_kill, [pid.cast_unsigned(), 15, 0]) {
            Request::Signal { target, signal: 15 } => target,
            other => panic!("{other:?}"),
        }
    }

    fn process(number: i32) -> Target {
        Target::Process(Pid::new(number).unwrap())
    }

    fn group(number: i32) -> Target {
        Target::Group(Pgid::new(number).unwrap())
    }

    #[test]
    fn kill_names_its_target_in_the_low_half() {
        for high in [0, 0xdead_beef_0000_0000_u64, 0xffff_ffff_0000_0000] {
            let with_high = |low: i32| kill((high | u64::from(low.cast_unsigned())).cast_signed());
            assert_eq!(with_high(0), Target::OwnGroup);
            assert_eq!(with_high(-1), Target::EveryProcess);
            assert_eq!(with_high(i32::MIN), Target::Nobody(libc::ESRCH));
            assert_eq!(with_high(i32::MIN + 1), group(i32::MAX));
            assert_eq!(with_high(-2), group(2));
            assert_eq!(with_high(7), process(7));
            assert_eq!(with_high(i32::MAX), process(i32::MAX));
        }
    }

    #[test]
    fn thread_calls_name_a_thread() {
        let signal = |target| Request::Signal { target, signal: 9 };
        assert_eq!(call(libc::SYS_tkill, [7, 9, 0]), signal(process(7)));
        assert_eq!(call(libc::SYS_tkill, [0, 9, 0]), signal(Target::Nobody(libc::EINVAL)));
        assert_eq!(call(libc::SYS_tgkill, [7, 8, 9]), signal(process(8)));
        assert_eq!(call(libc::SYS_tgkill, [0, 8, 9]), signal(Target::Nobody(libc::EINVAL)));
        assert_eq!(call(libc::SYS_rt_tgsigqueueinfo, [7, 8, 9]), signal(process(8)));
        assert_eq!(call(libc::SYS_rt_sigqueueinfo, [7, 9, 0]), signal(process(7)));
        assert_eq!(
            call(libc::SYS_rt_sigqueueinfo, [u64::MAX, 9, 0]),
            signal(Target::Nobody(libc::ESRCH))
        );
    }

    #[test]
    fn setpgid_to_the_own_number_founds_a_group() {
        let set = |process: i32, group: i32| Request::SetPgid {
            process: Pid::new(process),
            group: Pgid::new(group),
        };
        let call = |a, b| call(libc::SYS_setpgid, [a, b, 0]);
        assert_eq!(call(0, 0), set(0, 0));
        assert_eq!(call(7, 0), set(7, 0));
        assert_eq!(call(7, 7), set(7, 0));
        assert_eq!(call(7, 8), set(7, 8));
        assert_eq!(call(0, 8), set(0, 8));
        assert_eq!(call(u64::MAX, 8), set(0, 0));
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        assert_eq!(call(libc::SYS_socket, [40, 1, 0]), Request::Refused(Refusal::Socket));
        assert_eq!(call(libc::SYS_read, [0, 0, 0]), Request::Refused(Refusal::Unavailable));
        assert_eq!(
            call(libc::SYS_pidfd_send_signal, [3, 9, 0]),
            Request::Refused(Refusal::Unavailable)
        );
    }

    proptest! {
        #[test]
        fn the_high_half_never_matters(high: u32, low: u32, number in 0..500_i64) {
            let with = |high: u32| (u64::from(high) << 32) | u64::from(low);
            prop_assert_eq!(call(number, [with(high); 3]), call(number, [with(0); 3]));
        }
    }
}
