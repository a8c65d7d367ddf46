//! Linux software RAID, in user space: arrays in the on-disk format of Linux md, opened, read and written by any
//! program, without the kernel's driver and without root.
//!
//! Arrays created by mdadm work unchanged, and the kernel's md assembles arrays created here. The rules are those of
//! the command `mdspace`, which is the same code: which members belong to an array, what is refused (by member and
//! field, with no byte changed), and which processes may use a member at the same time. ARCHITECTURE.md describes the
//! engine.
//!
//! # Reading
//!
//! Members are files or block devices, in any order. As many may be missing as the level allows. A partition of a disk
//! or of its image is a member too: `disk.img:2`, or `disk.img@OFFSET+LENGTH`.
//!
//! ```
//! # let place = tempfile::tempdir()?;
//! # std::env::set_current_dir(place.path())?;
//! # mdspace::Create::new(mdspace::Level::Raid5).member_bytes(8 << 20).create(["a.img", "b.img", "c.img"])?;
//! let array = mdspace::Array::open(["c.img", "a.img"])?; // b.img is missing
//! let mut block = [0; 4096];
//! array.read_exact_at(&mut block, 1 << 20)?;
//! assert_eq!(array.status()?.missing, [1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Writing
//!
//! ```
//! # let place = tempfile::tempdir()?;
//! # std::env::set_current_dir(place.path())?;
//! # mdspace::Create::new(mdspace::Level::Raid5).member_bytes(8 << 20).create(["a.img", "b.img", "c.img"])?;
//! use std::io::{Read, Seek, SeekFrom, Write};
//!
//! let array = mdspace::Options::new().write(true).open(["a.img", "b.img", "c.img"])?;
//! array.write_all_at(b"hello, array", 12_345)?;
//! array.flush()?; // on stable storage from here on
//!
//! let mut cursor = array.cursor();
//! cursor.seek(SeekFrom::Start(12_345))?;
//! let mut text = String::new();
//! cursor.take(12).read_to_string(&mut text)?;
//! assert_eq!(text, "hello, array");
//! assert_eq!(array.close()?.state, "clean");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Inside of arrays
//!
//! A partition, a logical volume of LVM or an array inside is opened by its name, as by `mdspace read --inner`. The
//! members may be of several arrays then: only those that it lies on are opened.
//!
//! ```
//! # let place = tempfile::tempdir()?;
//! # std::env::set_current_dir(place.path())?;
//! # mdspace::Create::new(mdspace::Level::Raid1).member_bytes(8 << 20).create(["a.img", "b.img"])?;
//! # let array = mdspace::Options::new().write(true).open(["a.img", "b.img"])?;
//! # let mut table = [0; 512];
//! # table[446 + 4] = 0x83;
//! # table[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 8, 0, 0]);
//! # table[510..].copy_from_slice(&[0x55, 0xaa]);
//! # array.write_all_at(&table, 0)?;
//! # array.close()?;
//! let options = mdspace::Options::new().inner("1"); // the first partition
//! let partition = options.clone().write(true).open(["a.img", "b.img"])?;
//! assert_eq!(partition.bytes(), 1 << 20);
//! partition.write_all_at(b"hello, partition", 4096)?;
//! partition.close()?;
//! let mut text = [0; 16];
//! options.open(["b.img"])?.read_exact_at(&mut text, 4096)?;
//! assert_eq!(&text, b"hello, partition");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors
//!
//! An [`Error`] has a kind, the member and the field of its metadata that it concerns, and advice.
//!
//! ```
//! # let place = tempfile::tempdir()?;
//! # std::env::set_current_dir(place.path())?;
//! std::fs::write("letter", "not a member")?;
//! let error = mdspace::Array::open(["letter"]).unwrap_err();
//! assert_eq!(error.kind(), mdspace::ErrorKind::Refused);
//! assert_eq!((error.member(), error.field()), (Some("letter"), Some("superblock.magic")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Costs
//!
//! An open array has a thread of its own, some 16 MiB of memory for transfers (pinned, if the limit on locked memory
//! allows it) and a cache of stripes. A request goes to that thread and back, and its bytes are copied on the way. So a
//! few large requests are faster than many small ones, and several threads faster than one. The library prints nothing
//! and handles no signals, and closing an array ends its thread. The engine's warnings are events of [`tracing`].
//!
//! # Features
//!
//! The default features are the command with all its exports; those that are Linux's own bring nothing elsewhere. For the library alone, use `default-features = false`.
//!
//! Linux. Where the system refuses io_uring (containers, kernels before 5.11), threads do the same work. It was compiled
//! for FreeBSD and macOS, too, and not run there (docs/systems.md).
#![forbid(unsafe_code)]

#[cfg(feature = "command")]
pub mod command;

mod array;
#[cfg(feature = "command")]
mod blocking;
mod create;
mod cursor;
pub mod detect;
mod drive;
mod error;
mod ewf;
mod images;
mod in_memory;
mod inside;
mod layers;
mod machine;
mod made_files;
mod maps;
mod medium;
mod names;
mod opened;
mod options;
mod overlay;
mod pieces;
mod place;
mod whole_disks;
mod write_buffer;

pub use array::Array;
pub use create::Create;
pub use cursor::Cursor;
pub use detect::detect;
pub use engine::assemble::LeftOut;
pub use engine::status::{BitmapStatus, CacheStatus, ChecksumStatus, MemberStatus, Status};
pub use engine::{Forced, SweepStatus};
pub use error::{Error, ErrorKind};
pub use format::geometry::Level;
pub use options::Options;
