//! The write-intent bitmap: a bit is on stable storage on every member before the first write to the chunk that it
//! covers.
//!
//! * [`bits`]: the bitmap in memory. [`sizing`]: how large its writes are.
//! * [`map`]: what a bitmap on disk says. [`load`]: reads the members' bitmaps at assembly; [`lockless`]: what those of
//!   version 6 say beyond bits. [`clearing`]: clears bits.
//! * [`change`]: adds and removes a bitmap while the array is in use. [`named`]: the chunks that a returning member's
//!   own bitmap names.
//! * [`intent`]: bits, home and marks as one object. [`policy`]: settings. [`rounds`]: the rounds in which bits are
//!   set.
//!
//! The bits are on every member, or in one file beside them, which is a [`crate::Member`] as well. If the file fails,
//! the array goes on without it. The superblocks' events move past the file's, so that the file is never trusted again.
//!
//! This module never writes data. Format: [`format::bitmap`].

mod bits;
pub(crate) mod change;
pub(crate) mod clearing;
pub(crate) mod intent;
pub(crate) mod load;
pub(crate) mod lockless;
pub(crate) mod map;
pub(crate) mod named;
mod policy;
mod rounds;
mod sizing;

pub use intent::BitmapStatus;
pub use policy::{BitmapClearing, BitmapPolicy};
pub use sizing::BitmapWrites;
