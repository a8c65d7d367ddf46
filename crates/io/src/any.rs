//! One type for every kind of member, so that an array can mix them without boxing each transfer's future. It adds no
//! behaviour.

use crate::file::FileMember;
use crate::foreign::ForeignMember;
use crate::layer::LayerMember;
use crate::memory::MemoryMember;
use crate::overlay::Overlay;
use crate::rescued::Rescued;
use crate::stored::StoredOverlay;
use engine::{Block, Buffer, Limits, Member, MemberError};
use format::units::MemberByte;
use std::cell::Ref;
use std::rc::Rc;

/// A member of any kind. Clones share it.
#[derive(Debug, Clone)]
pub enum AnyMember {
    /// A regular file or block device.
    File(Rc<FileMember>),
    /// Memory.
    Memory(Rc<MemoryMember>),
    /// Writes in memory over another member.
    Overlay(Rc<Overlay>),
    /// An image that lacks what its disk could not give.
    Rescued(Rc<Rescued>),
    /// Writes in files over another member.
    Stored(Rc<StoredOverlay>),
    /// A member of another crate.
    Foreign(ForeignMember),
    /// Something inside of another array.
    Layer(Rc<LayerMember>),
}

impl From<FileMember> for AnyMember {
    fn from(member: FileMember) -> Self {
        Self::File(Rc::new(member))
    }
}

impl From<MemoryMember> for AnyMember {
    fn from(member: MemoryMember) -> Self {
        Self::Memory(Rc::new(member))
    }
}

impl From<Overlay> for AnyMember {
    fn from(member: Overlay) -> Self {
        Self::Overlay(Rc::new(member))
    }
}

impl From<Rescued> for AnyMember {
    fn from(member: Rescued) -> Self {
        Self::Rescued(Rc::new(member))
    }
}

impl From<StoredOverlay> for AnyMember {
    fn from(member: StoredOverlay) -> Self {
        Self::Stored(Rc::new(member))
    }
}

impl From<LayerMember> for AnyMember {
    fn from(member: LayerMember) -> Self {
        Self::Layer(Rc::new(member))
    }
}

/// Calls the same method of any kind.
macro_rules! delegate {
    ($self:ident, $member:ident => $call:expr) => {
        match $self {
            AnyMember::File($member) => $call,
            AnyMember::Memory($member) => $call,
            AnyMember::Overlay($member) => $call,
            AnyMember::Rescued($member) => $call,
            AnyMember::Stored($member) => $call,
            AnyMember::Foreign($member) => $call,
            AnyMember::Layer($member) => $call,
        }
    };
}

/// As `delegate`, for a method that returns a future. An overlay and an image hold a member of this type, so their
/// futures are boxed; those of the other kinds stay as small and quick as they are.
macro_rules! delegate_future {
    ($self:ident, $member:ident => $call:expr) => {
        match $self {
            AnyMember::File($member) => $call.await,
            AnyMember::Memory($member) => $call.await,
            AnyMember::Overlay($member) => Box::pin($call).await,
            AnyMember::Rescued($member) => Box::pin($call).await,
            AnyMember::Stored($member) => Box::pin($call).await,
            AnyMember::Foreign($member) => $call.await,
            AnyMember::Layer($member) => $call.await,
        }
    };
}

impl Member for AnyMember {
    fn limits(&self) -> &Limits {
        delegate!(self, member => member.limits())
    }

    fn measure(&self) {
        delegate!(self, member => member.measure());
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        delegate_future!(self, member => member.read(at, into))
    }

    fn read_now(&self, at: MemberByte, into: &mut Buffer) -> Option<Result<(), MemberError>> {
        delegate!(self, member => member.read_now(at, into))
    }

    fn lend(&self, at: MemberByte, bytes: u64) -> Option<Result<Ref<'_, [u8]>, MemberError>> {
        delegate!(self, member => member.lend(at, bytes))
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        delegate_future!(self, member => member.read_vectored(at, into))
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        delegate_future!(self, member => member.write(at, from))
    }

    fn write_now(&self, at: MemberByte, from: &Block) -> Option<Result<(), MemberError>> {
        delegate!(self, member => member.write_now(at, from))
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        delegate_future!(self, member => member.write_vectored(at, from))
    }

    async fn flush(&self) -> Result<(), MemberError> {
        delegate_future!(self, member => member.flush())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        delegate_future!(self, member => member.discard(at, bytes))
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        delegate_future!(self, member => member.write_zeroes(at, bytes))
    }
}
