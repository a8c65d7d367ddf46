//! A deterministic executor in virtual time: one thread, tasks polled in the
//! order they were woken, time that jumps to the next sleeper when nobody runs.

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

/// The world: tasks, time and chance. Clones share it.
#[derive(Clone)]
pub struct World(Rc<State>);

struct State {
    now: Cell<u64>,
    random: RefCell<Random>,
    tasks: RefCell<Tasks>,
    woken: Arc<Woken>,
    /// Whom to wake, by the moment, and those of one in the order in which they lay down.
    sleepers: RefCell<BTreeMap<(u64, u64), Waker>>,
    next_sleeper: Cell<u64>,
    tracer: RefCell<Option<Tracer>>,
}

/// Is told what happens, a line at a time.
pub type Tracer = Rc<dyn Fn(&str)>;

/// Tasks by number, which no other is ever given: a late waker wakes nobody. `None`: it has ended, or is being polled.
type Tasks = Vec<Option<Task>>;

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

/// Tasks to poll, in order. Shared with wakers, which must be `Send`.
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
    /// The world of `seed`, at time zero.
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(State {
            now: Cell::new(0),
            random: RefCell::new(Random::new(seed)),
            tasks: RefCell::default(),
            woken: Arc::default(),
            sleepers: RefCell::default(),
            next_sleeper: Cell::new(0),
            tracer: RefCell::default(),
        }))
    }

    /// A number of `range` by the world's own chance.
    pub fn chance(&self, range: std::ops::Range<u64>) -> u64 {
        self.0.random.borrow_mut().within(range)
    }

    /// Tells `tracer` from now on what happens in this world.
    pub fn set_tracer(&self, tracer: Tracer) {
        *self.0.tracer.borrow_mut() = Some(tracer);
    }

    /// Something happens; `what` is worked out only when somebody listens.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        if let Some(tracer) = &*self.0.tracer.borrow() {
            tracer(&format!("{:9.3} ms  {}", self.0.now.get() as f64 / 1e6, what()));
        }
    }

    /// The world's clock.
    pub fn clock(&self) -> VirtualClock {
        VirtualClock(self.clone())
    }

    /// Starts a task of its own.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let tasks = &mut *self.0.tasks.borrow_mut();
        let number = tasks.len();
        tasks.push(Some(Task { future: Box::pin(future), waker: self.waker(number) }));
        self.0.woken.push(number);
    }

    /// Runs until `future` is done, or until `stop` says that the power goes:
    /// then every task is dropped where it stands and there is no result.
    ///
    /// # Panics
    /// When nothing can go on: everybody waits for somebody.
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

    /// Every task but the main one ends where it stands.
    pub fn forget_all(&self) {
        // Dropping a task may wake another, so the tasks go first.
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

    /// Lets time pass until the next sleeper wakes.
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
        /// 2026-01-01; a simulated array must have been made some time.
        const START_SECONDS: u64 = 1_767_225_600;
        Duration::from_secs(START_SECONDS) + Duration::from_nanos(self.0.0.now.get())
    }
}

/// One that is dropped wakes nobody: that would hide that what its task waits for now does not wake it.
struct Sleep {
    world: World,
    moment: Moment,
    /// Who is to be woken, once somebody is, and the number among the sleepers.
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
    fn a_world_in_which_everybody_waits_is_a_deadlock() {
        World::new(1).run(std::future::pending::<()>(), || false);
    }
}
