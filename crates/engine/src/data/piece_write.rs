//! A write of one piece of one chunk, with all members present: most small writes.
//!
//! The planner decides how it is done ([`SingleSpan`]): read-modify-write, or reconstruct-write where that reads no
//! more chunks. Its effect on members, cache and superblocks is that of any other plan. But up to four pieces of equal
//! length need no lists of transfers. If a read fails, the caller makes a plan without that member.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::at_once;
use crate::base::write_set::WriteExtent;
use crate::core::authority::{Authority, Logging};
use crate::data::parity::{compute_all, weight};
use crate::data::plane::DataPlane;
use crate::data::reading::UnreadChunk;
use crate::data::stripe::{ChunkContents, PartWrite, component, reason};
use crate::device::Failures;
use crate::plan::planner::{ChunkTransfer, Method, SingleSpan, Span, Symbols, Tie, code};
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

/// Old contents of the chunks that are used, in the order of their roles.
type OldPieces = SmallVec<[Buffer; SOURCES_MAX]>;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// The write of a piece that patches of a stripe amount to; `None` if they are anything else.
    pub(crate) fn piece_write<'a>(&self, parity: &Parity, part: &PartWrite<'a>) -> Option<PieceWrite<'a>> {
        let PartWrite { number, patches, unit } = *part;
        let [WriteExtent { at, block }] = patches else { return None };
        let first = number * parity.stripe_bytes();
        if !self.core.is_whole() || unit.is_some() {
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
        // In memory, a page that was read is in the processor's cache when it is written.
        let tie = if self.cache.borrow().is_off() { Tie::Modify } else { Tie::Reconstruct };
        let SingleSpan { method, uses, in_memory: here, .. } = SingleSpan::new(code(parity), &span, &cached, tie)?;
        let is_short = uses.len() as usize <= SOURCES_MAX;
        is_short.then_some(PieceWrite { stripe, span, new: block, method, uses, here })
    }

    /// Carries it out. The caller keeps other writes off its rows.
    ///
    /// # Errors
    /// The chunk that could not be read; then nothing was written.
    pub(crate) async fn write_piece(
        &self,
        parity: &Parity,
        change: &PieceWrite<'_>,
    ) -> Result<Result<(), ArrayError>, UnreadChunk> {
        let PieceWrite { stripe, span, new, .. } = change;
        let old = self.old_pieces(change).await?;
        let parities = match change.method {
            Method::Modify => self.parities_of_change(parity, change, old),
            _ => self.parities_of_data(parity, change, old),
        };
        let _logged = match self.authority.logging() {
            Logging::Nothing => None,
            Logging::Neighbours | Logging::Parts | Logging::Contents { .. } => {
                match Box::pin(self.log_piece(stripe, span, new, &parities)).await {
                    Ok(logged) => Some(logged),
                    Err(error) => return Ok(Err(error)),
                }
            }
        };
        let mut pieces = ChunkContents::from_iter([(change.transfer(Role::Data(span.data)), (*new).clone())]);
        pieces.extend(parity.parity_roles().zip(parities).map(|(role, after)| (change.transfer(role), after.freeze())));
        self.invalidate(stripe, pieces.iter().map(|(piece, _)| piece));
        let at = component(stripe, span.within.start);
        let (mut failures, mut later) = (Failures::new(), SmallVec::<[_; SOURCES_MAX]>::new());
        for (piece, block) in &pieces {
            let Some(device) = self.device_of(stripe, piece.role) else { continue };
            match device.write_now(at, block) {
                Some(Ok(())) => {}
                Some(Err(error)) => failures.push((device, error)),
                None => later.push((device, piece.role, block)),
            }
        }
        if !later.is_empty() {
            let writes = later.into_iter().map(async |(device, role, block)| {
                let result = device.write_one(at, block.clone(), reason(role)).await;
                result.err().map(|error| (device, error))
            });
            failures.extend(at_once(writes).await.flatten());
        }
        let written = self.record_write_failures(failures).await;
        if written.is_ok() {
            self.cache_contents(parity, stripe, std::slice::from_ref(span), pieces.iter());
        }
        Ok(written)
    }

    /// The parities from their old contents and the change of the data. `old` has the data, then the parities.
    fn parities_of_change(&self, parity: &Parity, change: &PieceWrite<'_>, old: OldPieces) -> Parities {
        let mut old = old.into_iter();
        let before = old.next().expect("the data is the first");
        let of_one = |(role, mut after): (Role, Buffer)| {
            let weight = weight(&change.stripe, role, change.span.data);
            self.core.info.kernel.combine_assign(
                &mut after,
                &[(mutant!("stale-parity-of-a-piece" => 0, else weight), &before), (weight, change.new)],
            );
            after
        };
        parity.parity_roles().zip(old).map(of_one).collect()
    }

    /// The parities from all data of the stripe. `old` has the data chunks that do not change, in their order.
    fn parities_of_data(&self, parity: &Parity, change: &PieceWrite<'_>, old: OldPieces) -> Parities {
        let mut data: SmallVec<[&[u8]; SOURCES_MAX + 1]> = old.iter().map(|piece| &piece[..]).collect();
        data.insert(change.span.data.into(), change.new);
        let mut parities: Parities = parity.parity_roles().map(|_| self.core.pool.take(change.new.len())).collect();
        if mutant!("data-left-out-of-parity") {
            data.fill(&change.new[..]);
        }
        let into = parities.iter_mut().map(|after| &mut after[..]);
        compute_all(self.core.info.kernel, &change.stripe, into, &data);
        parities
    }

    /// From the cache, from members that answer at once, and then from the others. Returns the first that failed.
    async fn old_pieces(&self, change: &PieceWrite<'_>) -> Result<OldPieces, UnreadChunk> {
        let at = component(&change.stripe, change.span.within.start);
        let (mut old, mut later) = (OldPieces::new(), SmallVec::<[_; SOURCES_MAX]>::new());
        for role in change.uses.iter() {
            let mut into = self.core.pool.take(change.new.len());
            if change.here.contains(role) {
                self.copy_cached_into(&change.stripe, &change.transfer(role), &mut into);
            } else {
                let device = self.device_of(&change.stripe, role).ok_or((role, None))?;
                match device.read_now(at, &mut into, Why::Rmw) {
                    Some(result) => result.map_err(|error| (role, Some(error)))?,
                    None => {
                        later.push((role, device, old.len(), into));
                        continue;
                    }
                }
            }
            old.push(into);
        }
        if later.is_empty() {
            return Ok(old);
        }
        let reads = later.into_iter().map(async |(role, device, place, into)| {
            let (result, into) = device.read_later(at, into, Why::Rmw).await;
            (role, place, result, into)
        });
        // Each is put behind those that came before it, with those that were later themselves.
        for (number, (role, place, result, into)) in at_once(reads).await.enumerate() {
            result.map_err(|error| (role, Some(error)))?;
            old.insert(place + number, into);
        }
        Ok(old)
    }
}
