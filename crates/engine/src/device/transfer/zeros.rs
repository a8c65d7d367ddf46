//! Discards and zeroing of a device: the layers of [`super::write`], except that they replace the lowest
//! ([`super::bare`]) by the timeout alone. So they are not counted as transfers, and their errors are returned without
//! being counted.

use crate::device::checksums::WrittenChecksums;
use crate::device::in_use::Device;
use crate::seam::bytes::zero_or_write;
use crate::seam::member::{Member, MemberError, Operation};
use crate::seam::observe::Why;
use format::units::ComponentByte;
use std::pin::pin;

/// Zeros written at a time to a successor without a better way to zero.
const ZEROS_BYTES: u64 = 1 << 20;

impl<M: Member> Device<M> {
    /// Discards the range, and zeroes it on a successor.
    pub(crate) async fn discard(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let other = async move |successor: &Device<M>| successor.zero_own(at, bytes).await;
        self.with_successor(self.discard_own(at, bytes), other).await
    }

    /// The caller ensures that a member with checksums discards to zeros.
    async fn discard_own(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let place = (self.absolute(at), bytes);
        let discard = async {
            self.with_timeout(Operation::Discard, place, pin!(self.member.discard(place.0, bytes, Why::Data)))
                .await
                .flatten()
        };
        let result = self.keeping_zeros(at, bytes, discard).await;
        if result.is_ok() {
            self.note_paid(&(at.0..at.0 + bytes));
        }
        self.note_zeros_owed(at, bytes, &result);
        result
    }

    /// Zeroes the range, also on a successor.
    pub(crate) async fn write_zeroes(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let other = async move |successor: &Device<M>| successor.zero_own(at, bytes).await;
        self.with_successor(self.write_zeroes_own(at, bytes), other).await
    }

    async fn write_zeroes_own(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let place = (self.absolute(at), bytes);
        let zero = async {
            self.with_timeout(Operation::WriteZeroes, place, pin!(self.member.write_zeroes(place.0, bytes, Why::Data)))
                .await
                .flatten()
        };
        let result = self.keeping_zeros(at, bytes, zero).await;
        self.note_written(at, bytes, &result);
        self.note_zeros_owed(at, bytes, &result);
        result
    }

    /// Carries out a change that leaves zeros, and updates the checksums, if any.
    async fn keeping_zeros(
        &self,
        at: ComponentByte,
        bytes: u64,
        change: impl Future<Output = Result<(), MemberError>>,
    ) -> Result<(), MemberError> {
        match self.checksums.get() {
            None => change.await,
            Some(checksums) => self.keeping(checksums, at, bytes, WrittenChecksums::Zeros, change).await,
        }
    }

    /// Zeroes a range without the successor: by the zeroing command, or else by writing zeros.
    pub(crate) async fn zero_own(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let zeros = || self.context.pool.zeroed(ZEROS_BYTES.min(bytes) as usize).freeze();
        let write = async |start, zeros| self.write_own(ComponentByte(at.0 + start), vec![zeros], Why::Data).await;
        zero_or_write(self.write_zeroes_own(at, bytes), bytes, zeros, write).await
    }
}
