//! The handshake by which a host reaches a guest's vsock port through the Unix
//! socket of its VMM.
//!
//! The host writes `CONNECT PORT\n`, the VMM answers `OK N\n` once a process in
//! the guest has accepted, and from then on the stream is the guest's. The guest
//! may speak at once, so nothing beyond the newline is read here.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest answer: `OK ` and a number of ten digits, with room to spare.
const LONGEST_ANSWER: usize = 32;

/// Why a guest's port was not reached.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The VMM closed the stream: nobody listens in the guest, or it has not booted.
    #[error("nobody listens on port {0} in the guest (yet)")]
    NobodyListens(u32),
    /// It said something else.
    #[error("the VMM answered '{0}' where 'OK' was expected: is this its vsock socket?")]
    Unexpected(String),
    /// It said too much.
    #[error("the VMM's answer is longer than {LONGEST_ANSWER} bytes: is this its vsock socket?")]
    TooLong,
    /// The stream failed.
    #[error("the VMM's socket failed: {0}")]
    Io(io::Error),
}

/// Asks for a port of the guest.
pub async fn handshake<S>(stream: &mut S, port: u32) -> Result<(), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // In one write: some VMMs read it nonblocking, and only once.
    let request = format!("CONNECT {port}\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| broken(error, port))?;
    let mut answer = Vec::with_capacity(LONGEST_ANSWER);
    loop {
        let byte = match stream.read_u8().await {
            Ok(byte) => byte,
            Err(error) => return Err(broken(error, port)),
        };
        if byte == b'\n' {
            break;
        }
        answer.push(byte);
        if answer.len() == LONGEST_ANSWER {
            return Err(HandshakeError::TooLong);
        }
    }
    // What follows is the host's port with some VMMs, the guest's with others.
    if answer.starts_with(b"OK ") {
        return Ok(());
    }
    Err(HandshakeError::Unexpected(String::from_utf8_lossy(&answer).into_owned()))
}

/// A stream that the VMM closes or resets says that nobody listens.
fn broken(error: io::Error, port: u32) -> HandshakeError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => HandshakeError::NobodyListens(port),
        _ => HandshakeError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the handshake against a VMM that answers this; returns what the
    /// stream holds after it.
    async fn shake(answer: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        let (mut host, mut vmm) = tokio::io::duplex(1024);
        let answer = answer.to_vec();
        let vmm = tokio::spawn(async move {
            let mut request = [0; 13];
            vmm.read_exact(&mut request).await.unwrap();
            assert_eq!(&request, b"CONNECT 4810\n");
            vmm.write_all(&answer).await.unwrap();
        });
        handshake(&mut host, 4810).await?;
        vmm.await.unwrap();
        let mut rest = Vec::new();
        host.read_to_end(&mut rest).await.unwrap();
        Ok(rest)
    }

    #[tokio::test]
    async fn what_the_guest_says_at_once_is_left_in_the_stream() {
        assert_eq!(shake(b"OK 1073741824\nPRI * HTTP/2.0").await.unwrap(), b"PRI * HTTP/2.0");
    }

    #[tokio::test]
    async fn a_port_without_listener_is_told() {
        assert!(matches!(shake(b"").await, Err(HandshakeError::NobodyListens(4810))));
    }

    #[tokio::test]
    async fn another_protocol_is_told() {
        let error = shake(b"HTTP/1.1 400 Bad Request\n").await.unwrap_err();
        assert!(matches!(error, HandshakeError::Unexpected(ref said) if said.starts_with("HTTP")));
        assert!(matches!(shake(&[b'O'; 1000]).await, Err(HandshakeError::TooLong)));
        assert!(matches!(shake(b"OKAY\n").await, Err(HandshakeError::Unexpected(_))));
    }
}
