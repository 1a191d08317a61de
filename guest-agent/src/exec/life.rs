//! The life of a running exec: its state, its streams, its orders, its end.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::launch::Launched;
use super::reaper::{ChildExit, ExitStatus};
use super::request::Window;
use super::streams::{Sink, Until, feed_input, input, output, pump_output};
use super::terminal;
use super::termination::end_exec;
use super::wire::{self, FromLauncher, MAX_REPORT, Recipient, ToLauncher, WireError};
use crate::audit::{EventKind, ExecPhase};
use crate::ids::{ExecId, Pgid, Pid};
use crate::mediator::Context;

/// Messages that wait between the host's stream and a command: enough to keep
/// both sides busy, little enough to bound memory at a few chunks an exec.
const CHANNEL: usize = 4;

/// Orders that wait for a launcher; one that reads none is stopped or hostile.
const ORDERS: usize = 64;

/// One exec.
#[derive(Debug)]
pub struct Exec {
    /// Its name.
    pub id: ExecId,
    /// The command line.
    pub argv: Vec<CString>,
    /// Its user.
    pub uid: u32,
    /// When it was started.
    pub started: SystemTime,
    /// Whether it has a terminal.
    pub has_terminal: bool,
    /// The agent's end of its terminal, until it has ended or was hung up.
    master: Mutex<Option<Arc<OwnedFd>>>,
    unwanted: Unwanted,
    state: watch::Sender<ExecState>,
    orders: mpsc::Sender<ToLauncher>,
}

/// What an exec is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecState {
    /// The command runs as this process.
    Running(Pid),
    /// The command, this process, is stopped.
    Stopped(Pid),
    /// The command has ended.
    Exited {
        /// The process it was.
        pid: Pid,
        /// How.
        status: ExitStatus,
        /// When.
        at: SystemTime,
    },
}

/// What a running exec tells its host.
#[derive(Debug)]
pub enum ExecEvent {
    /// Bytes it wrote.
    Output(Output, Bytes),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It was continued.
    Continued,
    /// It ended; nothing comes after this.
    Exited(ExitStatus),
}

/// An output of a command; a terminal is `Stdout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

impl Output {
    pub(super) fn event(self, chunk: Bytes) -> ExecEvent {
        ExecEvent::Output(self, chunk)
    }
}

/// What a host sends to a command's input.
#[derive(Debug)]
pub enum Input {
    /// These bytes.
    Data(Bytes),
    /// The end of the input.
    End,
}

/// Why an exec does not follow an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// It has ended.
    #[error("the exec has ended")]
    Ended,
    /// It has no terminal.
    #[error("the exec has no terminal")]
    NoTerminal,
    /// Its launcher takes no orders; it may be stopped by the workload itself.
    #[error("the exec's launcher takes no orders: end the exec with SIGKILL to all its processes")]
    Stuck,
    /// The terminal refused.
    #[error("the terminal refused")]
    Terminal,
}

/// The host's side of an exec that was just started.
#[derive(Debug)]
pub struct Running {
    /// The exec itself.
    pub exec: Arc<Exec>,
    /// Its process.
    pub pid: Pid,
    /// Takes its input.
    pub input: mpsc::Sender<Input>,
    /// Yields what it does.
    pub events: mpsc::Receiver<ExecEvent>,
}

/// Which outputs the host no longer reads.
#[derive(Debug)]
struct Unwanted {
    stdout: watch::Sender<bool>,
    stderr: watch::Sender<bool>,
}

impl Exec {
    /// Its state now.
    #[must_use]
    pub fn state(&self) -> ExecState {
        *self.state.borrow()
    }

    /// Waits for its end.
    pub async fn wait(&self) -> ExitStatus {
        let mut state = self.state.subscribe();
        loop {
            if let ExecState::Exited { status, .. } = *state.borrow_and_update() {
                return status;
            }
            // `self` holds the sender, so there is always a further change or the end.
            let _ = state.changed().await;
        }
    }

    /// Changes the size of its terminal.
    pub fn resize(&self, window: Window) -> Result<(), OrderError> {
        terminal::resize(self.master()?, window).map_err(|_| OrderError::Terminal)
    }

