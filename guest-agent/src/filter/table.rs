//! The one table of mediated system calls.
//!
//! A row exists only for a path by which another process can be signalled,
//! stopped or killed, or by which the agent itself can be reached. The filter
//! program, the decoding and the documentation come from it.

use libseccomp::{ScmpArch, ScmpSyscall};

use crate::policy::OwnGroupSignals;

/// A system call with a row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// kill(2).
    Kill,
    /// tkill(2).
    Tkill,
    /// tgkill(2).
    Tgkill,
    /// `rt_sigqueueinfo(2)`.
    RtSigqueueinfo,
    /// `rt_tgsigqueueinfo(2)`.
    RtTgsigqueueinfo,
    /// `pidfd_send_signal(2)`.
    PidfdSendSignal,
    /// setpgid(2).
    Setpgid,
    /// setsid(2).
    Setsid,
    /// socket(2).
    Socket,
    /// socketcall(2), the multiplexer of the i386 ABI.
    Socketcall,
    /// `io_uring_setup(2)`.
    IoUringSetup,
}

/// When a call reaches the mediator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// Always, unless the policy leaves an exact zero in the first argument
    /// (the caller's own group) to the kernel.
    AlwaysOrNotOwnGroup,
    /// When the low 32 bits of the first argument have this value.
    FirstArgument(u32),
}

/// One row: a call, when it reaches the mediator, and by which rule it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The call.
    pub call: Call,
    /// Its name in the kernel.
    pub name: &'static str,
    /// When it reaches the mediator.
    pub when: When,
    /// The rule, for people.
    pub rule: &'static str,
}

/// `socketcall(SYS_SOCKET, …)`, linux/net.h.
const SYS_SOCKET: u32 = 1;

/// `AF_VSOCK`, linux/socket.h.
const AF_VSOCK: u32 = 40;

const fn row(call: Call, name: &'static str, when: When, rule: &'static str) -> Row {
    Row { call, name, when, rule }
}

/// The table.
pub const ROWS: &[Row] = &[
    row(
        Call::Kill,
        "kill",
        When::AlwaysOrNotOwnGroup,
        "own group: allowed; another group or process: by the owner of its session; -1: EPERM",
    ),
    row(Call::Tkill, "tkill", When::Always, "by the owner of the thread's session"),
    row(Call::Tgkill, "tgkill", When::Always, "by the owner of the thread's session"),
    row(
        Call::RtSigqueueinfo,
        "rt_sigqueueinfo",
        When::Always,
        "by the owner of the process's session",
    ),
    row(
        Call::RtTgsigqueueinfo,
        "rt_tgsigqueueinfo",
        When::Always,
        "by the owner of the thread's session",
    ),
    row(
        Call::PidfdSendSignal,
        "pidfd_send_signal",
        When::Always,
        "refused with ENOSYS: the target is behind a descriptor, which can be swapped",
    ),
    row(
        Call::Setpgid,
        "setpgid",
        When::Always,
        "the group must be new or in the caller's own session",
    ),
    row(Call::Setsid, "setsid", When::Always, "recorded, then allowed"),
    row(
        Call::Socket,
        "socket",
        When::FirstArgument(AF_VSOCK),
        "AF_VSOCK refused with EACCES: the control channel is not the workload's",
    ),
    row(
        Call::Socketcall,
        "socketcall",
        When::FirstArgument(SYS_SOCKET),
        "SYS_SOCKET refused with EACCES: the address family is behind a pointer",
    ),
    row(
        Call::IoUringSetup,
        "io_uring_setup",
        When::Always,
        "refused with ENOSYS: a ring makes sockets unseen",
    ),
];

/// Which of the machine's two ABIs a call came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abi {
    /// The machine's own.
    Native,
    /// The compatible 32-bit one.
    Compat32,
}

impl Abi {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Native, Self::Compat32];

    /// libseccomp's name of it on this machine.
    pub(super) const fn arch(self) -> ScmpArch {
        match self {
            Self::Native if cfg!(target_arch = "aarch64") => ScmpArch::Aarch64,
            Self::Native => ScmpArch::X8664,
            Self::Compat32 if cfg!(target_arch = "aarch64") => ScmpArch::Arm,
            Self::Compat32 => ScmpArch::X86,
        }
    }

    /// `AUDIT_ARCH_*` of linux/audit.h, as `seccomp_data.arch` holds it.
    const fn audit_arch(self) -> u32 {
        match self {
            Self::Native if cfg!(target_arch = "aarch64") => 0xC000_00B7,
            Self::Native => 0xC000_003E,
            Self::Compat32 if cfg!(target_arch = "aarch64") => 0x4000_0028,
            Self::Compat32 => 0x4000_0003,
        }
    }
}

