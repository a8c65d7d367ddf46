//! Reconstruction in place, for members that hold their data in memory and can lend it ([`Member::lend`]).
//!
//! Such members need no copies for reconstruction and gain nothing from reading ahead. Everything else is left to the
//! general path: a member that has to be waited for or that fails, checksums to be verified, a write to the stripe.
//!
//! Nothing here awaits. So data and parity are of the same moment, as long as no task is about to change the stripe.

use crate::base::buffer::Buffer;
use crate::core::authority::Authority;
use crate::core::roster::in_slot;
use crate::data::parity::combination;
use crate::data::plane::DataPlane;
use crate::data::read_ahead::stretches::FromMemory;
use crate::data::stripe::shares;
use crate::plan::planner::{Span, StripeHealth, Symbols, code, plan_read};
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::{Parity, Role, Stripe};
use format::units::ComponentByte;
use smallvec::SmallVec;
use std::cell::Ref;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// [`DataPlane::read_degraded`] of an array with parity.
    #[inline]
    pub(super) fn read_degraded_stripes(&self, parity: &Parity, at: u64, into: Buffer) -> FromMemory {
        let is_kept = self.coalescer.has_dirty();
        if !self.is_in_place() {
            self.look_ahead(parity, at, into.len() as u64);
            return if is_kept { FromMemory::Nothing(into) } else { self.read_ahead.serve(at, into) };
        }
        if is_kept {
            return FromMemory::Nothing(into);
        }
        match self.read_in_place(parity, at, into) {
            (true, filled) => FromMemory::There(filled),
            (false, buffer) => FromMemory::UnderWay(buffer),
        }
    }

    /// Reads chunk by chunk. Returns whether all of it was filled.
    fn read_in_place(&self, parity: &Parity, at: u64, mut into: Buffer) -> (bool, Buffer) {
        let left_of_chunk = |at: u64| (parity.chunk_bytes() - at % parity.chunk_bytes()) as usize;
        let mut is_filled = true;
        let mut fill = |at: u64, part: &mut Buffer| {
            is_filled = is_filled
                && match self.read_now(at, part) {
                    Some(result) => result.is_ok(),
                    None => self.solve_now(parity, at, part).is_some(),
                };
        };
        if into.len() <= left_of_chunk(at) {
            fill(at, &mut into);
            return (is_filled, into);
        }
        let mut whole = into.split_to(left_of_chunk(at));
        fill(at, &mut whole);
        while !into.is_empty() {
            let at = at + whole.len() as u64;
            let mut part = into.split_to(left_of_chunk(at).min(into.len()));
            fill(at, &mut part);
            whole.join(part);
        }
        (is_filled, whole)
    }

    /// Whether members can lend their data. The first active member decides.
    fn is_in_place(&self) -> bool {
        let slots = self.core.roster.slots.borrow();
        let first = slots.iter().flatten().find(|device| device.is_active());
        first.is_some_and(|device| device.is_in_place())
    }

    /// Reconstructs a range of one lost chunk. `None` means only that this path does not apply; `into` may then hold
    /// anything.
    fn solve_now(&self, parity: &Parity, at: u64, into: &mut Buffer) -> Option<()> {
        let bytes = into.len() as u64;
        if !self.core.is_aligned(at, bytes) {
            return None;
        }
        let share = shares(parity, at, bytes).next()?;
        let (stripe, lost, within) = (&share.stripe, Role::Data(share.spans[0].data), &share.spans[0].within);
        let number = stripe.number();
        let locks = parity.component_of(&(number..number + 1));
        if !mutant!("in-place-under-write") && self.core.locks.is_wanted_exclusively(&locks) {
            return None;
        }
        let health = self.health(parity, stripe, within.clone(), Symbols::EMPTY);
        let sources = sources(parity, stripe, &share.spans, lost, &health)?;
        let place = ComponentByte(stripe.component().0 + u64::from(within.start));
        let slots = self.core.roster.slots.borrow();
        let lend = |(weight, role)| Some((weight, in_slot(&slots, stripe.slot_of(role)?)?.lend(place, bytes)?));
        let lent = sources.into_iter().map(lend).collect::<Option<SmallVec<[(u8, Ref<'_, [u8]>); 16]>>>()?;
        let terms: SmallVec<[(u8, &[u8]); 16]> = lent.iter().map(|(weight, part)| (*weight, &**part)).collect();
        self.core.info.kernel.combine(into, &terms);
        Some(())
    }
}

/// The chunks that add up to `lost`, with weights: all other data and P if available, otherwise as the planner
/// decides.
fn sources(
    parity: &Parity,
    stripe: &Stripe,
    spans: &[Span],
    lost: Role,
    health: &StripeHealth,
) -> Option<SmallVec<[(u8, Role); 16]>> {
    if (!health.parity_trusted && !mutant!("in-place-untrusted")) || !health.unreadable.contains(lost) {
        return None;
    }
    let others = Symbols::data(parity.data_chunks()).with(Role::P).minus(Symbols::of(lost));
    if others.intersection(health.unreadable).is_empty() {
        return Some(others.iter().map(|role| (1, role)).collect());
    }
    let plan = plan_read(code(parity), spans, &[], health).ok()?;
    let [column] = &plan.columns[..] else { return None };
    Some(combination(stripe, column, lost))
}
