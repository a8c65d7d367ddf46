//! The order of the members of RAID-6, from Q alone, without a known block.
//!
//! At one position the members' blocks fulfil two linear equations over the field of 256 elements: P is the sum of the
//! data, and Q is the sum of the data with a power of 2 for each slot. If the data are independent, no other equation
//! holds. So the equations that hold tell the power of each member, and thus its slot. With a member missing, one
//! equation is left, in which the missing one's power is in each coefficient. Pure, but for the reads.

use crate::cost::SURE;
use crate::crc::BLOCK;
use crate::evidence::Frame;
use disk::Source;
use format::geometry::{Parity, Role, Stripe};
use parity::gf;
use std::collections::HashMap;

/// Positions that are looked at: of those with something on three members, and of those with the most.
const POSITIONS: usize = 32;

/// The equations that hold at a position: the members with something there, and their coefficients in each.
struct Equations {
    at: u64,
    members: Vec<usize>,
    kernel: Vec<Vec<u8>>,
}

/// The equations at positions behind one offset.
pub(crate) struct Order(Vec<Equations>);

/// The equations by the offset and the members that take part.
#[derive(Default)]
pub(crate) struct Orders(HashMap<(u64, Vec<usize>), Order>);

impl Orders {
    /// The equations of this frame; they are computed once for all with its offset.
    pub(crate) async fn of<S: Source>(&mut self, frame: &Frame<'_, S>, end: u64) -> &Order {
        let key = (frame.offset, frame.members.to_vec());
        if !self.0.contains_key(&key) {
            self.0.insert(key.clone(), Order::of(frame, end).await);
        }
        &self.0[&key]
    }
}

impl Order {
    /// Computes the equations at some positions below `end`.
    async fn of<S: Source>(frame: &Frame<'_, S>, end: u64) -> Self {
        let held = |at: u64| -> Option<usize> {
            let summaries = frame.members.iter().map(|member| frame.scan.summary(*member, at));
            summaries.map(|summary| summary.map(|own| usize::from(own.end > 0))).sum()
        };
        let inside = frame.scan.written(frame.offset..frame.offset.saturating_add(end));
        let rows: Vec<(u64, usize)> =
            inside.filter_map(|at| Some((at, held(frame.offset + at)?))).filter(|(_, count)| *count > 2).collect();
        let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let full: Vec<(u64, usize)> = rows.iter().copied().filter(|(_, count)| *count == most).collect();
        let mut found = Vec::new();
        for rows in [rows, full] {
            for (at, _) in rows.iter().step_by(rows.len().div_ceil(POSITIONS).max(1)) {
                found.extend(equations(frame, *at).await);
            }
        }
        Self(found)
    }

    /// Adds to the cost of each member in each slot what these equations say against it. `missing` is the slot without
    /// a member, if there is one.
    pub(crate) fn add_to(
        &self,
        cost: &mut [Vec<u64>],
        parity: &Parity,
        chunk: u64,
        members: &[usize],
        missing: Option<usize>,
    ) {
        // Behind the last whole chunk is no data.
        for own in self.0.iter().filter(|own| own.at / chunk < parity.stripes()) {
            let stripe = parity.stripe(own.at / chunk);
            for (slot, member) in own.slots(&stripe, missing) {
                let column = members.iter().position(|other| *other == member);
                for (other, cost) in cost[slot].iter_mut().enumerate() {
                    *cost += if Some(other) == column { 0 } else { SURE };
                }
            }
        }
    }
}

impl Equations {
    /// The members whose slots follow.
    fn slots(&self, stripe: &Stripe, missing: Option<usize>) -> Vec<(usize, usize)> {
        let slot_of = |role: Role| stripe.slot_of(role).map(|slot| slot.index());
        let (Some(p), Some(q)) = (slot_of(Role::P), slot_of(Role::Q)) else { return Vec::new() };
        // The slot of each power.
        let mut powers: HashMap<u8, usize> = HashMap::new();
        for (exponent, number) in stripe.exponents().zip(0..) {
            powers.extend(slot_of(Role::Data(number)).map(|slot| (gf::pow2(exponent), slot)));
        }
        let lost = powers.iter().find(|(_, slot)| Some(**slot) == missing).map(|(power, _)| *power);
        let found = match (&self.kernel[..], lost) {
            ([first, second], _) => self.of_two(first, second, &powers, p, q),
            ([_], _) if missing == Some(q) => Vec::new(),
            ([one], _) if missing == Some(p) => self.of_one(one, None, 0, &powers, q),
            ([one], Some(lost)) => self.of_one(one, Some(p), lost, &powers, q),
            _ => Vec::new(),
        };
        found.into_iter().map(|(slot, index)| (slot, self.members[index])).collect()
    }

