//! From a `StartExec` message to a validated request.

use std::ffi::CString;

use bytes::Bytes;
use host_proto::error::Reason;
use host_proto::v1;
use tonic::Status;

use crate::exec::{
    Directory, ExecRequest, Limit, ResourceName, TerminalRequest, UserRequest, Window,
};

/// TERM where the request names none.
const DEFAULT_TERM: &str = "xterm-256color";

/// Mask where the request has none.
const DEFAULT_UMASK: u32 = 0o022;

/// The bits of a file mode.
const MODE_BITS: u32 = 0o777;

/// Validates a request to start a command.
pub(super) fn request(start: v1::StartExec) -> Result<ExecRequest, Status> {
    let argv = strings(start.argv, Reason::InvalidCommand, "an argument")?;
    if argv.first().is_none_or(|command| command.is_empty()) {
        return Err(Reason::InvalidCommand.status("the command is empty"));
    }
    let environment =
        strings(start.environment, Reason::InvalidEnvironment, "an environment entry")?;
    if let Some(entry) = environment.iter().find(|entry| !has_name(entry)) {
        return Err(Reason::InvalidEnvironment.status(format!(
            "the environment entry '{}' is not NAME=VALUE",
            entry.to_string_lossy()
        )));
    }
    let umask = start.umask.unwrap_or(DEFAULT_UMASK);
    if umask > MODE_BITS {
        return Err(Reason::InvalidCommand.status(format!("the umask {umask:o} is above 777")));
    }
    Ok(ExecRequest {
        argv,
        environment,
        clear_environment: start.clear_environment,
        directory: directory(&start.working_directory)?,
        user: start.user.map(|user| UserRequest {
            name: user.name,
            supplementary_groups: user.supplementary_groups,
        }),
        terminal: start.terminal.map(terminal).transpose()?,
        limits: start.rlimits.iter().map(limit).collect::<Result<_, _>>()?,
        umask,
    })
}

fn strings(texts: Vec<Bytes>, reason: Reason, what: &str) -> Result<Vec<CString>, Status> {
    let string = |text: Bytes| {
        CString::new(text.to_vec()).map_err(|_| reason.status(format!("{what} has a NUL byte")))
    };
    texts.into_iter().map(string).collect()
}

fn has_name(entry: &CString) -> bool {
    entry.to_bytes().iter().position(|&byte| byte == b'=').is_some_and(|at| at > 0)
}

fn directory(path: &Bytes) -> Result<Directory, Status> {
    if path.is_empty() {
        return Ok(Directory::Home);
    }
    let invalid = |problem| {
        let shown = String::from_utf8_lossy(path);
        Reason::InvalidDirectory.status(format!("the working directory '{shown}' {problem}"))
    };
    if !path.starts_with(b"/") {
        return Err(invalid("is not an absolute path"));
    }
    CString::new(path.to_vec()).map(Directory::Path).map_err(|_| invalid("has a NUL byte"))
}

fn terminal(terminal: v1::Terminal) -> Result<TerminalRequest, Status> {
    let term = if terminal.term.is_empty() { DEFAULT_TERM.into() } else { terminal.term };
    let term = CString::new(term)
        .map_err(|_| Reason::InvalidEnvironment.status("the value of TERM has a NUL byte"))?;
    let size = terminal.size.unwrap_or(v1::WindowSize { rows: 24, columns: 80 });
    Ok(TerminalRequest { term, window: window(size)? })
}

/// Validates a terminal's size.
pub(super) fn window(size: v1::WindowSize) -> Result<Window, Status> {
    Window::new(size.rows, size.columns).ok_or_else(|| {
        Reason::InvalidWindow.status(format!(
            "a window of {} rows and {} columns: both must be 1 to 65535",
            size.rows, size.columns
        ))
    })
}

