//! What every part of the engine may see of an array: geometry, members, health, locks, gate.

pub(crate) mod debts;
pub(crate) mod health;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod roster;

use crate::array::Inner;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::{Geometry, Level};
use format::superblock::Resync;
use format::units::{SECTOR_BYTES, Sectors, Slot};

impl<M: Member, C: Clock> Inner<M, C> {
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