    /// Closes an output: the command gets SIGPIPE when it writes there.
    pub fn close_output(&self, output: Output) {
        match output {
            Output::Stdout => self.unwanted.stdout.send_replace(true),
            Output::Stderr => self.unwanted.stderr.send_replace(true),
        };
    }

    /// Sends a signal to the process group the command was started in.
    pub fn signal_command(&self, signal: i32) -> Result<(), OrderError> {
        self.order(ToLauncher::Signal(Recipient::Command, signal))
    }

    /// Sends a signal to the foreground group of its terminal.
    pub fn signal_foreground(&self, signal: i32) -> Result<(), OrderError> {
        let group = rustix::termios::tcgetpgrp(self.master()?).map_err(|_| OrderError::Terminal)?;
        let group = Pgid::new(group.as_raw_nonzero().get()).ok_or(OrderError::Terminal)?;
        self.order(ToLauncher::Signal(Recipient::Group(group.get()), signal))
    }

    fn master(&self) -> Result<Arc<OwnedFd>, OrderError> {
        if !self.has_terminal {
            return Err(OrderError::NoTerminal);
        }
        self.lock_master().clone().ok_or(OrderError::Ended)
    }

    fn close_master(&self) {
        self.lock_master().take();
    }

    fn lock_master(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: ToLauncher) -> Result<(), OrderError> {
        if matches!(self.state(), ExecState::Exited { .. }) {
            return Err(OrderError::Ended);
        }
        self.orders.try_send(order).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => OrderError::Stuck,
            mpsc::error::TrySendError::Closed(_) => OrderError::Ended,
        })
    }
}

/// The agent's ends of a command's streams.
#[derive(Debug)]
pub(super) enum Streams {
    Terminal(OwnedFd),
    Pipes { stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd },
}

/// What is known of an exec before it runs.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) id: ExecId,
    pub(super) argv: Vec<CString>,
    pub(super) uid: u32,
}

/// Takes a launched command into the care of the runtime.
pub(super) fn begin(
    context: Arc<Context>,
    identity: Identity,
    streams: Streams,
    launched: Launched,
) -> io::Result<Running> {
    let Launched { launcher, command, control } = launched;
    control.set_read_timeout(None)?;
    control.set_write_timeout(None)?;
    control.set_nonblocking(true)?;
    let (reports, orders_to) = UnixStream::from_std(control)?.into_split();
    let (events_to, events) = mpsc::channel(CHANNEL);
    let (input_to, input_from) = mpsc::channel(CHANNEL);
    let (ended, command_ended) = watch::channel(false);
    let (unwant_stdout, unwanted_stdout) = watch::channel(false);
    let (unwant_stderr, unwanted_stderr) = watch::channel(false);
    let mut master = None;
    let mut pumps = JoinSet::new();
    let until = |unwanted| Until { command_ended: command_ended.clone(), unwanted };
    let sink = match streams {
        Streams::Terminal(fd) => {
            master = Some(Arc::new(fd.try_clone()?));
            let sink = Sink::Terminal(input(fd.try_clone()?)?);
            let from = output(fd)?;
            pumps.spawn(pump_output(
                from,
                Output::Stdout,
                events_to.clone(),
                until(unwanted_stdout),
            ));
            sink
        }
        Streams::Pipes { stdin, stdout, stderr } => {
            let (stdout, stderr) = (output(stdout)?, output(stderr)?);
            pumps.spawn(pump_output(
                stdout,
                Output::Stdout,
                events_to.clone(),
                until(unwanted_stdout),
            ));
            pumps.spawn(pump_output(
                stderr,
                Output::Stderr,
                events_to.clone(),
                until(unwanted_stderr),
            ));
            Sink::Pipe(input(stdin)?)
        }
    };
    let feed = tokio::spawn(feed_input(sink, input_from));
    let (orders, orders_from) = mpsc::channel(ORDERS);
    let exec = Arc::new(Exec {
        id: identity.id,
        argv: identity.argv,
        uid: identity.uid,
        started: SystemTime::now(),
        has_terminal: master.is_some(),
        master: Mutex::new(master),
        unwanted: Unwanted { stdout: unwant_stdout, stderr: unwant_stderr },
        state: watch::Sender::new(ExecState::Running(command)),
        orders,
    });
    tokio::spawn(forward_orders(orders_from, orders_to));
    let life = Life { context, exec: Arc::clone(&exec), command, launcher, events: events_to };
    tokio::spawn(async move {
        let status = life.follow(reports).await;
        ended.send_replace(true);
        while pumps.join_next().await.is_some() {}
        feed.abort();
        life.exec.close_master();
        // The host may be gone; then nobody waits for this.
        let _ = life.events.send(ExecEvent::Exited(status)).await;
    });
    Ok(Running { exec, pid: command, input: input_to, events })
}

