//! Moves bytes between a command's descriptors and the host's stream.
//!
//! Nothing is buffered beyond a bounded channel: a host that does not read
//! blocks the command, as a full pipe would.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, watch};

use super::life::{ExecEvent, Input, Output};
use super::terminal;

/// Bytes read at once: large enough that the per-message cost vanishes.
const CHUNK: usize = 128 * 1024;

/// Bytes a pipe holds, up to what an unprivileged process may ask for (pipe(7)).
const PIPE_SIZE: usize = 1024 * 1024;

/// A pipe for a command's output or input; the agent's end does not block.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
}

impl Pipe {
    pub(super) fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only for speed; many pipes of one user may be refused more.
        let _ = fcntl_setpipe_size(&writer, PIPE_SIZE);
        Ok(Self { reader, writer })
    }
}

/// Registers the agent's end of an output, a pipe or a terminal, with the runtime.
pub(super) fn output(descriptor: OwnedFd) -> io::Result<Receiver> {
    set_nonblocking(&descriptor)?;
    // A terminal's master is read and polled as a pipe is.
    Receiver::from_owned_fd_unchecked(descriptor)
}

/// Registers the agent's end of an input, a pipe or a terminal, with the runtime.
pub(super) fn input(descriptor: OwnedFd) -> io::Result<Sender> {
    set_nonblocking(&descriptor)?;
    Sender::from_owned_fd_unchecked(descriptor)
}

fn set_nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = fcntl_getfl(descriptor)?;
    fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?;
    Ok(())
}

/// When a pump of output ends, besides the end of the output itself.
#[derive(Debug)]
pub(super) struct Until {
    /// Turns true when the command has ended: what it wrote by then is still
    /// read, what others write later is not waited for.
    pub(super) command_ended: watch::Receiver<bool>,
    /// Turns true when the host no longer wants this output.
    pub(super) unwanted: watch::Receiver<bool>,
}

