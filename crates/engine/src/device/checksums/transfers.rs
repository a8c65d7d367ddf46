//! Reads and writes of a device with checksums.
//!
//! A checksum mismatch makes a read fail like a medium error, and the caller reconstructs the data. Direct reads take
//! no lock, so a read may overlap a write of the same block. Contents that match neither the old nor the new checksum
//! are therefore read again after the write has ended. A block counts as wrong only if its checksum did not change
//! during the read.

use crate::base::buffer::{Block, Buffer, Pool};
use crate::device::Device;
use crate::device::checksums::{Checksums, Verify, WrittenChecksums};
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::integrity::{Checksum, Stamp};
use format::superblock::{PLACE_BYTES, Superblock};
use format::units::ComponentByte;
use std::time::Duration;

/// A block that did not match its checksum, and that checksum.
type Suspect = (u64, Option<Checksum>);

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

    /// The space for a bitmap between the superblock and the checksums.
    pub(crate) fn room_before_checksums(&self) -> Option<u64> {
        let superblock = self.superblock.borrow();
        let bitmap_at = superblock.super_at().0 + PLACE_BYTES;
        self.checksums.get().map(|checksums| checksums.begin_at().0.saturating_sub(bitmap_at))
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

    /// The checksums that verify a read. Reads for a parity computation are always verified: new parity would
    /// otherwise confirm wrong data.
    pub(crate) fn verifier(&self, why: Why) -> Option<&Checksums> {
        self.checksums.get().filter(|checksums| why == Why::Rmw || checksums.verify() == Verify::Always)
    }

    /// Whether the data is right; `Ok(false)` means that a write came in between, and the data must be read again.
    async fn is_right(
        &self,
        checksums: &Checksums,
        at: ComponentByte,
        parts: &[Buffer],
        rewrites: u64,
        suspect: &mut Option<Suspect>,
    ) -> Result<bool, MemberError> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        if !checksums.is_prepared(at, bytes) {
            Box::pin(checksums.prepare(&self.member, at, bytes)).await;
        }
        let found = checksums.first_wrong_of(at, parts);
        let Some(block) = found.filter(|block| !mutant!("read-of-torn-block") || !checksums.is_being_written(*block))
        else {
            return Ok(true);
        };
        if checksums.is_being_written(block) {
            // Neither the old nor the new contents: a mixture of both, or a wrong block that is possibly being
            // repaired.
            checksums.written(block).await;
            Box::pin(checksums.prepare(&self.member, at, bytes)).await;
            if checksums.get(block).is_some() {
                *suspect = None;
                return Ok(false);
            }
            // The write failed. The checksum is unknown now, and the data is neither the old nor the new.
            let error = checksums.checksum_mismatch(self.absolute(at), bytes, block);
            self.note(&Err(error.clone()));
            return Err(error);
        }
        let found = Some((block, checksums.get(block)));
        if rewrites == checksums.rewrites() || *suspect == found {
            let is_first = checksums.wrong() == 0;
            let error = checksums.checksum_mismatch(self.absolute(at), bytes, block);
            if is_first {
                tracing::warn!("{}: {error}; its status counts further wrong blocks", self.name);
            }
            return Err(error);
        }
        *suspect = found;
        Ok(false)
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

    /// As [`Device::read_verified`], without queueing a failed read for read repair.
    pub(crate) async fn read_verified_unqueued(
        &self,
        at: ComponentByte,
        into: Buffer,
        why: Why,
    ) -> (Result<(), MemberError>, Buffer) {
        self.read_against(self.checksums.get(), at, into, why).await
    }

    /// Reads and verifies against `checksums`, if any. The common case is verified at once, while the bytes are in the
    /// processor's cache.
    pub(crate) async fn read_against(
        &self,
        checksums: Option<&Checksums>,
        at: ComponentByte,
        mut into: Buffer,
        why: Why,
    ) -> (Result<(), MemberError>, Buffer) {
        let rewrites = Checksums::expect(checksums, &mut into);
        let (result, buffer) = self.read_bare(at, into, why).await;
        match Checksums::against(checksums, at, &result, &buffer) {
            Some(checksums) => Box::pin(self.verify_again(checksums, at, buffer, rewrites, why)).await,
            None => (result, buffer),
        }
    }

    /// Verifies data that may be wrong, and reads it again where a write has overlapped the read.
    pub(crate) async fn verify_again(
        &self,
        checksums: &Checksums,
        at: ComponentByte,
        read: Buffer,
        rewrites: u64,
        why: Why,
    ) -> (Result<(), MemberError>, Buffer) {
        let (mut buffer, mut rewrites, mut suspect) = (read, rewrites, None);
        loop {
            match self.is_right(checksums, at, std::slice::from_ref(&buffer), rewrites, &mut suspect).await {
                Ok(false) => rewrites = checksums.rewrites(),
                outcome => return (outcome.map(|_| ()), buffer),
            }
            buffer.want_sums();
            let (result, again) = self.read_bare(at, buffer, why).await;
            if result.is_err() {
                return (result, again);
            }
            buffer = again;
        }
    }

    /// As [`Device::read_against`], of several buffers.
    pub(crate) async fn read_vectored_against(
        &self,
        checksums: Option<&Checksums>,
        at: ComponentByte,
        mut into: Vec<Buffer>,
        why: Why,
    ) -> (Result<(), MemberError>, Vec<Buffer>) {
        let rewrites = checksums.map_or(0, Checksums::rewrites);
        if checksums.is_some() {
            into.iter_mut().for_each(Buffer::want_sums);
        }
        let (result, buffers) = self.read_vectored_bare(at, into, why).await;
        match checksums.filter(|_| result.is_ok()) {
            Some(checksums) if !checksums.is_right(at, &buffers) => {
                Box::pin(self.verify_again_vectored(checksums, at, buffers, rewrites, why)).await
            }
            _ => (result, buffers),
        }
    }

    /// As [`Device::verify_again`], of several buffers.
    async fn verify_again_vectored(
        &self,
        checksums: &Checksums,
        at: ComponentByte,
        read: Vec<Buffer>,
        rewrites: u64,
        why: Why,
    ) -> (Result<(), MemberError>, Vec<Buffer>) {
        let (mut buffers, mut rewrites, mut suspect) = (read, rewrites, None);
        loop {
            match self.is_right(checksums, at, &buffers, rewrites, &mut suspect).await {
                Ok(false) => rewrites = checksums.rewrites(),
                outcome => return (outcome.map(|_| ()), buffers),
            }
            buffers.iter_mut().for_each(Buffer::want_sums);
            let (result, again) = self.read_vectored_bare(at, buffers, why).await;
            if result.is_err() {
                return (result, again);
            }
            buffers = again;
        }
    }

    /// Carries out a write, and updates the checksums.
    pub(crate) async fn keeping(
        &self,
        checksums: &Checksums,
        at: ComponentByte,
        bytes: u64,
        contents: WrittenChecksums,
        write: impl Future<Output = Result<(), MemberError>>,
    ) -> Result<(), MemberError> {
        let writing = checksums.begin(&self.member, at, bytes, contents).await.inspect_err(|error| {
            self.note(&Err(error.clone()));
        })?;
        write.await?;
        writing.end();
        Ok(())
    }

    /// The checksums of a write's blocks, for a member with checksums.
    pub(crate) fn sums_of(&self, from: &[Block]) -> Option<(&Checksums, WrittenChecksums)> {
        self.checksums.get().map(|checksums| (checksums, WrittenChecksums::of(from)))
    }

    /// Prepares the header for a write of `next` over the present superblock.
    pub(crate) async fn announce(&self, next: &Superblock) -> Result<(), MemberError> {
        let Some(checksums) = self.checksums.get() else { return Ok(()) };
        let present = Stamp::of(&self.superblock.borrow());
        checksums.announce(&self.member, present, next).await
    }
}
