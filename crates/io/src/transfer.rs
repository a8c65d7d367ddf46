//! Operations as safe functions. Each moves its resources into the operation and builds the call that points to them.
//! None of them waits. Source: the man pages of the system calls.

use crate::descriptor::Descriptor;
use crate::operation::{Accepted, Call, Clear, Message, Submitted, Vectored};
use crate::system::calls::SEND_FLAGS;
use engine::{Block, Buffer};
use std::mem;
use std::ops::Deref;
use std::rc::Rc;

/// Maximum number of buffers in one vectored operation (`UIO_MAXIOV`).
pub(crate) const PIECES_MAX: usize = 1024;

/// Maximum bytes of one transfer: lengths are 32 bits wide, and the kernel itself stops a page before 2 GiB.
pub(crate) const TRANSFER_BYTES_MAX: usize = 1 << 30;

fn length(bytes: usize) -> u32 {
    bytes.min(TRANSFER_BYTES_MAX) as u32
}

/// Reads into the buffer from byte `skip` on.
pub(crate) fn read(file: &Rc<Descriptor>, at: u64, mut into: Buffer, skip: usize) -> Submitted<Buffer> {
    let rest = &mut into[skip..];
    let call = Call::Read { address: rest.as_mut_ptr(), bytes: length(rest.len()), at };
    // SAFETY: the address is that of the buffer's own memory, which does not move and is exclusive to it.
    unsafe { Submitted::new(file, call, into) }
}

/// Writes the block from byte `skip` on.
pub(crate) fn write(file: &Rc<Descriptor>, at: u64, from: Block, skip: usize) -> Submitted<Block> {
    let rest = &from[skip..];
    let call = Call::Write { address: rest.as_ptr(), bytes: length(rest.len()), at };
    // SAFETY: the address is that of the block's own memory, which does not move and is never written while the block
    // lives.
    unsafe { Submitted::new(file, call, from) }
}

/// Vectors for the bytes of `parts` from `skip` on, as many as one operation takes.
fn vectors<T: Deref<Target = [u8]>>(parts: &[T], mut skip: usize) -> Vec<libc::iovec> {
    let mut vectors = Vec::with_capacity(parts.len().min(PIECES_MAX));
    for part in parts {
        let skipped = skip.min(part.len());
        skip -= skipped;
        let rest = &part[skipped..];
        if !rest.is_empty() && vectors.len() < PIECES_MAX {
            vectors.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
        }
    }
    vectors
}

/// Reads one contiguous range into the buffers, from byte `skip` of them on.
pub(crate) fn read_vectored(
    file: &Rc<Descriptor>,
    at: u64,
    parts: Vec<Buffer>,
    skip: usize,
) -> Submitted<Vectored<Buffer>> {
    let vectors = vectors(&parts, skip);
    let call = Call::ReadVectored { vectors: vectors.as_ptr(), count: vectors.len() as u32, at };
    // SAFETY: the vectors lie in a heap allocation that does not move with `Vectored`, and point into the buffers' own
    // memory, exclusive to them.
    unsafe { Submitted::new(file, call, Vectored { parts, _vectors: vectors }) }
}

/// Writes the blocks as one contiguous range, from byte `skip` of them on.
pub(crate) fn write_vectored(
    file: &Rc<Descriptor>,
    at: u64,
    parts: Vec<Block>,
    skip: usize,
) -> Submitted<Vectored<Block>> {
    let vectors = vectors(&parts, skip);
    let call = Call::WriteVectored { vectors: vectors.as_ptr(), count: vectors.len() as u32, at };
    // SAFETY: as in `read_vectored`; blocks are only read from.
    unsafe { Submitted::new(file, call, Vectored { parts, _vectors: vectors }) }
}

/// Reads a stream-like descriptor (an eventfd).
pub(crate) fn read_bytes(file: &Rc<Descriptor>, mut into: Box<[u8]>) -> Submitted<Box<[u8]>> {
    let call = Call::ReadStream { address: into.as_mut_ptr(), bytes: length(into.len()) };
    // SAFETY: the box's allocation does not move with it and is its own.
    unsafe { Submitted::new(file, call, into) }
}

