//! The events that the core reports at once, without a future, so that caches are dropped and sweeps woken.

use crate::seam::report::MemberChange;

/// Receives events of the array's members.
pub(crate) trait Listener {
    /// A member has left its slot, or another member has taken the slot.
    fn slots_changed(&self);

    /// The array takes no more writes.
    fn array_failed(&self, reason: &str);

    /// A change of membership that users are notified of.
    fn member_changed(&self, change: &MemberChange);
}
