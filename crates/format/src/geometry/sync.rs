//! The space in which md counts what is in sync: what a write-intent bitmap covers, and where a resync stands.
//!
//! For parity levels it is a component: all members have the same row at the same position. For RAID-1 component and array
//! coincide, and for RAID-10 it is the array. Positions are bytes.
//!
//! Facts: `drivers/md/md-bitmap.c` and `md_do_sync` in `drivers/md/md.c`; `resync_max_sectors` of each personality.

use super::{Geometry, Level};
use crate::units::{SECTOR_BYTES, Sectors, Slot};
use std::ops::Range;

/// What the positions of a resync and of a bitmap count. A recovery always counts component bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncSpace {
    /// Component bytes, the same on every member.
    Component,
    /// Array bytes.
    Array,
}

impl Level {
    /// What positions count. In RAID-1 array and component coincide; linear and 0 have no resync.
    pub fn sync_space(self) -> SyncSpace {
        match self {
            Self::Linear | Self::Raid0 | Self::Raid1 | Self::Raid4 | Self::Raid5 | Self::Raid6 => SyncSpace::Component,
            Self::Raid10 => SyncSpace::Array,
        }
    }
}

impl Geometry {
    /// What positions count.
    pub fn sync_space(&self) -> SyncSpace {
        self.level().sync_space()
    }

    /// What a bitmap covers on members with components of this size.
    pub fn bitmap_covers(&self, component: Sectors) -> Sectors {
        match self.sync_space() {
            SyncSpace::Component => component,
            SyncSpace::Array => Sectors(self.array_bytes() / SECTOR_BYTES),
        }
    }

    /// The size of that space in bytes.
    pub fn sync_bytes(&self) -> u64 {
        match self {
            Self::Parity(_) => self.used_bytes(Slot(0)),
            Self::Mapping(mapping) => mapping.array_bytes(),
        }
    }

    /// The part of that space that a write to `range` of the array touches: whole stripes for parity levels.
    pub fn sync_range(&self, range: &Range<u64>) -> Range<u64> {
        match self {
            Self::Parity(parity) => {
                let (stripes, chunk) = (parity.stripes_of(range), parity.chunk_bytes());
                stripes.start * chunk..stripes.end * chunk
            }
            Self::Mapping(_) => range.clone(),
        }
    }

    /// The array bytes that a range of positions covers: whole stripes for parity levels.
    pub fn array_range(&self, positions: &Range<u64>) -> Range<u64> {
        match self {
            Self::Parity(parity) => {
                let (stripes, width) = (parity.stripes_at(positions), parity.stripe_bytes());
                stripes.start * width..stripes.end * width
            }
            Self::Mapping(_) => positions.clone(),
        }
    }

    /// The position at byte `at` of the array, rounded down to a whole stripe.
    pub fn sync_position(&self, at: u64) -> u64 {
        match self {
            Self::Parity(parity) => at / parity.stripe_bytes() * parity.chunk_bytes(),
            Self::Mapping(_) => at,
        }
    }

    /// The byte of the array at a position, rounded down to a whole stripe, and at most the size of the array.
    pub fn array_byte_at(&self, position: u64) -> u64 {
        match self {
            Self::Parity(parity) => (position / parity.chunk_bytes()).min(parity.stripes()) * parity.stripe_bytes(),
            Self::Mapping(mapping) => position.min(mapping.array_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Shape;

    const CHUNK: u64 = 64 << 10;

    fn geometry(level: Level, layout: u32, slots: u16) -> Geometry {
        let shape =
            Shape { level, layout, chunk_bytes: CHUNK, slots, component_bytes: 10 * CHUNK, member_bytes: Vec::new() };
        Geometry::new(&shape).expect("a shape that md takes")
    }

    #[test]
    fn a_position_and_the_byte_of_the_array_there_are_inverse_at_stripes() {
        for (level, layout, slots, bytes) in [
            (Level::Raid5, 2, 4, 10 * CHUNK),
            (Level::Raid6, 2, 5, 10 * CHUNK),
            (Level::Raid1, 0, 2, 10 * CHUNK),
            (Level::Raid10, 0x102, 4, 20 * CHUNK),
        ] {
            let geometry = geometry(level, layout, slots);
            assert_eq!(geometry.sync_bytes(), bytes, "{level:?}");
            assert_eq!(geometry.sync_position(geometry.array_bytes()), bytes, "{level:?}");
            assert_eq!(geometry.array_byte_at(u64::MAX), geometry.array_bytes(), "{level:?}");
            for position in (0..=bytes).step_by(CHUNK as usize) {
                assert_eq!(geometry.sync_position(geometry.array_byte_at(position)), position, "{level:?} {position}");
            }
        }
    }

    #[test]
    fn a_write_touches_every_row_of_its_stripes_and_no_other() {
        let raid5 = geometry(Level::Raid5, 2, 4);
        for (range, rows) in [(0..1, 0..1), (3 * CHUNK - 1..3 * CHUNK + 1, 0..2), (3 * CHUNK..6 * CHUNK, 1..2)] {
            let positions = rows.start * CHUNK..rows.end * CHUNK;
            assert_eq!(raid5.sync_range(&range), positions, "{range:?}");
            assert_eq!(raid5.array_range(&positions), 3 * positions.start..3 * positions.end, "{range:?}");
        }
        assert_eq!(geometry(Level::Raid10, 0x102, 4).sync_range(&(7..9)), 7..9);
    }
}
