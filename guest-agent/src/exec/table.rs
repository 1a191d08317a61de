//! The execs of an agent: starts them, finds them, forgets them in time.

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::account::{Account, AccountError, Accounts};
use super::launch::{LaunchError, Launched, launch, stream_kind};
use super::life::{Exec, ExecState, Identity, Running, Streams, begin};
use super::reaper::Reaper;
use super::request::{Directory, ExecRequest, UserRequest};
use super::spec::{Credentials, DirectoryChoice, LaunchSpec, Limit, ResourceName};
use super::streams::Pipe;
use super::{environment, terminal};
use crate::audit::{EventKind, ExecPhase};
use crate::filter::Program;
use crate::ids::ExecId;
use crate::mediator::Context;
use crate::notify::CallerWait;

/// Ended execs that List and Wait still know.
const REMEMBERED: usize = 256;

/// Why an exec was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Too many run.
    #[error("{0} execs run already; end one or raise limits.max_execs")]
    TooMany(usize),
    /// The agent is ending.
    #[error("the agent is shutting down")]
    ShuttingDown,
    /// The user does not exist.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// An agent that is not root was asked for another user.
    #[error(
        "the agent runs as uid {agent} and cannot run commands as uid {wanted}; start it as root, or ask for no user"
    )]
    UserSwitch {
        /// Whose the agent is.
        agent: u32,
        /// Whose the command would be.
        wanted: u32,
    },
    /// It could not be launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// The execs of an agent.
#[derive(Debug)]
pub struct Execs {
    context: Arc<Context>,
    reaper: Reaper,
    filter: Program,
    caller_wait: CallerWait,
    accounts: Accounts,
    /// The limit of open files that the agent itself was started with.
    open_files: Limit,
    next: AtomicU64,
    slots: Arc<Semaphore>,
    limit: usize,
    known: Mutex<VecDeque<Arc<Exec>>>,
    closed: AtomicBool,
}

