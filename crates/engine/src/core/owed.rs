//! Data that members had no room for: how much of it there is, and the error that requests get meanwhile.
//!
//! Nothing is written here; [`crate::data::owed`] writes the data once there is room.

use crate::core::state::Core;
use crate::device::Device;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError, MemberErrorKind, Operation};

impl<M: Member, C: Clock> Core<M, C> {
    /// Memory that the members' owed data takes, in bytes.
    pub(crate) fn owed_cost(&self) -> u64 {
        self.members().iter().map(|device| device.owed.cost()).sum()
    }

    /// Whether any member lacks data that was to be written to it.
    pub(crate) fn owes_any(&self) -> bool {
        self.owed_cost() > 0
    }

    /// The error for what cannot be done while members owe data.
    pub(crate) fn no_room(&self) -> ArrayError {
        let owing: Vec<String> =
            self.members().iter().filter(|device| !device.owed.is_empty()).map(|device| device.name.clone()).collect();
        let reason = format!(
            "no room for data written to {}; it stays in memory until there is, and the array stays marked dirty",
            owing.join(", ")
        );
        ArrayError::new(ArrayErrorKind::NoSpace, reason)
    }

    /// Whether an error says that the member has no room for data. Such a member stays in the array and owes the
    /// data. A successor does not owe: it is given up.
    pub(crate) fn is_out_of_room(&self, device: &Device<M>, error: &MemberError) -> bool {
        let is_change = matches!(error.operation, Operation::Write | Operation::WriteZeroes | Operation::Discard);
        error.kind == MemberErrorKind::NoSpace
            && is_change
            && device.may_owe()
            && !mutant!("no-room-is-a-failure")
            && !device.superblock.borrow().replacement
    }
}
