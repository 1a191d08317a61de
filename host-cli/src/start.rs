//! The request to start a command, from the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use host_proto::v1;

use crate::cli::{CommandOptions, Streams};
use crate::exit::Failure;
use crate::terminal;

/// Variables that describe the local user: another user has others.
const OF_THE_USER: [&str; 5] = ["HOME", "LOGNAME", "MAIL", "SHELL", "USER"];

/// Where the command's environment and directory come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The guest's defaults for the user.
    Guest,
    /// agentctl's own, as for an embedded agent.
    Local,
}

/// The message that starts a command.
pub(crate) fn build(
    options: &CommandOptions,
    command: &[OsString],
    streams: Streams,
    origin: Origin,
) -> Result<v1::StartExec, Failure> {
    let inherited = match origin {
        Origin::Guest => Vec::new(),
        Origin::Local => inherited(std::env::vars_os(), options.user.is_some()),
    };
    let added =
        options.env.iter().map(|entry| checked(entry)).collect::<anyhow::Result<Vec<_>>>()?;
    let working_directory = match (&options.cwd, origin) {
        (Some(directory), Origin::Local) => std::path::absolute(directory)
            .with_context(|| format!("cannot resolve {}", directory.display()))?
            .into_os_string(),
        (Some(directory), Origin::Guest) => directory.clone().into_os_string(),
        (None, Origin::Local) => std::env::current_dir()
            .context("the current directory does not exist any more: use --cwd")?
            .into_os_string(),
        (None, Origin::Guest) => OsString::new(),
    };
    Ok(v1::StartExec {
        argv: command.iter().map(|argument| bytes(argument)).collect(),
        environment: inherited.into_iter().chain(added).collect(),
        clear_environment: origin == Origin::Local && options.user.is_none(),
        working_directory: bytes(&working_directory),
        user: options
            .user
            .as_ref()
            .map(|name| v1::User { name: name.clone(), supplementary_groups: Vec::new() }),
        terminal: (streams == Streams::Terminal).then(terminal_message),
        rlimits: Vec::new(),
        umask: (origin == Origin::Local).then(own_umask),
    })
}

fn bytes(text: &OsStr) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn checked(entry: &OsStr) -> anyhow::Result<Bytes> {
    let name_length = entry.as_bytes().iter().position(|&byte| byte == b'=');
    ensure!(
        name_length.is_some_and(|length| length > 0),
        "--env '{}' is not NAME=VALUE",
        entry.to_string_lossy()
    );
    Ok(bytes(entry))
}

/// The local environment, without what describes a user who is not the command's.
fn inherited(
    variables: impl Iterator<Item = (OsString, OsString)>,
    other_user: bool,
) -> Vec<Bytes> {
    variables
        .filter(|(name, _)| !name.is_empty())
        .filter(|(name, _)| !other_user || !OF_THE_USER.iter().any(|own| *name == **own))
        .map(|(name, value)| Bytes::from([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect()
}

fn terminal_message() -> v1::Terminal {
    let term = std::env::var("TERM").unwrap_or_default();
    v1::Terminal { term, size: terminal::size() }
}

fn own_umask() -> u32 {
    // There is no call that only asks.
    let own = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(own);
    own.as_raw_mode()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> impl Iterator<Item = (OsString, OsString)> {
        [("HOME", "/root"), ("PATH", "/bin"), ("A", "1=2")]
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
    }

    #[test]
    fn another_user_does_not_get_the_local_users_variables() {
        assert_eq!(inherited(variables(), false), ["HOME=/root", "PATH=/bin", "A=1=2"]);
        assert_eq!(inherited(variables(), true), ["PATH=/bin", "A=1=2"]);
    }

    #[test]
    fn an_entry_needs_a_name() {
        assert_eq!(checked(OsStr::new("A=")).unwrap(), "A=");
        for bad in ["A", "=1", ""] {
            assert!(
                checked(OsStr::new(bad)).unwrap_err().to_string().contains("is not NAME=VALUE")
            );
        }
    }
}
