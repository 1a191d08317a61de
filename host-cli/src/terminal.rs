//! The local terminal: raw mode, size, and giving it back as it was.

use std::io::{IsTerminal as _, stdin, stdout};
use std::sync::{Mutex, PoisonError};

use host_proto::v1;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The modes to give back. Global, since a panic must find them too.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// Puts the terminal on standard input into raw mode, if there is one. Done again
/// it only renews that mode.
pub(crate) fn make_raw() -> std::io::Result<()> {
    let stdin = stdin();
    if !stdin.is_terminal() {
        return Ok(());
    }
    let mut saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
    let modes = match saved.take() {
        Some(modes) => modes,
        None => tcgetattr(&stdin)?,
    };
    let mut raw = modes.clone();
    raw.make_raw();
    *saved = Some(modes);
    // Now: to wait for output that a stuck terminal does not take would hang.
    tcsetattr(&stdin, OptionalActions::Now, &raw)?;
    Ok(())
}

/// Gives the terminal back as it was found. Does nothing the second time.
pub(crate) fn restore() {
    if let Some(modes) = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // If it fails the terminal is gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
    }
}

/// Gives the terminal back before a panic prints its message.
pub(crate) fn restore_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        print(panic);
    }));
}

/// The size of the local terminal; `None` if there is none, or none known.
pub(crate) fn size() -> Option<v1::WindowSize> {
    let size = tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())).ok()?;
    let size = v1::WindowSize { rows: size.ws_row.into(), columns: size.ws_col.into() };
    (size.rows > 0 && size.columns > 0).then_some(size)
}

/// Whether a person at a local terminal can suspend agentctl.
pub(crate) fn is_interactive() -> bool {
    stdin().is_terminal()
}
