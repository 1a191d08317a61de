//! The table of decisions, and what holds for all of them.

use proptest::prelude::*;

use super::*;
use crate::ids::{Pgid, Pid};
use crate::policy::OwnGroupSignals;

const OWN: ExecId = ExecId::new(1);
const OTHER: ExecId = ExecId::new(2);

fn policy(exec_isolation: ExecIsolation) -> Policy {
    Policy { exec_isolation, own_group_signals: OwnGroupSignals::Audited }
}

fn isolated() -> Policy {
    policy(ExecIsolation::Isolated)
}

fn signal(target: Target) -> Request {
    Request::Signal { target, signal: 15 }
}

fn process() -> Target {
    Target::Process(Pid::new(7).unwrap())
}

fn group() -> Target {
    Target::Group(Pgid::new(7).unwrap())
}

fn owned_by(owner: Owner) -> Facts {
    let target = TargetFacts::InSession(Sid::new(5).unwrap(), owner);
    Facts { target, namespace: Namespace::NotChecked }
}

fn with(target: TargetFacts) -> Facts {
    Facts { target, namespace: Namespace::NotChecked }
}

fn answer(request: Request, facts: Facts, policy: Policy) -> (Decision, Reason) {
    let verdict = decide(&request, &facts, OWN, policy);
    (verdict.decision, verdict.reason)
}

#[test]
fn a_target_is_judged_by_the_owner_of_its_session() {
    for target in [process(), group()] {
        let answer = |owner, isolation| answer(signal(target), owned_by(owner), policy(isolation));
        for isolation in [ExecIsolation::Isolated, ExecIsolation::Shared] {
            assert_eq!(
                answer(Owner::CallersSession, isolation),
                (Decision::Allow, Reason::OwnSession)
            );
            assert_eq!(answer(Owner::Exec(OWN), isolation), (Decision::Allow, Reason::SameExec));
            assert_eq!(
                answer(Owner::Unknown, isolation),
                (Decision::Deny(libc::EPERM), Reason::Protected)
            );
        }
        assert_eq!(
            answer(Owner::Exec(OTHER), ExecIsolation::Isolated),
            (Decision::Deny(libc::EPERM), Reason::OtherExec)
        );
        assert_eq!(
            answer(Owner::Exec(OTHER), ExecIsolation::Shared),
            (Decision::Allow, Reason::SharedSandbox)
        );
    }
}

#[test]
fn a_missing_target_is_not_left_to_the_kernel() {
    for target in [process(), group()] {
        assert_eq!(
            answer(signal(target), with(TargetFacts::Missing), isolated()),
            (Decision::Deny(libc::ESRCH), Reason::NoSuchTarget)
        );
    }
    let joining = Request::SetPgid { process: None, group: Pgid::new(7) };
    assert_eq!(
        answer(joining, with(TargetFacts::Missing), isolated()),
        (Decision::Deny(libc::EPERM), Reason::NoSuchTarget)
    );
}

#[test]
fn a_target_out_of_sight_is_protected() {
    for target in [process(), group()] {
        assert_eq!(
            answer(signal(target), with(TargetFacts::OutOfSight), policy(ExecIsolation::Shared)),
            (Decision::Deny(libc::EPERM), Reason::Protected)
        );
    }
}

#[test]
fn every_process_is_never_reached() {
    for isolation in [ExecIsolation::Isolated, ExecIsolation::Shared] {
        let nested = Facts { target: TargetFacts::NotNeeded, namespace: Namespace::Nested };
        for facts in [with(TargetFacts::NotNeeded), nested] {
            assert_eq!(
                answer(signal(Target::EveryProcess), facts, policy(isolation)),
                (Decision::Deny(libc::EPERM), Reason::EveryProcess)
            );
        }
    }
}

