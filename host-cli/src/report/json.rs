//! The JSON of reports: stable names, absent fields left out.

use host_proto::v1;
use serde::Serialize;
use v1::audit_event::Event;
use v1::target::Target as Whom;

use super::{short, text, time};

/// One line of `audit --json`.
#[derive(Debug, Serialize)]
pub(super) struct AuditLine {
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    exec_id: String,
    #[serde(flatten)]
    event: Option<AuditEvent>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum AuditEvent {
    Call(Call),
    Exec(Exec),
    Helper(Helper),
    ConnectionRefused(ConnectionRefused),
    Agent(Agent),
}

#[derive(Debug, Serialize)]
struct Call {
    syscall: String,
    abi: String,
    arguments: Vec<u64>,
    caller: Caller,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    decision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
    reason: String,
    count: u64,
}

#[derive(Debug, Serialize)]
struct Caller {
    tid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comm: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Target {
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pgid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_process: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<i32>,
}

#[derive(Debug, Serialize)]
struct Exec {
    phase: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    argv: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
}

#[derive(Debug, Serialize)]
struct Helper {
    name: String,
    phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

#[derive(Debug, Serialize)]
struct ConnectionRefused {
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cid: Option<u32>,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Agent {
    phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    instance_id: String,
}

/// Events that could not be delivered.
#[derive(Debug, Serialize)]
pub(super) struct LostLine {
    pub(super) lost: Lost,
}

#[derive(Debug, Serialize)]
pub(super) struct Lost {
    pub(super) first_sequence: u64,
    pub(super) last_sequence: u64,
}

fn nonzero(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

impl From<&v1::AuditEvent> for AuditLine {
    fn from(message: &v1::AuditEvent) -> Self {
        Self {
            sequence: message.sequence,
            time: time(message.time),
            exec_id: message.exec_id.clone(),
            event: message.event.as_ref().map(AuditEvent::from),
        }
    }
}

impl From<&Event> for AuditEvent {
    fn from(event: &Event) -> Self {
        match event {
            Event::Call(call) => Self::Call(call.into()),
            Event::Exec(exec) => Self::Exec(exec.into()),
            Event::Helper(helper) => Self::Helper(helper.into()),
            Event::ConnectionRefused(refused) => Self::ConnectionRefused(ConnectionRefused {
                pid: refused.pid,
                uid: refused.uid,
                gid: refused.gid,
                cid: refused.cid,
                reason: short(refused.reason().as_str_name(), "REFUSAL_REASON_"),
            }),
            Event::Agent(agent) => Self::Agent(Agent {
                phase: short(agent.phase().as_str_name(), "AGENT_PHASE_"),
                instance_id: agent.instance_id.clone(),
            }),
        }
    }
}

impl From<&v1::MediatedCall> for Call {
    fn from(call: &v1::MediatedCall) -> Self {
        let caller = call.caller.clone().unwrap_or_default();
        Self {
            syscall: call.syscall.clone(),
            abi: short(call.abi().as_str_name(), "ABI_"),
            arguments: call.arguments.clone(),
            caller: Caller {
                tid: caller.tid,
                pid: caller.pid,
                uid: caller.uid,
                comm: caller.comm.map(|comm| text(&comm)),
            },
            target: call.target.as_ref().map(Target::from),
            decision: short(call.decision().as_str_name(), "DECISION_"),
            errno: nonzero(call.errno),
            reason: short(call.reason().as_str_name(), "REASON_"),
            count: call.count,
        }
    }
}

impl From<&v1::Target> for Target {
    fn from(target: &v1::Target) -> Self {
        let mut json = Self { sid: nonzero(target.sid), ..Self::default() };
        match target.target {
            Some(Whom::Pid(pid)) => json.pid = Some(pid),
            Some(Whom::Pgid(pgid)) => json.pgid = Some(pgid),
            Some(Whom::EveryProcess(every)) => json.every_process = Some(every),
            None => {}
        }
        json
    }
}

impl From<&v1::ExecLifecycle> for Exec {
    fn from(exec: &v1::ExecLifecycle) -> Self {
        let (started, exited) =
            (exec.phase() == v1::Phase::Started, exec.phase() == v1::Phase::Exited);
        Self {
            phase: short(exec.phase().as_str_name(), "PHASE_"),
            argv: exec.argv.iter().map(|argument| text(argument)).collect(),
            pid: nonzero(exec.pid),
            uid: started.then_some(exec.uid),
            signal: nonzero(exec.signal),
            exit_code: (exited && exec.signal == 0).then_some(exec.exit_code),
            error: exec.error.clone(),
        }
    }
}

impl From<&v1::HelperLifecycle> for Helper {
    fn from(helper: &v1::HelperLifecycle) -> Self {
        let exited = helper.phase() == v1::Phase::Exited;
        Self {
            name: helper.name.clone(),
            phase: short(helper.phase().as_str_name(), "PHASE_"),
            pid: nonzero(helper.pid),
            signal: nonzero(helper.signal),
            exit_code: (exited && helper.signal == 0).then_some(helper.exit_code),
        }
    }
}

/// A session of `ps --json`.
#[derive(Debug, Serialize)]
pub(super) struct Session {
    sid: i32,
    owner: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    exec_id: String,
    groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
struct Group {
    pgid: i32,
    foreground: bool,
    processes: Vec<Process>,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: i32,
    parent_pid: i32,
    uid: u32,
    comm: String,
    state: String,
}

impl From<&v1::Session> for Session {
    fn from(session: &v1::Session) -> Self {
        let process = |process: &v1::Process| Process {
            pid: process.pid,
            parent_pid: process.parent_pid,
            uid: process.uid,
            comm: text(&process.comm),
            state: short(process.state().as_str_name(), "PROCESS_STATE_"),
        };
        let group = |group: &v1::ProcessGroup| Group {
            pgid: group.pgid,
            foreground: group.foreground,
            processes: group.processes.iter().map(process).collect(),
        };
        Self {
            sid: session.sid,
            owner: short(session.owner().as_str_name(), "SESSION_OWNER_"),
            exec_id: session.exec_id.clone(),
            groups: session.groups.iter().map(group).collect(),
        }
    }
}

/// The object of `info --json`.
#[derive(Debug, Serialize)]
pub(super) struct Info {
    agent_version: String,
    protocol_version: u32,
    instance_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<String>,
    pid: i32,
    uid: u32,
    kernel_release: String,
    machine: String,
    wait_killable_recv: bool,
    peer_pidfd: bool,
    max_connections: u32,
    max_execs: u32,
    max_message_bytes: u32,
    audit_ring_events: u32,
    max_sessions: u32,
    exec_isolation: String,
    own_group_signals: String,
}

impl From<v1::GetInfoResponse> for Info {
    fn from(info: v1::GetInfoResponse) -> Self {
        let features = info.kernel_features.unwrap_or_default();
        let limits = info.limits.unwrap_or_default();
        let policy = info.policy.unwrap_or_default();
        Self {
            agent_version: info.agent_version,
            protocol_version: info.protocol_version,
            instance_id: info.instance_id,
            start_time: time(info.start_time),
            pid: info.pid,
            uid: info.uid,
            kernel_release: info.kernel_release,
            machine: info.machine,
            wait_killable_recv: features.wait_killable_recv,
            peer_pidfd: features.peer_pidfd,
            max_connections: limits.max_connections,
            max_execs: limits.max_execs,
            max_message_bytes: limits.max_message_bytes,
            audit_ring_events: limits.audit_ring_events,
            max_sessions: limits.max_sessions,
            exec_isolation: short(policy.exec_isolation().as_str_name(), "EXEC_ISOLATION_"),
            own_group_signals: short(
                policy.own_group_signals().as_str_name(),
                "OWN_GROUP_SIGNALS_",
            ),
        }
    }
}
