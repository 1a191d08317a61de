//! Pseudo terminals.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::request::Window;

/// Both ends of a terminal.
#[derive(Debug)]
pub(super) struct Pty {
    /// The agent's end.
    pub(super) master: OwnedFd,
    /// The workload's end.
    pub(super) slave: OwnedFd,
}

/// Opens a terminal of this size that belongs to this user.
///
/// The workload never gets the master: whoever holds it signals the terminal's
/// foreground group at will.
pub(super) fn open(window: Window, owner: u32) -> rustix::io::Result<Pty> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    // By the master, not by a path in /dev/pts, which could be another mount's.
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    if rustix::process::geteuid().is_root() {
        fchown(&slave, Some(Uid::from_raw(owner)), None::<Gid>)?;
        fchmod(&slave, Mode::RUSR | Mode::WUSR | Mode::WGRP)?;
    }
    resize(&master, window)?;
    Ok(Pty { master, slave })
}

/// Changes a terminal's size; its foreground group gets SIGWINCH.
pub(super) fn resize(master: impl AsFd, window: Window) -> rustix::io::Result<()> {
    let size = Winsize {
        ws_row: window.rows.get(),
        ws_col: window.columns.get(),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(master, size)
}

/// The bytes that tell a reader of the terminal that the input has ended.
///
/// The end-of-file character ends a line that has begun, and only at the
/// beginning of a line is it the end of the file (termios(3)).
pub(super) fn end_of_input(master: impl AsFd, at_line_start: bool) -> Vec<u8> {
    /// Ctrl-D, where the terminal cannot be asked.
    const DEFAULT: u8 = 4;
    let end = rustix::termios::tcgetattr(master)
        .map_or(DEFAULT, |modes| modes.special_codes[rustix::termios::SpecialCodeIndex::VEOF]);
    if at_line_start { vec![end] } else { vec![end, end] }
}
