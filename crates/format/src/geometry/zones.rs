//! Linear and RAID-0: each array byte on one member.
//!
//! Both are lists of zones. Linear has a zone for each member. RAID-0 over members of unequal size stripes over all of
//! them up to the size of the smallest, then over the larger ones, and so on:
//!
//! ```text
//!            alternate    original
//! member 0   | 0 |        | 0 |            zone 0: chunks 0-2 on members 0, 1, 2
//! member 1   | 1 | 3 | 5  | 1 | 4 | 6      zone 1: chunks 3-6 on members 1, 2
//! member 2   | 2 | 4 | 6  | 2 | 3 | 5
//! ```
//!
//! *Alternate* (Linux 3.14 and later) starts each zone on its first member. *Original* (before) uses the chunk's number
//! in the array, not in the zone, modulo the zone's members: chunk 3 above is on the second of two.
//!
//! Invariant: zones are adjacent, in array order, never empty, and the last ends at the array's end. Nothing here does
//! I/O.
//!
//! Source: `drivers/md/{md-linear,raid0}.c`.

use smallvec::smallvec;
use std::ops::Range;

use super::divisor::Divisor;
use super::layout::{RAID0_ALTERNATE, RAID0_ORIGINAL};
use super::{Copies, Level, Shape, check_array, check_chunk, unknown_layout};
use crate::defect::Defect;
use crate::units::{ComponentByte, SECTOR_BYTES, Slot};

/// The zones of a linear or RAID-0 array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Zones {
    zones: Vec<Zone>,
    chunk: Chunk,
    used: Vec<u64>,
    layout_name: Option<&'static str>,
}

/// A range of the array that is striped over the same members throughout.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Zone {
    /// Its end in the array; it starts at the end of the previous zone.
    end: u64,
    start: u64,
    /// Its start on each of its members.
    component: u64,
    /// Its members, ascending. Never empty.
    slots: Vec<Slot>,
    /// The number of its members.
    members: Divisor,
    /// Index in `slots` of the member with its first chunk.
    first: u64,
}

impl Zone {
    /// A zone that starts on its first member.
    fn new(array: Range<u64>, component: u64, slots: Vec<Slot>) -> Self {
        let Range { start, end } = array;
        let members = Divisor::new(slots.len() as u64, (end - start) / SECTOR_BYTES);
        Self { start, end, component, slots, members, first: 0 }
    }
}

/// The chunk size in bytes, prepared for division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    bytes: u64,
    /// Its base-2 logarithm, if it is a power of two: RAID-0 allows any number of whole sectors.
    shift: Option<u32>,
}

impl Chunk {
    fn new(bytes: u64) -> Self {
        Self { bytes, shift: bytes.is_power_of_two().then(|| bytes.trailing_zeros()) }
    }

    /// Quotient and remainder.
    #[inline]
    fn divide(self, bytes: u64) -> (u64, u64) {
        match self.shift {
            Some(shift) => (bytes >> shift, bytes & (self.bytes - 1)),
            None => (bytes / self.bytes, bytes % self.bytes),
        }
    }
}

