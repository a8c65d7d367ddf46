//! The executor of one thread: tasks, one backend, one clock.
//!
//! Each round polls every task that was ready when the round began. Then it enters the backend once, with all queued
//! operations, and waits there only when no task is ready. So with io_uring a busy thread pays one system call for many
//! operations, and an idle one sleeps.
//!
//! Invariants:
//! - Only the thread that spawned a task polls it.
//! - A thread has at most one executor. [`spawn`], the clock, members and sockets find it through the thread.
//! - Tasks may wake, spawn, queue operations and drop anything while they run: no cell of [`Core`] stays borrowed
//!   across a poll or a destructor.
//!
//! Sources: io_uring(7), io_uring_enter(2).

use crate::backend::{Backend, Choice};
use crate::driver::{Driver, Wait};
use crate::remote::{Inbox, Remote};
use crate::time::Timers;
use crate::wake::TaskId;
use engine::Pool;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// The settings of an [`Executor`].
#[derive(Debug, Clone)]
pub struct Options {
    /// io_uring or threads.
    pub backend: Choice,
    /// Entries of a ring's submission queue. Further operations are queued in user space. The queue is shorter when the
    /// limit on locked memory (`RLIMIT_MEMLOCK`) requires it.
    pub ring_entries: u32,
    /// The pool of the thread's buffers.
    pub pool: Pool,
    /// Whether to set up what makes transfers much cheaper. With io_uring that is the registration of the pool's arena
    /// and of the open files; registered pages are pinned as they are used. With threads it is the kernel's older
    /// asynchronous interface (io_submit(2)) for direct transfers.
    pub register: bool,
}

impl Options {
    /// io_uring if possible, with 256 entries and registration.
    pub fn new(pool: Pool) -> Self {
        Self { backend: Choice::Auto, ring_entries: 256, pool, register: true }
    }
}

/// Runs futures on the current thread. Dropping it drops its tasks, cancels the operations in flight, and waits until
/// the kernel has released their memory.
pub struct Executor {
    core: Rc<Core>,
}

impl Executor {
    /// Creates the thread's executor.
    ///
    /// # Errors
    /// When the system refuses the backend. For io_uring: an old kernel, `kernel.io_uring_disabled`, a container's
    /// filter, no memory. For threads, and so for the automatic choice: no descriptors left.
    ///
    /// # Panics
    /// When the thread already has an executor.
    pub fn new(options: &Options) -> io::Result<Self> {
        let driver = Driver::new(options)?;
        let inbox = Inbox::new()?;
        let core = Rc::new(Core {
            driver,
            timers: Timers::default(),
            tasks: RefCell::default(),
            ready: RefCell::default(),
            pool: options.pool.clone(),
            running: Cell::new(false),
            rounds: Rc::default(),
            inbox,
        });
        CURRENT.with_borrow_mut(|current| {
            assert!(current.is_none(), "a thread has one executor");
            *current = Some(core.clone());
        });
        let executor = Self { core };
        executor.core.spawn(Box::pin(crate::remote::serve(&executor.core.inbox)?));
        Ok(executor)
    }

    /// Runs `future` and every spawned task until `future` is done. The other tasks continue with the next call.
    ///
    /// # Panics
    /// When a task calls it, and when `future` or a task panics.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        assert!(!self.core.running.replace(true), "block_on called from a task");
        let running = Running(&self.core);
        let main = self.core.tasks.borrow_mut().insert(None);
        let output = running.0.run(pin!(future), main);
        self.core.tasks.borrow_mut().remove(main.index());
        output
    }

    /// The pool of the [`Options`].
    pub fn pool(&self) -> &Pool {
        &self.core.pool
    }

    /// The backend in use.
    pub fn backend(&self) -> Backend {
        self.core.driver.backend()
    }

    /// Why the system refused io_uring, if the automatic choice fell on threads.
    pub fn io_uring_refusal(&self) -> Option<&io::Error> {
        self.core.driver.refusal()
    }

    /// How many bytes of the pool's arena are registered with the kernel, from its start: all of a large arena, of a
    /// smaller one those used so far. The limit on locked memory (`RLIMIT_MEMLOCK`) may allow less, or none. Threads
    /// register none.
    pub fn registered_bytes(&self) -> usize {
        self.core.driver.registered_bytes()
    }

    /// A handle by which other threads run work here.
    pub fn remote(&self) -> Remote {
        Remote::new(self.core.inbox.clone())
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.core.inbox.close();
        // A destructor may spawn another task; each is dropped in turn.
        loop {
            let future = self.core.tasks.borrow_mut().take_any();
            if future.is_none() {
                break;
            }
        }
        self.core.driver.close();
        CURRENT.with_borrow_mut(Option::take);
    }
}

/// Resets `running` when `block_on` ends, also by a panic.
struct Running<'a>(&'a Core);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(false);
    }
}

/// An executor's state, shared by everything that belongs to its thread.
pub(crate) struct Core {
    pub(crate) driver: Driver,
    pub(crate) timers: Timers,
    tasks: RefCell<Tasks>,
    ready: RefCell<VecDeque<u32>>,
    pub(crate) pool: Pool,
    running: Cell<bool>,
    /// Rounds since the start.
    pub(crate) rounds: Rc<Cell<u64>>,
    inbox: Arc<Inbox>,
}

