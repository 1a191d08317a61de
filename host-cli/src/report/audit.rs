//! `agentctl audit`.

use host_proto::client::Client;
use host_proto::v1;
use v1::audit_event::Event;
use v1::subscribe_response::Item;
use v1::target::Target as Whom;

use super::json::{AuditLine, Lost, LostLine};
use super::{print_json, print_line, short, text, time};
use crate::exit::Failure;

/// Shows events.
pub(crate) async fn show(
    client: &Client,
    after_sequence: u64,
    follow: bool,
    json: bool,
) -> Result<u8, Failure> {
    let request = v1::SubscribeRequest { after_sequence, follow };
    let mut events = client.audit().subscribe(request).await?.into_inner();
    while let Some(message) = events.message().await? {
        match message.item {
            Some(Item::Event(event)) if json => print_json(&AuditLine::from(&event))?,
            Some(Item::Event(event)) => print_line(&line(&event))?,
            Some(Item::Lost(lost)) if json => print_json(&LostLine {
                lost: Lost {
                    first_sequence: lost.first_sequence,
                    last_sequence: lost.last_sequence,
                },
            })?,
            Some(Item::Lost(v1::LostEvents { first_sequence: first, last_sequence: last })) => {
                print_line(&format!("{} events lost: {first} to {last}", last - first + 1))?;
            }
            None => {}
        }
    }
    Ok(0)
}

/// An event for people.
fn line(event: &v1::AuditEvent) -> String {
    let what = match &event.event {
        Some(Event::Call(event)) => call(event),
        Some(Event::Exec(event)) => exec(event),
        Some(Event::Helper(helper)) => {
            let phase = short(helper.phase().as_str_name(), "PHASE_");
            format!(
                "helper {} {phase}{}",
                helper.name,
                end(helper.phase(), helper.signal, helper.exit_code)
            )
        }
        Some(Event::ConnectionRefused(refused)) => {
            let number = |number: Option<u32>| number.map_or("?".into(), |n| n.to_string());
            format!(
                "connection refused: {} (pid {}, uid {})",
                short(refused.reason().as_str_name(), "REFUSAL_REASON_"),
                refused.pid.map_or("?".into(), |pid| pid.to_string()),
                number(refused.uid)
            )
        }
        Some(Event::Agent(agent)) => {
            format!(
                "agent {}",
                short(agent.phase().as_str_name(), "AGENT_PHASE_").replace('_', " ")
            )
        }
        None => "an event that this version does not know".into(),
    };
    let time = time(event.time).unwrap_or_default();
    let exec = if event.exec_id.is_empty() { "-" } else { &event.exec_id };
    format!("{time} #{} {exec} {what}", event.sequence)
}

fn call(call: &v1::MediatedCall) -> String {
    let caller = call.caller.clone().unwrap_or_default();
    let arguments: Vec<_> =
        call.arguments.iter().copied().take(argument_count(&call.syscall)).map(argument).collect();
    let who = match (&caller.comm, caller.pid, caller.uid) {
        (Some(comm), Some(pid), Some(uid)) => {
            format!("{} {pid}/{} uid {uid}", text(comm), caller.tid)
        }
        _ => format!("thread {}", caller.tid),
    };
    let session = |target: &v1::Target| match target.sid {
        0 => String::new(),
        sid => format!(" of session {sid}"),
    };
    let whom = match call.target.as_ref().and_then(|target| Some((target, target.target.as_ref()?)))
    {
        Some((target, Whom::Pid(pid))) => format!(" -> process {pid}{}", session(target)),
        Some((target, Whom::Pgid(pgid))) => format!(" -> group {pgid}{}", session(target)),
        Some((_, Whom::EveryProcess(_))) => " -> every process".into(),
        None => String::new(),
    };
    let answer = match call.decision() {
        v1::Decision::Deny => format!("denied {}", errno(call.errno)),
        _ => "allowed".into(),
    };
    let reason = short(call.reason().as_str_name(), "REASON_").replace('_', " ");
    let count = if call.count > 1 { format!(" x{}", call.count) } else { String::new() };
    let abi = if call.abi() == v1::Abi::Compat32 { " (32-bit)" } else { "" };
    format!(
        "{}({}){abi} by {who}{whom}: {answer}, {reason}{count}",
        call.syscall,
        arguments.join(", ")
    )
}

