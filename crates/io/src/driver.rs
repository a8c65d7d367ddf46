//! The operations in flight of one executor, above either backend.
//!
//! Invariants:
//! - An operation's slot owns everything that the backend may access for it (buffers, vectors, the descriptor). It does
//!   so from before the operation is submitted until its completion is reaped, whether or not a future waits. Dropping
//!   a waiting future requests cancellation and leaves the slot. What is made at once ([`crate::at_once`]) has ended
//!   before it has a slot.
//! - No borrow of the driver's cells is held while foreign code (a waker, a buffer's destructor) runs.
//!
//! Only [`Driver::enter`] waits, and only the executor calls it. What an operation means is the backend's, and that of
//! [`crate::at_once`]: the driver never looks into a [`Call`]. Source: io_uring_setup(2), for the reasons of a refusal.

use crate::at_once;
use crate::backend::{Backend, Choice, is_refusal};
use crate::executor::Options;
use crate::operation::{Call, Held, Slot, State};
use crate::system::ring::Ring;
use crate::threads::Threads;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long [`Driver::close`] waits for operations that cannot be cancelled. A transfer of a slow disk ends in this
/// time; one of a disk or file system that hangs may never end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long [`Driver::enter`] may wait for a completion.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// Do not wait.
    No,
    /// Until a completion arrives.
    Forever,
    /// Until a completion arrives or this time has passed.
    For(Duration),
}

/// A descriptor, and the number under which the backend knows the file, if it does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) fd: RawFd,
    pub(crate) slot: Option<u32>,
    /// Whether the file is of a file system in memory.
    pub(crate) is_in_memory: bool,
}

/// The number of a completion and the kernel's result: not negative, or a negated error number.
pub(crate) type Completion = (u64, i32);

enum Kind {
    Ring(Ring),
    Threads(Threads),
}

pub(crate) struct Driver {
    kind: Kind,
    /// Why it is not io_uring, where that was wanted.
    refusal: Option<io::Error>,
    slots: RefCell<Slab<Slot>>,
    /// A buffer of [`Driver::enter`], kept for its capacity.
    reaped: Cell<Vec<Completion>>,
    closed: Cell<bool>,
    /// Operations that were made at once since the last [`Driver::enter`].
    made_at_once: Cell<u32>,
}

/// The most operations that are made at once between two entries. The next one takes a round of the executor, so that
/// a task that meets nothing else leaves the thread to the others.
const AT_ONCE_MAX: u32 = 256;

impl Driver {
    /// The backend that `options` ask for.
    pub(crate) fn new(options: &Options) -> io::Result<Self> {
        let ring = || Ring::new(options.ring_entries, &options.pool, options.register).map(Kind::Ring);
        let threads = || Threads::new(&options.pool, options.register).map(Kind::Threads);
        let (kind, refusal) = match options.backend {
            Choice::Only(Backend::IoUring) => (ring()?, None),
            Choice::Only(Backend::Threads) => (threads()?, None),
            Choice::Auto if !Ring::EXISTS => (threads()?, None),
            Choice::Auto => match ring() {
                Err(refusal) if is_refusal(&refusal) => (threads()?, Some(refusal)),
                ring => (ring?, None),
            },
        };
        Ok(Self {
            kind,
            refusal,
            slots: RefCell::default(),
            reaped: Cell::default(),
            closed: Cell::new(false),
            made_at_once: Cell::new(0),
        })
    }

    pub(crate) fn backend(&self) -> Backend {
        match self.kind {
            Kind::Ring(_) => Backend::IoUring,
            Kind::Threads(_) => Backend::Threads,
        }
    }

    pub(crate) fn refusal(&self) -> Option<&io::Error> {
        self.refusal.as_ref()
    }

    /// Bytes of the pool's arena that are registered with the kernel.
    pub(crate) fn registered_bytes(&self) -> usize {
        match &self.kind {
            Kind::Ring(ring) => ring.registered_bytes(),
            Kind::Threads(_) => 0,
        }
    }

    /// Registers a file whose operations all end. `None` when the backend has no room for it.
    pub(crate) fn register_file(&self, fd: RawFd) -> Option<u32> {
        match &self.kind {
            Kind::Ring(ring) => ring.register_file(fd),
            Kind::Threads(threads) => Some(threads.register_file(fd)),
        }
    }

    /// Forgets a descriptor that is about to be closed. No operation may be using it.
    pub(crate) fn release(&self, target: Target) {
        match &self.kind {
            Kind::Ring(ring) => target.slot.into_iter().for_each(|slot| ring.unregister_file(slot)),
            Kind::Threads(threads) => threads.release(target),
        }
    }

