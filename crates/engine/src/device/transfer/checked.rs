//! The layer of checksums: verifies what was read, and updates the checksums with what is written.
//!
//! A checksum mismatch makes a read fail like a medium error, and the caller reconstructs the data. Direct reads take
//! no lock, so a read may overlap a write of the same block. Contents that match neither the old nor the new checksum
//! are therefore read again after the write has ended. A block counts as wrong only if its checksum did not change
//! during the read.

use crate::base::buffer::{Block, Buffer};
use crate::device::checksums::{Checksums, Verify, WrittenChecksums};
use crate::device::in_use::Device;
use crate::device::transfer::memory::ReadMemory;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::integrity::Checksum;
use format::units::ComponentByte;
use futures_util::future::join;

/// A block that did not match its checksum, and that checksum.
type Suspect = (u64, Option<Checksum>);

impl<M: Member> Device<M> {
    /// The checksums that verify a read. Reads for a parity computation are always verified: new parity would
    /// otherwise confirm wrong data.
    pub(super) fn verifier(&self, why: Why) -> Option<&Checksums> {
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

    /// Reads, and at the same time the pages of the table that say what is right.
    pub(super) async fn read_beside_pages<P: ReadMemory>(
        &self,
        checksums: &Checksums,
        at: ComponentByte,
        into: P,
        why: Why,
    ) -> (Result<(), MemberError>, P) {
        let bytes = into.bytes();
        join(self.read_bare(at, into, why), checksums.prepare(&self.member, at, bytes)).await.0
    }

    /// Verifies data that may be wrong, and reads it again where a write has overlapped the read.
    pub(super) async fn verify_again<P: ReadMemory>(
        &self,
        checksums: &Checksums,
        at: ComponentByte,
        mut read: P,
        mut rewrites: u64,
        why: Why,
    ) -> (Result<(), MemberError>, P) {
        let mut suspect = None;
        loop {
            match self.is_right(checksums, at, read.parts(), rewrites, &mut suspect).await {
                Ok(false) => rewrites = checksums.rewrites(),
                outcome => return (outcome.map(|_| ()), read),
            }
            read.parts_mut().iter_mut().for_each(Buffer::want_sums);
            let (result, again) = self.read_bare(at, read, why).await;
            if result.is_err() {
                return (result, again);
            }
            read = again;
        }
    }

    /// Carries out a write, and updates the checksums.
    pub(super) async fn keeping(
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
    pub(super) fn sums_of(&self, from: &[Block]) -> Option<(&Checksums, WrittenChecksums)> {
        self.checksums.get().map(|checksums| (checksums, WrittenChecksums::of(from)))
    }
}
