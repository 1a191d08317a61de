//! The gRPC services: translate, call, translate back.

mod agent;
mod audit;
mod event;
mod exec;
mod gate;
mod process;
mod start;
mod status;

use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use host_proto::v1::agent_service_server::AgentServiceServer;
use host_proto::v1::audit_service_server::AuditServiceServer;
use host_proto::v1::exec_service_server::ExecServiceServer;
use host_proto::v1::process_service_server::ProcessServiceServer;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;

use crate::channel::Connection;
use crate::config::Limits;
use crate::exec::Execs;
use crate::ids::Sid;
use crate::mediator::Context;
use crate::notify::CallerWait;
pub(crate) use agent::DEFAULT_GRACE;
pub use gate::Gate;

/// HTTP/2 window of a stream, bytes: a full pipe of output is under way at once.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;

/// HTTP/2 window of a connection, bytes: a few busy streams.
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;

/// HTTP/2 frame size, bytes: a chunk of output in few frames.
const FRAME: u32 = 128 * 1024;

/// What the services know of their agent.
#[derive(Debug)]
pub struct Agent {
    /// New at each start.
    pub instance: String,
    /// When it was ready to serve.
    pub started: SystemTime,
    /// Its own session, that of its helpers too.
    pub session: Sid,
    /// What the kernel offers.
    pub caller_wait: CallerWait,
    /// Whether peers are identified by descriptor.
    pub peer_pidfd: bool,
    /// The limits in force.
    pub limits: Limits,
    /// What the mediators share.
    pub context: Arc<Context>,
    /// The execs.
    pub execs: Execs,
    /// Asks for the end of the agent.
    pub shutdown: mpsc::Sender<Shutdown>,
}

/// A request to end the agent.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown {
    /// Time between TERM and KILL.
    pub grace: std::time::Duration,
}

/// Serves connections until `until` is ready.
pub async fn serve(
    agent: Arc<Agent>,
    gate: Gate,
    incoming: impl Stream<Item = std::io::Result<Connection>>,
    until: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let limit = agent.limits.max_message_bytes;
    let (reporter, health) = tonic_health::server::health_reporter();
    macro_rules! service {
        ($server:ident, $module:ident) => {{
            reporter.set_serving::<$server<$module::Service>>().await;
            let service = $module::Service::new(Arc::clone(&agent));
            let server = $server::new(service).max_decoding_message_size(limit);
            InterceptedService::new(server, gate.clone())
        }};
    }
    let agent_service = service!(AgentServiceServer, agent);
    let exec_service = service!(ExecServiceServer, exec);
    let process_service = service!(ProcessServiceServer, process);
    let audit_service = service!(AuditServiceServer, audit);
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(host_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    let reflection = reflection.map(|service| InterceptedService::new(service, gate.clone()));
    let mut server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME);
    let router = server
        .add_service(agent_service)
        .add_service(exec_service)
        .add_service(process_service)
        .add_service(audit_service)
        // Health has no secrets, and its usual probes carry no token.
        .add_service(health);
    let router = match reflection {
        Ok(reflection) => router.add_service(reflection),
        Err(error) => {
            tracing::error!(%error, "server reflection is not available");
            router
        }
    };
    router.serve_with_incoming_shutdown(incoming, until).await
}
