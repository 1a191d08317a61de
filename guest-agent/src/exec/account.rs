//! Users and groups from `/etc/passwd` and `/etc/group`.
//!
//! Read as files, as OCI runtimes do: a static binary has no name service, and
//! the guest's answers must not depend on the network.

use std::path::{Path, PathBuf};

use super::request::UserRequest;

/// The files with accounts.
#[derive(Clone, Debug)]
pub struct Accounts {
    passwd: PathBuf,
    group: PathBuf,
}

/// A user resolved to numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Login name; the number where the user has no entry.
    pub name: String,
    /// Home directory.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// Why a user could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No such user.
    #[error("unknown user '{0}': neither a number nor a name in /etc/passwd")]
    UnknownUser(String),
    /// No such group.
    #[error("unknown group '{0}': neither a number nor a name in /etc/group")]
    UnknownGroup(String),
    /// A file could not be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

#[derive(Debug, PartialEq, Eq)]
struct PasswdEntry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
    shell: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
struct GroupEntry<'a> {
    name: &'a str,
    gid: u32,
    members: Vec<&'a str>,
}

/// Lines of passwd(5); one that is malformed is passed over, as getpwent(3) does.
fn passwd_entries(text: &str) -> impl Iterator<Item = PasswdEntry<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let (_password, uid, gid) = (fields.next()?, fields.next()?, fields.next()?);
        let (_comment, home, shell) = (fields.next()?, fields.next()?, fields.next()?);
        Some(PasswdEntry { name, uid: uid.parse().ok()?, gid: gid.parse().ok()?, home, shell })
    })
}

/// Lines of group(5).
fn group_entries(text: &str) -> impl Iterator<Item = GroupEntry<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let (_password, gid, members) = (fields.next()?, fields.next()?, fields.next()?);
        let members = members.split(',').filter(|member| !member.is_empty()).collect();
        Some(GroupEntry { name, gid: gid.parse().ok()?, members })
    })
}

/// setuid(2) takes this number for "leave unchanged".
const NOBODY_AT_ALL: u32 = u32::MAX;

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number != NOBODY_AT_ALL)
}

fn group_number(name: &str, groups: &str) -> Result<u32, AccountError> {
    let by_name = group_entries(groups).find(|entry| entry.name == name).map(|entry| entry.gid);
    by_name.or_else(|| number(name)).ok_or_else(|| AccountError::UnknownGroup(name.to_owned()))
}

/// Resolves a user against the texts of the two files.
fn resolve(request: &UserRequest, passwd: &str, groups: &str) -> Result<Account, AccountError> {
    let (user, group) = match request.name.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (request.name.as_str(), None),
    };
    // A name wins over a number, as in chown(1): names may look like numbers.
    let entry = passwd_entries(passwd)
        .find(|entry| entry.name == user)
        .or_else(|| passwd_entries(passwd).find(|entry| Some(entry.uid) == number(user)));
    let mut account = match entry {
        Some(entry) => Account {
            uid: entry.uid,
            gid: entry.gid,
            groups: Vec::new(),
            name: entry.name.to_owned(),
            home: entry.home.to_owned(),
            shell: entry.shell.to_owned(),
        },
        None => {
            let uid = number(user).ok_or_else(|| AccountError::UnknownUser(user.to_owned()))?;
            Account {
                uid,
                gid: uid,
                groups: Vec::new(),
                name: user.to_owned(),
                home: "/".to_owned(),
                shell: String::new(),
            }
        }
    };
    if let Some(group) = group {
        account.gid = group_number(group, groups)?;
    }
    account.groups = if request.supplementary_groups.is_empty() {
        let is_member = |entry: &GroupEntry| entry.members.contains(&account.name.as_str());
        group_entries(groups).filter(is_member).map(|entry| entry.gid).collect()
    } else {
        let named = request.supplementary_groups.iter();
        named.map(|name| group_number(name, groups)).collect::<Result<_, _>>()?
    };
    account.groups.sort_unstable();
    account.groups.dedup();
    if account.shell.is_empty() {
        "/bin/sh".clone_into(&mut account.shell);
    }
    Ok(account)
}

impl Default for Accounts {
    fn default() -> Self {
        Self { passwd: "/etc/passwd".into(), group: "/etc/group".into() }
    }
}

impl Accounts {
    /// Resolves a user.
    pub fn resolve(&self, request: &UserRequest) -> Result<Account, AccountError> {
        resolve(request, &read(&self.passwd)?, &read(&self.group)?)
    }
}

/// A file that does not exist is an empty one: minimal images have none.
fn read(path: &Path) -> Result<String, AccountError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(AccountError::Unreadable { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        broken line\n\
        ann:x:1000:1001:Ann:/home/ann:/bin/zsh\n\
        7:x:1007:1007::/home/seven:\n";
    const GROUP: &str = "root:x:0:\nwheel:x:10:ann,bob\nvideo:x:44:ann\nstaff:x:50:bob\n";

    fn user(name: &str) -> Result<Account, AccountError> {
        resolve(&UserRequest { name: name.into(), ..UserRequest::default() }, PASSWD, GROUP)
    }

    #[test]
    fn a_name_has_its_entry() {
        let ann = user("ann").unwrap();
        assert_eq!((ann.uid, ann.gid, ann.groups), (1000, 1001, vec![10, 44]));
        assert_eq!((ann.home.as_str(), ann.shell.as_str()), ("/home/ann", "/bin/zsh"));
        assert_eq!(user("1000").unwrap().name, "ann");
    }

    #[test]
    fn a_name_wins_over_a_number() {
        let seven = user("7").unwrap();
        assert_eq!((seven.uid, seven.shell.as_str()), (1007, "/bin/sh"));
    }

    #[test]
    fn a_number_needs_no_entry() {
        let account = user("4242").unwrap();
        assert_eq!((account.uid, account.gid, account.home.as_str()), (4242, 4242, "/"));
    }

    #[test]
    fn a_group_can_be_named() {
        assert_eq!(user("ann:video").unwrap().gid, 44);
        assert_eq!(user("4242:4343").unwrap().gid, 4343);
    }

    #[test]
    fn supplementary_groups_can_be_named() {
        let request = UserRequest {
            name: "ann".into(),
            supplementary_groups: vec!["staff".into(), "7".into(), "staff".into()],
        };
        assert_eq!(resolve(&request, PASSWD, GROUP).unwrap().groups, [7, 50]);
    }

    #[test]
    fn what_does_not_exist_is_said() {
        for (name, message) in [
            ("nosuch", "unknown user 'nosuch'"),
            ("", "unknown user ''"),
            ("-1", "unknown user '-1'"),
            ("4294967295", "unknown user '4294967295'"),
            ("ann:nosuch", "unknown group 'nosuch'"),
            ("ann:", "unknown group ''"),
        ] {
            let error = user(name).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
