//! The steps by which the launcher becomes what the command will inherit.

use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Rlimit, ioctl_tiocsctty, set_dumpable_behavior, setrlimit,
};

use super::super::spec::{Credentials, DirectoryChoice, LaunchSpec};
use super::super::wire::Step;
use super::capabilities;
use super::{AtStep, Stop, Streams};
use crate::notify;

/// Founds the session. Upholds that a session is the unit of ownership: this
/// comes before any untrusted instruction, with a terminal or without.
pub(super) fn become_session(streams: &Streams) -> Result<(), Stop> {
    // Until it is under the filter no workload may look into it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at(Step::Session)?;
    // Nothing but SIGKILL and SIGSTOP reaches the launcher: it must live to
    // report how its command ended.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None).at(Step::Session)?;
    rustix::process::setsid().at(Step::Session)?;
    if let Streams::Terminal(slave) = streams {
        ioctl_tiocsctty(slave).at(Step::Terminal)?;
    }
    Ok(())
}

/// Limits, identity and place. The order matters: limits and capabilities
/// while there is the right to change them, the directory as the user.
pub(super) fn apply_attributes(spec: &LaunchSpec) -> Result<(), Stop> {
    rustix::process::umask(Mode::from_raw_mode(spec.umask));
    for limit in &spec.limits {
        let wanted = Rlimit { current: limit.soft, maximum: limit.hard };
        let step = || Step::Limit(limit.resource.as_str().to_owned());
        setrlimit(limit.resource.resource(), wanted).map_err(std::io::Error::from).at(step())?;
    }
    capabilities::bound().at(Step::Capabilities)?;
    if let Credentials::Switch { uid, gid, groups } = &spec.credentials {
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        setgroups(&groups).at(Step::Credentials)?;
        setresgid(gid, gid, gid).at(Step::Credentials)?;
        setresuid(uid, uid, uid).at(Step::Credentials)?;
    }
    capabilities::drop_others().at(Step::Capabilities)?;
    match &spec.directory {
        DirectoryChoice::Required(path) => rustix::process::chdir(path).at(Step::Directory),
        DirectoryChoice::Preferred(path) => rustix::process::chdir(path)
            .or_else(|_| rustix::process::chdir("/"))
            .at(Step::Directory),
    }
}

/// Puts the launcher, and so the command, under the filter.
pub(super) fn enter_filter(spec: &LaunchSpec) -> Result<OwnedFd, Stop> {
    rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivileges)?;
    notify::install(&spec.filter, spec.caller_wait).at(Step::Filter)
}