impl Core {
    /// The current thread's core.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub(crate) fn current() -> Rc<Core> {
        CURRENT.with_borrow(Option::clone).expect("this thread has an io::Executor")
    }

    /// Calls `f` with the current thread's core, if there is one.
    pub(crate) fn try_current<T>(f: impl FnOnce(&Core) -> T) -> Option<T> {
        CURRENT.try_with(|current| current.try_borrow().ok()?.as_deref().map(f)).ok().flatten()
    }

    pub(crate) fn executor_id(&self) -> u16 {
        self.inbox.executor_id()
    }

    /// Makes a task ready. A task that has ended stays ended.
    pub(crate) fn wake(&self, task: TaskId) {
        if self.tasks.borrow_mut().mark_ready(task) {
            self.ready.borrow_mut().push_back(task.index());
        }
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) {
        let task = self.tasks.borrow_mut().insert(Some(future));
        self.wake(task.of(self.executor_id()));
    }

    fn run<F: Future>(&self, mut main: Pin<&mut F>, main_task: TaskId) -> F::Output {
        let main_waker = main_task.of(self.executor_id()).waker();
        self.wake(main_task);
        loop {
            self.rounds.set(self.rounds.get() + 1);
            self.inbox.empty(self);
            let batch = self.ready.borrow().len();
            for _ in 0..batch {
                let Some(index) = self.ready.borrow_mut().pop_front() else { break };
                if index != main_task.index() {
                    self.poll_task(index);
                    continue;
                }
                self.tasks.borrow_mut().unmark(index);
                if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&main_waker)) {
                    return output;
                }
            }
            self.timers.fire();
            self.enter();
        }
    }

    fn poll_task(&self, index: u32) {
        let Some((mut future, task)) = self.tasks.borrow_mut().begin(index) else { return };
        let waker = task.of(self.executor_id()).waker();
        let finished = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if finished {
            self.tasks.borrow_mut().remove(index);
        } else {
            self.tasks.borrow_mut().put_back(index, future);
        }
    }

    fn enter(&self) {
        if !self.ready.borrow().is_empty() {
            if self.driver.wants_enter() {
                self.driver.enter(Wait::No);
            }
            return;
        }
        if self.inbox.may_wait() {
            self.driver.enter(self.timers.next().map_or(Wait::Forever, Wait::For));
            self.inbox.is_awake();
        }
    }
}

type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks, in slots that are reused. A slot's generation distinguishes its successive tasks.
#[derive(Default)]
struct Tasks {
    slots: Vec<TaskSlot>,
    free: Vec<u32>,
}

struct TaskSlot {
    generation: u32,
    /// Whether the index is in `ready`, so that it is there only once.
    is_ready: bool,
    is_live: bool,
    /// `None` while the task is polled, and for the main future.
    future: Option<TaskFuture>,
}

impl Tasks {
    /// # Panics
    /// When there are more than 2^24 tasks at a time.
    fn insert(&mut self, future: Option<TaskFuture>) -> TaskId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(TaskSlot { generation: 0, is_ready: false, is_live: false, future: None });
            (self.slots.len() - 1) as u32
        });
        assert!(index < TaskId::INDEX_END, "too many tasks");
        let slot = &mut self.slots[index as usize];
        slot.is_live = true;
        slot.future = future;
        TaskId::new(index, slot.generation)
    }

    fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.is_live = false;
        slot.generation = slot.generation.wrapping_add(1);
        // While the index is in `ready`, the slot is not free; `begin` frees it.
        if !slot.is_ready {
            self.free.push(index);
        }
    }

    /// Marks a task as ready. Returns whether its index must be put into `ready`.
    fn mark_ready(&mut self, task: TaskId) -> bool {
        let Some(slot) = self.slots.get_mut(task.index() as usize) else { return false };
        let current = slot.is_live && TaskId::new(task.index(), slot.generation).same_task(task);
        current && !std::mem::replace(&mut slot.is_ready, true)
    }

    fn unmark(&mut self, index: u32) {
        self.slots[index as usize].is_ready = false;
    }

    /// Takes a ready task out for polling, unless it has ended meanwhile.
    fn begin(&mut self, index: u32) -> Option<(TaskFuture, TaskId)> {
        let slot = &mut self.slots[index as usize];
        slot.is_ready = false;
        if !slot.is_live {
            self.free.push(index);
            return None;
        }
        let future = slot.future.take()?;
        Some((future, TaskId::new(index, slot.generation)))
    }

    fn put_back(&mut self, index: u32, future: TaskFuture) {
        self.slots[index as usize].future = Some(future);
    }

    fn take_any(&mut self) -> Option<TaskFuture> {
        self.slots.iter_mut().find_map(|slot| slot.future.take())
    }
}

/// Runs `future` as a task of the current thread's executor.
///
/// # Panics
/// When the thread has no executor.
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    let result = Rc::new(RefCell::new(Join { output: None, waiter: None }));
    let handle = JoinHandle(result.clone());
    Core::current().spawn(Box::pin(async move {
        let output = future.await;
        let waiter = {
            let mut join = result.borrow_mut();
            join.output = Some(output);
            join.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }));
    handle
}

struct Join<T> {
    output: Option<T>,
    waiter: Option<Waker>,
}

/// Waits for a task's output. When it is dropped, the task continues.
///
/// # Panics
/// When polled again after it returned the output.
pub struct JoinHandle<T>(Rc<RefCell<Join<T>>>);

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut join = self.0.borrow_mut();
        match join.output.take() {
            Some(output) => Poll::Ready(output),
            None => {
                assert!(Rc::strong_count(&self.0) > 1, "the task is alive or its output has not been taken");
                join.waiter = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The backend of the current thread's executor.
///
/// # Panics
/// When the thread has no executor.
pub fn current_backend() -> Backend {
    Core::current().driver.backend()
}

/// The pool of the current thread's executor.
///
/// # Panics
/// When the thread has no executor.
pub fn current_pool() -> Pool {
    Core::current().pool.clone()
}

/// Lets every other ready task run first.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
