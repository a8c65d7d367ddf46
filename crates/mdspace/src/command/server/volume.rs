//! An array, or something inside of one, as the exports see it: a [`Volume`].

use crate::command::opening::target::Target;
use crate::layers::Bytes;
use crate::machine::Array;
use engine::{ArrayError, ArrayErrorKind, Block, Buffer, Pool};
use export::measure::Measured;
use export::{Durability, Volume, VolumeError, VolumeErrorKind};

/// Upper limit of the preferred request size that clients see.
const PREFERRED_BYTES_MAX: u64 = 32 << 20;

/// The array for clients, with every request measured.
pub(crate) type Served = Measured<Exported>;

/// An array as a volume, or something inside of it.
#[derive(Clone)]
pub(crate) enum Exported {
    Array(Array),
    /// The array says which requests are fast.
    Inner(Array, Bytes),
}

impl Exported {
    /// What the exports of `target` serve.
    pub(crate) fn of(target: &Target) -> Self {
        match target.inner {
            None => Self::Array(target.array().clone()),
            Some(_) => Self::Inner(target.array().clone(), target.volume.clone()),
        }
    }

    fn array(&self) -> &Array {
        let (Self::Array(array) | Self::Inner(array, _)) = self;
        array
    }
}

impl Volume for Exported {
    fn bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.bytes(),
            Self::Inner(_, inner) => inner.bytes(),
        }
    }

    fn is_read_only(&self) -> bool {
        match self {
            Self::Array(array) => array.is_read_only(),
            Self::Inner(_, inner) => inner.is_read_only(),
        }
    }

    fn preferred_block_bytes(&self) -> u32 {
        // NBD wants a power of two, which a full stripe need not be.
        let best = self.array().preferred_bytes().clamp(4096, PREFERRED_BYTES_MAX);
        1 << best.ilog2()
    }

    fn logical_block_bytes(&self) -> Option<u32> {
        self.array().logical_block_bytes()
    }

    fn pool(&self) -> &Pool {
        self.array().pool()
    }

    async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, VolumeError> {
        match self {
            Self::Array(array) => array.read(at, into).await.map_err(failed),
            Self::Inner(_, inner) => inner.read(at, into).await.map_err(failed),
        }
    }

    // The future of a read is the smallest. The others are boxed: a session has one future for all kinds of request, so
    // otherwise each read would move and allocate as much as the largest.

    async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), VolumeError> {
        match self {
            Self::Array(array) => Box::pin(array.write(at, from, durability)).await.map_err(failed),
            Self::Inner(_, inner) => inner.write(at, from, durability).await.map_err(failed),
        }
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        match self {
            Self::Array(array) => Box::pin(array.flush()).await.map_err(failed),
            Self::Inner(_, inner) => inner.flush().await.map_err(failed),
        }
    }

    async fn discard(&self, at: u64, bytes: u64) -> Result<(), VolumeError> {
        match self {
            Self::Array(array) => Box::pin(array.discard(at, bytes)).await.map_err(failed),
            Self::Inner(_, inner) => inner.discard(at, bytes).await.map_err(failed),
        }
    }

    async fn write_zeroes(
        &self,
        at: u64,
        bytes: u64,
        may_discard: bool,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let zeroed = match (self, may_discard) {
            (Self::Array(array), true) => Box::pin(array.punch_hole(at, bytes, durability)).await,
            (Self::Array(array), false) => Box::pin(array.write_zeroes(at, bytes, durability)).await,
            (Self::Inner(_, inner), _) => inner.write_zeroes(at, bytes, may_discard, durability).await,
        };
        zeroed.map_err(failed)
    }
}

fn failed(error: ArrayError) -> VolumeError {
    let kind = match error.kind {
        ArrayErrorKind::OutOfRange => VolumeErrorKind::OutOfRange,
        ArrayErrorKind::ReadOnly => VolumeErrorKind::ReadOnly,
        ArrayErrorKind::Io => VolumeErrorKind::Io,
        ArrayErrorKind::NoSpace => VolumeErrorKind::NoSpace,
        ArrayErrorKind::Stopped => VolumeErrorKind::ShuttingDown,
    };
    VolumeError::new(kind, error.reason)
}
