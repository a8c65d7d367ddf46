//! Operations: what each asks for, what it owns while it is in flight, and the future that waits for it.
//!
//! A [`Call`] is all that the backends know of an operation, in words of neither. Dropping a [`Submitted`] never frees
//! memory that the kernel or a thread may still access. The driver's slot owns the memory until the completion arrives
//! (see [`crate::driver`]). Source: the man pages of the system calls that [`Call`] names.

use crate::descriptor::Descriptor;
use crate::executor::Core;
use engine::{Block, Buffer};
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// One operation on a descriptor, as either backend carries it out. Its addresses are those of its [`Resource`]. Results
/// are those of the system call named.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// pread(2).
    Read { address: *mut u8, bytes: u32, at: u64 },
    /// pwrite(2).
    Write { address: *const u8, bytes: u32, at: u64 },
    /// preadv(2).
    ReadVectored { vectors: *const libc::iovec, count: u32, at: u64 },
    /// pwritev(2).
    WriteVectored { vectors: *const libc::iovec, count: u32, at: u64 },
    /// read(2) of what has no position: an eventfd.
    ReadStream { address: *mut u8, bytes: u32 },
    /// write(2) of what has no position.
    WriteStream { address: *const u8, bytes: u32 },
    /// poll(2) until there is something to read, or the peer has closed.
    AwaitReadable,
    /// fdatasync(2).
    SyncData,
    /// fallocate(2), or what the system has in its place.
    Clear { how: Clear, at: u64, bytes: u64 },
    /// recv(2).
    Receive { address: *mut u8, bytes: u32, flags: i32 },
    /// send(2).
    Send { address: *const u8, bytes: u32, flags: i32 },
    /// sendmsg(2).
    SendMessage { header: *const libc::msghdr, flags: i32 },
    /// accept(2), close-on-exec.
    Accept,
    /// connect(2).
    Connect { address: *const libc::sockaddr, bytes: u32 },
    /// A command to the device's driver, which only an io_uring passes on.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the only such device is Linux's ublk"))]
    DriverCommand { code: u32, command: [u8; 16] },
}

/// How a range of a file becomes zeros. Its length stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clear {
    /// Zeros that keep their space.
    Zeros,
    /// A hole.
    Hole,
}

/// An operation in the driver's slab.
pub(crate) struct Slot {
    pub(crate) held: Held,
    pub(crate) state: State,
}

pub(crate) enum State {
    /// With the backend; with the waker of the last poll.
    InFlight(Option<Waker>),
    /// The same, but its future was dropped.
    Abandoned,
    /// Completed with this result, which has not been taken yet.
    Finished(i32),
}

/// A descriptor and a resource, kept until the backend is done with both.
pub(crate) struct Held {
    /// Declared first, so dropped first: the resource is of no use without it.
    _descriptor: Rc<Descriptor>,
    resource: Resource,
}

impl Held {
    /// Whether only the device ends the operation, and the kernel holds none of its memory.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self.resource, Resource::Endless(_))
    }

    /// Drops the resource of an abandoned operation.
    pub(crate) fn discard(self, result: i32) {
        if let (Resource::Accepted(_), 0..) = (&self.resource, result) {
            // SAFETY: the kernel has just made this descriptor for us, and no other code has it.
            drop(unsafe { OwnedFd::from_raw_fd(result) });
        }
    }
}

/// Several buffers for one transfer, and the vectors that point to them, which only the kernel reads.
pub(crate) struct Vectored<T> {
    pub(crate) parts: Vec<T>,
    pub(crate) _vectors: Vec<libc::iovec>,
}

/// The same as [`Vectored`], with the message header of socket calls.
pub(crate) struct Message {
    pub(crate) parts: Vec<Block>,
    pub(crate) _vectors: Vec<libc::iovec>,
    pub(crate) _header: Box<libc::msghdr>,
}

/// The marker of an operation whose result is a new descriptor.
pub(crate) struct Accepted;

/// The marker of an operation that only a device ends, and that has no address. The executor need not wait for it.
pub(crate) struct Endless;

/// Everything that an operation can own, so that one slab holds all kinds.
pub(crate) enum Resource {
    Nothing(()),
    Buffer(Buffer),
    Block(Block),
    Buffers(Vectored<Buffer>),
    Blocks(Vectored<Block>),
    Message(Message),
    Bytes(Box<[u8]>),
    Address(Box<rustix::net::SocketAddrAny>),
    Accepted(Accepted),
    Endless(Endless),
}

/// A type that converts to an operation's [`Resource`] and back.
pub(crate) trait Owned: Into<Resource> + Unpin {
    fn back(resource: Resource) -> Self;
}

macro_rules! owned {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Resource {
            fn from(own: $type) -> Self {
                Resource::$variant(own)
            }
        }

        impl Owned for $type {
            fn back(resource: Resource) -> Self {
                match resource {
                    Resource::$variant(own) => own,
                    _ => unreachable!("an operation gives back what it was given"),
                }
            }
        }
    )*};
}

owned! {
    () => Nothing,
    Buffer => Buffer,
    Block => Block,
    Vectored<Buffer> => Buffers,
    Vectored<Block> => Blocks,
    Message => Message,
    Box<[u8]> => Bytes,
    Box<rustix::net::SocketAddrAny> => Address,
    Accepted => Accepted,
    Endless => Endless,
}

/// An operation in flight. Completes with the kernel's result and returns the resource. When dropped earlier, it is
/// cancelled.
pub(crate) struct Submitted<R> {
    core: Rc<Core>,
    /// `None` once the result was taken.
    index: Option<usize>,
    resource: PhantomData<R>,
}

impl<R: Owned> Submitted<R> {
    /// Submits `call` on `descriptor`.
    ///
    /// # Safety
    /// Every address in `call` must point into memory that `resource` owns. That memory must not move when `resource`
    /// is moved, and no other code may use it in a conflicting way while `resource` lives.
    #[inline]
    pub(crate) unsafe fn new(descriptor: &Rc<Descriptor>, call: Call, resource: R) -> Self {
        let core = descriptor.core().clone();
        let held = Held { _descriptor: descriptor.clone(), resource: resource.into() };
        // SAFETY: promised by the caller; `held` keeps the descriptor open.
        let index = unsafe { core.driver.submit(descriptor.target(), call, held) };
        Self { core, index: Some(index), resource: PhantomData }
    }
}

impl<R: Owned> Future for Submitted<R> {
    type Output = (io::Result<u32>, R);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index.expect("not polled again after completion");
        let Some((result, held)) = self.core.driver.poll(index, context.waker()) else { return Poll::Pending };
        self.index = None;
        let result = u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Poll::Ready((result, R::back(held.resource)))
    }
}

impl<R> Drop for Submitted<R> {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.core.driver.abandon(index);
        }
    }
}
