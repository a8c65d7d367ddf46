//! What a RAID level decides without I/O: one trait, [`Personality`], which is md's word for it.
//!
//! A geometry is of one of two families, and each implements the trait once: copies ([`Mapping`]: linear, 0, 1, 10)
//! and parity ([`Parity`]: 4, 5, 6). [`personality`] is the only choice between them here. What a family does with I/O is
//! in [`crate::data::personality`] and in `control/sweep/personality.rs`. No other file of the engine matches on
//! [`Geometry`]. Creation and assembly, which begin with a level and no geometry, ask for its
//! [`format::geometry::Redundancy`].
//!
//! Everything here is a pure function of a geometry. *Positions* are what a sweep counts
//! ([`format::geometry::SyncSpace`]). All ranges are in bytes. Locks of parity levels are ranges of component bytes, which
//! all chunks of a stripe share; the ones made here are of whole stripes.

use crate::plan::ROW_BYTES;
use crate::plan::planner::DATA_CHUNKS_MAX;
use format::geometry::{Geometry, Mapping, Parity, Piece, Stripe, SyncSpace};
use format::units::{ArrayByte, ComponentByte, Slot};
use smallvec::SmallVec;
use std::ops::Range;

/// The personality of a geometry.
pub(crate) fn personality(geometry: &Geometry) -> &dyn Personality {
    match geometry {
        Geometry::Mapping(mapping) => mapping,
        Geometry::Parity(parity) => parity,
    }
}

/// What a level decides.
pub(crate) trait Personality {
    /// Why the engine cannot use such an array, if it cannot.
    fn unsupported(&self) -> Option<String>;

    /// Whether lost data can be supplied only where redundancy agrees with the data. A copy is some data in any case;
    /// parity that is wrong gives bytes that were never written.
    fn needs_agreement(&self) -> bool;

    /// Whether the other members can supply all that `slot` holds in a range of its component.
    fn can_be_supplied(&self, slot: Slot, component: &Range<u64>, members: &dyn Supply) -> bool;

    /// The stripes of the level; `None` where writes are not coalesced, cached or read ahead by stripe.
    fn stripe(&self) -> Option<StripeUnits>;

    /// The unit that can be zeroed without reading anything, on members with blocks of `block_bytes`.
    fn zero_unit(&self, block_bytes: u64) -> u64;

    /// The length and alignment of requests that is cheapest.
    fn preferred_bytes(&self) -> u64;

    /// What to lock for a range of positions.
    fn locks(&self, positions: &Range<u64>) -> Range<u64>;

    /// What to lock for a range of the array.
    fn locks_of_array(&self, array: &Range<u64>) -> Range<u64>;

    /// What to lock for a range of a member, up to [`Personality::lock_rest`]. `None` if no data lies there.
    fn locks_of_member(&self, slot: Slot, component: &Range<u64>) -> Option<Range<u64>>;

    /// Bytes of a member from `at` on that one lock covers. `None` if no data lies there.
    fn lock_rest(&self, slot: Slot, at: ComponentByte) -> Option<u64>;

    /// The position of a byte of a member. `None` if no data lies there.
    fn position_of(&self, slot: Slot, at: ComponentByte) -> Option<u64>;

    /// The windows of a sweep over positions, of about `window` bytes of each member. Where positions are component
    /// bytes, a window is `component_step` long.
    fn sweep_windows(&self, window: u64, component_step: u64) -> SweepWindows;

    /// The positions that a scrub of a range of the array visits; `copies_unit` is the unit in which md compares
    /// copies.
    fn scrubbed(&self, array: &Range<u64>, copies_unit: u64) -> Range<u64>;

    /// How many members hold each position: data and parity of a stripe, or the copies.
    fn witnesses(&self) -> u16;

    /// The parts of a range of positions in which all witnesses are contiguous. What lies past the array is left out.
    fn groups(&self, positions: &Range<u64>) -> Vec<Group>;

    /// What each member holds of whole [`Personality::zero_unit`]s of the array, as long ranges of its component.
    fn extents(&self, array: &Range<u64>) -> Vec<(Slot, Range<u64>)>;

    /// Calls `visit` with each range of a member on which bytes of an array range depend: all members' rows, or the
    /// copies.
    fn visit_members(&self, array: &Range<u64>, visit: &mut dyn FnMut(Slot, &Range<u64>));

    /// The array bytes of each data block of the row of `bytes` bytes at a position.
    fn data_of_row(&self, position: u64, bytes: u64) -> Vec<Range<u64>>;
}

/// What members can supply, for [`Personality::can_be_supplied`].
pub(crate) trait Supply {
    /// Whether parity can stand in for a member, everywhere that was ever written to.
    fn parity_stands_in(&self) -> bool;

