//! The capabilities a workload run by root keeps: those of a container.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
};

/// What container runtimes grant by default. Not among them is whatever goes
/// round the filter: `SYS_PTRACE`, `SYS_ADMIN`, `SYS_MODULE`, `SYS_BOOT`, …
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::AUDIT_WRITE)
    .union(CapabilitySet::SETFCAP);

/// Bounds what any later execve(2) can gain. Without `SETPCAP` the bounding set
/// cannot be changed; then `no_new_privs` alone keeps files from granting more.
pub(super) fn bound() -> rustix::io::Result<()> {
    if !capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        // EINVAL: this kernel does not have it yet.
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Drops the others from the launcher itself.
pub(super) fn drop_others() -> rustix::io::Result<()> {
    let sets = capabilities(None)?;
    // EINVAL: a kernel without ambient capabilities has none to clear.
    match clear_ambient_capability_set() {
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(error) => return Err(error),
    }
    set_capabilities(
        None,
        CapabilitySets {
            effective: sets.effective & KEPT,
            permitted: sets.permitted & KEPT,
            inheritable: CapabilitySet::empty(),
        },
    )
}
