//! Reads of a stripe that parity takes part in: every member byte that is needed
//! is read once, whether it was asked for, serves to work out what is lost, or both.
//!
//! What is asked for is read straight into its place, and serves the arithmetic
//! from there; only what nobody asked for takes memory besides. Nothing here
//! locks: the caller sees to it that data and parity are of one moment.

use crate::base::buffer::{Buffer, Pool};
use crate::base::join::join_all;
use crate::core::authority::Authority;
use crate::data::DataPlane;
use crate::data::parity::combination;
use crate::device::Device;
use crate::plan::planner::{ChunkTransfer, Column, Method, Plan, Span, Symbols};
use crate::seam::clock::Clock;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};
use format::units::ComponentByte;
use parity::Kernel;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// A chunk that could not be read, and the error if there was one.
pub(crate) type Failed = (Role, Option<MemberError>);

/// A member transfer that is over.
pub(crate) struct Done {
    result: Result<(), Failed>,
    /// The pieces that it filled.
    pieces: SmallVec<[usize; 3]>,
    buffers: Vec<Buffer>,
}

/// Bytes of one chunk, within one column of the plan.
struct Piece {
    column: usize,
    role: Role,
    within: Range<u32>,
    /// Away while it is being filled.
    buffer: Option<Buffer>,
}

/// A stripe's read, from its plan to its result.
pub(crate) struct Reading {
    stripe: Stripe,
    plan: Plan,
    /// What is asked for, in order; then what is needed besides.
    pieces: Vec<Piece>,
    asked: usize,
}

