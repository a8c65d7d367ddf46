//! What is inside of arrays: partitions, logical volumes, and arrays again, as bytes that are read like an array's.
//!
//! [`Bytes`] is the one mechanism: `read --inner`, `serve --inner`, `detect` and the library read through it. Its trees end in arrays,
//! or in partitions that are a physical volume without an array. Nothing here opens a file or decides what belongs to an
//! array; it only reads, except where [`Bytes::is_read_only`] says otherwise.

mod bytes;
mod find;
mod group;
#[cfg(feature = "command")]
mod leaves;
mod raid;

pub(crate) use bytes::{Bytes, Running};
pub(crate) use find::Layers;
pub(crate) use find::members_in;
pub(crate) use group::{FoundGroup, Physical, groups};
#[cfg(feature = "command")]
pub(crate) use leaves::{Leaf, Run};
