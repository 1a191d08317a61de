//! Gathers what a decision depends on: system calls first, `/proc` only where a
//! founder is gone.

use super::caller::process_of;
use super::decide::{Facts, Namespace, Owner, TargetFacts};
use super::decode::{Request, Target};
use crate::ids::{ExecId, Pid, Sid};
use crate::notify::Notification;
use crate::ownership::{Kernel as _, Membership, Ownership, RecordError};

/// Gathers the facts for a request of a caller in `exec`.
///
/// What is only compared needs no check that the caller still waits: if it does
/// not, the kernel drops the answer. What is *recorded* through the caller's
/// number is checked with `still_waits`.
pub(super) fn gather(
    ownership: &Ownership,
    exec: ExecId,
    notification: &Notification,
    request: &Request,
    still_waits: impl FnOnce() -> bool,
) -> Facts {
    let gatherer = Gatherer { ownership, caller: notification.caller };
    let target = match *request {
        Request::Signal { target: Target::Process(pid), .. } => {
            gatherer.session_facts(ownership.kernel().session(pid))
        }
        Request::Signal { target: Target::Group(group), .. } => {
            gatherer.session_facts(ownership.session_of_group(group))
        }
        Request::SetPgid { process, group: Some(group) } => {
            let facts = gatherer.session_facts(ownership.session_of_group(group));
            if let Some(member) = process.or(notification.caller) {
                ownership.joined(group, member);
            }
            facts
        }
        Request::SetSid => gatherer.record_session(exec, still_waits),
        Request::Signal { .. } | Request::SetPgid { group: None, .. } | Request::Refused(_) => {
            TargetFacts::NotNeeded
        }
    };
    Facts { target, namespace: Namespace::NotChecked }
}

struct Gatherer<'a> {
    ownership: &'a Ownership,
    caller: Option<Pid>,
}

impl Gatherer<'_> {
    fn session_facts(&self, session: Membership<Sid>) -> TargetFacts {
        match session {
            Membership::Gone => TargetFacts::Missing,
            Membership::OutOfSight => TargetFacts::OutOfSight,
            Membership::In(sid) => TargetFacts::InSession(sid, self.owner(sid)),
        }
    }

    /// The caller is under a filter that its exec's launcher installed after
    /// founding its session, and every later founding was recorded: so the
    /// caller's own session is a workload session without being looked up.
    fn owner(&self, sid: Sid) -> Owner {
        let own = self.caller.and_then(|caller| self.ownership.kernel().session(caller).known());
        if own == Some(sid) {
            return Owner::CallersSession;
        }
        self.ownership.owner(sid).map_or(Owner::Unknown, Owner::Exec)
    }

    /// setsid(2) makes the caller's *process* a leader, whichever thread calls it.
    fn record_session(&self, exec: ExecId, still_waits: impl FnOnce() -> bool) -> TargetFacts {
        let Some(leader) = self.caller.and_then(process_of) else {
            return TargetFacts::Missing;
        };
        match self.ownership.record(leader, exec, still_waits) {
            Ok(()) => TargetFacts::Recorded(leader.founded_session()),
            Err(RecordError::Gone(_)) => TargetFacts::Missing,
            Err(error @ RecordError::Limit(_)) => {
                tracing::warn!(%exec, %error, "a workload cannot found a session");
                TargetFacts::LimitReached
            }
        }
    }
}
