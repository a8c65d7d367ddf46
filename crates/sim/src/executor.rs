//! A deterministic executor in virtual time: one thread, tasks polled in the
//! order they were woken, time that jumps to the next sleeper when nobody runs.

use crate::random::Random;
use engine::{Clock, Moment};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The world: tasks, time and chance. Clones share it.
#[derive(Clone)]
pub struct World(Rc<State>);

struct State {
    now: Cell<u64>,
    random: RefCell<Random>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    next_task: Cell<u64>,
    woken: Arc<Woken>,
    sleepers: RefCell<BinaryHeap<Reverse<(u64, u64)>>>,
    wakers: RefCell<BTreeMap<u64, Waker>>,
    next_sleeper: Cell<u64>,
}

/// Tasks to poll, in order. Shared with wakers, which must be `Send`.
#[derive(Default)]
struct Woken(Mutex<VecDeque<u64>>);

struct TaskWaker {
    task: u64,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.0.lock().expect("no task panics while waking").push_back(self.task);
    }
}

/// The task number of the future that [`World::run`] drives.
const MAIN: u64 = 0;

impl World {
    /// The world of `seed`, at time zero.
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(State {
            now: Cell::new(0),
            random: RefCell::new(Random::new(seed)),
            tasks: RefCell::default(),
            next_task: Cell::new(MAIN + 1),
            woken: Arc::default(),
            sleepers: RefCell::default(),
            wakers: RefCell::default(),
            next_sleeper: Cell::new(0),
        }))
    }

    /// A number of `range` by the world's own chance.
    pub fn chance(&self, range: std::ops::Range<u64>) -> u64 {
        self.0.random.borrow_mut().within(range)
    }

    /// The world's clock.
    pub fn clock(&self) -> VirtualClock {
        VirtualClock(self.clone())
    }

    /// Starts a task of its own.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let task = self.0.next_task.replace(self.0.next_task.get() + 1);
        self.0.tasks.borrow_mut().insert(task, Box::pin(future));
        self.0.woken.0.lock().expect("no task panics while waking").push_back(task);
    }

    /// Runs until `future` is done, or until `stop` says that the power goes:
    /// then every task is dropped where it stands and there is no result.
    ///
    /// # Panics
    /// When nothing can go on: everybody waits for somebody.
    pub fn run<F: Future>(&self, future: F, stop: impl Fn() -> bool) -> Option<F::Output> {
        let mut future = pin!(future);
        let main = self.waker(MAIN);
        self.0.woken.0.lock().expect("no task panics while waking").push_back(MAIN);
        loop {
            if stop() {
                self.forget_all();
                return None;
            }
            let task = self.0.woken.0.lock().expect("no task panics while waking").pop_front();
            match task {
                Some(MAIN) => {
                    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&main)) {
                        return Some(output);
                    }
                }
                Some(task) => self.poll(task),
                None => self.advance(),
            }
        }
    }

    fn forget_all(&self) {
        // Dropping a task may wake another, so the tasks go first.
        drop(self.0.tasks.take());
        self.0.sleepers.take();
        self.0.wakers.take();
        self.0.woken.0.lock().expect("no task panics while waking").clear();
    }

    fn waker(&self, task: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker { task, woken: self.0.woken.clone() }))
    }

    fn poll(&self, task: u64) {
        let Some(mut future) = self.0.tasks.borrow_mut().remove(&task) else { return };
        if future.as_mut().poll(&mut Context::from_waker(&self.waker(task))).is_pending() {
            self.0.tasks.borrow_mut().insert(task, future);
        }
    }

    /// Lets time pass until the next sleeper wakes.
    fn advance(&self) {
        let Reverse((moment, sleeper)) =
            self.0.sleepers.borrow_mut().pop().expect("deadlock: no task can run and none sleeps");
        self.0.now.set(self.0.now.get().max(moment));
        if let Some(waker) = self.0.wakers.borrow_mut().remove(&sleeper) {
            waker.wake();
        }
    }
}

/// Virtual time.
#[derive(Clone)]
pub struct VirtualClock(World);

impl Clock for VirtualClock {
    fn now(&self) -> Moment {
        Moment { nanos: self.0.0.now.get() }
    }

    fn sleep_until(&self, moment: Moment) -> impl Future<Output = ()> + use<> {
        Sleep { world: self.0.clone(), moment, sleeper: None }
    }

    fn wall(&self) -> Duration {
        /// 2026-01-01; a simulated array must have been made some time.
        const START_SECONDS: u64 = 1_767_225_600;
        Duration::from_secs(START_SECONDS) + Duration::from_nanos(self.0.0.now.get())
    }
}

struct Sleep {
    world: World,
    moment: Moment,
    sleeper: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let state = self.world.0.clone();
        if state.now.get() >= self.moment.nanos {
            return Poll::Ready(());
        }
        let moment = self.moment.nanos;
        let sleeper = *self.sleeper.get_or_insert_with(|| {
            let sleeper = state.next_sleeper.replace(state.next_sleeper.get() + 1);
            state.sleepers.borrow_mut().push(Reverse((moment, sleeper)));
            sleeper
        });
        state.wakers.borrow_mut().insert(sleeper, context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_jumps_to_the_next_sleeper_and_sleepers_wake_in_order() {
        let world = World::new(1);
        let clock = world.clock();
        let order = Rc::new(RefCell::new(Vec::new()));
        for nanos in [30, 10, 20] {
            let (clock, order) = (clock.clone(), order.clone());
            world.spawn(async move {
                clock.sleep_until(Moment { nanos }).await;
                order.borrow_mut().push(clock.now().nanos);
            });
        }
        world.run(clock.sleep_until(Moment { nanos: 40 }), || false).expect("not stopped");
        assert_eq!(*order.borrow(), [10, 20, 30]);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_world_in_which_everybody_waits_is_a_deadlock() {
        World::new(1).run(std::future::pending::<()>(), || false);
    }
}
