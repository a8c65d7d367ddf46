//! A read of a stripe that involves parity, from its plan to its result: memory and arithmetic, no I/O.
//!
//! Requested bytes are read straight into their place and serve the arithmetic from there. Only bytes that were not
//! requested take extra memory. [`super::reconstruct`] reads the members.

use crate::base::buffer::{Buffer, Pool};
use crate::data::parity::combination;
use crate::plan::planner::{ChunkTransfer, Column, Method, Plan, Span};
use crate::seam::member::MemberError;
use format::geometry::{Role, Stripe};
use parity::Kernel;
use smallvec::SmallVec;
use std::ops::Range;

/// A chunk that could not be read, and the error if there was one.
pub(crate) type UnreadChunk = (Role, Option<MemberError>);

/// A member transfer that has ended.
pub(crate) struct EndedRead {
    pub(super) result: Result<(), UnreadChunk>,
    /// The parts that it filled.
    pub(super) parts: SmallVec<[usize; 3]>,
    pub(super) buffers: Vec<Buffer>,
}

/// Bytes of one chunk, within one column of the plan.
pub(super) struct ChunkPart {
    pub(super) column: usize,
    pub(super) role: Role,
    pub(super) within: Range<u32>,
    /// `None` while a transfer fills it.
    pub(super) buffer: Option<Buffer>,
}

/// A stripe's read, from its plan to its result.
pub(crate) struct Reading {
    pub(super) stripe: Stripe,
    pub(super) plan: Plan,
    /// The requested parts, in order; then those that are needed besides.
    pub(super) parts: Vec<ChunkPart>,
    pub(super) asked: usize,
}

impl Reading {
    /// Cuts `into`, the buffer for `spans`, into the plan's parts.
    pub(crate) fn new(pool: &Pool, stripe: Stripe, spans: &[Span], plan: Plan, mut into: Buffer) -> Self {
        let uses: u32 = plan.columns.iter().map(|column| column.uses.len()).sum();
        let mut parts = Vec::with_capacity(spans.len() + uses as usize);
        for span in spans {
            for (column, number) in plan.columns.iter().zip(0..) {
                let within = column.within.start.max(span.within.start)..column.within.end.min(span.within.end);
                if within.start < within.end {
                    let buffer = Some(into.split_to(within.len()));
                    parts.push(ChunkPart { column: number, role: Role::Data(span.data), within, buffer });
                }
            }
        }
        let asked = parts.len();
        // With whole units, only a part of a column may have been requested of a chunk.
        let besides = |column: &Column| {
            let covers =
                |span: &&Span| span.within.start <= column.within.start && column.within.end <= span.within.end;
            column.uses.minus(spans.iter().filter(covers).map(|span| Role::Data(span.data)).collect())
        };
        let bytes = plan.columns.iter().map(|column| besides(column).len() as usize * column.within.len()).sum();
        let mut rest = if bytes > 0 { Some(pool.take(bytes)) } else { None };
        for (column, number) in plan.columns.iter().zip(0..) {
            for role in besides(column).iter() {
                let buffer = rest.as_mut().map(|rest| rest.split_to(column.within.len()));
                parts.push(ChunkPart { column: number, role, within: column.within.clone(), buffer });
            }
        }
        Self { stripe, plan, parts, asked }
    }

