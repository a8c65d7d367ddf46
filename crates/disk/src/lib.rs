//! What is on a disk besides md: partition tables, volume groups of LVM, file systems. Also the maps of what a program
//! could read of a failing one.
//!
//! It finds where things are and what they are called, so that members of arrays are found on whole disks, and an
//! array's content can be named. It knows no file and no executor: bytes come through [`Source`]. It never writes. Of
//! a file system it knows which file has which bytes ([`owners`]), and never reads the content of files. Any bytes may be on a disk, so each decoder bounds what it reads,
//! follows no loop, and reports what is wrong as text instead of an error where the rest can still be used.
//!
//! Facts: the UEFI specification (GPT), the kernel's `block/partitions/` (which tables it takes, and in which order),
//! LVM2's `lib/format_text/layout.h`, and the public headers of the file systems.
#![forbid(unsafe_code)]

mod bytes;
pub mod container;
pub mod content;
pub mod ewf;
pub mod lvm;
pub mod map;
pub mod owners;
mod source;
pub mod table;
pub mod vhd;

pub use source::{Section, Source};
