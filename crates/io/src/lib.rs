//! Members that exist (regular files, block devices, memory), and the
//! io_uring executor, clock and sockets that serve them; and, as it takes
//! long commands and mapped memory, what the kernel's ublk driver understands.
//!
//! A thread has one [`Executor`] with one ring, and everything
//! made on that thread belongs to it and never leaves it. Other threads reach
//! it through a [`Remote`].
//!
//! Cancellation is safe everywhere: a dropped future asks the kernel to stop,
//! and its memory and descriptor stay with the operation until the kernel says
//! that it is done with them.
//!
//! What it never does: it knows nothing of RAID or of md's format, never
//! retries a failed transfer, and never opens anything that it was not told to.
//!
//! Linux only, 5.11 or later; 6.1 or later is better served. Another system
//! would bring its own executor under the same engine.

mod any;
mod descriptor;
mod event;
mod executor;
mod file;
mod memory;
pub mod net;
mod operation;
mod remote;
mod ring;
pub mod signal;
mod stamp;
mod time;
mod transfer;
pub mod ublk;
mod wake;

pub use any::AnyMember;
pub use event::{Event, Inlet};
pub use executor::{Executor, JoinHandle, Options, spawn, yield_now};
pub use file::{
    Direct, FileMember, Lock, OpenError, OpenFile, OpenOptions, create_preallocated, create_sparse, has_data, holes,
};
pub use memory::MemoryMember;
pub use remote::{Remote, Stopped};
pub use stamp::Stamps;
pub use time::RealClock;