/// How many of the six registers a call uses.
fn argument_count(syscall: &str) -> usize {
    match syscall {
        "setsid" => 0,
        "kill" | "tkill" | "setpgid" | "socketcall" | "io_uring_setup" => 2,
        "pidfd_send_signal" | "rt_tgsigqueueinfo" => 4,
        _ => 3,
    }
}

/// A register as people write it: small negative numbers as such.
fn argument(register: u64) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "the 32-bit form is what most calls take")]
    let low = (register as u32).cast_signed();
    let high = register >> 32;
    let is_negative = low < 0 && (high == 0 || high == u64::from(u32::MAX)) && low > -0x1000_0000;
    if is_negative {
        low.to_string()
    } else if register < 0x1_0000_0000 {
        register.to_string()
    } else {
        format!("{register:#x}")
    }
}

/// The names of the errors that the agent gives, in Linux's numbers.
fn errno(number: i32) -> String {
    let name = match number {
        1 => "EPERM",
        3 => "ESRCH",
        11 => "EAGAIN",
        13 => "EACCES",
        22 => "EINVAL",
        38 => "ENOSYS",
        _ => return format!("errno {number}"),
    };
    name.into()
}

fn exec(exec: &v1::ExecLifecycle) -> String {
    let phase = short(exec.phase().as_str_name(), "PHASE_");
    match exec.phase() {
        v1::Phase::Started => {
            let argv: Vec<_> = exec.argv.iter().map(|argument| text(argument)).collect();
            format!("started as process {} uid {}: {}", exec.pid, exec.uid, argv.join(" "))
        }
        v1::Phase::Failed => format!("failed: {}", exec.error),
        v1::Phase::Stopped => format!("stopped by signal {}", exec.signal),
        other => format!("{phase}{}", end(other, exec.signal, exec.exit_code)),
    }
}

fn end(phase: v1::Phase, signal: i32, exit_code: i32) -> String {
    match (phase, signal) {
        (v1::Phase::Exited, 0) => format!(" with code {exit_code}"),
        (v1::Phase::Exited, signal) => format!(" by signal {signal}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial() -> v1::AuditEvent {
        let caller = v1::Caller { tid: 12, pid: Some(10), uid: Some(0), comm: Some("bash".into()) };
        let target = v1::Target { target: Some(Whom::Pgid(7)), sid: 5 };
        let call = v1::MediatedCall {
            syscall: "kill".into(),
            abi: v1::Abi::Native.into(),
            arguments: vec![0xffff_fff9, 15, 0, 0, 0, 0],
            caller: Some(caller),
            target: Some(target),
            decision: v1::Decision::Deny.into(),
            errno: 1,
            reason: v1::Reason::Protected.into(),
            count: 3,
        };
        v1::AuditEvent {
            sequence: 4,
            time: Some(prost_types::Timestamp { seconds: 0, nanos: 1000 }),
            exec_id: "e2".into(),
            event: Some(Event::Call(call)),
        }
    }

    #[test]
    fn a_denial_reads_as_a_sentence() {
        assert_eq!(
            line(&denial()),
            "1970-01-01T00:00:00.000001Z #4 e2 kill(-7, 15) by bash 10/12 uid 0 \
             -> group 7 of session 5: denied EPERM, protected x3"
        );
    }

    #[test]
    fn json_has_stable_names() {
        let json = serde_json::to_value(AuditLine::from(&denial())).unwrap();
        let expected = serde_json::json!({
            "sequence": 4,
            "time": "1970-01-01T00:00:00.000001Z",
            "exec_id": "e2",
            "call": {
                "syscall": "kill",
                "abi": "native",
                "arguments": [0xffff_fff9_u32, 15, 0, 0, 0, 0],
                "caller": {"tid": 12, "pid": 10, "uid": 0, "comm": "bash"},
                "target": {"pgid": 7, "sid": 5},
                "decision": "deny",
                "errno": 1,
                "reason": "protected",
                "count": 3,
            }
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn registers_are_shown_as_people_write_them() {
        for (register, shown) in [
            (7, "7"),
            (0xffff_ffff, "-1"),
            (u64::MAX, "-1"),
            (0xdead_beef_0000_0001, "0xdeadbeef00000001"),
        ] {
            assert_eq!(argument(register), shown);
        }
    }
}
