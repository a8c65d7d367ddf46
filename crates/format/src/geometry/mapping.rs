//! Levels without parity: linear, 0, 1, 10. Each array byte is on one or more members unchanged.
//!
//! Invariant: the [`Mapping::pieces`] of a range are adjacent, in array order, and cover exactly the range. Nothing
//! here does I/O. Sources: see the modules `zones` and `raid10`.

use super::raid10::Raid10;
use super::zones::Zones;
use super::{Copies, Level, Piece, Shape, check_array, check_component, check_slots};
use crate::defect::Defect;
use crate::units::{ArrayByte, ComponentByte, SECTOR_BYTES, Slot};

/// The geometry of linear, 0, 1 and 10: every array byte is stored unchanged on one or more members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    level: Level,
    slots: u16,
    array_bytes: u64,
    places: Places,
}

/// How array bytes map to members.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Places {
    /// Linear and RAID-0.
    Zones(Zones),
    /// RAID-1: every member holds the array, byte for byte.
    Mirrors,
    /// RAID-10.
    Raid10(Raid10),
}

impl Mapping {
    /// Checks a shape of one of these levels.
    pub(super) fn new(shape: &Shape) -> Result<Self, Defect> {
        check_slots(shape.slots, 1)?;
        let (places, array_bytes) = match shape.level {
            Level::Raid1 => {
                check_component(shape.component_bytes, SECTOR_BYTES)?;
                (Places::Mirrors, check_array("superblock.size", shape.component_bytes.into())?)
            }
            Level::Raid10 => {
                let raid10 = Raid10::new(shape)?;
                let array_bytes = raid10.array_bytes();
                (Places::Raid10(raid10), array_bytes)
            }
            Level::Linear | Level::Raid0 => {
                let zones = Zones::new(shape)?;
                let array_bytes = zones.array_bytes();
                (Places::Zones(zones), array_bytes)
            }
            Level::Raid4 | Level::Raid5 | Level::Raid6 => unreachable!("{:?} has parity", shape.level),
        };
        Ok(Self { level: shape.level, slots: shape.slots, array_bytes, places })
    }

    /// The size of the array, in bytes.
    pub fn array_bytes(&self) -> u64 {
        self.array_bytes
    }

    /// The number of slots.
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// The level: linear, 0, 1 or 10.
    pub fn level(&self) -> Level {
        self.level
    }

    /// mdadm's name of the layout, where the level has a choice.
    pub fn layout_name(&self) -> Option<String> {
        match &self.places {
            Places::Zones(zones) => zones.layout_name().map(str::to_owned),
            Places::Mirrors => None,
            Places::Raid10(raid10) => Some(raid10.layout_name()),
        }
    }

    pub(super) fn used_bytes(&self, slot: Slot) -> u64 {
        match &self.places {
            Places::Zones(zones) => zones.used_bytes(slot),
            Places::Mirrors => self.array_bytes,
            Places::Raid10(raid10) => raid10.used_bytes(),
        }
    }

    /// The pieces of the `bytes` bytes from `at` on: in array order, adjacent, each as long as [`Mapping::piece_at`]
    /// returns, the last one cut to the range.
    ///
    /// # Panics
    /// When the range is not within the array (at the first call of `next`).
    pub fn pieces(&self, at: ArrayByte, bytes: u64) -> impl Iterator<Item = Piece> + '_ {
        let mut at = at.0;
        let mut left = bytes;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let mut piece = self.piece_at(ArrayByte(at));
            piece.bytes = piece.bytes.min(left);
            at += piece.bytes;
            left -= piece.bytes;
            Some(piece)
        })
    }

    /// The piece that starts at `at` and ends with the chunk. Where the next chunks always follow on the same
    /// members, it extends to the end of that run. That is so in linear, in RAID-1, in a RAID-0 zone of one member, and in
    /// RAID-10 with as many near copies as members.
    ///
    /// # Panics
    /// When `at` is not within the array.
    #[inline]
    pub fn piece_at(&self, at: ArrayByte) -> Piece {
        assert!(at.0 < self.array_bytes, "byte {} of an array of {}", at.0, self.array_bytes);
        let (bytes, copies) = match &self.places {
            Places::Zones(zones) => zones.find(at.0),
            Places::Mirrors => {
                let copies: Copies = (0..self.slots).map(|slot| (Slot(slot), ComponentByte(at.0))).collect();
                (self.array_bytes - at.0, copies)
            }
            Places::Raid10(raid10) => raid10.find(at.0),
        };
        debug_assert_ne!(bytes, 0, "an empty piece at {}", at.0);
        Piece { at, bytes, copies }
    }

    /// The array byte of which `slot` holds a copy at `at` of its component, or `None`. Only for levels with copies: 1
    /// and 10.
    ///
    /// # Panics
    /// For linear and RAID-0, which have no copies to recover from.
    pub fn held(&self, slot: Slot, at: ComponentByte) -> Option<ArrayByte> {
        match &self.places {
            Places::Zones(_) => panic!("{:?} has no copies", self.level),
            Places::Mirrors => (at.0 < self.array_bytes).then_some(ArrayByte(at.0)),
            Places::Raid10(raid10) => raid10.held(slot, at.0).map(ArrayByte),
        }
    }

    /// Bytes from `at` on that are contiguous on each of their copies, at most to the end of a chunk: the step of
    /// [`Mapping::held`] for successive bytes.
    pub fn chunk_rest(&self, at: ComponentByte) -> u64 {
        match &self.places {
            Places::Zones(_) => panic!("{:?} has no copies", self.level),
            Places::Mirrors => self.array_bytes.saturating_sub(at.0),
            Places::Raid10(raid10) => raid10.chunk_rest(at.0),
        }
    }

    /// Bytes in a chunk of RAID-10; 0 for the other levels.
    pub fn chunk_bytes(&self) -> u64 {
        match &self.places {
            Places::Zones(_) | Places::Mirrors => 0,
            Places::Raid10(raid10) => raid10.chunk_bytes(),
        }
    }

    /// The number of copies of each byte.
    pub fn copies(&self) -> u16 {
        match &self.places {
            Places::Zones(_) => 1,
            Places::Mirrors => self.slots,
            Places::Raid10(raid10) => raid10.copies_of_each(),
        }
    }

    /// Whether every array byte is still on some member when the slots for which `missing` is true are gone.
    pub fn survives(&self, missing: &dyn Fn(Slot) -> bool) -> bool {
        let mut slots = (0..self.slots).map(Slot);
        match &self.places {
            Places::Zones(_) => !slots.any(missing),
            Places::Mirrors => !slots.all(missing),
            Places::Raid10(raid10) => raid10.survives(missing),
        }
    }

    /// [`super::Geometry::may_fail`].
    pub fn may_fail(&self, missing: &dyn Fn(Slot) -> bool) -> u16 {
        let copies = match &self.places {
            Places::Zones(_) => 0,
            Places::Mirrors => (0..self.slots).filter(|&slot| !missing(Slot(slot))).count() as u16,
            Places::Raid10(raid10) => raid10.copies_left(missing),
        };
        copies.saturating_sub(1)
    }
}
