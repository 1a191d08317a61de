//! The seccomp filter: which system calls reach the mediator.

mod program;
mod table;

pub use program::{FilterError, Program};
pub use table::{Abi, Call, Calls, ROWS, Row, When};
