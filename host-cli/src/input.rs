//! Standard input, read by a thread so that nothing waits for it in the end.

use std::io::Read as _;

use bytes::Bytes;
use host_proto::exec::{ExecControl, INPUT_CHUNK};
use tokio::sync::mpsc;

/// Chunks read ahead of the command.
const AHEAD: usize = 2;

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
    let mut stdin = std::io::stdin().lock();
    let mut buffer = vec![0; INPUT_CHUNK];
    loop {
        match stdin.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if to.blocking_send(Bytes::copy_from_slice(&buffer[..length])).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
