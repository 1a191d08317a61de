//! Accepts connections from those who may connect, whatever the channel.

use std::sync::Arc;

use host_proto::endpoint::Endpoint;
use tokio::sync::mpsc;

use super::connection::{BoxedStream, Connection, Connections};
use super::peer::{Peer, PeerRules, admit};
use super::unix::{UnixBindError, UnixChannel};
use super::vsock::{VsockBindError, VsockChannel, admits};
use crate::audit::{EventKind, RefusalReason, RefusedPeer};
use crate::mediator::Context;

/// Why the agent cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// On a Unix socket.
    #[error(transparent)]
    Unix(#[from] UnixBindError),
    /// On vsock.
    #[error(transparent)]
    Vsock(#[from] VsockBindError),
    /// On something that only a host connects to.
    #[error(
        "an agent cannot listen on {0}: in the guest use vsock://any:PORT, which the host reaches there"
    )]
    NotForAgents(Endpoint),
}

/// Where the agent listens.
pub enum Channel {
    /// On a Unix socket, in a container.
    Unix(UnixChannel),
    /// On vsock, in a MicroVM.
    Vsock(VsockChannel),
}

/// A connection that may be served.
type Admitted = (BoxedStream, RefusedPeer);

impl Channel {
    /// Listens on an endpoint; `socket_mode` is that of a Unix socket's file.
    pub fn bind(endpoint: &Endpoint, socket_mode: u32) -> Result<Self, BindError> {
        match endpoint {
            Endpoint::Unix(path) => Ok(Self::Unix(UnixChannel::bind(path, socket_mode)?)),
            Endpoint::Vsock { cid, port } => Ok(Self::Vsock(VsockChannel::bind(*cid, *port)?)),
            Endpoint::Hvsock { .. } => Err(BindError::NotForAgents(endpoint.clone())),
        }
    }

    /// Waits for a connection and decides on its peer.
    async fn admit(&self, rules: &PeerRules, context: &Context) -> Result<Admitted, RefusedPeer> {
        match self {
            Self::Unix(channel) => {
                let stream = channel.accept().await;
                let unknown = RefusedPeer::unidentified();
                let peer = Peer::of(&stream).map_err(|_| unknown)?;
                let described = RefusedPeer {
                    pid: peer.pid.map(crate::ids::Pid::get),
                    uid: Some(peer.uid),
                    gid: Some(peer.gid),
                    ..unknown
                };
                match admit(&peer, rules, &context.ownership) {
                    Ok(()) => Ok((Box::pin(stream), described)),
                    Err(reason) => Err(RefusedPeer { reason, ..described }),
                }
            }
            Self::Vsock(channel) => {
                let (stream, cid) = channel.accept().await;
                let described = RefusedPeer { cid: Some(cid), ..RefusedPeer::unidentified() };
                if admits(cid, &rules.cids) {
                    Ok((Box::pin(stream), described))
                } else {
                    Err(RefusedPeer { reason: RefusalReason::Cid, ..described })
                }
            }
        }
    }
}

/// Accepts connections and hands on those that may be served, until nobody
/// takes them any more.
pub async fn accept(
    channel: Channel,
    rules: PeerRules,
    connections: Connections,
    context: Arc<Context>,
    to: mpsc::Sender<std::io::Result<Connection>>,
) {
    loop {
        let connection = match channel.admit(&rules, &context).await {
            Ok((stream, peer)) => {
                connections.take(stream).ok_or(RefusedPeer { reason: RefusalReason::Limit, ..peer })
            }
            Err(refused) => Err(refused),
        };
        match connection {
            Ok(connection) => {
                if to.send(Ok(connection)).await.is_err() {
                    return;
                }
            }
            Err(refused) => {
                tracing::warn!(?refused, "connection refused");
                context.audit.record(None, EventKind::Refused(refused));
            }
        }
    }
}
