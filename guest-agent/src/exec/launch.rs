//! The agent's side of starting a command: spawn a launcher, take over its
//! listener, record its session, let it go.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::reaper::{ChildExit, Reaper};
use super::spec::{LaunchSpec, StreamKind};
use super::wire::{self, Failure, FromLauncher, Step, ToLauncher, WireError};
use crate::ids::{ExecId, Pid, Tgid};
use crate::mediator;
use crate::notify::Listener;
use crate::ownership::{Kernel as _, Membership, RecordError};

/// How long a launcher may take for a step. It only makes system calls, so a
/// launcher that takes longer is stuck or has been tampered with.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A resource for it could not be had.
    #[error("cannot prepare {what}: {source}")]
    Prepare {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory '{directory}': {source}")]
    Directory {
        /// Which.
        directory: String,
        /// Why.
        source: std::io::Error,
    },
    /// A resource limit cannot be set.
    #[error("cannot set the resource limit {name}: {source}")]
    Limit {
        /// Which.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The command does not exist.
    #[error("command '{0}' not found")]
    CommandNotFound(String),
    /// The command cannot be executed.
    #[error("cannot execute '{command}': {source}")]
    CommandNotExecutable {
        /// Which.
        command: String,
        /// Why.
        source: std::io::Error,
    },
    /// The agent may not take the user's identity.
    #[error("the agent cannot switch to the user: {0}")]
    Credentials(std::io::Error),
    /// Another step failed.
    #[error("the launcher failed at {step}: {source}{hint}")]
    Step {
        /// Which.
        step: &'static str,
        /// Why.
        source: std::io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The launcher broke off.
    #[error("the launcher did not answer: {0}")]
    Launcher(String),
    /// Its session could not be recorded.
    #[error(transparent)]
    Session(#[from] RecordError),
}

impl LaunchError {
    fn prepare(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Prepare { what, source }
    }
}

impl From<WireError> for LaunchError {
    fn from(error: WireError) -> Self {
        Self::Launcher(error.to_string())
    }
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) launcher: ChildExit,
    pub(super) command: Pid,
    pub(super) control: UnixStream,
}

/// Starts a command. Blocks for as long as the launcher's steps take.
pub(super) fn launch(
    reaper: &Reaper,
    context: &Arc<mediator::Context>,
    exec: ExecId,
    spec: LaunchSpec,
    descriptors: &[OwnedFd],
) -> Result<Launched, LaunchError> {
    let (control, theirs) = UnixStream::pair().map_err(LaunchError::prepare("a socket pair"))?;
    control
        .set_read_timeout(Some(STEP_LIMIT))
        .and_then(|()| control.set_write_timeout(Some(STEP_LIMIT)))
        .map_err(LaunchError::prepare("a time limit"))?;
    let described = Described::new(&spec);
    let (pid, launcher) = reaper
        .spawn(
            Command::new("/proc/self/exe")
                .arg0("guest-agent")
                .arg("launcher")
                .env_clear()
                .current_dir("/")
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        )
        .map_err(LaunchError::prepare("a launcher"))?;
    let streams: Vec<BorrowedFd> = descriptors.iter().map(|fd| fd.as_fd()).collect();
    wire::send(&control, &ToLauncher::Spec(Box::new(spec)), &streams)?;
    let listener = match wire::receive(&control)? {
        (FromLauncher::Ready, descriptors) => descriptors.into_iter().next(),
        (other, _) => return Err(described.error(other)),
    };
    let listener = listener.ok_or_else(|| LaunchError::Launcher("it sent no listener".into()))?;
    let leader = Tgid::new(pid.get()).filter(|leader| {
        context.ownership.kernel().session(leader.pid()) == Membership::In(leader.founded_session())
    });
    let leader = leader.ok_or_else(|| LaunchError::Launcher("it founded no session".into()))?;
    context.ownership.record(leader, exec, || reaper.holds(pid))?;
    mediator::spawn(Arc::clone(context), exec, Listener::from(listener))
        .map_err(LaunchError::prepare("a mediator thread"))?;
    wire::send(&control, &ToLauncher::Go, &[])?;
    match wire::receive(&control)? {
        (FromLauncher::Started(command), _) => {
            let command = Pid::new(command)
                .ok_or_else(|| LaunchError::Launcher("it started no process".into()))?;
            Ok(Launched { launcher, command, control })
        }
        (other, _) => Err(described.error(other)),
    }
}

/// The words of a request that errors repeat.
struct Described {
    command: String,
    directory: String,
}

impl Described {
    fn new(spec: &LaunchSpec) -> Self {
        use super::spec::DirectoryChoice;
        let text = |bytes: &std::ffi::CString| bytes.to_string_lossy().into_owned();
        let (DirectoryChoice::Required(directory) | DirectoryChoice::Preferred(directory)) =
            &spec.directory;
        Self {
            command: spec.argv.first().map(text).unwrap_or_default(),
            directory: text(directory),
        }
    }

    fn error(self, message: FromLauncher) -> LaunchError {
        let Self { command, directory } = self;
        let FromLauncher::Failed(Failure { step, errno }) = message else {
            return LaunchError::Launcher(format!("it said {message:?} out of turn"));
        };
        let source = std::io::Error::from_raw_os_error(errno);
        let at = |step, hint| LaunchError::Step {
            step,
            source: std::io::Error::from_raw_os_error(errno),
            hint,
        };
        match step {
            Step::Execute if matches!(errno, libc::ENOENT | libc::ENOTDIR) => {
                LaunchError::CommandNotFound(command)
            }
            Step::Execute => LaunchError::CommandNotExecutable { command, source },
            Step::Directory => LaunchError::Directory { directory, source },
            Step::Limit(name) => LaunchError::Limit { name, source },
            Step::Credentials => LaunchError::Credentials(source),
            Step::Protocol => at("receiving its orders", ""),
            Step::Session => at("founding a session", ""),
            Step::Terminal => at("taking the terminal", ""),
            Step::Capabilities => at("dropping capabilities", ""),
            Step::NoNewPrivileges => at("setting no_new_privs", ""),
            Step::Filter if errno == libc::EBUSY => at(
                "installing the filter",
                ": the agent already runs under a filter with a listener; start it without one",
            ),
            Step::Filter => at("installing the filter", ""),
            Step::Fork => at("starting a process", ""),
            Step::ChildSetup => at("setting up the command's process", ""),
        }
    }
}

/// The kind of streams a request has.
pub(super) fn stream_kind(terminal: bool) -> StreamKind {
    if terminal { StreamKind::Terminal } else { StreamKind::Pipes }
}