    /// With both equations: which member has Q, and if it is only one way, what the others have.
    fn of_two(
        &self,
        first: &[u8],
        second: &[u8],
        powers: &HashMap<u8, usize>,
        p: usize,
        q: usize,
    ) -> Vec<(usize, usize)> {
        let count = self.members.len();
        let is_sum = |at: &usize| {
            let own = without(first, second, *at);
            let one = own.iter().find(|value| **value != 0).copied().unwrap_or(0);
            one != 0 && own.iter().enumerate().all(|(other, value)| (*value == one) == (other != *at))
        };
        let mut holders = (0..count).filter(is_sum);
        let (Some(holder), None) = (holders.next(), holders.next()) else { return Vec::new() };
        let ways = (0..count).filter(|at| *at != holder);
        let mut ways = ways.filter_map(|at| {
            let own = scaled(&without(first, second, at), holder)?;
            let rest = own.iter().enumerate().filter(|(other, _)| *other != at && *other != holder);
            let mut slots: Vec<(usize, usize)> = Vec::new();
            for (other, value) in rest {
                let slot = *powers.get(value)?;
                slots.iter().all(|(known, _)| *known != slot).then(|| slots.push((slot, other)))?;
            }
            slots.extend([(p, at), (q, holder)]);
            Some(slots)
        });
        match (ways.next(), ways.next()) {
            (Some(slots), None) => slots,
            _ => vec![(q, holder)],
        }
    }

    /// With one equation: that of Q, with P times `lost` in it. With `p` of `None`, P is missing itself.
    fn of_one(
        &self,
        one: &[u8],
        p: Option<usize>,
        lost: u8,
        powers: &HashMap<u8, usize>,
        q: usize,
    ) -> Vec<(usize, usize)> {
        let mut ways = Vec::new();
        for holder in 0..self.members.len() {
            let Some(own) = scaled(one, holder) else { continue };
            let parity: Vec<Option<usize>> = match p {
                None => vec![None],
                Some(_) => (0..own.len()).filter(|at| *at != holder && own[*at] == lost).map(Some).collect(),
            };
            ways.extend(parity.into_iter().filter_map(|at| {
                let mut slots: Vec<(usize, usize)> = vec![(q, holder)];
                slots.extend(p.zip(at));
                for (other, value) in own.iter().enumerate().filter(|(other, _)| *other != holder && Some(*other) != at)
                {
                    let power = value ^ lost;
                    let slot = *powers.get(&power).filter(|_| power != lost)?;
                    slots.iter().all(|(known, _)| *known != slot).then(|| slots.push((slot, other)))?;
                }
                Some(slots)
            }));
        }
        if ways.len() == 1 { ways.remove(0) } else { Vec::new() }
    }
}

/// The equation that follows from two, and has no coefficient at `at`.
fn without(first: &[u8], second: &[u8], at: usize) -> Vec<u8> {
    let (a, b) = (first[at], second[at]);
    first.iter().zip(second).map(|(x, y)| gf::mul(*x, b) ^ gf::mul(*y, a)).collect()
}

/// The equation with a coefficient of 1 at `at`.
fn scaled(equation: &[u8], at: usize) -> Option<Vec<u8>> {
    let factor = (equation[at] != 0).then(|| gf::inv(equation[at]))?;
    Some(equation.iter().map(|value| gf::mul(*value, factor)).collect())
}

/// The equations that hold between the members' blocks at a position: at most two, or it tells nothing.
async fn equations<S: Source>(frame: &Frame<'_, S>, at: u64) -> Option<Equations> {
    let position = frame.offset + at;
    let (mut members, mut blocks) = (Vec::new(), Vec::new());
    for member in frame.members {
        if frame.scan.summary(*member, position)?.end > 0 {
            members.push(*member);
            blocks.push(frame.disks[*member].read(position * BLOCK as u64, BLOCK).await.ok()?);
        }
    }
    let kernel = kernel(&blocks);
    matches!(kernel.len(), 1 | 2).then_some(Equations { at, members, kernel })
}

