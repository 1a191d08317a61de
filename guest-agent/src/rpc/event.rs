//! Audit events as messages.

use host_proto::v1;
use v1::audit_event::Event as Kind;

use crate::audit::{
    AgentPhase, Event, EventKind, ExecPhase, HelperPhase, MediatedCall, RefusalReason, RefusedPeer,
};
use crate::exec::ExitStatus;
use crate::filter::Abi;
use crate::ids::Sid;
use crate::mediator::{Decision, Reason, Target};

pub(super) fn translate(event: &Event) -> v1::AuditEvent {
    v1::AuditEvent {
        sequence: event.seq.get(),
        time: Some(event.time.into()),
        exec_id: event.exec.map(|exec| exec.to_string()).unwrap_or_default(),
        event: Some(match &event.kind {
            EventKind::Call(call) => Kind::Call(translate_call(call)),
            EventKind::Exec(phase) => Kind::Exec(exec(phase)),
            EventKind::Helper { name, phase } => Kind::Helper(helper(name, *phase)),
            EventKind::Refused(peer) => Kind::ConnectionRefused(refused(peer)),
            EventKind::Agent(phase) => Kind::Agent(agent(phase)),
        }),
    }
}

fn translate_call(call: &MediatedCall) -> v1::MediatedCall {
    let (decision, errno) = match call.decision {
        Decision::Allow => (v1::Decision::Allow, 0),
        Decision::Deny(errno) => (v1::Decision::Deny, errno),
    };
    let caller = call.caller.as_ref();
    v1::MediatedCall {
        syscall: call.syscall.into(),
        abi: match call.abi {
            Abi::Native => v1::Abi::Native,
            Abi::Compat32 => v1::Abi::Compat32,
        }
        .into(),
        arguments: call.arguments.into(),
        caller: Some(v1::Caller {
            tid: call.thread.map_or(0, crate::ids::Pid::get),
            pid: caller.map(|caller| caller.process.get()),
            uid: caller.map(|caller| caller.uid),
            comm: caller.map(|caller| caller.comm.clone().into_bytes().into()),
        }),
        target: call.target.and_then(|target| translate_target(target, call.session)),
        decision: decision.into(),
        errno,
        reason: reason(call.reason).into(),
        count: call.count,
    }
}

fn translate_target(target: Target, session: Option<Sid>) -> Option<v1::Target> {
    use v1::target::Target as Whom;
    let whom = match target {
        // kill(0, …) names no number.
        Target::OwnGroup | Target::Nobody(_) => return None,
        Target::Process(pid) => Whom::Pid(pid.get()),
        Target::Group(pgid) => Whom::Pgid(pgid.get()),
        Target::EveryProcess => Whom::EveryProcess(true),
    };
    Some(v1::Target { target: Some(whom), sid: session.map_or(0, Sid::get) })
}

fn reason(reason: Reason) -> v1::Reason {
    match reason {
        Reason::OwnSession => v1::Reason::OwnSession,
        Reason::SameExec => v1::Reason::SameExec,
        Reason::SharedSandbox => v1::Reason::SharedSandbox,
        Reason::NestedPidNamespace => v1::Reason::NestedPidNamespace,
        Reason::SessionRecorded => v1::Reason::SessionRecorded,
        Reason::Protected => v1::Reason::Protected,
        Reason::OtherExec => v1::Reason::OtherExec,
        Reason::NoSuchTarget => v1::Reason::NoSuchTarget,
        Reason::EveryProcess => v1::Reason::EveryProcess,
        Reason::InvalidSignal => v1::Reason::InvalidSignal,
        Reason::CallRefused => v1::Reason::CallRefused,
        Reason::Limit => v1::Reason::Limit,
        Reason::ShuttingDown => v1::Reason::ShuttingDown,
        Reason::Unproven => v1::Reason::Unproven,
    }
}

/// The signal and the exit code of an ended process, 0 where there is none.
fn codes(status: ExitStatus) -> (i32, i32) {
    match status {
        ExitStatus::Code(code) => (0, code),
        ExitStatus::Signal { signal, .. } => (signal, 0),
    }
}

fn exec(phase: &ExecPhase) -> v1::ExecLifecycle {
    let mut lifecycle = v1::ExecLifecycle::default();
    let phase = match phase {
        ExecPhase::Started { argv, pid, uid } => {
            lifecycle.argv = argv.iter().map(|argument| argument.clone().into()).collect();
            (lifecycle.pid, lifecycle.uid) = (pid.get(), *uid);
            v1::Phase::Started
        }
        ExecPhase::Stopped(signal) => {
            lifecycle.signal = *signal;
            v1::Phase::Stopped
        }
        ExecPhase::Continued => v1::Phase::Continued,
        ExecPhase::Exited(status) => {
            (lifecycle.signal, lifecycle.exit_code) = codes(*status);
            v1::Phase::Exited
        }
        ExecPhase::Failed(error) => {
            lifecycle.error.clone_from(error);
            v1::Phase::Failed
        }
    };
    lifecycle.phase = phase.into();
    lifecycle
}

fn helper(name: &str, phase: HelperPhase) -> v1::HelperLifecycle {
    let mut lifecycle = v1::HelperLifecycle { name: name.into(), ..Default::default() };
    let phase = match phase {
        HelperPhase::Started(pid) => {
            lifecycle.pid = pid.get();
            v1::Phase::Started
        }
        HelperPhase::Exited(status) => {
            (lifecycle.signal, lifecycle.exit_code) = codes(status);
            v1::Phase::Exited
        }
        HelperPhase::Failed => v1::Phase::Failed,
    };
    lifecycle.phase = phase.into();
    lifecycle
}

fn refused(peer: &RefusedPeer) -> v1::ConnectionRefused {
    let reason = match peer.reason {
        RefusalReason::Uid => v1::RefusalReason::Uid,
        RefusalReason::Workload => v1::RefusalReason::Workload,
        RefusalReason::Unidentified => v1::RefusalReason::Unidentified,
        RefusalReason::Limit => v1::RefusalReason::Limit,
        RefusalReason::Cid => v1::RefusalReason::Cid,
    };
    v1::ConnectionRefused {
        pid: peer.pid,
        uid: peer.uid,
        gid: peer.gid,
        reason: reason.into(),
        cid: peer.cid,
    }
}

fn agent(phase: &AgentPhase) -> v1::AgentLifecycle {
    let (phase, instance_id) = match phase {
        AgentPhase::Started(instance) => (v1::AgentPhase::Started, instance.clone()),
        AgentPhase::ShuttingDown => (v1::AgentPhase::ShuttingDown, String::new()),
    };
    v1::AgentLifecycle { phase: phase.into(), instance_id }
}
