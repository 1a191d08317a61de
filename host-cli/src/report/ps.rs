//! `agentctl ps`.

use host_proto::client::Client;
use host_proto::v1;

use super::json::Session;
use super::{print_json, print_line, short, text};
use crate::exit::Failure;

/// Shows sessions, groups and processes.
pub(crate) async fn show(client: &Client, all: bool, json: bool) -> Result<u8, Failure> {
    let request = v1::ProcessServiceListRequest { include_protected: all };
    let sessions = client.processes().list(request).await?.into_inner().sessions;
    if json {
        let sessions: Vec<_> = sessions.iter().map(Session::from).collect();
        print_json(&sessions)?;
        return Ok(0);
    }
    for line in sessions.iter().flat_map(lines) {
        print_line(&line)?;
    }
    Ok(0)
}

/// A session as a tree.
fn lines(session: &v1::Session) -> Vec<String> {
    let owner = match session.owner() {
        v1::SessionOwner::Workload => format!("exec {}", session.exec_id),
        other => short(other.as_str_name(), "SESSION_OWNER_"),
    };
    let mut lines = vec![format!("session {} ({owner})", session.sid)];
    for group in &session.groups {
        let marker = if group.foreground { " *" } else { "" };
        lines.push(format!("  group {}{marker}", group.pgid));
        for process in &group.processes {
            let state = short(process.state().as_str_name(), "PROCESS_STATE_");
            let comm = text(&process.comm);
            lines.push(format!(
                "    {:>7}  {comm:<15}  {state:<8}  uid {}",
                process.pid, process.uid
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_a_tree() {
        let process = v1::Process {
            pid: 12,
            parent_pid: 10,
            uid: 1000,
            comm: "sleep".into(),
            state: v1::ProcessState::Stopped.into(),
        };
        let group = v1::ProcessGroup { pgid: 12, foreground: true, processes: vec![process] };
        let session = v1::Session {
            sid: 10,
            owner: v1::SessionOwner::Workload.into(),
            exec_id: "e1".into(),
            groups: vec![group],
        };
        let expected = [
            "session 10 (exec e1)",
            "  group 12 *",
            "         12  sleep            stopped   uid 1000",
        ];
        assert_eq!(lines(&session), expected);
    }
}
