//! Runs several futures concurrently until all of them have ended.
//!
//! A stripe's write transfers two or three chunks, and a transfer's future is large.
//! [`at_once`] polls the first three in place. Combinators would move each of them
//! several times, and [`join_all`] allocates for the futures and for their outputs.
#![allow(unsafe_code)] // a future in a pinned slice is pinned as well

use futures_util::FutureExt;
use futures_util::future::{MaybeDone, maybe_done};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::future::poll_fn;
use std::iter::once;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// The outputs of `futures`, in the order of the futures.
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

/// Up to this many futures are all polled at each wake-up. Of a larger number only the woken future is.
const FEW: usize = 30;

/// The outputs of `futures`, in their order. The function of this name in `futures_util` compiles a set for each type
/// of future. Here all types share one set, which keeps the code small.
pub(crate) fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> impl Future<Output = Vec<F::Output>> {
    let mut all: Pin<Box<[_]>> = Box::into_pin(futures.into_iter().map(maybe_done).collect());
    async move {
        if all.len() <= FEW {
            poll_fn(|context| poll_each(all.as_mut(), context)).await;
        } else {
            drive(each(all.as_mut()).map(|future| future as Pin<&mut dyn Future<Output = ()>>).collect()).await;
        }
        each(all.as_mut()).map(|future| future.take_output().expect("it has ended")).collect()
    }
}

/// The pinned elements of a pinned slice.
fn each<F>(futures: Pin<&mut [F]>) -> impl Iterator<Item = Pin<&mut F>> {
    // SAFETY: only the elements of the slice are handed out, and those pinned.
    let elements = unsafe { futures.get_unchecked_mut() }.iter_mut();
    // SAFETY: the elements of a pinned slice do not move.
    elements.map(|future| unsafe { Pin::new_unchecked(future) })
}

fn poll_each<F: Future>(futures: Pin<&mut [MaybeDone<F>]>, context: &mut Context<'_>) -> Poll<()> {
    let pending = each(futures).map(|future| usize::from(future.poll(context).is_pending())).sum::<usize>();
    if pending == 0 { Poll::Ready(()) } else { Poll::Pending }
}

/// Runs all futures until they have ended.
async fn drive(futures: FuturesUnordered<Pin<&mut (dyn Future<Output = ()> + '_)>>) {
    futures.collect::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::task::Waker;

    const COUNTS: [usize; 9] = [0, 1, 2, 3, 4, 6, FEW, FEW + 1, 70];

    /// Asserts that `all` ends with the last of its futures, not earlier, and that its outputs are 0, 1, 2...
    fn ends_with_the_last<O: IntoIterator<Item = usize>>(ended: &[Cell<bool>], all: impl Future<Output = O>) {
        let mut all = pin!(all);
        let mut context = Context::from_waker(Waker::noop());
        for (index, is_ended) in ended.iter().enumerate().rev() {
            assert!(all.as_mut().poll(&mut context).is_pending(), "{index} of {} is in flight", ended.len());
            is_ended.set(true);
        }
        let Poll::Ready(outputs) = all.poll(&mut context) else { panic!("all {} have ended", ended.len()) };
        assert!(outputs.into_iter().eq(0..ended.len()), "the order of {}", ended.len());
    }

    #[test]
    fn outputs_are_in_the_order_of_the_futures_whichever_ends_first() {
        for count in COUNTS {
            let ended = vec![Cell::new(false); count];
            // The future wakes itself, because `drive` polls only futures that were woken.
            let future = |index: usize| {
                let ended = &ended;
                poll_fn(move |context| {
                    context.waker().wake_by_ref();
                    if ended[index].get() { Poll::Ready(index) } else { Poll::Pending }
                })
            };
            ends_with_the_last(&ended, at_once((0..count).map(future)));
            ended.iter().for_each(|is_ended| is_ended.set(false));
            ends_with_the_last(&ended, join_all((0..count).map(future)));
        }
    }

    #[test]
    fn cancelling_drops_each_future_and_each_output_once() {
        for count in COUNTS {
            let held = Rc::new(());
            // Every other future ends at the first poll; the rest never end.
            let future = |index: usize| {
                let held = held.clone();
                poll_fn(move |_| if index.is_multiple_of(2) { Poll::Ready(held.clone()) } else { Poll::Pending })
            };
            let mut all = Box::pin(join_all((0..count).map(future)));
            assert_eq!((&mut all).now_or_never().is_some(), count < 2, "{count}");
            drop(all);
            assert_eq!(Rc::strong_count(&held), 1, "{count}");
        }
    }
}
