//! Futures driven at once: all of them to their ends, in no order of their own.
//!
//! A stripe's write moves two or three chunks, and a transfer's future is large.
//! The first few are polled where they were made: combinators would move each
//! several times, and [`join_all`] allocates for them and for what they give.
#![allow(unsafe_code)] // a future in a pinned slice is pinned as well

use futures_util::FutureExt;
use futures_util::future::{MaybeDone, maybe_done};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::future::poll_fn;
use std::iter::once;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

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

/// So many are all polled whenever one of them is to go on; of more, that one alone.
const FEW: usize = 30;

/// What `futures` give, in their order. As the function of this name in `futures_util` but for what is compiled
/// for each kind of future: that one brings a set and an order of its own, here all kinds share one set.
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

/// Each of a slice that stays where it is.
fn each<F>(futures: Pin<&mut [F]>) -> impl Iterator<Item = Pin<&mut F>> {
    // SAFETY: of the slice nothing is given out but its elements, and these pinned.
    let elements = unsafe { futures.get_unchecked_mut() }.iter_mut();
    // SAFETY: they are where the pinned slice is.
    elements.map(|future| unsafe { Pin::new_unchecked(future) })
}

fn poll_each<F: Future>(futures: Pin<&mut [MaybeDone<F>]>, context: &mut Context<'_>) -> Poll<()> {
    let pending = each(futures).map(|future| usize::from(future.poll(context).is_pending())).sum::<usize>();
    if pending == 0 { Poll::Ready(()) } else { Poll::Pending }
}

/// All to their ends.
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

    /// That `all` of as many futures as these are over when the last has ended, and not before, and give 0, 1, 2...
    fn ends_with_the_last<O: IntoIterator<Item = usize>>(ended: &[Cell<bool>], all: impl Future<Output = O>) {
        let mut all = pin!(all);
        let mut context = Context::from_waker(Waker::noop());
        for (index, is_ended) in ended.iter().enumerate().rev() {
            assert!(all.as_mut().poll(&mut context).is_pending(), "{index} of {} is under way", ended.len());
            is_ended.set(true);
        }
        let Poll::Ready(outputs) = all.poll(&mut context) else { panic!("all {} have ended", ended.len()) };
        assert!(outputs.into_iter().eq(0..ended.len()), "the order of {}", ended.len());
    }

    #[test]
    fn outputs_come_in_the_order_of_the_futures_whichever_ends_first() {
        for count in COUNTS {
            let ended = vec![Cell::new(false); count];
            // It is woken to be asked again, as `drive` asks only those that are.
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
    fn futures_given_up_halfway_are_dropped_each_once_with_what_they_gave() {
        for count in COUNTS {
            let held = Rc::new(());
            // Every other ends at the first poll; none of the rest ever does.
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
