//! The write journal as it is found on its device: the meta blocks of its log, one after the other.
//!
//! The log begins where the superblock says. It ends before the first meta block that is torn, lists a torn block, or has
//! not the next sequence number.
//!
//! It only reads. What a replay does with the blocks is decided in [`super::replay`].
//!
//! Facts: `r5l_load_log`, `r5l_recovery_read_meta_block` and `r5l_recovery_verify_data_checksum_for_mb` in
//! `drivers/md/raid5-cache.c`.

use crate::base::buffer::Pool;
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::journal::{BLOCK_BYTES, MetaBlock, Payload, Ring, checksum};
use format::superblock::Superblock;
use format::units::{MemberByte, Sectors};

/// The blocks of a journal.
pub(crate) struct Blocks<'a, M> {
    name: &'a str,
    member: &'a M,
    pool: &'a Pool,
    data_at: MemberByte,
    pub(crate) ring: Ring,
    tail: Sectors,
    set_uuid: [u8; 16],
    /// The parities of each row.
    parities: u16,
}

/// The log of a journal, meta block by meta block.
pub(crate) struct Log<'b, 'a, M> {
    blocks: &'b Blocks<'a, M>,
    /// The block that may come next.
    next: Option<MetaBlock>,
    /// The sequence number that it must have.
    pub(crate) sequence: u64,
    /// Blocks of the ring before it, from the tail on.
    pub(crate) used: u64,
}

impl<'a, M: Member> Blocks<'a, M> {
    /// Those of the device with this superblock, of an array with `parities` in each row.
    pub(crate) fn of(name: &'a str, member: &'a M, superblock: &Superblock, parities: u16, pool: &'a Pool) -> Self {
        Self {
            name,
            member,
            pool,
            data_at: superblock.data_at(),
            ring: Ring::of(superblock),
            tail: superblock.journal_tail.unwrap_or_default(),
            set_uuid: superblock.set_uuid,
            parities,
        }
    }

    /// The block at `at`.
    pub(crate) async fn read(&self, at: Sectors) -> Result<Vec<u8>, Refusal> {
        let place = MemberByte(self.data_at.0 + self.ring.place(at).0);
        let read = read_bytes(self.member, self.pool, place, BLOCK_BYTES as u64).await;
        read.map_err(|reason| Refusal::new(reason).of(self.name).field("journal"))
    }

    /// The log.
    ///
    /// # Errors
    /// When the device cannot be read, or no log begins where the superblock says.
    pub(crate) async fn log(&self) -> Result<Log<'_, 'a, M>, Refusal> {
        let Some(first) = self.meta_block(self.tail).await? else {
            let reason = format!("no journal begins at sector {}, where its superblock says", self.tail.0);
            return Err(Refusal::new(reason).of(self.name).field("superblock.journal_tail"));
        };
        Ok(Log { blocks: self, sequence: first.sequence, next: Some(first), used: 0 })
    }

    /// The meta block at `at`; `None` where there is none.
    async fn meta_block(&self, at: Sectors) -> Result<Option<MetaBlock>, Refusal> {
        if !self.ring.holds(at) {
            return Ok(None);
        }
        Ok(MetaBlock::decode(&self.read(at).await?, at, self.parities, &self.set_uuid).ok())
    }

    /// Whether all blocks of a meta block are there. If one is not, power was lost while they were written.
    async fn are_sound(&self, block: &MetaBlock) -> Result<bool, Refusal> {
        let mut at = self.ring.after(block.position, 1);
        for payload in &block.payloads {
            let checksums = match payload {
                Payload::Data { checksum, .. } => std::slice::from_ref(checksum),
                Payload::Parity { checksums, .. } => checksums,
                Payload::Flush { .. } => &[],
            };
            for expected in checksums {
                if checksum(&self.set_uuid, &self.read(at).await?) != *expected {
                    return Ok(false);
                }
                at = self.ring.after(at, 1);
            }
        }
        Ok(true)
    }
}

impl<M: Member> Log<'_, '_, M> {
    /// The next meta block; `None` where the log ends.
    pub(crate) async fn next(&mut self) -> Result<Option<MetaBlock>, Refusal> {
        let (ring, Some(block)) = (&self.blocks.ring, self.next.take()) else { return Ok(None) };
        let own = 1 + block.payloads.iter().map(Payload::blocks).sum::<u64>();
        let is_next = block.sequence == self.sequence || mutant!("journal-sequence-ignored");
        if self.used + own > ring.blocks() || !is_next {
            return Ok(None);
        }
        if !self.blocks.are_sound(&block).await? && !mutant!("torn-journal-believed") {
            return Ok(None);
        }
        self.used += own;
        self.sequence = block.sequence.wrapping_add(1);
        self.next = self.blocks.meta_block(ring.after(block.position, own)).await?;
        Ok(Some(block))
    }
}
