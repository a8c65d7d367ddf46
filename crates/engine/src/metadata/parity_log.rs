//! The partial parity log of a running array: an entry for each write to stripes, before the write reaches any member.
//!
//! After a loss of power the newest header of each member names the writes that were under way, and parity is made right
//! for them ([`crate::metadata::partial_parity`]). So writes share a header in *batches*, one after the other:
//!
//! 1. Data and parity of the batch before are written, and flushed.
//! 2. The header of each member that holds a parity of this batch is written, with its partial parity, and flushed.
//! 3. The writes of this batch go on.
//!
//! Writes that arrive meanwhile wait for the next batch. A batch spans all members: a write with parities on several
//! members would otherwise wait for one log while it holds another.
//!
//! Nothing here computes partial parity, or writes data.
//!
//! Facts: "Partial Parity Log" in `Documentation/driver-api/md`; `ppl_submit_current_io` in `drivers/md/raid5-ppl.c`.

use crate::base::join::join_all;
use crate::base::notify::Signal;
use crate::core::authority::{Authority, LogEntry};
use crate::device::Failures;
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError};
use format::partial_parity::{ENTRIES_MAX, HEADER_BYTES, Header};
use format::units::Slot;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// The log's state in memory.
pub(crate) struct ParityLog {
    /// Partial parity that each member has room for, in bytes.
    room: u64,
    /// Writes that wait for the next batch.
    open: RefCell<Option<Rc<Batch>>>,
    /// The batch in the log, as long as any of its writes goes on.
    running: RefCell<Weak<Batch>>,
    /// Whether a batch was logged since the devices were flushed.
    is_unflushed: Cell<bool>,
    /// Raised when a batch is written, or has ended.
    changed: Rc<Signal>,
}

/// Writes that are logged together. Each of them holds it until its data is written ([`Logged`]).
pub(crate) struct Batch {
    entries: RefCell<BTreeMap<Slot, Vec<LogEntry>>>,
    outcome: OnceCell<Result<(), ArrayError>>,
    changed: Rc<Signal>,
}

/// A write's part in a batch. It keeps the log's entries until it is dropped.
pub(crate) struct Logged(Option<Rc<Batch>>);

impl Logged {
    /// Nothing was to be logged.
    pub(crate) const NOTHING: Self = Self(None);
}

impl Drop for Logged {
    fn drop(&mut self) {
        let Some(batch) = self.0.take() else { return };
        let changed = batch.changed.clone();
        drop(batch);
        changed.raise();
    }
}

impl ParityLog {
    /// A log of which each member has room for `room` bytes of partial parity.
    pub(crate) fn new(room: u64) -> Self {
        Self {
            room,
            open: RefCell::default(),
            running: RefCell::default(),
            is_unflushed: Cell::new(false),
            changed: Rc::default(),
        }
    }

    /// Adds a write to the next batch, as soon as that has room.
    async fn join(&self, entries: Vec<LogEntry>) -> Rc<Batch> {
        loop {
            let seen = self.changed.seen();
            if let Some(batch) = self.open_batch().filter(|batch| batch.has_room(&entries, self.room)) {
                batch.add(entries);
                return batch;
            }
            self.changed.changed_since(seen).await;
        }
    }

    /// The batch that writes may join. One whose writes were all abandoned would never get its turn.
    fn open_batch(&self) -> Option<Rc<Batch>> {
        let mut open = self.open.borrow_mut();
        if open.as_ref().is_none_or(|batch| Rc::strong_count(batch) == 1) {
            *open = Some(Rc::new(Batch::new(&self.changed)));
        }
        open.clone()
    }

    /// Takes the open batch if it is this one, and no other is in the log.
    fn take_turn(&self, batch: &Rc<Batch>) -> bool {
        let is_open = self.open.borrow().as_ref().is_some_and(|open| Rc::ptr_eq(open, batch));
        if !is_open || self.running.borrow().strong_count() > 0 {
            return false;
        }
        self.open.take();
        self.running.replace(Rc::downgrade(batch));
        true
    }
}

impl Batch {
    fn new(changed: &Rc<Signal>) -> Self {
        Self { entries: RefCell::default(), outcome: OnceCell::new(), changed: changed.clone() }
    }

    /// Whether the entries fit beside those that are here. An empty batch has room for every write.
    fn has_room(&self, entries: &[LogEntry], room: u64) -> bool {
        let own = self.entries.borrow();
        let is_within = |slot: &Slot| {
            let of_slot = || entries.iter().filter(|entry| entry.slot() == *slot);
            let here = own.get(slot).map_or(&[][..], |here| here);
            let partial: u64 = here.iter().chain(of_slot()).map(|entry| entry.entry.partial_parity_bytes as u64).sum();
            here.len() + of_slot().count() <= ENTRIES_MAX && partial <= room
        };
        own.is_empty() || entries.iter().all(|entry| is_within(&entry.slot()))
    }

    fn add(&self, entries: Vec<LogEntry>) {
        let mut own = self.entries.borrow_mut();
        for entry in entries {
            own.entry(entry.slot()).or_default().push(entry);
        }
    }

    fn end(&self, outcome: Result<(), ArrayError>) {
        let _ = self.outcome.set(outcome);
        self.changed.raise();
    }
}

impl LogEntry {
    fn slot(&self) -> Slot {
        Slot(self.entry.parity_slot as u16)
    }
}

/// Ends a batch whose leader was dropped.
struct Leading<'a>(&'a Batch);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if self.0.outcome.get().is_none() {
            self.0.end(Err(ArrayError::new(ArrayErrorKind::Io, "a write was abandoned while it was logged")));
        }
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`Authority::log_write`]. The first write of a batch that gets its turn writes the log for all.
    pub(super) async fn log_to(&self, log: &ParityLog, entries: Vec<LogEntry>) -> Result<Logged, ArrayError> {
        let batch = log.join(entries).await;
        let logged = Logged(Some(batch.clone()));
        loop {
            let seen = log.changed.seen();
            if let Some(outcome) = batch.outcome.get() {
                outcome.clone()?;
                return Ok(logged);
            }
            if log.take_turn(&batch) {
                let leading = Leading(&batch);
                let entries = batch.entries.take();
                leading.0.end(self.write_batch(log, entries).await);
                continue;
            }
            log.changed.changed_since(seen).await;
        }
    }

    async fn write_batch(&self, log: &ParityLog, entries: BTreeMap<Slot, Vec<LogEntry>>) -> Result<(), ArrayError> {
        // Otherwise power may take a write whose entry the next header replaces.
        if log.is_unflushed.replace(true) && !mutant!("entry-replaced-unflushed") {
            self.flush_devices().await?;
        }
        let set_uuid = self.set_uuid();
        let writes = entries.into_iter().filter_map(|(slot, entries)| {
            let device = self.core.device(slot).filter(|device| device.is_active())?;
            let image = image(&set_uuid, self.core.context.next_log_generation(), entries);
            Some(async move {
                let result: Result<(), MemberError> = device.write_parity_log(&image, &self.core.pool).await;
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
fn image(set_uuid: &[u8; 16], generation: u64, entries: Vec<LogEntry>) -> Vec<u8> {
    let (headers, partial): (Vec<_>, Vec<_>) = entries.into_iter().map(|entry| (entry.entry, entry.partial)).unzip();
    let header = Header { entries: headers, ..Header::empty(set_uuid, generation) };
    let mut image = Vec::with_capacity(header.bytes() as usize);
    image.extend(header.encode());
    partial.into_iter().flatten().for_each(|partial| image.extend_from_slice(&partial));
    debug_assert!(image.len() >= HEADER_BYTES);
    image
}
