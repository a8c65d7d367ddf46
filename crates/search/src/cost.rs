//! What speaks against each member in each slot of a shape, by the clues.

use crate::evidence::Clue;
use crate::shape::{Shape, copies};
use format::geometry::{Geometry, Level, Role};
use format::units::ArrayByte;

/// A clue that has no exceptions costs as much as so many that have.
pub(crate) const SURE: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// For each slot and each member, the clues against the member there; the last columns are missing members.
pub(crate) fn cost(shape: Shape, geometry: &Geometry, members: &[usize], clues: &[Clue]) -> Vec<Vec<u64>> {
    let slots = usize::from(shape.slots);
    let mut cost = vec![vec![0; slots]; slots];
    for clue in clues {
        for (copy, (slot, _)) in copies(geometry, clue.block).into_iter().enumerate() {
            for (column, against) in cost[slot].iter_mut().enumerate() {
                *against += if fits(shape, clue, copy, members.get(column).copied()) {
                    0
                } else if clue.is_weak {
                    1
                } else {
                    SURE
                };
            }
        }
    }
    cost
}

/// Whether a member holds a copy of a clue's block, or may, if it is missing.
fn fits(shape: Shape, clue: &Clue, copy: usize, member: Option<usize>) -> bool {
    match (member, shape.level) {
        (Some(member), _) => clue.holders(copy) >> member & 1 == 1,
        (None, Level::Raid4 | Level::Raid5) => clue.in_xor,
        (None, Level::Raid6) => clue.without != 0,
        (None, Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid10) => true,
    }
}

/// The ends of files that are not where they should be.
pub(crate) fn ends_against(shape: Shape, geometry: &Geometry, order: &[Option<usize>], clues: &[Clue]) -> u64 {
    let against = |clue: &Clue| {
        let slots = copies(geometry, clue.block).into_iter().map(|(slot, _)| slot).enumerate();
        slots.filter(|(copy, slot)| !fits(shape, clue, *copy, order.get(*slot).copied().flatten())).count() as u64
    };
    clues.iter().filter(|clue| clue.is_end).map(against).sum()
}

/// Whether some copy of `block`, of which the clues know what it is, is where it should be.
pub(crate) fn is_in_place(
    shape: Shape,
    geometry: &Geometry,
    order: &[Option<usize>],
    clues: &[Clue],
    block: u64,
) -> bool {
    let slots: Vec<usize> = copies(geometry, block).into_iter().map(|(slot, _)| slot).collect();
    let is_there = |clue: &Clue| {
        let members = slots.iter().map(|slot| order.get(*slot).copied().flatten());
        (0..).zip(members).any(|(copy, member)| fits(shape, clue, copy, member) && clue.is_seen_on(copy, member))
    };
    clues.iter().filter(|clue| clue.block == block && !clue.is_weak).all(is_there)
}

/// The clues on the missing member of RAID-6 for which the member that holds Q there is not the one without which the xor
/// is right. A cost of one member in one slot cannot say that.
pub(crate) fn unexplained(shape: Shape, geometry: &Geometry, order: &[Option<usize>], clues: &[Clue]) -> u64 {
    let Geometry::Parity(parity) = geometry else { return 0 };
    let Some(missing) = order.iter().position(Option::is_none).filter(|_| shape.level == Level::Raid6) else {
        return 0;
    };
    let is_unexplained = |clue: &&Clue| {
        let (slot, at, _) = parity.locate(ArrayByte(clue.block * BLOCK));
        let q = || order[parity.stripe(at.0 / parity.chunk_bytes()).slot_of(Role::Q)?.index()];
        slot.index() == missing && clue.without != 0 && q().is_none_or(|member| clue.without >> member & 1 == 0)
    };
    clues.iter().filter(|clue| !clue.is_weak).filter(is_unexplained).count() as u64
}
