//! The kernel's interface for user notification: install, receive, answer.
//!
//! The ioctls are made here, not through libseccomp, whose releases before 2.6
//! turn every error of theirs into ECANCELED: a caller that is gone (ENOENT) and
//! an interrupted wait (EINTR) must be told apart. See `seccomp_unotify(2)`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::filter::Program;
use crate::ids::Pid;

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, linux/seccomp.h, since Linux 5.19.
const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`, linux/seccomp.h.
const CONTINUE: u32 = 1;

/// Whether a caller that waits for the agent's answer can be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::unsafe_derive_deserialize, reason = "any of its values is as good as another")]
pub enum CallerWait {
    /// Only by a fatal signal, once the agent has received the call.
    Killable,
    /// By any signal (before Linux 5.19).
    Interruptible,
}

impl CallerWait {
    /// What this kernel offers.
    #[must_use]
    pub fn supported() -> Self {
        // The kernel checks the flags before it reads the program: an unknown
        // flag gives EINVAL, a null program EFAULT.
        // SAFETY: a null program is never dereferenced by user space, and the
        // kernel refuses it without any effect.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECV,
                std::ptr::null::<libc::sock_fprog>(),
            )
        };
        let error = io::Error::last_os_error().raw_os_error();
        if result == -1 && error == Some(libc::EFAULT) {
            Self::Killable
        } else {
            Self::Interruptible
        }
    }

    const fn flags(self) -> libc::c_ulong {
        match self {
            Self::Killable => libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECV,
            Self::Interruptible => libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
        }
    }
}

/// Puts the calling thread under a filter and returns its listener.
///
/// The thread must have set `no_new_privs`. Fails with EBUSY if a filter with a
/// listener is already in force, as in a container whose runtime has one.
pub fn install(program: &Program, wait: CallerWait) -> io::Result<OwnedFd> {
    let mut instructions: Vec<libc::sock_filter> = program
        .instructions()
        .iter()
        .map(|i| libc::sock_filter {
            code: i.code,
            jt: i.jump_true,
            jf: i.jump_false,
            k: i.operand,
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len())
            .map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: `program` points to `len` instructions that outlive the call; the
    // kernel copies them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            wait.flags(),
            &raw const program,
        )
    };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just opened this descriptor for us (close-on-exec).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Names the call until it is answered or its caller is gone.
    pub id: u64,
    /// The calling thread, in the agent's pid namespace; `None` if it is not
    /// visible there.
    pub caller: Option<Pid>,
    /// `AUDIT_ARCH_*` of the ABI it came by.
    pub audit_arch: u32,
    /// The call's number in that ABI.
    pub number: i32,
    /// The argument registers.
    pub arguments: [u64; 6],
}

/// What a wait on a listener ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A call waits.
    Call(Notification),
    /// Nothing came within the time.
    Nothing,
    /// The last process under the filter has ended.
    Hangup,
}

/// An answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel goes on with the call.
    Continue,
    /// The caller gets this errno.
    Errno(i32),
}

/// Whether an answer found its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It did: facts read through the caller before it were the caller's.
    Delivered,
    /// The caller was killed, or its call was interrupted and may come again.
    CallerGone,
}

/// The descriptor on which the calls of one filter arrive.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl From<OwnedFd> for Listener {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

mod ioctl {
    //! The three requests of linux/seccomp.h.
    #![allow(missing_docs, reason = "the macro takes no comment on its function")]

    nix::ioctl_readwrite!(notif_recv, b'!', 0, libc::seccomp_notif);
    nix::ioctl_readwrite!(notif_send, b'!', 1, libc::seccomp_notif_resp);
    nix::ioctl_write_ptr!(notif_id_valid, b'!', 2, u64);
}
use ioctl::{notif_id_valid, notif_recv, notif_send};

impl Listener {
    /// Waits for a call, at most for `limit` if there is one.
    ///
    /// Before Linux 6.11 a receive does not return when the last process under
    /// the filter ends, so the wait is a poll of its own.
    pub fn receive(&self, limit: Option<Duration>) -> io::Result<Received> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut polled, limit.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let events = polled[0].revents();
        if !events.contains(PollFlags::IN) {
            return Ok(Received::Hangup);
        }
        // SAFETY: all-zero bytes are a valid value of this plain C struct, and
        // what the ioctl demands.
        let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: `raw` is a writable, zeroed `struct seccomp_notif`. The ioctl's
        // number holds its size, which is part of the kernel's stable interface.
        match unsafe { notif_recv(self.0.as_raw_fd(), &raw mut raw) } {
            Ok(_) => Ok(Received::Call(Notification {
                id: raw.id,
                caller: i32::try_from(raw.pid).ok().and_then(Pid::new),
                audit_arch: raw.data.arch,
                number: raw.data.nr,
                arguments: raw.data.args,
            })),
            // ENOENT: the caller went, or was interrupted, before it was received.
            Err(nix::errno::Errno::ENOENT | nix::errno::Errno::EINTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the caller of a received call still waits, so that what was read
    /// through its number was read of it.
    #[must_use]
    pub fn is_valid(&self, id: u64) -> bool {
        // SAFETY: `id` is a readable u64 that outlives the call.
        unsafe { notif_id_valid(self.0.as_raw_fd(), &raw const id) }.is_ok()
    }

    /// Answers a call.
    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<Delivery> {
        let mut response = match answer {
            Answer::Continue => libc::seccomp_notif_resp { id, val: 0, error: 0, flags: CONTINUE },
            Answer::Errno(errno) => {
                libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 }
            }
        };
        loop {
            // SAFETY: `response` is a `struct seccomp_notif_resp` that outlives the call.
            match unsafe { notif_send(self.0.as_raw_fd(), &raw mut response) } {
                Ok(_) => return Ok(Delivery::Delivered),
                Err(nix::errno::Errno::ENOENT) => return Ok(Delivery::CallerGone),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
