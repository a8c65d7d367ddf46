//! A write of one piece of one chunk, with all members present: most small writes.
//!
//! The planner decides how it is done ([`SingleSpan`]): read-modify-write, or reconstruct-write where that reads no
//! more chunks. Its effect on members, cache and superblocks is that of any other plan. But up to four pieces of equal
//! length need no lists of transfers. If a read fails, the caller makes a plan without that member.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::at_once;
use crate::base::write_set::WriteExtent;
use crate::core::authority::Authority;
use crate::data::parity::{compute_all, weight};
use crate::data::plane::DataPlane;
use crate::data::reading::UnreadChunk;
use crate::data::stripe::{ChunkContents, component, reason};
use crate::plan::planner::{ChunkTransfer, Method, SingleSpan, Span, Symbols, code};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};
use smallvec::SmallVec;

/// The most chunks whose old contents are used: those that a write to RAID-6 changes.
const SOURCES_MAX: usize = 1 + Role::PARITIES.len();

/// A piece of a chunk that changes, and the parity over it.
pub(crate) struct PieceWrite<'a> {
    stripe: Stripe,
    span: Span,
    new: &'a Block,
    method: Method,
    /// The chunks whose old contents are used.
    uses: Symbols,
    /// Those of them that are in the cache.
    here: Symbols,
}

impl PieceWrite<'_> {
    fn transfer(&self, role: Role) -> ChunkTransfer {
        ChunkTransfer { role, within: self.span.within.clone() }
    }
}

/// New contents of the parities, in their order.
type Parities = SmallVec<[Buffer; Role::PARITIES.len()]>;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// The write of a piece that patches of a stripe amount to; `None` if they are anything else.
    pub(crate) fn piece_write<'a>(
        &self,
        parity: &Parity,
        number: u64,
        patches: &'a [WriteExtent],
    ) -> Option<PieceWrite<'a>> {
        let [WriteExtent { at, block }] = patches else { return None };
        let first = number * parity.stripe_bytes();
        if !self.core.is_whole() || self.stripe_size_bytes().is_some() {
            return None;
        }
        let chunk_bytes = parity.chunk_bytes();
        let (data, start) = ((at - first) >> chunk_bytes.trailing_zeros(), (at - first) & (chunk_bytes - 1));
        let end = start + block.len() as u64;
        if end > chunk_bytes {
            return None;
        }
        let (stripe, span) = (parity.stripe(number), Span { data: data as u16, within: start as u32..end as u32 });
        let positions = stripe.component().0 + start..stripe.component().0 + end;
        if !self.core.is_agreed(first + parity.stripe_bytes(), &positions) {
            return None;
        }
        let cached = self.cached(&stripe, std::slice::from_ref(&span), &[]);
        let SingleSpan { method, uses, in_memory: here, .. } = SingleSpan::new(code(parity), &span, &cached)?;
        let is_short = uses.len() as usize <= SOURCES_MAX;
        is_short.then_some(PieceWrite { stripe, span, new: block, method, uses, here })
    }

    /// Carries it out. The caller keeps other writes off the stripe.
    ///
    /// # Errors
    /// The chunk that could not be read; then nothing was written.
    pub(crate) async fn write_piece(
        &self,
        parity: &Parity,
        change: &PieceWrite<'_>,
    ) -> Result<Result<(), ArrayError>, UnreadChunk> {
        let PieceWrite { stripe, span, new, .. } = change;
        let old = at_once(change.uses.iter().map(|role| self.old_piece(change, role))).await;
        let parities = match change.method {
            Method::Modify => self.parities_of_change(parity, change, old)?,
            _ => self.parities_of_data(parity, change, old)?,
        };
        let mut pieces = ChunkContents::from_iter([(change.transfer(Role::Data(span.data)), (*new).clone())]);
        pieces.extend(parity.parity_roles().zip(parities).map(|(role, after)| (change.transfer(role), after.freeze())));
        self.invalidate(stripe, pieces.iter().map(|(piece, _)| piece));
        let writes = pieces.iter().filter_map(|(piece, block)| {
            let device = self.device_of(stripe, piece.role)?;
            Some(async move {
                let at = component(stripe, span.within.start);
                let result = device.write_one(at, block.clone(), reason(piece.role)).await;
                result.err().map(|error| (device, error))
            })
        });
        let failures = at_once(writes).await.flatten().collect();
        let written = self.record_write_failures(failures).await;
        if written.is_ok() {
            self.cache_contents(parity, stripe, std::slice::from_ref(span), pieces.iter());
        }
        Ok(written)
    }

    /// The parities from their old contents and the change of the data. `old` has the data, then the parities.
    fn parities_of_change(
        &self,
        parity: &Parity,
        change: &PieceWrite<'_>,
        mut old: impl Iterator<Item = Result<Buffer, UnreadChunk>>,
    ) -> Result<Parities, UnreadChunk> {
        let before = old.next().expect("the data is the first")?;
        let of_one = |(role, old): (Role, Result<Buffer, UnreadChunk>)| {
            let mut after = old?;
            let weight = weight(&change.stripe, role, change.span.data);
            self.core.info.kernel.combine_assign(
                &mut after,
                &[(mutant!("stale-parity-of-a-piece" => 0, else weight), &before), (weight, change.new)],
            );
            Ok(after)
        };
        parity.parity_roles().zip(old).map(of_one).collect()
    }

    /// The parities from all data of the stripe. `old` has the data chunks that do not change, in their order.
    fn parities_of_data(
        &self,
        parity: &Parity,
        change: &PieceWrite<'_>,
        old: impl Iterator<Item = Result<Buffer, UnreadChunk>>,
    ) -> Result<Parities, UnreadChunk> {
        let others: SmallVec<[Buffer; SOURCES_MAX]> = old.collect::<Result<_, _>>()?;
        let mut data: SmallVec<[&[u8]; SOURCES_MAX + 1]> = others.iter().map(|piece| &piece[..]).collect();
        data.insert(change.span.data.into(), change.new);
        let mut parities: Parities = parity.parity_roles().map(|_| self.core.pool.take(change.new.len())).collect();
        if mutant!("data-left-out-of-parity") {
            data.fill(&change.new[..]);
        }
        let into = parities.iter_mut().map(|after| &mut after[..]);
        compute_all(self.core.info.kernel, &change.stripe, into, &data);
        Ok(parities)
    }

    async fn old_piece(&self, change: &PieceWrite<'_>, role: Role) -> Result<Buffer, UnreadChunk> {
        let mut into = self.core.pool.take(change.new.len());
        if change.here.contains(role) {
            self.copy_cached_into(&change.stripe, &change.transfer(role), &mut into);
            return Ok(into);
        }
        let device = self.device_of(&change.stripe, role).ok_or((role, None))?;
        let at = component(&change.stripe, change.span.within.start);
        let (result, into) = device.read(at, into, Why::Rmw).await;
        result.map(|()| into).map_err(|error| (role, Some(error)))
    }
}
