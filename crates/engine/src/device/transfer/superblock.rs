//! Writes a device's superblock, its bad-block log and the announcement in its checksums, in the order that a power
//! failure must find.
//!
//! The transfers pass no layer but the timeout: none of them is data.

use crate::base::buffer::Pool;
use crate::device::in_use::Device;
use crate::seam::bytes::write_bytes;
use crate::seam::member::{Member, MemberError, Operation};
use crate::seam::observe::Why;
use format::stamp::Stamp;
use format::superblock::{BadBlockPlace, PLACE_BYTES, Superblock};
use std::pin::pin;

impl<M: Member> Device<M> {
    /// Writes `superblock`, in whole logical blocks, and flushes. A changed bad-block log is
    /// written first, so that it is on the member before the superblock says that it is in use.
    pub(crate) async fn write_superblock(&self, mut superblock: Superblock, pool: &Pool) -> Result<(), MemberError> {
        superblock.bad_blocks =
            superblock.bad_blocks.map(|log| BadBlockPlace { in_use: self.bad.is_log_in_use(), ..log });
        let place = (superblock.super_at(), PLACE_BYTES);
        self.with_timeout(Operation::Write, place, pin!(self.put_superblock(superblock, pool))).await.flatten()
    }

    async fn put_superblock(&self, superblock: Superblock, pool: &Pool) -> Result<(), MemberError> {
        self.write_log(&superblock, pool).await?;
        if !self.is_parity_log_replayed.get() {
            self.begin_parity_log(&superblock, pool).await?;
        }
        self.announce_in_log(&superblock, pool).await?;
        self.announce(&superblock).await?;
        if let Some(buffer) = self.context.write_buffer.get() {
            buffer.announce(&superblock);
        }
        let at = superblock.super_at();
        let block = self.superblock.image(superblock, self.member.limits().logical_block_bytes as usize, pool);
        self.member.write(at, block, Why::Superblock).await?;
        mutant!("superblock-flush-lost" => Ok(()), else self.member.flush(Why::Superblock).await)
    }

    /// Flushes first: a range that leaves the log was rewritten, and that write must be stable before the log is.
    async fn write_log(&self, superblock: &Superblock, pool: &Pool) -> Result<(), MemberError> {
        let (Some(log), Some(at)) = (self.bad.unsaved(), superblock.bad_blocks_at()) else { return Ok(()) };
        self.member.flush(Why::Superblock).await?;
        write_bytes(&self.member, pool, at, &log.bytes).await?;
        self.member.flush(Why::Superblock).await?;
        self.bad.saved(&log);
        Ok(())
    }

    /// Prepares the checksums' header for a write of `next` over the present superblock.
    async fn announce(&self, next: &Superblock) -> Result<(), MemberError> {
        let Some(checksums) = self.checksums.get() else { return Ok(()) };
        let present = Stamp::of(&self.superblock.borrow());
        checksums.announce(&self.member, present, next).await
    }
}
