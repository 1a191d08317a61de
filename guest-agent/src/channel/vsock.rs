//! Listening on vsock, in a MicroVM.
//!
//! Upholds that the channel is the host's alone: a peer is let in by its context
//! id, which the kernel knows. A process of the guest that connects through
//! loopback (CID 1) or the guest's own address is refused before it is read. Nor
//! can a workload take the port while the agent restarts: it gets no vsock
//! socket at all (see the filter's table).

use std::io;
use std::time::Duration;

use host_proto::endpoint::VSOCK_HOST_CID;
use tokio_vsock::{VsockAddr, VsockListener, VsockStream};

/// Pause after the system is out of descriptors or memory for connections.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Why the port could not be had.
#[derive(Debug, thiserror::Error)]
pub enum VsockBindError {
    /// The kernel has no vsock.
    #[error(
        "this kernel has no vsock: load vmw_vsock_virtio_transport, and give the VM a vsock device"
    )]
    Unsupported,
    /// Somebody listens there.
    #[error("another process listens on vsock port {0}: stop it or choose another port")]
    InUse(u32),
    /// The kernel refused.
    #[error("cannot listen on vsock port {port}: {source}")]
    Bind {
        /// The port.
        port: u32,
        /// Why.
        source: io::Error,
    },
}

/// A listening vsock port.
pub struct VsockChannel(VsockListener);

impl VsockChannel {
    /// Listens on a port; `cid` is an address of the guest, or any.
    pub fn bind(cid: u32, port: u32) -> Result<Self, VsockBindError> {
        VsockListener::bind(VsockAddr::new(cid, port)).map(Self).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::EAFNOSUPPORT | libc::ENODEV) => VsockBindError::Unsupported,
                Some(libc::EADDRINUSE) => VsockBindError::InUse(port),
                _ => VsockBindError::Bind { port, source },
            }
        })
    }

    /// Waits for a connection; returns it with its peer's context id.
    pub async fn accept(&self) -> (VsockStream, u32) {
        loop {
            match std::future::poll_fn(|context| self.0.poll_accept(context)).await {
                Ok((stream, peer)) => return (stream, peer.cid()),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

/// Whether a peer with this context id may connect.
pub(super) fn admits(cid: u32, allowed: &[u32]) -> bool {
    cid == VSOCK_HOST_CID || allowed.contains(&cid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_may_connect_unless_configured() {
        assert!(admits(2, &[]));
        for guest in [0, 1, 3, 42, u32::MAX] {
            assert!(!admits(guest, &[]), "{guest}");
        }
        assert!(admits(42, &[42]));
    }
}
