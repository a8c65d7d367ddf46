//! Writes a device's part of the stripe log: the header before each superblock, and records.
//!
//! The transfers pass no layer but the timeout: none of them is data. They are whole pages, which are whole logical blocks. Which writes are logged is decided elsewhere
//! ([`crate::metadata::stripe_log`]).

use crate::base::buffer::{Block, Pool};
use crate::device::in_use::Device;
use crate::device::stripe_log::{DeviceLog, LogState};
use crate::seam::bytes::read_bytes;
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault, Operation};
use crate::seam::observe::Why;
use format::stamp::Stamp;
use format::stripe_log::{Entry, Header, PAGE_BYTES, Place, Record};
use format::superblock::Superblock;
use format::units::{ComponentByte, MemberByte};
use std::pin::pin;
use std::rc::Rc;

/// One device's part of a batch.
pub(crate) struct LogPart {
    pub(crate) sequence: u64,
    /// Entries, and their partial parity if they have any.
    pub(crate) entries: Vec<(Entry, Option<Block>)>,
}

impl LogPart {
    /// Bytes in the ring.
    pub(crate) fn bytes(&self) -> u64 {
        Record::bytes_with(self.entries.iter().map(|(entry, _)| u64::from(entry.partial_bytes)).sum())
    }
}

/// A record for a device without a log.
#[derive(Debug, thiserror::Error)]
#[error("it has no room for a stripe log")]
struct NoLog;

impl<M: Member> Device<M> {
    /// Where the stripe log begins, if the array keeps one.
    pub(crate) fn stripe_log_begins_at(&self, superblock: &Superblock) -> Option<MemberByte> {
        self.context.stripe_log()?;
        Place::start(superblock).ok()
    }

    /// Writes a header that names both the superblock about to be written and the one that it replaces.
    pub(super) async fn announce_in_log(&self, next: &Superblock, pool: &Pool) -> Result<(), MemberError> {
        let Some(state) = self.context.stripe_log() else { return Ok(()) };
        let log = match self.stripe_log() {
            Some(log) => log,
            None => {
                let Ok(log) = DeviceLog::new(next, &state) else { return Ok(()) };
                self.stripe_log.borrow_mut().insert(Rc::new(log)).clone()
            }
        };
        let _lock = log.writing.exclusive(0..1).await;
        log.announce(Stamp::of(&self.superblock.borrow()), next);
        self.put_log_header(&log, &state, pool).await
    }

    /// From the next batch on, the device has its part of each. A replay must not look for its part of earlier ones.
    pub(in crate::device) fn begin_stripe_log(&self) {
        let Some(state) = self.context.stripe_log() else { return };
        let mut log = self.stripe_log.borrow_mut();
        match &*log {
            Some(log) if !mutant!("seat-taken-with-old-log") => log.begin_at(state.next()),
            Some(_) => {}
            None => *log = DeviceLog::new(&self.superblock.borrow(), &state).ok().map(Rc::new),
        }
    }

    /// Its part of the stripe log, once that was begun.
    pub(crate) fn stripe_log(&self) -> Option<Rc<DeviceLog>> {
        self.stripe_log.borrow().clone()
    }

    /// Erases the header: the array keeps no log any more. One of an earlier use of the array is erased as well.
    pub(crate) async fn erase_stripe_log(&self, pool: &Pool) -> Result<(), MemberError> {
        let at = match self.stripe_log.take() {
            Some(log) => Some(log.place.at),
            None => self.header_place(),
        };
        let Some(at) = at else { return Ok(()) };
        let erase = async {
            self.member.write(at, pool.zeroed(PAGE_BYTES).freeze(), Why::Log).await?;
            self.member.flush(Why::Log).await
        };
        self.with_timeout(Operation::Write, (at, PAGE_BYTES as u64), pin!(erase)).await.flatten()
    }

