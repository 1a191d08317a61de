//! Byte streams to agents, by endpoint.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use crate::endpoint::Endpoint;
use crate::hvsock::{self, HandshakeError};

/// How long a VMM may take for its handshake. An agent that has booted answers
/// within milliseconds; some VMMs accept and never answer.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// A stream that gRPC can run over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A stream of whatever kind.
pub type BoxedStream = Pin<Box<dyn Stream>>;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No such socket.
    #[error("no agent at {endpoint}: the socket {path} does not exist", path = path.display())]
    NoSocket {
        /// The agent.
        endpoint: Endpoint,
        /// The socket.
        path: PathBuf,
    },
    /// A socket without an owner.
    #[error("nobody listens on {0}")]
    NobodyListens(Endpoint),
    /// The socket's mode forbids it.
    #[error("no permission to connect to {0}: run as the agent's user or root")]
    NoPermission(Endpoint),
    /// Anything else the kernel says.
    #[error("cannot connect to {endpoint}: {source}")]
    Io {
        /// The agent.
        endpoint: Endpoint,
        /// Why.
        source: io::Error,
    },
    /// The VMM did not connect us to the guest.
    #[error("cannot connect to {endpoint}: {source}")]
    Handshake {
        /// The agent.
        endpoint: Endpoint,
        /// Why.
        source: HandshakeError,
    },
    /// The VMM accepted and then said nothing.
    #[error("cannot connect to {0}: the VMM did not answer within {seconds} s", seconds = HANDSHAKE_LIMIT.as_secs())]
    Silent(Endpoint),
    /// vsock addresses exist on Linux only.
    #[error("{0} can be reached from Linux only: use the Unix socket of the VMM (hvsock://)")]
    NoVsock(Endpoint),
}

impl DialError {
    /// Whether a guest that is still booting would cause it.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NoSocket { .. } | Self::NobodyListens(_) | Self::Silent(_) => true,
            Self::Handshake { source, .. } => matches!(source, HandshakeError::NobodyListens(_)),
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::TimedOut | io::ErrorKind::NotFound
            ),
            Self::NoPermission(_) | Self::NoVsock(_) => false,
        }
    }
}

/// Connects to an endpoint.
pub async fn dial(endpoint: &Endpoint) -> Result<BoxedStream, DialError> {
    match endpoint {
        Endpoint::Unix(path) => Ok(Box::pin(dial_unix(endpoint, path).await?)),
        Endpoint::Hvsock { path, port } => {
            let mut stream = dial_unix(endpoint, path).await?;
            let shaken =
                tokio::time::timeout(HANDSHAKE_LIMIT, hvsock::handshake(&mut stream, *port));
            match shaken.await {
                Ok(Ok(())) => Ok(Box::pin(stream)),
                Ok(Err(source)) => Err(DialError::Handshake { endpoint: endpoint.clone(), source }),
                Err(_) => Err(DialError::Silent(endpoint.clone())),
            }
        }
        Endpoint::Vsock { cid, port } => dial_vsock(endpoint, *cid, *port).await,
    }
}

async fn dial_unix(endpoint: &Endpoint, path: &Path) -> Result<UnixStream, DialError> {
    UnixStream::connect(path).await.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            DialError::NoSocket { endpoint: endpoint.clone(), path: path.to_owned() }
        }
        io::ErrorKind::ConnectionRefused => DialError::NobodyListens(endpoint.clone()),
        io::ErrorKind::PermissionDenied => DialError::NoPermission(endpoint.clone()),
        _ => DialError::Io { endpoint: endpoint.clone(), source },
    })
}

#[cfg(target_os = "linux")]
async fn dial_vsock(endpoint: &Endpoint, cid: u32, port: u32) -> Result<BoxedStream, DialError> {
    let address = tokio_vsock::VsockAddr::new(cid, port);
    match tokio_vsock::VsockStream::connect(address).await {
        Ok(stream) => Ok(Box::pin(stream)),
        Err(source) => Err(DialError::Io { endpoint: endpoint.clone(), source }),
    }
}

#[cfg(not(target_os = "linux"))]
async fn dial_vsock(endpoint: &Endpoint, _cid: u32, _port: u32) -> Result<BoxedStream, DialError> {
    Err(DialError::NoVsock(endpoint.clone()))
}
