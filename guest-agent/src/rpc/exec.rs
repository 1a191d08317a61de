//! `ExecService`: commands and their streams.

use std::sync::Arc;

use bytes::Bytes;
use host_proto::error::Reason;
use host_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use v1::run_request::Request as FromHost;
use v1::run_response::Response as ToHost;

use super::{Agent, start, status};
use crate::exec::{Exec, ExecEvent, ExecState, ExitStatus, Input, Output, Running, signal_exec};
use crate::ids::ExecId;

/// Messages that wait for the transport.
const CHANNEL: usize = 4;

pub(super) struct Service(Arc<Agent>);

impl Service {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self(agent)
    }

    fn find(&self, id: &str) -> Result<Arc<Exec>, Status> {
        let exec = ExecId::parse(id).and_then(|id| self.0.execs.find(id));
        exec.ok_or_else(|| {
            Reason::ExecNotFound.status(format!("there is no exec '{id}', or it ended long ago"))
        })
    }
}

#[tonic::async_trait]
impl v1::exec_service_server::ExecService for Service {
    type RunStream = ReceiverStream<Result<v1::RunResponse, Status>>;

    async fn run(
        &self,
        request: Request<Streaming<v1::RunRequest>>,
    ) -> Result<Response<Self::RunStream>, Status> {
        let mut requests = request.into_inner();
        let Some(FromHost::Start(start)) = requests.message().await?.and_then(|m| m.request) else {
            return Err(Reason::NoStart.status("the first message of a run must be 'start'"));
        };
        let request = start::request(start)?;
        // In a task of its own: if the host goes meanwhile, the start is finished
        // all the same, and then hung up like any exec that lost its host.
        let agent = Arc::clone(&self.0);
        let running = tokio::spawn(async move { agent.execs.start(request).await })
            .await
            .map_err(|error| Status::internal(error.to_string()))?
            .map_err(|error| status::of_start(&error))?;
        let (to_host, responses) = mpsc::channel(CHANNEL);
        tokio::spawn(bridge(running, requests, to_host, Arc::clone(&self.0)));
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn list(
        &self,
        _request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let execs = self.0.execs.list().iter().map(|exec| describe(exec)).collect();
        Ok(Response::new(v1::ListResponse { execs }))
    }

    async fn signal(
        &self,
        request: Request<v1::SignalRequest>,
    ) -> Result<Response<v1::SignalResponse>, Status> {
        let v1::SignalRequest { exec_id, signal } = request.into_inner();
        let exec = self.find(&exec_id)?;
        send_signal(&self.0, &exec, signal.unwrap_or_default()).await?;
        Ok(Response::new(v1::SignalResponse {}))
    }

    async fn resize(
        &self,
        request: Request<v1::ResizeRequest>,
    ) -> Result<Response<v1::ResizeResponse>, Status> {
        let v1::ResizeRequest { exec_id, size } = request.into_inner();
        let exec = self.find(&exec_id)?;
        let window = start::window(size.unwrap_or_default())?;
        exec.resize(window).map_err(status::of_order)?;
        Ok(Response::new(v1::ResizeResponse {}))
    }

    async fn close_output(
        &self,
        request: Request<v1::CloseOutputRequest>,
    ) -> Result<Response<v1::CloseOutputResponse>, Status> {
        let v1::CloseOutputRequest { exec_id, stream } = request.into_inner();
        self.find(&exec_id)?.close_output(output(stream)?);
        Ok(Response::new(v1::CloseOutputResponse {}))
    }

    async fn wait(
        &self,
        request: Request<v1::WaitRequest>,
    ) -> Result<Response<v1::WaitResponse>, Status> {
        let exec = self.find(&request.into_inner().exec_id)?;
        let exited = Some(exited(exec.wait().await));
        Ok(Response::new(v1::WaitResponse { exited }))
    }
}

/// Carries messages between a host's stream and an exec until the exec has
/// ended or the host is gone; then dropping `running` hangs the exec up.
async fn bridge(
    running: Running,
    requests: Streaming<v1::RunRequest>,
    to_host: mpsc::Sender<Result<v1::RunResponse, Status>>,
    agent: Arc<Agent>,
) {
    let Running { exec, pid, input, events } = running;
    let started = v1::ExecStarted { exec_id: exec.id.to_string(), pid: pid.get() };
    if to_host.send(response(ToHost::Started(started))).await.is_err() {
        return;
    }
    let host = Host { agent, exec, input, responses: to_host.clone() };
    let events = forward_events(events, to_host);
    tokio::pin!(events);
    tokio::select! {
        () = &mut events => return,
        end = host.forward(requests) => if end == HostEnd::Gone { return },
    }
    // A host that has closed its half still reads.
    events.await;
}

async fn forward_events(
    mut events: mpsc::Receiver<ExecEvent>,
    to_host: mpsc::Sender<Result<v1::RunResponse, Status>>,
) {
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = to_host.closed() => return,
        };
        let Some(event) = event else { return };
        if to_host.send(response(translate(event))).await.is_err() {
            return;
        }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the stream's items are results")]
fn response(response: ToHost) -> Result<v1::RunResponse, Status> {
    Ok(v1::RunResponse { response: Some(response) })
}

fn translate(event: ExecEvent) -> ToHost {
    match event {
        ExecEvent::Output(Output::Stdout, bytes) => ToHost::Stdout(bytes),
        ExecEvent::Output(Output::Stderr, bytes) => ToHost::Stderr(bytes),
        ExecEvent::Stopped(signal) => ToHost::Stopped(v1::ExecStopped { signal }),
        ExecEvent::Continued => ToHost::Continued(v1::ExecContinued {}),
        ExecEvent::Exited(status) => ToHost::Exited(exited(status)),
    }
}

pub(super) fn exited(status: ExitStatus) -> v1::ExecExited {
    use v1::exec_exited::Status as How;
    match status {
        ExitStatus::Code(code) => {
            v1::ExecExited { status: Some(How::ExitCode(code)), core_dumped: false }
        }
        ExitStatus::Signal { signal, core_dumped } => {
            v1::ExecExited { status: Some(How::Signal(signal)), core_dumped }
        }
    }
}

/// How a host's half of the stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostEnd {
    /// It sends no more.
    Closed,
    /// The stream broke.
    Gone,
}

