//! A command as the host asks for it, validated: what cannot be run cannot be built.

use std::ffi::CString;
use std::num::NonZeroU16;

use super::spec::Limit;

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The command and its arguments, never empty.
    pub argv: Vec<CString>,
    /// `NAME=VALUE` entries; a later one wins.
    pub environment: Vec<CString>,
    /// Start from no defaults.
    pub clear_environment: bool,
    /// Where to run it.
    pub directory: Directory,
    /// Who runs it; `None`: the agent's own user.
    pub user: Option<UserRequest>,
    /// A terminal, or pipes.
    pub terminal: Option<TerminalRequest>,
    /// Resource limits to set.
    pub limits: Vec<Limit>,
    /// File mode creation mask.
    pub umask: u32,
}

/// Where a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directory {
    /// The user's home directory, or `/` where that cannot be entered.
    Home,
    /// This one.
    Path(CString),
}

/// Who runs a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRequest {
    /// `name`, `uid`, `name:group`, `uid:gid`.
    pub name: String,
    /// Supplementary groups by name or number; empty: those of `/etc/group`.
    pub supplementary_groups: Vec<String>,
}

/// A terminal for a command.
#[derive(Clone, Debug)]
pub struct TerminalRequest {
    /// The value of `TERM`.
    pub term: CString,
    /// The size at the start.
    pub window: Window,
}

/// A terminal's size in character cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height.
    pub rows: NonZeroU16,
    /// Width.
    pub columns: NonZeroU16,
}

impl Window {
    /// A size; `None` unless both are 1 to 65535.
    #[must_use]
    pub fn new(rows: u32, columns: u32) -> Option<Self> {
        let cells = |number: u32| NonZeroU16::new(u16::try_from(number).ok()?);
        Some(Self { rows: cells(rows)?, columns: cells(columns)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_cells() {
        assert!(Window::new(1, 1).is_some());
        assert!(Window::new(65_535, 65_535).is_some());
        for (rows, columns) in [(0, 80), (24, 0), (65_536, 80), (24, 65_536)] {
            assert_eq!(Window::new(rows, columns), None);
        }
    }
}
