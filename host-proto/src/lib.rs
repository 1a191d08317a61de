//! The `guestagent.v1` contract and what a host needs to speak it.
//!
//! [`v1`] holds the generated messages, clients and server traits; [`error`] the
//! stable reasons that errors carry; [`endpoint`] the addresses of agents;
//! `client` connects to them, and `exec` runs commands through them. The crate builds on Linux and macOS.

#[cfg(feature = "client")]
pub mod client;
pub mod endpoint;
pub mod error;
#[cfg(feature = "client")]
pub mod exec;
#[cfg(feature = "client")]
pub mod hvsock;
#[cfg(feature = "client")]
pub mod transport;

/// The generated messages and services of `guestagent.v1`.
#[allow(missing_docs, clippy::pedantic, clippy::all, unreachable_pub, unused_qualifications)]
pub mod v1 {
    tonic::include_proto!("guestagent.v1");
}

/// The encoded descriptors of `guestagent.v1`, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/guestagent.v1.bin"));

/// The contract's version; see `GetInfoResponse.protocol_version`.
pub const PROTOCOL_VERSION: u32 = 1;

/// Request metadata naming the agent instance a request is meant for.
pub const INSTANCE_METADATA: &str = "x-guest-agent-instance";