async fn forward_orders(mut orders: mpsc::Receiver<ToLauncher>, mut to: OwnedWriteHalf) {
    while let Some(order) = orders.recv().await {
        let Ok(bytes) = wire::encode(&order) else {
            continue;
        };
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

struct Life {
    context: Arc<Context>,
    exec: Arc<Exec>,
    command: Pid,
    launcher: ChildExit,
    events: mpsc::Sender<ExecEvent>,
}

impl Life {
    /// Follows the launcher's reports to the end of the command.
    async fn follow(&self, mut reports: OwnedReadHalf) -> ExitStatus {
        let mut host_is_gone = false;
        let status = loop {
            let report = tokio::select! {
                report = read_report(&mut reports) => report,
                () = self.events.closed(), if !host_is_gone => {
                    host_is_gone = true;
                    self.hang_up();
                    continue;
                }
            };
            match report {
                Ok(FromLauncher::Stopped(signal)) => {
                    self.exec.state.send_replace(ExecState::Stopped(self.command));
                    self.audit(ExecPhase::Stopped(signal));
                    let _ = self.events.send(ExecEvent::Stopped(signal)).await;
                }
                Ok(FromLauncher::Continued) => {
                    self.exec.state.send_replace(ExecState::Running(self.command));
                    self.audit(ExecPhase::Continued);
                    let _ = self.events.send(ExecEvent::Continued).await;
                }
                Ok(FromLauncher::Exited(status)) => break status,
                Ok(_) | Err(_) => break self.lose_launcher().await,
            }
        };
        let at = SystemTime::now();
        self.exec.state.send_replace(ExecState::Exited { pid: self.command, status, at });
        self.audit(ExecPhase::Exited(status));
        status
    }

    /// As when a modem line drops: the command's group is hung up, and continued
    /// so that it notices.
    fn hang_up(&self) {
        self.exec.close_output(Output::Stdout);
        self.exec.close_output(Output::Stderr);
        self.exec.close_master();
        for signal in [libc::SIGHUP, libc::SIGCONT] {
            // An exec that takes no orders has lost its launcher, or will.
            let _ = self.exec.signal_command(signal);
        }
    }

    /// The workload has killed its launcher, or speaks in its place: nobody can
    /// tell any more when the command ends, so the whole exec does.
    async fn lose_launcher(&self) -> ExitStatus {
        tracing::warn!(exec = %self.exec.id, "the launcher is gone before its command; ending the exec");
        let (context, id) = (Arc::clone(&self.context), self.exec.id);
        if let Err(error) = tokio::task::spawn_blocking(move || end_exec(&context, id)).await {
            tracing::error!(exec = %self.exec.id, %error, "ending the exec failed");
        }
        self.launcher.clone().wait().await
    }

    fn audit(&self, phase: ExecPhase) {
        self.context.audit.record(Some(self.exec.id), EventKind::Exec(phase));
    }
}

async fn read_report(from: &mut OwnedReadHalf) -> Result<FromLauncher, WireError> {
    let mut prefix = [0; 4];
    from.read_exact(&mut prefix).await?;
    let mut body = vec![0; wire::body_length(prefix, MAX_REPORT)?];
    from.read_exact(&mut body).await?;
    wire::decode(&body)
}
