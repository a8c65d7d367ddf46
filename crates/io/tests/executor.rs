//! Claims about the executor: tasks, timers, wake-ups from other threads. No test waits longer than its timers.

mod support;

use engine::{Clock, Pool};
use futures_util::future::{join_all, select};
use mdspace_io::{Executor, RealClock, spawn, yield_now};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use support::{on_each_backend, options};

fn executor() -> Executor {
    Executor::new(&options(Pool::new(1 << 20))).expect("an executor")
}

#[test]
fn ten_thousand_tasks_take_turns_and_all_end() {
    on_each_backend(|| {
        let executor = executor();
        let turns = Rc::new(Cell::new(0));
        let outputs = executor.block_on(async {
            let tasks = (0..10_000_u64).map(|number| {
                let turns = turns.clone();
                spawn(async move {
                    for _ in 0..3 {
                        turns.set(turns.get() + 1);
                        yield_now().await;
                    }
                    number
                })
            });
            join_all(tasks.collect::<Vec<_>>()).await
        });
        assert_eq!(outputs, (0..10_000).collect::<Vec<_>>());
        assert_eq!(turns.get(), 30_000);
    });
}

#[test]
fn a_task_whose_handle_is_dropped_goes_on_also_in_the_next_block_on() {
    on_each_backend(|| {
        let executor = executor();
        let done = Rc::new(Cell::new(false));
        let shared = done.clone();
        executor.block_on(async {
            drop(spawn(async move {
                yield_now().await;
                yield_now().await;
                shared.set(true);
            }));
        });
        assert!(!done.get());
        executor.block_on(async {
            while !done.get() {
                yield_now().await;
            }
        });
    });
}

#[test]
fn timers_fire_in_the_order_of_their_moments_and_never_early() {
    on_each_backend(|| {
        let executor = executor();
        let order = Rc::new(RefCell::new(Vec::new()));
        executor.block_on(async {
            let clock = Rc::new(RealClock::new());
            let start = clock.now();
            // One task each: it runs when its own timer wakes it, not when another's does.
            let sleepers = [30_u64, 10, 20, 0, 10].into_iter().enumerate().map(|(index, millis)| {
                let (clock, order) = (clock.clone(), order.clone());
                spawn(async move {
                    let moment = start + Duration::from_millis(millis);
                    clock.sleep_until(moment).await;
                    assert!(clock.now() >= moment, "{millis} ms");
                    order.borrow_mut().push((millis, index));
                })
            });
            join_all(sleepers).await;
        });
        assert_eq!(*order.borrow(), [(0, 3), (10, 1), (10, 4), (20, 2), (30, 0)]);
    });
}

#[test]
fn a_dropped_sleep_wakes_no_task() {
    on_each_backend(|| {
        let executor = executor();
        let clock = RealClock::new();
        executor.block_on(async {
            let long = pin!(clock.sleep_until(clock.now() + Duration::from_secs(3600)));
            let short = pin!(clock.sleep_until(clock.now() + Duration::from_millis(1)));
            select(long, short).await;
        });
        let before = clock.now();
        executor.block_on(clock.sleep_until(before + Duration::from_millis(1)));
        assert!(clock.now().since(before) < Duration::from_secs(60));
    });
}

#[test]
fn other_threads_run_work_here_and_get_the_result() {
    on_each_backend(|| {
        let executor = executor();
        let remote = executor.remote();
        let home = std::thread::current().id();
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let remote = remote.clone();
                std::thread::spawn(move || {
                    // Each thread has an executor of its own to wait on.
                    let own = self::executor();
                    own.block_on(async {
                        let mut sum = 0;
                        for number in 0..1000 {
                            let run = remote.run(move || async move {
                                assert_eq!(std::thread::current().id(), home);
                                yield_now().await;
                                number + thread
                            });
                            sum += run.await.expect("the executor runs");
                        }
                        sum
                    })
                })
            })
            .collect();
        let (sender, stop) = futures_channel::oneshot::channel();
        let waiter = std::thread::spawn(move || {
            let sums: Vec<u64> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            sender.send(sums).expect("the executor waits for it");
        });
        let sums = executor.block_on(stop).expect("sent");
        assert_eq!(sums, (0..4).map(|thread| 499_500 + 1000 * thread).collect::<Vec<_>>());
        waiter.join().expect("no panic");
    });
}

#[test]
fn work_for_an_executor_that_is_gone_is_refused() {
    on_each_backend(|| {
        let executor = self::executor();
        let remote = executor.remote();
        let before = remote.run(|| async {});
        drop(executor);
        let other = self::executor();
        other.block_on(async {
            assert_eq!(before.await, Err(mdspace_io::Stopped));
            assert_eq!(remote.run(|| async {}).await, Err(mdspace_io::Stopped));
        });
    });
}

#[test]
fn a_panic_in_a_task_reaches_block_on_and_the_executor_lives() {
    on_each_backend(|| {
        let executor = executor();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            executor.block_on(async { spawn(async { panic!("as ordered") }).await });
        }));
        assert!(result.is_err());
        assert_eq!(executor.block_on(async { spawn(async { 7 }).await }), 7);
    });
}

#[test]
fn dropping_an_executor_drops_its_tasks_and_what_they_spawn_then() {
    on_each_backend(|| {
        struct SpawnsWhenDropped(Rc<Cell<u32>>, u32);
        impl Drop for SpawnsWhenDropped {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
                if self.1 > 0 {
                    let next = SpawnsWhenDropped(self.0.clone(), self.1 - 1);
                    drop(spawn(async move {
                        std::future::pending::<()>().await;
                        drop(next);
                    }));
                }
            }
        }
        let drops = Rc::new(Cell::new(0));
        let executor = executor();
        let first = SpawnsWhenDropped(drops.clone(), 3);
        executor.block_on(async {
            drop(spawn(async move {
                std::future::pending::<()>().await;
                drop(first);
            }));
        });
        drop(executor);
        assert_eq!(drops.get(), 4);
    });
}
