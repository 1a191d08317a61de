//! Connects to an agent.

use std::io;
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint as Transport, Uri};
use tonic::{Code, Request, Status};

use crate::endpoint::Endpoint;
use crate::transport::{self, DialError, Stream};
use crate::v1::agent_service_client::AgentServiceClient;
use crate::v1::audit_service_client::AuditServiceClient;
use crate::v1::exec_service_client::ExecServiceClient;
use crate::v1::process_service_client::ProcessServiceClient;
use crate::{INSTANCE_METADATA, v1};

/// HTTP/2 window of a stream, bytes: more than a full pipe of output.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;

/// HTTP/2 window of a connection, bytes: a few busy streams.
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;

/// How long an agent may take to answer the first bytes of a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Between attempts to reach a guest that boots.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

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
    /// The endpoint was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The other end does not speak HTTP/2.
    #[error("the other end of {endpoint} does not answer as an agent: {source}")]
    Transport {
        /// The agent.
        endpoint: String,
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
        let stream = transport::dial(endpoint).await?;
        Self::over(stream, &endpoint.to_string(), options).await
    }

    /// Connects as [`Self::connect`] does, again and again while the endpoint is
    /// not reached for a reason that a booting guest would cause, and until the
    /// agent answers.
    ///
    /// Some VMMs accept for a guest that does not listen yet, so only an answer
    /// proves that an agent is there.
    pub async fn wait_for(
        endpoint: &Endpoint,
        options: &ConnectOptions,
        limit: Duration,
    ) -> Result<Self, ConnectError> {
        let began = Instant::now();
        loop {
            let error = match Self::connect(endpoint, options).await {
                Ok(client) => match client.agent().get_info(v1::GetInfoRequest {}).await {
                    // Whatever it says, it is there.
                    Ok(_) => return Ok(client),
                    Err(status) if status.code() != Code::Unavailable => return Ok(client),
                    Err(_) => None,
                },
                Err(ConnectError::Dial(error)) if error.may_pass() => Some(error.into()),
                Err(error @ ConnectError::Transport { .. }) => Some(error),
                Err(error) => return Err(error),
            };
            if began.elapsed() >= limit {
                let nobody = || DialError::NobodyListens(endpoint.clone()).into();
                return Err(error.unwrap_or_else(nobody));
            }
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
    }

    /// Speaks to an agent over a stream that is already connected to one, as
    /// in-process VMMs and `listen`ing hosts have it. `name` is for messages.
    ///
    /// A stream that ends is not made anew: the host decides what that means.
    pub async fn over(
        stream: impl Stream,
        name: &str,
        options: &ConnectOptions,
    ) -> Result<Self, ConnectError> {
        let credentials = Credentials::new(options)?;
        let mut stream = Some(stream);
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take().map(TokioIo::new);
            async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
        });
        // The name is only for the HTTP/2 authority; the stream is what counts.
        let channel = Transport::from_static("http://guest-agent.invalid")
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect_timeout(CONNECT_LIMIT)
            .connect_with_connector(connector)
            .await
            .map_err(|source| ConnectError::Transport { endpoint: name.to_owned(), source })?;
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
