//! Threads for work that may wait for a file system. A file system that hangs blocks its thread and no other.
//!
//! The array's thread waits for the result as for any other event, with a timeout. A thread that hangs cannot be ended:
//! their number is limited, and they end with the process. A result after the timeout is dropped on its thread, so a
//! file that was opened late is closed and its lock released.

use engine::{Clock, Refusal};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use io::RealClock;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Largest number of threads.
const THREADS_MAX: usize = 16;

/// The threads of one executor that wait for file systems.
#[derive(Default)]
pub(crate) struct BlockingPool(Arc<AtomicUsize>);

/// Counts a thread as long as it runs.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BlockingPool {
    /// Runs `work` on a thread, and waits up to `timeout` for its result.
    ///
    /// # Errors
    /// When the timeout expires, or too many threads hang already.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        clock: &RealClock,
        timeout: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.0.load(Ordering::Relaxed) >= THREADS_MAX {
            return Err(Refusal::new(format!("{THREADS_MAX} threads wait for file systems that do not answer"))
                .advice("check the file systems that hang"));
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.0.clone());
        let (sender, receiver) = oneshot::channel();
        let thread = std::thread::Builder::new().name("file".to_owned()).spawn(move || {
            // After the timeout the receiver is gone, and the result is dropped here.
            let _ = sender.send(work());
            drop(counted);
        });
        thread.map_err(|error| Refusal::new(format!("cannot start a thread to open a file: {error}")))?;
        match select(receiver, pin!(clock.sleep_until(clock.now() + timeout))).await {
            Either::Left((Ok(done), _)) => Ok(done),
            Either::Left((Err(oneshot::Canceled), _)) => panic!("a thread that opens files has panicked"),
            Either::Right(((), _)) => {
                Err(Refusal::new(format!("its file system gave no answer within {} s", timeout.as_secs_f64()))
                    .advice("check whether the file system hangs, or give another file"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Arena, Machine};
    use std::sync::mpsc;

    #[test]
    fn work_that_hangs_is_given_up_and_its_late_result_is_dropped() {
        let machine = Machine::start(None, Arena::Small).expect("a machine");
        let run = |timeout, work: Box<dyn FnOnce() -> Arc<()> + Send>| {
            machine.run(machine.blocking.run(&machine.clock, timeout, work))
        };
        let given = Arc::new(());
        let clone = given.clone();
        run(Duration::from_secs(60), Box::new(move || clone)).expect("it answers");

        let (answer, hangs) = mpsc::channel::<()>();
        let clone = given.clone();
        let hang = Box::new(move || {
            hangs.recv().expect_err("the test drops the sender");
            clone
        });
        let refusal = run(Duration::from_millis(1), hang).expect_err("it hangs");
        assert!(refusal.to_string().contains("no answer within 0.001 s"), "{refusal}");
        assert_eq!(Arc::strong_count(&given), 2, "it is still under way");
        drop(answer);
        while machine.blocking.0.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&given), 1, "the late result is dropped");
    }
}
