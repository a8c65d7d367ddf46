//! What Linux md means by bytes: geometry, superblocks, write-intent bitmap,
//! bad-block log and partial parity log.
//!
//! Pure functions over byte slices. Nothing here reads a device, allocates in
//! proportion to an unchecked field, or panics on what a disk may contain:
//! bad bytes are a [`Defect`] that names the field.
//!
//! Sources: the kernel's `include/uapi/linux/raid/md_p.h` and `drivers/md`,
//! mdadm's man pages, and the real driver, which wins every disagreement
//! (`tests/kernel`). Every byte is described in `docs/format.md`.
#![forbid(unsafe_code)]

pub mod bad_blocks;
pub mod bitmap;
pub mod geometry;
pub mod integrity;
pub mod partial_parity;
pub mod placement;
pub mod signature;
pub mod superblock;
pub mod text;
pub mod units;

mod defect;
pub use defect::Defect;
