//! The state that every part of the engine shares, and the facts about an array that follow from its geometry.
//!
//! The other files of this folder read and change it.

use crate::base::buffer::Pool;
use crate::base::gate::Gate;
use crate::base::notify::Signal;
use crate::base::range_lock::RangeLocks;
use crate::base::range_set::Ranges;
use crate::base::versioned::Growing;
use crate::core::listener::Listener;
use crate::core::metadata_lock::Guarded;
use crate::core::personality::{Personality, personality};
use crate::core::unbuilt::Unbuilt;
use crate::core::write_counter::WriteCounter;
use crate::device::Device;
use crate::device::context::DeviceContext;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::Geometry;
use format::superblock::Resync;
use format::units::{SECTOR_BYTES, Sectors, Slot};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// The state that every part of the engine shares.
pub(crate) struct Core<M: Member, C: Clock> {
    /// The latest geometry is the array's. Code that still uses an earlier one is right about all that existed then.
    pub(crate) geometries: Growing<Geometry>,
    pub(crate) info: ArrayInfo,
    pub(crate) pool: Pool,
    pub(crate) clock: C,
    pub(crate) roster: Roster<M>,
    pub(crate) health: Health,
    /// Locks on what is being changed: bytes of the array for copies, of a component for parity.
    pub(crate) locks: Rc<RangeLocks>,
    pub(crate) gate: Gate,
    pub(crate) writers: WriteCounter,
    /// Settings and signals that all devices share.
    pub(crate) context: Rc<DeviceContext>,
    /// Receives the events of the array. Empty until assembly is done.
    pub(crate) listener: OnceCell<Weak<dyn Listener>>,
}

/// Facts about the array that assembly decides and that never change afterwards.
pub(crate) struct ArrayInfo {
    pub(crate) kernel: &'static parity::Kernel,
    pub(crate) read_only: bool,
    /// Largest logical block of any member in bytes, a power of two: the unit of all transfers of data.
    pub(crate) block_bytes: u64,
}

/// The devices of an array.
pub(crate) struct Roster<M: Member> {
    /// The device in each slot.
    pub(crate) slots: Guarded<Vec<Option<Rc<Device<M>>>>>,
    /// Devices without a slot: spares and faulty devices.
    pub(crate) others: Guarded<Vec<Rc<Device<M>>>>,
    /// Raised when a readable device takes the slot of another.
    pub(crate) slot_changed: Signal,
}

/// What parity may give where it may disagree with the data, until a resync ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParityTrust {
    /// Nothing: what it alone gives is an error.
    Nothing,
    /// What is in bad blocks. The user has accepted that.
    BadBlocks,
    /// What members held. Their log was replayed, or the user has accepted that. What a missing chunk holds is what P
    /// makes it, as long as P can be read, and Q has to say the same in the end.
    Members,
}

/// The health of an array.
pub(crate) struct Health {
    /// Every slot holds a device that is current everywhere, has no bad blocks and answers.
    pub(super) whole: Cell<bool>,
    /// Parity and copies agree everywhere that was ever written to.
    pub(crate) agreed: Cell<bool>,
    /// Parity and copies agree below this byte of the array: how far a resync has come.
    pub(crate) agreed_below: Cell<u64>,
    pub(crate) trust: Cell<ParityTrust>,
    /// The positions where a write may have been under way when the array stopped, by its bitmap: all others agree.
    /// `None` if any may be.
    doubtful: RefCell<Option<Ranges>>,
    /// What was never written to: nothing agrees there, whatever the other fields say.
    pub(crate) unbuilt: Rc<Unbuilt>,
    /// Why the array takes no more writes. Set once more members have failed than redundancy covers.
    pub(crate) failed: RefCell<Option<String>>,
}

impl Health {
    pub(crate) fn new(
        whole: bool,
        agreed: bool,
        agreed_below: u64,
        trust: ParityTrust,
        doubtful: Option<Ranges>,
        unbuilt: Rc<Unbuilt>,
    ) -> Self {
        let (whole, agreed, agreed_below) = (Cell::new(whole), Cell::new(agreed), Cell::new(agreed_below));
        let (trust, doubtful, failed) = (Cell::new(trust), RefCell::new(doubtful), RefCell::default());
        Self { whole, agreed, agreed_below, trust, doubtful, unbuilt, failed }
    }

    /// Whether a bitmap says that no write was under way in `positions` when the array stopped.
    pub(super) fn is_beyond_doubt(&self, positions: &Range<u64>) -> bool {
        self.doubtful.borrow().as_ref().is_some_and(|doubtful| !doubtful.touches(positions))
    }

    /// A resync has ended. What disagrees later, no bitmap has named, and no log or user has vouched for.
    pub(crate) fn forget_doubt(&self) {
        self.doubtful.replace(None);
        self.trust.set(ParityTrust::Nothing);
    }
}

impl<M: Member, C: Clock> Core<M, C> {
    /// The layout of the array that is in force.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.geometries.latest()
    }

    /// What the array's level decides.
    pub(crate) fn personality(&self) -> &dyn Personality {
        personality(self.geometry())
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.geometry().chunk_bytes()
    }

    /// Bytes of each component that are in use.
    pub(crate) fn component_bytes(&self) -> u64 {
        (0..self.geometry().slots()).map(|slot| self.geometry().used_bytes(Slot(slot))).max().unwrap_or(0)
    }

    /// md's `resync_offset` for an array that agrees below this byte.
    pub(crate) fn resync_offset(&self, below: u64) -> Resync {
        Resync::From(Sectors(self.geometry().sync_position(below) / SECTOR_BYTES))
    }

    /// Whether the level has redundancy. Levels without it have nothing to resync, and md never marks them dirty.
    pub(crate) fn is_redundant(&self) -> bool {
        self.geometry().level().is_redundant()
    }
}
