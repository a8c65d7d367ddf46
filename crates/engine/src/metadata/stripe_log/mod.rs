//! The stripe log of a running array: the partial parity of each write to a part of a stripe, before the write reaches
//! any member. [`replay`] reads it after a loss of power, and [`found`] on each member.
//!
//! Writes share records in *batches* ([`crate::metadata::batches`]):
//!
//! 1. The record of each member that holds a parity of this batch is written, and flushed.
//! 2. The writes of this batch go on. Meanwhile the next batch is logged.
//!
//! A batch is *retired* once its writes have ended, and any flush that began afterwards. A record is overwritten only
//! then. [`live::Live`] knows what a replay would find:
//!
//! * A write is logged only when the stripe's other chunks are on stable storage, as its partial parity takes them to
//!   be. Where an earlier write to them is not retired, a flush comes first.
//! * A write to whole stripes is not logged: no chunk of theirs is left as it is. Where older entries could still be
//!   replayed over it, an entry without partial parity makes them void first.
//!
//! Nothing here computes partial parity, or writes data.

pub(crate) mod found;
mod live;
pub(crate) mod replay;

use crate::base::join::join_all;
use crate::core::authority::{Authority, LOG_ENTRIES_MAX, LogEntry};
use crate::device::stripe_log::LogState;
use crate::device::{Device, Failures, LogPart};
use crate::metadata::batches::{Batch, Batches, Logged, Turns};
use crate::metadata::state::Metadata;
use crate::metadata::stripe_log::live::Live;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use format::geometry::Role;
use format::stripe_log::{Entry, PAGE_BYTES, checksum};
use format::units::Slot;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

/// The log's state in memory.
pub(crate) struct StripeLog {
    state: Rc<LogState>,
    batches: Batches,
    turns: Turns,
    /// Batches that are not retired, oldest first.
    running: RefCell<VecDeque<(u64, Weak<Batch>)>>,
    live: RefCell<Live>,
}

/// Batches before this one have ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended(u64);

impl StripeLog {
    pub(crate) fn new(state: Rc<LogState>) -> Self {
        Self {
            state,
            batches: Batches::default(),
            turns: Turns::default(),
            running: RefCell::default(),
            live: RefCell::default(),
        }
    }

    /// The batches whose writes have all ended.
    pub(crate) fn ended(&self) -> Ended {
        let running = self.running.borrow();
        let oldest = running.iter().find(|(_, batch)| batch.strong_count() > 0);
        Ended(oldest.map_or(self.state.next(), |(sequence, _)| *sequence))
    }

    /// A flush that began when these had ended has ended as well.
    pub(crate) fn flushed(&self, Ended(sequence): Ended) {
        self.state.retire_before(sequence);
        self.running.borrow_mut().retain(|(running, _)| *running >= sequence);
        self.batches.changed.raise();
    }
}

/// The parts of some entries, by the slot that has them.
fn parts(entries: &[LogEntry]) -> BTreeMap<Slot, Vec<(Entry, Option<crate::base::buffer::Block>)>> {
    let mut parts: BTreeMap<Slot, Vec<_>> = BTreeMap::new();
    for entry in entries {
        let on_disk = |partial: &[u8]| Entry {
            stripe: entry.stripe.number(),
            rows: entry.rows.clone(),
            changed: entry.changed,
            partial_bytes: partial.len() as u32,
            checksum: checksum(partial),
        };
        for role in Role::PARITIES {
            let Some(slot) = entry.stripe.slot_of(role) else { continue };
            match entry.partial.iter().find(|(of, _)| *of == role) {
                Some((_, partial)) => {
                    parts.entry(slot).or_default().push((on_disk(partial), Some(partial.clone())));
                }
                // Either whole rows, or a parity that is not written. If its member is there, a replay must see that the
                // write had begun.
                None if entry.partial.is_empty() || !mutant!("parity-left-out-untold") => {
                    parts.entry(slot).or_default().push((on_disk(&[]), None));
                }
                None => {}
            }
        }
    }
    parts
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`Authority::log_write`] with a stripe log.
    pub(super) async fn log_parts(&self, log: &StripeLog, entries: Vec<LogEntry>) -> Result<Logged, ArrayError> {
        let mut entries = entries;
        entries.retain(|entry| !entry.partial.is_empty() || log.live.borrow().has(entry.stripe.number()));
        if entries.is_empty() {
            return Ok(Logged::NOTHING);
        }
        let room = self.least_ring_bytes() / 4;
        let has_room = |here: &[LogEntry], entries: &[LogEntry]| {
            let partial: u64 = here.iter().chain(entries).map(LogEntry::partial_bytes).sum();
            here.len() + entries.len() <= LOG_ENTRIES_MAX && partial + PAGE_BYTES as u64 <= room
        };
        let write = async |entries| self.write_log_batch(log, entries).await;
        log.batches.submit(entries, has_room, |batch| log.turns.take(batch), write).await
    }

    fn least_ring_bytes(&self) -> u64 {
        let slots = self.core.roster.slots.borrow();
        let logs = slots.iter().flatten().filter_map(|device| device.stripe_log());
        logs.map(|log| log.ring_bytes()).min().unwrap_or(0)
    }

    async fn write_log_batch(&self, log: &StripeLog, entries: Vec<LogEntry>) -> Result<(), ArrayError> {
        let (_turn, batch) = log.turns.begin();
        let sequence = log.state.begin_batch();
        log.running.borrow_mut().push_back((sequence, batch));
        let is_unsettled = |entry| log.live.borrow().is_unsettled(entry, log.state.retired());
        if entries.iter().any(is_unsettled) && !mutant!("unsettled-rows-logged") {
            self.flush_devices().await?;
        }
        let parts = parts(&entries).into_iter().filter_map(|(slot, entries)| {
            let device = self.core.device(slot).filter(|device| device.is_active())?;
            Some((slot, device, LogPart { sequence, entries }))
        });
        let parts: Vec<_> = parts.collect();
        for (_, device, part) in &parts {
            self.make_room(log, device, part.bytes()).await?;
        }
        for (slot, device, part) in &parts {
            let first = device.stripe_log().map_or(0, |log| log.first());
            log.live.borrow_mut().add(*slot, first, sequence, part.entries.iter().map(|(entry, _)| entry));
        }
        let writes = parts.iter().map(async |(_, device, part)| {
            let result: Result<(), MemberError> = device.write_log_part(part, &self.core.pool).await;
            Some((device.clone(), result.err()?))
        });
        let failures: Failures<M> = join_all(writes).await.into_iter().flatten().collect();
        self.record_failures(failures).await?;
        self.core.check_not_failed()
    }

    /// Waits until the records that a new one overwrites are retired.
    async fn make_room(&self, log: &StripeLog, device: &Device<M>, bytes: u64) -> Result<(), ArrayError> {
        while device.log_room_needs(bytes) > log.state.retired() && !mutant!("live-record-overwritten") {
            let seen = log.batches.changed.seen();
            if log.ended().0 > log.state.retired() {
                self.flush_devices().await?;
            } else {
                log.batches.changed.changed_since(seen).await;
            }
        }
        Ok(())
    }
}