    /// Erases a header that a new member has from an earlier array.
    pub(crate) async fn erase_old_stripe_log(&self, pool: &Pool) -> Result<(), MemberError> {
        let Some(at) = self.header_place() else { return Ok(()) };
        let page = read_bytes(&self.member, pool, at, PAGE_BYTES as u64).await;
        // One that cannot be read is no log. Nor is one that is none.
        match page.map(|page| Header::decode(&page)) {
            Ok(Ok(None)) | Err(_) => Ok(()),
            Ok(Ok(Some(_)) | Err(_)) => self.erase_stripe_log(pool).await,
        }
    }

    /// Where a header is or would be, if there is room for one.
    fn header_place(&self) -> Option<MemberByte> {
        let superblock = self.superblock.borrow();
        let is_before_data = |at: &MemberByte| at.0 + PAGE_BYTES as u64 <= superblock.data_at().0;
        Place::start(&superblock).ok().filter(is_before_data)
    }

    /// The caller holds the header's lock.
    async fn put_log_header(&self, log: &DeviceLog, state: &LogState, pool: &Pool) -> Result<(), MemberError> {
        self.member.write(log.place.at, pool.copy_of(&log.header_page(state)), Why::Log).await?;
        mutant!("log-header-unflushed" => Ok(()), else self.member.flush(Why::Log).await)
    }

    /// Batches before this one must be on stable storage before a record of so many bytes can be written; 0 if none.
    pub(crate) fn log_room_needs(&self, bytes: u64) -> u64 {
        let needs = |device: &Self| device.stripe_log().map_or(0, |log| log.spot(bytes).first);
        self.successor().map_or(0, |successor| needs(&successor)).max(needs(self))
    }

    /// Writes the device's part of a batch, and flushes. The successor, if any, gets it as well.
    pub(crate) async fn write_log_part(&self, part: &LogPart, pool: &Pool) -> Result<(), MemberError> {
        let other = async |successor: &Device<M>| successor.put_log_part(part, pool).await;
        self.with_successor(self.put_log_part(part, pool), other).await
    }

    async fn put_log_part(&self, part: &LogPart, pool: &Pool) -> Result<(), MemberError> {
        let (Some(state), Some(log)) = (self.context.stripe_log(), self.stripe_log()) else {
            let (kind, operation, at) =
                (MemberErrorKind::Unsupported, Operation::Write, self.absolute(ComponentByte(0)));
            return Err(MemberFault { kind, operation, at, bytes: 0, source: Rc::new(NoLog) }.into());
        };
        let bytes = part.bytes();
        let place = (log.place.at, log.place.bytes);
        let put = async {
            let spot = log.spot(bytes);
            if log.must_give_up(spot, bytes, &state) {
                let _lock = log.writing.exclusive(0..1).await;
                self.put_log_header(&log, &state, pool).await?;
            }
            log.put(spot, bytes, part.sequence);
            let record = self.log_record(&log, &state, part, spot.offset, pool);
            self.member.write_vectored(log.place.in_ring(spot.offset), record, Why::Log).await?;
            mutant!("record-unflushed" => Ok(()), else self.member.flush(Why::Log).await)
        };
        self.with_timeout(Operation::Write, place, pin!(put)).await.flatten()
    }

    /// A record: its head, the partial parity, and zeros up to a page.
    fn log_record(&self, log: &DeviceLog, state: &LogState, part: &LogPart, offset: u64, pool: &Pool) -> Vec<Block> {
        let record = Record {
            epoch: state.epoch(),
            sequence: part.sequence,
            tail: state.retired(),
            offset,
            entries: part.entries.iter().map(|(entry, _)| entry.clone()).collect(),
        };
        let head = pool.copy_of(&record.encode(log.seed()));
        let partial = part.entries.iter().filter_map(|(_, partial)| partial.clone());
        let mut blocks: Vec<Block> = std::iter::once(head).chain(partial).collect();
        let bytes: usize = blocks.iter().map(|block| block.len()).sum();
        let rest = bytes.next_multiple_of(PAGE_BYTES) - bytes;
        blocks.extend((rest > 0).then(|| pool.zeroed(rest).freeze()));
        blocks
    }
}
