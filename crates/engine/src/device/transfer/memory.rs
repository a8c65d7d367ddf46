//! The memory of a transfer: one buffer, or several in order. The layers are written once for both.
//!
//! One buffer goes to the member as one, not as a list of one: that is a member's cheaper call.

use crate::base::buffer::{Block, Buffer, Pool};
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::{Watched, Why};
use format::units::MemberByte;
use smallvec::SmallVec;
use std::slice;

/// The memory that a read fills.
pub(crate) trait ReadMemory: Sized {
    /// The lengths of the buffers.
    type Lengths;

    fn parts(&self) -> &[Buffer];

    fn parts_mut(&mut self) -> &mut [Buffer];

    fn lengths(&self) -> Self::Lengths;

    /// New memory in place of what an abandoned read keeps.
    fn replace(lengths: Self::Lengths, pool: &Pool) -> Self;

    fn read_from<M: Member>(
        self,
        member: &Watched<M>,
        at: MemberByte,
        why: Why,
    ) -> impl Future<Output = (Result<(), MemberError>, Self)>;

    fn bytes(&self) -> u64 {
        self.parts().iter().map(|part| part.len() as u64).sum()
    }
}

impl ReadMemory for Buffer {
    type Lengths = usize;

    fn parts(&self) -> &[Buffer] {
        slice::from_ref(self)
    }

    fn parts_mut(&mut self) -> &mut [Buffer] {
        slice::from_mut(self)
    }

    fn lengths(&self) -> usize {
        self.len()
    }

    fn replace(length: usize, pool: &Pool) -> Self {
        pool.take(length)
    }

    fn read_from<M: Member>(
        self,
        member: &Watched<M>,
        at: MemberByte,
        why: Why,
    ) -> impl Future<Output = (Result<(), MemberError>, Self)> {
        member.read(at, self, why)
    }
}

impl ReadMemory for Vec<Buffer> {
    type Lengths = SmallVec<[usize; 16]>;

    fn parts(&self) -> &[Buffer] {
        self
    }

    fn parts_mut(&mut self) -> &mut [Buffer] {
        self
    }

    fn lengths(&self) -> Self::Lengths {
        self.iter().map(|buffer| buffer.len()).collect()
    }

    fn replace(lengths: Self::Lengths, pool: &Pool) -> Self {
        lengths.iter().map(|&length| pool.take(length)).collect()
    }

    fn read_from<M: Member>(
        self,
        member: &Watched<M>,
        at: MemberByte,
        why: Why,
    ) -> impl Future<Output = (Result<(), MemberError>, Self)> {
        member.read_vectored(at, self, why)
    }
}

/// The memory that is written.
pub(crate) trait WriteMemory: Clone {
    fn parts(&self) -> &[Block];

    fn write_to<M: Member>(
        self,
        member: &Watched<M>,
        at: MemberByte,
        why: Why,
    ) -> impl Future<Output = Result<(), MemberError>>;

    fn bytes(&self) -> u64 {
        self.parts().iter().map(|part| part.len() as u64).sum()
    }
}

impl WriteMemory for Block {
    fn parts(&self) -> &[Block] {
        slice::from_ref(self)
    }

    fn write_to<M: Member>(
        self,
        member: &Watched<M>,
        at: MemberByte,
        why: Why,
    ) -> impl Future<Output = Result<(), MemberError>> {
        member.write(at, self, why)
    }
}

impl WriteMemory for Vec<Block> {
    fn parts(&self) -> &[Block] {
        self
    }

    fn write_to<M: Member>(
        self,
        member: &Watched<M>,
        at: MemberByte,
        why: Why,
    ) -> impl Future<Output = Result<(), MemberError>> {
        member.write_vectored(at, self, why)
    }
}
