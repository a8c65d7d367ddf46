//! Reconstructs what a member should hold from the other members, in long runs. Read repair and the sweeps use it.
//!
//! Nothing is written here.

use crate::base::buffer::Block;
use crate::core::authority::Authority;
use crate::data::plane::DataPlane;
use crate::data::runs::{Run, Runs};
use crate::plan::equations::Equations;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::{Parity, Role, Stripe};
use format::units::{ComponentByte, Slot};
use parity::Symbol;
use smallvec::SmallVec;
use std::ops::Range;

pub(crate) type Slices<'a> = SmallVec<[&'a [u8]; 32]>;

pub(crate) fn slot_of(stripe: &Stripe, role: Role) -> Slot {
    stripe.slot_of(role).expect("a role of this level")
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// What `slot` should hold in `range`, reconstructed from the others. If the slot's own checksums contradict the
    /// result, another member is wrong without a checksum to show it. Then each source is left out in turn.
    pub(crate) async fn reconstructed(&self, parity: &Parity, range: &Range<u64>, slot: Slot) -> Option<Block> {
        let is_taken =
            |block: &Block| self.core.device(slot).is_none_or(|device| device.takes(ComponentByte(range.start), block));
        let mut failed: SmallVec<[Slot; 2]> = SmallVec::from_slice(&[slot]);
        let (first, sources) = self.reconstructed_without(parity, range, slot, &mut failed).await?;
        if is_taken(&first) {
            return Some(first);
        }
        for doubted in sources {
            let mut without = failed.clone();
            without.push(doubted);
            match self.reconstructed_without(parity, range, slot, &mut without).await {
                Some((block, _)) if is_taken(&block) => return Some(block),
                _ => {}
            }
        }
        None
    }

    /// What `slot` should hold according to the members that did not fail, and which members these were.
    pub(crate) async fn reconstructed_without(
        &self,
        parity: &Parity,
        range: &Range<u64>,
        slot: Slot,
        failed: &mut SmallVec<[Slot; 2]>,
    ) -> Option<(Block, SmallVec<[Slot; 32]>)> {
        loop {
            let sources = self.sources(parity, range, failed)?;
            let runs = sources.iter().map(|&slot| Run { slot, range: range.clone() }).collect();
            let runs = self.read_runs(runs).await;
            let before = failed.len();
            failed.extend(runs.failed().map(|(slot, _)| slot));
            if failed.len() == before {
                return Some((self.solve_run(parity, range, slot, &runs).2, sources));
            }
        }
    }

    /// Whether parity is known to agree with the data in a range of component bytes.
    pub(crate) fn is_settled(&self, parity: &Parity, range: Range<u64>) -> bool {
        let end = range.end.div_ceil(parity.chunk_bytes()) * parity.stripe_bytes();
        self.core.is_settled(end, &range) || mutant!("doubtful-parities-alternate")
    }

    /// As many readable members as a stripe has data chunks. Which members are left out changes from window to
    /// window, so that all share the work. Where the two parities may disagree all are read, and P counts.
    pub(crate) fn sources(&self, parity: &Parity, range: &Range<u64>, failed: &[Slot]) -> Option<SmallVec<[Slot; 32]>> {
        let is_readable = |slot: &Slot| {
            !failed.contains(slot) && self.core.device(*slot).is_some_and(|device| device.is_readable(range.clone()))
        };
        let readable: SmallVec<[Slot; 32]> = (0..parity.slots()).map(Slot).filter(is_readable).collect();
        let needed = usize::from(parity.data_chunks());
        if !self.is_settled(parity, range.clone()) {
            return (readable.len() >= needed).then_some(readable);
        }
        let first = (range.start / self.core.window_bytes()) as usize % readable.len().max(1);
        (readable.len() >= needed).then(|| readable.iter().cycle().skip(first).take(needed).copied().collect())
    }

    /// What `slot` should hold in `range`, computed from the runs.
    pub(crate) fn solve_run(&self, parity: &Parity, range: &Range<u64>, slot: Slot, runs: &Runs) -> (Slot, u64, Block) {
        let mut solved = self.core.pool.take((range.end - range.start) as usize);
        for (stripe, part) in parity.parts(range) {
            let target = &mut solved[(part.start - range.start) as usize..(part.end - range.start) as usize];
            self.solve_chunk(parity, &stripe, &part, slot, runs, target);
        }
        (slot, range.start, solved.freeze())
    }

    /// Reconstructs the part of one stripe's chunk on `slot` into `target`.
    pub(crate) fn solve_chunk(
        &self,
        parity: &Parity,
        stripe: &Stripe,
        part: &Range<u64>,
        slot: Slot,
        runs: &Runs,
        target: &mut [u8],
    ) {
        let equations = Equations::of(stripe);
        let symbol = |role| equations.symbol(role);
        let mut lost = SmallVec::<[Symbol; 2]>::new();
        let mut known = SmallVec::<[(Symbol, Block); 32]>::new();
        for role in parity.roles() {
            match runs.get(slot_of(stripe, role), part) {
                Some(block) => known.push((symbol(role), block)),
                None => lost.push(symbol(role)),
            }
        }
        let terms = parity::recovery(equations.exponents(), &lost, symbol(stripe.role_of(slot)));
        let terms = terms.expect("as many chunks were read as a stripe has data");
        let block = |symbol| {
            &known.iter().find(|(known, _)| *known == symbol).expect("every chunk that is not lost was read").1[..]
        };
        let terms: SmallVec<[(u8, &[u8]); 32]> =
            terms.into_iter().map(|(coefficient, symbol)| (coefficient, block(symbol))).collect();
        self.core.info.kernel.combine(target, &terms);
    }
}
