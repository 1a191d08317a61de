//! Listening on a Unix socket.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host_proto::endpoint::Endpoint;
use tokio::net::{UnixListener, UnixStream};

/// Bits of a directory's mode that let others replace the socket.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Pause after the system is out of descriptors or memory for connections;
/// trying again at once would only burn time.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Why the socket could not be had.
#[derive(Debug, thiserror::Error)]
pub enum UnixBindError {
    /// Its directory cannot be used.
    #[error("the directory of the socket {path}: {source}; create it with mode 0700", path = path.display())]
    Directory {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could replace the socket.
    #[error("the directory of the socket {path} is writable by its group or by everyone: use one of mode 0700 or 0755", path = path.display())]
    OpenDirectory {
        /// The socket.
        path: PathBuf,
    },
    /// Somebody serves there.
    #[error("another agent listens on {path}: stop it or choose another path", path = path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{path} exists and is not a socket: remove it or choose another path", path = path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot listen on {path}: {source}", path = path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A listening socket; its file is removed when this is dropped.
#[derive(Debug)]
pub struct UnixChannel {
    listener: UnixListener,
    path: PathBuf,
    /// Held so that of two agents that find a stale socket one replaces it.
    _lock: File,
}

impl UnixChannel {
    /// Listens on `path` with this file mode.
    pub fn bind(path: &Path, mode: u32) -> Result<Self, UnixBindError> {
        check_directory(path)?;
        let lock_path = lock_path(path);
        let lock = take_lock(path, &lock_path)?;
        remove_stale(path)?;
        let failed = |source| UnixBindError::Bind { path: path.to_owned(), source };
        // Nobody but the owner may connect before the mode is set.
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(umask);
        let listener = listener.map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), _lock: lock })
    }

    /// Waits for a connection.
    pub async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

impl Drop for UnixChannel {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the files of an agent that ended without doing so, if it had any.
pub fn remove_files(endpoint: &Endpoint) {
    if let Endpoint::Unix(path) = endpoint {
        remove(path);
    }
}

/// What is gone already, or cannot be removed, is found stale by the next agent.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(lock_path(path));
}

fn check_directory(path: &Path) -> Result<(), UnixBindError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let metadata = std::fs::metadata(parent)
        .map_err(|source| UnixBindError::Directory { path: path.to_owned(), source })?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(UnixBindError::OpenDirectory { path: path.to_owned() });
    }
    Ok(())
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn take_lock(path: &Path, lock_path: &Path) -> Result<File, UnixBindError> {
    let failed = |source| UnixBindError::Bind { path: path.to_owned(), source };
    loop {
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(lock_path)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(UnixBindError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // An agent that ended in between has removed the file that we locked.
        let is_same =
            |there: std::fs::Metadata| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino());
        if std::fs::metadata(lock_path).is_ok_and(is_same) {
            return Ok(lock);
        }
    }
}

/// Removes a socket on which nobody listens.
fn remove_stale(path: &Path) -> Result<(), UnixBindError> {
    use std::os::unix::fs::FileTypeExt as _;
    let failed = |source| UnixBindError::Bind { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(source)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(UnixBindError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        // Somebody listens there, or might.
        _ => Err(UnixBindError::InUse { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        directory
    }

    #[tokio::test]
    async fn the_socket_has_its_mode_and_goes_with_the_channel() {
        let directory = directory();
        let path = directory.path().join("a.sock");
        let channel = UnixChannel::bind(&path, 0o640).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        drop(channel);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_second_agent_is_refused_and_does_no_harm() {
        let directory = directory();
        let path = directory.path().join("a.sock");
        let first = UnixChannel::bind(&path, 0o600).unwrap();
        assert!(matches!(UnixChannel::bind(&path, 0o600), Err(UnixBindError::InUse { .. })));
        let client = UnixStream::connect(&path).await;
        assert!(client.is_ok());
        drop(first);
        UnixChannel::bind(&path, 0o600).unwrap();
    }

    #[tokio::test]
    async fn a_socket_of_another_program_is_not_taken() {
        let directory = directory();
        let path = directory.path().join("a.sock");
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(UnixChannel::bind(&path, 0o600), Err(UnixBindError::InUse { .. })));
        drop(other);
        // Now nobody listens there.
        UnixChannel::bind(&path, 0o600).unwrap();
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let directory = directory();
        let path = directory.path().join("a.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(UnixChannel::bind(&path, 0o600), Err(UnixBindError::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let directory = directory();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o770)).unwrap();
        let path = directory.path().join("a.sock");
        assert!(matches!(
            UnixChannel::bind(&path, 0o600),
            Err(UnixBindError::OpenDirectory { .. })
        ));
        let missing = directory.path().join("no/a.sock");
        assert!(matches!(UnixChannel::bind(&missing, 0o600), Err(UnixBindError::Directory { .. })));
    }
}
