//! Puts an agent together, runs it, and ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use host_proto::endpoint::Endpoint;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, set_child_subreaper, set_dumpable_behavior,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use crate::audit::{AgentPhase, Audit, EventKind};
use crate::channel::{
    BindError, Channel, Connections, PeerRules, accept, has_peer_pidfd, remove_files,
};
use crate::config::Config;
use crate::exec::{Execs, Reaper, ask_to_end, end_descendants};
use crate::filter::{Calls, FilterError, Program};
use crate::helper::{self, HelperError};
use crate::ids::{Pid, Sid, Tgid};
use crate::mediator::Context;
use crate::notify::CallerWait;
use crate::ownership::{Linux, Ownership};
use crate::rpc::{self, Agent, Gate, Shutdown};

/// Accepted connections that wait to be served.
const INCOMING: usize = 16;

/// How long open streams may take to end after the workloads have.
const DRAIN: Duration = Duration::from_secs(2);

/// Why an agent did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A preparation failed.
    #[error("cannot {step}: {source}")]
    Prepare {
        /// Which.
        step: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// It was not started by its guardian.
    #[error(
        "the guardian (process {0}) is not this process's parent: start the agent with 'guest-agent serve'"
    )]
    NoGuardian(i32),
    /// The filter cannot be built.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The endpoint cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A helper cannot be started.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// Serving failed.
    #[error("serving failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}

fn at<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> AgentError {
    move |error| AgentError::Prepare { step, source: error.into() }
}

/// What an agent has of the kernel before it starts a thread.
#[derive(Debug)]
pub struct Foundation {
    own: Pid,
    session: Sid,
    guardian: rustix::fd::OwnedFd,
    open_files: Rlimit,
}

impl Foundation {
    /// Takes the agent's place below its guardian. Call it before any thread exists.
    ///
    /// The agent is not dumpable, so that no workload of its user looks into it;
    /// it has a session of its own without a terminal, so that no key or terminal
    /// reaches it; it is a subreaper, so that everything a workload starts stays
    /// below it. SIGPIPE is ignored already (Rust's runtime does so).
    pub fn lay(guardian: i32) -> Result<Self, AgentError> {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at("hide its memory"))?;
        let own = rustix::process::getpid();
        set_child_subreaper(Some(own)).map_err(at("adopt orphans"))?;
        rustix::process::setsid().map_err(at("found its session"))?;
        let number = own.as_raw_nonzero().get();
        let known = Pid::new(number).zip(Sid::new(number));
        let (own, session) = known.ok_or(AgentError::NoGuardian(guardian))?;
        Ok(Self {
            own,
            session,
            guardian: hold_guardian(guardian)?,
            open_files: raise_open_files(),
        })
    }
}

fn hold_guardian(number: i32) -> Result<rustix::fd::OwnedFd, AgentError> {
    let wrong = || AgentError::NoGuardian(number);
    let pid = rustix::process::Pid::from_raw(number).filter(|_| number > 0).ok_or_else(wrong)?;
    let held = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    let held = held.map_err(|_| wrong())?;
    // If it still is our parent, then it is what we hold.
    if rustix::process::getppid() == Some(pid) { Ok(held) } else { Err(wrong()) }
}

/// Raises the agent's own soft limit of open files, and returns what workloads get.
fn raise_open_files() -> Rlimit {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files; fewer execs will fit");
    }
    limit
}

