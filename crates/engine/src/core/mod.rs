//! What every part of the engine may see of an array: geometry, members, health, locks and the gate.
//!
//! Nothing here writes data or metadata. [`crate::data`], [`crate::metadata`] and [`crate::control`] build on it.

pub(crate) mod authority;
pub(crate) mod debts;
pub(crate) mod health;
pub(crate) mod listener;
pub(crate) mod metadata_lock;
pub(crate) mod personality;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod roster;

use crate::base::buffer::Pool;
use crate::base::gate::Gate;
use crate::base::range_lock::RangeLocks;
use crate::base::versioned::Growing;
use crate::core::health::Health;
use crate::core::listener::Listener;
use crate::core::personality::{Personality, personality};
use crate::core::request::WriteCounter;
use crate::core::roster::Roster;
use crate::device::context::DeviceContext;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::Geometry;
use format::superblock::Resync;
use format::units::{SECTOR_BYTES, Sectors, Slot};
use std::cell::OnceCell;
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
    /// Locks on what is being changed: bytes of the array for copies, stripes for parity.
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
    /// The user accepted parity that may be wrong where a member of a dirty array has bad blocks.
    pub(crate) forced: bool,
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
