//! Reads and writes of a device that has checksums.
//!
//! A block that is not what its checksum says makes a read fail, as one that
//! the medium has lost: whoever asked goes round it. A read may pass a write of the same
//! block, as nothing keeps direct reads off: so what is neither the old nor the new contents is read again once the write
//! has ended, and only a block is convicted whose checksum stood still while it was read.

use crate::base::buffer::{Block, Buffer, Pool};
use crate::device::Device;
use crate::device::checksums::{Checksums, Verify, WrittenChecksums};
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::integrity::{Checksum, Stamp};
use format::superblock::{PLACE_BYTES, Superblock};
use format::units::ComponentByte;
use std::time::Duration;

/// A block that was not what its checksum says, and that checksum.
type Suspect = (u64, Option<Checksum>);

impl<M: Member> Device<M> {
    /// Takes up the checksums that the member has, if there are any that can be used.
    pub(crate) async fn find_checksums(&self, pool: &Pool, now: Duration, verify: Verify) {
        let superblock = self.superblock.borrow().clone();
        match Checksums::find(&self.member, &superblock, pool, now).await {
            Ok(None) => {}
            Ok(Some(found)) => self.keep_checksums(found, verify),
            Err(defect) => tracing::warn!("{}: its checksums are not used: {defect}", self.name),
        }
    }

    /// From here on `checksums` are kept, and asked as `verify` says.
    pub(crate) fn keep_checksums(&self, checksums: Checksums, verify: Verify) {
        checksums.set_verify(verify);
        assert!(self.checksums.set(checksums).is_ok(), "a device takes up its checksums once");
    }

    /// Bytes that a bitmap behind the superblock may have.
    pub(crate) fn room_before_checksums(&self) -> Option<u64> {
        let superblock = self.superblock.borrow();
        let bitmap_at = superblock.super_at().0 + PLACE_BYTES;
        self.checksums.get().map(|checksums| checksums.begin_at().0.saturating_sub(bitmap_at))
    }

    /// Takes in what blocks hold that were found in agreement with all others, where nothing is known of
    /// them yet. The caller keeps writes off them.
    pub(crate) async fn learn_checksums(&self, at: ComponentByte, data: &[u8]) -> u64 {
        match self.checksums.get() {
            // What is owed is in memory alone.
            Some(checksums) if !self.owed.touches(&(at.0..at.0 + data.len() as u64)) => {
                checksums.fill_unknown(&self.member, at, data).await
            }
            _ => 0,
        }
    }

    /// Blocks that were not what their checksums say, since the array was assembled, each counted once until it is written.
    pub(crate) fn corrupt_blocks(&self) -> u64 {
        self.checksums.get().map_or(0, Checksums::wrong)
    }

    /// Of how many blocks of a range no checksum is known, though checksums are kept.
    pub(crate) async fn unknown_blocks(&self, at: ComponentByte, bytes: u64) -> u64 {
        match self.checksums.get() {
            Some(checksums) => checksums.unknown_in(&self.member, at, bytes).await,
            None => 0,
        }
    }

    /// Whether something was learned under a superblock of the kernel's, which nothing can stand for: it may have written more under it.
    pub(crate) fn owes_a_superblock(&self) -> bool {
        let is_the_kernels = self.superblock.borrow().updated.micros == 0;
        is_the_kernels && self.checksums.get().is_some_and(Checksums::has_unannounced_changes)
    }

    /// The checksums that reads are to be held against. What parity is worked out of is always: it would vouch for what is
    /// wrong.
    pub(crate) fn judge(&self, why: Why) -> Option<&Checksums> {
        self.checksums.get().filter(|checksums| why == Why::Rmw || checksums.verify() == Verify::Always)
    }

    /// Whether what was read is right; `Ok(false)`: a write came in between, to be read once more.
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
            // Neither what it was nor what it becomes: a part of either, or wrong, and healed perhaps.
            checksums.written(block).await;
            Box::pin(checksums.prepare(&self.member, at, bytes)).await;
            if checksums.get(block).is_some() {
                *suspect = None;
                return Ok(false);
            }
            // The write failed: nothing says any more what should be there, and what was read is neither.
            let error = checksums.checksum_mismatch(self.absolute(at), bytes, block);
            self.note(&Err(error.clone()));
            return Err(error);
        }
        let found = Some((block, checksums.get(block)));
        if rewrites == checksums.rewrites() || *suspect == found {
            let is_first = checksums.wrong() == 0;
            let error = checksums.checksum_mismatch(self.absolute(at), bytes, block);
            if is_first {
                tracing::warn!("{}: {error}; further wrong blocks of it are counted in its status", self.name);
            }
            return Err(error);
        }
        *suspect = found;
        Ok(false)
    }

    /// Whether the checksums take bytes for what should be there, or know nothing of it.
    pub(crate) fn takes(&self, at: ComponentByte, bytes: &[u8]) -> bool {
        let checksums = self.checksums.get();
        checksums.is_none_or(|checksums| checksums.first_wrong(at, bytes).is_none())
    }

    /// Whether bytes that should be there, as the others have it, are not what the checksums say.
    pub(crate) fn contradicts(&self, at: ComponentByte, bytes: &[u8]) -> Option<MemberError> {
        let checksums = self.checksums.get()?;
        let block = checksums.first_wrong(at, bytes)?;
        Some(checksums.checksum_mismatch(self.absolute(at), bytes.len() as u64, block))
    }

    /// Whether checksums say that what was read of a range, just now and surely, is right: not only
    /// that nothing is known against it.
    pub(crate) fn vouches_for(&self, at: ComponentByte, bytes: u64) -> bool {
        self.checksums.get().is_some_and(|checksums| checksums.knows(at, bytes))
    }

    /// As [`Device::read`], whatever the setting.
    pub(crate) async fn read_verified(
        &self,
        at: ComponentByte,
        into: Buffer,
        why: Why,
    ) -> (Result<(), MemberError>, Buffer) {
        self.read_judged(self.checksums.get(), at, into, why).await
    }

    /// Held against `checksums`, where there are any: as a rule at once, while the bytes are in the processor's cache.
    pub(crate) async fn read_judged(
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

    /// What was read may be wrong: finds out, and reads it once more if need be.
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

    /// As [`Device::read_judged`], of several buffers.
    pub(crate) async fn read_vectored_judged(
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

    /// Carries out a write, and keeps the checksums of what it leaves behind.
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

    /// What the blocks of a write hold together, where anybody wants to know.
    pub(crate) fn sums_of(&self, from: &[Block]) -> Option<(&Checksums, WrittenChecksums)> {
        self.checksums.get().map(|checksums| (checksums, WrittenChecksums::of(from)))
    }

    /// Before `next` is written over the superblock that is there.
    pub(crate) async fn announce(&self, next: &Superblock) -> Result<(), MemberError> {
        let Some(checksums) = self.checksums.get() else { return Ok(()) };
        let present = Stamp::of(&self.superblock.borrow());
        checksums.announce(&self.member, present, next).await
    }
}
