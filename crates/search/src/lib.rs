//! Finds the shape of an array whose superblocks are lost: level, layout, chunk, data offset, the order of its members,
//! and one that is missing or stale.
//!
//! It guesses nothing. File systems say of many blocks where they are and what they hold, with checksums: superblocks,
//! inodes, tree blocks, the ends of files. Each shape puts each of these blocks at one position of one member. A shape
//! counts if the members hold them there. If two shapes count and would read different bytes, both are reported.
//!
//! No I/O of its own: bytes come through [`disk::Source`]. Nothing is written. Memory is bounded by the bytes that are
//! read, at sixteen bytes for each 4 KiB.
#![forbid(unsafe_code)]

mod assign;
mod btrfs;
mod compare;
mod cost;
mod counting;
mod crc;
mod decide;
mod evidence;
mod ext4;
mod judge;
mod member;
#[cfg(test)]
mod memory;
mod order;
mod outer;
mod overwritten;
mod reading;
mod scan;
mod seen;
mod shape;
mod xfs;

pub use compare::{Difference, Recency};
pub use decide::{Answer, Found, Verdict, search};
