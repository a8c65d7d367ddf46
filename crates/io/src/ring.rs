//! One io_uring and the operations in flight on it.
//!
//! Invariants:
//! - An operation's slot owns everything that the kernel may access for it (buffers, vectors, the descriptor). It does
//!   so from before its entry is queued until its completion is reaped, whether or not a future waits. Dropping a
//!   waiting future requests cancellation and leaves the slot.
//! - No queued operation is lost. An entry that finds the submission queue full waits in `backlog`, in order. The
//!   kernel keeps completions that overflow the completion queue (`IORING_FEAT_NODROP`).
//! - No borrow of the ring's cells is held while foreign code (a waker, a buffer's destructor) runs.
//!
//! Only [`Ring::enter`] waits, and only the executor calls it. Facts: io_uring_setup(2), io_uring_enter(2),
//! io_uring_register(2).

use crate::operation::{Held, Slot, State};
use engine::Pool;
use io_uring::{IoUring, opcode, squeue, types};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::task::Waker;
use std::time::{Duration, Instant};

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

/// How long [`Ring::close`] waits for operations that cannot be cancelled. A transfer of a slow disk ends in this time;
/// one of a disk or file system that hangs may never end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long [`Ring::enter`] may wait for a completion.
pub(crate) enum Wait {
    /// Do not wait.
    No,
    /// Until a completion arrives.
    Forever,
    /// Until a completion arrives or this time has passed.
    For(Duration),
}

pub(crate) struct Ring {
    uring: RefCell<IoUring>,
    backlog: RefCell<VecDeque<squeue::Entry>>,
    slots: RefCell<Slab<Slot>>,
    /// A buffer of [`Ring::reap`], kept for its capacity.
    reaped: Cell<Vec<(u64, i32)>>,
    free_files: RefCell<Vec<u32>>,
    /// Registered bytes of the arena, from its start, and the maximum of these.
    registered_bytes: Cell<usize>,
    registered_bytes_max: Cell<usize>,
    vectored_fixed: bool,
    closed: Cell<bool>,
    /// Keeps the registered memory alive as long as the ring.
    pool: Pool,
}

