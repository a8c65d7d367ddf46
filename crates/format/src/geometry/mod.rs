//! Where the array's bytes are: levels, layouts, chunks.
//!
//! A [`Geometry`] is checked once, when it is made from a [`Shape`]; after
//! that every function of it is total over `0..array_bytes()`.
//!
//! Two families, because parity is not a copy:
//! * [`Mapping`] (linear, 0, 1, 10): an array range is a list of [`Piece`]s,
//!   each held whole by one or more members;
//! * [`Parity`] (4, 5, 6): the array is a list of stripes; a stripe has one
//!   chunk on each member, at the same component position.

use crate::units::{ArrayByte, ComponentByte, Slot};

/// RAID level, as md numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// -1
    Linear,
    /// 0
    Raid0,
    /// 1
    Raid1,
    /// 4
    Raid4,
    /// 5
    Raid5,
    /// 6
    Raid6,
    /// 10
    Raid10,
}

/// What a superblock (or a user who creates) says of an array's shape.
/// Unchecked: hostile values are allowed here, and refused by [`Geometry::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// The layout field, in the level's own coding.
    pub layout: u32,
    /// Bytes in a chunk; 0 where the level has none (linear, 1).
    pub chunk_bytes: u64,
    /// Number of slots.
    pub slots: u16,
    /// Bytes of the data area used on each member (the superblock's `size`); for linear
    /// and RAID-0 it is not used.
    pub component_bytes: u64,
    /// Linear and RAID-0: bytes of each slot's own data area, in slot order
    /// (their zones follow from it). Elsewhere empty.
    pub member_bytes: Vec<u64>,
}

/// A part of an array range that lies whole, contiguous, on each of its copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins in the array.
    pub at: ArrayByte,
    /// How long it is.
    pub bytes: u64,
    /// Where each copy is. Never empty. First = md's first copy.
    pub copies: Vec<(Slot, ComponentByte)>,
}

/// What a slot holds in one stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The stripe's data chunk of this index, in array order.
    Data(u16),
    /// XOR of the data.
    P,
    /// Reed-Solomon syndrome of the data.
    Q,
}
