//! The superblock of one device: what it says on the member, and what the next round is to write.
//!
//! Whether the member's own superblock is *stale* follows from the two. It is stale if it does not say yet that the
//! member has a slot, or that it is in sync. The order of a round of superblocks depends on that
//! ([`crate::metadata::Metadata::publish`]).
//!
//! What the superblock should say is the device's state. What it says is [`Claim`], which only assembly and a written
//! superblock change. Two reasons do not show in the state, and are set: see [`Outdated`].
//!
//! Does no I/O; [`crate::device::transfer::superblock`] writes.

use crate::base::buffer::{Block, Pool};
use crate::device::state::DeviceState;
use format::superblock::{PLACE_BYTES, Superblock};
use format::units::MemberByte;
use std::cell::{Cell, Ref, RefCell, RefMut};

/// Why the superblock on a member does not say what the others rely on, although it claims the right state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// The member was stale and was taken by force: its superblock is of an earlier time.
    ByForce,
    /// The member was moved to another slot.
    ByMove,
}

/// What the superblock on a member says of the member itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// No slot.
    Spare,
    /// A slot, but not all of its data.
    Recovering,
    InSync,
    Journal,
    Outdated(Outdated),
}

impl Claim {
    /// The claim to be made in `state`; `None` for a device to which no superblock is written.
    fn of(state: DeviceState) -> Option<Self> {
        match state {
            DeviceState::InSync => Some(Self::InSync),
            DeviceState::Recovering { .. } => Some(Self::Recovering),
            DeviceState::Spare => Some(Self::Spare),
            DeviceState::Journal => Some(Self::Journal),
            DeviceState::Faulty => None,
        }
    }
}

/// The superblock of one device.
pub(crate) struct DeviceSuperblock {
    /// The superblock as last read or written, with the changes for the next round. The array's record holds the fields
    /// that all members share; they are filled in when the superblock is written.
    wanted: RefCell<Superblock>,
    /// The superblock's whole area as it is on the member, so that writes of whole logical blocks preserve the bytes
    /// behind the superblock.
    area: RefCell<Box<[u8]>>,
    /// What the superblock on the member says; `None` of a faulty device.
    on_disk: Cell<Option<Claim>>,
}

impl DeviceSuperblock {
    /// The superblock of a device in `state`. `area` was read with it.
    pub(super) fn new(superblock: Superblock, area: Box<[u8]>, state: DeviceState) -> Self {
        debug_assert_eq!(area.len() as u64 % 512, 0);
        let on_disk = Cell::new(Claim::of(state));
        Self { wanted: RefCell::new(superblock), area: RefCell::new(area), on_disk }
    }

    /// The superblock, with the changes for the next round.
    pub(crate) fn borrow(&self) -> Ref<'_, Superblock> {
        self.wanted.borrow()
    }

    /// For changes that the next round writes.
    pub(crate) fn borrow_mut(&self) -> RefMut<'_, Superblock> {
        self.wanted.borrow_mut()
    }

    /// Replaces the superblock that the next round writes.
    pub(crate) fn replace(&self, superblock: Superblock) {
        self.wanted.replace(superblock);
    }

    /// From now on the superblock on the member is stale, although the device's state does not change.
    pub(crate) fn outdate(&self, reason: Outdated) {
        self.on_disk.set(Some(Claim::Outdated(reason)));
    }

    /// Whether the superblock on the member does not say yet what a device in `state` should.
    pub(super) fn is_stale(&self, state: DeviceState) -> bool {
        Claim::of(state).is_some_and(|wanted| self.on_disk.get() != Some(wanted))
    }

    /// The superblock on the member was written for a device in `state`, or found right for one.
    pub(super) fn says(&self, state: DeviceState) {
        self.on_disk.set(Claim::of(state));
    }

    /// The blocks of `superblock` to write, in whole units; from now on it is the one to change.
    pub(super) fn image(&self, mut superblock: Superblock, unit: usize, pool: &Pool) -> Block {
        // Read repair counts without the metadata lock, also since `superblock` was made.
        superblock.corrected_reads = self.wanted.borrow().corrected_reads;
        let encoded = superblock.encode();
        let block = {
            let mut area = self.area.borrow_mut();
            area[..encoded.len()].copy_from_slice(&encoded);
            let bytes = encoded.len().next_multiple_of(unit).min(area.len());
            pool.copy_of(&area[..bytes])
        };
        self.wanted.replace(superblock);
        block
    }
}

/// Bytes to read at a superblock's position, which may be near the member's end.
pub(crate) fn place_bytes(at: MemberByte, member_bytes: u64) -> usize {
    PLACE_BYTES.min(member_bytes.saturating_sub(at.0)) as usize
}
