//! Work for an executor from other threads: the only module of this crate in which threads meet.
//!
//! Each executor has an [`Inbox`]: jobs, and ids of tasks to wake, behind a mutex. The owning thread checks a flag in
//! each of its rounds, and takes the mutex only when the flag is set. Before it waits for its ring, it asks to be woken
//! by a bell. So another thread wakes a task of a busy one without a system call. It never moves a future between
//! threads. Source: the system's [`Bell`].

use crate::descriptor::Descriptor;
use crate::executor::{Core, spawn};
use crate::system::bell::Bell;
use crate::transfer;
use crate::wake::TaskId;
use futures_channel::oneshot;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The inboxes of all executors of the process, by executor id.
static INBOXES: Mutex<BTreeMap<u16, Arc<Inbox>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks, and the state is consistent between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Inbox {
    executor: u16,
    bell: Bell,
    contents: Mutex<Contents>,
    /// A sender has added something since the owner last looked.
    is_filled: AtomicBool,
    /// The owner waits, or is about to: the next sender must ring the bell.
    is_awaited: AtomicBool,
}

#[derive(Default)]
struct Contents {
    jobs: Vec<Job>,
    wakes: Vec<TaskId>,
    is_closed: bool,
}

impl Inbox {
    /// Creates an inbox under a free executor id.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let bell = Bell::new()?;
        let mut inboxes = lock(&INBOXES);
        let executor = (0..=u16::MAX)
            .find(|number| !inboxes.contains_key(number))
            .ok_or_else(|| io::Error::other("more than 65536 executors"))?;
        let inbox = Arc::new(Self {
            executor,
            bell,
            contents: Mutex::default(),
            is_filled: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
        });
        inboxes.insert(executor, inbox.clone());
        Ok(inbox)
    }

    pub(crate) fn executor_id(&self) -> u16 {
        self.executor
    }

    /// Refuses further jobs, and drops the waiting ones.
    pub(crate) fn close(&self) {
        lock(&INBOXES).remove(&self.executor);
        let jobs = {
            let mut contents = lock(&self.contents);
            contents.is_closed = true;
            std::mem::take(&mut contents.jobs)
        };
        drop(jobs); // not under the lock, because this runs arbitrary destructors
    }

    /// Adds to the contents and makes sure that the owner will look; does nothing when the owner is gone.
    fn put(&self, add: impl FnOnce(&mut Contents)) {
        {
            let mut contents = lock(&self.contents);
            if contents.is_closed {
                return;
            }
            add(&mut contents);
        }
        // Both accesses are sequentially consistent, so one side sees the other's flag: the owner sees that something
        // arrived, or this thread sees that the owner waits.
        self.is_filled.store(true, Ordering::SeqCst);
        if self.is_awaited.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// Owner only, in each round: carries out what was added.
    pub(crate) fn empty(&self, core: &Core) {
        if !self.is_filled.load(Ordering::Relaxed) {
            return;
        }
        // Before the contents are taken, so that anything added later is seen in the next round.
        self.is_filled.store(false, Ordering::SeqCst);
        let (jobs, wakes) = {
            let mut contents = lock(&self.contents);
            (std::mem::take(&mut contents.jobs), std::mem::take(&mut contents.wakes))
        };
        wakes.into_iter().for_each(|task| core.wake(task));
        jobs.into_iter().for_each(|job| job());
    }

    /// Owner only: whether it may wait. If so, a sender ends the wait by the bell, until [`Inbox::is_awake`].
    pub(crate) fn may_wait(&self) -> bool {
        self.is_awaited.store(true, Ordering::SeqCst);
        let may = !self.is_filled.load(Ordering::SeqCst);
        if !may {
            self.is_awake();
        }
        may
    }

    /// Owner only: after its wait.
    pub(crate) fn is_awake(&self) {
        self.is_awaited.store(false, Ordering::SeqCst);
    }
}

/// Wakes a task of another thread's executor.
pub(crate) fn forward(task: TaskId) {
    let inbox = lock(&INBOXES).get(&task.executor()).cloned();
    if let Some(inbox) = inbox {
        inbox.put(|contents| contents.wakes.push(task));
    }
}

/// The task that each executor runs, so that an addition to its inbox ends its wait.
pub(crate) fn serve(inbox: &Inbox) -> io::Result<impl Future<Output = ()> + use<>> {
    let event = Descriptor::new(inbox.bell.reader()?);
    Ok(async move {
        loop {
            let (read, _) = transfer::read_bytes(&event, vec![0; 8].into()).await;
            if read.is_err() {
                return; // the ring is closing
            }
        }
    })
}

/// A handle to an executor, for other threads.
#[derive(Clone)]
pub struct Remote {
    inbox: Arc<Inbox>,
}

impl Remote {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self { inbox }
    }

    /// Calls `start` on the executor's thread, runs the returned future there as a task, and returns its output here.
    /// The task starts whether or not the result is awaited. Dropping the result does not stop the task.
    ///
    /// # Errors
    /// [`Stopped`] when the executor ends before the task does.
    pub fn run<F, T>(
        &self,
        start: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Result<T, Stopped>> + Send
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            drop(spawn(async move {
                // Sending fails when the result was dropped, as documented.
                let _ = sender.send(start().await);
            }));
        });
        self.inbox.put(|contents| contents.jobs.push(job));
        async move { receiver.await.map_err(|oneshot::Canceled| Stopped) }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("executor", &self.inbox.executor).finish()
    }
}

/// The executor ended before the work was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the executor has stopped")]
pub struct Stopped;