/// Writes a stream-like descriptor (an eventfd).
pub(crate) fn write_bytes(file: &Rc<Descriptor>, from: Box<[u8]>) -> Submitted<Box<[u8]>> {
    let call = Call::WriteStream { address: from.as_ptr(), bytes: length(from.len()) };
    // SAFETY: the box's allocation does not move with it and is its own.
    unsafe { Submitted::new(file, call, from) }
}

/// Waits until the descriptor is readable.
pub(crate) fn poll_readable(file: &Rc<Descriptor>) -> Submitted<()> {
    // SAFETY: the call has no addresses.
    unsafe { Submitted::new(file, Call::AwaitReadable, ()) }
}

/// Puts data, and the metadata needed to read it, on stable storage.
pub(crate) fn sync_data(file: &Rc<Descriptor>) -> Submitted<()> {
    // SAFETY: the call has no addresses.
    unsafe { Submitted::new(file, Call::SyncData, ()) }
}

/// Makes a range zeros, or a hole.
pub(crate) fn clear(file: &Rc<Descriptor>, how: Clear, at: u64, bytes: u64) -> Submitted<()> {
    // SAFETY: the call has no addresses.
    unsafe { Submitted::new(file, Call::Clear { how, at, bytes }, ()) }
}

/// Receives into the buffer from byte `skip` on.
pub(crate) fn receive(socket: &Rc<Descriptor>, mut into: Buffer, skip: usize, flags: i32) -> Submitted<Buffer> {
    let rest = &mut into[skip..];
    let call = Call::Receive { address: rest.as_mut_ptr(), bytes: length(rest.len()), flags };
    // SAFETY: as in `read`.
    unsafe { Submitted::new(socket, call, into) }
}

/// Sends the block from byte `skip` on.
pub(crate) fn send(socket: &Rc<Descriptor>, from: Block, skip: usize) -> Submitted<Block> {
    let rest = &from[skip..];
    let call = Call::Send { address: rest.as_ptr(), bytes: length(rest.len()), flags: SEND_FLAGS };
    // SAFETY: as in `write`.
    unsafe { Submitted::new(socket, call, from) }
}

/// Sends the blocks in order, from byte `skip` of them on.
pub(crate) fn send_vectored(socket: &Rc<Descriptor>, parts: Vec<Block>, skip: usize) -> Submitted<Message> {
    let mut vectors = vectors(&parts, skip);
    // SAFETY: no name, no control data and no vectors are all zeros. Some C libraries have private fields beside them.
    let mut header: Box<libc::msghdr> = Box::new(unsafe { mem::zeroed() });
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len() as _; // an integer of another size in musl
    let call = Call::SendMessage { header: &raw const *header, flags: SEND_FLAGS };
    // SAFETY: header and vectors lie in heap allocations that do not move with `Message`; the vectors point into the
    // blocks' own memory, which is never written while they live.
    unsafe { Submitted::new(socket, call, Message { parts, _vectors: vectors, _header: header }) }
}

/// Accepts one connection. The result is its descriptor, which is closed when the future was dropped.
pub(crate) fn accept(listener: &Rc<Descriptor>) -> Submitted<Accepted> {
    // SAFETY: the call has no addresses.
    unsafe { Submitted::new(listener, Call::Accept, Accepted) }
}

pub(crate) fn connect(
    socket: &Rc<Descriptor>,
    address: rustix::net::SocketAddrAny,
) -> Submitted<Box<rustix::net::SocketAddrAny>> {
    let address = Box::new(address);
    let call = Call::Connect { address: address.as_ptr().cast(), bytes: address.addr_len() };
    // SAFETY: the address lies in a box of its own, whose contents do not move.
    unsafe { Submitted::new(socket, call, address) }
}
