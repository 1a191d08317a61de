//! Local outputs, written by threads so that a slow reader holds up nothing else.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread::JoinHandle;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

/// Chunks that wait to be written.
const AHEAD: usize = 2;

/// A local output.
#[derive(Debug)]
pub(crate) struct Output {
    /// `None` once the output was found lost.
    to: Option<mpsc::Sender<Item>>,
    thread: Option<JoinHandle<Loss>>,
}

#[derive(Debug)]
enum Item {
    Data(Bytes),
    /// Answered once everything before it is written.
    Flush(oneshot::Sender<()>),
}

/// Why nothing more can be written.
#[derive(Debug)]
pub(crate) enum Loss {
    /// Nobody reads any more.
    ReaderGone,
    /// Anything else, a full disk for instance.
    Failed(io::Error),
}

impl Output {
    /// Writes to a descriptor from now on.
    pub(crate) fn new(name: &str, to: BorrowedFd<'static>) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(AHEAD);
        // Detached: a write that nobody takes dies with the process.
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(move || write(to, receiver))?;
        Ok(Self { to: Some(sender), thread: Some(thread) })
    }

    /// Writes in time; waits while too much is unwritten. What is written to a
    /// lost output is dropped.
    pub(crate) async fn write(&self, data: Bytes) {
        if let Some(to) = &self.to {
            let _ = to.send(Item::Data(data)).await;
        }
    }

    /// Waits until all is written, or the output is lost.
    pub(crate) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        if let Some(to) = &self.to {
            let _ = to.send(Item::Flush(done)).await;
            let _ = is_done.await;
        }
    }

    /// Waits until the output is lost; reports it once. Can be dropped and called
    /// again at any time.
    pub(crate) async fn lost(&mut self) -> Loss {
        match &self.to {
            Some(to) => to.closed().await,
            None => std::future::pending().await,
        }
        self.to = None;
        let thread = self.thread.take().map(JoinHandle::join);
        match thread {
            Some(Ok(loss)) => loss,
            // The panic has been printed.
            Some(Err(_)) | None => Loss::Failed(io::Error::other("its writer ended")),
        }
    }
}

/// Writes what comes until that fails, or nothing comes any more.
fn write(to: BorrowedFd<'_>, mut from: mpsc::Receiver<Item>) -> Loss {
    while let Some(item) = from.blocking_recv() {
        match item {
            Item::Data(data) => match write_all(to, &data) {
                Ok(()) => {}
                Err(Errno::PIPE) => return Loss::ReaderGone,
                Err(error) => return Loss::Failed(error.into()),
            },
            Item::Flush(done) => {
                // Nobody may want to know any more.
                let _ = done.send(());
            }
        }
    }
    Loss::ReaderGone
}

fn write_all(to: BorrowedFd<'_>, mut data: &[u8]) -> rustix::io::Result<()> {
    while !data.is_empty() {
        match rustix::io::write(to, data) {
            Ok(length) => data = &data[length..],
            Err(Errno::INTR) => {}
            // Whoever shares the output may have made it non-blocking.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::{AsRawFd as _, OwnedFd};

    /// A pipe whose writing end stays open, as a standard output does.
    fn pipe() -> (std::fs::File, BorrowedFd<'static>) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let writer: &'static OwnedFd = Box::leak(Box::new(writer));
        assert!(writer.as_raw_fd() > 2);
        (std::fs::File::from(reader), std::os::fd::AsFd::as_fd(writer))
    }

    #[tokio::test]
    async fn everything_is_written_before_a_flush_ends() {
        let (mut reader, writer) = pipe();
        let output = Output::new("test", writer).unwrap();
        output.write(Bytes::from_static(b"abc")).await;
        output.write(Bytes::from_static(b"def")).await;
        output.flush().await;
        let mut read = [0; 6];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"abcdef");
    }

    #[tokio::test]
    async fn a_full_non_blocking_pipe_is_waited_for() {
        let (mut reader, writer) = pipe();
        let flags = rustix::fs::fcntl_getfl(writer).unwrap();
        rustix::fs::fcntl_setfl(writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
        let output = Output::new("test", writer).unwrap();
        let data = Bytes::from(vec![7; 1_000_000]);
        let read = std::thread::spawn(move || {
            let mut read = vec![0; 1_000_000];
            reader.read_exact(&mut read).map(|()| read)
        });
        output.write(data.clone()).await;
        output.flush().await;
        assert_eq!(read.join().unwrap().unwrap(), data);
    }

    #[tokio::test]
    async fn a_reader_that_goes_is_noticed_once_and_blocks_nothing() {
        let (reader, writer) = pipe();
        let mut output = Output::new("test", writer).unwrap();
        drop(reader);
        output.write(Bytes::from_static(b"abc")).await;
        assert!(matches!(output.lost().await, Loss::ReaderGone));
        for _ in 0..10 {
            output.write(Bytes::from_static(b"abc")).await;
        }
        output.flush().await;
    }
}
