//! The write journal of a running array (md's raid5 cache): new data and parity of each write to stripes are on a device of
//! its own before the write reaches any member. The journal is used as md's write-through mode uses it.
//!
//! Writes share meta blocks in *batches* ([`crate::metadata::batches`]): a batch is written with one transfer and flushed,
//! and then its writes go on, while the next batch is logged. All blocks of a row are listed by one meta block.
//!
//! Space is given up when the ring is full: the batches at its begin have ended, the members are flushed, and the journal's
//! superblock names a later begin. Only then is that space written again. [`log`] holds the log's state, [`ring`] knows where
//! it stands, [`layout`] what a batch looks like. [`found`] reads the log, and [`replay`] writes it to the members before the
//! array runs.
//!
//! As long as the array has its journal, its superblocks call it clean while it is in use, as md does: after a loss of power
//! the replay leaves nothing to resync. If the journal fails, the array takes no more writes.
//!
//! Facts: `drivers/md/raid5-cache.c`; `super_1_sync` in `drivers/md/md.c` (`MD_JOURNAL_CLEAN`).

mod change;
pub(crate) mod found;
mod layout;
pub(crate) mod log;
pub(crate) mod replay;
mod ring;

use crate::core::authority::{Authority, LogEntry};
use crate::core::metadata_lock::MetadataGuard;
use crate::metadata::batches::Logged;
use crate::metadata::journal::layout::{Unit, blocks_of, encode_all, lay_out};
use crate::metadata::journal::log::JournalLog;
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::{Geometry, Parity};
use format::journal::{MetaBlock, SEQUENCE_GAP};
use format::units::Sectors;

/// The most blocks of a batch of several writes.
const BATCH_BLOCKS_MAX: u64 = 1024;

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`Authority::log_write`] with a journal.
    pub(super) async fn log_contents(&self, log: &JournalLog<M>, entries: Vec<LogEntry>) -> Result<Logged, ArrayError> {
        let has_room = |here: &[LogEntry], entries: &[LogEntry]| {
            blocks_of(self.parity(), here.iter().chain(entries)) <= BATCH_BLOCKS_MAX.min(self.quarter(log))
        };
        let write = async |entries| self.write_journal_batch(log, entries).await;
        log.batches.submit(entries, has_room, |batch| log.turns.take(batch), write).await
    }

    fn quarter(&self, log: &JournalLog<M>) -> u64 {
        log.live.borrow().ring().blocks() / 4
    }

    fn parity(&self) -> &Parity {
        match self.core.geometry() {
            Geometry::Parity(parity) => parity,
            Geometry::Mapping(_) => unreachable!("only levels with parity have a journal"),
        }
    }

    async fn write_journal_batch(&self, log: &JournalLog<M>, entries: Vec<LogEntry>) -> Result<(), ArrayError> {
        let (_turn, batch) = log.turns.begin();
        let pool = &self.core.pool;
        let units = lay_out(self.parity(), &entries, &log.set_uuid, pool);
        let blocks = units.iter().map(Unit::len).sum();
        self.make_room_in_journal(log, blocks).await?;
        let (spot, ring) = {
            let mut live = log.live.borrow_mut();
            (live.put(batch, blocks, units.len() as u64), live.ring())
        };
        let written = log.put_flushed(spot.at, encode_all(units, spot, &ring, &log.set_uuid, pool)).await;
        if let Err(error) = written {
            self.record_failures(vec![(log.device.clone(), error)]).await?;
        }
        self.core.check_not_failed()
    }

    /// Gives up batches that have ended until so many blocks can be written.
    async fn make_room_in_journal(&self, log: &JournalLog<M>, blocks: u64) -> Result<(), ArrayError> {
        while !log.live.borrow().has_room(blocks) {
            let seen = log.batches.changed.seen();
            let next = log.live.borrow().next_tail();
            let Some(tail) = next else {
                log.batches.changed.changed_since(seen).await;
                continue;
            };
            if !mutant!("journal-space-unflushed") {
                self.flush_devices().await?;
            }
            let guard = self.lock().await;
            self.core.check_not_failed()?;
            if !mutant!("journal-space-untold") {
                self.write_journal_tail(&guard, log, tail).await?;
            }
            log.live.borrow_mut().give_up_before(tail);
        }
        Ok(())
    }

    /// The journal's superblock names this tail, on stable storage.
    async fn write_journal_tail(
        &self,
        guard: &MetadataGuard<'_>,
        log: &JournalLog<M>,
        tail: Sectors,
    ) -> Result<(), ArrayError> {
        let device = &log.device;
        device.superblock.borrow_mut().journal_tail = Some(tail);
        match self.write_superblock(device, self.superblock_of(device)).await {
            Ok(()) => Ok(()),
            Err(error) => self.eject(guard, vec![(device.clone(), error)]).await,
        }
    }

    /// Makes the log empty: one meta block that lists nothing. No write is under way, and the members are flushed.
    async fn empty_journal(&self, guard: &MetadataGuard<'_>, log: &JournalLog<M>) -> Result<(), ArrayError> {
        let spot = log.live.borrow().empty_from(SEQUENCE_GAP);
        let meta = MetaBlock::empty(spot.sequence, spot.at).encode(&log.set_uuid);
        if let Err(error) = log.put_flushed(spot.at, vec![self.core.pool.copy_of(&meta)]).await {
            return self.eject(guard, vec![(log.device.clone(), error)]).await;
        }
        self.write_journal_tail(guard, log, spot.at).await?;
        log.live.borrow_mut().emptied(spot);
        Ok(())
    }

    /// Begins to use the journal that was replayed. The superblocks tell of the replay already: as long as they do not, a
    /// member that lacks it could return, and the journal must repeat it.
    pub(crate) async fn begin_journal(&self, log: JournalLog<M>) -> Result<(), ArrayError> {
        self.end_journal_of(&log).await?;
        let guard = self.lock().await;
        self.set_journal(&guard, Some(log));
        Ok(())
    }

    /// Makes the log of a stopped array empty, if it has one.
    pub(crate) async fn end_journal(&self) -> Result<(), ArrayError> {
        match self.journal() {
            Some(log) => self.end_journal_of(&log).await,
            None => Ok(()),
        }
    }

    async fn end_journal_of(&self, log: &JournalLog<M>) -> Result<(), ArrayError> {
        if !mutant!("journal-emptied-unflushed") {
            self.flush_devices().await?;
        }
        let guard = self.lock().await;
        self.core.check_not_failed()?;
        self.empty_journal(&guard, log).await
    }

    /// Makes the log empty before a recovery, while no write is under way: entries from before list no parity for the
    /// members that are recovered.
    pub(crate) async fn void_journal(&self) -> Result<(), ArrayError> {
        let Some(log) = self.journal() else { return Ok(()) };
        let Some(entered) = self.enter_background() else { return Ok(()) };
        let entered = entered.quiesce(self.core.locks.exclusive(0..u64::MAX)).await;
        self.flush_devices().await?;
        let change = entered.begin().await?;
        self.empty_journal(&change, &log).await
    }
}