/// The host's half of a stream.
struct Host {
    agent: Arc<Agent>,
    exec: Arc<Exec>,
    input: mpsc::Sender<Input>,
    responses: mpsc::Sender<Result<v1::RunResponse, Status>>,
}

impl Host {
    async fn forward(self, mut requests: Streaming<v1::RunRequest>) -> HostEnd {
        loop {
            match requests.message().await {
                Ok(Some(message)) => {
                    if let Err(status) = self.take(message).await {
                        self.reject(&status).await;
                    }
                }
                Ok(None) => return HostEnd::Closed,
                Err(_) => return HostEnd::Gone,
            }
        }
    }

    async fn take(&self, message: v1::RunRequest) -> Result<(), Status> {
        match message.request {
            Some(FromHost::Stdin(data)) => self.feed(Input::Data(data)).await,
            Some(FromHost::CloseStdin(_)) => self.feed(Input::End).await,
            Some(FromHost::Resize(size)) => {
                let window = start::window(size)?;
                return self.exec.resize(window).map_err(status::of_order);
            }
            Some(FromHost::Signal(signal)) => {
                return send_signal(&self.agent, &self.exec, signal).await;
            }
            Some(FromHost::CloseOutput(v1::CloseOutput { stream })) => {
                self.exec.close_output(output(stream)?);
            }
            Some(FromHost::Start(_)) => {
                return Err(Reason::AlreadyStarted.status("this run has its command already"));
            }
            None => {
                return Err(Reason::InvalidTarget
                    .status("the message has no request that this version knows"));
            }
        }
        Ok(())
    }

    async fn feed(&self, input: Input) {
        // Closed: the command has ended, or reads no more.
        let _ = self.input.send(input).await;
    }

    async fn reject(&self, status: &Status) {
        let reason = Reason::of(status).map_or_else(String::new, |reason| reason.as_str().into());
        let rejected = v1::RequestRejected { reason, message: status.message().into() };
        let _ = self.responses.send(response(ToHost::Rejected(rejected))).await;
    }
}

fn output(stream: i32) -> Result<Output, Status> {
    match v1::OutputStream::try_from(stream) {
        Ok(v1::OutputStream::Stdout) => Ok(Output::Stdout),
        Ok(v1::OutputStream::Stderr) => Ok(Output::Stderr),
        Ok(v1::OutputStream::Unspecified) | Err(_) => {
            Err(Reason::InvalidTarget.status(format!("there is no output stream {stream}")))
        }
    }
}

async fn send_signal(agent: &Agent, exec: &Exec, signal: v1::ExecSignal) -> Result<(), Status> {
    let number = start::signal(signal.signal)?;
    match v1::SignalTarget::try_from(signal.target) {
        Ok(v1::SignalTarget::Unspecified | v1::SignalTarget::Command) => {
            exec.signal_command(number).map_err(status::of_order)
        }
        Ok(v1::SignalTarget::Foreground) => {
            exec.signal_foreground(number).map_err(status::of_order)
        }
        Ok(v1::SignalTarget::All) => signal_all(agent, exec.id, number).await,
        Err(_) => {
            let message = format!("there is no signal target {}", signal.target);
            Err(Reason::InvalidTarget.status(message))
        }
    }
}

async fn signal_all(agent: &Agent, id: ExecId, signal: i32) -> Result<(), Status> {
    let context = Arc::clone(&agent.context);
    let count = tokio::task::spawn_blocking(move || signal_exec(&context, id, signal)).await;
    match count {
        Ok(0) => Err(Reason::ExecEnded.status(format!("exec {id} has no process left"))),
        Ok(_) => Ok(()),
        Err(error) => Err(Status::internal(error.to_string())),
    }
}

fn describe(exec: &Exec) -> v1::Exec {
    let (state, pid, end_time, exited) = match exec.state() {
        ExecState::Running(pid) => (v1::ExecState::Running, pid, None, None),
        ExecState::Stopped(pid) => (v1::ExecState::Stopped, pid, None, None),
        ExecState::Exited { pid, status, at } => {
            (v1::ExecState::Exited, pid, Some(at.into()), Some(exited(status)))
        }
    };
    let argument = |argument: &std::ffi::CString| Bytes::copy_from_slice(argument.to_bytes());
    v1::Exec {
        exec_id: exec.id.to_string(),
        argv: exec.argv.iter().map(argument).collect(),
        pid: pid.get(),
        uid: exec.uid,
        terminal: exec.has_terminal,
        state: state.into(),
        start_time: Some(exec.started.into()),
        end_time,
        exited,
    }
}
