//! The arithmetic of a plan: new parity, and data that no member supplied.
//!
//! Every result is a linear combination of known chunks, column by column: `1 * x` for P, `2^e * x` for Q, and the
//! terms of [`parity::recovery`] for a lost chunk. No I/O happens here.

use crate::base::buffer::{Block, Pool};
use crate::plan::equations::Equations;
use crate::plan::planner::{ChunkTransfer, Column, Method, Plan};
use format::geometry::{Parity, Role, Stripe};
use parity::{Kernel, Symbol, gf};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

const _: () = assert!(Role::PARITIES.len() == 2, "this file knows the equations of P and Q alone");

/// The chunk contents that are available while a plan is carried out.
pub(crate) struct Known<'a> {
    /// Contents read from the members.
    pub(crate) old: &'a [(ChunkTransfer, Block)],
    /// Contents supplied by the caller.
    pub(crate) new: &'a [(ChunkTransfer, Block)],
}

/// The block that holds `range` of a chunk, and the part of the block that is that range.
fn find<'a>(blocks: &'a [(ChunkTransfer, Block)], role: Role, range: &Range<u32>) -> Option<(&'a Block, Range<usize>)> {
    let (transfer, block) = blocks.iter().find(|(transfer, _)| transfer.covers(role, range))?;
    let base = transfer.within.start;
    Some((block, (range.start - base) as usize..(range.end - base) as usize))
}

impl<'a> Known<'a> {
    pub(crate) fn old(&self, role: Role, range: &Range<u32>) -> Option<&'a [u8]> {
        find(self.old, role, range).map(|(block, part)| &block[part])
    }

    /// As [`Known::old`], but shares the memory.
    pub(crate) fn old_block(&self, role: Role, range: &Range<u32>) -> Option<Block> {
        find(self.old, role, range).map(|(block, part)| block.slice(part))
    }

    fn given(&self, role: Role, range: &Range<u32>) -> Option<&'a [u8]> {
        find(self.new, role, range).map(|(block, part)| &block[part])
    }
}

type Terms<'a> = SmallVec<[(u8, &'a [u8]); 16]>;

/// The weight of data chunk `index` in P or Q.
pub(crate) fn weight(stripe: &Stripe, parity: Role, index: u16) -> u8 {
    match parity {
        Role::Q => gf::pow2(stripe.q_exponent(index)),
        Role::P | Role::Data(_) => 1,
    }
}

/// The new contents of each parity transfer of `plan`.
pub(crate) fn compute(
    kernel: &Kernel,
    pool: &Pool,
    parity: &Parity,
    stripe: &Stripe,
    known: &Known<'_>,
    plan: &Plan,
) -> SmallVec<[(ChunkTransfer, Block); 2]> {
    let transfers: SmallVec<[&ChunkTransfer; 2]> =
        plan.writes.iter().filter(|transfer| transfer.role.is_parity()).collect();
    if let [p, q] = transfers[..]
        && let Some(both) = compute_both(kernel, pool, parity, stripe, known, plan, p, q)
    {
        return both;
    }
    let one = |transfer: &&ChunkTransfer| {
        let mut target = pool.take((transfer.within.end - transfer.within.start) as usize);
        for column in &plan.columns {
            let (within, outer) = (&column.within, &transfer.within);
            if outer.start <= within.start && within.end <= outer.end {
                let part = (within.start - outer.start) as usize..(within.end - outer.start) as usize;
                let terms = parity_terms(parity, stripe, known, column, transfer.role);
                kernel.combine(&mut target[part], &terms);
            }
        }
        ((*transfer).clone(), target.freeze())
    };
    transfers.iter().map(one).collect()
}

/// All parities of a stripe's data, both in order. `into` has a place for each parity that the stripe has.
pub(crate) fn compute_all<'a>(
    kernel: &Kernel,
    stripe: &Stripe,
    mut into: impl Iterator<Item = &'a mut [u8]>,
    data: &[&[u8]],
) {
    match (into.next(), into.next(), into.next()) {
        (Some(p), None, None) => kernel.xor(p, data),
        (Some(p), Some(q), None) => both(kernel, stripe, p, q, data),
        (None, ..) | (.., Some(_)) => unreachable!("a stripe has P, or P and Q"),
    }
}

/// P and Q in one pass over the data, which is in the order of its chunks.
fn both(kernel: &Kernel, stripe: &Stripe, p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
    let mut by_exponent: SmallVec<[&[u8]; 32]> = SmallVec::from_elem(&[][..], data.len());
    for (source, index) in data.iter().zip(0..) {
        match by_exponent.get_mut(usize::from(stripe.q_exponent(index))) {
            Some(place) => *place = source,
            None => {
                // DDF's layouts leave exponents out.
                let weights = |index| [1, gf::pow2(stripe.q_exponent(index))];
                let terms: SmallVec<[_; 32]> =
                    data.iter().zip(0..).map(|(source, index)| (weights(index), *source)).collect();
                return kernel.combine_two([p, q], &terms);
            }
        }
    }
    kernel.pq(p, q, &by_exponent);
}

