//! Read-modify-write of one piece of one chunk: most small writes on an array with all members present.
//!
//! The planner decides when this applies ([`modifies`]). Its effect on members, cache and superblocks is that of any
//! other plan. But two or three pieces of equal length, data and its parity, need no lists. If a read fails, the
//! caller makes a plan without that member.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::at_once;
use crate::base::write_set::WriteExtent;
use crate::core::authority::Authority;
use crate::data::parity::weight;
use crate::data::plane::DataPlane;
use crate::data::reading::UnreadChunk;
use crate::data::stripe::{ChunkContents, component, reason};
use crate::plan::planner::{ChunkTransfer, Span, Symbols, code, modifies};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};

/// A piece of a chunk that changes, and the parity over it.
pub(crate) struct Modification<'a> {
    stripe: Stripe,
    span: Span,
    new: &'a Block,
    /// The pieces whose old contents are in the cache.
    here: Symbols,
}

impl Modification<'_> {
    fn transfer(&self, role: Role) -> ChunkTransfer {
        ChunkTransfer { role, within: self.span.within.clone() }
    }

    /// The chunks that change, data first.
    fn roles(&self, parity: &Parity) -> impl Iterator<Item = Role> + use<> {
        std::iter::once(Role::Data(self.span.data)).chain(parity.parity_roles())
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// The modification that patches of a stripe amount to; `None` if they are anything else.
    pub(crate) fn modification<'a>(
        &self,
        parity: &Parity,
        number: u64,
        patches: &'a [WriteExtent],
    ) -> Option<Modification<'a>> {
        let [WriteExtent { at, block }] = patches else { return None };
        let first = number * parity.stripe_bytes();
        let is_good = self.core.is_whole() && self.core.is_agreed(first + parity.stripe_bytes());
        if !is_good || self.stripe_size_bytes().is_some() {
            return None;
        }
        let chunk_bytes = parity.chunk_bytes();
        let (data, start) = ((at - first) >> chunk_bytes.trailing_zeros(), (at - first) & (chunk_bytes - 1));
        let end = start + block.len() as u64;
        if end > chunk_bytes {
            return None;
        }
        let (stripe, span) = (parity.stripe(number), Span { data: data as u16, within: start as u32..end as u32 });
        let cached = self.cached(&stripe, std::slice::from_ref(&span), &[]);
        let here = modifies(code(parity), &span, &cached)?;
        Some(Modification { stripe, span, new: block, here })
    }

    /// Carries it out. The caller keeps other writes off the stripe.
    ///
    /// # Errors
    /// The chunk that could not be read; then nothing was written.
    pub(crate) async fn modify(
        &self,
        parity: &Parity,
        change: &Modification<'_>,
    ) -> Result<Result<(), ArrayError>, UnreadChunk> {
        let Modification { stripe, span, new, .. } = change;
        let mut old = at_once(change.roles(parity).map(|role| self.old_piece(change, role))).await;
        let before = old.next().expect("the data is the first")?;
        let mut pieces = ChunkContents::from_iter([(change.transfer(Role::Data(span.data)), (*new).clone())]);
        for (role, outcome) in change.roles(parity).skip(1).zip(old) {
            let mut after = outcome?;
            let weight = weight(stripe, role, span.data);
            self.core.info.kernel.combine_assign(
                &mut after,
                &[(mutant!("stale-parity-of-a-piece" => 0, else weight), &before), (weight, new)],
            );
            pieces.push((change.transfer(role), after.freeze()));
        }
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

    async fn old_piece(&self, change: &Modification<'_>, role: Role) -> Result<Buffer, UnreadChunk> {
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
