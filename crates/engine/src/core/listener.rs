//! What the core tells the rest of the array at once, without a future: caches are dropped and sweeps woken.

use crate::seam::report::MemberChange;

/// Hears of events of the array's members.
pub(crate) trait Listener {
    /// A member has left its slot, or another has taken it.
    fn slots_changed(&self);

    /// The array takes no more writes.
    fn array_failed(&self, reason: &str);

    /// A change of membership that users are told of.
    fn member_changed(&self, change: &MemberChange);
}
