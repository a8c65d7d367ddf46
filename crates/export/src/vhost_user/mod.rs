//! vhost-user-blk: a volume as the disk of a virtual machine, through memory that both share.
//!
//! It uses two threads. The protocol's thread (`frontend`) runs the dialogue over a unix socket, with the crate
//! `vhost`. Requests never pass there: each queue (`ring`) is a task on the volume's thread, woken by the client's
//! eventfd. It copies a request's payload once, between the client's memory and the volume's buffers. This copy is
//! necessary, because a guest may change its memory during the computation of parity.
//!
//! Invariants:
//! - A stopped queue never touches the client's memory. Its started requests are finished before the client gets the
//!   answer to the stop.
//! - Nothing in the client's memory is trusted. Every address, length and index is checked where it is used, and read
//!   once. (A client that truncates its shared memory can end this process, as with every vhost-user server. So only
//!   the owner can open the socket.)
//! - Requests in flight are recorded in memory that the client keeps (`inflight`). So no request is lost or reordered
//!   when another process takes over.
//!
//! One client is served at a time; the next waits. Sources: the Virtual I/O Device specification 1.2 (2.7 split queues,
//! 5.2 block device), and QEMU's `docs/interop/vhost-user.rst`.

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

/// The client's memory, as last described by the client.
type Memory = Arc<GuestMemoryMmap>;

/// Maximum number of queues: a client may use one per processor.
const QUEUES_MAX: usize = 64;

/// Maximum number of descriptors in a queue.
const QUEUE_SIZE_MAX: u16 = 1024;
