//! What the launcher is told: a command with everything about it decided.

use std::ffi::CString;

use rustix::process::Resource;
use serde::{Deserialize, Serialize};

use crate::filter::Program;
use crate::notify::CallerWait;

/// Everything the launcher needs, besides descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchSpec {
    pub(super) argv: Vec<CString>,
    pub(super) environment: Vec<CString>,
    pub(super) directory: DirectoryChoice,
    pub(super) credentials: Credentials,
    pub(super) streams: StreamKind,
    pub(super) limits: Vec<Limit>,
    pub(super) umask: u32,
    pub(super) filter: Program,
    pub(super) caller_wait: CallerWait,
}

/// Where the command starts.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DirectoryChoice {
    /// Here, or not at all.
    Required(CString),
    /// Here, or in `/`.
    Preferred(CString),
}

/// Whose the command's processes are.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Credentials {
    /// The agent's own.
    Keep,
    /// These.
    Switch { uid: u32, gid: u32, groups: Vec<u32> },
}

/// What the descriptors that come with the specification are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StreamKind {
    /// One: a terminal.
    Terminal,
    /// Three: standard input, output and error.
    Pipes,
}

/// A resource limit, as setrlimit(2) takes it; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Which.
    pub resource: ResourceName,
    /// What is enforced.
    pub soft: Option<u64>,
    /// How far the process may raise it.
    pub hard: Option<u64>,
}

macro_rules! resources {
    ($($variant:ident = $word:literal => $resource:ident,)*) => {
        /// A resource of setrlimit(2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "the names are those of the manual page")]
        pub enum ResourceName { $($variant,)* }

        impl ResourceName {
            /// Reads a name as the manual page has it, without its prefix.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($word => Some(Self::$variant),)* _ => None }
            }

            /// The name as the manual page has it, without its prefix.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            pub(super) fn resource(self) -> Resource {
                match self { $(Self::$variant => Resource::$resource,)* }
            }
        }
    };
}

resources! {
    AddressSpace = "AS" => As,
    Core = "CORE" => Core,
    Cpu = "CPU" => Cpu,
    Data = "DATA" => Data,
    FileSize = "FSIZE" => Fsize,
    Locks = "LOCKS" => Locks,
    LockedMemory = "MEMLOCK" => Memlock,
    MessageQueues = "MSGQUEUE" => Msgqueue,
    Nice = "NICE" => Nice,
    OpenFiles = "NOFILE" => Nofile,
    Processes = "NPROC" => Nproc,
    ResidentSet = "RSS" => Rss,
    RealTimePriority = "RTPRIO" => Rtprio,
    RealTime = "RTTIME" => Rttime,
    PendingSignals = "SIGPENDING" => Sigpending,
    Stack = "STACK" => Stack,
}
