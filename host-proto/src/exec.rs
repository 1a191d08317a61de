//! Runs one command and follows it.

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::client::Client;
use crate::v1;
use crate::v1::run_request::Request;
use crate::v1::run_response::Response;

/// Messages that wait for the connection; input waits with the sender beyond that.
const CHANNEL: usize = 4;

/// The most bytes of one input message: several fit the agent's message limit.
pub const INPUT_CHUNK: usize = 128 * 1024;

/// A command that was started.
#[derive(Debug)]
pub struct RunningExec {
    /// Names the exec for other requests.
    pub id: String,
    /// The command's process id in the guest.
    pub pid: i32,
    /// What it does.
    pub events: ExecEvents,
    /// What it is told.
    pub control: ExecControl,
}

/// What a command does, in order.
#[derive(Debug)]
pub struct ExecEvents(Streaming<v1::RunResponse>);

/// Tells a command things. Clones serve concurrent senders.
#[derive(Clone, Debug)]
pub struct ExecControl {
    requests: mpsc::Sender<v1::RunRequest>,
    client: Client,
    id: String,
}

/// One thing that a command did.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecEvent {
    /// It wrote to standard output, or its terminal.
    Stdout(Bytes),
    /// It wrote to standard error.
    Stderr(Bytes),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It was continued.
    Continued,
    /// It ended; nothing comes after this.
    Exited(Exit),
    /// A request was not valid; it had no effect.
    Rejected {
        /// A reason as errors have them.
        reason: String,
        /// For people.
        message: String,
    },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It called exit with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// The code a shell gives: 128 and the number for a signal.
    #[must_use]
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// From its message; `None` if it says nothing that this version knows.
    #[must_use]
    pub fn from_message(message: &v1::ExecExited) -> Option<Self> {
        match message.status? {
            v1::exec_exited::Status::ExitCode(code) => Some(Self::Code(code)),
            v1::exec_exited::Status::Signal(signal) => Some(Self::Signal(signal)),
        }
    }
}

impl Client {
    /// Starts a command; fails with the agent's status if it cannot be started.
    pub async fn run(&self, start: v1::StartExec) -> Result<RunningExec, Status> {
        let (requests, outgoing) = mpsc::channel(CHANNEL);
        let start = v1::RunRequest { request: Some(Request::Start(start)) };
        // The channel is empty and its receiver lives, so this cannot fail.
        let _ = requests.send(start).await;
        let responses = self.execs().run(ReceiverStream::new(outgoing)).await?;
        let mut responses = responses.into_inner();
        let first = responses.message().await?.and_then(|message| message.response);
        let Some(Response::Started(started)) = first else {
            return Err(Status::internal("the agent did not say that the command was started"));
        };
        let v1::ExecStarted { exec_id: id, pid } = started;
        let control = ExecControl { requests, client: self.clone(), id: id.clone() };
        Ok(RunningExec { id, pid, events: ExecEvents(responses), control })
    }
}

impl ExecEvents {
    /// The next event; `None` after the end.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, Status> {
        while let Some(message) = self.0.message().await? {
            // A message that this version does not know has nothing to say to it.
            if let Some(event) = message.response.and_then(translate) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

fn translate(response: Response) -> Option<ExecEvent> {
    Some(match response {
        Response::Started(_) => return None,
        Response::Stdout(bytes) => ExecEvent::Stdout(bytes),
        Response::Stderr(bytes) => ExecEvent::Stderr(bytes),
        Response::Stopped(v1::ExecStopped { signal }) => ExecEvent::Stopped(signal),
        Response::Continued(_) => ExecEvent::Continued,
        Response::Exited(exited) => ExecEvent::Exited(Exit::from_message(&exited)?),
        Response::Rejected(v1::RequestRejected { reason, message }) => {
            ExecEvent::Rejected { reason, message }
        }
    })
}

/// The command has ended, or the connection is lost: nobody takes the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command has ended or the connection to the agent is lost")]
pub struct ControlClosed;

impl ExecControl {
    /// Sends input; waits while the command does not read.
    pub async fn stdin(&self, data: Bytes) -> Result<(), ControlClosed> {
        self.send(Request::Stdin(data)).await
    }

    /// Ends the input.
    pub async fn close_stdin(&self) -> Result<(), ControlClosed> {
        self.send(Request::CloseStdin(v1::CloseStdin {})).await
    }

    /// Changes the size of the terminal. This, [`Self::close_output`] and
    /// [`Self::signal`] go by requests of their own, so they do not wait behind
    /// input that the command does not read.
    pub async fn resize(&self, rows: u32, columns: u32) -> Result<(), Status> {
        let size = Some(v1::WindowSize { rows, columns });
        let request = v1::ResizeRequest { exec_id: self.id.clone(), size };
        self.client.execs().resize(request).await.map(drop)
    }

    /// Says that an output is no longer read.
    pub async fn close_output(&self, stream: v1::OutputStream) -> Result<(), Status> {
        let request = v1::CloseOutputRequest { exec_id: self.id.clone(), stream: stream.into() };
        self.client.execs().close_output(request).await.map(drop)
    }

    /// Sends a signal.
    pub async fn signal(&self, signal: i32, target: v1::SignalTarget) -> Result<(), Status> {
        let signal = Some(v1::ExecSignal { signal, target: target.into() });
        let request = v1::SignalRequest { exec_id: self.id.clone(), signal };
        self.client.execs().signal(request).await.map(drop)
    }

    async fn send(&self, request: Request) -> Result<(), ControlClosed> {
        let message = v1::RunRequest { request: Some(request) };
        self.requests.send(message).await.map_err(|_| ControlClosed)
    }
}
