//! Members that other crates define, behind [`crate::AnyMember`]. Their transfers are boxed futures, which cost little
//! beside a network. It adds no behaviour.

use engine::{Block, Buffer, Limits, Member, MemberError};
use format::units::MemberByte;
use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// A member of another crate. Clones share it.
#[derive(Clone)]
pub struct ForeignMember(Rc<dyn Object>);

impl ForeignMember {
    /// Stands for `member`.
    pub fn new(member: impl Member + Debug) -> Self {
        Self(Rc::new(member))
    }
}

/// A future that belongs to one thread.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A [`Member`] as a trait object. Every member is one.
trait Object: Debug {
    fn limits(&self) -> &Limits;
    fn measure(&self);
    fn read(&self, at: MemberByte, into: Buffer) -> Boxed<'_, (Result<(), MemberError>, Buffer)>;
    fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> Boxed<'_, (Result<(), MemberError>, Vec<Buffer>)>;
    fn write(&self, at: MemberByte, from: Block) -> Boxed<'_, Result<(), MemberError>>;
    fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Boxed<'_, Result<(), MemberError>>;
    fn flush(&self) -> Boxed<'_, Result<(), MemberError>>;
    fn discard(&self, at: MemberByte, bytes: u64) -> Boxed<'_, Result<(), MemberError>>;
    fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Boxed<'_, Result<(), MemberError>>;
}

impl<M: Member + Debug> Object for M {
    fn limits(&self) -> &Limits {
        Member::limits(self)
    }

    fn measure(&self) {
        Member::measure(self);
    }

    fn read(&self, at: MemberByte, into: Buffer) -> Boxed<'_, (Result<(), MemberError>, Buffer)> {
        Box::pin(Member::read(self, at, into))
    }

    fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> Boxed<'_, (Result<(), MemberError>, Vec<Buffer>)> {
        Box::pin(Member::read_vectored(self, at, into))
    }

    fn write(&self, at: MemberByte, from: Block) -> Boxed<'_, Result<(), MemberError>> {
        Box::pin(Member::write(self, at, from))
    }

    fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Boxed<'_, Result<(), MemberError>> {
        Box::pin(Member::write_vectored(self, at, from))
    }

    fn flush(&self) -> Boxed<'_, Result<(), MemberError>> {
        Box::pin(Member::flush(self))
    }

    fn discard(&self, at: MemberByte, bytes: u64) -> Boxed<'_, Result<(), MemberError>> {
        Box::pin(Member::discard(self, at, bytes))
    }

    fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Boxed<'_, Result<(), MemberError>> {
        Box::pin(Member::write_zeroes(self, at, bytes))
    }
}

impl Member for ForeignMember {
    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn measure(&self) {
        self.0.measure();
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        self.0.read(at, into).await
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        self.0.read_vectored(at, into).await
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        self.0.write(at, from).await
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        self.0.write_vectored(at, from).await
    }

    async fn flush(&self) -> Result<(), MemberError> {
        self.0.flush().await
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        self.0.discard(at, bytes).await
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        self.0.write_zeroes(at, bytes).await
    }
}

impl Debug for ForeignMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