impl Execs {
    /// Starts with none.
    #[must_use]
    pub fn new(
        context: Arc<Context>,
        reaper: Reaper,
        filter: Program,
        caller_wait: CallerWait,
        open_files: (Option<u64>, Option<u64>),
        max_execs: usize,
    ) -> Self {
        let (soft, hard) = open_files;
        Self {
            context,
            reaper,
            filter,
            caller_wait,
            accounts: Accounts::default(),
            open_files: Limit { resource: ResourceName::OpenFiles, soft, hard },
            next: AtomicU64::new(1),
            slots: Arc::new(Semaphore::new(max_execs)),
            limit: max_execs,
            known: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Starts no more commands from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Starts a command.
    pub async fn start(&self, request: ExecRequest) -> Result<Running, StartError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StartError::ShuttingDown);
        }
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        let slot = slot.map_err(|_| StartError::TooMany(self.limit))?;
        let id = ExecId::new(self.next.fetch_add(1, Ordering::Relaxed));
        let started = self.try_start(id, request).await;
        match &started {
            Ok(running) => self.remember(running, slot),
            Err(error) => self.audit(id, ExecPhase::Failed(error.to_string())),
        }
        started
    }

    async fn try_start(&self, id: ExecId, request: ExecRequest) -> Result<Running, StartError> {
        let (account, credentials) = self.account(request.user.as_ref())?;
        let (ours, theirs) = open_streams(&request, account.uid)?;
        let identity = Identity { id, argv: request.argv.clone(), uid: account.uid };
        let spec = self.spec(request, &account, credentials);
        let (reaper, context) = (self.reaper.clone(), Arc::clone(&self.context));
        let launch = move || launch(&reaper, &context, id, spec, &theirs);
        let launched: Launched = tokio::task::spawn_blocking(launch)
            .await
            .map_err(|error| LaunchError::Launcher(error.to_string()))??;
        let audited = ExecPhase::Started {
            argv: identity.argv.iter().map(|argument| argument.to_bytes().to_vec()).collect(),
            pid: launched.command,
            uid: account.uid,
        };
        self.audit(id, audited);
        let what = "the exec's streams";
        let running = begin(Arc::clone(&self.context), identity, ours, launched)
            .map_err(|source| LaunchError::Prepare { what, source })?;
        Ok(running)
    }

    /// Who runs a command, and what the launcher must do for it.
    fn account(&self, user: Option<&UserRequest>) -> Result<(Account, Credentials), StartError> {
        let own = rustix::process::geteuid().as_raw();
        let Some(user) = user else {
            let own = UserRequest { name: own.to_string(), supplementary_groups: Vec::new() };
            return Ok((self.accounts.resolve(&own)?, Credentials::Keep));
        };
        let account = self.accounts.resolve(user)?;
        if own != 0 {
            let is_own = account.uid == own && user.supplementary_groups.is_empty();
            return if is_own {
                Ok((account, Credentials::Keep))
            } else {
                Err(StartError::UserSwitch { agent: own, wanted: account.uid })
            };
        }
        let Account { uid, gid, ref groups, .. } = account;
        let credentials = Credentials::Switch { uid, gid, groups: groups.clone() };
        Ok((account, credentials))
    }

    fn spec(
        &self,
        request: ExecRequest,
        account: &Account,
        credentials: Credentials,
    ) -> LaunchSpec {
        let ExecRequest { argv, environment, clear_environment, directory, terminal, .. } = request;
        let term = terminal.as_ref().map(|terminal| &terminal.term);
        let environment = environment::environment(account, term, clear_environment, &environment);
        let directory = match directory {
            Directory::Path(path) => DirectoryChoice::Required(path),
            Directory::Home => {
                DirectoryChoice::Preferred(CString::new(account.home.as_str()).unwrap_or_default())
            }
        };
        let mut limits = vec![self.open_files];
        limits.extend(request.limits);
        LaunchSpec {
            argv,
            environment,
            directory,
            credentials,
            streams: stream_kind(terminal.is_some()),
            limits,
            umask: request.umask,
            filter: self.filter.clone(),
            caller_wait: self.caller_wait,
        }
    }

    /// Keeps an exec findable, and its slot taken until it has ended.
    fn remember(&self, running: &Running, slot: OwnedSemaphorePermit) {
        let exec = Arc::clone(&running.exec);
        let ended = Arc::clone(&exec);
        tokio::spawn(async move {
            ended.wait().await;
            drop(slot);
        });
        let mut execs = self.known();
        execs.push_back(exec);
        let has_ended = |exec: &Arc<Exec>| matches!(exec.state(), ExecState::Exited { .. });
        let ended = execs.iter().filter(|exec| has_ended(exec)).count();
        for _ in REMEMBERED..ended {
            if let Some(oldest) = execs.iter().position(has_ended) {
                execs.remove(oldest);
            }
        }
    }

    /// All that run or ended lately, in the order they were started.
    pub fn list(&self) -> Vec<Arc<Exec>> {
        self.known().iter().cloned().collect()
    }

    /// One of them.
    pub fn find(&self, id: ExecId) -> Option<Arc<Exec>> {
        self.known().iter().find(|exec| exec.id == id).cloned()
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Arc<Exec>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn audit(&self, id: ExecId, phase: ExecPhase) {
        self.context.audit.record(Some(id), EventKind::Exec(phase));
    }
}

/// The agent's ends of a command's streams, and the command's.
fn open_streams(request: &ExecRequest, owner: u32) -> Result<(Streams, Vec<OwnedFd>), LaunchError> {
    if let Some(requested) = &request.terminal {
        let pty = terminal::open(requested.window, owner);
        let pty =
            pty.map_err(|error| LaunchError::Prepare { what: "a terminal", source: error.into() })?;
        return Ok((Streams::Terminal(pty.master), vec![pty.slave]));
    }
    let pipe = || Pipe::new().map_err(|source| LaunchError::Prepare { what: "a pipe", source });
    let (stdin, stdout, stderr) = (pipe()?, pipe()?, pipe()?);
    let ours = Streams::Pipes { stdin: stdin.writer, stdout: stdout.reader, stderr: stderr.reader };
    Ok((ours, vec![stdin.reader, stdout.writer, stderr.writer]))
}
