//! One virtqueue, served on the volume's thread.
//!
//! A single task takes requests from the available ring, polls them, and puts their answers into the used ring: all
//! that are ready, then one signal to the client. A request that the volume completes at once never enters a queue of
//! futures.
//!
//! Invariants: payload in flight is bounded by [`BYTES_IN_FLIGHT_MAX`] (a single request may exceed it when alone). A
//! stopped ring has no request in flight and never touches the client's memory. Source: Virtio 1.2, 2.7.

use super::Memory;
use super::chain::{Chain, ChainError};
use super::config::Properties;
use super::inflight::Inflight;
use super::request;
use crate::nbd::stream::Waiter;
use crate::volume::{Durability, Volume};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use io::Event;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, VolatileMemoryError};

/// Maximum payload in flight of one queue, in bytes.
const BYTES_IN_FLIGHT_MAX: u64 = 32 << 20;

/// The settings that a ring starts with.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) queue: Queue,
    pub(super) memory: Memory,
    pub(super) inflight: Option<Inflight>,
    /// What the completion of a write promises.
    pub(super) durability: Durability,
}

/// Why a ring is not served any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum RingError {
    #[error("the queue: {0}")]
    Queue(#[from] virtio_queue::Error),
    #[error("the records of requests in flight: {0}")]
    Inflight(#[from] VolatileMemoryError),
    #[error("the client's eventfd: {0}")]
    Event(#[from] std::io::Error),
    #[error("a chain of descriptors: {0}")]
    Chain(#[from] ChainError),
    #[error("the queue: the next available request cannot be read")]
    Nowhere,
}

/// A queue that is being served.
pub(super) struct Ring<V: Volume> {
    volume: V,
    properties: Rc<Properties>,
    durability: Durability,
    queue: RefCell<Queue>,
    memory: RefCell<Memory>,
    inflight: RefCell<Option<Inflight>>,
    /// Heads of chains that were in flight when another process served this queue.
    again: RefCell<VecDeque<u16>>,
    kick: Event,
    call: RefCell<Option<Event>>,
    /// Whether the client still has to be signalled once. A previous server may have left answers in the ring without a
    /// signal.
    must_signal: Cell<bool>,
    enabled: Cell<bool>,
    stopping: Cell<bool>,
    bytes_in_flight: Cell<u64>,
    driver: Waiter,
}

/// A finished request: the head of its chain, bytes written, and its bytes of payload.
type Done = (u16, u32, u64);

/// What the driver waits for.
enum Step {
    Done(Done),
    Signalled(std::io::Result<()>),
}

type Steps = FuturesUnordered<LocalBoxFuture<'static, Step>>;

impl<V: Volume> Ring<V> {
    /// A ring that continues where a previous server ended.
    pub(super) fn new(volume: V, properties: Rc<Properties>, setup: Setup, kick: Event) -> Result<Self, RingError> {
        let Setup { mut queue, memory, mut inflight, durability } = setup;
        let used = queue.used_idx(&*memory, Ordering::Acquire)?.0;
        queue.set_next_used(used);
        let mut again = VecDeque::new();
        if let Some(inflight) = &mut inflight {
            again = inflight.recover(used)?.into();
            queue.set_next_avail(used.wrapping_add(again.len() as u16));
        }
        Ok(Self {
            volume,
            properties,
            durability,
            queue: queue.into(),
            memory: memory.into(),
            inflight: inflight.into(),
            again: again.into(),
            kick,
            call: RefCell::default(),
            must_signal: Cell::new(false),
            enabled: Cell::new(false),
            stopping: Cell::new(false),
            bytes_in_flight: Cell::new(0),
            driver: Waiter::default(),
        })
    }

    /// Replaces the client's memory. Requests in flight finish in the old memory.
    pub(super) fn set_memory(&self, memory: Memory) {
        self.memory.replace(memory);
    }

    /// Replaces the eventfd to signal. The new one is signalled once in any case.
    pub(super) fn set_call(&self, call: Option<Event>) {
        self.must_signal.set(call.is_some());
        self.call.replace(call);
        self.driver.wake();
    }

    /// Enables or disables the ring. A disabled ring takes no requests.
    pub(super) fn enable(&self, enabled: bool) {
        self.enabled.set(enabled);
        self.driver.wake();
    }

    /// Stops taking requests. [`Ring::run`] ends when the started ones are answered.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        self.driver.wake();
    }

    /// The index of the first request not taken, where the client continues.
    pub(super) fn next_avail(&self) -> u16 {
        self.queue.borrow().next_avail()
    }

    /// Serves until the ring is stopped. A broken ring takes no requests, and waits to be stopped.
    pub(super) async fn run(self: Rc<Self>) {
        let mut steps = Steps::new();
        let mut kicked = pin!(self.kick.wait());
        let mut broken = false;
        poll_fn(|cx| {
            self.driver.register(cx);
            while !broken {
                match kicked.as_mut().poll(cx) {
                    Poll::Ready(Ok(())) => kicked.set(self.kick.wait()),
                    Poll::Ready(Err(error)) => broken = self.fail(&error.into()),
                    Poll::Pending => break,
                }
            }
            if let Err(error) = self.turn(&mut steps, cx) {
                broken = self.fail(&error);
            }
            if self.stopping.get() && steps.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Stops taking requests, because the ring or its memory is invalid.
    fn fail(&self, error: &RingError) -> bool {
        tracing::error!(%error, "a queue of a vhost-user client is not served any more");
        self.enabled.set(false);
        true
    }

    /// Answers finished requests and starts available ones, until neither is left.
    fn turn(self: &Rc<Self>, steps: &mut Steps, cx: &mut Context<'_>) -> Result<(), RingError> {
        let mut answered = self.must_signal.get();
        loop {
            let mut moved = false;
            while let Poll::Ready(Some(step)) = steps.poll_next_unpin(cx) {
                match step {
                    Step::Done(done) => {
                        self.answer(done)?;
                        (moved, answered) = (true, true);
                    }
                    Step::Signalled(result) => result?,
                }
            }
            while let Some(head) = self.next_head()? {
                moved = true;
                if let Some(done) = self.begin(head, steps, cx)? {
                    self.answer(done)?;
                    answered = true;
                }
            }
            // New futures are polled before this returns, so that they hold the current waker.
            if !moved && (!std::mem::take(&mut answered) || !self.signal(steps)?) {
                return Ok(());
            }
        }
    }

    /// Signals new answers to the client, unless the client has disabled notifications.
    fn signal(&self, steps: &Steps) -> Result<bool, RingError> {
        let call = self.call.borrow().clone();
        let wanted = self.queue.borrow_mut().needs_notification(&**self.memory.borrow())? | self.must_signal.take();
        let Some(call) = call.filter(|_| wanted) else { return Ok(false) };
        steps.push(Box::pin(async move { Step::Signalled(call.signal().await) }));
        Ok(true)
    }

    /// The head of the next chain to start. `None` when there is none, or a limit holds it back.
    fn next_head(&self) -> Result<Option<u16>, RingError> {
        if self.stopping.get() || !self.enabled.get() || self.bytes_in_flight.get() >= BYTES_IN_FLIGHT_MAX {
            return Ok(None);
        }
        if let Some(head) = self.again.borrow_mut().pop_front() {
            return Ok(Some(head));
        }
        let (mut queue, memory) = (self.queue.borrow_mut(), self.memory.borrow());
        for _ in 0..2 {
            if let Some(chain) = queue.iter(&**memory)?.next() {
                let head = chain.head_index();
                if head >= queue.size() {
                    return Err(ChainError::Index(head).into()); // read from the client, so not checked yet
                }
                if let Some(inflight) = &mut *self.inflight.borrow_mut() {
                    inflight.begin(head)?;
                }
                return Ok(Some(head));
            }
            // Enables notifications. A request may have arrived meanwhile.
            if !queue.enable_notification(&**memory)? {
                return Ok(None);
            }
        }
        Err(RingError::Nowhere)
    }

    /// Starts the request at `head`. Returns it if it finished at once.
    fn begin(self: &Rc<Self>, head: u16, steps: &Steps, cx: &mut Context<'_>) -> Result<Option<Done>, RingError> {
        let (memory, table, size) = {
            let queue = self.queue.borrow();
            (self.memory.borrow().clone(), GuestAddress(queue.desc_table()), queue.size())
        };
        let chain = Chain::walk(&memory, table, size, head)?;
        let bytes = u64::from(chain.readable.bytes) + u64::from(chain.writable.bytes);
        self.bytes_in_flight.set(self.bytes_in_flight.get() + bytes);
        let ring = self.clone();
        let mut execution: LocalBoxFuture<'static, Step> = Box::pin(async move {
            let written = request::serve(&ring.volume, &ring.properties, ring.durability, &memory, &chain).await;
            Step::Done((head, written, bytes))
        });
        match execution.as_mut().poll(cx) {
            Poll::Ready(Step::Done(done)) => return Ok(Some(done)),
            Poll::Ready(Step::Signalled(_)) => unreachable!("a request ends as one"),
            Poll::Pending => steps.push(execution),
        }
        Ok(None)
    }

    fn answer(&self, (head, written, bytes): Done) -> Result<(), RingError> {
        self.bytes_in_flight.set(self.bytes_in_flight.get() - bytes);
        let inflight = self.inflight.borrow();
        if let Some(inflight) = &*inflight {
            inflight.answering(head)?;
        }
        let mut queue = self.queue.borrow_mut();
        queue.add_used(&**self.memory.borrow(), head, written)?;
        if let Some(inflight) = &*inflight {
            inflight.answered(head, queue.next_used())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryVolume;
    use crate::vhost_user::inflight::Records;
    use futures_util::task::noop_waker_ref;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    use std::sync::Arc;
    use virtio_queue::desc::split::Descriptor;
    use vm_memory::{Bytes, GuestMemoryMmap, MmapRegion};

    const SIZE: u16 = 8;
    const MEMORY_BYTES: usize = 0x8000;
    const TABLE: u64 = 0x4000;
    const INDIRECT: u64 = 0x4800;
    const AVAILABLE: u64 = 0x5000;
    /// Here the ring's index lies within the memory, and its entries outside.
    const AT_THE_END: u64 = MEMORY_BYTES as u64 - 4;
    const USED: u64 = 0x6000;

    /// The contents of a client's memory: kind and sector of each request's head, descriptors of two tables, the
    /// available ring, and the records of requests in flight.
    #[derive(Debug)]
    struct Foreign {
        heads: Vec<(u32, u64)>,
        descriptors: Vec<(u64, u32, u16, u16)>,
        available_at: u64,
        available: Vec<u16>,
        available_index: u16,
        used_index: u16,
        inflight: Option<Vec<u8>>,
    }

    /// Mostly valid values, so that not everything is refused at once.
    fn foreign() -> impl Strategy<Value = Foreign> {
        let address = prop_oneof![6 => 0..MEMORY_BYTES as u64, 2 => Just(INDIRECT), 1 => any::<u64>()];
        let length = prop_oneof![4 => Just(16_u32), 2 => Just(1), 4 => 0..5000_u32, 1 => any::<u32>()];
        let next = prop_oneof![8 => 0..SIZE, 1 => any::<u16>()];
        let head = prop_oneof![8 => 0..SIZE, 1 => any::<u16>()];
        let index = prop_oneof![8 => 0..=SIZE, 1 => any::<u16>()];
        let kind = prop_oneof![8 => 0..16_u32, 1 => any::<u32>()];
        let sector = prop_oneof![4 => 0..64_u64, 1 => any::<u64>()];
        let inflight = proptest::option::of(vec(prop_oneof![0..2_u8, any::<u8>()], Inflight::bytes(SIZE)));
        let parts = (
            vec((kind, sector), 256),
            vec((address, length, 0..8_u16, next), 2 * usize::from(SIZE)),
            prop_oneof![9 => Just(AVAILABLE), 1 => Just(AT_THE_END)],
            vec(head, usize::from(SIZE)),
            index,
            prop_oneof![4 => Just(0_u16), 1 => any::<u16>()],
            inflight,
        );
        parts.prop_map(|(heads, descriptors, available_at, available, available_index, used_index, inflight)| Foreign {
            heads,
            descriptors,
            available_at,
            available,
            available_index,
            used_index,
            inflight,
        })
    }

    fn memory(foreign: &Foreign) -> GuestMemoryMmap {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).expect("memory");
        for (number, (kind, sector)) in foreign.heads.iter().enumerate() {
            let at = number as u64 * 16;
            memory.write_obj(*kind, GuestAddress(at)).expect("it is there");
            memory.write_obj(*sector, GuestAddress(at + 8)).expect("it is there");
        }
        let (table, indirect) = foreign.descriptors.split_at(usize::from(SIZE));
        for (start, table) in [(TABLE, table), (INDIRECT, indirect)] {
            for (number, (address, length, flags, next)) in table.iter().enumerate() {
                let at = GuestAddress(start + number as u64 * 16);
                memory.write_obj(Descriptor::new(*address, *length, *flags, *next), at).expect("it is there");
            }
        }
        memory.write_obj(foreign.available_index, GuestAddress(foreign.available_at + 2)).expect("it is there");
        for (number, head) in foreign.available.iter().enumerate().filter(|_| foreign.available_at != AT_THE_END) {
            memory.write_obj(*head, GuestAddress(foreign.available_at + 4 + 2 * number as u64)).expect("it is there");
        }
        memory.write_obj(foreign.used_index, GuestAddress(USED + 2)).expect("it is there");
        memory
    }

    /// Serves the requests available, until none is left or the ring is invalid.
    fn serve(foreign: &Foreign) -> Result<(), RingError> {
        let mut queue = Queue::new(SIZE)?;
        queue.try_set_desc_table_address(GuestAddress(TABLE))?;
        queue.try_set_avail_ring_address(GuestAddress(foreign.available_at))?;
        queue.try_set_used_ring_address(GuestAddress(USED))?;
        queue.set_ready(true);
        let inflight = foreign.inflight.as_ref().map(|notes| {
            let region = MmapRegion::new(notes.len()).expect("memory");
            vm_memory::VolatileMemory::as_volatile_slice(&region).write_slice(notes, 0).expect("it fits");
            Records::in_region(region, 1).and_then(|records| records.of(0, SIZE)).expect("it fits")
        });
        let setup = Setup { queue, memory: Arc::new(memory(foreign)), inflight, durability: Durability::Ordinary };
        let volume = MemoryVolume::new(64 << 10, engine::Pool::new(1 << 20));
        let properties = Rc::new(Properties::of(&volume, "foreign"));
        let kick = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("an eventfd");
        let ring = Rc::new(Ring::new(volume, properties, setup, Event::new(kick))?);
        ring.enable(true);
        let mut steps = Steps::new();
        ring.turn(&mut steps, &mut Context::from_waker(noop_waker_ref()))?;
        assert!(steps.is_empty() && ring.bytes_in_flight.get() == 0, "memory answers at once");
        Ok(())
    }

    /// The client's eventfd belongs to an executor.
    fn in_an_executor(work: impl FnOnce()) {
        let options = io::Options { register: false, ..io::Options::new(engine::Pool::new(1 << 20)) };
        io::Executor::new(&options).expect("a ring of the kernel's").block_on(async { work() });
    }

    #[test]
    fn no_contents_of_a_clients_memory_cause_a_panic() {
        in_an_executor(|| {
            let mut runner = TestRunner::new(ProptestConfig::with_cases(2000));
            let served = Cell::new(0);
            let done = runner.run(&foreign(), |foreign| {
                served.set(served.get() + u32::from(serve(&foreign).is_ok()));
                Ok(())
            });
            done.unwrap_or_else(|error| panic!("{error}"));
            assert!((200..1800).contains(&served.get()), "{} of 2000 made sense to the end", served.get());
        });
    }

    /// A ring whose index announces that many requests, with empty memory.
    fn said_to_be_there(available_index: u16) -> Foreign {
        Foreign {
            heads: Vec::new(),
            descriptors: vec![(0, 0, 0, 0); 2 * usize::from(SIZE)],
            available_at: AVAILABLE,
            available: vec![0; usize::from(SIZE)],
            available_index,
            used_index: 0,
            inflight: Some(vec![0; Inflight::bytes(SIZE)]),
        }
    }

    #[test]
    fn requests_that_cannot_be_there_are_refused() {
        let no_descriptor = Foreign { available: vec![SIZE; usize::from(SIZE)], ..said_to_be_there(1) };
        let no_memory = Foreign { available_at: AT_THE_END, ..said_to_be_there(1) };
        for (foreign, expected) in [
            (no_descriptor, "a chain of descriptors: descriptor 8 does not exist"),
            (no_memory, "the queue: the next available request cannot be read"),
            (
                said_to_be_there(SIZE + 1),
                "the queue: invalid available ring index (more descriptors to process than queue size)",
            ),
        ] {
            in_an_executor(|| {
                let error = serve(&foreign).expect_err("it cannot be there");
                assert_eq!(error.to_string(), expected);
            });
        }
    }
}