fn limit(limit: &v1::ResourceLimit) -> Result<Limit, Status> {
    let name = &limit.resource;
    let invalid = |problem: &str| {
        Reason::InvalidRlimit.status(format!("the resource limit '{name}' {problem}"))
    };
    let resource = ResourceName::parse(name)
        .ok_or_else(|| invalid("does not exist: use a name of setrlimit(2) such as NOFILE"))?;
    let above = |soft: Option<u64>, hard: u64| soft.is_none_or(|soft| soft > hard);
    if limit.hard.is_some_and(|hard| above(limit.soft, hard)) {
        return Err(invalid("has a soft value above the hard one"));
    }
    Ok(Limit { resource, soft: limit.soft, hard: limit.hard })
}

/// Validates a signal's number: 1 to the kernel's last.
pub(super) fn signal(number: i32) -> Result<i32, Status> {
    const LAST_SIGNAL: i32 = 64;
    if (1..=LAST_SIGNAL).contains(&number) {
        return Ok(number);
    }
    Err(Reason::InvalidSignal
        .status(format!("there is no signal {number}: use 1 to {LAST_SIGNAL}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> v1::StartExec {
        v1::StartExec { argv: vec!["true".into()], ..Default::default() }
    }

    fn reason(change: impl FnOnce(&mut v1::StartExec)) -> Option<Reason> {
        let mut start = start();
        change(&mut start);
        request(start).err().as_ref().and_then(Reason::of)
    }

    #[test]
    fn a_command_is_enough() {
        let request = request(start()).unwrap();
        assert_eq!(request.argv, [c"true".to_owned()]);
        assert_eq!(request.directory, Directory::Home);
        assert_eq!((request.umask, request.terminal.is_some()), (0o022, false));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        use Reason::{
            InvalidCommand, InvalidDirectory, InvalidEnvironment, InvalidRlimit, InvalidWindow,
        };
        assert_eq!(reason(|s| s.argv = vec![]), Some(InvalidCommand));
        assert_eq!(reason(|s| s.argv = vec!["".into()]), Some(InvalidCommand));
        assert_eq!(reason(|s| s.argv.push("a\0b".into())), Some(InvalidCommand));
        assert_eq!(reason(|s| s.umask = Some(0o1000)), Some(InvalidCommand));
        for entry in ["A", "=1", "", "A\0=1"] {
            assert_eq!(reason(|s| s.environment = vec![entry.into()]), Some(InvalidEnvironment));
        }
        assert_eq!(reason(|s| s.working_directory = "tmp".into()), Some(InvalidDirectory));
        assert_eq!(reason(|s| s.working_directory = "/a\0".into()), Some(InvalidDirectory));
        let window = |rows, columns| {
            reason(|s| {
                let size = Some(v1::WindowSize { rows, columns });
                s.terminal = Some(v1::Terminal { size, ..Default::default() });
            })
        };
        assert_eq!(window(0, 80), Some(InvalidWindow));
        assert_eq!(window(24, 65_536), Some(InvalidWindow));
        assert_eq!(window(1, 10_000), None);
        let limit = |resource: &str, soft, hard| {
            let resource = resource.to_owned();
            reason(|s| s.rlimits = vec![v1::ResourceLimit { resource, soft, hard }])
        };
        assert_eq!(limit("FILES", None, None), Some(InvalidRlimit));
        assert_eq!(limit("NOFILE", Some(2), Some(1)), Some(InvalidRlimit));
        assert_eq!(limit("NOFILE", None, Some(1)), Some(InvalidRlimit));
        assert_eq!(limit("NOFILE", Some(1), Some(1)), None);
    }

    #[test]
    fn signals_have_numbers_from_1_to_64() {
        for good in [1, 9, 64] {
            assert_eq!(signal(good).unwrap(), good);
        }
        for bad in [0, -1, 65, i32::MIN] {
            assert_eq!(Reason::of(&signal(bad).unwrap_err()), Some(Reason::InvalidSignal));
        }
    }
}
