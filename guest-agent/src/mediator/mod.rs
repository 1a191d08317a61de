//! Answers the calls of one exec: receive, decode, gather facts, decide, answer.
//!
//! Each exec has a mediator of its own on an OS thread of its own, so that
//! neither an RPC nor another exec's flood of calls delays an answer.

mod caller;
mod decide;
mod decode;
mod facts;
mod fold;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use caller::CallerIdentity;
pub use decide::{Decision, Facts, Namespace, Owner, Reason, TargetFacts, Verdict, decide};
pub use decode::{Refusal, Request, Target, decode};

use crate::audit::{Audit, EventKind, MediatedCall};
use crate::filter::Calls;
use crate::ids::ExecId;
use crate::notify::{Answer, Delivery, Listener, Notification, Received};
use crate::ownership::Ownership;
use crate::policy::Policy;
use fold::Fold;

/// Equal calls that repeat within this time are reported as one event.
const FOLD_WINDOW: Duration = Duration::from_millis(100);

/// Stack of a mediator's thread, in bytes: it reads small files and formats nothing.
const STACK_BYTES: usize = 256 * 1024;

/// What all mediators share.
#[derive(Debug)]
pub struct Context {
    /// The sessions of all workloads.
    pub ownership: Ownership,
    /// Where decisions are reported.
    pub audit: Audit,
    /// The rules in force.
    pub policy: Policy,
    /// Set once the agent ends its workloads: nothing is allowed any more.
    pub ending: AtomicBool,
    /// The numbers of the mediated calls.
    pub calls: Calls,
}

/// Starts the mediator of an exec; it ends with the last process of the exec.
pub fn spawn(context: Arc<Context>, exec: ExecId, listener: Listener) -> std::io::Result<()> {
    let mediator = Mediator { context, exec, listener, fold: Fold::new(FOLD_WINDOW) };
    thread::Builder::new()
        .name(format!("mediator-{exec}"))
        .stack_size(STACK_BYTES)
        .spawn(move || mediator.run())
        .map(drop)
}

struct Mediator {
    context: Arc<Context>,
    exec: ExecId,
    listener: Listener,
    fold: Fold,
}

impl Mediator {
    fn run(mut self) {
        loop {
            let limit = self.fold.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            match self.listener.receive(limit) {
                Ok(Received::Call(notification)) => self.handle(&notification),
                Ok(Received::Nothing) => {}
                Ok(Received::Hangup) => break,
                Err(error) => {
                    // Dropping the listener makes the kernel answer every further
                    // call with ENOSYS: the exec loses its calls, nothing opens.
                    tracing::error!(exec = %self.exec, %error, "mediator failed; mediated calls of this exec now fail");
                    break;
                }
            }
            if let Some(repeats) = self.fold.expire(Instant::now()) {
                self.report(repeats);
            }
        }
        if let Some(repeats) = self.fold.flush() {
            self.report(repeats);
        }
    }

    fn handle(&mut self, notification: &Notification) {
        let verdict = self.judge(notification);
        let refused = matches!(verdict.decision, Decision::Deny(_));
        // The caller of an allowed call does not wait for its own identity.
        let before = if refused { self.identify_waiting(notification) } else { None };
        let answer = match verdict.decision {
            Decision::Allow => Answer::Continue,
            Decision::Deny(errno) => Answer::Errno(errno),
        };
        match self.listener.answer(notification.id, answer) {
            Ok(Delivery::Delivered) => {}
            // It was killed, or will make the call again: no decision took effect.
            Ok(Delivery::CallerGone) => return,
            Err(error) => {
                tracing::error!(exec = %self.exec, %error, "cannot answer a call");
                return;
            }
        }
        let call = MediatedCall::new(&self.context.calls, notification, &verdict);
        let Some(call) = call else { return };
        let reports = self.fold.add(call, Instant::now(), || {
            before.or_else(|| CallerIdentity::read(notification.caller?))
        });
        for report in reports {
            self.report(report);
        }
    }

    /// The caller's identity, if it still waits after it was read.
    fn identify_waiting(&self, notification: &Notification) -> Option<CallerIdentity> {
        let identity = CallerIdentity::read(notification.caller?)?;
        self.listener.is_valid(notification.id).then_some(identity)
    }

    fn judge(&self, notification: &Notification) -> Verdict {
        let request = decode(notification, &self.context.calls);
        if self.context.ending.load(Ordering::Acquire) {
            return Verdict::shutting_down(&request);
        }
        let policy = self.context.policy;
        let mut facts =
            facts::gather(&self.context.ownership, self.exec, notification, &request, || {
                self.listener.is_valid(notification.id)
            });
        let verdict = decide(&request, &facts, self.exec, policy);
        if verdict.depends_on_namespace() && self.is_nested(notification) {
            facts.namespace = Namespace::Nested;
            return decide(&request, &facts, self.exec, policy);
        }
        verdict
    }

    /// Whether the caller's numbers are those of a pid namespace below the agent's.
    fn is_nested(&self, notification: &Notification) -> bool {
        let nested = notification.caller.is_some_and(caller::is_in_nested_pid_namespace);
        nested && self.listener.is_valid(notification.id)
    }

    fn report(&self, call: MediatedCall) {
        self.context.audit.record(Some(self.exec), EventKind::Call(call));
    }
}
