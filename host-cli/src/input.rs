//! Standard input, read by a thread so that nothing waits for it in the end.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bytes::Bytes;
use host_proto::exec::{ExecControl, INPUT_CHUNK};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{isatty, tcgetpgrp};
use tokio::sync::mpsc;

/// Chunks read ahead of the command.
const AHEAD: usize = 2;

/// Up to this many bytes are copied out of the buffer, which is then used again.
const COPIED: usize = 4096;

/// Pause before a job in the background looks again whether it may read.
const BACKGROUND: Duration = Duration::from_millis(100);

/// Sends standard input to a command until either ends.
pub(crate) async fn forward(control: ExecControl) {
    let (to, mut from) = mpsc::channel(AHEAD);
    // Detached: a read cannot be interrupted, and dies with the process.
    let reader = std::thread::Builder::new().name("stdin".into()).spawn(move || read_all(&to));
    if reader.is_err() {
        // Without a thread there is no input; the command sees its end.
        from.close();
    }
    while let Some(chunk) = from.recv().await {
        if control.stdin(chunk).await.is_err() {
            return;
        }
    }
    let _ = control.close_stdin().await;
}

fn read_all(to: &mpsc::Sender<Bytes>) {
    let stdin = rustix::stdio::stdin();
    let is_terminal = isatty(stdin);
    let mut buffer = Vec::with_capacity(INPUT_CHUNK);
    loop {
        wait_readable(stdin);
        if is_terminal && is_background(stdin) {
            // The input is another job's. A read would stop this one, though its
            // command may not want any input.
            std::thread::sleep(BACKGROUND);
            continue;
        }
        match rustix::io::read(stdin, spare_capacity(&mut buffer)) {
            // The end; the terminal has gone; closed by whoever started us.
            Ok(0) | Err(Errno::IO | Errno::BADF) => return,
            Ok(_) => {
                if to.blocking_send(take(&mut buffer)).is_err() {
                    return;
                }
            }
            // Whoever shares the input may have made it non-blocking.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => {
                let error = io::Error::from(error);
                eprintln!("agentctl: cannot read standard input: {error}");
                return;
            }
        }
    }
}

/// What was read, without copying much.
fn take(buffer: &mut Vec<u8>) -> Bytes {
    if buffer.len() > COPIED {
        return Bytes::from(std::mem::replace(buffer, Vec::with_capacity(INPUT_CHUNK)));
    }
    let bytes = Bytes::copy_from_slice(buffer);
    buffer.clear();
    bytes
}

/// Waits for input; whatever cannot be waited for is found out by reading.
fn wait_readable(input: BorrowedFd<'_>) {
    let _ = poll(&mut [PollFd::new(&input, PollFlags::IN)], None);
}

fn is_background(terminal: BorrowedFd<'_>) -> bool {
    tcgetpgrp(terminal).is_ok_and(|foreground| foreground != getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_taken_whole_and_the_buffer_is_empty() {
        for length in [1, COPIED, COPIED + 1, INPUT_CHUNK] {
            let mut buffer = Vec::with_capacity(INPUT_CHUNK);
            buffer.resize(length, 7);
            assert_eq!(take(&mut buffer), vec![7; length]);
            assert_eq!((buffer.len(), buffer.capacity()), (0, INPUT_CHUNK));
        }
    }
}
