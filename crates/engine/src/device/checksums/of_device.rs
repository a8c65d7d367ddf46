//! What a device knows of its checksums: whether it has any, how many blocks they do not cover, and what they say of
//! data that others reconstructed.
//!
//! Reads and writes pass them elsewhere ([`crate::device::transfer::checked`]).

use crate::base::buffer::Pool;
use crate::device::checksums::{Checksums, Verify};
use crate::device::in_use::Device;
use crate::seam::member::{Member, MemberError};
use format::integrity::Layout;
use format::superblock::PLACE_BYTES;
use format::units::ComponentByte;
use std::time::Duration;

impl<M: Member> Device<M> {
    /// Uses the checksums on the member, if there are valid ones.
    pub(crate) async fn find_checksums(&self, pool: &Pool, now: Duration, verify: Verify) {
        let superblock = self.superblock.borrow().clone();
        match Checksums::find(&self.member, &superblock, pool, now).await {
            Ok(None) => {}
            Ok(Some(found)) => self.keep_checksums(found, verify),
            Err(defect) => tracing::warn!("{}: its checksums are not used: {defect}", self.name),
        }
    }

    /// Updates `checksums` from now on, and verifies them as `verify` says.
    pub(crate) fn keep_checksums(&self, checksums: Checksums, verify: Verify) {
        checksums.set_verify(verify);
        assert!(self.checksums.set(checksums).is_ok(), "a device gets its checksums once");
    }

    /// The space for a bitmap between the superblock and mdspace's own areas, if there are any.
    pub(crate) fn room_before_own_areas(&self) -> Option<u64> {
        let superblock = self.superblock.borrow();
        let bitmap_at = superblock.super_at().0 + PLACE_BYTES;
        let checksums = self.checksums.get().map(Checksums::begin_at);
        let log = self.stripe_log_begins_at(&superblock);
        let first = checksums.into_iter().chain(log).map(|at| at.0).min()?;
        Some(first.saturating_sub(bitmap_at))
    }

    /// Where its checksums are, if it has any.
    pub(crate) fn checksums_layout(&self) -> Option<Layout> {
        self.checksums.get().map(Checksums::layout)
    }

    /// Fills in unknown checksums from blocks that were found consistent with the other members, and returns how many.
    /// The caller locks the blocks against writes.
    pub(crate) async fn record_checksums(&self, at: ComponentByte, data: &[u8]) -> u64 {
        match self.checksums.get() {
            // Owed data is in memory only.
            Some(checksums) if !self.owed.touches(&(at.0..at.0 + data.len() as u64)) => {
                checksums.fill_unknown(&self.member, at, data).await
            }
            _ => 0,
        }
    }

    /// Blocks that did not match their checksum since assembly, each counted once until it is written.
    pub(crate) fn corrupt_blocks(&self) -> u64 {
        self.checksums.get().map_or(0, Checksums::wrong)
    }

    /// The number of blocks of a range whose checksum is unknown; 0 for a member without checksums.
    pub(crate) async fn unknown_blocks(&self, at: ComponentByte, bytes: u64) -> u64 {
        match self.checksums.get() {
            Some(checksums) => checksums.unknown_in(&self.member, at, bytes).await,
            None => 0,
        }
    }

    /// Whether checksums were filled in under a superblock that the kernel wrote. The header cannot name such a
    /// superblock, because the kernel may write more data under the same one.
    pub(crate) fn lacks_a_superblock(&self) -> bool {
        let is_the_kernels = self.superblock.borrow().updated.micros == 0;
        is_the_kernels && self.checksums.get().is_some_and(Checksums::has_unannounced_changes)
    }

    /// Whether no known checksum contradicts `bytes`.
    pub(crate) fn takes(&self, at: ComponentByte, bytes: &[u8]) -> bool {
        let checksums = self.checksums.get();
        checksums.is_none_or(|checksums| checksums.first_wrong(at, bytes).is_none())
    }

    /// The error if data reconstructed from the other members contradicts this member's checksums.
    pub(crate) fn contradicts(&self, at: ComponentByte, bytes: &[u8]) -> Option<MemberError> {
        let checksums = self.checksums.get()?;
        let block = checksums.first_wrong(at, bytes)?;
        Some(checksums.checksum_mismatch(self.absolute(at), bytes.len() as u64, block))
    }

    /// Whether all checksums of a range are known, so that the preceding verified read proves its data
    /// right.
    pub(crate) fn vouches_for(&self, at: ComponentByte, bytes: u64) -> bool {
        self.checksums.get().is_some_and(|checksums| checksums.knows(at, bytes))
    }
}
