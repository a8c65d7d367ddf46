//! The partial parity log of one device: where it is, whether it was begun, and its transfers.
//!
//! A log that an earlier use of the array left says nothing of the next one. So the device gets an empty log before the
//! first superblock that this engine writes to it, as from md. Which writes a log names is decided elsewhere
//! ([`crate::metadata::parity_log`]).
//!
//! A log that was replayed stays until the superblocks reject the members that took no part in the replay. Should one
//! of them be accepted again, the log alone makes parity agree with what that member holds. A further replay without it
//! changes nothing, as no write goes on before.
//!
//! Facts: `ppl_write_empty_header` in `drivers/md/raid5-ppl.c`.

use crate::base::buffer::{Block, Pool};
use crate::device::in_use::Device;
use crate::seam::bytes::{replace_bytes, write_bytes};
use crate::seam::member::{Member, MemberError, Operation};
use crate::seam::observe::Why;
use format::partial_parity::{HEADER_BYTES, Header};
use format::superblock::Superblock;
use format::units::{MemberByte, SECTOR_BYTES};
use std::pin::pin;

impl<M: Member> Device<M> {
    /// Bytes of its log behind the header; `None` without a log.
    pub(crate) fn parity_log_room(&self) -> Option<u64> {
        let place = self.superblock.borrow().ppl?;
        Some((u64::from(place.sectors) * SECTOR_BYTES).saturating_sub(HEADER_BYTES as u64))
    }

    /// The next superblock that names a log is preceded by an empty one.
    pub(crate) fn end_parity_log(&self) {
        self.is_parity_log_begun.set(false);
        self.is_parity_log_replayed.set(false);
    }

    /// The log was replayed. It stays until [`Self::empty_replayed_log`].
    pub(crate) fn keep_replayed_log(&self) {
        self.is_parity_log_replayed.set(!mutant!("replayed-log-emptied-first"));
    }

    /// Empties the log that was replayed, if it is still there. The superblock on the member rejects those that took no
    /// part in the replay.
    pub(crate) async fn empty_replayed_log(&self, pool: &Pool) -> Result<(), MemberError> {
        if self.is_parity_log_replayed.get() {
            let superblock = self.superblock.borrow().clone();
            self.write_empty_parity_log(&superblock, pool).await?;
            self.is_parity_log_replayed.set(false);
        }
        Ok(())
    }

    /// Writes the empty log that `superblock` names, unless that was done.
    pub(crate) async fn write_empty_parity_log(&self, superblock: &Superblock, pool: &Pool) -> Result<(), MemberError> {
        let place = (superblock.ppl_at().unwrap_or(MemberByte(0)), HEADER_BYTES as u64);
        self.with_timeout(Operation::Write, place, pin!(self.begin_parity_log(superblock, pool))).await.flatten()
    }

    /// Writes an empty log, unless that was done.
    pub(super) async fn begin_parity_log(&self, superblock: &Superblock, pool: &Pool) -> Result<(), MemberError> {
        let Some(at) = superblock.ppl_at().filter(|_| !self.is_parity_log_begun.get()) else { return Ok(()) };
        if !mutant!("log-not-begun") {
            let header = Header::empty(&superblock.set_uuid, self.context.next_log_generation());
            replace_bytes(&self.member, pool, at, &header.encode()).await?;
            self.member.flush(Why::Superblock).await?;
            self.erase_older_logs(superblock, at, pool).await?;
        }
        self.is_parity_log_begun.set(true);
        Ok(())
    }

    /// Where several logs are read in a row, the new one must not be followed by an older one. The new header is there
    /// before: a log without any would be another array's.
    async fn erase_older_logs(&self, superblock: &Superblock, at: MemberByte, pool: &Pool) -> Result<(), MemberError> {
        let Some(place) = superblock.ppl.filter(|place| place.multiple) else { return Ok(()) };
        let bytes = (u64::from(place.sectors) * SECTOR_BYTES).saturating_sub(HEADER_BYTES as u64);
        let zeros = vec![0; bytes as usize];
        replace_bytes(&self.member, pool, MemberByte(at.0 + HEADER_BYTES as u64), &zeros).await?;
        self.member.flush(Why::Superblock).await
    }

    /// Writes a header and the partial parity of its entries, and flushes. The successor, if any, gets it as well.
    pub(crate) async fn write_parity_log(&self, log: &[Block], pool: &Pool) -> Result<(), MemberError> {
        let other = async |successor: &Device<M>| successor.put_parity_log(log, pool).await;
        self.with_successor(self.put_parity_log(log, pool), other).await
    }

    async fn put_parity_log(&self, log: &[Block], pool: &Pool) -> Result<(), MemberError> {
        let at = self.superblock.borrow().ppl_at().unwrap_or(MemberByte(0));
        let bytes: u64 = log.iter().map(|block| block.len() as u64).sum();
        let put = async {
            let unit = u64::from(self.member.limits().logical_block_bytes);
            match at.0.is_multiple_of(unit) && bytes.is_multiple_of(unit) {
                true => self.member.write_vectored(at, log.to_vec(), Why::Log).await?,
                false => {
                    let log: Vec<&[u8]> = log.iter().map(|block| &block[..]).collect();
                    write_bytes(&self.member, pool, at, &log.concat()).await?;
                }
            }
            mutant!("entry-unflushed" => Ok(()), else self.member.flush(Why::Log).await)
        };
        self.with_timeout(Operation::Write, (at, bytes), pin!(put)).await.flatten()
    }
}
