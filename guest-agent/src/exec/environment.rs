//! The environment a command starts with.

use std::ffi::CString;

use super::account::Account;

/// Where commands are searched unless the request says otherwise.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Defaults for a user, then the request's entries; of two entries with one
/// name the later wins, in the earlier's place.
pub(super) fn environment(
    account: &Account,
    term: Option<&CString>,
    clear: bool,
    requested: &[CString],
) -> Vec<CString> {
    let mut entries = if clear { Vec::new() } else { defaults(account, term) };
    for entry in requested {
        let name = name(entry);
        match entries.iter_mut().find(|known| self::name(known) == name) {
            Some(known) => known.clone_from(entry),
            None => entries.push(entry.clone()),
        }
    }
    entries
}

fn defaults(account: &Account, term: Option<&CString>) -> Vec<CString> {
    let mut entries: Vec<CString> = [
        ("PATH", DEFAULT_PATH),
        ("HOME", &account.home),
        ("USER", &account.name),
        ("LOGNAME", &account.name),
        ("SHELL", &account.shell),
    ]
    .into_iter()
    // A value with a NUL byte cannot be an environment entry; a line of
    // /etc/passwd with one is broken, and better without.
    .filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok())
    .collect();
    let term = term.and_then(|term| CString::new([b"TERM=", term.to_bytes()].concat()).ok());
    entries.extend(term);
    entries
}

/// What stands before the first `=`.
fn name(entry: &CString) -> &[u8] {
    let bytes = entry.to_bytes();
    bytes.split(|&byte| byte == b'=').next().unwrap_or(bytes)
}

/// The value of a variable.
pub(super) fn value<'a>(environment: &'a [CString], wanted: &str) -> Option<&'a [u8]> {
    let entry = environment.iter().find(|entry| name(entry) == wanted.as_bytes())?;
    Some(&entry.to_bytes()[wanted.len() + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(texts: &[&str]) -> Vec<CString> {
        texts.iter().map(|text| CString::new(*text).unwrap()).collect()
    }

    fn account() -> Account {
        Account {
            uid: 1000,
            gid: 1000,
            groups: vec![],
            name: "ann".into(),
            home: "/home/ann".into(),
            shell: "/bin/sh".into(),
        }
    }

    #[test]
    fn the_request_wins_over_the_defaults() {
        let term = CString::new("xterm").unwrap();
        let requested = entries(&["HOME=/work", "A=1", "A=2=3"]);
        let result = environment(&account(), Some(&term), false, &requested);
        let path = format!("PATH={DEFAULT_PATH}");
        let expected = entries(&[
            &path,
            "HOME=/work",
            "USER=ann",
            "LOGNAME=ann",
            "SHELL=/bin/sh",
            "TERM=xterm",
            "A=2=3",
        ]);
        assert_eq!(result, expected);
        assert_eq!(value(&result, "A"), Some(b"2=3".as_slice()));
        assert_eq!(value(&result, "B"), None);
    }

    #[test]
    fn a_cleared_environment_has_only_what_is_asked_for() {
        assert_eq!(environment(&account(), None, true, &entries(&["A=1"])), entries(&["A=1"]));
    }
}
