//! The configuration: defaults, a TOML file, the command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use host_proto::endpoint::{Endpoint, EndpointError};
use serde::{Deserialize, Deserializer};

use crate::policy::Policy;

/// Everything an agent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where to listen.
    pub listen: Endpoint,
    /// Who may connect.
    pub channel: Channel,
    /// What is limited.
    pub limits: Limits,
    /// By which rules calls are decided.
    pub policy: Policy,
    /// Trusted processes to run beside the workload.
    pub helpers: Vec<Helper>,
    /// The token that every request must carry.
    pub token: Option<String>,
}

/// Who may connect.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Channel {
    /// Users besides root and the agent's own, on a Unix socket.
    pub allowed_uids: Vec<u32>,
    /// Context ids besides the host's, on vsock.
    pub allowed_cids: Vec<u32>,
    /// Mode of the socket.
    #[serde(deserialize_with = "octal")]
    pub socket_mode: u32,
    /// File with a token that every request must carry.
    pub token_file: Option<PathBuf>,
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            allowed_uids: Vec::new(),
            allowed_cids: Vec::new(),
            socket_mode: 0o600,
            token_file: None,
        }
    }
}

/// What is limited. Each bounds memory or descriptors of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections served at once; a host needs one or two.
    pub max_connections: usize,
    /// Execs at once; each takes a thread and half a dozen descriptors.
    pub max_execs: usize,
    /// Bytes of one request; arguments of 128 KiB and environments fit.
    pub max_message_bytes: usize,
    /// Audit events kept; a few hundred bytes each.
    pub audit_ring_events: usize,
    /// Workload sessions at once; each takes up to two descriptors.
    pub max_sessions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 64,
            max_execs: 256,
            max_message_bytes: 4 * 1024 * 1024,
            audit_ring_events: 16 * 1024,
            max_sessions: 4096,
        }
    }
}

/// A trusted process to run beside the workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Helper {
    /// Names it in the log and the audit.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Added to the agent's own environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {what} {path}: {source}", path = path.display())]
    Unreadable {
        /// What it is.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not valid TOML, or not our keys.
    #[error("configuration file {path}: {source}", path = path.display())]
    Invalid {
        /// Where it is.
        path: PathBuf,
        /// What is wrong, with the place.
        source: Box<toml::de::Error>,
    },
    /// The endpoint cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// None was named.
    #[error(
        "no endpoint to listen on: use --listen unix:///PATH, --listen vsock://any:PORT or the key 'listen'"
    )]
    NoEndpoint,
    /// A limit of zero.
    #[error("limits.{0} must be at least 1")]
    ZeroLimit(&'static str),
    /// A helper without a command, or two of one name.
    #[error("helper '{name}': {problem}")]
    Helper {
        /// Which.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A token that cannot be sent as metadata.
    #[error("the token file {path} must hold one line of visible ASCII characters", path = path.display())]
    Token {
        /// Where it is.
        path: PathBuf,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    listen: Option<String>,
    channel: Channel,
    limits: Limits,
    policy: Policy,
    helper: Vec<Helper>,
}

/// Reads `"0600"`: TOML's own octal numbers are easily forgotten.
fn octal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    const MODE_BITS: u32 = 0o777;
    let text = String::deserialize(deserializer)?;
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= MODE_BITS);
    mode.ok_or_else(|| {
        serde::de::Error::custom(format!("'{text}' is not a file mode: write it like \"0600\""))
    })
}

