//! Linux software RAID, in user space: arrays in the on-disk format of Linux md, opened, read and written by any program,
//! without the kernel's driver and without root.
//!
//! What mdadm made is used here, and what is made here the kernel's md takes. The rules are those of the command
//! `mdspace`, as it is the same code: who counts as a member, what is refused (by member and field, with no byte changed), who may hold
//! a member at the same time. How the engine is built is in ARCHITECTURE.md.
//!
//! # Reading
//!
//! Members are files or block devices, in any order. As many as the level bears may be missing.
//!
//! ```
//! # let place = tempfile::tempdir()?;
//! # std::env::set_current_dir(place.path())?;
//! # mdspace::Create::new(mdspace::Level::Raid5).member_bytes(8 << 20).create(["a.img", "b.img", "c.img"])?;
//! let array = mdspace::Array::open(["c.img", "a.img"])?; // b.img is lost
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
//! # What goes wrong
//!
//! An [`Error`] says of what kind it is, which member and which field of its metadata it is about, and what to do next.
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
//! # What it costs
//!
//! An open array has a thread of its own, some 16 MiB of memory that transfers go through (pinned, as far as the limit on
//! locked memory allows) and what the engine keeps of stripes. A request goes to that thread and back, and its bytes are
//! copied on the way; so few large requests are better than many small ones, and several threads at a time better than one.
//! Nothing is printed, no signal is handled, and no thread is left when an array is closed. What the engine warns of goes to
//! whoever listens to [`tracing`].
//!
//! # Features
//!
//! The default features are the command with all its ways in. A program that wants the library alone says
//! `default-features = false`.
//!
//! Linux 5.11 or later, with io_uring.
#![forbid(unsafe_code)]

#[cfg(feature = "command")]
pub mod command;

mod array;
mod create;
mod cursor;
#[cfg(feature = "command")]
mod elsewhere;
mod error;
mod machine;
mod made_files;
mod names;
mod options;
mod pieces;

pub use array::Array;
pub use create::Create;
pub use cursor::Cursor;
pub use engine::assemble::LeftOut;
pub use engine::status::{BitmapStatus, CacheStatus, ChecksumStatus, MemberStatus, Status};
pub use engine::{Forced, SweepStatus};
pub use error::{Error, ErrorKind};
pub use format::geometry::Level;
pub use options::Options;