/// P and Q in one pass over the data. Only for a plan of one column with all data available.
#[allow(clippy::too_many_arguments)]
fn compute_both(
    kernel: &Kernel,
    pool: &Pool,
    parity: &Parity,
    stripe: &Stripe,
    known: &Known<'_>,
    plan: &Plan,
    p: &ChunkTransfer,
    q: &ChunkTransfer,
) -> Option<SmallVec<[(ChunkTransfer, Block); 2]>> {
    let [column] = &plan.columns[..] else { return None };
    if column.method != Method::Reconstruct || p.role != Role::P || q.role != Role::Q {
        return None;
    }
    let mut by_exponent: SmallVec<[&[u8]; 32]> = SmallVec::from_elem(&[][..], parity.data_chunks().into());
    for index in 0..parity.data_chunks() {
        let place = by_exponent.get_mut(usize::from(stripe.q_exponent(index)))?;
        let role = Role::Data(index);
        *place = known.given(role, &column.within).or_else(|| known.old(role, &column.within))?;
    }
    let bytes = (column.within.end - column.within.start) as usize;
    let (mut p_target, mut q_target) = (pool.take(bytes), pool.take(bytes));
    kernel.pq(&mut p_target, &mut q_target, &by_exponent);
    Some(smallvec![(p.clone(), p_target.freeze()), (q.clone(), q_target.freeze())])
}

/// The combination that gives `target`'s new contents in a column.
fn parity_terms<'a>(parity: &Parity, stripe: &Stripe, known: &Known<'a>, column: &Column, target: Role) -> Terms<'a> {
    let range = &column.within;
    let mut terms = Terms::new();
    if column.method == Method::Modify {
        terms.push((1, known.old(target, range).expect("modifying reads the old parity")));
        for role in column.asked.iter() {
            let Role::Data(index) = role else { continue };
            let weight = weight(stripe, target, index);
            if !mutant!("stale-parity") {
                terms.push((weight, known.old(role, range).expect("modifying reads the old data")));
            }
            terms.push((weight, known.given(role, range).expect("the caller supplies what it asks to write")));
        }
        return terms;
    }
    let mut solved = Solved::default();
    for index in 0..parity.data_chunks() {
        let role = Role::Data(index);
        let weight = weight(stripe, target, index);
        match &column.method {
            _ if column.asked.contains(role) => {
                terms.push((weight, known.given(role, range).expect("the caller supplies what it asks to write")));
            }
            Method::Solve { unknown } if unknown.contains(role) => solved.add(stripe, column, role, weight),
            Method::Solve { .. } => solved.add_known(role, weight),
            _ => terms.push((weight, known.old(role, range).expect("the plan reads what it needs"))),
        }
    }
    solved.into_terms(known, range, &mut terms);
    terms
}

/// The chunks, with weights, that add up to `role`, which is not read in this column.
pub(crate) fn combination(stripe: &Stripe, column: &Column, role: Role) -> SmallVec<[(u8, Role); 16]> {
    let Method::Solve { unknown } = &column.method else { unreachable!("only solving leaves data unread") };
    if unknown.len() == 1 && column.uses.contains(Role::P) && !column.uses.contains(Role::Q) {
        return column.uses.iter().map(|role| (1, role)).collect(); // P is the sum of all data
    }
    let mut solved = Solved::default();
    solved.add(stripe, column, role, 1);
    solved.0.retain(|(weight, _)| *weight != 0);
    solved.0
}

/// A growing combination of old chunks, in which each chunk appears once.
#[derive(Default)]
struct Solved(SmallVec<[(u8, Role); 16]>);

impl Solved {
    fn add_known(&mut self, role: Role, weight: u8) {
        match self.0.iter_mut().find(|(_, known)| *known == role) {
            Some((sum, _)) => *sum ^= weight,
            None => self.0.push((weight, role)),
        }
    }

    /// Adds `weight` times a chunk that was not read.
    fn add(&mut self, stripe: &Stripe, column: &Column, role: Role, weight: u8) {
        let equations = Equations::of(stripe);
        let Method::Solve { unknown } = &column.method else { unreachable!("only solving leaves data unread") };
        // What the level does not have is lost as well.
        let unread = Role::PARITIES.into_iter().filter(|&role| !column.uses.contains(role));
        let lost: SmallVec<[Symbol; 3]> = unknown.iter().chain(unread).map(|role| equations.symbol(role)).collect();
        let terms = parity::recovery(equations.exponents(), &lost, equations.symbol(role));
        for (coefficient, source) in terms.expect("the planner reads what solves it") {
            let source = equations.role(source);
            self.add_known(source, gf::mul(weight, coefficient));
        }
    }

    fn into_terms<'a>(self, known: &Known<'a>, range: &Range<u32>, terms: &mut Terms<'a>) {
        let chunk = |role| known.old(role, range).expect("the plan reads what it solves from");
        terms.extend(self.0.into_iter().filter(|&(weight, _)| weight != 0).map(|(weight, role)| (weight, chunk(role))));
    }
}