impl Reading {
    /// Cuts `into`, which is for `spans`, into the plan's pieces.
    pub(crate) fn new(pool: &Pool, stripe: Stripe, spans: &[Span], plan: Plan, mut into: Buffer) -> Self {
        let uses: u32 = plan.columns.iter().map(|column| column.uses.len()).sum();
        let mut pieces = Vec::with_capacity(spans.len() + uses as usize);
        for span in spans {
            for (column, number) in plan.columns.iter().zip(0..) {
                let within = column.within.start.max(span.within.start)..column.within.end.min(span.within.end);
                if within.start < within.end {
                    let buffer = Some(into.split_to(within.len()));
                    pieces.push(Piece { column: number, role: Role::Data(span.data), within, buffer });
                }
            }
        }
        let asked = pieces.len();
        // A chunk that is read in whole units may have been asked for in a part of a column only.
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
                pieces.push(Piece { column: number, role, within: column.within.clone(), buffer });
            }
        }
        Self { stripe, plan, pieces, asked }
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.within.len()).sum()
    }

    /// Takes the buffers of a transfer's pieces away, in the order in which the member has them.
    fn take_pieces(&mut self, transfer: &ChunkTransfer) -> (SmallVec<[usize; 3]>, Vec<Buffer>) {
        let is_its = |piece: &Piece| {
            piece.role == transfer.role
                && transfer.within.start <= piece.within.start
                && piece.within.end <= transfer.within.end
        };
        let mut own: SmallVec<[usize; 3]> =
            (0..self.pieces.len()).filter(|&index| is_its(&self.pieces[index])).collect();
        own.sort_unstable_by_key(|&index| self.pieces[index].within.start);
        let buffers = own.iter().filter_map(|&index| self.pieces[index].buffer.take()).collect();
        (own, buffers)
    }

    /// Takes the transfers' outcomes; works out what is lost when all are well,
    /// else says which chunk failed first.
    pub(crate) fn finish(&mut self, kernel: &Kernel, parity: &Parity, done: Vec<Done>) -> Result<(), Failed> {
        let mut outcome = Ok(());
        for Done { result, pieces, buffers } in done {
            pieces.into_iter().zip(buffers).for_each(|(index, buffer)| self.pieces[index].buffer = Some(buffer));
            outcome = outcome.and(result);
        }
        outcome?;
        for index in 0..self.asked {
            if self.is_solved(&self.pieces[index]) {
                self.solve(kernel, parity, index);
            }
        }
        Ok(())
    }

    fn is_solved(&self, piece: &Piece) -> bool {
        matches!(&self.plan.columns[piece.column].method, Method::Solve { unknown } if unknown.contains(piece.role))
    }

    fn solve(&mut self, kernel: &Kernel, parity: &Parity, index: usize) {
        let mut target = self.pieces[index].buffer.take().expect("nothing is being filled any more");
        let Piece { column, role, within, .. } = &self.pieces[index];
        let combination = combination(parity, &self.stripe, &self.plan.columns[*column], *role);
        let terms: SmallVec<[(u8, &[u8]); 16]> =
            combination.into_iter().map(|(weight, role)| (weight, self.contents(*column, role, within))).collect();
        kernel.combine(&mut target, &terms);
        drop(terms);
        self.pieces[index].buffer = Some(target);
    }

    /// What was read of a chunk.
    fn contents(&self, column: usize, role: Role, within: &Range<u32>) -> &[u8] {
        let covers = |piece: &Piece| piece.within.start <= within.start && within.end <= piece.within.end;
        let is_it = |piece: &&Piece| piece.column == column && piece.role == role && covers(piece);
        let piece = self.pieces.iter().find(is_it).expect("the plan reads what it solves from");
        let buffer = piece.buffer.as_ref().expect("it was read");
        &buffer[(within.start - piece.within.start) as usize..(within.end - piece.within.start) as usize]
    }

    /// The caller's buffer again.
    pub(crate) fn into_buffer(self) -> Buffer {
        let mut parts = self.pieces.into_iter().take(self.asked).filter_map(|piece| piece.buffer);
        let mut whole = parts.next().expect("something is asked for");
        parts.for_each(|part| whole.join(part));
        whole
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// The member transfers of a reading, which owns nothing of the array: they
    /// may be left alone once they have begun.
    pub(crate) fn member_reads(&self, reading: &mut Reading) -> impl Future<Output = Vec<Done>> + use<M, C, A> {
        let transfers = std::mem::take(&mut reading.plan.reads);
        let reads = transfers.into_iter().map(|transfer| {
            let (pieces, buffers) = reading.take_pieces(&transfer);
            let device = self.device_of(&reading.stripe, transfer.role);
            let at = ComponentByte(reading.stripe.component().0 + u64::from(transfer.within.start));
            read_pieces(device, transfer.role, at, pieces, buffers)
        });
        join_all(reads.collect::<Vec<_>>())
    }

    /// Reads what the plan says and works out the rest. Under the stripe's lock.
    pub(crate) async fn read_and_solve(&self, parity: &Parity, mut reading: Reading) -> (Result<(), Failed>, Buffer) {
        for transfer in std::mem::take(&mut reading.plan.cached_reads) {
            let (pieces, buffers) = reading.take_pieces(&transfer);
            for (index, mut buffer) in pieces.into_iter().zip(buffers) {
                let piece = &mut reading.pieces[index];
                let part = ChunkTransfer { role: piece.role, within: piece.within.clone() };
                self.recall_into(&reading.stripe, &part, &mut buffer);
                piece.buffer = Some(buffer);
            }
        }
        let done = self.member_reads(&mut reading).await;
        let result = match reading.finish(self.core.info.kernel, parity, done) {
            Ok(()) => self.check_solved(parity, &mut reading).await,
            Err(failed) => Err(failed),
        };
        (result, reading.into_buffer())
    }

    /// What was worked out is held against the checksums of what should be there; where they contradict it,
    /// other members are asked in the place of each that was.
    async fn check_solved(&self, parity: &Parity, reading: &mut Reading) -> Result<(), Failed> {
        for index in 0..reading.asked {
            let is_solved = reading.is_solved(&reading.pieces[index]);
            let Piece { role, within, buffer: Some(buffer), .. } = &mut reading.pieces[index] else { continue };
            let contradiction = || self.contradiction(&reading.stripe, *role, within, buffer);
            let Some(error) = is_solved.then(contradiction).flatten() else { continue };
            let start = reading.stripe.component().0 + u64::from(within.start);
            let range = start..start + buffer.len() as u64;
            let slot = reading.stripe.slot_of(*role).expect("a role of this level");
            match Box::pin(self.reconstructed(parity, &range, slot)).await {
                Some(block) => buffer.copy_from_slice(&block),
                None => return Err((*role, Some(error))),
            }
        }
        Ok(())
    }

    /// The parity to do without where one is enough: the one whose member has more
    /// to do, and in turn, a round of stripes each, where both have the same.
    pub(crate) fn spared_parity(&self, parity: &Parity, stripe: &Stripe, unreadable: Symbols) -> Option<Role> {
        let both = Symbols::of(Role::P).with(Role::Q);
        let lost = unreadable.minus(both).len();
        if parity.parities() < 2 || lost != 1 || !unreadable.intersection(both).is_empty() {
            return None;
        }
        let load = |role| self.device_of(stripe, role).map_or(0, |device| device.in_flight.get());
        let is_p_s_turn = (stripe.number() / u64::from(parity.slots())).is_multiple_of(2);
        match load(Role::P).cmp(&load(Role::Q)) {
            std::cmp::Ordering::Less => Some(Role::Q),
            std::cmp::Ordering::Greater => Some(Role::P),
            std::cmp::Ordering::Equal => Some(if is_p_s_turn { Role::Q } else { Role::P }),
        }
    }
}

