//! Members on real storage (regular files, block devices, memory), and the executor, clock and sockets that serve them.
//! Also the commands of the kernel's ublk driver, which need 128-byte entries and mapped memory.
//!
//! Each thread has its own [`Executor`] with one [`Backend`]: an io_uring, or threads where the system refuses that.
//! Everything created on a thread belongs to it and never leaves it. Other threads reach it through a [`Remote`].
//!
//! Cancellation is safe everywhere. Dropping a future asks the backend to cancel the operation. Its memory and
//! descriptor stay with the operation until the kernel or the thread has completed it.
//!
//! The crate knows neither RAID nor md's format, never retries a failed transfer, and never opens anything unasked.
//! Facts come from io_uring(7), the man pages that the modules name, and the kernel's headers.
//!
//! Linux only. io_uring needs 5.11 or later, 6.1 or later preferred. Another system would bring its own executor under
//! the same engine.

mod any;
mod backend;
mod descriptor;
mod driver;
mod event;
mod executor;
mod file;
mod foreign;
mod layer;
mod memory;
pub mod net;
mod operation;
mod overlay;
mod parts;
mod remote;
mod rescued;
mod ring;
mod shared_memory;
pub mod signal;
mod stamp;
mod stored;
mod threads;
mod time;
mod transfer;
pub mod ublk;
mod wake;

pub use any::AnyMember;
pub use backend::{Backend, Choice};
pub use event::{Event, Inlet};
pub use executor::{Executor, JoinHandle, Options, current_backend, current_pool, spawn, yield_now};
pub use file::{
    Direct, FileMember, Lock, OpenError, OpenFile, OpenOptions, Part, create_preallocated, create_sparse, has_data,
    holes,
};
pub use foreign::ForeignMember;
pub use layer::{Layer, LayerMember, LayerRead};
pub use memory::MemoryMember;
pub use overlay::Overlay;
pub use parts::range_within;
pub use remote::{Remote, Stopped};
pub use rescued::{NOT_IN_IMAGE, Rescued};
pub use shared_memory::SharedMemory;
pub use stamp::Stamps;
pub use stored::{StoredFiles, StoredOverlay};
pub use time::RealClock;