/// Runs an agent until it is asked to end.
pub async fn run(config: Config, foundation: Foundation) -> Result<(), AgentError> {
    let audit = Audit::new(config.limits.audit_ring_events);
    let ownership = Ownership::new(Linux::new(foundation.own), config.limits.max_sessions);
    let context = Arc::new(Context {
        ownership,
        audit: audit.clone(),
        policy: config.policy,
        ending: AtomicBool::new(false),
        calls: Calls::new(),
    });
    let filter = Program::build(&config.policy)?;
    let caller_wait = CallerWait::supported();
    let channel = Channel::bind(&config.listen, config.channel.socket_mode)?;
    let reaper = Reaper::start().map_err(at("start the reaper"))?;
    watch_guardian(
        foundation.guardian,
        Arc::clone(&context),
        foundation.own,
        config.listen.clone(),
    )?;
    let mut terminate = signal(SignalKind::terminate()).map_err(at("watch for SIGTERM"))?;
    for helper in config.helpers {
        helper::start(helper, reaper.clone(), audit.clone())?;
    }
    let instance = uuid::Uuid::new_v4().to_string();
    let open_files = (foundation.open_files.current, foundation.open_files.maximum);
    let execs = Execs::new(
        Arc::clone(&context),
        reaper,
        filter,
        caller_wait,
        open_files,
        config.limits.max_execs,
    );
    let (shutdown, mut shutdown_requests) = mpsc::channel(1);
    let agent = Arc::new(Agent {
        instance: instance.clone(),
        started: SystemTime::now(),
        session: foundation.session,
        caller_wait,
        peer_pidfd: has_peer_pidfd(),
        limits: config.limits,
        context: Arc::clone(&context),
        execs,
        shutdown,
    });
    let own_uid = rustix::process::geteuid().as_raw();
    let rules = PeerRules::new(own_uid, &config.channel.allowed_uids, &config.channel.allowed_cids);
    let connections = Connections::new(config.limits.max_connections);
    let (incoming, accepted) = mpsc::channel(INCOMING);
    let accepting =
        tokio::spawn(accept(channel, rules, connections, Arc::clone(&context), incoming));
    let gate = Gate::new(config.token.as_deref(), instance.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let until = async move { drop(stopped.await) };
    let server = rpc::serve(Arc::clone(&agent), gate, ReceiverStream::new(accepted), until);
    let server = tokio::spawn(server);
    audit.record(None, EventKind::Agent(AgentPhase::Started(instance)));
    announce(&config.listen);
    let default = Shutdown { grace: rpc::DEFAULT_GRACE };
    let Shutdown { grace } = tokio::select! {
        _ = terminate.recv() => default,
        request = shutdown_requests.recv() => request.unwrap_or(default),
    };
    end_workloads(&agent, grace).await;
    let _ = stop.send(());
    let served = tokio::time::timeout(DRAIN, server).await;
    // Dropping the channel removes the socket.
    accepting.abort();
    let _ = accepting.await;
    match served {
        Ok(Ok(result)) => Ok(result?),
        // A client that does not hang up, or a panic that was logged, holds nothing back.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// Says on standard output that the agent serves; the reader sees the end after it.
fn announce(endpoint: &Endpoint) {
    use std::io::Write as _;
    tracing::info!(%endpoint, "ready");
    // Whoever started the agent may not want to know.
    let _ = writeln!(std::io::stdout(), "listening on {endpoint}");
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Ends all workloads: TERM, then KILL to what is left after `grace`. Until then
/// their calls are decided as ever, so that they can end what is theirs.
async fn end_workloads(agent: &Arc<Agent>, grace: Duration) {
    agent.context.audit.record(None, EventKind::Agent(AgentPhase::ShuttingDown));
    tracing::info!(?grace, "shutting down");
    agent.execs.close();
    let (context, own) = (Arc::clone(&agent.context), agent.session.leader());
    let end = move || {
        if !grace.is_zero() {
            ask_to_end(&context, grace);
        }
        end_all(&context, own);
    };
    if let Err(error) = tokio::task::spawn_blocking(end).await {
        tracing::error!(%error, "ending the workloads failed; the guardian does it");
    }
}

/// Kills everything below the agent, helpers included.
fn end_all(context: &Context, own: Tgid) {
    context.ending.store(true, Ordering::Release);
    end_descendants(own.pid(), || {});
}

/// Ends everything should the guardian die. On a thread of its own, so that
/// nothing the runtime does can delay it.
fn watch_guardian(
    guardian: rustix::fd::OwnedFd,
    context: Arc<Context>,
    own: Pid,
    endpoint: Endpoint,
) -> Result<(), AgentError> {
    use rustix::event::{PollFd, PollFlags, poll};
    let own = Tgid::new(own.get()).ok_or(AgentError::NoGuardian(own.get()))?;
    let watch = move || {
        // A pidfd is readable once its process has ended (pidfd_open(2)).
        while !matches!(poll(&mut [PollFd::new(&guardian, PollFlags::IN)], None), Ok(1..)) {}
        tracing::error!("the guardian has died; ending the workloads and the agent");
        end_all(&context, own);
        remove_files(&endpoint);
        std::process::exit(1);
    };
    std::thread::Builder::new()
        .name("guardian-watch".into())
        .spawn(watch)
        .map(drop)
        .map_err(at("watch its guardian"))
}
