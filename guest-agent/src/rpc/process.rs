//! `ProcessService`: what runs in the guest.

use std::collections::BTreeMap;
use std::sync::Arc;

use host_proto::error::Reason;
use host_proto::v1;
use procfs::process::Stat;
use tonic::{Request, Response, Status};

use super::Agent;
use crate::ids::{ExecId, Sid};

pub(super) struct Service(Arc<Agent>);

impl Service {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self(agent)
    }
}

#[tonic::async_trait]
impl v1::process_service_server::ProcessService for Service {
    async fn list(
        &self,
        request: Request<v1::ProcessServiceListRequest>,
    ) -> Result<Response<v1::ProcessServiceListResponse>, Status> {
        let include_protected = request.into_inner().include_protected;
        let agent = Arc::clone(&self.0);
        let look = move || look(&agent, include_protected);
        let sessions = tokio::task::spawn_blocking(look)
            .await
            .map_err(|error| Status::internal(error.to_string()))??;
        Ok(Response::new(v1::ProcessServiceListResponse { sessions }))
    }
}

fn look(agent: &Agent, include_protected: bool) -> Result<Vec<v1::Session>, Status> {
    let ownership = &agent.context.ownership;
    let processes = ownership
        .kernel()
        .processes()
        .map_err(|error| Reason::ProcUnreadable.status(format!("cannot read /proc: {error}")))?;
    let mut sessions = by_session(processes.into_iter().map(|stat| {
        let uid = uid_of(stat.pid);
        (stat, uid)
    }));
    for session in &mut sessions {
        let sid = Sid::new(session.sid);
        let owner = sid.and_then(|sid| ownership.owner(sid));
        let is_agent = sid == Some(agent.session);
        (session.owner, session.exec_id) = describe_owner(owner, is_agent);
    }
    let workload = i32::from(v1::SessionOwner::Workload);
    sessions.retain(|session| include_protected || session.owner == workload);
    Ok(sessions)
}

fn describe_owner(exec: Option<ExecId>, is_agent: bool) -> (i32, String) {
    match exec {
        Some(exec) => (v1::SessionOwner::Workload.into(), exec.to_string()),
        None if is_agent => (v1::SessionOwner::Agent.into(), String::new()),
        None => (v1::SessionOwner::Foreign.into(), String::new()),
    }
}

fn uid_of(pid: i32) -> u32 {
    procfs::process::Process::new(pid).and_then(|process| process.uid()).unwrap_or_default()
}

/// Sorts processes into their groups and sessions, all in the order of their numbers.
fn by_session(processes: impl Iterator<Item = (Stat, u32)>) -> Vec<v1::Session> {
    let mut sessions: BTreeMap<i32, BTreeMap<i32, v1::ProcessGroup>> = BTreeMap::new();
    for (stat, uid) in processes {
        let groups = sessions.entry(stat.session).or_default();
        let group = groups
            .entry(stat.pgrp)
            .or_insert_with(|| v1::ProcessGroup { pgid: stat.pgrp, ..Default::default() });
        group.foreground |= stat.tpgid == stat.pgrp;
        group.processes.push(v1::Process {
            pid: stat.pid,
            parent_pid: stat.ppid,
            uid,
            comm: stat.comm.into_bytes().into(),
            state: state(stat.state).into(),
        });
    }
    let session = |(sid, groups): (i32, BTreeMap<i32, v1::ProcessGroup>)| {
        let mut groups: Vec<_> = groups.into_values().collect();
        for group in &mut groups {
            group.processes.sort_by_key(|process| process.pid);
        }
        v1::Session { sid, groups, ..Default::default() }
    };
    sessions.into_iter().map(session).collect()
}

/// The state letters of proc(5).
fn state(letter: char) -> v1::ProcessState {
    match letter {
        'R' => v1::ProcessState::Running,
        'S' => v1::ProcessState::Sleeping,
        'D' => v1::ProcessState::DiskSleep,
        'T' => v1::ProcessState::Stopped,
        't' => v1::ProcessState::Traced,
        'Z' => v1::ProcessState::Zombie,
        'X' | 'x' => v1::ProcessState::Dead,
        'I' => v1::ProcessState::Idle,
        _ => v1::ProcessState::Unspecified,
    }
}
