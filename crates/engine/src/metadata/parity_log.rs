//! The partial parity log of a running array: an entry for each write to stripes, before the write reaches any member.
//!
//! After a loss of power the newest header of each member names the writes that were under way, and parity is made right
//! for them ([`crate::metadata::partial_parity`]). So writes share a header in *batches*, one after the other:
//!
//! 1. Data and parity of the batch before are written, and flushed.
//! 2. The header of each member that holds a parity of this batch is written, with its partial parity, and flushed.
//! 3. The writes of this batch go on.
//!
//! Writes that arrive meanwhile wait for the next batch ([`crate::metadata::batches`]). A batch spans all members: a
//! write with parities on several members would otherwise wait for one log while it holds another.
//!
//! Nothing here computes partial parity, or writes data.
//!
//! Facts: "Partial Parity Log" in `Documentation/driver-api/md`; `ppl_submit_current_io` in `drivers/md/raid5-ppl.c`.

use crate::base::buffer::{Block, Pool};
use crate::base::join::join_all;
use crate::core::authority::{Authority, LogEntry};
use crate::device::Failures;
use crate::metadata::batches::{Batch, Batches, Logged};
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use format::geometry::{Geometry, Parity, Role};
use format::partial_parity::{ENTRIES_MAX, Entry, HEADER_BYTES, Header, Repair};
use format::units::Slot;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// The log's state in memory.
pub(crate) struct ParityLog {
    /// Partial parity that each member has room for, in bytes.
    room: u64,
    batches: Batches,
    /// The batch in the log, as long as any of its writes goes on.
    running: RefCell<Weak<Batch>>,
    /// Whether a batch was logged since the devices were flushed.
    is_unflushed: Cell<bool>,
}

impl ParityLog {
    /// A log of which each member has room for `room` bytes of partial parity.
    pub(crate) fn new(room: u64) -> Self {
        Self { room, batches: Batches::default(), running: RefCell::default(), is_unflushed: Cell::new(false) }
    }

    /// Whether entries fit beside those that are here.
    fn has_room(&self, here: &[LogEntry], entries: &[LogEntry]) -> bool {
        entries.iter().all(|entry| {
            let slot = slot(entry);
            let of_slot = || here.iter().chain(entries).filter(|entry| self::slot(entry) == slot);
            let partial: u64 = of_slot().map(|entry| entry.partial_bytes()).sum();
            of_slot().count() <= ENTRIES_MAX && partial <= self.room
        })
    }

    /// Whether no batch is in the log; from now on this one is.
    fn take_turn(&self, batch: &Rc<Batch>) -> bool {
        if self.running.borrow().strong_count() > 0 {
            return false;
        }
        self.running.replace(Rc::downgrade(batch));
        true
    }
}

/// The slot of the entry's log: the one with its stripe's parity.
fn slot(entry: &LogEntry) -> Slot {
    entry.stripe.slot_of(Role::P).expect("each stripe has a parity")
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`Authority::log_write`] with a partial parity log.
    pub(super) async fn log_partial_parity(
        &self,
        log: &ParityLog,
        entries: Vec<LogEntry>,
    ) -> Result<Logged, ArrayError> {
        let has_room = |here: &[LogEntry], entries: &[LogEntry]| log.has_room(here, entries);
        let write = async |entries| self.write_parity_batch(log, entries).await;
        log.batches.submit(entries, has_room, |batch| log.take_turn(batch), write).await
    }

    async fn write_parity_batch(&self, log: &ParityLog, entries: Vec<LogEntry>) -> Result<(), ArrayError> {
        // Otherwise power may take a write whose entry the next header replaces.
        if log.is_unflushed.replace(true) && !mutant!("entry-replaced-unflushed") {
            self.flush_devices().await?;
        }
        let geometry = self.core.geometry();
        let Geometry::Parity(parity) = geometry else { unreachable!("only level 5 has a partial parity log") };
        let set_uuid = self.set_uuid();
        let mut by_slot: BTreeMap<Slot, Vec<LogEntry>> = BTreeMap::new();
        entries.into_iter().for_each(|entry| by_slot.entry(slot(&entry)).or_default().push(entry));
        let writes = by_slot.into_iter().filter_map(|(slot, entries)| {
            let device = self.core.device(slot).filter(|device| device.is_active())?;
            let generation = self.core.context.next_log_generation();
            let log = blocks(parity, &set_uuid, generation, &entries, &self.core.pool);
            Some(async move {
                let result: Result<(), MemberError> = device.write_parity_log(&log, &self.core.pool).await;
                Some((device, result.err()?))
            })
        });
        let failures: Failures<M> = join_all(writes).await.into_iter().flatten().collect();
        self.record_failures(failures).await?;
        self.core.check_not_failed()
    }

    fn set_uuid(&self) -> [u8; 16] {
        let slots = self.core.roster.slots.borrow();
        let device = slots.iter().flatten().next().expect("a running array has a member");
        device.superblock.borrow().set_uuid
    }
}

/// A header and the partial parity of its entries.
fn blocks(parity: &Parity, set_uuid: &[u8; 16], generation: u64, entries: &[LogEntry], pool: &Pool) -> Vec<Block> {
    let headers = entries.iter().map(|entry| on_disk(parity, entry)).collect();
    let header = Header { entries: headers, ..Header::empty(set_uuid, generation) };
    let header = pool.copy_of(&header.encode());
    debug_assert_eq!(header.len(), HEADER_BYTES);
    let partial = entries.iter().flat_map(|entry| &entry.partial).map(|(_, partial)| partial.clone());
    std::iter::once(header).chain(partial).collect()
}

/// The entry in md's form. The changed chunks are neighbours.
fn on_disk(parity: &Parity, entry: &LogEntry) -> Entry {
    let first = entry.changed.iter().min().expect("a write changes a chunk");
    let last = entry.changed.iter().max().expect("a write changes a chunk");
    debug_assert_eq!(entry.changed.iter().count(), usize::from(last - first) + 1, "a round's chunks are neighbours");
    let start = entry.stripe.component().0;
    let rows = start + u64::from(entry.rows.start)..start + u64::from(entry.rows.end);
    let repair = Repair { stripe: entry.stripe, changed: first..last + 1, rows };
    Entry::of(parity, &repair, entry.partial.first().map_or(&[], |(_, partial)| partial))
}
