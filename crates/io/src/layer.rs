//! A member inside of something else: in an array, or in a volume of such. So an array can be made of arrays.
//!
//! It is only read, at any position. What it reads from is behind [`Layer`], because arrays are made of members.

use crate::parts::read_each;
use engine::{Block, Buffer, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation, Pool};
use format::units::MemberByte;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

/// The result of a read, later.
pub type LayerRead<'a> = Pin<Box<dyn Future<Output = Result<Buffer, String>> + 'a>>;

/// What the bytes of a [`LayerMember`] come from.
pub trait Layer: fmt::Debug {
    /// Its length.
    fn bytes(&self) -> u64;

    /// Fills `into` from byte `at` on; the error is the reason.
    fn read(&self, at: u64, into: Buffer) -> LayerRead<'_>;
}

/// A member that reads from a [`Layer`].
#[derive(Debug)]
pub struct LayerMember {
    layer: Box<dyn Layer>,
    limits: Limits,
    pool: Pool,
}

impl LayerMember {
    /// A member of all bytes of `layer`. `pool` supplies the buffer that a failed read returns.
    pub fn new(layer: impl Layer + 'static, pool: &Pool) -> Self {
        let limits = Limits {
            bytes: layer.bytes(),
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            optimal_bytes: 0,
            longest_bytes: 0,
            synchronous: false,
            discards: false,
            discards_to_zeros: false,
            volatile_cache: false,
        };
        Self { layer: Box::new(layer), limits, pool: pool.clone() }
    }

    fn refused(operation: Operation, at: MemberByte, bytes: u64) -> MemberError {
        let source = Rc::new(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a member inside is only read"));
        MemberFault { kind: MemberErrorKind::Unsupported, operation, at, bytes, source }.into()
    }
}

impl Member for LayerMember {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let length = into.len();
        match self.layer.read(at.0, into).await {
            Ok(buffer) => (Ok(()), buffer),
            Err(reason) => {
                let (operation, bytes, source) = (Operation::Read, length as u64, Rc::new(io::Error::other(reason)));
                let fault = MemberFault { kind: MemberErrorKind::Io, operation, at, bytes, source };
                (Err(fault.into()), self.pool.take(length))
            }
        }
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        read_each(self, at, into).await
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        Err(Self::refused(Operation::Write, at, from.len() as u64))
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        Err(Self::refused(Operation::Write, at, from.iter().map(|part| part.len() as u64).sum()))
    }

    async fn flush(&self) -> Result<(), MemberError> {
        Ok(())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(Self::refused(Operation::Discard, at, bytes))
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(Self::refused(Operation::WriteZeroes, at, bytes))
    }
}
