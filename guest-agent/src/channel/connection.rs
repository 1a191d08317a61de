//! Connections and their number.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

/// Connections that are told of the limit instead of served. Those above are
/// closed without a word, so that a flood of them takes no descriptors.
const TOLD_OF_LIMIT: usize = 16;

/// Counts connections.
#[derive(Clone, Debug)]
pub struct Connections {
    served: Arc<Semaphore>,
    refused: Arc<Semaphore>,
}

/// Whether the requests of a connection are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// They are.
    Served,
    /// There are too many connections: each request is refused with a reason.
    OverLimit,
}

impl Connections {
    /// Serves up to `limit` at once.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let refused = Arc::new(Semaphore::new(TOLD_OF_LIMIT));
        Self { served: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))), refused }
    }

    /// Counts a connection in; `None` if there are far too many.
    #[must_use]
    pub fn take(&self, stream: BoxedStream) -> Option<Connection> {
        let take = |slots: &Arc<Semaphore>| Arc::clone(slots).try_acquire_owned().ok();
        let (admission, slot) = match take(&self.served) {
            Some(slot) => (Admission::Served, slot),
            None => (Admission::OverLimit, take(&self.refused)?),
        };
        Some(Connection { stream, admission, _slot: slot })
    }
}

/// What a connection needs of its stream.
pub trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// A stream of whatever channel.
pub type BoxedStream = Pin<Box<dyn Stream>>;

/// A connection, counted until it is dropped.
pub struct Connection {
    stream: BoxedStream,
    admission: Admission,
    _slot: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = Admission;

    fn connect_info(&self) -> Admission {
        self.admission
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.stream.as_mut().poll_write(context, data)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
