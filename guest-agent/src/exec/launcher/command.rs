//! Starts the command: fork, process group, standard descriptors, execve.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{ForkResult, Pid, execve, fork};

use super::super::environment;
use super::super::spec::LaunchSpec;
use super::super::wire::{Failure, Step, decode, encode};
use super::{AtStep, Stop, Streams};

/// Starts the command and returns once it runs.
pub(super) fn start(spec: &LaunchSpec, streams: Streams) -> Result<Pid, Stop> {
    // execve closes the writing end; before that the child may write why it failed.
    let flags = rustix::pipe::PipeFlags::CLOEXEC;
    let (reader, writer) = rustix::pipe::pipe_with(flags).at(Step::Fork)?;
    // SAFETY: the launcher has a single thread, so the child may run any code.
    match unsafe { fork() }.at(Step::Fork)? {
        ForkResult::Child => {
            drop(reader);
            let Err(failure) = become_command(spec, &streams);
            if let Ok(message) = encode(&failure) {
                let _ = File::from(writer).write_all(&message[4..]);
            }
            std::process::exit(1)
        }
        ForkResult::Parent { child } => {
            // The command alone holds its streams, so that the agent sees them end.
            drop((writer, streams));
            let mut message = Vec::new();
            File::from(reader).read_to_end(&mut message).at(Step::Fork)?;
            if message.is_empty() {
                return Ok(child);
            }
            let failure = decode(&message);
            Err(Stop::Failed(failure.unwrap_or(Failure { step: Step::Fork, errno: libc::EPROTO })))
        }
    }
}

/// Turns the child into the command.
fn become_command(spec: &LaunchSpec, streams: &Streams) -> Result<Infallible, Failure> {
    let failed = |step: Step| move |errno: i32| Failure { step, errno };
    prepare(streams)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
        .map_err(failed(Step::ChildSetup))?;
    let errno = execute(&spec.argv, &spec.environment);
    Err(failed(Step::Execute)(errno as i32))
}

fn prepare(streams: &Streams) -> std::io::Result<()> {
    close_on_exec_from(3)?;
    rustix::process::setpgid(None, None)?;
    match streams {
        Streams::Terminal(slave) => {
            // SIGTTOU, which a background process gets for this, is still blocked.
            rustix::termios::tcsetpgrp(slave, rustix::process::getpid())?;
            set_standard_descriptors(slave, slave, slave)?;
        }
        Streams::Pipes { stdin, stdout, stderr } => {
            set_standard_descriptors(stdin, stdout, stderr)?;
        }
    }
    reset_signals();
    Ok(())
}

fn set_standard_descriptors(
    stdin: &OwnedFd,
    stdout: &OwnedFd,
    stderr: &OwnedFd,
) -> std::io::Result<()> {
    rustix::stdio::dup2_stdin(stdin.as_fd())?;
    rustix::stdio::dup2_stdout(stdout.as_fd())?;
    rustix::stdio::dup2_stderr(stderr.as_fd())?;
    Ok(())
}

/// Marks every descriptor from `first` up, so that none of the launcher's, nor
/// one that the agent was started with, reaches the command.
fn close_on_exec_from(first: u32) -> std::io::Result<()> {
    // SAFETY: close_range with CLOEXEC only sets flags.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 {
        return Ok(());
    }
    // Before Linux 5.11.
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(fd) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if fd.cast_unsigned() >= first {
            // SAFETY: F_SETFD only sets a flag; on a descriptor that is closed
            // by now (the directory's own) it fails without effect.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Gives the command every signal at its default and unblocked.
fn reset_signals() {
    /// The kernel's `_NSIG`, real-time signals included.
    const LAST_SIGNAL: i32 = 64;
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: the default action runs no code of ours. The C library keeps
        // some numbers to itself and the kernel refuses SIGKILL and SIGSTOP:
        // those are at their default anyway.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
}

/// execvp(3) with the command's own PATH; returns only if it fails.
fn execute(argv: &[CString], environment: &[CString]) -> Errno {
    let Some(name) = argv.first() else {
        return Errno::EINVAL;
    };
    if name.as_bytes().contains(&b'/') {
        return execute_file(name, argv, environment);
    }
    if name.is_empty() {
        return Errno::ENOENT;
    }
    let path = environment::value(environment, "PATH").unwrap_or(b"/usr/bin:/bin");
    let mut denied = false;
    for directory in path.split(|&byte| byte == b':') {
        // An empty entry is the working directory (execvp(3)).
        let directory = if directory.is_empty() { b"." } else { directory };
        let Ok(file) = CString::new([directory, b"/", name.as_bytes()].concat()) else {
            continue;
        };
        match execute_file(&file, argv, environment) {
            Errno::EACCES => denied = true,
            Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG | Errno::ELOOP => {}
            other => return other,
        }
    }
    if denied { Errno::EACCES } else { Errno::ENOENT }
}

/// execve, and like every shell a script without `#!` by /bin/sh.
fn execute_file(file: &CStr, argv: &[CString], environment: &[CString]) -> Errno {
    let Err(errno) = execve(file, argv, environment);
    if errno != Errno::ENOEXEC {
        return errno;
    }
    let mut script = vec![c"/bin/sh".to_owned(), file.to_owned()];
    script.extend_from_slice(argv.get(1..).unwrap_or_default());
    let Err(errno) = execve(c"/bin/sh", &script, environment);
    errno
}
