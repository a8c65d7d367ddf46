//! Futures driven at once: all of them to their ends, in no order of their own.
//!
//! A stripe's write moves two or three chunks, and a transfer's future is large.
//! The first few are polled where they were made: combinators would move each
//! several times, and `join_all` allocate for them and for what they give.

use futures_util::FutureExt;
use futures_util::future::join_all;
use std::future::poll_fn;
use std::iter::once;
use std::pin::pin;
use std::task::Poll;

/// What `futures` give, in the order of the futures.
pub(crate) async fn at_once<F: Future>(mut futures: impl Iterator<Item = F>) -> impl Iterator<Item = F::Output> {
    let mut first = pin!(futures.next());
    let mut second = pin!(futures.next());
    let mut third = pin!(futures.next());
    let mut more = futures.next().map(|fourth| Box::pin(join_all(once(fourth).chain(futures))));
    let mut few = [None, None, None];
    let mut others = None;
    poll_fn(|context| {
        let mut is_over = true;
        for (future, output) in [first.as_mut(), second.as_mut(), third.as_mut()].into_iter().zip(&mut few) {
            let Some(future) = future.as_pin_mut().filter(|_| output.is_none()) else { continue };
            match future.poll(context) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => is_over = false,
            }
        }
        if let Some(more) = more.as_mut().filter(|_| others.is_none()) {
            match more.poll_unpin(context) {
                Poll::Ready(ready) => others = Some(ready),
                Poll::Pending => is_over = false,
            }
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    few.into_iter().flatten().chain(others.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn outputs_come_in_the_order_of_the_futures_whichever_ends_first() {
        for count in 0..6 {
            let ended = vec![Cell::new(false); count];
            let future = |index: usize| {
                let ended = &ended;
                poll_fn(move |_| if ended[index].get() { Poll::Ready(index) } else { Poll::Pending })
            };
            let mut all = Box::pin(at_once((0..count).map(future)));
            for index in (0..count).rev() {
                assert!((&mut all).now_or_never().is_none(), "{index} of {count} is under way");
                ended[index].set(true);
            }
            let outputs = (&mut all).now_or_never().expect("all have ended");
            assert_eq!(outputs.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
        }
    }
}