/// Sends what a descriptor yields to the host; closes it at the end.
pub(super) async fn pump_output(
    from: Receiver,
    kind: Output,
    to: mpsc::Sender<ExecEvent>,
    mut until: Until,
) {
    let mut unwanted = until.unwanted.clone();
    let pump = async {
        while let Some(chunk) = next_chunk(&from, &mut until.command_ended).await {
            if to.send(kind.event(chunk)).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = pump => {}
        _ = unwanted.wait_for(|unwanted| *unwanted) => {}
    }
}

/// The next bytes; `None` at the end, or once the command has ended and nothing
/// that it wrote is left.
async fn next_chunk(from: &Receiver, command_ended: &mut watch::Receiver<bool>) -> Option<Bytes> {
    let at_end = |chunk: io::Result<Bytes>| chunk.ok().filter(|chunk| !chunk.is_empty());
    loop {
        if *command_ended.borrow() {
            // A read of a terminal delivers what is still on its way through
            // the kernel before it says that nothing is there (n_tty_read). The
            // runtime's own readiness may lag behind, so it is not asked.
            return at_end(read(from));
        }
        tokio::select! {
            ready = from.readable() => {
                ready.ok()?;
                let mut chunk = Vec::with_capacity(CHUNK);
                match from.try_read_buf(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // EIO: nobody has the terminal open any more.
                    read => return at_end(read.map(|_| Bytes::from(chunk))),
                }
            }
            _ = command_ended.wait_for(|ended| *ended) => {}
        }
    }
}

fn read(from: impl AsFd) -> io::Result<Bytes> {
    let mut chunk = Vec::with_capacity(CHUNK);
    rustix::io::retry_on_intr(|| rustix::io::read(&from, spare_capacity(&mut chunk)))?;
    Ok(Bytes::from(chunk))
}

/// Where a command's input goes.
#[derive(Debug)]
pub(super) enum Sink {
    /// A pipe; closed at the end of the input.
    Pipe(Sender),
    /// A terminal; at the end of the input it gets its end-of-file character.
    Terminal(Sender),
}

/// Writes the host's input to the command until either of them closes.
///
/// Input that the command no longer reads is taken and dropped, so that the
/// host is never stuck with it.
pub(super) async fn feed_input(mut sink: Sink, mut from: mpsc::Receiver<Input>) {
    let mut at_line_start = true;
    while let Some(input) = from.recv().await {
        let written = match (&mut sink, input) {
            (Sink::Pipe(to) | Sink::Terminal(to), Input::Data(data)) => {
                let ends_line = |&last: &u8| last == b'\n' || last == b'\r';
                at_line_start = data.last().map_or(at_line_start, ends_line);
                to.write_all(&data).await
            }
            (Sink::Terminal(master), Input::End) => {
                let end = terminal::end_of_input(&*master, at_line_start);
                at_line_start = true;
                master.write_all(&end).await
            }
            (Sink::Pipe(_), Input::End) => break,
        };
        if written.is_err() {
            break;
        }
    }
    drop(sink);
    while from.recv().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    fn until() -> (watch::Sender<bool>, watch::Sender<bool>, Until) {
        let (ended, command_ended) = watch::channel(false);
        let (unwant, unwanted) = watch::channel(false);
        (ended, unwant, Until { command_ended, unwanted })
    }

    async fn collect(mut events: mpsc::Receiver<ExecEvent>) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(event) = events.recv().await {
            match event {
                ExecEvent::Output(Output::Stdout, bytes) => all.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
        all
    }

    #[tokio::test]
    async fn what_was_written_before_the_end_arrives_though_the_pipe_stays_open() {
        let Pipe { reader, writer } = Pipe::new().unwrap();
        let mut writer = std::fs::File::from(writer);
        let written = vec![7; 300_000];
        writer.write_all(&written).unwrap();
        let (ended, _unwant, until) = until();
        ended.send_replace(true);
        let (to, events) = mpsc::channel(1);
        let pump = tokio::spawn(pump_output(output(reader).unwrap(), Output::Stdout, to, until));
        assert_eq!(collect(events).await, written);
        pump.await.unwrap();
        drop(writer);
    }

    #[tokio::test]
    async fn an_unwanted_output_is_closed_though_the_host_does_not_read() {
        let Pipe { reader, writer } = Pipe::new().unwrap();
        let mut writer = std::fs::File::from(writer);
        writer.write_all(&vec![7; 300_000]).unwrap();
        let (_ended, unwant, until) = until();
        let (to, events) = mpsc::channel(1);
        let pump = tokio::spawn(pump_output(output(reader).unwrap(), Output::Stdout, to, until));
        unwant.send_replace(true);
        pump.await.unwrap();
        let error = writer.write_all(&[7]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        drop(events);
    }

    #[tokio::test]
    async fn input_arrives_and_ends() {
        let Pipe { reader, writer } = Pipe::new().unwrap();
        let (to, from) = mpsc::channel(1);
        let feed = tokio::spawn(feed_input(Sink::Pipe(input(writer).unwrap()), from));
        to.send(Input::Data(Bytes::from_static(b"abc"))).await.unwrap();
        to.send(Input::End).await.unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut all = String::new();
            std::fs::File::from(reader).read_to_string(&mut all).unwrap();
            all
        });
        assert_eq!(read.await.unwrap(), "abc");
        drop(to);
        feed.await.unwrap();
    }

    #[tokio::test]
    async fn input_that_nobody_reads_does_not_block_the_host() {
        let Pipe { reader, writer } = Pipe::new().unwrap();
        drop(reader);
        let (to, from) = mpsc::channel(1);
        let feed = tokio::spawn(feed_input(Sink::Pipe(input(writer).unwrap()), from));
        for _ in 0..100 {
            to.send(Input::Data(Bytes::from(vec![0; 100_000]))).await.unwrap();
        }
        drop(to);
        feed.await.unwrap();
    }
}
