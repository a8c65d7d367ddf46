//! How a stripe write is carried out: it waits for company, and then its data is marked and written.
//!
//! Either its task does so, or its lone caller ([`super::join`]). The stripes' locks are held from the start of the
//! batch to its end.

use crate::base::write_set::WriteSet;
use crate::base::yield_now::yield_now;
use crate::core::authority::{Authority, Marked};
use crate::data::coalesce::coalescer::WriteBatch;
use crate::data::coalesce::stripe_write::{Phase, StripeWrite, WriteResult};
use crate::data::plane::DataPlane;
use crate::data::stripe::PartWrite;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
use format::geometry::Parity;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// How long a stream's writes wait once nothing else of it is under way: a few times what a client needs to send its
/// next request.
const STREAM_WAIT: Duration = Duration::from_millis(3);

/// The longest that a write waits in a stripe write, whatever else is under way.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// How long data is kept that no write adds to and no flush asks for.
const AGE_MAX: Duration = Duration::from_secs(1);

/// A stripe write's task, from its start to its end.
pub(super) async fn carry_out<M: Member, C: Clock, A: Authority<M>>(
    data: Rc<DataPlane<M, C, A>>,
    write: Rc<StripeWrite>,
) -> WriteResult {
    let parity = data.stripes();
    let _writing = data.core.writers.begin();
    yield_now().await;
    write.locked().await;
    data.wait_for_company(&write).await;
    write.locked().await; // it may have been widened meanwhile
    let batch = data.coalescer.start(&write, parity.stripe_bytes());
    data.write_batch(parity, batch).await
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Waits until the stripe write is closed or no more writes can be expected.
    async fn wait_for_company(&self, write: &StripeWrite) {
        if write.dirty.get() {
            let (closed, old) =
                (pin!(write.closed()), pin!(self.core.clock.sleep_until(self.core.clock.now() + AGE_MAX)));
            select(closed, old).await;
            return;
        }
        let may_bring_more = |stream| self.coalescer.streams.borrow_mut().may_bring_more(stream);
        let Some(stream) = write.stream.get().filter(|stream| may_bring_more(*stream)) else { return };
        if write.phase.get() != Phase::Open {
            return;
        }
        let activity = || self.coalescer.streams.borrow_mut().activity(stream);
        let (mut seen, _) = activity();
        let mut now = self.core.clock.now();
        let end = now + WAIT_MAX;
        loop {
            let (closed, enough) = (pin!(write.closed()), pin!(self.core.clock.sleep_until(now + STREAM_WAIT)));
            if let Either::Left(_) = select(closed, enough).await {
                return;
            }
            now = self.core.clock.now();
            let (events, unanswered) = activity();
            if !may_bring_more(stream) {
                return;
            }
            if events == seen && self.coalescer.is_stuck(stream, unanswered) || now >= end {
                return self.coalescer.streams.borrow_mut().waited_in_vain(stream);
            }
            seen = events;
        }
    }

    pub(super) async fn write_batch(&self, parity: &Parity, mut batch: WriteBatch) -> WriteResult {
        let patches = std::mem::take(&mut batch.patches);
        let over_lost = self.over_lost(&patches);
        let patches = match self.are_whole_blocks(&patches) {
            true => Ok(patches),
            false => Box::pin(self.in_whole_blocks(patches)).await,
        };
        let written = match patches {
            Ok(patches) => {
                let change = self.core.begin_change();
                let written = self.write_marked(parity, &batch, &patches).await;
                change.end();
                written
            }
            Err(error) => Err(error),
        };
        // The locks are still held, so that no later write of the same bytes is under way.
        self.note_losses(&batch, &written, over_lost.as_deref());
        self.end_buffering(&batch.buffered, &written, over_lost.as_deref());
        drop(batch.locks);
        written
    }

    /// Writes stripes, between the marks that come before and after. `DataPlane::marked` has the same order, and is no
    /// part of this: its closure would be one more future around each small write, and the error of the mark is another
    /// one here.
    async fn write_marked(&self, parity: &Parity, batch: &WriteBatch, patches: &WriteSet) -> WriteResult {
        self.core.check_not_failed()?;
        // Data that was answered is owed by no member before it is written to one.
        let lost = |error: ArrayError| match batch.answered.is_empty() {
            true => error,
            false => ArrayError::new(ArrayErrorKind::Io, error.reason),
        };
        let mark = self.authority.mark_write(&patches.range()).await.map_err(lost)?;
        let marked = Marked::by::<M, A>(&mark);
        let (stripes, unbuilt) = (batch.stripes.clone(), &self.core.health.unbuilt);
        if unbuilt.is_any() && !batch.is_full {
            Box::pin(self.build_for(marked, parity, stripes.start, patches.extents())).await?;
        }
        match batch.is_full {
            // Boxed: it holds a lot, and the futures of small writes would have to hold it as well.
            true => {
                let positions = self.core.geometry().sync_range(&patches.range());
                Box::pin(self.write_full_stripes(marked, parity, stripes, patches.extents())).await?;
                unbuilt.built(&positions);
            }
            false => {
                let part = PartWrite { number: stripes.start, patches: patches.extents(), unit: batch.unit };
                self.write_part(marked, parity, part).await?;
            }
        }
        self.authority.record_departed().await
    }
}