impl Config {
    /// Reads the file, if there is one; `listen` of the command line wins.
    pub fn load(file: Option<&Path>, listen: Option<&str>) -> Result<Self, ConfigError> {
        let text = file.map(|path| read("configuration file", path)).transpose()?;
        let parsed = match (file, text) {
            (Some(path), Some(text)) => toml::from_str(&text).map_err(|source| {
                ConfigError::Invalid { path: path.to_owned(), source: Box::new(source) }
            })?,
            _ => File::default(),
        };
        let listen = listen.or(parsed.listen.as_deref()).ok_or(ConfigError::NoEndpoint)?;
        let token = parsed.channel.token_file.as_deref().map(read_token).transpose()?;
        let config = Self {
            listen: listen.parse()?,
            channel: parsed.channel,
            limits: parsed.limits,
            policy: parsed.policy,
            helpers: parsed.helper,
            token,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let Limits {
            max_connections,
            max_execs,
            max_message_bytes,
            audit_ring_events,
            max_sessions,
        } = self.limits;
        for (name, limit) in [
            ("max_connections", max_connections),
            ("max_execs", max_execs),
            ("max_message_bytes", max_message_bytes),
            ("audit_ring_events", audit_ring_events),
            ("max_sessions", max_sessions),
        ] {
            if limit == 0 {
                return Err(ConfigError::ZeroLimit(name));
            }
        }
        for (index, helper) in self.helpers.iter().enumerate() {
            let problem = |problem| ConfigError::Helper { name: helper.name.clone(), problem };
            if helper.command.is_empty() {
                return Err(problem("its command is empty"));
            }
            if self.helpers[..index].iter().any(|other| other.name == helper.name) {
                return Err(problem("there are two of this name"));
            }
        }
        Ok(())
    }
}

fn read(what: &'static str, path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
        what,
        path: path.to_owned(),
        source,
    })
}

fn read_token(path: &Path) -> Result<String, ConfigError> {
    let text = read("token file", path)?;
    let token = text.trim_end_matches(['\r', '\n']);
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConfigError::Token { path: path.to_owned() });
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ExecIsolation, OwnGroupSignals};

    fn load(text: &str) -> Result<Config, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(Some(&path), Some("unix:///run/a.sock"))
    }

    fn error(text: &str) -> String {
        load(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = load("").unwrap();
        assert_eq!(config, Config::load(None, Some("unix:///run/a.sock")).unwrap());
        assert_eq!(config.channel.socket_mode, 0o600);
        assert_eq!(config.policy, Policy::default());
    }

    #[test]
    fn every_key_is_read() {
        let config = load(
            r#"
            listen = "unix:///ignored"
            [channel]
            allowed_uids = [0, 1000]
            allowed_cids = [42]
            socket_mode = "0660"
            [limits]
            max_connections = 1
            max_execs = 2
            max_message_bytes = 3
            audit_ring_events = 4
            max_sessions = 5
            [policy]
            exec_isolation = "shared"
            own_group_signals = "inline"
            [[helper]]
            name = "proxy"
            command = ["/bin/proxy", "--port"]
            [helper.environment]
            A = "B"
            "#,
        )
        .unwrap();
        assert_eq!(config.listen.to_string(), "unix:///run/a.sock");
        assert_eq!(config.channel.allowed_uids, [0, 1000]);
        assert_eq!(config.channel.allowed_cids, [42]);
        assert_eq!(config.channel.socket_mode, 0o660);
        assert_eq!((config.limits.max_connections, config.limits.max_sessions), (1, 5));
        assert_eq!(config.policy.exec_isolation, ExecIsolation::Shared);
        assert_eq!(config.policy.own_group_signals, OwnGroupSignals::Inline);
        assert_eq!(config.helpers[0].environment["A"], "B");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(error("lisen = 1").contains("unknown field `lisen`"));
        assert!(error("[channel]\nsocket_mode = \"9\"").contains("is not a file mode"));
        assert!(error("[channel]\nsocket_mode = \"4755\"").contains("is not a file mode"));
        assert!(error("[policy]\nexec_isolation = \"no\"").contains("unknown variant `no`"));
        assert!(error("[limits]\nmax_execs = 0").contains("limits.max_execs must be at least 1"));
        assert!(error("[limits]\nmax_execs = -1").contains("max_execs"));
        assert!(error("[[helper]]\nname = \"a\"\ncommand = []").contains("its command is empty"));
        let two = "[[helper]]\nname = \"a\"\ncommand = [\"b\"]\n".repeat(2);
        assert!(error(&two).contains("two of this name"));
        assert!(
            error("[channel]\ntoken_file = \"/nonexistent\"").contains("cannot read token file")
        );
    }

    #[test]
    fn an_endpoint_is_needed() {
        assert!(matches!(Config::load(None, None), Err(ConfigError::NoEndpoint)));
        let missing = Config::load(Some(Path::new("/nonexistent")), None).unwrap_err();
        assert!(missing.to_string().contains("cannot read configuration file /nonexistent"));
    }

    #[test]
    fn a_token_is_one_visible_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for (text, expected) in
            [("abc\n", Some("abc")), ("", None), ("a b", None), ("a\nb", None), ("ä", None)]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_token(&path).ok().as_deref(), expected, "{text:?}");
        }
    }
}
