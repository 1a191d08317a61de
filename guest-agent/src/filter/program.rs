//! Builds the filter with libseccomp and holds it as the kernel takes it.

use std::io::{Read as _, Seek as _};

use libseccomp::{ScmpAction, ScmpFilterContext, ScmpSyscall};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::table::{Abi, ROWS};
use crate::policy::Policy;

/// A seccomp program, an array of `struct sock_filter`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program(Vec<Instruction>);

/// One instruction, the fields of `struct sock_filter` (linux/filter.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jump_true: u8,
    pub(crate) jump_false: u8,
    pub(crate) operand: u32,
}

/// Bytes of one `struct sock_filter`.
const INSTRUCTION_BYTES: usize = 8;

/// Why the filter could not be built.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// libseccomp refused a step.
    #[error(
        "libseccomp could not build the filter: {0}; the kernel must support seccomp user notification (Linux 5.5)"
    )]
    Seccomp(#[from] libseccomp::error::SeccompError),
    /// The program could not be written to memory.
    #[error("the seccomp filter could not be exported: {0}")]
    Export(#[from] std::io::Error),
    /// The exported program is not whole instructions.
    #[error("the exported seccomp filter has {0} bytes, not a multiple of {INSTRUCTION_BYTES}")]
    Truncated(usize),
}

impl Program {
    /// Builds the program for a policy.
    ///
    /// Calls of other ABIs, and on `x86_64` the numbers of x32, get ENOSYS from
    /// the kernel: nothing on a supported system makes them, and answering them
    /// one by one would only serve a flood.
    pub fn build(policy: &Policy) -> Result<Self, FilterError> {
        let mut filter = ScmpFilterContext::new(ScmpAction::Allow)?;
        filter.set_act_badarch(ScmpAction::Errno(libc::ENOSYS))?;
        for abi in Abi::ALL {
            filter.add_arch(abi.arch())?;
        }
        for row in ROWS {
            // A name the machine lacks (socketcall on x86_64) resolves to a
            // pseudo number, for which libseccomp makes a rule where it exists.
            let Ok(syscall) = ScmpSyscall::from_name(row.name) else {
                continue;
            };
            match row.when.first_argument_comparator(policy.own_group_signals) {
                None => filter.add_rule(ScmpAction::Notify, syscall)?,
                Some(only_if) => {
                    filter.add_rule_conditional(ScmpAction::Notify, syscall, &[only_if])?
                }
            };
        }
        Self::export(&filter)
    }

    fn export(filter: &ScmpFilterContext) -> Result<Self, FilterError> {
        let memory =
            memfd_create("seccomp-filter", MemfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let mut memory = std::fs::File::from(memory);
        filter.export_bpf(&memory)?;
        memory.rewind()?;
        let mut bytes = Vec::new();
        memory.read_to_end(&mut bytes)?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, FilterError> {
        let (instructions, rest) = bytes.as_chunks::<INSTRUCTION_BYTES>();
        if !rest.is_empty() {
            return Err(FilterError::Truncated(bytes.len()));
        }
        let instruction =
            |&[c0, c1, jump_true, jump_false, k0, k1, k2, k3]: &[u8; 8]| Instruction {
                code: u16::from_ne_bytes([c0, c1]),
                jump_true,
                jump_false,
                operand: u32::from_ne_bytes([k0, k1, k2, k3]),
            };
        Ok(Self(instructions.iter().map(instruction).collect()))
    }

    pub(crate) fn instructions(&self) -> &[Instruction] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_for_every_policy() {
        let program = Program::build(&Policy::default()).unwrap();
        // seccomp(2): at most BPF_MAXINSNS instructions.
        assert!((10..4096).contains(&program.instructions().len()));
    }

    #[test]
    fn refuses_half_an_instruction() {
        assert!(matches!(Program::parse(&[0; 12]), Err(FilterError::Truncated(12))));
    }
}