    /// Memory that the parts take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.within.len()).sum()
    }

    /// Takes the buffers of a transfer's parts, in the order of their bytes on the member.
    pub(super) fn take_parts(&mut self, transfer: &ChunkTransfer) -> (SmallVec<[usize; 3]>, Vec<Buffer>) {
        let is_its = |part: &ChunkPart| {
            part.role == transfer.role
                && transfer.within.start <= part.within.start
                && part.within.end <= transfer.within.end
        };
        let mut own: SmallVec<[usize; 3]> = (0..self.parts.len()).filter(|&index| is_its(&self.parts[index])).collect();
        own.sort_unstable_by_key(|&index| self.parts[index].within.start);
        let buffers = own.iter().filter_map(|&index| self.parts[index].buffer.take()).collect();
        (own, buffers)
    }

    /// Takes the results of all transfers. Reconstructs what is lost if all succeeded; otherwise returns the first
    /// chunk that failed.
    pub(crate) fn finish(&mut self, kernel: &Kernel, done: Vec<EndedRead>) -> Result<(), UnreadChunk> {
        let mut outcome = Ok(());
        for EndedRead { result, parts, buffers } in done {
            parts.into_iter().zip(buffers).for_each(|(index, buffer)| self.parts[index].buffer = Some(buffer));
            outcome = outcome.and(result);
        }
        outcome?;
        for index in 0..self.asked {
            if self.is_solved(&self.parts[index]) {
                self.solve(kernel, index);
            }
        }
        Ok(())
    }

    pub(super) fn is_solved(&self, part: &ChunkPart) -> bool {
        matches!(&self.plan.columns[part.column].method, Method::Solve { unknown } if unknown.contains(part.role))
    }

    fn solve(&mut self, kernel: &Kernel, index: usize) {
        let mut target = self.parts[index].buffer.take().expect("nothing is being filled any more");
        let ChunkPart { column, role, within, .. } = &self.parts[index];
        let combination = combination(&self.stripe, &self.plan.columns[*column], *role);
        let terms: SmallVec<[(u8, &[u8]); 16]> =
            combination.into_iter().map(|(weight, role)| (weight, self.contents(*column, role, within))).collect();
        kernel.combine(&mut target, &terms);
        drop(terms);
        self.parts[index].buffer = Some(target);
    }

    /// The bytes that were read of a chunk.
    fn contents(&self, column: usize, role: Role, within: &Range<u32>) -> &[u8] {
        let covers = |part: &ChunkPart| part.within.start <= within.start && within.end <= part.within.end;
        let is_it = |part: &&ChunkPart| part.column == column && part.role == role && covers(part);
        let part = self.parts.iter().find(is_it).expect("the plan reads what it solves from");
        let buffer = part.buffer.as_ref().expect("the transfer has ended");
        &buffer[(within.start - part.within.start) as usize..(within.end - part.within.start) as usize]
    }

    /// Returns the caller's buffer.
    pub(crate) fn into_buffer(self) -> Buffer {
        let mut parts = self.parts.into_iter().take(self.asked).filter_map(|part| part.buffer);
        let mut whole = parts.next().expect("something is asked for");
        parts.for_each(|part| whole.join(part));
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::cached_stripes::in_units_where_lost;
    use crate::plan::planner::{Code, StripeHealth, Symbols, plan_read};
    use format::geometry::{Geometry, Level, Parity, Shape};
    use parity::gf;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const CHUNK: u32 = 32 << 10;
    const PAGE: u32 = 4 << 10;
    const SLOTS: u16 = 6;

    fn raid6() -> Parity {
        let shape = Shape {
            level: Level::Raid6,
            layout: 2, // left-symmetric
            chunk_bytes: CHUNK.into(),
            slots: SLOTS,
            component_bytes: 1 << 20,
            member_bytes: Vec::new(),
        };
        match Geometry::new(&shape).expect("a valid shape") {
            Geometry::Parity(parity) => parity,
            Geometry::Mapping(_) => unreachable!("RAID-6 has parity"),
        }
    }

    /// The contents of a stripe's chunks, by definition.
    fn contents(stripe: &Stripe, role: Role, at: u32) -> u8 {
        let data = |index: u16| (at.wrapping_mul(u32::from(index) * 2 + 7) >> 5) as u8 ^ index as u8;
        match role {
            Role::Data(index) => data(index),
            Role::P => (0..SLOTS - 2).fold(0, |sum, index| sum ^ data(index)),
            Role::Q => {
                (0..SLOTS - 2).fold(0, |sum, index| sum ^ gf::mul(gf::pow2(stripe.q_exponent(index)), data(index)))
            }
        }
    }

    /// Spans of several chunks, in sectors.
    fn some_spans() -> impl Strategy<Value = Vec<Span>> {
        let ranges = prop::collection::vec((0..64_u32, 1..=64_u32), usize::from(SLOTS - 2));
        let which = prop::sample::subsequence((0..SLOTS - 2).collect::<Vec<_>>(), 1..=usize::from(SLOTS - 2));
        (which, ranges).prop_map(|(which, ranges)| {
            let span = |(data, (start, sectors)): (u16, (u32, u32))| Span {
                data,
                within: start * 512..(start + sectors).min(64) * 512,
            };
            which.into_iter().zip(ranges).map(span).collect()
        })
    }

    fn some_roles(at_most: usize) -> impl Strategy<Value = Vec<Role>> {
        let all: Vec<Role> = (0..SLOTS - 2).map(Role::Data).chain([Role::P, Role::Q]).collect();
        prop::sample::subsequence(all, 0..=at_most)
    }

    proptest! {
        /// Whatever is lost, partly cached, and read in larger units than requested.
        #[test]
        fn reads_and_reconstruction_return_the_stripes_contents(
            spans in some_spans(),
            lost in some_roles(2),
            in_memory in prop::collection::vec(some_roles(usize::from(SLOTS)), (CHUNK / PAGE) as usize),
            unit in prop::option::of(prop::sample::select(vec![PAGE, 4 * PAGE, CHUNK])),
        ) {
            let parity = raid6();
            let (stripe, pool) = (parity.stripe(3), Pool::new(0));
            let unreadable: Symbols = lost.into_iter().collect();
            let health = StripeHealth { unreadable, ..StripeHealth::GOOD };
            let cached: Vec<ChunkTransfer> = in_memory
                .into_iter()
                .zip(0..)
                .flat_map(|(roles, page)| {
                    roles.into_iter().map(move |role| ChunkTransfer { role, within: page * PAGE..(page + 1) * PAGE })
                })
                .collect();
            let units = in_units_where_lost(&spans, unit, unreadable);
            let code = Code { data: SLOTS - 2, parities: 2 };
            let plan = plan_read(code, &units, &cached, &health).expect("two may be lost");
            let asked: usize = spans.iter().map(|span| span.within.len()).sum();
            let mut reading = Reading::new(&pool, stripe, &spans, plan, pool.take(asked));
            let mut read = BTreeSet::new();
            for (transfer, is_read) in std::mem::take(&mut reading.plan.cached_reads)
                .into_iter()
                .map(|transfer| (transfer, false))
                .chain(std::mem::take(&mut reading.plan.reads).into_iter().map(|transfer| (transfer, true)))
            {
                let (parts, mut buffers) = reading.take_parts(&transfer);
                let mut bytes = 0;
                for (&index, buffer) in parts.iter().zip(&mut buffers) {
                    let within = reading.parts[index].within.clone();
                    bytes += within.len();
                    buffer.iter_mut().zip(within).for_each(|(byte, at)| *byte = contents(&stripe, transfer.role, at));
                }
                if is_read {
                    prop_assert_eq!(bytes, transfer.within.len(), "a member's transfer is its parts, once each");
                    prop_assert!(!unreadable.contains(transfer.role), "what is lost is not read");
                    let slot = stripe.slot_of(transfer.role).expect("a role of this level");
                    let is_new = transfer.within.step_by(512).all(|at| read.insert((slot, at)));
                    prop_assert!(is_new, "nothing is read twice");
                }
                parts.into_iter().zip(buffers).for_each(|(index, buffer)| reading.parts[index].buffer = Some(buffer));
            }
            prop_assert!(reading.finish(Kernel::best(), Vec::new()).is_ok());
            let expected: Vec<u8> = spans
                .iter()
                .flat_map(|span| span.within.clone().map(|at| contents(&stripe, Role::Data(span.data), at)))
                .collect();
            prop_assert!(reading.into_buffer()[..] == expected[..]);
        }
    }
}
