//! Connects to an agent.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint as Transport, Uri};
use tonic::{Request, Status};

use crate::INSTANCE_METADATA;
use crate::endpoint::Endpoint;
use crate::v1::agent_service_client::AgentServiceClient;
use crate::v1::audit_service_client::AuditServiceClient;
use crate::v1::exec_service_client::ExecServiceClient;
use crate::v1::process_service_client::ProcessServiceClient;

/// HTTP/2 window of a stream, bytes: more than a full pipe of output.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;

/// HTTP/2 window of a connection, bytes: a few busy streams.
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;

/// How long an agent may take to answer the first bytes of a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What requests carry besides their message.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// The agent's bearer token.
    pub token: Option<String>,
    /// The instance of the agent that is meant; another one refuses.
    pub instance: Option<String>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No such socket.
    #[error("no agent at unix://{path}: the socket does not exist", path = path.display())]
    NoSocket {
        /// Where it should be.
        path: PathBuf,
    },
    /// A socket without an agent.
    #[error("no agent listens on unix://{path}: the socket is stale", path = path.display())]
    NobodyListens {
        /// The socket.
        path: PathBuf,
    },
    /// The socket's mode forbids it.
    #[error("no permission to connect to unix://{path}: run as the agent's user or root", path = path.display())]
    NoPermission {
        /// The socket.
        path: PathBuf,
    },
    /// Anything else the kernel says.
    #[error("cannot connect to unix://{path}: {source}", path = path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The other end does not speak HTTP/2.
    #[error("the agent at {endpoint} does not answer: {source}")]
    Transport {
        /// The agent.
        endpoint: Endpoint,
        /// Why.
        source: tonic::transport::Error,
    },
    /// A token or instance that cannot be sent.
    #[error("the {0} holds characters that cannot be sent: use visible ASCII")]
    Metadata(&'static str),
}

/// A connection to an agent.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    credentials: Credentials,
}

/// Adds the token and the instance to every request.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    authorization: Option<MetadataValue<Ascii>>,
    instance: Option<MetadataValue<Ascii>>,
}

/// A channel whose requests carry credentials.
pub type AgentChannel = InterceptedService<Channel, Credentials>;

impl Credentials {
    fn new(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let value = |text: &str, what| text.parse().map_err(|_| ConnectError::Metadata(what));
        let bearer = options.token.as_ref().map(|token| format!("Bearer {token}"));
        Ok(Self {
            authorization: bearer.map(|bearer| value(&bearer, "token")).transpose()?,
            instance: options.instance.as_ref().map(|id| value(id, "instance id")).transpose()?,
        })
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        if let Some(instance) = &self.instance {
            request.metadata_mut().insert(INSTANCE_METADATA, instance.clone());
        }
        Ok(request)
    }
}

impl Client {
    /// Connects to the agent at an endpoint.
    pub async fn connect(
        endpoint: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<Self, ConnectError> {
        let credentials = Credentials::new(options)?;
        let Endpoint::Unix(path) = endpoint;
        let stream = UnixStream::connect(path).await.map_err(|source| unix_error(path, source))?;
        let transport = |source| ConnectError::Transport { endpoint: endpoint.clone(), source };
        let channel = over(stream).await.map_err(transport)?;
        Ok(Self { channel, credentials })
    }

    /// The agent itself.
    #[must_use]
    pub fn agent(&self) -> AgentServiceClient<AgentChannel> {
        AgentServiceClient::new(self.channel())
    }

    /// Its execs. Messages are as long as the agent makes them.
    #[must_use]
    pub fn execs(&self) -> ExecServiceClient<AgentChannel> {
        ExecServiceClient::new(self.channel()).max_decoding_message_size(usize::MAX)
    }

    /// The processes of the guest.
    #[must_use]
    pub fn processes(&self) -> ProcessServiceClient<AgentChannel> {
        ProcessServiceClient::new(self.channel()).max_decoding_message_size(usize::MAX)
    }

    /// The audit events.
    #[must_use]
    pub fn audit(&self) -> AuditServiceClient<AgentChannel> {
        AuditServiceClient::new(self.channel()).max_decoding_message_size(usize::MAX)
    }

    fn channel(&self) -> AgentChannel {
        InterceptedService::new(self.channel.clone(), self.credentials.clone())
    }
}

fn unix_error(path: &Path, source: io::Error) -> ConnectError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => ConnectError::NoSocket { path },
        io::ErrorKind::ConnectionRefused => ConnectError::NobodyListens { path },
        io::ErrorKind::PermissionDenied => ConnectError::NoPermission { path },
        _ => ConnectError::Io { path, source },
    }
}

/// Speaks HTTP/2 over one stream. A stream that ends is not made anew: the host
/// decides what a lost connection means.
async fn over(stream: UnixStream) -> Result<Channel, tonic::transport::Error> {
    let mut stream = Some(stream);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take();
        async move {
            stream.map(TokioIo::new).ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
        }
    });
    // The name is only for the HTTP/2 authority; the stream is what counts.
    Transport::from_static("http://guest-agent.invalid")
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .connect_timeout(CONNECT_LIMIT)
        .connect_with_connector(connector)
        .await
}