/// A basis of all equations between `columns`.
fn kernel(columns: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let count = columns.len();
    // By its first coefficient that is not 0, which is 1 and alone in its column.
    let mut rows: Vec<Option<Vec<u8>>> = vec![None; count];
    for byte in 0..BLOCK {
        let mut row: Vec<u8> = columns.iter().map(|column| column[byte]).collect();
        for (pivot, known) in rows.iter().enumerate() {
            known.iter().for_each(|known| subtract(&mut row, known, pivot));
        }
        let Some(pivot) = row.iter().position(|value| *value != 0) else { continue };
        let row = scaled(&row, pivot).expect("it is not 0");
        rows.iter_mut().flatten().for_each(|known| subtract(known, &row, pivot));
        rows[pivot] = Some(row);
        if rows.iter().all(Option::is_some) {
            return Vec::new();
        }
    }
    let free = (0..count).filter(|column| rows[*column].is_none());
    free.map(|free| (0..count).map(|at| rows[at].as_ref().map_or(u8::from(at == free), |row| row[free])).collect())
        .collect()
}

/// Takes `other`, with a 1 at `pivot`, from `row` so often that nothing is left there.
fn subtract(row: &mut [u8], other: &[u8], pivot: usize) {
    match row[pivot] {
        0 => {}
        factor => row.iter_mut().zip(other).for_each(|(value, other)| *value ^= gf::mul(*other, factor)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::numbers;
    use crate::shape::Shape;
    use format::geometry::{Geometry, Level};
    use parity::Kernel;

    /// Random data of one stripe with its P and Q, by slot.
    fn blocks(parity: &Parity, stripe: &Stripe, slots: usize, random: &mut impl FnMut() -> u64) -> Vec<Vec<u8>> {
        let mut blocks = vec![vec![0; BLOCK]; slots];
        let data: Vec<usize> = (0..slots - usize::from(parity.parities()))
            .filter_map(|number| stripe.slot_of(Role::Data(number as u16)).map(|slot| slot.index()))
            .collect();
        data.iter().for_each(|slot| blocks[*slot].iter_mut().for_each(|byte| *byte = random() as u8));
        let (mut p, mut q) = (vec![0; BLOCK], vec![0; BLOCK]);
        let sources: Vec<&[u8]> = data.iter().map(|slot| &blocks[*slot][..]).collect();
        Kernel::best().xor(&mut p, &sources);
        let powers: Vec<(u8, &[u8])> = stripe.exponents().map(gf::pow2).zip(sources.iter().copied()).collect();
        Kernel::best().combine(&mut q, &powers);
        blocks[stripe.slot_of(Role::P).expect("it has P").index()] = p;
        blocks[stripe.slot_of(Role::Q).expect("it has Q").index()] = q;
        blocks
    }

    #[test]
    fn each_member_has_the_slot_that_the_equations_give_it_with_all_and_with_any_one_missing() {
        let mut random = numbers(5);
        for (slots, layout) in [(4, 2), (5, 0), (6, 8), (7, 10), (9, 4), (8, 16), (12, 5)] {
            let shape = Shape { level: Level::Raid6, layout, slots, stride: 0 };
            let geometry = shape.geometry(1, 64).expect("there is such an array");
            let Geometry::Parity(parity) = &geometry else { unreachable!("RAID-6 has parity") };
            for at in 0..5 {
                let stripe = parity.stripe(at);
                let blocks = blocks(parity, &stripe, slots.into(), &mut random);
                for missing in std::iter::once(None).chain((0..usize::from(slots)).map(Some)) {
                    let members: Vec<usize> = (0..usize::from(slots)).filter(|slot| Some(*slot) != missing).collect();
                    let present: Vec<Vec<u8>> = members.iter().map(|slot| blocks[*slot].clone()).collect();
                    let own = Equations { at, members: members.clone(), kernel: kernel(&present) };
                    assert_eq!(own.kernel.len(), if missing.is_some() { 1 } else { 2 });
                    let found = own.slots(&stripe, missing);
                    let name = format!("{slots} slots, layout {layout}, row {at}, {missing:?}: {found:?}");
                    assert!(found.iter().all(|(slot, member)| slot == member), "{name}");
                    let is_told = missing.is_none() && slots > 4;
                    assert!(!is_told || found.len() == usize::from(slots), "{name}");
                }
            }
        }
    }
}