#[test]
fn a_signal_that_does_not_exist_is_invalid_for_anyone() {
    for signal in [-1, 65, i32::MIN, i32::MAX] {
        for target in [process(), Target::OwnGroup, Target::EveryProcess] {
            assert_eq!(
                answer(Request::Signal { target, signal }, owned_by(Owner::Unknown), isolated()),
                (Decision::Deny(libc::EINVAL), Reason::InvalidSignal)
            );
        }
    }
}

#[test]
fn a_session_is_founded_only_once_it_is_recorded() {
    let sid = Sid::new(7).unwrap();
    let cases = [
        (TargetFacts::Recorded(sid), Decision::Allow, Reason::SessionRecorded),
        (TargetFacts::LimitReached, Decision::Deny(libc::EAGAIN), Reason::Limit),
        (TargetFacts::Missing, Decision::Deny(libc::EPERM), Reason::Unproven),
        (TargetFacts::NotNeeded, Decision::Deny(libc::EPERM), Reason::Unproven),
    ];
    for (facts, decision, reason) in cases {
        assert_eq!(answer(Request::SetSid, with(facts), isolated()), (decision, reason));
    }
}

#[test]
fn refused_calls_look_like_a_kernel_without_them() {
    let refused = |refusal| answer(Request::Refused(refusal), Facts::NONE, isolated());
    assert_eq!(refused(Refusal::Socket), (Decision::Deny(libc::EACCES), Reason::CallRefused));
    assert_eq!(refused(Refusal::Unavailable), (Decision::Deny(libc::ENOSYS), Reason::CallRefused));
}

#[test]
fn the_namespace_is_looked_up_only_before_a_refusal_of_a_number() {
    let depends = |request, facts| decide(&request, &facts, OWN, isolated()).depends_on_namespace();
    assert!(depends(signal(process()), owned_by(Owner::Unknown)));
    assert!(depends(signal(group()), with(TargetFacts::Missing)));
    assert!(!depends(signal(process()), owned_by(Owner::CallersSession)));
    assert!(!depends(signal(Target::EveryProcess), Facts::NONE));
    assert!(!depends(Request::Refused(Refusal::Socket), Facts::NONE));
}

fn any_target() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(Target::OwnGroup),
        Just(Target::EveryProcess),
        Just(Target::Nobody(libc::ESRCH)),
        (1..i32::MAX).prop_map(|n| Target::Group(Pgid::new(n).unwrap())),
        (1..i32::MAX).prop_map(|n| Target::Process(Pid::new(n).unwrap())),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any_target(), any::<i32>())
            .prop_map(|(target, signal)| Request::Signal { target, signal }),
        (any_target(), 0..=64).prop_map(|(target, signal)| Request::Signal { target, signal }),
        (any::<i32>(), any::<i32>()).prop_map(|(process, group)| Request::SetPgid {
            process: Pid::new(process),
            group: Pgid::new(group)
        }),
        Just(Request::SetSid),
        Just(Request::Refused(Refusal::Socket)),
        Just(Request::Refused(Refusal::Unavailable)),
    ]
}

proptest! {
    /// Unknown is protected: whatever names a target outside the caller's own
    /// namespace is allowed only if that target is known to be workload.
    #[test]
    fn an_unknown_owner_is_never_reached(request in any_request(), shared: bool) {
        let isolation = if shared { ExecIsolation::Shared } else { ExecIsolation::Isolated };
        let verdict = decide(&request, &owned_by(Owner::Unknown), OWN, policy(isolation));
        let names_a_target =
            matches!(verdict.target, Some(Target::Process(_) | Target::Group(_) | Target::EveryProcess));
        prop_assert!(!(names_a_target && verdict.decision == Decision::Allow));
    }

    /// Without facts nothing that needs them is allowed.
    #[test]
    fn no_facts_no_target(request in any_request()) {
        let verdict = decide(&request, &Facts::NONE, OWN, policy(ExecIsolation::Shared));
        if verdict.decision == Decision::Allow {
            prop_assert!(matches!(verdict.target, None | Some(Target::OwnGroup)));
        }
    }
}