    /// Whether the member in `slot` can supply a range of its component.
    fn can_supply(&self, slot: Slot, component: &Range<u64>) -> bool;

    /// Cuts a range so that in each part every member can supply all or nothing.
    fn evenly_readable(&self, component: &Range<u64>) -> Vec<Range<u64>>;
}

impl Group {
    /// The positions that it is of.
    pub(crate) fn positions(&self) -> Range<u64> {
        let start = match self.stripe {
            Some(_) => self.places[0].1,
            None => self.array_end - self.bytes,
        };
        start..start + self.bytes
    }
}

/// The units of stripes with parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StripeUnits {
    /// Array bytes in a stripe.
    pub(crate) bytes: u64,
    /// Bytes of it on each member.
    pub(crate) chunk_bytes: u64,
}

/// The windows of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SweepWindows {
    /// Positions in a window.
    pub(crate) step: u64,
    /// Bytes of each member in a window, about.
    pub(crate) member_bytes: u64,
}

/// Bytes of several members that belong to one stripe or piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The stripe, at levels with parity.
    pub(crate) stripe: Option<Stripe>,
    /// The array byte behind the group and all that its parity covers.
    pub(crate) array_end: u64,
    /// Bytes at each place.
    pub(crate) bytes: u64,
    /// Slot and component byte of each witness: data, then parities; or the copies.
    pub(crate) places: SmallVec<[(Slot, u64); 8]>,
}

impl Personality for Mapping {
    fn unsupported(&self) -> Option<String> {
        None
    }

    fn needs_agreement(&self) -> bool {
        false
    }

    fn can_be_supplied(&self, slot: Slot, component: &Range<u64>, members: &dyn Supply) -> bool {
        let mut at = component.start;
        while at < component.end {
            let bytes = self.chunk_rest(ComponentByte(at)).min(component.end - at);
            if let Some(held) = self.held(slot, ComponentByte(at)) {
                let piece = self.piece_at(held);
                // Copies with bad blocks are checked one row at a time.
                let mut rows = (0..bytes).step_by(ROW_BYTES as usize).map(|row| row..bytes.min(row + ROW_BYTES));
                let is_given = |row: Range<u64>| {
                    let can_supply = |&(other, at): &(Slot, ComponentByte)| {
                        other != slot && members.can_supply(other, &(at.0 + row.start..at.0 + row.end))
                    };
                    piece.copies.iter().any(can_supply)
                };
                if !rows.all(is_given) {
                    return false;
                }
            }
            at += bytes.max(1);
        }
        true
    }

    fn stripe(&self) -> Option<StripeUnits> {
        None
    }

    fn zero_unit(&self, block_bytes: u64) -> u64 {
        block_bytes
    }

    fn preferred_bytes(&self) -> u64 {
        64 << 10
    }

    fn locks(&self, positions: &Range<u64>) -> Range<u64> {
        positions.clone()
    }

    fn locks_of_array(&self, array: &Range<u64>) -> Range<u64> {
        array.clone()
    }

    fn locks_of_member(&self, slot: Slot, component: &Range<u64>) -> Option<Range<u64>> {
        let at = self.held(slot, ComponentByte(component.start))?.0;
        Some(at..at + component.end - component.start)
    }

    fn lock_rest(&self, slot: Slot, at: ComponentByte) -> Option<u64> {
        self.held(slot, at).map(|_| self.chunk_rest(at))
    }

    fn position_of(&self, slot: Slot, at: ComponentByte) -> Option<u64> {
        self.held(slot, at).map(|held| held.0)
    }

    fn sweep_windows(&self, window: u64, component_step: u64) -> SweepWindows {
        match self.level().sync_space() {
            SyncSpace::Component => SweepWindows { step: component_step, member_bytes: component_step },
            SyncSpace::Array => {
                let chunk = self.chunk_bytes();
                let array_bytes = window * u64::from(self.slots()) / u64::from(self.copies());
                let step = (array_bytes / chunk).max(1) * chunk;
                SweepWindows { step: if chunk > window { window } else { step }, member_bytes: window }
            }
        }
    }

    fn scrubbed(&self, array: &Range<u64>, copies_unit: u64) -> Range<u64> {
        let unit = copies_unit.max(self.chunk_bytes());
        array.start / unit * unit..array.end.next_multiple_of(unit).min(self.array_bytes())
    }

    fn witnesses(&self) -> u16 {
        self.copies()
    }

    fn groups(&self, positions: &Range<u64>) -> Vec<Group> {
        let bytes = positions.end.min(self.array_bytes()).saturating_sub(positions.start);
        let group = |piece: Piece| Group {
            stripe: None,
            array_end: piece.at.0 + piece.bytes,
            bytes: piece.bytes,
            places: piece.copies.iter().map(|&(slot, at)| (slot, at.0)).collect(),
        };
        self.pieces(ArrayByte(positions.start), bytes).map(group).collect()
    }

