//! Bytes in and out of a connection, under both a server's session and a
//! client: the seam to a socket, receiving with a bounded buffer, and sending
//! many small messages at once.

use super::wire::{RequestHeader, WireError};
use engine::{Block, Buffer, Pool};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A connected socket, or something that looks like one from here.
///
/// A dropped future gives up: its buffers are not touched any more by what
/// remains in the program, and its bytes may or may not have moved.
pub trait ByteStream {
    /// Receives at least one byte into the front of `into`; 0 bytes when the
    /// other side will send no more.
    fn recv(&self, into: Buffer) -> impl Future<Output = io::Result<(usize, Buffer)>>;

    /// Sends all of `from`, in order.
    fn send(&self, from: Vec<Block>) -> impl Future<Output = io::Result<()>>;
}

impl<S: ByteStream> ByteStream for &S {
    fn recv(&self, into: Buffer) -> impl Future<Output = io::Result<(usize, Buffer)>> {
        S::recv(self, into)
    }

    fn send(&self, from: Vec<Block>) -> impl Future<Output = io::Result<()>> {
        S::send(self, from)
    }
}

/// What is received at once, at the most: enough for a depth of 32 with
/// writes of 4 KiB in three calls.
const RECEIVE_BYTES: usize = 64 << 10;
/// From this length on a payload is worth a receive of its own.
const LARGE_PAYLOAD_BYTES: usize = 32 << 10;
/// Messages sent at once, at the most; each is up to two pieces, and the
/// kernel takes 1024.
const BATCH_MESSAGES_MAX: usize = 256;

/// One task waiting, on one thread.
#[derive(Default)]
pub(crate) struct Waiter(Cell<Option<Waker>>);

impl Waiter {
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.0.set(Some(cx.waker().clone()));
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

/// Tells a connection to receive no more. What was begun is finished.
#[derive(Default)]
pub struct Closing {
    closed: Cell<bool>,
    receiver: Waiter,
}

impl Closing {
    /// From now on nothing is received.
    pub fn close(&self) {
        self.closed.set(true);
        self.receiver.wake();
    }

    /// Whether [`Closing::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Completes then. It takes the place of a receiver that waits.
    pub(crate) async fn closed(&self) {
        poll_fn(|cx| if self.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn poll(&self, cx: &Context<'_>) -> bool {
        self.receiver.register(cx);
        self.is_closed()
    }
}

/// Why no more is received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// What came is no NBD.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The other side closed in the middle of something.
    #[error("the other side disconnected in the middle of {0}")]
    Truncated(&'static str),
    /// TLS did not come about.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The other side took too long to say what it wants.
    #[error("the other side did not finish the handshake in time")]
    Late,
    /// This side was told to close.
    #[error("closed from this side")]
    Closed,
}

/// Receives into a buffer of fixed size, and payloads past it.
pub(crate) struct Receiver<'a, S> {
    stream: &'a S,
    closing: &'a Closing,
    /// Given to the socket, and left behind when that fails.
    buffer: Option<Buffer>,
    start: usize,
    end: usize,
    /// Whether the payload before was large: then its like is expected, and
    /// only a header is received, so that the payload after it can be received
    /// where it is written from, without a copy.
    after_large: bool,
}

impl<'a, S: ByteStream> Receiver<'a, S> {
    pub(crate) fn new(stream: &'a S, closing: &'a Closing, pool: &Pool) -> Self {
        let buffer = Some(pool.take(RECEIVE_BYTES));
        Self { stream, closing, buffer, start: 0, end: 0, after_large: false }
    }

    /// What was received and not consumed.
    pub(crate) fn input(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.start..self.end])
    }

    /// Says how much of [`Receiver::input`] is still unused.
    pub(crate) fn leave(&mut self, unused: usize) {
        self.start = self.end - unused;
    }

    /// Receives more, once the input is used up; false when the other side
    /// will send no more.
    pub(crate) async fn fill(&mut self) -> Result<bool, ReceiveError> {
        assert!(self.start == self.end, "input is used up before more is received");
        let mut back = self.buffer.take().ok_or(ReceiveError::Closed)?;
        let window = if std::mem::take(&mut self.after_large) { size_of::<RequestHeader>() } else { back.len() };
        let front = back.split_to(window);
        let (received, mut buffer) = self.recv(front).await?;
        buffer.join(back);
        self.buffer = Some(buffer);
        (self.start, self.end) = (0, received);
        Ok(received > 0)
    }

    /// Fills `into` from the input and then straight from the socket.
    pub(crate) async fn payload(&mut self, mut into: Buffer) -> Result<Buffer, ReceiveError> {
        let here = self.input().len().min(into.len());
        into[..here].copy_from_slice(&self.input()[..here]);
        self.start += here;
        self.after_large = into.len() >= LARGE_PAYLOAD_BYTES;
        let mut filled = into.split_to(here);
        let mut rest = into;
        while !rest.is_empty() {
            let (received, mut buffer) = self.recv(rest).await?;
            if received == 0 {
                return Err(ReceiveError::Truncated("a payload"));
            }
            filled.join(buffer.split_to(received));
            rest = buffer;
        }
        filled.join(rest);
        Ok(filled)
    }

    async fn recv(&self, into: Buffer) -> Result<(usize, Buffer), ReceiveError> {
        let mut recv = pin!(self.stream.recv(into));
        poll_fn(|cx| {
            if self.closing.poll(cx) {
                return Poll::Ready(Err(ReceiveError::Closed));
            }
            recv.as_mut().poll(cx).map_err(ReceiveError::from)
        })
        .await
    }
}

/// The bytes before a message's data.
pub(crate) type Head = SmallVec<[u8; 32]>;

/// Pieces for one send, and what is held until they are sent.
pub(crate) type Batch<T> = (Vec<Block>, Vec<T>);

/// Messages that wait to be sent, each with something (`T`) that is held
/// until it is.
pub(crate) struct Outbox<T> {
    waiting: VecDeque<(Head, Option<Block>, T)>,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new() }
    }
}

impl<T> Outbox<T> {
    pub(crate) fn push(&mut self, head: Head, data: Option<Block>, held: T) {
        self.waiting.push_back((head, data, held));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes what waits, as pieces for one send: heads are copied together,
    /// data stays where it is.
    pub(crate) fn batch(&mut self, pool: &Pool) -> Batch<T> {
        let count = self.waiting.len().min(BATCH_MESSAGES_MAX);
        let mut heads = pool.take(self.waiting.iter().take(count).map(|(head, ..)| head.len()).sum());
        let mut end = 0;
        for (head, ..) in self.waiting.iter().take(count) {
            heads[end..end + head.len()].copy_from_slice(head);
            end += head.len();
        }
        let heads = heads.freeze();

        let mut pieces = Vec::with_capacity(2 * count);
        let mut held = Vec::with_capacity(count);
        let (mut start, mut end) = (0, 0);
        for (head, data, holding) in self.waiting.drain(..count) {
            end += head.len();
            if let Some(data) = data {
                pieces.push(heads.slice(start..end));
                pieces.push(data);
                start = end;
            }
            held.push(holding);
        }
        if start < end {
            pieces.push(heads.slice(start..end));
        }
        (pieces, held)
    }
}
