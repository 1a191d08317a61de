//! How hosts reach the agent: listening, and who may connect.

mod accept;
mod connection;
mod peer;
mod unix;
mod vsock;

pub use accept::{BindError, Channel, accept};
pub use connection::{Admission, BoxedStream, Connection, Connections, Stream};
pub use peer::{Peer, PeerRules, admit, has_peer_pidfd};
pub use unix::{UnixBindError, UnixChannel, remove_files};
pub use vsock::{VsockBindError, VsockChannel};
