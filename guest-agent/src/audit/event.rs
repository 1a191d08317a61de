//! What an audit event says.

use std::time::SystemTime;

use super::ring::Seq;
use crate::exec::ExitStatus;
use crate::filter::{Abi, Calls};
use crate::ids::{ExecId, Pid, Sid};
use crate::mediator::{CallerIdentity, Decision, Reason, Target, Verdict};
use crate::notify::Notification;

/// One fact.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number.
    pub seq: Seq,
    /// When it was recorded.
    pub time: SystemTime,
    /// The exec it concerns.
    pub exec: Option<ExecId>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// A call was answered.
    Call(MediatedCall),
    /// An exec changed.
    Exec(ExecPhase),
    /// A helper changed.
    Helper {
        /// Its name in the configuration.
        name: String,
        /// How.
        phase: HelperPhase,
    },
    /// A connection was refused.
    Refused(RefusedPeer),
    /// The agent itself changed.
    Agent(AgentPhase),
}

/// An answered call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediatedCall {
    /// Its name.
    pub syscall: &'static str,
    /// The ABI it came by.
    pub abi: Abi,
    /// Its argument registers.
    pub arguments: [u64; 6],
    /// The calling thread.
    pub thread: Option<Pid>,
    /// The caller, unless it was gone before it could be identified.
    pub caller: Option<CallerIdentity>,
    /// Whom it aimed at.
    pub target: Option<Target>,
    /// The session of the target.
    pub session: Option<Sid>,
    /// The answer.
    pub decision: Decision,
    /// Why.
    pub reason: Reason,
    /// How many equal calls this stands for.
    pub count: u64,
}

impl MediatedCall {
    /// The record of a call, its caller not identified yet; `None` for a call
    /// without a row, which the filter does not send.
    #[must_use]
    pub fn new(calls: &Calls, notification: &Notification, verdict: &Verdict) -> Option<Self> {
        let (abi, row) = calls.row(notification.audit_arch, notification.number)?;
        Some(Self {
            syscall: row.name,
            abi,
            arguments: notification.arguments,
            thread: notification.caller,
            caller: None,
            target: verdict.target,
            session: verdict.session,
            decision: verdict.decision,
            reason: verdict.reason,
            count: 1,
        })
    }

    /// Whether `other` is the same call by the same thread with the same answer.
    #[must_use]
    pub fn repeats(&self, other: &Self) -> bool {
        self.syscall == other.syscall
            && self.abi == other.abi
            && self.arguments == other.arguments
            && self.thread == other.thread
            && self.session == other.session
            && self.decision == other.decision
            && self.reason == other.reason
    }
}

/// A step in an exec's life.
#[derive(Clone, Debug)]
pub enum ExecPhase {
    /// The command runs.
    Started {
        /// The command line.
        argv: Vec<Vec<u8>>,
        /// The command's process.
        pid: Pid,
        /// Its user.
        uid: u32,
    },
    /// The command was stopped by this signal.
    Stopped(i32),
    /// It was continued.
    Continued,
    /// It ended.
    Exited(ExitStatus),
    /// It could not be started, for this reason.
    Failed(String),
}

/// A step in a helper's life.
#[derive(Clone, Copy, Debug)]
pub enum HelperPhase {
    /// It runs.
    Started(Pid),
    /// It ended.
    Exited(ExitStatus),
    /// It could not be started.
    Failed,
}

/// Who was not let in.
#[derive(Clone, Copy, Debug)]
pub struct RefusedPeer {
    /// Its process, user and group, if the channel tells them.
    pub pid: Option<i32>,
    /// Its user.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
    /// Its context id, on vsock.
    pub cid: Option<u32>,
    /// Why.
    pub reason: RefusalReason,
}

impl RefusedPeer {
    /// A peer of whom nothing is known.
    #[must_use]
    pub const fn unidentified() -> Self {
        let reason = RefusalReason::Unidentified;
        Self { pid: None, uid: None, gid: None, cid: None, reason }
    }
}

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// Its user is not one of those allowed.
    Uid,
    /// It is in a workload session.
    Workload,
    /// It could not be identified, or is gone.
    Unidentified,
    /// There are far too many connections.
    Limit,
    /// Its context id is neither the host's nor allowed.
    Cid,
}

/// A step in the agent's life.
#[derive(Clone, Debug)]
pub enum AgentPhase {
    /// It is ready to serve, as this instance.
    Started(String),
    /// It ends its workloads and itself.
    ShuttingDown,
}
