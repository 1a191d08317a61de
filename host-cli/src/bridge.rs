//! Joins a command to the local streams, terminal and signals.
//!
//! Events are read, and signals answered, whatever else waits: nothing here waits
//! for the command to take something. Input, sizes and signals go by tasks.

use std::cell::Cell;
use std::time::Duration;

use host_proto::client::Client;
use host_proto::exec::{ExecControl, ExecEvent, ExecEvents, Exit, RunningExec};
use host_proto::v1;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use v1::{OutputStream, SignalTarget};

use crate::cli::Streams;
use crate::exit::Failure;
use crate::output::{Loss, Output};
use crate::signals::{Local, Signals, guest};
use crate::{input, job, terminal};

/// How long a command may take to stop before agentctl stops alone.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Runs a command to its end; returns the exit code for agentctl.
pub(crate) async fn run(
    client: &Client,
    start: v1::StartExec,
    streams: Streams,
) -> Result<u8, Failure> {
    let mut signals = Signals::watch(streams)?;
    let running = tokio::select! {
        running = client.run(start) => running?,
        signal = signals.ending.next() => return Err(Failure::signal(signal)),
    };
    let RunningExec { events, control, .. } = running;
    if streams == Streams::Terminal {
        terminal::make_raw().map_err(anyhow::Error::from)?;
    }
    // Dropped, and so ended, with this function.
    let mut tasks = JoinSet::new();
    tasks.spawn(input::forward(control.clone()));
    let shared = Shared {
        streams,
        orders: Orders::new(&control, &mut tasks),
        is_stopped: watch::Sender::new(false),
        is_stopping: Cell::new(false),
        has_ended: Cell::new(false),
    };
    let follower = Follower::new(control, &shared)?;
    let result = tokio::select! {
        exit = follower.follow(events) => exit,
        signal = obey(signals, &shared) => Err(Failure::signal(signal)),
    };
    terminal::restore();
    let code = result?.shell_code();
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

/// What following the command and obeying signals have in common.
struct Shared {
    streams: Streams,
    orders: Orders,
    /// Whether the command is stopped.
    is_stopped: watch::Sender<bool>,
    /// agentctl was asked to stop, and waits for the command to do so.
    is_stopping: Cell<bool>,
    /// The command has ended; its last output is being written.
    has_ended: Cell<bool>,
}

/// Orders that wait for the command or the agent, each kind in its own task.
struct Orders {
    signals: mpsc::UnboundedSender<i32>,
    size: watch::Sender<Option<v1::WindowSize>>,
}

impl Orders {
    fn new(control: &ExecControl, tasks: &mut JoinSet<()>) -> Self {
        let (signals, mut to_send) = mpsc::unbounded_channel();
        let signaller = control.clone();
        tasks.spawn(async move {
            while let Some(signal) = to_send.recv().await {
                // The command may have ended meanwhile; its end is on the way.
                let _ = signaller.signal(signal, SignalTarget::Command).await;
            }
        });
        let (size, mut sizes) = watch::channel(None);
        let resizer = control.clone();
        tasks.spawn(async move {
            while sizes.changed().await.is_ok() {
                let size: Option<v1::WindowSize> = *sizes.borrow_and_update();
                if let Some(v1::WindowSize { rows, columns }) = size {
                    let _ = resizer.resize(rows, columns).await;
                }
            }
        });
        Self { signals, size }
    }

    fn signal(&self, signal: i32) {
        // Its task lives as long as this.
        let _ = self.signals.send(signal);
    }

    /// Gives the command the size of the local terminal.
    fn resize(&self) {
        self.size.send_replace(terminal::size());
    }
}

struct Follower<'a> {
    control: ExecControl,
    shared: &'a Shared,
    stdout: Output,
    stderr: Output,
    /// Why an output is incomplete, other than that nobody wanted it.
    failure: Option<Failure>,
}

impl<'a> Follower<'a> {
    fn new(control: ExecControl, shared: &'a Shared) -> Result<Self, Failure> {
        let stdout = Output::new("stdout", rustix::stdio::stdout()).map_err(anyhow::Error::from)?;
        let stderr = Output::new("stderr", rustix::stdio::stderr()).map_err(anyhow::Error::from)?;
        Ok(Self { control, shared, stdout, stderr, failure: None })
    }

