//! Making the rule needs CAP_NET_RAW. Holding it, hearing of its end and taking it out need nothing.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};

/// Gives up every capability, for this process and whatever it could start. The user stays who it is:
/// another one could be signalled by its own kind.
pub(super) fn give_up() -> Result<(), CapsError> {
    // With this no execve(2) gives any back, not even to root.
    rustix::thread::set_no_new_privs(true).map_err(|e| format!("PR_SET_NO_NEW_PRIVS: {e}"))?;
    // The bounding set can be cut by who may (CAP_SETPCAP); a service's was cut by systemd.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        caps::clear(None, CapSet::Bounding)?;
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    // In this order: what is effective must be permitted.
    caps::set(None, CapSet::Effective, &CapsHashSet::new())?;
    caps::set(None, CapSet::Permitted, &CapsHashSet::new())
}

/// Whether this process may make steering rules.
pub(super) fn may_make_rules() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_RAW).unwrap_or(false)
}
