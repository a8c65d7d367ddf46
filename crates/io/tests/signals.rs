//! Claims about signals. The test sends them to its own thread: a signal to the process would end it through one of the
//! harness's other threads.

mod support;

use mdspace_io::signal::{Signal, Terminations, deliver_to, terminated};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
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

#[test]
fn a_thread_waits_for_them_without_an_executor_and_a_process_that_it_starts_may_receive_them() {
    let both = Terminations::block().expect("it is allowed");
    for (number, signal) in [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt)] {
        // SAFETY: raising a signal that is blocked for this thread.
        assert_eq!(unsafe { libc::raise(number) }, 0);
        assert_eq!(both.wait().expect("it is pending"), signal);
    }
    for (is_delivered, killed_by) in [(false, None), (true, Some(libc::SIGTERM))] {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -s TERM $$"]);
        let command = if is_delivered { deliver_to(&mut command) } else { &mut command };
        assert_eq!(command.status().expect("sh runs").signal(), killed_by, "{is_delivered}");
    }
}
