//! Addresses of agents: `unix://PATH`, `vsock://CID:PORT`, `hvsock://PATH:PORT`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest path that fits `sockaddr_un.sun_path` with its final NUL, in
/// bytes (108 on Linux, 104 on macOS).
pub const MAX_UNIX_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// `VMADDR_CID_HOST`, vsock(7): the host, seen from a guest.
pub const VSOCK_HOST_CID: u32 = 2;

/// `VMADDR_CID_ANY`, vsock(7): for a listener, every address of its own.
pub const VSOCK_ANY_CID: u32 = u32::MAX;

/// The vsock port agents listen on unless told otherwise. Not 1024, where other
/// guest agents listen by custom.
pub const DEFAULT_VSOCK_PORT: u32 = 4810;

/// Where an agent listens, or a host that it dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket, by absolute path.
    Unix(PathBuf),
    /// A vsock address.
    Vsock {
        /// The context id; [`VSOCK_ANY_CID`] to listen.
        cid: u32,
        /// The port.
        port: u32,
    },
    /// A guest's vsock port, reached on the host through the Unix socket of its
    /// VMM with a text handshake (Firecracker, Cloud Hypervisor, vhost-device-vsock).
    Hvsock {
        /// The VMM's socket, by absolute path.
        path: PathBuf,
        /// The port in the guest.
        port: u32,
    },
}

/// Why a text is not an endpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EndpointError {
    /// No `scheme://`.
    #[error(
        "endpoint '{0}' has no scheme: write it as unix:///PATH, vsock://CID:PORT or hvsock:///PATH:PORT"
    )]
    NoScheme(String),
    /// A scheme that this version does not know.
    #[error(
        "endpoint '{endpoint}' has the unknown scheme '{scheme}': known are unix, vsock and hvsock"
    )]
    UnknownScheme {
        /// The whole text.
        endpoint: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// A relative path.
    #[error("endpoint '{0}' needs an absolute path, as in unix:///PATH")]
    RelativePath(String),
    /// A path too long for the kernel.
    #[error("socket path '{path}' has {length} bytes, the kernel takes at most {MAX_UNIX_PATH}: use a shorter directory", path = path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// A NUL byte in the path.
    #[error("endpoint '{0}' has a NUL byte in its path")]
    NulByte(String),
    /// No port, or one that is no number.
    #[error("endpoint '{0}' needs a port of 1 to 4294967294, as in vsock://3:{DEFAULT_VSOCK_PORT}")]
    Port(String),
    /// No context id, or one that is no number.
    #[error(
        "endpoint '{0}' needs a context id, as in vsock://3:{DEFAULT_VSOCK_PORT}; to listen write vsock://any:PORT"
    )]
    Cid(String),
}

impl Endpoint {
    /// The endpoint of a Unix socket at `path`.
    pub fn unix(path: &Path) -> Result<Self, EndpointError> {
        check_path(path, &format!("unix://{}", path.display()))?;
        Ok(Self::Unix(path.to_owned()))
    }
}

fn check_path(path: &Path, endpoint: &str) -> Result<(), EndpointError> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if !path.is_absolute() {
        return Err(EndpointError::RelativePath(endpoint.to_owned()));
    }
    if bytes.contains(&0) {
        return Err(EndpointError::NulByte(endpoint.to_owned()));
    }
    if bytes.len() > MAX_UNIX_PATH {
        return Err(EndpointError::PathTooLong { path: path.to_owned(), length: bytes.len() });
    }
    Ok(())
}

fn port(text: &str, endpoint: &str) -> Result<u32, EndpointError> {
    let port = text.parse().ok().filter(|port| (1..u32::MAX).contains(port));
    port.ok_or_else(|| EndpointError::Port(endpoint.to_owned()))
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| EndpointError::NoScheme(text.to_owned()))?;
        let with_port =
            || rest.rsplit_once(':').ok_or_else(|| EndpointError::Port(text.to_owned()));
        match scheme {
            "unix" => Self::unix(Path::new(rest)),
            "vsock" => {
                let (cid, port_text) = with_port()?;
                let cid = if cid == "any" { Some(VSOCK_ANY_CID) } else { cid.parse().ok() };
                let cid = cid.ok_or_else(|| EndpointError::Cid(text.to_owned()))?;
                Ok(Self::Vsock { cid, port: port(port_text, text)? })
            }
            "hvsock" => {
                let (path, port_text) = with_port()?;
                check_path(Path::new(path), text)?;
                Ok(Self::Hvsock { path: path.into(), port: port(port_text, text)? })
            }
            _ => Err(EndpointError::UnknownScheme {
                endpoint: text.to_owned(),
                scheme: scheme.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Vsock { cid: VSOCK_ANY_CID, port } => write!(f, "vsock://any:{port}"),
            Self::Vsock { cid, port } => write!(f, "vsock://{cid}:{port}"),
            Self::Hvsock { path, port } => write!(f, "hvsock://{}:{port}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_written_as_they_are_read() {
        let hvsock = Endpoint::Hvsock { path: "/run/a:b.sock".into(), port: 7 };
        for (text, expected) in [
            ("unix:///run/agent.sock", Endpoint::Unix("/run/agent.sock".into())),
            ("vsock://3:4810", Endpoint::Vsock { cid: 3, port: 4810 }),
            ("vsock://any:1", Endpoint::Vsock { cid: VSOCK_ANY_CID, port: 1 }),
            ("hvsock:///run/a:b.sock:7", hvsock),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint, expected);
            assert_eq!(endpoint.to_string(), text);
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let parse = |text: &str| text.parse::<Endpoint>().unwrap_err();
        assert_eq!(parse("/run/a"), EndpointError::NoScheme("/run/a".into()));
        assert_eq!(parse("unix://a"), EndpointError::RelativePath("unix://a".into()));
        assert_eq!(parse("unix://"), EndpointError::RelativePath("unix://".into()));
        assert_eq!(parse("unix:///a\0b"), EndpointError::NulByte("unix:///a\0b".into()));
        assert_eq!(parse("hvsock://a:1"), EndpointError::RelativePath("hvsock://a:1".into()));
        assert!(parse("tcp://1.2.3.4:5").to_string().contains("unknown scheme 'tcp'"));
        for text in [
            "vsock://3",
            "vsock://3:",
            "vsock://3:0",
            "vsock://3:4294967295",
            "hvsock:///a",
            "hvsock:///a:-1",
        ] {
            assert_eq!(parse(text), EndpointError::Port(text.into()));
        }
        for text in ["vsock://:1", "vsock://x:1", "vsock://-1:1"] {
            assert_eq!(parse(text), EndpointError::Cid(text.into()));
        }
    }

    #[test]
    fn limits_the_path_to_what_the_kernel_takes() {
        let path = |length: usize| format!("unix:///{}", "x".repeat(length - 1));
        assert!(path(MAX_UNIX_PATH).parse::<Endpoint>().is_ok());
        let error = path(MAX_UNIX_PATH + 1).parse::<Endpoint>().unwrap_err();
        assert!(
            matches!(error, EndpointError::PathTooLong { length, .. } if length == MAX_UNIX_PATH + 1)
        );
    }
}
