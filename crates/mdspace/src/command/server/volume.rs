//! An array as the exports see it: a [`Volume`].

use crate::machine::Array;
use engine::{ArrayError, ArrayErrorKind, Block, Buffer, Pool};
use export::measure::Measured;
use export::{Durability, Volume, VolumeError, VolumeErrorKind};

/// Upper limit of the preferred request size that clients see.
const PREFERRED_BYTES_MAX: u64 = 32 << 20;

/// The array for clients, with every request measured.
pub(crate) type Served = Measured<Exported>;

/// An array as a volume.
#[derive(Clone)]
pub(crate) struct Exported(pub(crate) Array);

impl Volume for Exported {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn preferred_block_bytes(&self) -> u32 {
        // NBD wants a power of two, which a full stripe need not be.
        let best = self.0.preferred_bytes().clamp(4096, PREFERRED_BYTES_MAX);
        1 << best.ilog2()
    }

    fn logical_block_bytes(&self) -> Option<u32> {
        self.0.logical_block_bytes()
    }

    fn pool(&self) -> &Pool {
        self.0.pool()
    }

    async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, VolumeError> {
        self.0.read(at, into).await.map_err(failed)
    }

    // The future of a read is the smallest. The others are boxed: a session has one future for all kinds of request, so
    // otherwise each read would move and allocate as much as the largest.

    async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), VolumeError> {
        Box::pin(self.0.write(at, from, durability)).await.map_err(failed)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        Box::pin(self.0.flush()).await.map_err(failed)
    }

    async fn discard(&self, at: u64, bytes: u64) -> Result<(), VolumeError> {
        Box::pin(self.0.discard(at, bytes)).await.map_err(failed)
    }

    async fn write_zeroes(
        &self,
        at: u64,
        bytes: u64,
        may_discard: bool,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let zeroed = match may_discard {
            true => Box::pin(self.0.punch_hole(at, bytes, durability)).await,
            false => Box::pin(self.0.write_zeroes(at, bytes, durability)).await,
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
