//! Work on a thread of its own, for what may wait for a file system: a file system that hangs keeps that thread, and
//! nobody else. The array's thread waits for it like for any other event, and not for ever.
//!
//! A thread that hangs cannot be ended; there is a bound on how many there are, and they go with the process. What a thread
//! gives when nobody waits for it any more is dropped there: a file that was opened late is closed, and its lock goes.

use engine::{Clock, Refusal};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use io::RealClock;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Threads at a time.
const THREADS_MAX: usize = 16;

/// Threads of one executor's that wait for file systems.
#[derive(Default)]
pub(crate) struct Elsewhere(Arc<AtomicUsize>);

/// One of them, as long as it runs.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Elsewhere {
    /// Has `work` done, for `patience` at the most.
    ///
    /// # Errors
    /// When it takes longer, or too many file systems hang already.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        clock: &RealClock,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.0.load(Ordering::Relaxed) >= THREADS_MAX {
            return Err(Refusal::new(format!("{THREADS_MAX} files that do not answer are waited for already"))
                .advice("see to the file systems that hang"));
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.0.clone());
        let (sender, receiver) = oneshot::channel();
        let thread = std::thread::Builder::new().name("file".to_owned()).spawn(move || {
            // When nobody waits any more it is dropped here.
            let _ = sender.send(work());
            drop(counted);
        });
        thread.map_err(|error| Refusal::new(format!("no thread to open a file on: {error}")))?;
        match select(receiver, pin!(clock.sleep_until(clock.now() + patience))).await {
            Either::Left((Ok(done), _)) => Ok(done),
            Either::Left((Err(oneshot::Canceled), _)) => panic!("a thread that opens files has panicked"),
            Either::Right(((), _)) => {
                Err(Refusal::new(format!("its file system gave no answer within {} s", patience.as_secs_f64()))
                    .advice("see to the file system, which may hang, or give another file"))
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
    fn what_hangs_is_given_up_and_what_it_gives_later_is_dropped() {
        let machine = Machine::start(None, Arena::Small).expect("a machine");
        let run = |patience, work: Box<dyn FnOnce() -> Arc<()> + Send>| {
            machine.run(machine.elsewhere.run(&machine.clock, patience, work))
        };
        let given = Arc::new(());
        let clone = given.clone();
        run(Duration::from_secs(60), Box::new(move || clone)).expect("it answers");

        let (answer, hangs) = mpsc::channel::<()>();
        let clone = given.clone();
        let hang = Box::new(move || {
            hangs.recv().expect_err("the test lets go of it");
            clone
        });
        let refusal = run(Duration::from_millis(1), hang).expect_err("it hangs");
        assert!(refusal.to_string().contains("no answer within 0.001 s"), "{refusal}");
        assert_eq!(Arc::strong_count(&given), 2, "it is still under way");
        drop(answer);
        while machine.elsewhere.0.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&given), 1, "what came late is gone");
    }
}
