//! The decision on a call: a pure function of the request, the facts and the policy.

use super::decode::{Refusal, Request, Target};
use crate::ids::{ExecId, Sid};
use crate::policy::{ExecIsolation, Policy};

/// The highest signal number, `_NSIG` of the kernel.
const LAST_SIGNAL: i32 = 64;

/// What was found out about a call's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The target itself.
    pub target: TargetFacts,
    /// Whose numbers the call's arguments are.
    pub namespace: Namespace,
}

/// What was found out about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFacts {
    /// The request needs no facts.
    NotNeeded,
    /// No such process or group.
    Missing,
    /// It exists, in a session that the agent cannot see.
    OutOfSight,
    /// It is in this session, whose owner is this.
    InSession(Sid, Owner),
    /// The session the caller is about to found has been recorded.
    Recorded(Sid),
    /// It could not be recorded: too many.
    LimitReached,
}

/// Whose a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The session the caller is in.
    CallersSession,
    /// A session of this exec.
    Exec(ExecId),
    /// Not known to be any workload's.
    Unknown,
}

/// Whose numbers a call's arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Taken to be the agent's: looked up only before a refusal.
    NotChecked,
    /// Those of a pid namespace below the agent's. Such a namespace was made by
    /// a workload and holds nothing but its descendants, so every process and
    /// group a caller in it can name is the workload's own.
    Nested,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The kernel goes on with the call under its own rules.
    Allow,
    /// The caller gets this errno.
    Deny(i32),
}

/// Why a call was answered as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The target is in the caller's own session or group.
    OwnSession,
    /// The target is in another session of the same exec.
    SameExec,
    /// The target is in another exec of the same sandbox.
    SharedSandbox,
    /// See [`Namespace::Nested`].
    NestedPidNamespace,
    /// The caller's new session has been recorded.
    SessionRecorded,
    /// The target is not known to be workload.
    Protected,
    /// The target is in another exec.
    OtherExec,
    /// There is no such process or group.
    NoSuchTarget,
    /// The call aims at every process.
    EveryProcess,
    /// There is no such signal.
    InvalidSignal,
    /// The call is not available to workloads.
    CallRefused,
    /// A limit of the agent is reached.
    Limit,
    /// The agent is ending its workloads.
    ShuttingDown,
    /// The facts could not be read.
    Unproven,
}

/// A decision with all that the audit says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The answer.
    pub decision: Decision,
    /// Why.
    pub reason: Reason,
    /// Whom the call aimed at, if at a process.
    pub target: Option<Target>,
    /// The target's session, if it was found.
    pub session: Option<Sid>,
}

impl Verdict {
    /// The answer to everything once the agent ends its workloads.
    #[must_use]
    pub fn shutting_down(request: &Request) -> Self {
        Self::new(request, Facts::NONE, Decision::Deny(libc::EPERM), Reason::ShuttingDown)
    }

    fn new(request: &Request, facts: Facts, decision: Decision, reason: Reason) -> Self {
        let target = match *request {
            Request::Signal { target, .. } => Some(target),
            Request::SetPgid { group, .. } => group.map(Target::Group),
            Request::SetSid | Request::Refused(_) => None,
        };
        let session = match facts.target {
            TargetFacts::InSession(sid, _) | TargetFacts::Recorded(sid) => Some(sid),
            TargetFacts::NotNeeded
            | TargetFacts::Missing
            | TargetFacts::OutOfSight
            | TargetFacts::LimitReached => None,
        };
        Self { decision, reason, target, session }
    }

    /// Whether the answer would differ if the numbers were those of a nested
    /// pid namespace.
    #[must_use]
    pub fn depends_on_namespace(&self) -> bool {
        matches!(self.reason, Reason::Protected | Reason::OtherExec | Reason::NoSuchTarget)
            && matches!(self.target, Some(Target::Process(_) | Target::Group(_)))
    }
}

impl Facts {
    const NONE: Self = Self { target: TargetFacts::NotNeeded, namespace: Namespace::NotChecked };
}

/// Decides on a request of a caller in `exec`.
///
/// An allowed call is continued by the kernel, which resolves the number anew.
/// Between the decision and that, a *group* cannot come to hold a protected
/// process: groups do not span sessions, trusted code joins no workload session
/// and founds no group after the first workload has started. A *process* can
/// only be another one if its number was given out again in between, to a
/// process that the agent or the system started at that moment.
#[must_use]
pub fn decide(request: &Request, facts: &Facts, exec: ExecId, policy: Policy) -> Verdict {
    let verdict = |decision, reason| Verdict::new(request, *facts, decision, reason);
    let deny = |errno, reason| verdict(Decision::Deny(errno), reason);
    let allow = |reason| verdict(Decision::Allow, reason);
    match *request {
        Request::Refused(Refusal::Socket) => deny(libc::EACCES, Reason::CallRefused),
        Request::Refused(Refusal::Unavailable) => deny(libc::ENOSYS, Reason::CallRefused),
        // The kernel, too, looks at the signal's number before its target.
        Request::Signal { signal, .. } if !(0..=LAST_SIGNAL).contains(&signal) => {
            deny(libc::EINVAL, Reason::InvalidSignal)
        }
        Request::Signal { target: Target::EveryProcess, .. } => {
            deny(libc::EPERM, Reason::EveryProcess)
        }
        Request::Signal { target: Target::Nobody(errno), .. } => deny(errno, Reason::NoSuchTarget),
        Request::Signal { target: Target::Process(_) | Target::Group(_), .. } => {
            match may_reach(facts, exec, policy, libc::ESRCH) {
                Ok(reason) => allow(reason),
                Err((errno, reason)) => deny(errno, reason),
            }
        }
        // The own group is in the own session, and so is one that is founded.
        Request::Signal { target: Target::OwnGroup, .. } | Request::SetPgid { group: None, .. } => {
            allow(Reason::OwnSession)
        }
        Request::SetPgid { group: Some(_), .. } => {
            match may_reach(facts, exec, policy, libc::EPERM) {
                Ok(reason) => allow(reason),
                Err((errno, reason)) => deny(errno, reason),
            }
        }
        Request::SetSid => match facts.target {
            TargetFacts::Recorded(_) => allow(Reason::SessionRecorded),
            TargetFacts::LimitReached => deny(libc::EAGAIN, Reason::Limit),
            _ => deny(libc::EPERM, Reason::Unproven),
        },
    }
}

/// Whether a target may be reached; `missing` is the errno if there is none.
fn may_reach(
    facts: &Facts,
    exec: ExecId,
    policy: Policy,
    missing: i32,
) -> Result<Reason, (i32, Reason)> {
    if facts.namespace == Namespace::Nested {
        return Ok(Reason::NestedPidNamespace);
    }
    match facts.target {
        TargetFacts::InSession(_, Owner::CallersSession) => Ok(Reason::OwnSession),
        TargetFacts::InSession(_, Owner::Exec(owner)) if owner == exec => Ok(Reason::SameExec),
        TargetFacts::InSession(_, Owner::Exec(_)) => match policy.exec_isolation {
            ExecIsolation::Shared => Ok(Reason::SharedSandbox),
            ExecIsolation::Isolated => Err((libc::EPERM, Reason::OtherExec)),
        },
        TargetFacts::InSession(_, Owner::Unknown) | TargetFacts::OutOfSight => {
            Err((libc::EPERM, Reason::Protected))
        }
        TargetFacts::Missing => Err((missing, Reason::NoSuchTarget)),
        TargetFacts::NotNeeded | TargetFacts::Recorded(_) | TargetFacts::LimitReached => {
            Err((libc::EPERM, Reason::Unproven))
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
