//! The guest agent: complete job control for untrusted workloads, and nothing
//! beyond their own processes within their reach.
//!
//! Layers, each knowing only those below it: [`rpc`] and [`channel`] face the
//! host; [`exec`] runs commands; [`mediator`] answers system calls by what
//! [`ownership`] knows; [`notify`] and [`filter`] are the kernel's interface.

pub mod agent;
pub mod audit;
pub mod channel;
pub mod config;
pub mod exec;
pub mod filter;
pub mod guardian;
pub mod helper;
pub mod ids;
pub mod mediator;
pub mod notify;
pub mod ownership;
pub mod policy;
pub mod rpc;