    async fn follow(mut self, mut events: ExecEvents) -> Result<Exit, Failure> {
        loop {
            let event = tokio::select! {
                event = events.next() => event?,
                loss = self.stdout.lost() => {
                    self.close(OutputStream::Stdout, loss)?;
                    continue;
                }
                loss = self.stderr.lost() => {
                    self.close(OutputStream::Stderr, loss)?;
                    continue;
                }
            };
            match event {
                Some(ExecEvent::Stdout(data)) => self.stdout.write(data).await,
                Some(ExecEvent::Stderr(data)) => self.stderr.write(data).await,
                Some(ExecEvent::Stopped(_)) => {
                    self.flush().await;
                    stopped(self.shared)?;
                }
                Some(ExecEvent::Continued) => {
                    self.shared.is_stopped.send_replace(false);
                }
                Some(ExecEvent::Exited(exit)) => {
                    self.shared.has_ended.set(true);
                    return self.finish(exit).await;
                }
                // Nothing is sent that an agent of this version rejects, unless
                // the command has ended meanwhile.
                Some(ExecEvent::Rejected { .. }) => {}
                None => {
                    return Err(Failure::new(
                        "lost the connection to the agent before the command ended",
                    ));
                }
            }
        }
    }

    async fn flush(&self) {
        self.stdout.flush().await;
        self.stderr.flush().await;
    }

    async fn finish(mut self, exit: Exit) -> Result<Exit, Failure> {
        self.flush().await;
        // Only an output that could not be written is lost by now; that its reader
        // has gone says nothing about the command.
        if self.failure.is_none() {
            self.failure = tokio::select! {
                biased;
                loss = self.stdout.lost() => failure(OutputStream::Stdout, loss),
                loss = self.stderr.lost() => failure(OutputStream::Stderr, loss),
                () = std::future::ready(()) => None,
            };
        }
        self.failure.map_or(Ok(exit), Err)
    }

    /// A local output is lost. With pipes the command learns it as it would
    /// locally; a terminal without its viewer has no use.
    fn close(&mut self, stream: OutputStream, loss: Loss) -> Result<(), Failure> {
        if self.shared.streams == Streams::Terminal && stream == OutputStream::Stdout {
            return Err(failure(stream, loss).unwrap_or(Failure::signal(guest::PIPE)));
        }
        self.failure = self.failure.take().or(failure(stream, loss));
        let control = self.control.clone();
        tokio::spawn(async move {
            // If the command has ended meanwhile, its end is on the way.
            let _ = control.close_output(stream).await;
        });
        Ok(())
    }
}

fn failure(stream: OutputStream, loss: Loss) -> Option<Failure> {
    let name = if stream == OutputStream::Stderr { "error" } else { "output" };
    match loss {
        Loss::ReaderGone => None,
        Loss::Failed(error) => Some(Failure::new(format!("cannot write standard {name}: {error}"))),
    }
}

/// The command was stopped: so is agentctl, and both go on together. Where nobody
/// could continue them, a command with a terminal goes on at once; one with pipes
/// stays stopped until somebody signals it.
fn stopped(shared: &Shared) -> Result<(), Failure> {
    shared.is_stopped.send_replace(true);
    match shared.streams {
        Streams::Terminal => {
            terminal::restore();
            if terminal::is_interactive() {
                job::stop_all();
            }
            terminal::make_raw().map_err(anyhow::Error::from)?;
            shared.orders.resize();
            shared.orders.signal(guest::CONT);
        }
        Streams::Pipes => {
            // agentctl gets this signal too: see `obey`.
            let is_wanted = !shared.is_stopping.get() && terminal::is_interactive();
            if is_wanted && job::is_controlled() {
                job::stop_all();
            }
        }
    }
    Ok(())
}

/// Does what signals say, until one ends agentctl: returns which.
async fn obey(mut signals: Signals, shared: &Shared) -> i32 {
    loop {
        match signals.next().await {
            // Keys go to a terminal's command as input, so these are for agentctl.
            Local::End(signal) if shared.streams == Streams::Terminal || shared.has_ended.get() => {
                return signal;
            }
            Local::End(signal) => shared.orders.signal(signal),
            Local::Resized if shared.streams == Streams::Terminal => shared.orders.resize(),
            Local::Resized => {}
            Local::Stop => stop_with_command(shared).await,
            Local::Continued => match shared.streams {
                // Whoever stopped agentctl may have changed the terminal.
                Streams::Terminal => {
                    if terminal::make_raw().is_ok() {
                        shared.orders.resize();
                    }
                }
                Streams::Pipes => shared.orders.signal(guest::CONT),
            },
        }
    }
}

/// Stops the command, then agentctl.
async fn stop_with_command(shared: &Shared) {
    let mut is_stopped = shared.is_stopped.subscribe();
    shared.is_stopping.set(true);
    if !*is_stopped.borrow_and_update() {
        shared.orders.signal(guest::TSTP);
        // A command that does not stop does not hold agentctl up.
        let _ = tokio::time::timeout(STOP_LIMIT, is_stopped.wait_for(|stopped| *stopped)).await;
    }
    job::stop_self();
    shared.is_stopping.set(false);
}
