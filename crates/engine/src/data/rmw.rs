//! Read-modify-write of one piece of one chunk: what most small writes of an
//! array come to in which every member is there.
//!
//! The planner says when ([`modifies`]). What is done is what any other plan of
//! it would do to the members, the cache and the superblocks; but two or three
//! pieces of the same length, data and the parity over it, need no lists. A read
//! that fails is no verdict: the caller plans around the member.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::at_once;
use crate::base::write_set::WriteExtent;
use crate::core::authority::Authority;
use crate::data::DataPlane;
use crate::data::parity::weight;
use crate::data::reconstruct::Failed;
use crate::data::stripe::{Contents, code, component, reason};
use crate::plan::planner::{ChunkTransfer, Span, Symbols, modifies};
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
    /// Those of the pieces whose old contents are in memory.
    here: Symbols,
}

impl Modification<'_> {
    fn transfer(&self, role: Role) -> ChunkTransfer {
        ChunkTransfer { role, within: self.span.within.clone() }
    }

    /// What changes with it, data first.
    fn roles(&self, parity: &Parity) -> impl Iterator<Item = Role> + use<> {
        [Role::Data(self.span.data), Role::P, Role::Q].into_iter().take(1 + usize::from(parity.parities()))
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// What patches of a stripe ask for, where it is this and nothing else.
    pub(crate) fn modification<'a>(
        &self,
        parity: &Parity,
        number: u64,
        patches: &'a [WriteExtent],
    ) -> Option<Modification<'a>> {
        let [WriteExtent { at, block }] = patches else { return None };
        let first = number * parity.stripe_bytes();
        let is_good = self.core.health.whole.get() && self.core.is_agreed(first + parity.stripe_bytes());
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
        let cached = self.known(&stripe, std::slice::from_ref(&span), &[]);
        let here = modifies(code(parity), &span, &cached)?;
        Some(Modification { stripe, span, new: block, here })
    }

    /// Carries it out; the caller keeps others off the stripe.
    ///
    /// # Errors
    /// What could not be read, with nothing written.
    pub(crate) async fn modify(
        &self,
        parity: &Parity,
        change: &Modification<'_>,
    ) -> Result<Result<(), ArrayError>, Failed> {
        let Modification { stripe, span, new, .. } = change;
        let mut old = at_once(change.roles(parity).map(|role| self.old_piece(change, role))).await;
        let before = old.next().expect("the data is the first")?;
        let mut pieces = Contents::from_iter([(change.transfer(Role::Data(span.data)), (*new).clone())]);
        for (role, outcome) in change.roles(parity).skip(1).zip(old) {
            let mut after = outcome?;
            let weight = weight(stripe, role, span.data);
            self.core.info.kernel.combine_assign(
                &mut after,
                &[(mutant!("stale-parity-of-a-piece" => 0, else weight), &before), (weight, new)],
            );
            pieces.push((change.transfer(role), after.freeze()));
        }
        self.forget(stripe, pieces.iter().map(|(piece, _)| piece));
        let writes = pieces.iter().filter_map(|(piece, block)| {
            let device = self.device_of(stripe, piece.role)?;
            Some(async move {
                let at = component(stripe, span.within.start);
                let result = device.write_one(at, block.clone(), reason(piece.role)).await;
                result.err().map(|error| (device, error))
            })
        });
        let failures = at_once(writes).await.flatten().collect();
        let written = self.leave_failed(failures).await;
        if written.is_ok() {
            self.learn(parity, stripe, std::slice::from_ref(span), pieces.iter());
        }
        Ok(written)
    }

    async fn old_piece(&self, change: &Modification<'_>, role: Role) -> Result<Buffer, Failed> {
        let mut into = self.core.pool.take(change.new.len());
        if change.here.contains(role) {
            self.recall_into(&change.stripe, &change.transfer(role), &mut into);
            return Ok(into);
        }
        let device = self.device_of(&change.stripe, role).ok_or((role, None))?;
        let at = component(&change.stripe, change.span.within.start);
        let (result, into) = device.read(at, into, Why::Rmw).await;
        result.map(|()| into).map_err(|error| (role, Some(error)))
    }
}
