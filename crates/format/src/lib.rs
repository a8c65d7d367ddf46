//! Linux md's on-disk format: geometry, superblocks, write-intent bitmap, bad-block log, partial parity log
//! and write journal.
//!
//! Pure functions over byte slices. Nothing here reads a device, allocates in proportion to an unchecked field, or
//! panics on a disk's contents. Wrong bytes yield a [`Defect`] with the field's name.
//!
//! Sources: the kernel's `include/uapi/linux/raid/md_p.h` and `drivers/md`, mdadm's man pages, and the real driver,
//! which decides in every disagreement (`tests/kernel`). `docs/format.md` describes every byte.
#![forbid(unsafe_code)]

pub mod backup;
pub mod bad_blocks;
pub mod bitmap;
pub mod geometry;
pub mod integrity;
pub mod journal;
pub mod lockless;
pub mod overlay;
pub mod partial_parity;
pub mod placement;
pub mod signature;
pub mod stamp;
pub mod stripe_log;
pub mod superblock;
pub mod text;
pub mod units;
pub mod write_buffer;

mod defect;
pub use defect::Defect;
