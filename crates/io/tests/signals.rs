//! Claims about signals. The test sends them to its own thread: a signal to the process would end it through one of the
//! harness's other threads.

mod support;

use mdspace_io::signal::{Signal, terminated};
use support::{executor, on_each_backend, poll_once};

#[test]
fn signals_to_stop_are_awaited_and_distinguished() {
    on_each_backend(|| {
        let (executor, _) = executor();
        executor.block_on(async {
            for (number, signal) in [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt)] {
                let mut waiting = Box::pin(terminated().expect("a descriptor"));
                assert!(poll_once(&mut waiting).await.is_pending());
                // SAFETY: raising a signal that `terminated` has blocked for this thread.
                assert_eq!(unsafe { libc::raise(number) }, 0);
                assert_eq!(waiting.await.expect("read"), signal);
            }
        });
    });
}
