//! A member in an array: the device behind the seam, and the parts of its state.
//!
//! Positions here are component positions, and [`Device::absolute`] adds a member's `data_offset` for every transfer.
//! Besides, only what names bytes of the member adds it: `bad_blocks.rs`, and reports of `control/sweep`. This file
//! decides nothing about the array: an error is counted and returned, and the caller decides whether the member is ejected. It does no I/O; see
//! [`crate::device::transfer`].

use crate::device::activity::Activity;
use crate::device::bad_blocks::BadBlocks;
use crate::device::checksums::Checksums;
use crate::device::context::DeviceContext;
use crate::device::owed::Owed;
use crate::device::reach::ReachCell;
use crate::device::read_faults::ReadFaults;
use crate::device::replacement::Replacement;
use crate::device::state::{DeviceState, StateCell};
use crate::device::stripe_log::DeviceLog;
use crate::device::superblock::DeviceSuperblock;
use crate::device::timeout::PendingOperations;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Watched;
use format::geometry::Level;
use format::superblock::{DeviceFlags, Superblock};
use format::units::{ComponentByte, MemberByte};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// A member in an array.
pub(crate) struct Device<M> {
    pub(crate) name: String,
    pub(crate) member: Watched<M>,
    pub(crate) superblock: DeviceSuperblock,
    pub(crate) state: StateCell,
    pub(crate) reach: ReachCell,
    /// Component ranges that are never read.
    pub(crate) bad: BadBlocks,
    /// Data that the member had no space for.
    pub(crate) owed: Owed,
    pub(crate) faults: ReadFaults,
    pub(crate) replacement: Replacement<Device<M>>,
    pub(crate) activity: Activity,
    /// The checksums of the member's blocks, if it has any.
    pub(crate) checksums: OnceCell<Checksums>,
    pub(super) pending: PendingOperations,
    pub(super) context: Rc<DeviceContext>,
    data_at: u64,
    discards_to_zeros: Cell<bool>,
    /// Whether its partial parity log is of this use of the array.
    pub(super) is_parity_log_begun: Cell<bool>,
    /// Whether that log was replayed, and still holds what was replayed.
    pub(super) is_parity_log_replayed: Cell<bool>,
    /// Its part of the stripe log, once that was begun.
    pub(super) stripe_log: RefCell<Option<Rc<DeviceLog>>>,
}

/// Failed members, and their errors.
pub(crate) type Failures<M> = Vec<(Rc<Device<M>>, MemberError)>;

impl<M: Member> Device<M> {
    pub(crate) fn new(
        name: String,
        member: M,
        superblock: Superblock,
        place: Box<[u8]>,
        state: DeviceState,
        bad: Vec<Range<u64>>,
        context: Rc<DeviceContext>,
    ) -> Self {
        let limits = member.limits();
        let discards_to_zeros = Cell::new(limits.discards && limits.discards_to_zeros);
        Self {
            name,
            member: Watched::new(member),
            data_at: superblock.data_at().0,
            bad: BadBlocks::new(superblock.bad_blocks, superblock.data_at().0, bad),
            owed: Owed::default(),
            superblock: DeviceSuperblock::new(superblock, place, state),
            state: StateCell::new(state),
            reach: ReachCell::default(),
            faults: ReadFaults::default(),
            replacement: Replacement::default(),
            activity: Activity::default(),
            checksums: OnceCell::new(),
            pending: PendingOperations::default(),
            context,
            discards_to_zeros,
            is_parity_log_begun: Cell::new(false),
            is_parity_log_replayed: Cell::new(false),
            stripe_log: RefCell::default(),
        }
    }

    /// Whether writes go to it.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state.get(), DeviceState::InSync | DeviceState::Recovering { .. })
    }

    /// Whether the contents of `range` are current and can be read.
    pub(crate) fn is_readable(&self, range: Range<u64>) -> bool {
        let current = match self.state.get() {
            DeviceState::InSync => true,
            DeviceState::Recovering { current } => {
                range.end <= current + mutant!("read-beyond-recovery" => 1 << 20, else 0)
            }
            DeviceState::Spare | DeviceState::Journal | DeviceState::Faulty => false,
        };
        current && !self.reach.is_silent() && !self.bad.touches(&range)
    }

    /// Whether any byte below `end` is still to be recovered.
    pub(crate) fn is_recovering(&self, end: u64) -> bool {
        matches!(self.state.get(), DeviceState::Recovering { current } if current < end)
    }

    /// Whether [`Device::is_readable`] is true of every range.
    pub(crate) fn is_whole(&self) -> bool {
        self.state.get() == DeviceState::InSync && self.bad.is_empty() && !self.reach.is_silent()
    }

    /// Whether the member's superblock does not say yet that the member has a slot, or that it is in sync.
    pub(crate) fn is_superblock_stale(&self) -> bool {
        self.superblock.is_stale(self.state.get())
    }

    /// Whether reads prefer other members: md's write-mostly flag, which md honours at level 1 only.
    pub(crate) fn is_write_mostly(&self) -> bool {
        let superblock = self.superblock.borrow();
        superblock.level == Level::Raid1 && superblock.device_flags.contains(DeviceFlags::WRITE_MOSTLY)
    }

    /// Whether a discard leaves zeros: true if the member says so, until it refuses a discard.
    pub(crate) fn discards_to_zeros(&self) -> bool {
        self.discards_to_zeros.get()
    }

    /// The member has refused a discard.
    pub(crate) fn discard_refused(&self) {
        self.discards_to_zeros.set(false);
    }

    /// The member's byte at which its data begins.
    pub(crate) fn data_at(&self) -> u64 {
        self.data_at
    }

    pub(crate) fn absolute(&self, at: ComponentByte) -> MemberByte {
        MemberByte(self.data_at + at.0)
    }

    /// The successor of this member, if there is one.
    pub(crate) fn successor(&self) -> Option<Rc<Self>> {
        self.replacement.successor()
    }
}
