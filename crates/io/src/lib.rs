//! Members on real storage (regular files, block devices, memory), and the executor, clock and sockets that serve them.
//! Also the commands of Linux's ublk driver, which need 128-byte entries and mapped memory.
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
//! Linux, FreeBSD and macOS: `system` has what differs between them. io_uring needs Linux 5.11 or later, 6.1 or later
//! preferred. The other systems have threads alone, and were only compiled for (docs/systems.md).

mod any;
mod at_once;
mod backend;
mod descriptor;
mod driver;
mod event;
mod executor;
mod file;
mod foreign;
mod foundation;
mod layer;
mod memory;
pub mod net;
mod operation;
mod overlay;
mod parts;
mod plain;
mod remote;
mod rescued;
mod shared_memory;
pub mod signal;
mod stamp;
mod stored;
mod system;
mod threads;
mod time;
mod transfer;
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
pub use foundation::Foundation;
pub use layer::{Layer, LayerMember, LayerRead};
pub use memory::MemoryMember;
pub use overlay::Overlay;
pub use parts::range_within;
pub use plain::{device_numbers, is_disk, length, punch_hole, read_exact_at, reserve, sync_data, wait_for_end};
pub use remote::{Remote, Stopped};
pub use rescued::{NOT_IN_IMAGE, Rescued};
pub use shared_memory::{SharedMemory, is_mapped};
pub use stamp::Stamps;
pub use stored::{StoredFiles, StoredOverlay};
#[cfg(target_os = "linux")]
pub use system::ublk;
pub use time::RealClock;
