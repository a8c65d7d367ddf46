//! A deterministic executor in virtual time. It has one thread, polls tasks in the order in which they were woken, and
//! when no task can run it moves the clock to the moment at which the next sleeper wakes.

use crate::random::Random;
use engine::{Clock, Moment};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Tasks, virtual time and a random stream. Clones share it.
#[derive(Clone)]
pub struct World(Rc<State>);

struct State {
    now: Cell<u64>,
    /// How often the wall clock was read.
    readings: Cell<u64>,
    random: RefCell<Random>,
    tasks: RefCell<Tasks>,
    woken: Arc<Woken>,
    /// Wakers of sleeping tasks, ordered by the moment at which they are due, then by the order in which they were
    /// registered.
    sleepers: RefCell<BTreeMap<(u64, u64), Waker>>,
    next_sleeper: Cell<u64>,
    tracer: RefCell<Option<Tracer>>,
}

/// Receives one line of text for each traced event.
pub type Tracer = Rc<dyn Fn(&str)>;

/// Tasks by number. A number is never given twice, so a late waker wakes no other task. `None` stands for a task that
/// has ended or is being polled.
type Tasks = Vec<Option<Task>>;

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

/// The numbers of woken tasks, in order. Wakers share the queue, so it must be `Send`.
#[derive(Default)]
struct Woken(Mutex<VecDeque<usize>>);

impl Woken {
    fn push(&self, task: usize) {
        self.0.lock().expect("no task panics while waking").push_back(task);
    }

    fn pop(&self) -> Option<usize> {
        self.0.lock().expect("no task panics while waking").pop_front()
    }

    fn clear(&self) {
        self.0.lock().expect("no task panics while waking").clear();
    }
}

struct TaskWaker {
    task: usize,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.push(self.task);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.push(self.task);
    }
}

/// The task number of the future that [`World::run`] drives.
const MAIN: usize = usize::MAX;

impl World {
    /// Makes a world from `seed`, at time zero.
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(State {
            now: Cell::new(0),
            readings: Cell::new(0),
            random: RefCell::new(Random::new(seed)),
            tasks: RefCell::default(),
            woken: Arc::default(),
            sleepers: RefCell::default(),
            next_sleeper: Cell::new(0),
            tracer: RefCell::default(),
        }))
    }

    /// A number in `range` from the world's random stream.
    pub fn chance(&self, range: std::ops::Range<u64>) -> u64 {
        self.0.random.borrow_mut().within(range)
    }

    /// Sends every traced event of this world to `tracer` from now on.
    pub fn set_tracer(&self, tracer: Tracer) {
        *self.0.tracer.borrow_mut() = Some(tracer);
    }

    /// Traces an event. `what` is only called while a tracer is set.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        if let Some(tracer) = &*self.0.tracer.borrow() {
            tracer(&format!("{:9.3} ms  {}", self.0.now.get() as f64 / 1e6, what()));
        }
    }

    /// The world's clock.
    pub fn clock(&self) -> VirtualClock {
        VirtualClock(self.clone())
    }

    /// Starts a task.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let tasks = &mut *self.0.tasks.borrow_mut();
        let number = tasks.len();
        tasks.push(Some(Task { future: Box::pin(future), waker: self.waker(number) }));
        self.0.woken.push(number);
    }

    /// Runs until `future` is done, or until `stop` returns true, which models a loss of power: then every task is
    /// dropped where it stands, and there is no result.
    ///
    /// # Panics
    /// On a deadlock: no task can run and none sleeps.
    pub fn run<F: Future>(&self, future: F, stop: impl Fn() -> bool) -> Option<F::Output> {
        let mut future = pin!(future);
        let main = self.waker(MAIN);
        self.0.woken.push(MAIN);
        loop {
            if stop() {
                self.forget_all();
                return None;
            }
            match self.0.woken.pop() {
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

    /// Drops every task but the main one, wherever it stands.
    pub fn forget_all(&self) {
        // Dropping a task may wake another one, so the tasks go before the queue.
        drop(self.0.tasks.take());
        self.0.sleepers.take();
        self.0.woken.clear();
    }

    fn waker(&self, task: usize) -> Waker {
        Waker::from(Arc::new(TaskWaker { task, woken: self.0.woken.clone() }))
    }

    fn poll(&self, number: usize) {
        let task = self.0.tasks.borrow_mut().get_mut(number).and_then(Option::take);
        let Some(mut task) = task else { return };
        if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_pending() {
            self.0.tasks.borrow_mut()[number] = Some(task);
        }
    }

    /// Moves the clock to the moment at which the next sleeper wakes, and wakes it.
    fn advance(&self) {
        let next = self.0.sleepers.borrow_mut().pop_first();
        let ((moment, _), waker) = next.expect("deadlock: no task can run and none sleeps");
        self.0.now.set(self.0.now.get().max(moment));
        waker.wake();
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
        Sleep { world: self.0.clone(), moment, lying: None }
    }

    fn wall(&self) -> Duration {
        /// 2026-01-01: a simulated array needs a plausible time of creation.
        const START_SECONDS: u64 = 1_767_225_600;
        // Reading a real clock takes time: two readings are never the same.
        let readings = &self.0.0.readings;
        readings.set(readings.get() + 1);
        let elapsed = Duration::from_nanos(self.0.0.now.get()) + Duration::from_micros(readings.get());
        Duration::from_secs(START_SECONDS) + elapsed
    }
}

/// A sleep that is dropped removes its waker. A stale wake-up would hide the fault that the task's current wait never
/// wakes it.
struct Sleep {
    world: World,
    moment: Moment,
    /// The registered waker and its number among the sleepers.
    lying: Option<(Waker, u64)>,
}

impl Sleep {
    fn rise(&mut self) {
        if let Some((_, number)) = self.lying.take() {
            self.world.0.sleepers.borrow_mut().remove(&(self.moment.nanos, number));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.world.0.now.get() >= self.moment.nanos {
            return Poll::Ready(());
        }
        if self.lying.as_ref().is_some_and(|(waker, _)| waker.will_wake(context.waker())) {
            return Poll::Pending;
        }
        self.rise();
        let state = &self.world.0;
        let number = state.next_sleeper.replace(state.next_sleeper.get() + 1);
        state.sleepers.borrow_mut().insert((self.moment.nanos, number), context.waker().clone());
        self.lying = Some((context.waker().clone(), number));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.rise();
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
    fn a_world_in_which_every_task_waits_is_a_deadlock() {
        World::new(1).run(std::future::pending::<()>(), || false);
    }
}
