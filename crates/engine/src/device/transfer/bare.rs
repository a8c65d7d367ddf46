//! The lowest layer of a device's own: one transfer of the member, counted, with the member timeout and the member's
//! errors. Data that the member owes is overlaid on what was read.
//!
//! It verifies nothing and queues nothing for repair.

use crate::device::in_use::Device;
use crate::device::state::DeviceState;
use crate::device::transfer::memory::{ReadMemory, WriteMemory};
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault, Operation};
use crate::seam::observe::Why;
use format::units::{ComponentByte, MemberByte};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

impl<M: Member> Device<M> {
    pub(super) async fn read_bare<P: ReadMemory>(
        &self,
        at: ComponentByte,
        into: P,
        why: Why,
    ) -> (Result<(), MemberError>, P) {
        let (place, bytes, lengths) = (self.absolute(at), into.bytes(), into.lengths());
        let _in_flight = self.activity.begin(at, bytes);
        self.activity.count_read(bytes);
        let read = pin!(into.read_from(&self.member, place, why));
        match self.with_timeout(Operation::Read, (place, bytes), read).await {
            Ok((mut result, mut into)) => {
                if !self.owed.is_empty() {
                    result = self.with_owed(at, result, into.parts_mut());
                }
                self.note_read(at, bytes, &result, why);
                (result, into)
            }
            Err(error) => {
                let result = Err(error);
                self.note_read(at, bytes, &result, why);
                (result, P::replace(lengths, &self.context.pool))
            }
        }
    }

    pub(super) async fn write_bare<P: WriteMemory>(
        &self,
        at: ComponentByte,
        from: P,
        why: Why,
    ) -> Result<(), MemberError> {
        let (place, bytes) = (self.absolute(at), from.bytes());
        let _in_flight = self.activity.begin(at, bytes);
        self.activity.count_write(bytes);
        let write = pin!(from.write_to(&self.member, place, why));
        let result = self.with_timeout(Operation::Write, (place, bytes), write).await.flatten();
        self.note(&result);
        result
    }

    /// Puts every write that completed before this call on stable storage.
    pub(crate) async fn flush(&self, why: Why) -> Result<(), MemberError> {
        self.with_timeout(Operation::Flush, (MemberByte(0), 0), pin!(self.member.flush(why))).await.flatten()
    }

    /// Waits for `work` on this member until the timeout. The caller pins the work, because the future of a
    /// transfer would hold an argument by value twice.
    pub(crate) async fn with_timeout<T>(
        &self,
        operation: Operation,
        (at, bytes): (MemberByte, u64),
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, MemberError> {
        let mut slot = self.pending.slot();
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => slot.poll(self.context.tick.get(), context).map(|()| Err(())),
        })
        .await
        .map_err(|()| {
            let reason = match self.state.get() {
                DeviceState::Faulty => "abandoned: the member was ejected from the array",
                _ => "no answer in time",
            };
            let source = Rc::new(std::io::Error::new(std::io::ErrorKind::TimedOut, reason));
            MemberFault { kind: MemberErrorKind::TimedOut, operation, at, bytes, source }.into()
        })
    }
}
