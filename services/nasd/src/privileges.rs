//! nasd keeps no capability at all (DESIGN §2), also when it was started as root on a developer's machine.

use anyhow::{Context, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Drops every capability for good: none is left to use, to regain or to hand to a child.
///
/// Capabilities belong to threads, so this must run before the first thread is started.
pub(crate) fn drop_all() -> Result<()> {
    set_no_new_privs(true).context("setting no_new_privs")?;
    clear_ambient_capability_set().context("clearing the ambient capabilities")?;
    let last: u32 = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap")
        .context("reading the number of capabilities")?
        .trim()
        .parse()
        .context("reading the number of capabilities")?;
    let may_drop = rustix::thread::capabilities(None)
        .context("reading the capabilities")?
        .effective
        .contains(CapabilitySet::SETPCAP);
    // Without CAP_SETPCAP the bounding set cannot shrink; without capabilities and with no_new_privs it gives nothing.
    for number in (0..=last).filter(|_| may_drop) {
        remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number))
            .with_context(|| format!("removing capability {number} from the bounding set"))?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .context("dropping the capabilities")
}