    fn extents(&self, array: &Range<u64>) -> Vec<(Slot, Range<u64>)> {
        let mut extents: Vec<(Slot, Range<u64>)> = Vec::new();
        // The extents of each slot that may still grow. Offset and far copies have more than one.
        let mut growing = vec![SmallVec::<[usize; 4]>::new(); self.slots().into()];
        for piece in self.pieces(ArrayByte(array.start), array.end - array.start) {
            for &(slot, at) in &piece.copies {
                let own = &mut growing[slot.index()];
                match own.iter().find(|&&index| extents[index].1.end == at.0) {
                    Some(&index) => extents[index].1.end += piece.bytes,
                    None => {
                        own.push(extents.len());
                        extents.push((slot, at.0..at.0 + piece.bytes));
                    }
                }
            }
        }
        extents
    }

    fn visit_members(&self, array: &Range<u64>, visit: &mut dyn FnMut(Slot, &Range<u64>)) {
        for piece in self.pieces(ArrayByte(array.start), array.end - array.start) {
            piece.copies.iter().for_each(|&(slot, at)| visit(slot, &(at.0..at.0 + piece.bytes)));
        }
    }

    fn data_of_row(&self, position: u64, bytes: u64) -> Vec<Range<u64>> {
        std::iter::once(position..position + bytes).collect()
    }
}

impl Personality for Parity {
    fn unsupported(&self) -> Option<String> {
        (self.data_chunks() > DATA_CHUNKS_MAX)
            .then(|| format!("{} members: more than {DATA_CHUNKS_MAX} data chunks a stripe", self.slots()))
    }

    fn needs_agreement(&self) -> bool {
        true
    }

    fn can_be_supplied(&self, slot: Slot, component: &Range<u64>, members: &dyn Supply) -> bool {
        members.parity_stands_in()
            && members.evenly_readable(component).iter().all(|part| {
                let is_lost = |&other: &Slot| other == slot || !members.can_supply(other, part);
                self.survives((0..self.slots()).map(Slot).filter(is_lost).count() as u16)
            })
    }

    fn stripe(&self) -> Option<StripeUnits> {
        Some(StripeUnits { bytes: self.stripe_bytes(), chunk_bytes: self.chunk_bytes() })
    }

    fn zero_unit(&self, _block_bytes: u64) -> u64 {
        self.stripe_bytes()
    }

    fn preferred_bytes(&self) -> u64 {
        self.stripe_bytes()
    }

    fn locks(&self, positions: &Range<u64>) -> Range<u64> {
        self.component_of(&self.stripes_at(positions))
    }

    fn locks_of_array(&self, array: &Range<u64>) -> Range<u64> {
        self.component_of(&self.stripes_of(array))
    }

    fn locks_of_member(&self, _slot: Slot, component: &Range<u64>) -> Option<Range<u64>> {
        Some(self.component_of(&self.stripes_at(component)))
    }

    fn lock_rest(&self, _slot: Slot, at: ComponentByte) -> Option<u64> {
        Some(self.chunk_bytes() - at.0 % self.chunk_bytes())
    }

    fn position_of(&self, _slot: Slot, at: ComponentByte) -> Option<u64> {
        Some(at.0)
    }

    fn sweep_windows(&self, _window: u64, component_step: u64) -> SweepWindows {
        SweepWindows { step: component_step, member_bytes: component_step }
    }

    fn scrubbed(&self, array: &Range<u64>, _copies_unit: u64) -> Range<u64> {
        self.component_of(&self.stripes_of(array))
    }

    fn witnesses(&self) -> u16 {
        self.slots()
    }

    fn groups(&self, positions: &Range<u64>) -> Vec<Group> {
        let end = positions.end.min(self.stripes() * self.chunk_bytes());
        let group = |(stripe, part): (Stripe, Range<u64>)| Group {
            stripe: Some(stripe),
            array_end: (stripe.number() + 1) * self.stripe_bytes(),
            bytes: part.end - part.start,
            places: stripe.slots().map(|slot| (slot, part.start)).collect(),
        };
        self.parts(&(positions.start..end)).map(group).collect()
    }

    fn extents(&self, array: &Range<u64>) -> Vec<(Slot, Range<u64>)> {
        let part = self.component_of(&self.stripes_of(array));
        (0..self.slots()).map(|slot| (Slot(slot), part.clone())).collect()
    }

    fn visit_members(&self, array: &Range<u64>, visit: &mut dyn FnMut(Slot, &Range<u64>)) {
        let mut at = array.start;
        while at < array.end {
            let (_, component, rest) = self.locate(ArrayByte(at));
            let part = rest.min(array.end - at);
            (0..self.slots()).for_each(|slot| visit(Slot(slot), &(component.0..component.0 + part)));
            at += part;
        }
    }

