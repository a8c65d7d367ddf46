//! Writes of a device. [`Device::write_layers`] is the way through the layers below the successor; the others say
//! whether the successor gets the write too, and whether bad blocks become good.

use crate::base::buffer::Block;
use crate::device::in_use::Device;
use crate::device::transfer::memory::WriteMemory;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::units::ComponentByte;
use smallvec::{SmallVec, smallvec};

/// What a successful write does to the range's bad blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BadBlocksThen {
    Good,
    /// They stay bad until the caller has read the data back.
    OnTrial,
}

impl<M: Member> Device<M> {
    /// Writes the blocks in order, as one transfer, to this member and its successor.
    pub(crate) async fn write(
        &self,
        at: ComponentByte,
        mut from: SmallVec<[Block; 1]>,
        why: Why,
    ) -> Result<(), MemberError> {
        if self.replacement.has_successor() {
            let (from, copy) = (from.to_vec(), from.into_vec());
            let other = async move |successor: &Device<M>| successor.write_own(at, copy, why).await;
            return Box::pin(self.with_successor(self.write_own(at, from, why), other)).await;
        }
        match from.len() {
            1 => self.write_layers(at, from.remove(0), why, BadBlocksThen::Good).await,
            _ => self.write_layers(at, from.into_vec(), why, BadBlocksThen::Good).await,
        }
    }

    /// As [`Device::write`], of one block.
    pub(crate) async fn write_one(&self, at: ComponentByte, from: Block, why: Why) -> Result<(), MemberError> {
        match self.write_now(at, &from) {
            Some(result) => result,
            None if self.replacement.has_successor() => Box::pin(self.write(at, smallvec![from], why)).await,
            None => self.write_layers(at, from, why, BadBlocksThen::Good).await,
        }
    }

    /// As [`Device::write_one`], but bad blocks stay bad until the caller has read the data back and calls
    /// [`Device::note_written`].
    pub(crate) async fn write_on_trial(&self, at: ComponentByte, from: Block, why: Why) -> Result<(), MemberError> {
        let copy = from.clone();
        let other = async move |successor: &Device<M>| successor.write_layers(at, copy, why, BadBlocksThen::Good).await;
        self.with_successor(self.write_layers(at, from, why, BadBlocksThen::OnTrial), other).await
    }

    /// As [`Device::write`], without the successor. It repeats the end of `write`, as a function for both would be one
    /// more future around each write of a request.
    pub(crate) async fn write_own(&self, at: ComponentByte, mut from: Vec<Block>, why: Why) -> Result<(), MemberError> {
        match from.len() {
            1 => self.write_layers(at, from.remove(0), why, BadBlocksThen::Good).await,
            _ => self.write_layers(at, from, why, BadBlocksThen::Good).await,
        }
    }

    /// Writes, updates the checksums, if any, and notes the result.
    async fn write_layers<P: WriteMemory>(
        &self,
        at: ComponentByte,
        from: P,
        why: Why,
        then: BadBlocksThen,
    ) -> Result<(), MemberError> {
        let bytes = from.bytes();
        let owed = self.may_owe().then(|| from.clone());
        let result = match self.sums_of(from.parts()) {
            None => self.write_bare(at, from, why).await,
            // Boxed, so that the futures of transfers without checksums stay small.
            Some((checksums, sums)) => {
                Box::pin(self.keeping(checksums, at, bytes, sums, self.write_bare(at, from, why))).await
            }
        };
        if then == BadBlocksThen::Good || mutant!("bad-block-good-on-trial") {
            self.note_written(at, bytes, &result);
        }
        self.note_owed(at, owed.as_ref().map_or(&[], P::parts), &result);
        result
    }
}
