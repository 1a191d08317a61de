//! Who may connect.

use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};
use pidfd_util::PidFd;

use crate::audit::RefusalReason;
use crate::ids::{ExecId, Pid};
use crate::ownership::{Kernel as _, Membership, Ownership, is_reaped};

/// The process at the other end of a Unix socket, as it was when it connected.
pub struct Peer {
    /// Its process, in the agent's pid namespace; `None` if it is not visible there.
    pub pid: Option<Pid>,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// The process itself, where the kernel hands it out (Linux 6.5).
    pidfd: Option<PidFd>,
}

/// Which peers are let in.
#[derive(Clone, Debug)]
pub struct PeerRules {
    /// Users, on a Unix socket.
    pub uids: Vec<u32>,
    /// Context ids, on vsock, besides the host's.
    pub cids: Vec<u32>,
}

impl PeerRules {
    /// Root, the agent's own user, and those allowed; the host, and those allowed.
    #[must_use]
    pub fn new(own_uid: u32, allowed_uids: &[u32], allowed_cids: &[u32]) -> Self {
        let mut uids = vec![0, own_uid];
        uids.extend_from_slice(allowed_uids);
        Self { uids, cids: allowed_cids.to_vec() }
    }
}

impl Peer {
    /// Asks the kernel who is at the other end of a socket (`SO_PEERCRED`, unix(7)).
    pub fn of(socket: &impl AsFd) -> nix::Result<Self> {
        let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
        Ok(Self {
            pid: Pid::new(credentials.pid()),
            uid: credentials.uid(),
            gid: credentials.gid(),
            pidfd: getsockopt(socket, sockopt::PeerPidfd).ok().map(PidFd::from),
        })
    }

    /// Whether the peer is certainly not a workload. It must still live: a
    /// workload could connect, pass the socket on, and end. With a pidfd its
    /// number is known to be still its own; without (before Linux 6.5) a number
    /// given out again within that moment would pass for the peer's.
    fn workload_check(&self, ownership: &Ownership) -> Result<Option<ExecId>, RefusalReason> {
        let pid = self.pid.ok_or(RefusalReason::Unidentified)?;
        let session = ownership.kernel().session(pid);
        if self.pidfd.as_ref().is_some_and(is_reaped) {
            return Err(RefusalReason::Unidentified);
        }
        match session {
            Membership::Gone => Err(RefusalReason::Unidentified),
            // From outside the agent's pid namespace: no workload comes from there.
            Membership::OutOfSight => Ok(None),
            Membership::In(sid) => Ok(ownership.owner(sid)),
        }
    }
}

/// Whether this kernel hands out the peer itself.
#[must_use]
pub fn has_peer_pidfd() -> bool {
    std::os::unix::net::UnixStream::pair()
        .is_ok_and(|(socket, _other)| getsockopt(&socket, sockopt::PeerPidfd).is_ok())
}

/// Decides on a peer.
pub fn admit(peer: &Peer, rules: &PeerRules, ownership: &Ownership) -> Result<(), RefusalReason> {
    if !rules.uids.contains(&peer.uid) {
        return Err(RefusalReason::Uid);
    }
    match peer.workload_check(ownership)? {
        Some(_) => Err(RefusalReason::Workload),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Tgid;
    use crate::ownership::Linux;
    use std::os::unix::net::UnixStream;

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn own_pid() -> Pid {
        Pid::new(rustix::process::getpid().as_raw_nonzero().get()).unwrap()
    }

    #[test]
    fn the_own_process_is_identified_and_let_in() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&socket).unwrap();
        assert_eq!((peer.pid, peer.uid), (Some(own_pid()), own_uid()));
        let ownership = Ownership::new(Linux::new(own_pid()), 10);
        let rules = PeerRules { uids: vec![own_uid()], cids: vec![] };
        assert_eq!(admit(&peer, &rules, &ownership), Ok(()));
        let nobody = PeerRules { uids: vec![], cids: vec![] };
        assert_eq!(admit(&peer, &nobody, &ownership), Err(RefusalReason::Uid));
    }

    #[test]
    fn a_workload_is_not_let_in() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let ownership = Ownership::new(Linux::new(own_pid()), 10);
        let sid = ownership.kernel().session(own_pid()).known().unwrap();
        // Whoever leads this test's session stands for a workload's leader.
        let leader = Tgid::new(sid.get()).unwrap();
        if ownership.record(leader, ExecId::new(1), || true).is_err() {
            // The leader is gone (a test runner without one): then nothing is known.
            return;
        }
        let rules = PeerRules::new(own_uid(), &[], &[]);
        let peer = Peer::of(&socket).unwrap();
        assert_eq!(admit(&peer, &rules, &ownership), Err(RefusalReason::Workload));
    }

    #[test]
    fn an_invisible_peer_is_not_let_in() {
        let ownership = Ownership::new(Linux::new(own_pid()), 10);
        let peer = Peer { pid: None, uid: own_uid(), gid: 0, pidfd: None };
        let rules = PeerRules::new(own_uid(), &[], &[]);
        assert_eq!(admit(&peer, &rules, &ownership), Err(RefusalReason::Unidentified));
    }
}
