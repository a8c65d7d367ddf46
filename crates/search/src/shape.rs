//! The shapes that are tried: every level, layout and chunk that md has, with all members or with one missing.
//!
//! Shapes in which the array's blocks have the same positions on the members, whatever the order of the members, share
//! [`Rows`]: for them the evidence is collected once.

use format::geometry::{Geometry, Level, Shape as Checked};
use format::units::{ArrayByte, ComponentByte, Slot};

/// Bytes of a block, the unit of positions here.
const BLOCK: u64 = 4096;

/// At which position of its member a block of the array is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rows {
    /// So many chunks of data in a row of chunks.
    Striped(u64),
    /// Copies of a chunk one after another over all members.
    Near { copies: u64, slots: u64 },
    /// Copies of a row below it.
    Offset { copies: u64, slots: u64 },
    /// Copies of all rows below them, each `stride` blocks further on.
    Far { copies: u64, slots: u64, stride: u64 },
}

impl Rows {
    /// The position of the first copy of `block` with chunks of `chunk` blocks.
    pub(crate) fn position(self, block: u64, chunk: u64) -> u64 {
        self.position_of_copy(block, chunk, 0)
    }

    /// The position of a copy. Where all copies are in one row of [`Rows::Striped`], they have one position.
    pub(crate) fn position_of_copy(self, block: u64, chunk: u64, copy: u64) -> u64 {
        let (number, within) = (block / chunk, block % chunk);
        let row = match self {
            Self::Striped(data) => number / data,
            Self::Near { copies, slots } => (number * copies + copy.min(copies - 1)) / slots,
            Self::Offset { copies, slots } => number / slots * copies + copy.min(copies - 1),
            Self::Far { copies, slots, stride } => {
                return number / slots * chunk + within + copy.min(copies - 1) * stride;
            }
        };
        row * chunk + within
    }

    /// The positions of a block. Where all copies are in one row, they have one position.
    pub(crate) fn positions(self, block: u64, chunk: u64) -> impl Iterator<Item = u64> {
        let copies = match self {
            Self::Striped(_) => 1,
            Self::Near { copies, .. } | Self::Offset { copies, .. } | Self::Far { copies, .. } => copies,
        };
        (0..copies).map(move |copy| self.position_of_copy(block, chunk, copy))
    }

    /// Whether there can be such rows with this chunk.
    fn takes(self, chunk: u64) -> bool {
        !matches!(self, Self::Far { stride, .. } if !stride.is_multiple_of(chunk))
    }
}

/// A level with its layout and number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    pub(crate) layout: u32,
    pub(crate) slots: u16,
    /// Blocks from a copy to the next in far layouts; 0 in others.
    pub(crate) stride: u64,
}

/// The shapes for `members` members, of which none or one more is missing. Of shapes that always hold the same bytes at
/// the same places, only the first is listed: RAID-4 for RAID-5 with its parity on the last member. Far copies are
/// `strides` blocks away.
pub(crate) fn shapes(members: u16, strides: &[u64]) -> Vec<Shape> {
    let mut shapes = vec![Shape { level: Level::Raid0, layout: 1, slots: members, stride: 0 }];
    for slots in [members, members + 1] {
        for stride in strides {
            let far = |layout| Shape { level: Level::Raid10, layout, slots, stride: *stride };
            shapes.extend([0x201, 0x301].map(far));
        }
        let mut add = |level, layouts: &[u32]| {
            shapes.extend(layouts.iter().map(|layout| Shape { level, layout: *layout, slots, stride: 0 }));
        };
        add(Level::Raid5, &[2, 0, 1, 3, 4]);
        add(Level::Raid4, &[0]);
        add(Level::Raid6, &[2, 0, 1, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20]);
        add(Level::Raid10, &[0x102, 0x103, 0x1_0201, 0x1_0301]);
    }
    shapes.retain(|shape| shape.rows().is_some());
    shapes
}

impl Shape {
    /// The positions; `None` if there is no such array.
    pub(crate) fn rows(&self) -> Option<Rows> {
        let slots = u64::from(self.slots);
        let (near, far) = (u64::from(self.layout & 0xff), u64::from(self.layout >> 8 & 0xff));
        Some(match self.level {
            Level::Linear | Level::Raid1 => return None,
            Level::Raid0 => Rows::Striped(slots),
            Level::Raid4 | Level::Raid5 if slots >= 3 => Rows::Striped(slots - 1),
            Level::Raid6 if slots >= 4 => Rows::Striped(slots - 2),
            Level::Raid10 if far == 1 && slots > near && slots.is_multiple_of(near) => Rows::Striped(slots / near),
            Level::Raid10 if far == 1 && slots > near => Rows::Near { copies: near, slots },
            Level::Raid10 if far < 2 || slots < far || slots < 3 => return None,
            Level::Raid10 if self.stride > 0 => Rows::Far { copies: far, slots, stride: self.stride },
            Level::Raid10 => Rows::Offset { copies: far, slots },
            Level::Raid4 | Level::Raid5 | Level::Raid6 => return None,
        })
    }

    /// The geometry of members with room for so many blocks.
    pub(crate) fn geometry(&self, chunk: u64, blocks: u64) -> Option<Geometry> {
        let used = if self.stride > 0 { self.stride * u64::from(self.layout >> 8 & 0xff) } else { blocks };
        if used > blocks || !self.rows().is_none_or(|rows| rows.takes(chunk)) {
            return None;
        }
        let bytes = used / chunk * chunk * BLOCK;
        let has_component = self.level.has_component();
        Geometry::new(&Checked {
            level: self.level,
            layout: self.layout,
            chunk_bytes: chunk * BLOCK,
            slots: self.slots,
            component_bytes: bytes,
            member_bytes: if has_component { Vec::new() } else { vec![bytes; usize::from(self.slots)] },
        })
        .ok()
    }
}

/// Where a block of the array is: each copy, as a slot and a position in blocks.
pub(crate) fn copies(geometry: &Geometry, block: u64) -> Vec<(usize, u64)> {
    let at = ArrayByte(block * BLOCK);
    if at.0 >= geometry.array_bytes() {
        return Vec::new();
    }
    let place = |(slot, at): (Slot, ComponentByte)| (slot.index(), at.0 / BLOCK);
    match geometry {
        Geometry::Parity(parity) => {
            let (slot, at, _) = parity.locate(at);
            vec![place((slot, at))]
        }
        Geometry::Mapping(mapping) => mapping.piece_at(at).copies.iter().copied().map(place).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_are_where_the_geometry_has_its_first_copies() {
        for members in 2..=13 {
            for shape in shapes(members, &[512, 1008]) {
                let rows = shape.rows().expect("it is listed");
                for chunk in [1, 4, 16] {
                    let geometry = shape.geometry(chunk, 4096).expect("it is listed");
                    for block in (0..3000).step_by(7) {
                        let every: Vec<u64> = copies(&geometry, block).iter().map(|(_, position)| *position).collect();
                        let positions: HashSet<u64> = rows.positions(block, chunk).collect();
                        assert!(
                            every.iter().all(|position| positions.contains(position)),
                            "{shape:?}, {chunk}, {block}"
                        );
                        for (copy, (_, position)) in (0..).zip(copies(&geometry, block)) {
                            let expected = rows.position_of_copy(block, chunk, copy);
                            assert_eq!(position, expected, "{shape:?}, {chunk}, {block}, {copy}");
                        }
                    }
                }
            }
        }
    }
}