    /// Submits an operation and returns its slot. On a closed driver it fails at once with `ECANCELED`.
    ///
    /// # Safety
    /// Every address in `call` must point into memory that `held` owns. That memory must not move when `held` is moved,
    /// and no other code may use it in a conflicting way while `held` lives. `held` must also keep the descriptor in
    /// `target` open.
    #[inline]
    pub(crate) unsafe fn submit(&self, target: Target, call: Call, held: Held) -> usize {
        let known = match self.closed.get() {
            true => Some(-libc::ECANCELED),
            false if target.is_in_memory && self.made_at_once.get() < AT_ONCE_MAX => {
                // SAFETY: promised by the caller; `held` is here until the call has ended.
                let result = unsafe { at_once::perform(target.fd, call) };
                self.made_at_once.set(self.made_at_once.get() + u32::from(result.is_some()));
                result
            }
            false => None,
        };
        let state = known.map_or(State::InFlight(None), State::Finished);
        let index = self.slots.borrow_mut().insert(Slot { held, state });
        if known.is_none() {
            match &self.kind {
                // SAFETY: promised by the caller; the slot keeps the addresses valid until the completion is reaped.
                Kind::Ring(ring) => unsafe { ring.submit(index as u64, target, call) },
                // SAFETY: the same.
                Kind::Threads(threads) => unsafe { threads.submit(index as u64, target, call) },
            }
        }
        index
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
            self.cancel(index);
        }
    }

    fn cancel(&self, index: usize) {
        match &self.kind {
            Kind::Ring(ring) => ring.cancel(index as u64),
            Kind::Threads(threads) => threads.cancel(index as u64),
        }
    }

    /// Whether an [`Driver::enter`] without waiting would do anything.
    pub(crate) fn wants_enter(&self) -> bool {
        match &self.kind {
            Kind::Ring(ring) => ring.wants_enter(),
            Kind::Threads(threads) => threads.wants_enter(),
        }
    }

    /// Starts all submitted operations, waits according to `wait`, and wakes the tasks of those that have ended.
    ///
    /// # Panics
    /// When the kernel refuses an io_uring that it has set up, which only a bug in this crate or in the kernel can
    /// cause.
    pub(crate) fn enter(&self, wait: Wait) {
        self.made_at_once.set(0);
        let mut reaped = self.reaped.take();
        match &self.kind {
            Kind::Ring(ring) => ring.enter(wait, &mut reaped),
            Kind::Threads(threads) => threads.enter(wait, &mut reaped),
        }
        for (index, result) in reaped.drain(..) {
            self.finish(index as usize, result);
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

    /// Refuses new operations, cancels those in flight, waits until the backend is done with them, and lets go of every
    /// file. Operations that only a device ends are left to the kernel, which holds none of our memory for them. An
    /// operation that does not end within [`CLOSE_TIMEOUT`] is left too, with its memory and descriptor. These keep the
    /// driver alive until the process ends.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let in_flight = |slot: &Slot| !matches!(slot.state, State::Finished(_)) && !slot.held.is_endless();
        let indices: Vec<usize> =
            self.slots.borrow().iter().filter(|(_, slot)| in_flight(slot)).map(|(index, _)| index).collect();
        for index in indices {
            self.cancel(index);
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
        match &self.kind {
            Kind::Ring(ring) => ring.unregister_files(),
            Kind::Threads(threads) => threads.end(),
        }
    }

    /// When closed: ends the operations that only a device would end, since no completion is reaped any more. Each
    /// releases its descriptor, which refers to this driver.
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

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::AT_ONCE_MAX;
    use crate::descriptor::Descriptor;
    use crate::operation::{Call, Endless, Submitted};
    use crate::{Backend, Choice, Executor, Options, transfer};
    use rustix::event::{EventfdFlags, eventfd};
    use std::future::Future;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    /// Whether a future has its result at the first poll.
    fn is_ready(future: impl Future) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn short_transfers_of_files_in_memory_are_made_at_once_until_others_have_waited_long_enough() {
        const BYTES: usize = 4096;
        for backend in Backend::ALL {
            let options = Options { backend: Choice::Only(backend), ..Options::new(engine::Pool::new(1 << 20)) };
            let executor = Executor::new(&options).expect("an executor");
            let pool = executor.pool().clone();
            let file = |is_in_memory| {
                let file = tempfile::tempfile().expect("a file");
                file.set_len(1 << 20).expect("it can be long");
                Descriptor::registered(file.into(), Vec::new(), is_in_memory)
            };
            let (ours, another) = (file(true), file(false));
            let read = |file: &Rc<Descriptor>, bytes: usize| is_ready(transfer::read(file, 0, pool.take(bytes), 0));
            executor.block_on(async {
                assert!(is_ready(transfer::write(&ours, 0, pool.take(BYTES).freeze(), 0)), "{backend}");
                assert!(read(&ours, BYTES) && !read(&ours, 64 << 10) && !read(&another, BYTES), "{backend}");
                let made = (0..2 * AT_ONCE_MAX).take_while(|_| read(&ours, BYTES)).count();
                assert_eq!(made as u32, AT_ONCE_MAX - 2, "{backend}");
                crate::yield_now().await;
                crate::yield_now().await;
                assert!(read(&ours, BYTES), "{backend}: a round has passed");
            });
            ours.core().driver.close();
            let (result, _) = executor.block_on(transfer::read(&ours, 0, pool.take(BYTES), 0));
            let error = result.expect_err("it is closed");
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED), "{backend}");
        }
    }

    #[test]
    fn what_only_a_device_ends_does_not_outlive_its_executor() {
        for backend in Backend::ALL {
            let options = Options { backend: Choice::Only(backend), ..Options::new(engine::Pool::new(4096)) };
            let executor = Executor::new(&options).expect("an executor");
            let file = Descriptor::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
            // SAFETY: the call has no addresses.
            let wait = || unsafe { Submitted::new(&file, Call::AwaitReadable, Endless) };
            let (abandoned, mut kept) = (wait(), pin!(wait()));
            executor.block_on(crate::yield_now());
            drop(abandoned);
            drop(executor);
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready((Err(error), Endless)) = kept.as_mut().poll(&mut context) else { panic!("it has ended") };
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED), "{backend}");
        }
    }
}
