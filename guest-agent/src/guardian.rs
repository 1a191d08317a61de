//! The agent's parent: adopts what the agent leaves behind and ends it.
//!
//! Upholds that nothing fails open: a workload whose agent is gone has nobody to
//! mediate it, so it ends. The guardian does nothing else, so there is little in
//! it that could fail. The agent does the same should the guardian die.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use host_proto::endpoint::Endpoint;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid as NixPid;
use rustix::process::{
    DumpableBehavior, set_child_subreaper, set_dumpable_behavior, set_parent_process_death_signal,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::channel::remove_files;
use crate::exec::end_descendants;
use crate::ids::Pid;

/// What the guardian does when the process that started it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// Shuts the agent down.
    DieWith,
    /// Goes on.
    Outlive,
}

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    /// A preparation failed.
    #[error("the guardian cannot {step}: {source}")]
    Prepare {
        /// Which.
        step: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

fn at<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> GuardianError {
    move |error| GuardianError::Prepare { step, source: error.into() }
}

/// Runs an agent with these arguments; returns the exit code once it, and
/// everything below it, has ended.
pub fn run(
    agent_arguments: &[OsString],
    endpoint: &Endpoint,
    parent: Parent,
) -> Result<i32, GuardianError> {
    // Before the agent exists, so that no change of it is missed.
    let mut signals = Signals::new([SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT])
        .map_err(at("watch for signals"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at("hide its memory"))?;
    // Any number that is not zero sets the attribute (PR_SET_CHILD_SUBREAPER(2const)).
    set_child_subreaper(Some(rustix::process::getpid())).map_err(at("adopt orphans"))?;
    if parent == Parent::DieWith {
        detach_from(rustix::process::getppid())?;
    }
    let agent = start_agent(agent_arguments).map_err(at("start the agent"))?;
    let pid = i32::try_from(agent.id())
        .map(NixPid::from_raw)
        .map_err(|_| at("start the agent")(std::io::Error::other("its number is out of range")))?;
    for signal in &mut signals {
        if signal == SIGCHLD {
            if let Some(status) = reap(pid) {
                return Ok(finish(status, endpoint));
            }
        } else {
            // All of them ask for an orderly end. The agent is our unreaped
            // child, so its number is its own.
            let _ = kill(pid, Signal::SIGTERM);
        }
    }
    Ok(1)
}

/// Ends with the parent, and takes no signal that its terminal makes.
fn detach_from(parent: Option<rustix::process::Pid>) -> Result<(), GuardianError> {
    set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(at("watch its parent"))?;
    if rustix::process::getppid() != parent {
        return Err(at("watch its parent")(std::io::Error::other("it is gone already")));
    }
    // A process that leads its group already has no session to leave for; then
    // whoever started it has put it there.
    let _ = rustix::process::setsid();
    Ok(())
}

fn start_agent(arguments: &[OsString]) -> std::io::Result<Child> {
    let guardian = rustix::process::getpid().as_raw_nonzero().to_string();
    let agent = Command::new("/proc/self/exe")
        .arg0("guest-agent")
        .args(["agent", "--guardian", &guardian])
        .args(arguments)
        .stdin(Stdio::null())
        // Every mediator is a thread, and the C library would give each a heap
        // of its own; they allocate little, so a few heaps serve them all.
        .env("MALLOC_ARENA_MAX", "2")
        .spawn()?;
    // The agent alone says when it is ready, and whoever reads that sees the end.
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(agent)
}

/// Reaps all children that have ended, whatever they are; the agent's status if
/// it is among them.
fn reap(agent: NixPid) -> Option<ExitStatus> {
    let mut ended = None;
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
    loop {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::StillAlive) | Err(nix::errno::Errno::ECHILD) => return ended,
            Ok(WaitStatus::Exited(pid, code)) if pid == agent => {
                ended = Some(ExitStatus::from_raw(code << 8));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == agent => {
                ended = Some(ExitStatus::from_raw(signal as i32));
            }
            // Others, and ends by signals that nix has no name for.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Ends what the agent left and turns its status into an exit code.
fn finish(status: ExitStatus, endpoint: &Endpoint) -> i32 {
    if let Some(own) = Pid::new(rustix::process::getpid().as_raw_nonzero().get()) {
        end_descendants(own, || {
            while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
        });
    }
    if let Some(signal) = status.signal() {
        // It could not clean up after itself.
        remove_files(endpoint);
        eprintln!("guest-agent: the agent was ended by signal {signal}; its workloads were ended");
        return 128 + signal;
    }
    status.code().unwrap_or(1)
}