async fn read_pieces<M: Member>(
    device: Option<Rc<Device<M>>>,
    role: Role,
    at: ComponentByte,
    pieces: SmallVec<[usize; 3]>,
    buffers: Vec<Buffer>,
) -> Done {
    let Some(device) = device else { return Done { result: Err((role, None)), pieces, buffers } };
    let (result, buffers) = device.read_vectored(at, buffers, Why::Reconstruct).await;
    Done { result: result.map_err(|error| (role, Some(error))), pieces, buffers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::cached_stripes::in_units_where_lost;
    use crate::plan::planner::{Code, StripeHealth, plan_read};
    use format::geometry::{Geometry, Level, Shape};
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

    /// What a stripe's chunks hold, by definition.
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
        /// Whatever is lost, in memory though it is lost, and read in larger units than it is asked for.
        #[test]
        fn what_is_read_and_worked_out_is_what_is_there(
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
            let plan = plan_read(Code { data: SLOTS - 2, parities: 2 }, &units, &cached, &health).expect("two may be lost");
            let asked: usize = spans.iter().map(|span| span.within.len()).sum();
            let mut reading = Reading::new(&pool, stripe, &spans, plan, pool.take(asked));
            let mut read = BTreeSet::new();
            for (transfer, is_read) in std::mem::take(&mut reading.plan.cached_reads)
                .into_iter()
                .map(|transfer| (transfer, false))
                .chain(std::mem::take(&mut reading.plan.reads).into_iter().map(|transfer| (transfer, true)))
            {
                let (pieces, mut buffers) = reading.take_pieces(&transfer);
                let mut bytes = 0;
                for (&index, buffer) in pieces.iter().zip(&mut buffers) {
                    let within = reading.pieces[index].within.clone();
                    bytes += within.len();
                    buffer.iter_mut().zip(within).for_each(|(byte, at)| *byte = contents(&stripe, transfer.role, at));
                }
                if is_read {
                    prop_assert_eq!(bytes, transfer.within.len(), "a member's transfer is its pieces, once each");
                    prop_assert!(!unreadable.contains(transfer.role), "what is lost is not read");
                    let slot = stripe.slot_of(transfer.role).expect("a role of this level");
                    prop_assert!(transfer.within.step_by(512).all(|at| read.insert((slot, at))), "nothing is read twice");
                }
                pieces.into_iter().zip(buffers).for_each(|(index, buffer)| reading.pieces[index].buffer = Some(buffer));
            }
            prop_assert!(reading.finish(Kernel::best(), &parity, Vec::new()).is_ok());
            let expected: Vec<u8> = spans
                .iter()
                .flat_map(|span| span.within.clone().map(|at| contents(&stripe, Role::Data(span.data), at)))
                .collect();
            prop_assert!(reading.into_buffer()[..] == expected[..]);
        }
    }
}