impl Ring {
    /// Creates a ring with the best flags that this kernel supports.
    pub(crate) fn new(entries: u32, pool: &Pool, register: bool) -> io::Result<Self> {
        let uring = set_up(entries)?;
        if !(uring.params().is_feature_nodrop() && uring.params().is_feature_ext_arg()) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring of Linux 5.11 or later is needed"));
        }
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
            slots: RefCell::default(),
            reaped: Cell::default(),
            free_files: RefCell::new((0..files).rev().collect()),
            registered_bytes: Cell::new(registered_bytes),
            registered_bytes_max: Cell::new(registered_bytes_max),
            closed: Cell::new(false),
            pool: pool.clone(),
        })
    }

    /// Bytes of the pool's arena that are registered with the kernel.
    pub(crate) fn registered_bytes(&self) -> usize {
        self.registered_bytes.get()
    }

    /// The index of the registered buffer that contains all of `bytes`.
    pub(crate) fn buffer_index(&self, bytes: &[u8]) -> Option<u16> {
        let start = (bytes.as_ptr() as usize).checked_sub(self.pool.arena().0 as usize)?;
        let end = start + bytes.len();
        (end <= self.registered_bytes.get() || self.register_up_to(end)).then_some(ARENA)
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

    /// Whether vectored transfers within one registered buffer exist (Linux 6.15).
    pub(crate) fn has_vectored_fixed(&self) -> bool {
        self.vectored_fixed
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

    /// Queues an operation and returns its slot. On a closed ring it fails at once with `ECANCELED`.
    ///
    /// # Safety
    /// Every address in `entry` must point into memory that `held` owns. That memory must not move when `held` is
    /// moved, and no other code may use it in a conflicting way while `held` lives. `held` must also keep the
    /// descriptor in `entry` open.
    pub(crate) unsafe fn queue(&self, entry: squeue::Entry, held: Held) -> usize {
        let closed = self.closed.get();
        let state = if closed { State::Finished(-libc::ECANCELED) } else { State::InFlight(None) };
        let index = self.slots.borrow_mut().insert(Slot { held, state });
        if !closed {
            self.push(entry.user_data(index as u64));
        }
        index
    }

    fn push(&self, entry: squeue::Entry) {
        let mut backlog = self.backlog.borrow_mut();
        let mut uring = self.uring.borrow_mut();
        // SAFETY: `queue`'s caller vouches for the entry's addresses, and its slot keeps them valid until the
        // completion is reaped; a cancellation has none.
        if !backlog.is_empty() || unsafe { uring.submission().push(&entry) }.is_err() {
            backlog.push_back(entry);
        }
    }

    /// Takes the result of a finished operation, or stores `waker` to be woken.
    pub(crate) fn poll(&self, index: usize, waker: &Waker) -> Option<(i32, Held)> {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[index];
        match &mut slot.state {
            State::Finished(result) => {
                let result = *result;
                Some((result, slots.remove(index).held))
            }
            State::InFlight(known) => {
                match known {
                    Some(known) => known.clone_from(waker),
                    None => *known = Some(waker.clone()),
                }
                None
            }
            State::Abandoned => unreachable!("an abandoned operation has no future to poll"),
        }
    }

    /// Cancels an operation whose future was dropped, and keeps its resources.
    pub(crate) fn abandon(&self, index: usize) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[index];
        if let State::Finished(result) = slot.state {
            let slot = slots.remove(index);
            drop(slots);
            slot.held.discard(result);
        } else {
            slot.state = State::Abandoned;
            drop(slots);
            self.push(opcode::AsyncCancel::new(index as u64).build().user_data(NO_WAITER));
        }
    }

    /// Whether an [`Ring::enter`] without waiting would do anything.
    pub(crate) fn wants_enter(&self) -> bool {
        let mut uring = self.uring.borrow_mut();
        let submission = uring.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Submits all queued entries, waits according to `wait`, and reaps the completions.
    ///
    /// # Panics
    /// When the kernel refuses the ring itself, which only a bug in this crate or in the kernel can cause.
    pub(crate) fn enter(&self, wait: Wait) {
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
        self.reap();
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

    fn reap(&self) {
        let mut reaped = self.reaped.take();
        reaped.extend(self.uring.borrow_mut().completion().map(|entry| (entry.user_data(), entry.result())));
        for (user_data, result) in reaped.drain(..) {
            if user_data != NO_WAITER {
                self.finish(user_data as usize, result);
            }
        }
        self.reaped.set(reaped);
    }

    fn finish(&self, index: usize, result: i32) {
        let mut slots = self.slots.borrow_mut();
        match std::mem::replace(&mut slots[index].state, State::Finished(result)) {
            State::InFlight(waker) => {
                drop(slots);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Abandoned => {
                let slot = slots.remove(index);
                drop(slots);
                slot.held.discard(result);
            }
            State::Finished(_) => unreachable!("an operation completes once"),
        }
    }

    /// Refuses new operations, cancels those in flight, waits until the kernel is done with them, and unregisters every
    /// file. Operations that only a device ends are left to the kernel, which holds none of our memory for them. An
    /// operation that does not end within [`CLOSE_TIMEOUT`] is left too, with its memory and descriptor. These keep the
    /// ring alive until the process ends.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let in_flight = |slot: &Slot| !matches!(slot.state, State::Finished(_)) && !slot.held.is_endless();
        let indices: Vec<usize> =
            self.slots.borrow().iter().filter(|(_, slot)| in_flight(slot)).map(|(index, _)| index).collect();
        for index in indices {
            self.push(opcode::AsyncCancel::new(index as u64).build().user_data(NO_WAITER));
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while self.slots.borrow().iter().any(|(_, slot)| in_flight(slot)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.forget_endless();
                return; // before Linux 6.13 the kernel keeps the table until the last operation on a file in it has ended
            }
            self.enter(Wait::For(left));
        }
        self.forget_endless();
        // Otherwise the kernel would release registered files some time after the end of the process. Then the next user
        // of a block device would find it busy. Without a table the call fails, which does no harm.
        let _ = self.uring.borrow().submitter().unregister_files();
    }
}

impl Ring {
    /// On a closed ring: ends the operations that only a device would end, since no completion is reaped any more. Each
    /// releases its descriptor, which refers to this ring.
    fn forget_endless(&self) {
        let mut abandoned = Vec::new();
        for (index, slot) in self.slots.borrow_mut().iter_mut().filter(|(_, slot)| slot.held.is_endless()) {
            match slot.state {
                State::Abandoned => abandoned.push(index),
                State::InFlight(_) => slot.state = State::Finished(-libc::ECANCELED),
                State::Finished(_) => {}
            }
        }
        for index in abandoned {
            let slot = self.slots.borrow_mut().remove(index);
            drop(slot);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.close();
    }
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
    // Pinning page by page costs more than most of a short command. Where there are no huge pages, this has no effect.
    // SAFETY: the pool's own memory, whose contents this does not change.
    let _ = unsafe { rustix::mm::madvise(base.cast(), bytes, rustix::mm::Advice::LinuxHugepage) };
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
    use crate::descriptor::Descriptor;
    use crate::operation::{Endless, Submitted};
    use crate::{Executor, Options};
    use io_uring::opcode;
    use rustix::event::{EventfdFlags, eventfd};
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn more_of_the_arena_is_registered_as_it_is_used() {
        let pool = engine::Pool::new(16 << 20);
        let ring = Ring::new(32, &pool, true).expect("a ring");
        let first = ring.registered_bytes();
        let buffers: Vec<_> = (0..6).map(|_| pool.take(1 << 20)).collect();
        let indices: Vec<_> = buffers.iter().map(|buffer| ring.buffer_index(buffer)).collect();
        let registered = ring.registered_bytes();
        for (number, index) in indices.into_iter().enumerate() {
            assert_eq!(index.is_some(), (number + 1) << 20 <= registered, "MiB {number} of {registered} bytes");
        }
        // Other users may have a limit on locked memory.
        assert!(!rustix::process::geteuid().is_root() || (first > 0 && registered >= 6 << 20), "{first}, {registered}");
        let elsewhere = engine::Pool::new(1 << 20).take(4096);
        assert_eq!(ring.buffer_index(&elsewhere), None);
    }

    #[test]
    fn what_only_a_device_ends_does_not_outlive_its_ring() {
        let executor = Executor::new(&Options::new(engine::Pool::new(4096))).expect("an executor");
        let file = Descriptor::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        let wait = || {
            let entry = opcode::PollAdd::new(file.target(), libc::POLLIN as u32).build();
            // SAFETY: the entry has no addresses.
            unsafe { Submitted::new(&file, entry, Endless) }
        };
        let (abandoned, mut kept) = (wait(), pin!(wait()));
        executor.block_on(crate::yield_now());
        drop(abandoned);
        drop(executor);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready((Err(error), Endless)) = kept.as_mut().poll(&mut context) else { panic!("it has ended") };
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    }
}
