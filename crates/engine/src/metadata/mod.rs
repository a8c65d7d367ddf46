//! What members say of the array: superblocks and the write-intent bitmap, and the order in which they change.

pub(crate) mod bitmap;
pub(crate) mod superblocks;
