//! What the library has open: an array, or something inside of one or more arrays.
//!
//! It belongs to the thread of its arrays. Reads and writes of a whole array take the array's own way.

use crate::layers::Bytes;
use crate::machine::{Array, run_background};
use engine::status::Status;
use engine::{ArrayError, Block, Buffer, Durability, Pool};
use futures_util::future::join_all;
use std::rc::Rc;

/// An open array, or something inside. Clones share it.
#[derive(Clone)]
pub(crate) struct Opened {
    /// At least one; the first speaks for all where one is expected.
    arrays: Rc<[Array]>,
    inner: Option<Bytes>,
}

impl Opened {
    /// A whole array.
    pub(crate) fn whole(array: Array) -> Self {
        Self { arrays: Rc::new([array]), inner: None }
    }

    /// `volume` inside of `arrays`.
    pub(crate) fn inside(arrays: Vec<Array>, volume: Bytes) -> Self {
        Self { arrays: arrays.into(), inner: Some(volume) }
    }

    fn array(&self) -> &Array {
        &self.arrays[0]
    }

    /// Memory for transfers.
    pub(crate) fn pool(&self) -> &Pool {
        self.array().pool()
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.inner.as_ref().map_or_else(|| self.array().bytes(), Bytes::bytes)
    }

    /// The unit for fast large requests.
    pub(crate) fn preferred_bytes(&self) -> u64 {
        self.array().preferred_bytes()
    }

    /// Whether it takes no writes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.inner.as_ref().map_or_else(|| self.array().is_read_only(), Bytes::is_read_only)
    }

    /// The status of the first array.
    pub(crate) fn status(&self) -> Status {
        self.array().status()
    }

    /// Fills `into` from byte `at` on.
    pub(crate) async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, ArrayError> {
        match &self.inner {
            None => self.array().read(at, into).await,
            Some(inner) => inner.read(at, into).await,
        }
    }

    /// Writes `from` at byte `at`.
    pub(crate) async fn write(&self, at: u64, from: Block) -> Result<(), ArrayError> {
        match &self.inner {
            None => self.array().write(at, from, Durability::Ordinary).await,
            Some(inner) => inner.write(at, from, Durability::Ordinary).await,
        }
    }

    /// Discards the range.
    pub(crate) async fn discard(&self, at: u64, bytes: u64) -> Result<(), ArrayError> {
        match &self.inner {
            None => self.array().discard(at, bytes).await,
            Some(inner) => inner.discard(at, bytes).await,
        }
    }

    /// Brings completed writes to stable storage.
    pub(crate) async fn flush(&self) -> Result<(), ArrayError> {
        match &self.inner {
            None => self.array().flush().await,
            Some(inner) => inner.flush().await,
        }
    }

    /// Background work of all arrays, until they are stopped.
    pub(crate) async fn run_background(&self) {
        join_all(self.arrays.iter().map(run_background)).await;
    }

    /// Stops every array; returns the first error.
    pub(crate) async fn stop(&self) -> Result<(), ArrayError> {
        let mut stopped = Ok(());
        for array in self.arrays.iter() {
            stopped = stopped.and(array.stop().await);
        }
        stopped
    }
}
