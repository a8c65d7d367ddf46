//! Byte streams, under a server's session and under a client: the seam to a socket, receiving with a bounded buffer,
//! and sending many small messages at once. It never interprets a byte.

use super::wire::{RequestHeader, WireError};
use engine::{Block, Buffer, Pool};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A connected socket, or a replacement for one in tests.
///
/// Dropping a future abandons its operation. Nothing in the program touches its buffers afterwards. Its bytes may or
/// may not have been transferred.
pub trait ByteStream {
    /// Receives at least one byte into the front of `into`. Returns 0 bytes at the end of the stream.
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

/// Maximum bytes of one receive: enough for 32 writes of 4 KiB in three calls.
const RECEIVE_BYTES: usize = 64 << 10;
/// The minimum payload, in bytes, for which a receive of its own pays.
const LARGE_PAYLOAD_BYTES: usize = 32 << 10;
/// Maximum number of messages in one send. Each is up to two pieces, and the kernel takes 1024 (`IOV_MAX`).
const BATCH_MESSAGES_MAX: usize = 256;

/// One waiting task, on one thread.
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

/// Tells a connection to stop receiving. Started requests are finished.
#[derive(Default)]
pub struct Closing {
    closed: Cell<bool>,
    receiver: Waiter,
}

impl Closing {
    /// Stops receiving.
    pub fn close(&self) {
        self.closed.set(true);
        self.receiver.wake();
    }

    /// Whether [`Closing::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Completes after [`Closing::close`]. It replaces a waiting receiver.
    pub(crate) async fn closed(&self) {
        poll_fn(|cx| if self.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn poll(&self, cx: &Context<'_>) -> bool {
        self.receiver.register(cx);
        self.is_closed()
    }
}

/// Why a connection stopped receiving.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The bytes received are not NBD.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer closed in the middle of a message.
    #[error("the peer disconnected in the middle of {0}")]
    Truncated(&'static str),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The peer did not finish the handshake in time.
    #[error("the peer did not finish the handshake in time")]
    Late,
    /// This side called [`Closing::close`].
    #[error("closed from this side")]
    Closed,
}

/// Receives into a buffer of fixed size; payloads may bypass it.
pub(crate) struct Receiver<'a, S> {
    stream: &'a S,
    closing: &'a Closing,
    /// `None` while the socket has it, and after a failure.
    buffer: Option<Buffer>,
    start: usize,
    end: usize,
    /// Whether the last payload was large. Then the next is likely large too, so the receiver reads only a header, and
    /// the payload goes to its final buffer without a copy.
    after_large: bool,
}

impl<'a, S: ByteStream> Receiver<'a, S> {
    pub(crate) fn new(stream: &'a S, closing: &'a Closing, pool: &Pool) -> Self {
        let buffer = Some(pool.take(RECEIVE_BYTES));
        Self { stream, closing, buffer, start: 0, end: 0, after_large: false }
    }

    /// The bytes received and not consumed yet.
    pub(crate) fn input(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.start..self.end])
    }

    /// Marks all but the last `unused` bytes of [`Receiver::input`] as consumed.
    pub(crate) fn leave(&mut self, unused: usize) {
        self.start = self.end - unused;
    }

    /// Receives more, once the input is used up. Returns false at the end of the stream.
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

    /// Fills `into` from the input, then directly from the socket.
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

/// The pieces of one send, and the values held until they are sent.
pub(crate) type Batch<T> = (Vec<Block>, Vec<T>);

/// Messages waiting to be sent, each with a value (`T`) that is held until then.
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

    /// Takes the waiting messages as pieces for one send. Heads are copied together; data is not copied.
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