    fn data_of_row(&self, position: u64, bytes: u64) -> Vec<Range<u64>> {
        let number = position / self.chunk_bytes();
        let start = number * self.stripe_bytes() + position % self.chunk_bytes();
        let at = |index: u16| start + u64::from(index) * self.chunk_bytes();
        (0..self.data_chunks()).map(|index| at(index)..at(index) + bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::geometry::{Level, Shape};

    const CHUNK: u64 = 64 << 10;

    /// An array of each kind: RAID-1, 4, 5, 6 and 10, with near, offset and far copies.
    fn arrays() -> impl Iterator<Item = Geometry> {
        let shapes = [
            (Level::Raid1, 0, 3),
            (Level::Raid4, 0, 4),
            (Level::Raid5, 2, 3),
            (Level::Raid6, 2, 5),
            (Level::Raid10, 0x102, 4),
            (Level::Raid10, 0x201, 3),
            (Level::Raid10, 0x1_0201, 5),
        ];
        shapes.into_iter().map(|(level, layout, slots)| {
            let component_bytes = 20 * CHUNK;
            let shape = Shape { level, layout, chunk_bytes: CHUNK, slots, component_bytes, member_bytes: Vec::new() };
            Geometry::new(&shape).expect("a shape that md takes")
        })
    }

    /// Members that are all there, or all but one.
    struct Members {
        missing: Option<Slot>,
        agreed: bool,
    }

    impl Supply for Members {
        fn parity_stands_in(&self) -> bool {
            self.agreed
        }

        fn can_supply(&self, slot: Slot, _: &Range<u64>) -> bool {
            Some(slot) != self.missing
        }

        fn evenly_readable(&self, component: &Range<u64>) -> Vec<Range<u64>> {
            std::iter::once(component.clone()).collect()
        }
    }

    #[test]
    fn a_sweep_a_write_and_a_repair_of_the_same_bytes_lock_each_other_out() {
        for geometry in arrays() {
            let level = personality(&geometry);
            for write in [0..1, CHUNK - 1..CHUNK + 1, 3 * CHUNK..7 * CHUNK] {
                let of_sweep = level.locks(&geometry.sync_range(&write));
                let of_write = level.locks_of_array(&write);
                assert!(of_sweep.start <= of_write.start && of_write.end <= of_sweep.end, "{geometry:?} {write:?}");
                level.visit_members(&write, &mut |slot, part| {
                    let rest = level.lock_rest(slot, ComponentByte(part.start)).expect("data lies there");
                    let part = part.start..part.end.min(part.start + rest);
                    let of_repair = level.locks_of_member(slot, &part).expect("data lies there");
                    let is_met = of_repair.start < of_write.end && of_write.start < of_repair.end;
                    assert!(is_met, "{geometry:?} {write:?} {slot} {part:?}");
                });
            }
        }
    }

    #[test]
    fn extents_and_groups_of_a_whole_array_are_every_byte_of_its_members_once() {
        for geometry in arrays() {
            let level = personality(&geometry);
            let whole = 0..geometry.array_bytes();
            let extents: u64 = level.extents(&whole).iter().map(|(_, part)| part.end - part.start).sum();
            let groups = level.groups(&geometry.sync_range(&whole));
            let places: u64 = groups.iter().map(|group| group.bytes * group.places.len() as u64).sum();
            let used: u64 = (0..geometry.slots()).map(|slot| geometry.used_bytes(Slot(slot))).sum();
            assert!(extents == places && places <= used, "{geometry:?}: {extents} {places} of {used}");
            assert!(groups.iter().all(|group| group.places.len() == usize::from(level.witnesses())), "{geometry:?}");
            let ends = groups.iter().map(|group| group.array_end).max();
            assert_eq!(ends, Some(geometry.array_bytes()), "{geometry:?}");
        }
    }

    #[test]
    fn parity_supplies_what_is_lost_only_while_it_agrees_and_as_often_as_there_are_parities() {
        for geometry in arrays() {
            let level = personality(&geometry);
            let supplies = |members: Members| level.can_be_supplied(Slot(0), &(0..CHUNK), &members);
            assert!(supplies(Members { missing: None, agreed: true }), "{geometry:?}");
            assert_eq!(supplies(Members { missing: None, agreed: false }), !level.needs_agreement(), "{geometry:?}");
            let survives_two = geometry.survives(&|slot| slot.0 < 2);
            assert_eq!(supplies(Members { missing: Some(Slot(1)), agreed: true }), survives_two, "{geometry:?}");
        }
    }
}
