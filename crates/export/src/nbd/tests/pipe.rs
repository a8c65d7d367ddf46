//! A connection in memory that splits its bytes at random places, for sessions and clients under any executor. It never
//! loses or reorders a byte.

use crate::nbd::stream::{ByteStream, Waiter};
use engine::{Block, Buffer};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

/// One direction.
#[derive(Default)]
struct Direction {
    bytes: RefCell<VecDeque<u8>>,
    /// The sender has ended the stream.
    ended: Cell<bool>,
    /// The receiver has ended the stream.
    broken: Cell<bool>,
    receiver: Waiter,
    sender: Waiter,
}

/// One end of a pipe. Dropping it disconnects.
pub(super) struct End {
    incoming: Rc<Direction>,
    outgoing: Rc<Direction>,
    /// Maximum bytes buffered in one direction.
    capacity: usize,
    /// State of the generator of piece lengths.
    random: Cell<u64>,
}

/// Both ends of a pipe. Every seed splits the bytes differently; seed 0 never does.
pub(super) fn pipe(capacity: usize, seed: u64) -> (End, End) {
    let (there, back) = (Rc::<Direction>::default(), Rc::<Direction>::default());
    let end = |incoming: &Rc<Direction>, outgoing: &Rc<Direction>, seed| End {
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        capacity,
        random: Cell::new(seed),
    };
    (end(&back, &there, seed), end(&there, &back, seed.rotate_left(32)))
}

impl End {
    /// A length from 1 to `length`, mostly short.
    fn piece(&self, length: usize) -> usize {
        if self.random.get() == 0 || length == 0 {
            return length;
        }
        // xorshift; any generator would do.
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        let limit = 1 << (x % 18);
        1 + (x >> 20) as usize % length.min(limit)
    }

    /// Ends the outgoing stream, as `shutdown(SHUT_WR)` does.
    pub(super) fn finish(&self) {
        self.outgoing.ended.set(true);
        self.outgoing.receiver.wake();
    }

    /// Refuses further incoming bytes, as `shutdown(SHUT_RD)` does.
    pub(super) fn refuse(&self) {
        self.incoming.broken.set(true);
        self.incoming.sender.wake();
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.finish();
        self.refuse();
    }
}

impl ByteStream for End {
    async fn recv(&self, mut into: Buffer) -> io::Result<(usize, Buffer)> {
        let way = &self.incoming;
        poll_fn(|cx| {
            let mut bytes = way.bytes.borrow_mut();
            if bytes.is_empty() && !way.ended.get() {
                way.receiver.register(cx);
                return Poll::Pending;
            }
            let count = self.piece(bytes.len().min(into.len()));
            for (to, from) in into.iter_mut().zip(bytes.drain(..count)) {
                *to = from;
            }
            way.sender.wake();
            Poll::Ready(Ok(count))
        })
        .await
        .map(|count| (count, into))
    }

    async fn send(&self, from: Vec<Block>) -> io::Result<()> {
        let way = &self.outgoing;
        for block in from {
            let mut sent = 0;
            poll_fn(|cx| {
                if way.broken.get() {
                    return Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe)));
                }
                let room = self.capacity - way.bytes.borrow().len();
                let count = self.piece(room.min(block.len() - sent));
                way.bytes.borrow_mut().extend(&block[sent..sent + count]);
                sent += count;
                way.receiver.wake();
                if sent == block.len() {
                    return Poll::Ready(Ok(()));
                }
                way.sender.register(cx);
                if way.bytes.borrow().len() < self.capacity {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            })
            .await?;
        }
        Ok(())
    }
}
