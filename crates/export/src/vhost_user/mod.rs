//! vhost-user-blk: a volume as the disk of a virtual machine, through memory
//! that both share.
//!
//! Two threads. The protocol (`frontend`) is a conversation over a unix
//! socket that sets things up, and has a thread of its own, where the crate
//! `vhost` reads and answers it. Requests never pass there: each queue
//! (`ring`) is a task on the volume's thread, woken by the client's eventfd,
//! and moves a request's payload once, between the client's memory and the
//! volume's buffers. A buffer of our own is needed anyway: a guest may change
//! its memory while we compute parity of it.
//!
//! Invariants:
//! - A queue that was stopped touches the client's memory no more: what it had
//!   begun is finished before the client learns that it has stopped.
//! - Nothing in the client's memory is believed: every address, length and
//!   index is checked where it is used, and read once. (A client that shrinks
//!   memory that it has shared can end this process, as with every server of
//!   this protocol: the socket is its owner's alone.)
//! - What is under way is noted in memory that the client keeps
//!   (`inflight`), so that nothing is lost or done out of order when this
//!   process ends and another goes on.
//!
//! One client at a time; the next waits. Sources: the Virtual I/O Device
//! specification 1.2 (2.7 split queues, 5.2 block device), and QEMU's
//! `docs/interop/vhost-user.rst`.

mod chain;
mod config;
mod frontend;
mod inflight;
mod request;
mod ring;
mod server;

pub use server::Server;

use std::sync::Arc;
use vm_memory::GuestMemoryMmap;

/// The client's memory, as it was last described.
type Memory = Arc<GuestMemoryMmap>;

/// Queues that a client may use, one for each of its processors at best.
const QUEUES_MAX: usize = 64;

/// Places in a queue, at the most.
const QUEUE_SIZE_MAX: u16 = 1024;
