//! Whether members lack data for which they had no room, and what that means for a request.

use crate::core::Core;
use crate::device::Device;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError, MemberErrorKind, Operation};

impl<M: Member, C: Clock> Core<M, C> {
    pub(crate) fn owed_cost(&self) -> u64 {
        self.members().iter().map(|device| device.owed.cost()).sum()
    }

    /// Whether some member lacks what was to be written to it.
    pub(crate) fn owes_any(&self) -> bool {
        self.owed_cost() > 0
    }

    /// Why something cannot be done as long as members owe data.
    pub(crate) fn no_room(&self) -> ArrayError {
        let owing: Vec<String> =
            self.members().iter().filter(|device| !device.owed.is_empty()).map(|device| device.name.clone()).collect();
        let reason = format!(
            "no room for what was written to {}; it is kept in memory until there is: the array stays marked dirty",
            owing.join(", ")
        );
        ArrayError::new(ArrayErrorKind::NoSpace, reason)
    }

    /// Whether a failure says that there is no room for data, which no member leaves for. One that replaces another is given up.
    pub(crate) fn is_owed(&self, device: &Device<M>, error: &MemberError) -> bool {
        let is_change = matches!(error.operation, Operation::Write | Operation::WriteZeroes | Operation::Discard);
        error.kind == MemberErrorKind::NoSpace
            && is_change
            && !mutant!("no-room-is-a-failure")
            && !device.superblock.borrow().replacement
    }
}
