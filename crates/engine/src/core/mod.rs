//! What every part of the engine may see of an array: geometry, members, health, locks, gate.

pub(crate) mod authority;
pub(crate) mod debts;
pub(crate) mod health;
pub(crate) mod listener;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod roster;

use crate::base::buffer::Pool;
use crate::base::gate::Gate;
use crate::base::range_lock::RangeLocks;
use crate::base::versioned::Growing;
use crate::core::health::Health;
use crate::core::listener::Listener;
use crate::core::request::Writers;
use crate::core::roster::Roster;
use crate::device::context::DeviceContext;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::{Geometry, Level};
use format::superblock::Resync;
use format::units::{SECTOR_BYTES, Sectors, Slot};
use std::cell::OnceCell;
use std::rc::{Rc, Weak};

/// What every part of the engine may see of an array.
pub(crate) struct Core<M: Member, C: Clock> {
    /// The latest is the array's. What still goes by an earlier one is right in all that existed then.
    pub(crate) geometries: Growing<Geometry>,
    pub(crate) info: ArrayInfo,
    pub(crate) pool: Pool,
    pub(crate) clock: C,
    pub(crate) roster: Roster<M>,
    pub(crate) health: Health,
    /// Bytes (copies) or stripes (parity) under change.
    pub(crate) locks: Rc<RangeLocks>,
    pub(crate) gate: Gate,
    pub(crate) writers: Writers,
    /// What all devices have in common.
    pub(crate) context: Rc<DeviceContext>,
    /// The array, for what it does when a member leaves or the array fails. Empty until assembly is done.
    pub(crate) listener: OnceCell<Weak<dyn Listener>>,
}

/// What assembly settled and nothing changes afterwards.
pub(crate) struct ArrayInfo {
    pub(crate) kernel: &'static parity::Kernel,
    pub(crate) read_only: bool,
    /// Largest logical block of any member, a power of two: the unit of all member transfers, in bytes.
    pub(crate) block_bytes: u64,
    /// The user has accepted parity that may be wrong, where a member of a dirty array has bad blocks.
    pub(crate) forced: bool,
}

impl<M: Member, C: Clock> Core<M, C> {
    /// What is where.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.geometries.latest()
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        match self.geometry() {
            Geometry::Parity(parity) => parity.chunk_bytes(),
            Geometry::Mapping(mapping) => mapping.chunk_bytes(),
        }
    }

    /// Bytes of the components that are in use.
    pub(crate) fn component_bytes(&self) -> u64 {
        (0..self.geometry().slots()).map(|slot| self.geometry().used_bytes(Slot(slot))).max().unwrap_or(0)
    }

    /// A resync's position at a byte of the array; down to a whole stripe.
    pub(crate) fn position_of(&self, at: u64) -> u64 {
        match self.geometry() {
            Geometry::Parity(parity) => at / parity.stripe_bytes() * parity.chunk_bytes(),
            Geometry::Mapping(_) => at,
        }
    }

    /// The byte of the array at a resync's position; down to a whole stripe.
    pub(crate) fn array_byte_of(&self, position: u64) -> u64 {
        match self.geometry() {
            Geometry::Parity(parity) => position / parity.chunk_bytes() * parity.stripe_bytes(),
            Geometry::Mapping(_) => position,
        }
    }

    /// md's number for "in agreement below this byte of the array".
    pub(crate) fn resync_offset(&self, below: u64) -> Resync {
        Resync::From(Sectors(self.position_of(below) / SECTOR_BYTES))
    }

    /// Levels without redundancy have nothing to bring into agreement, and md
    /// never marks them dirty.
    pub(crate) fn is_redundant(&self) -> bool {
        !matches!(self.geometry().level(), Level::Linear | Level::Raid0)
    }
}