impl Zones {
    pub(super) fn new(shape: &Shape) -> Result<Self, Defect> {
        if shape.member_bytes.len() != usize::from(shape.slots) {
            let reason = format!("{} slots, but {} members' sizes", shape.slots, shape.member_bytes.len());
            return Err(Defect::new("superblock.raid_disks", reason));
        }
        match shape.level {
            Level::Linear => Self::linear(shape),
            Level::Raid0 => Self::raid0(shape),
            Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
                unreachable!("{:?} has no zones", shape.level)
            }
        }
    }

    fn linear(shape: &Shape) -> Result<Self, Defect> {
        let rounding = if shape.chunk_bytes == 0 { SECTOR_BYTES } else { shape.chunk_bytes };
        check_chunk(rounding)?;
        let used = cut_members(&shape.member_bytes, rounding);
        check_array("superblock.data_size", used.iter().map(|&bytes| u128::from(bytes)).sum())?;
        let mut start = 0;
        let mut zones = (0..shape.slots)
            .zip(&used)
            .map(|(slot, bytes)| {
                let zone = Zone::new(start..start + bytes, 0, vec![Slot(slot)]);
                start = zone.end;
                zone
            })
            .collect();
        clip(&mut zones, start)?;
        Ok(Self { zones, chunk: Chunk::new(rounding), used, layout_name: None })
    }

    fn raid0(shape: &Shape) -> Result<Self, Defect> {
        check_chunk(shape.chunk_bytes)?;
        let chunk = Chunk::new(shape.chunk_bytes);
        let used = cut_members(&shape.member_bytes, chunk.bytes);
        check_array("superblock.data_size", used.iter().map(|&bytes| u128::from(bytes)).sum())?;
        let mut zones = stripe_zones(&used);
        let layout_name = choose_layout(&mut zones, shape.layout, chunk)?;
        clip(&mut zones, raid0_array_bytes(&used, chunk.bytes))?;
        Ok(Self { zones, chunk, used, layout_name })
    }

    pub(super) fn array_bytes(&self) -> u64 {
        self.zones.last().map_or(0, |zone| zone.end)
    }

    pub(super) fn used_bytes(&self, slot: Slot) -> u64 {
        self.used[slot.index()]
    }

    pub(super) fn layout_name(&self) -> Option<&'static str> {
        self.layout_name
    }

    /// Length and position of the piece at `at`, which is within the array.
    #[inline]
    pub(super) fn find(&self, at: u64) -> (u64, Copies) {
        let zone = match &self.zones[..] {
            [only] => only,
            zones => &zones[zones.partition_point(|zone| zone.end <= at)],
        };
        let within = at - zone.start;
        if let [only] = zone.slots[..] {
            return (zone.end - at, smallvec![(only, ComponentByte(zone.component + within))]);
        }
        let (chunk, offset) = self.chunk.divide(within);
        let (row, column) = zone.members.divide(chunk);
        let column = (column + zone.first) as usize;
        let slot = zone.slots[if column < zone.slots.len() { column } else { column - zone.slots.len() }];
        let component = zone.component + row * self.chunk.bytes + offset;
        let bytes = (self.chunk.bytes - offset).min(zone.end - at);
        (bytes, smallvec![(slot, ComponentByte(component))])
    }
}

/// Each member's bytes, rounded down to whole chunks, possibly to 0.
fn cut_members(member_bytes: &[u64], chunk: u64) -> Vec<u64> {
    member_bytes.iter().map(|bytes| bytes - bytes % chunk).collect()
}

/// RAID-0's zones over members of these sizes, each starting on its first member.
fn stripe_zones(used: &[u64]) -> Vec<Zone> {
    let mut sizes = used.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let mut zones = Vec::with_capacity(sizes.len());
    let (mut start, mut component) = (0, 0);
    for size in sizes {
        let slots: Vec<Slot> =
            (0..).zip(used).filter(|&(_, &bytes)| bytes >= size).map(|(slot, _)| Slot(slot)).collect();
        let end = start + (size - component) * slots.len() as u64;
        zones.push(Zone::new(start..end, component, slots));
        (start, component) = (end, size);
    }
    zones
}

/// Shifts the zones according to `layout`. md ignores the layout, which makes no difference, when only the first zone
/// has several members.
fn choose_layout(zones: &mut [Zone], layout: u32, chunk: Chunk) -> Result<Option<&'static str>, Defect> {
    if zones.iter().skip(1).all(|zone| zone.slots.len() == 1) {
        return Ok(None);
    }
    match layout {
        RAID0_ALTERNATE => Ok(Some("alternate")),
        RAID0_ORIGINAL => {
            for zone in zones {
                zone.first = zone.start / chunk.bytes % zone.slots.len() as u64;
            }
            Ok(Some("original"))
        }
        0 => Err(Defect::new(
            "superblock.layout",
            "0: the members differ in size, and the array does not say which of two ways its larger members were \
             striped: `original` (1) if it was written by Linux before 3.14, `alternate` (2) if by 3.14 or later",
        )),
        other => Err(unknown_layout(other, "1 (original), 2 (alternate)")),
    }
}

/// The array's size as md computes it. md cuts each member again, with a mask that is correct for powers of two only.
/// With other chunk sizes, the array can end before its last zone.
fn raid0_array_bytes(used: &[u64], chunk: u64) -> u64 {
    let mask = !(chunk / SECTOR_BYTES - 1);
    used.iter().map(|bytes| ((bytes / SECTOR_BYTES) & mask) * SECTOR_BYTES).sum()
}

/// Cuts the zones at `array_bytes`, and removes empty ones.
fn clip(zones: &mut Vec<Zone>, array_bytes: u64) -> Result<(), Defect> {
    for zone in zones.iter_mut() {
        zone.end = zone.end.min(array_bytes);
    }
    zones.retain(|zone| zone.start < zone.end);
    if zones.is_empty() {
        return Err(Defect::new("superblock.data_size", "no member has room for a chunk"));
    }
    Ok(())
}
