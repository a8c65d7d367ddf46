//! The core's events: caches are dropped, sweeps woken, and changes added to the report of a scrub.

use crate::control::state::Control;
use crate::core::listener::Listener;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use crate::seam::report::MemberChange;

impl<M: Member, C: Clock> Listener for Control<M, C> {
    fn slots_changed(&self) {
        self.data.drop_caches();
        self.sweeps.changed.raise(); // a spare may take over
    }

    fn array_failed(&self, reason: &str) {
        self.sweeps.give_up_scrub(&format!("the array takes no more writes: {reason}"));
    }

    fn member_changed(&self, change: &MemberChange) {
        self.sweeps.note_change(change);
    }
}
