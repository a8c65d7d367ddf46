//! Reads of a device. [`Device::read_layers`] is the way through the layers; the others say what is verified, and
//! whether a failed read is queued for read repair.

use crate::base::buffer::Buffer;
use crate::device::checksums::Checksums;
use crate::device::in_use::Device;
use crate::device::transfer::memory::ReadMemory;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::units::ComponentByte;

/// What happens to a range whose read fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedThen {
    /// It is queued for read repair.
    Queue,
    /// The caller decides.
    Leave,
}

/// The result of a read, and its memory.
type ReadResult<P> = (Result<(), MemberError>, P);

impl<M: Member> Device<M> {
    pub(crate) async fn read(&self, at: ComponentByte, mut into: Buffer, why: Why) -> ReadResult<Buffer> {
        match self.read_now(at, &mut into, why) {
            Some(result) => (result, into),
            None => self.read_later(at, into, why).await,
        }
    }

    /// As [`Device::read`], after [`Device::read_now`] returned `None`.
    pub(crate) fn read_later(
        &self,
        at: ComponentByte,
        into: Buffer,
        why: Why,
    ) -> impl Future<Output = ReadResult<Buffer>> {
        self.read_layers(self.verifier(why), at, into, why, FailedThen::Queue)
    }

    /// Fills the buffers in order, as one transfer.
    pub(crate) async fn read_vectored(
        &self,
        at: ComponentByte,
        mut into: Vec<Buffer>,
        why: Why,
    ) -> ReadResult<Vec<Buffer>> {
        if into.len() == 1 {
            let (result, buffer) = self.read(at, into.remove(0), why).await;
            into.push(buffer);
            return (result, into);
        }
        self.read_layers(self.verifier(why), at, into, why, FailedThen::Queue).await
    }

    /// As [`Device::read`], and verifies the checksums regardless of the setting.
    pub(crate) fn read_verified(
        &self,
        at: ComponentByte,
        into: Buffer,
        why: Why,
    ) -> impl Future<Output = ReadResult<Buffer>> {
        self.read_layers(self.checksums.get(), at, into, why, FailedThen::Queue)
    }

    /// As [`Device::read_verified`], without queueing a failed read for read repair.
    pub(crate) fn read_verified_unqueued(
        &self,
        at: ComponentByte,
        into: Buffer,
        why: Why,
    ) -> impl Future<Output = ReadResult<Buffer>> {
        self.read_layers(self.checksums.get(), at, into, why, FailedThen::Leave)
    }

    /// Reads, verifies against `checksums`, if any, and notes the result. The common case is verified at once, while
    /// the bytes are in the processor's cache. The layers share this function, because a future of its own would be
    /// moved once more.
    async fn read_layers<P: ReadMemory>(
        &self,
        checksums: Option<&Checksums>,
        at: ComponentByte,
        mut into: P,
        why: Why,
        failed: FailedThen,
    ) -> ReadResult<P> {
        let bytes = into.bytes();
        let rewrites = Checksums::expect(checksums, into.parts_mut());
        let (mut result, mut into) = match checksums.filter(|checksums| !checksums.is_prepared(at, bytes)) {
            None => self.read_bare(at, into, why).await,
            // Boxed, so that the futures of other reads stay small.
            Some(checksums) => Box::pin(self.read_beside_pages(checksums, at, into, why)).await,
        };
        if let Some(checksums) = Checksums::against(checksums, at, &result, into.parts()) {
            (result, into) = Box::pin(self.verify_again(checksums, at, into, rewrites, why)).await;
        }
        if failed == FailedThen::Queue {
            self.note_unread(at, bytes, &result);
        }
        (result, into)
    }
}
