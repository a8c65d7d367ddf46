//! ext4 and its elders, with blocks of 4 KiB: where they say that which block is.
//!
//! Their blocks do not say where they are. But each says what others at a known place have to be: by a checksum, or by
//! what belongs together. So the file system is walked with a function that finds the block at a place among the
//! members. Nothing here reads a member or knows of shapes. Facts: the kernel's `fs/ext4/ext4.h` and
//! `Documentation/filesystems/ext4`.

mod groups;
mod inode;
mod recognition;
mod structure;
mod superblock;
mod table;
#[cfg(test)]
mod testing;
mod trees;
mod walk;

pub(crate) use superblock::{Super, may_be};
