//! Lets the other tasks of the thread run.

use std::future::poll_fn;
use std::task::Poll;

/// Lets all other tasks that are ready run first.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
