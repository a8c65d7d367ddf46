//! The backend of an executor that is one io_uring. It is the only file in which operations become entries of a queue;
//! [`super::ublk`] has a ring of its own for commands of another kind.
//!
//! No queued operation is lost. An entry that finds the submission queue full waits in `backlog`, in order. The kernel
//! keeps completions that overflow the completion queue (`IORING_FEAT_NODROP`). The memory of operations belongs to
//! [`crate::driver`], which also says what is in flight.
//!
//! Facts: io_uring_setup(2), io_uring_enter(2), io_uring_register(2).

use super::calls::mode_of;
use super::memory::prefer_huge_pages;
use crate::driver::{Completion, Target, Wait};
use crate::operation::Call;
use engine::Pool;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::ptr::null_mut;

/// Slots in the table of registered descriptors. Further descriptors work unregistered.
const FILE_SLOTS: u32 = 256;

/// Maximum bytes of one registered buffer, by the kernel.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// Bytes of the arena registered at the start. Pinning takes time, and short commands and idle servers use little. More
/// is registered when it is used.
const REGISTERED_AT_FIRST: usize = 2 << 20;

/// Minimum bytes for which registration pays.
const BUFFER_BYTES_MIN: usize = 1 << 20;

/// The arena is the only registered buffer.
const ARENA: u16 = 0;

/// The queues of a ring of this many entries take a page each; fewer entries do not make them smaller.
const ENTRIES_MIN: u32 = 32;

/// Marks the completion of a cancellation, which no future awaits.
const NO_WAITER: u64 = u64::MAX;

pub(crate) struct Ring {
    uring: RefCell<IoUring>,
    backlog: RefCell<VecDeque<squeue::Entry>>,
    free_files: RefCell<Vec<u32>>,
    /// Registered bytes of the arena, from its start, and the maximum of these.
    registered_bytes: Cell<usize>,
    registered_bytes_max: Cell<usize>,
    vectored_fixed: bool,
    /// Keeps the registered memory alive as long as the ring.
    pool: Pool,
}

impl Ring {
    /// Whether this system has io_uring at all.
    pub(crate) const EXISTS: bool = true;

