//! How hosts reach the agent: listening, and who may connect.

mod connection;
mod peer;
mod unix;

pub use connection::{Admission, Connection, Connections};
pub use peer::{Peer, PeerRules, admit, has_peer_pidfd};
pub use unix::{BindError, UnixChannel, remove_files};
