//! Addresses of agents: `unix://PATH`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest path that fits `sockaddr_un.sun_path` with its final NUL, in
/// bytes, on every host this crate builds for (108 on Linux, 104 on macOS).
pub const MAX_UNIX_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Where an agent listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket, by absolute path.
    Unix(PathBuf),
}

/// Why a text is not an endpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EndpointError {
    /// No `scheme://`.
    #[error("endpoint '{0}' has no scheme: write it as unix:///PATH")]
    NoScheme(String),
    /// A scheme that this version does not know.
    #[error("endpoint '{endpoint}' has the unknown scheme '{scheme}': known is unix://")]
    UnknownScheme {
        /// The whole text.
        endpoint: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// A relative path.
    #[error("endpoint '{0}' needs an absolute path: write it as unix:///PATH")]
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
}

impl Endpoint {
    /// The endpoint of a Unix socket at `path`.
    pub fn unix(path: &Path) -> Result<Self, EndpointError> {
        let length = path.as_os_str().len();
        let shown = || format!("unix://{}", path.display());
        if !path.is_absolute() {
            return Err(EndpointError::RelativePath(shown()));
        }
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(EndpointError::NulByte(shown()));
        }
        if length > MAX_UNIX_PATH {
            return Err(EndpointError::PathTooLong { path: path.to_owned(), length });
        }
        Ok(Self::Unix(path.to_owned()))
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once("://") {
            Some(("unix", path)) => Self::unix(Path::new(path)),
            Some((scheme, _)) => Err(EndpointError::UnknownScheme {
                endpoint: text.to_owned(),
                scheme: scheme.to_owned(),
            }),
            None => Err(EndpointError::NoScheme(text.to_owned())),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_an_absolute_unix_path() {
        let endpoint: Endpoint = "unix:///run/agent.sock".parse().unwrap();
        assert_eq!(endpoint, Endpoint::Unix("/run/agent.sock".into()));
        assert_eq!(endpoint.to_string(), "unix:///run/agent.sock");
    }

    #[test]
    fn says_what_is_wrong() {
        let parse = |text: &str| text.parse::<Endpoint>().unwrap_err();
        assert_eq!(parse("/run/a"), EndpointError::NoScheme("/run/a".into()));
        assert_eq!(parse("unix://a"), EndpointError::RelativePath("unix://a".into()));
        assert_eq!(parse("unix://"), EndpointError::RelativePath("unix://".into()));
        assert_eq!(parse("unix:///a\0b"), EndpointError::NulByte("unix:///a\0b".into()));
        assert!(parse("tcp://1.2.3.4:5").to_string().contains("unknown scheme 'tcp'"));
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