    /// Creates a ring with the best flags that this kernel supports.
    pub(crate) fn new(entries: u32, pool: &Pool, register: bool) -> io::Result<Self> {
        let mut uring = set_up(entries)?;
        if !(uring.params().is_feature_nodrop() && uring.params().is_feature_ext_arg()) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring of Linux 5.11 or later is needed"));
        }
        try_out(&mut uring)?;
        let registered_bytes = if register { register_first(&uring, pool) } else { 0 };
        let registered_bytes_max = if registered_bytes > 0 { pool.arena().1.min(BUFFER_BYTES_MAX) } else { 0 };
        let files =
            if register && uring.submitter().register_files_sparse(FILE_SLOTS).is_ok() { FILE_SLOTS } else { 0 };
        let mut probe = io_uring::Probe::new();
        let probed = uring.submitter().register_probe(&mut probe).is_ok();
        Ok(Self {
            vectored_fixed: probed
                && probe.is_supported(opcode::ReadvFixed::CODE)
                && probe.is_supported(opcode::WritevFixed::CODE),
            uring: RefCell::new(uring),
            backlog: RefCell::default(),
            free_files: RefCell::new((0..files).rev().collect()),
            registered_bytes: Cell::new(registered_bytes),
            registered_bytes_max: Cell::new(registered_bytes_max),
            pool: pool.clone(),
        })
    }

    /// Bytes of the pool's arena that are registered with the kernel.
    pub(crate) fn registered_bytes(&self) -> usize {
        self.registered_bytes.get()
    }

    /// The index of the registered buffer that contains all of these bytes.
    fn buffer_index(&self, address: *const u8, bytes: usize) -> Option<u16> {
        let start = (address as usize).checked_sub(self.pool.arena().0 as usize)?;
        let end = start + bytes;
        (end <= self.registered_bytes.get() || self.register_up_to(end)).then_some(ARENA)
    }

    /// The registered buffer that contains all of `vectors`, if there is one and the kernel supports vectored transfers
    /// in it (Linux 6.15).
    fn common_index(&self, vectors: &[libc::iovec]) -> Option<u16> {
        let index = |vector: &libc::iovec| self.buffer_index(vector.iov_base.cast(), vector.iov_len);
        let (first, rest) = vectors.split_first().filter(|_| self.vectored_fixed)?;
        let common = index(first)?;
        rest.iter().all(|vector| index(vector) == Some(common)).then_some(common)
    }

    /// Registers more of the arena: twice as much as before, or up to `end`. Returns whether that succeeded. Operations
    /// in flight keep the old registration. (Linux 5.13; before it, and at the limit on locked memory, nothing
    /// changes.)
    #[cold]
    fn register_up_to(&self, end: usize) -> bool {
        let (now, most) = (self.registered_bytes.get(), self.registered_bytes_max.get());
        if end > most {
            return false;
        }
        let wanted = end.max(2 * now).min(most);
        let uring = self.uring.borrow();
        let bytes = as_much_as_may_be(wanted, end, |bytes| {
            // SAFETY: as in `register_first`.
            unsafe { uring.submitter().register_buffers_update(ARENA.into(), &[front(&self.pool, bytes)], None) }
        });
        match bytes {
            0 => self.registered_bytes_max.set(now),
            bytes => self.registered_bytes.set(bytes),
        }
        bytes > 0
    }

    /// Registers a descriptor. `None` when the table is full or absent.
    pub(crate) fn register_file(&self, fd: RawFd) -> Option<u32> {
        let slot = self.free_files.borrow_mut().pop()?;
        match self.uring.borrow().submitter().register_files_update(slot, &[fd]) {
            Ok(_) => Some(slot),
            Err(_) => {
                self.free_files.borrow_mut().push(slot);
                None
            }
        }
    }

    /// Unregisters a descriptor. No operation may be using it.
    pub(crate) fn unregister_file(&self, slot: u32) {
        // On failure the slot is not reused: the kernel may still hold the file there.
        if self.uring.borrow().submitter().register_files_update(slot, &[-1]).is_ok() {
            self.free_files.borrow_mut().push(slot);
        }
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// As of [`crate::driver::Driver::submit`]: the addresses in `call` stay valid, and the descriptor open, until the
    /// completion is reaped.
    #[inline]
    pub(crate) unsafe fn submit(&self, index: u64, target: Target, call: Call) {
        // SAFETY: promised by the caller.
        let entry = unsafe { self.entry(target, call) };
        let flags = if target.slot.is_some() { squeue::Flags::FIXED_FILE } else { squeue::Flags::empty() };
        self.push(entry.flags(flags).user_data(index));
    }

    /// The entry for an operation, without its flags.
    ///
    /// # Safety
    /// As of [`Ring::submit`].
    #[inline]
    unsafe fn entry(&self, target: Target, call: Call) -> squeue::Entry {
        let fd = types::Fd(target.slot.map_or(target.fd, u32::cast_signed));
        match call {
            Call::Read { address, bytes, at } => match self.buffer_index(address, bytes as usize) {
                Some(index) => opcode::ReadFixed::new(fd, address, bytes, index).offset(at).build(),
                None => opcode::Read::new(fd, address, bytes).offset(at).build(),
            },
            Call::Write { address, bytes, at } => match self.buffer_index(address, bytes as usize) {
                Some(index) => opcode::WriteFixed::new(fd, address, bytes, index).offset(at).build(),
                None => opcode::Write::new(fd, address, bytes).offset(at).build(),
            },
            Call::ReadVectored { vectors, count, at } => {
                // SAFETY: the caller's vectors, which are valid.
                match self.common_index(unsafe { std::slice::from_raw_parts(vectors, count as usize) }) {
                    Some(index) => opcode::ReadvFixed::new(fd, vectors, count, index).offset(at).build(),
                    None => opcode::Readv::new(fd, vectors, count).offset(at).build(),
                }
            }
            Call::WriteVectored { vectors, count, at } => {
                // SAFETY: the same.
                match self.common_index(unsafe { std::slice::from_raw_parts(vectors, count as usize) }) {
                    Some(index) => opcode::WritevFixed::new(fd, vectors, count, index).offset(at).build(),
                    None => opcode::Writev::new(fd, vectors, count).offset(at).build(),
                }
            }
            other => entry_without_buffer(fd, other),
        }
    }

    fn push(&self, entry: squeue::Entry) {
        let mut backlog = self.backlog.borrow_mut();
        let mut uring = self.uring.borrow_mut();
        // SAFETY: `submit`'s caller vouches for the entry's addresses, and its slot keeps them valid until the
        // completion is reaped; a cancellation has none.
        if !backlog.is_empty() || unsafe { uring.submission().push(&entry) }.is_err() {
            backlog.push_back(entry);
        }
    }

    /// Asks the kernel to cancel an operation. It completes in any case.
    pub(crate) fn cancel(&self, index: u64) {
        self.push(opcode::AsyncCancel::new(index).build().user_data(NO_WAITER));
    }

    /// Whether an [`Ring::enter`] without waiting would do anything.
    pub(crate) fn wants_enter(&self) -> bool {
        let mut uring = self.uring.borrow_mut();
        let submission = uring.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Submits all queued entries, waits according to `wait`, and adds the completions to `reaped`.
    ///
    /// # Panics
    /// When the kernel refuses the ring itself, which only a bug in this crate or in the kernel can cause.
    pub(crate) fn enter(&self, wait: Wait, reaped: &mut Vec<Completion>) {
        let wait = if self.refill() { Wait::No } else { wait };
        let entered = {
            let uring = self.uring.borrow();
            let submitter = uring.submitter();
            match wait {
                Wait::No => submitter.submit(),
                Wait::Forever => submitter.submit_and_wait(1),
                Wait::For(time) => {
                    let time = types::Timespec::from(time);
                    submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
                }
            }
        };
        match entered.as_ref().map_err(io::Error::raw_os_error) {
            // A timeout, a signal, or a queue that must be drained first. In each case the executor's loop repeats.
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(_) => panic!("io_uring_enter: {}", entered.unwrap_err()),
        }
        let mut uring = self.uring.borrow_mut();
        let completions = uring.completion().map(|entry| (entry.user_data(), entry.result()));
        reaped.extend(completions.filter(|(user_data, _)| *user_data != NO_WAITER));
    }

    /// Moves the backlog to the submission queue. Returns whether some is left.
    fn refill(&self) -> bool {
        let mut backlog = self.backlog.borrow_mut();
        if backlog.is_empty() {
            return false;
        }
        let mut uring = self.uring.borrow_mut();
        let mut submission = uring.submission();
        while let Some(entry) = backlog.front() {
            // SAFETY: as in `push`, where this entry was put into the backlog.
            if unsafe { submission.push(entry) }.is_err() {
                return true;
            }
            backlog.pop_front();
        }
        false
    }

    /// Unregisters every file. Otherwise the kernel would release registered files some time after the end of the
    /// process. Then the next user of a block device would find it busy.
    pub(crate) fn unregister_files(&self) {
        // Without a table the call fails, which does no harm.
        let _ = self.uring.borrow().submitter().unregister_files();
    }
}

/// The entry for an operation that has no use for registered buffers.
fn entry_without_buffer(fd: types::Fd, call: Call) -> squeue::Entry {
    match call {
        Call::ReadStream { address, bytes } => opcode::Read::new(fd, address, bytes).build(),
        Call::WriteStream { address, bytes } => opcode::Write::new(fd, address, bytes).build(),
        Call::AwaitReadable => opcode::PollAdd::new(fd, u32::from(libc::POLLIN.cast_unsigned())).build(),
        Call::SyncData => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        Call::Clear { how, at, bytes } => opcode::Fallocate::new(fd, bytes).offset(at).mode(mode_of(how)).build(),
        Call::Receive { address, bytes, flags } => opcode::Recv::new(fd, address, bytes).flags(flags).build(),
        Call::Send { address, bytes, flags } => opcode::Send::new(fd, address, bytes).flags(flags).build(),
        Call::SendMessage { header, flags } => opcode::SendMsg::new(fd, header).flags(flags.cast_unsigned()).build(),
        Call::Accept => opcode::Accept::new(fd, null_mut(), null_mut()).flags(libc::SOCK_CLOEXEC).build(),
        Call::Connect { address, bytes } => opcode::Connect::new(fd, address, bytes).build(),
        Call::DriverCommand { code, command } => opcode::UringCmd16::new(fd, code).cmd(command).build(),
        Call::Read { .. } | Call::Write { .. } | Call::ReadVectored { .. } | Call::WriteVectored { .. } => {
            unreachable!("transfers at a position have an entry of their own")
        }
    }
}

/// Runs one operation that does nothing: a filter may allow a ring's setup and refuse its use.
fn try_out(uring: &mut IoUring) -> io::Result<()> {
    // SAFETY: the entry has no addresses.
    unsafe { uring.submission().push(&opcode::Nop::new().build()) }.expect("an empty queue has room");
    while uring.completion().next().is_none() {
        match uring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Creates a ring of `entries`, or of as many as the limit on locked memory allows, at least [`ENTRIES_MIN`]. Some
/// kernels (5.11, and 6.14 or later) count the queues themselves. Entries beyond a short queue wait in the backlog.
fn set_up(entries: u32) -> io::Result<IoUring> {
    let mut entries = entries;
    loop {
        match set_up_with(entries) {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory && entries > ENTRIES_MIN => entries /= 2,
            result => return result,
        }
    }
}

/// Creates a ring with the newest set of flags that the kernel supports.
fn set_up_with(entries: u32) -> io::Result<IoUring> {
    let ring = |configure: fn(&mut io_uring::Builder)| {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(entries.saturating_mul(4));
        configure(&mut builder);
        builder.build(entries)
    };
    // Linux 6.1: the thread that waits for completions also posts them, when it waits.
    ring(|builder| {
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    })
    // Linux 5.19: at least no interrupt for each completion.
    .or_else(|_| {
        ring(|builder| {
            builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
        })
    })
    .or_else(|_| ring(|_| {}))
}

/// Registers the front of the arena, or as much of it as the limit on locked memory allows. Returns the registered
/// bytes.
fn register_first(uring: &IoUring, pool: &Pool) -> usize {
    let (base, bytes) = pool.arena();
    // Pinning page by page costs more than most of a short command.
    // SAFETY: the pool's own memory.
    unsafe { prefer_huge_pages(base, bytes) };
    as_much_as_may_be(bytes.min(REGISTERED_AT_FIRST), BUFFER_BYTES_MIN, |bytes| {
        // SAFETY: the arena outlives the ring, which keeps a clone of its pool, and its bytes are only accessed through
        // buffers that operations own.
        unsafe { uring.submitter().register_buffers(&[front(pool, bytes)]) }
    })
}

/// Registers `wanted` bytes, or half of them and so on, at least `least`. Returns the registered bytes, 0 for none.
fn as_much_as_may_be(wanted: usize, least: usize, register: impl Fn(usize) -> io::Result<()>) -> usize {
    let mut bytes = wanted;
    while bytes >= least {
        if register(bytes).is_ok() {
            return bytes;
        }
        bytes = (bytes / 2).next_multiple_of(engine::buffer::ALIGNMENT);
    }
    0
}

/// The first `bytes` of the arena.
fn front(pool: &Pool, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: pool.arena().0.cast(), iov_len: bytes }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn more_of_the_arena_is_registered_as_it_is_used() {
        let pool = engine::Pool::new(16 << 20);
        let ring = Ring::new(32, &pool, true).expect("a ring");
        let first = ring.registered_bytes();
        let buffers: Vec<_> = (0..6).map(|_| pool.take(1 << 20)).collect();
        let indices: Vec<_> = buffers.iter().map(|buffer| ring.buffer_index(buffer.as_ptr(), buffer.len())).collect();
        let registered = ring.registered_bytes();
        for (number, index) in indices.into_iter().enumerate() {
            assert_eq!(index.is_some(), (number + 1) << 20 <= registered, "MiB {number} of {registered} bytes");
        }
        // Other users may have a limit on locked memory.
        assert!(!rustix::process::geteuid().is_root() || (first > 0 && registered >= 6 << 20), "{first}, {registered}");
        let elsewhere = engine::Pool::new(1 << 20).take(4096);
        assert_eq!(ring.buffer_index(elsewhere.as_ptr(), elsewhere.len()), None);
    }
}