impl When {
    /// Whether the call can be left to the kernel under this policy.
    pub(super) fn first_argument_comparator(
        self,
        own_group: OwnGroupSignals,
    ) -> Option<libseccomp::ScmpArgCompare> {
        use libseccomp::{ScmpArgCompare, ScmpCompareOp};
        match (self, own_group) {
            (Self::Always, _) | (Self::AlwaysOrNotOwnGroup, OwnGroupSignals::Audited) => None,
            // A zero with garbage in the high bits still reaches the mediator,
            // which reads it as the kernel does.
            (Self::AlwaysOrNotOwnGroup, OwnGroupSignals::Inline) => {
                Some(ScmpArgCompare::new(0, ScmpCompareOp::NotEqual, 0))
            }
            (Self::FirstArgument(value), _) => Some(ScmpArgCompare::new(
                0,
                ScmpCompareOp::MaskedEqual(u64::from(u32::MAX)),
                u64::from(value),
            )),
        }
    }
}

/// The numbers of the mediated calls on this machine.
#[derive(Clone, Debug)]
pub struct Calls(Vec<(u32, i32, Abi, &'static Row)>);

impl Calls {
    /// Looks up the numbers of every row.
    #[must_use]
    pub fn new() -> Self {
        let mut calls = Vec::new();
        for abi in Abi::ALL {
            for row in ROWS {
                if let Some(number) = number(row, abi) {
                    calls.push((abi.audit_arch(), number, abi, row));
                }
            }
        }
        Self(calls)
    }

    /// The row of a call, by `seccomp_data.arch` and `.nr`.
    #[must_use]
    pub fn row(&self, audit_arch: u32, number: i32) -> Option<(Abi, &'static Row)> {
        self.0
            .iter()
            .find(|entry| entry.0 == audit_arch && entry.1 == number)
            .map(|entry| (entry.2, entry.3))
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of a call in an ABI, if it exists there.
fn number(row: &Row, abi: Abi) -> Option<i32> {
    // socket(2) came to i386 with Linux 4.3; libseccomp still resolves the name
    // to its pseudo number for the multiplexer.
    if row.call == Call::Socket && abi == Abi::Compat32 && abi.arch() == ScmpArch::X86 {
        return Some(359);
    }
    let syscall = ScmpSyscall::from_name_by_arch(row.name, abi.arch()).ok()?;
    let number = i32::from(syscall);
    (number >= 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_exactly_one_row() {
        let mut calls: Vec<_> = ROWS.iter().map(|row| row.call).collect();
        calls.sort();
        calls.dedup();
        assert_eq!(calls.len(), ROWS.len());
    }

    #[test]
    fn the_native_numbers_are_the_kernels() {
        let calls = Calls::new();
        let find = |number: libc::c_long| {
            let number = i32::try_from(number).unwrap();
            calls.row(Abi::Native.audit_arch(), number).map(|(_, row)| row.call)
        };
        assert_eq!(find(libc::SYS_kill), Some(Call::Kill));
        assert_eq!(find(libc::SYS_tgkill), Some(Call::Tgkill));
        assert_eq!(find(libc::SYS_setsid), Some(Call::Setsid));
        assert_eq!(find(libc::SYS_pidfd_send_signal), Some(Call::PidfdSendSignal));
        assert_eq!(find(libc::SYS_socket), Some(Call::Socket));
        assert_eq!(find(libc::SYS_read), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_i386_numbers_are_the_kernels() {
        let calls = Calls::new();
        let find = |number| calls.row(0x4000_0003, number).map(|(abi, row)| (abi, row.call));
        assert_eq!(find(37), Some((Abi::Compat32, Call::Kill)));
        assert_eq!(find(66), Some((Abi::Compat32, Call::Setsid)));
        assert_eq!(find(102), Some((Abi::Compat32, Call::Socketcall)));
        assert_eq!(find(359), Some((Abi::Compat32, Call::Socket)));
        assert_eq!(find(62), None);
    }
}
