//! An NBD client: many requests in flight on one connection, replies in any order.
//!
//! [`connect`] returns a [`Client`] and a future that transfers the bytes; the caller polls that future beside its
//! requests. Large payloads are received into the caller's buffer without a copy. The client never trusts the server: a
//! reply that does not fit its request ends the connection. A read succeeds only when each of its bytes arrived exactly
//! once. Source: `doc/proto.md`.

use super::handshake::{ClientHandshake, ClientOptions, ClientProgress, HandshakeError, RemoteExport};
use super::reply::{ReplyDecoder, ReplyEvent};
use super::stream::{ByteStream, Closing, Head, Outbox, ReceiveError, Receiver, Waiter};
use super::wire::{Errno, REQUEST_MAGIC, RequestHeader, WireError, command, command_flag, extent_flag};
use crate::volume::{Durability, Extent};
use engine::{Block, Buffer, Pool};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use zerocopy::IntoBytes;

/// Why a request, or the connection, failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The server answered with an error.
    #[error("the server answered {errno:?}: {text}")]
    Refused {
        /// The error number.
        errno: Errno,
        /// The server's description, possibly empty.
        text: String,
    },
    /// The connection has ended. Requests in flight may or may not have been carried out.
    #[error("the connection has ended: {0}")]
    Disconnected(Rc<str>),
}

impl From<ReceiveError> for ClientError {
    fn from(error: ReceiveError) -> Self {
        Self::Disconnected(error.to_string().into())
    }
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        ReceiveError::from(error).into()
    }
}

/// Performs the handshake over `stream`. Buffers come from `pool`. The second half of the result transfers the bytes:
/// requests progress only while the caller polls it. It completes after [`Client::disconnect`], or with the error that
/// ended the connection.
///
/// # Errors
/// When the connection fails, or the server does not offer the export.
pub async fn connect<S: ByteStream>(
    stream: S,
    pool: Pool,
    wanted: ClientOptions,
) -> Result<(Client, impl Future<Output = Result<(), ClientError>>), ClientError> {
    let closing = Closing::default();
    let mut receiver = Receiver::new(&stream, &closing, &pool);
    let mut handshake = ClientHandshake::new(wanted);
    let mut out = Vec::new();
    let export = loop {
        let mut input = receiver.input();
        let progress = handshake.advance(&mut input, &mut out)?;
        let unused = input.len();
        receiver.leave(unused);
        if !out.is_empty() {
            stream.send(vec![pool.copy_of(&out)]).await?;
            out.clear();
        }
        match progress {
            ClientProgress::Transmission(export) => break export,
            ClientProgress::NeedInput if receiver.fill().await? => {}
            ClientProgress::NeedInput => return Err(ReceiveError::Truncated("the handshake").into()),
        }
    };
    // The protocol forbids the server to send anything more before a request.
    if !receiver.input().is_empty() {
        let value = receiver.input().len() as u64;
        return Err(ReceiveError::from(WireError::field("handshake", "bytes after its end", value, "must be 0")).into());
    }
    drop(receiver);
    drop(closing);
    Ok(connected(stream, pool, export))
}

/// A client over a connection whose handshake is done, with the server's description of the export. Otherwise as
/// [`connect`].
pub fn connected<S: ByteStream>(
    stream: S,
    pool: Pool,
    export: RemoteExport,
) -> (Client, impl Future<Output = Result<(), ClientError>>) {
    let client = Client(Rc::new(Connection::new(export, pool)));
    let connection = client.0.clone();
    let run = async move {
        let result = connection.run(&stream, &Closing::default()).await;
        connection.end(result.as_ref().err().cloned());
        result
    };
    (client, run)
}

/// Sends requests over a connection. Clones share it.
#[derive(Clone)]
pub struct Client(Rc<Connection>);

impl Client {
    /// The server's description of the export.
    pub fn export(&self) -> &RemoteExport {
        &self.0.export
    }

    /// The pool that the connection's buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Reads at byte `at` until `into` is full.
    ///
    /// # Errors
    /// The server's error, or the connection's. The buffer is lost then.
    pub async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, ClientError> {
        let bytes = into.len() as u32;
        let done = self.ask(command::READ, 0, at, bytes, None, Expected::Data(Data::new(at, into))).await?;
        let Expected::Data(data) = done else { unreachable!("a slot keeps its kind") };
        data.buffer.ok_or_else(|| ClientError::Disconnected("a read lost its buffer".into()))
    }

    /// Writes `from` at byte `at`.
    ///
    /// # Errors
    /// The server's error, or the connection's.
    pub async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), ClientError> {
        let bytes = from.len() as u32;
        self.ask(command::WRITE, fua(durability), at, bytes, Some(from), Expected::Nothing).await.map(drop)
    }

    /// Completes when every write that was answered before the call is on stable storage.
    ///
    /// # Errors
    /// The server's error, or the connection's.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.ask(command::FLUSH, 0, 0, 0, None, Expected::Nothing).await.map(drop)
    }

    /// Discards the range: its contents no longer matter.
    ///
    /// # Errors
    /// The server's error, or the connection's.
    pub async fn discard(&self, at: u64, bytes: u32) -> Result<(), ClientError> {
        self.ask(command::TRIM, 0, at, bytes, None, Expected::Nothing).await.map(drop)
    }

    /// Zeroes the range.
    ///
    /// # Errors
    /// The server's error, or the connection's.
    pub async fn write_zeroes(
        &self,
        at: u64,
        bytes: u32,
        may_discard: bool,
        durability: Durability,
    ) -> Result<(), ClientError> {
        let flags = fua(durability) | if may_discard { 0 } else { command_flag::NO_HOLE };
        self.ask(command::WRITE_ZEROES, flags, at, bytes, None, Expected::Nothing).await.map(drop)
    }

    /// The allocation from `at` on. It may end before or after the range requested.
    ///
    /// # Errors
    /// The server's error (for example, no `base:allocation`), or the connection's.
    pub async fn allocation(&self, at: u64, bytes: u32) -> Result<Vec<Extent>, ClientError> {
        let done = self.ask(command::BLOCK_STATUS, 0, at, bytes, None, Expected::Extents(Vec::new())).await?;
        let Expected::Extents(extents) = done else { unreachable!("a slot keeps its kind") };
        Ok(extents)
    }

    /// Disconnects once the requests in flight are answered. Later requests fail.
    pub fn disconnect(&self) {
        self.0.leaving.set(true);
        self.0.sender.wake();
    }

    /// Sends a request and waits for the end of its reply.
    async fn ask(
        &self,
        kind: u16,
        flags: u16,
        offset: u64,
        bytes: u32,
        payload: Option<Block>,
        expected: Expected,
    ) -> Result<Expected, ClientError> {
        if let Some(error) = &*self.0.over.borrow() {
            return Err(error.clone());
        }
        if self.0.leaving.get() {
            return Err(ClientError::Disconnected("this side disconnected".into()));
        }
        let slot = Slot { expected, failed: None, finished: false, asker: Asker::Waits(None) };
        let cookie = self.0.slots.borrow_mut().insert(slot);
        self.0.send(kind, flags, cookie as u64, offset, bytes, payload);
        let pending = Pending { connection: &self.0, cookie };
        poll_fn(|cx| pending.poll(cx)).await
    }
}

fn fua(durability: Durability) -> u16 {
    if durability == Durability::Stable { command_flag::FUA } else { 0 }
}

/// A request in flight. When it is dropped early, its slot and buffer stay until the reply ends.
struct Pending<'a> {
    connection: &'a Connection,
    cookie: usize,
}

impl Pending<'_> {
    fn poll(&self, cx: &Context<'_>) -> Poll<Result<Expected, ClientError>> {
        let mut slots = self.connection.slots.borrow_mut();
        let slot = &mut slots[self.cookie];
        if slot.finished {
            let expected = std::mem::replace(&mut slot.expected, Expected::Nothing);
            return Poll::Ready(slot.failed.take().map_or(Ok(expected), Err));
        }
        if let Some(error) = &*self.connection.over.borrow() {
            return Poll::Ready(Err(error.clone()));
        }
        slot.asker = Asker::Waits(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut slots = self.connection.slots.borrow_mut();
        if slots[self.cookie].finished || self.connection.over.borrow().is_some() {
            slots.remove(self.cookie);
            self.connection.sender.wake();
        } else {
            slots[self.cookie].asker = Asker::Left;
        }
    }
}

struct Slot {
    expected: Expected,
    failed: Option<ClientError>,
    finished: bool,
    asker: Asker,
}

enum Asker {
    Waits(Option<Waker>),
    Left,
}

/// The data that the reply must carry, and the part of it received.
enum Expected {
    Nothing,
    Data(Data),
    Extents(Vec<Extent>),
}

struct Data {
    at: u64,
    bytes: u32,
    /// `None` while a chunk is being received into it.
    buffer: Option<Buffer>,
    /// Received ranges, ascending and merged.
    covered: Vec<Range<u32>>,
}

impl Data {
    fn new(at: u64, buffer: Buffer) -> Self {
        Self { at, bytes: buffer.len() as u32, buffer: Some(buffer), covered: Vec::new() }
    }

    fn is_complete(&self) -> bool {
        self.bytes == 0 || self.covered.first() == Some(&(0..self.bytes))
    }

    /// Marks `bytes` at `at` of the export as received. Returns their range in the buffer.
    fn cover(&mut self, at: u64, bytes: u32) -> Result<Range<usize>, WireError> {
        let bad = |why| WireError::field("chunk", "offset", at, why);
        let start = at.checked_sub(self.at).filter(|start| *start + u64::from(bytes) <= self.bytes.into());
        let start = start.ok_or_else(|| bad("is outside the requested range"))? as u32;
        let end = start + bytes;
        let place = self.covered.partition_point(|range| range.end <= start);
        if self.covered.get(place).is_some_and(|next| next.start < end) {
            return Err(bad("arrived before"));
        }
        let joins_next = self.covered.get(place).is_some_and(|next| next.start == end);
        let joins_previous = place > 0 && self.covered[place - 1].end == start;
        match (joins_previous, joins_next) {
            (true, true) => self.covered[place - 1].end = self.covered.remove(place).end,
            (true, false) => self.covered[place - 1].end = end,
            (false, true) => self.covered[place].start = start,
            (false, false) => self.covered.insert(place, start..end),
        }
        Ok(start as usize..end as usize)
    }
}

struct Connection {
    export: RemoteExport,
    pool: Pool,
    slots: RefCell<Slab<Slot>>,
    requests: RefCell<Outbox<()>>,
    sender: Waiter,
    leaving: Cell<bool>,
    /// Why no request can be sent any more.
    over: RefCell<Option<ClientError>>,
}

impl Connection {
    fn new(export: RemoteExport, pool: Pool) -> Self {
        Self {
            export,
            pool,
            slots: RefCell::default(),
            requests: RefCell::default(),
            sender: Waiter::default(),
            leaving: Cell::new(false),
            over: RefCell::default(),
        }
    }

    fn send(&self, kind: u16, flags: u16, cookie: u64, offset: u64, bytes: u32, payload: Option<Block>) {
        let header = RequestHeader {
            magic: REQUEST_MAGIC.into(),
            flags: flags.into(),
            kind: kind.into(),
            cookie: cookie.into(),
            offset: offset.into(),
            bytes: bytes.into(),
        };
        let payload = payload.filter(|payload| !payload.is_empty());
        self.requests.borrow_mut().push(Head::from_slice(header.as_bytes()), payload, ());
        self.sender.wake();
    }

    /// Transfers bytes until either direction ends.
    async fn run<S: ByteStream>(&self, stream: &S, closing: &Closing) -> Result<(), ClientError> {
        let mut sending = pin!(self.send_requests(stream));
        let mut receiving = pin!(self.receive_replies(stream, closing));
        poll_fn(|cx| {
            if let Poll::Ready(result) = receiving.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            sending.as_mut().poll(cx)
        })
        .await
    }

    /// Fails every waiting request.
    fn end(&self, error: Option<ClientError>) {
        let error = error.unwrap_or_else(|| ClientError::Disconnected("this side disconnected".into()));
        *self.over.borrow_mut() = Some(error);
        self.requests.take();
        let mut wakers = Vec::new();
        self.slots.borrow_mut().retain(|_, slot| match &mut slot.asker {
            Asker::Waits(waker) => {
                wakers.extend(waker.take());
                true
            }
            Asker::Left => false,
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn send_requests<S: ByteStream>(&self, stream: &S) -> Result<(), ClientError> {
        while let Some(pieces) = poll_fn(|cx| self.next_requests(cx)).await {
            stream.send(pieces).await?;
        }
        self.send(command::DISC, 0, 0, 0, 0, None);
        let (pieces, _) = self.requests.borrow_mut().batch(&self.pool);
        Ok(stream.send(pieces).await?)
    }

    /// The requests to send next. `None` when it is time to disconnect.
    fn next_requests(&self, cx: &Context<'_>) -> Poll<Option<Vec<Block>>> {
        let mut requests = self.requests.borrow_mut();
        if !requests.is_empty() {
            return Poll::Ready(Some(requests.batch(&self.pool).0));
        }
        let answered = self.slots.borrow().iter().all(|(_, slot)| slot.finished);
        if self.leaving.get() && answered {
            return Poll::Ready(None);
        }
        self.sender.register(cx);
        Poll::Pending
    }

    async fn receive_replies<S: ByteStream>(&self, stream: &S, closing: &Closing) -> Result<(), ClientError> {
        let mut receiver = Receiver::new(stream, closing, &self.pool);
        let mut decoder = ReplyDecoder::default();
        loop {
            let mut input = receiver.input();
            let event = decoder.next(&mut input, |cookie| self.simple_bytes(cookie)).map_err(ReceiveError::from)?;
            let unused = input.len();
            match event {
                Some(ReplyEvent::Data { cookie, at, bytes }) => {
                    receiver.leave(unused);
                    self.receive_data(cookie, at, bytes, &mut receiver).await?;
                    decoder.skip_payload(bytes);
                }
                Some(event) => {
                    self.note(event).map_err(ReceiveError::from)?;
                    receiver.leave(unused);
                }
                None => {
                    receiver.leave(unused);
                    if !receiver.fill().await? {
                        return Err(ReceiveError::Truncated("the session").into());
                    }
                }
            }
        }
    }

    /// How many bytes of data a simple reply to the request carries.
    fn simple_bytes(&self, cookie: u64) -> u32 {
        match self.slots.borrow().get(cookie as usize) {
            Some(Slot { expected: Expected::Data(data), .. }) => data.bytes,
            _ => 0,
        }
    }

    /// Calls `change` with the slot of a request in flight.
    fn slot<T>(&self, cookie: u64, change: impl FnOnce(&mut Slot) -> Result<T, WireError>) -> Result<T, WireError> {
        let mut slots = self.slots.borrow_mut();
        let slot = usize::try_from(cookie).ok().and_then(|cookie| slots.get_mut(cookie));
        let slot = slot.filter(|slot| !slot.finished);
        change(slot.ok_or_else(|| WireError::field("reply", "cookie", cookie, "belongs to no request in flight"))?)
    }

    /// Receives one chunk of a read into its buffer.
    async fn receive_data<S: ByteStream>(
        &self,
        cookie: u64,
        at: Option<u64>,
        bytes: u32,
        receiver: &mut Receiver<'_, S>,
    ) -> Result<(), ReceiveError> {
        let (mut rest, range) = self.slot(cookie, |slot| {
            let data = slot.data(cookie)?;
            let range = data.cover(at.unwrap_or(data.at), bytes)?;
            Ok((data.buffer.take().expect("one piece is received at a time"), range))
        })?;
        let mut whole = rest.split_to(range.start);
        let piece = rest.split_to(range.len());
        whole.join(receiver.payload(piece).await?);
        whole.join(rest);
        self.slot(cookie, |slot| {
            slot.data(cookie)?.buffer = Some(whole);
            Ok(())
        })?;
        Ok(())
    }

    fn note(&self, event: ReplyEvent<'_>) -> Result<(), WireError> {
        match event {
            ReplyEvent::Data { .. } | ReplyEvent::Payload(_) => unreachable!("data is received past the decoder"),
            ReplyEvent::Hole { cookie, at, bytes } => self.slot(cookie, |slot| {
                let data = slot.data(cookie)?;
                let range = data.cover(at, bytes)?;
                data.buffer.as_mut().expect("no piece is being received")[range].fill(0);
                Ok(())
            }),
            ReplyEvent::Extent { cookie, context, bytes, flags } => {
                self.slot(cookie, |slot| match &mut slot.expected {
                    Expected::Extents(extents) if Some(context) == self.export.allocation_context => {
                        let (hole, zero) = (flags & extent_flag::HOLE != 0, flags & extent_flag::ZERO != 0);
                        extents.push(Extent { bytes: bytes.into(), hole, zero });
                        Ok(())
                    }
                    _ => Err(WireError::field("extent", "metadata context", context, "was not requested")),
                })
            }
            ReplyEvent::Failed { cookie, errno, text } => self.slot(cookie, |slot| {
                slot.failed.get_or_insert(ClientError::Refused { errno, text });
                Ok(())
            }),
            ReplyEvent::Finished { cookie } => self.finish(cookie),
        }
    }

    fn finish(&self, cookie: u64) -> Result<(), WireError> {
        let waker = self.slot(cookie, |slot| {
            let whole = match &slot.expected {
                Expected::Nothing => true,
                Expected::Data(data) => data.is_complete(),
                Expected::Extents(extents) => !extents.is_empty(),
            };
            if !whole && slot.failed.is_none() {
                return Err(WireError::field("reply", "cookie", cookie, "was answered in part only"));
            }
            slot.finished = true;
            Ok(match &mut slot.asker {
                Asker::Waits(waker) => Some(waker.take()),
                Asker::Left => None,
            })
        })?;
        match waker {
            Some(waker) => waker.into_iter().for_each(Waker::wake),
            None => drop(self.slots.borrow_mut().remove(cookie as usize)),
        }
        if self.leaving.get() {
            self.sender.wake();
        }
        Ok(())
    }
}

impl Slot {
    fn data(&mut self, cookie: u64) -> Result<&mut Data, WireError> {
        match &mut self.expected {
            Expected::Data(data) => Ok(data),
            _ => Err(WireError::field("chunk", "cookie", cookie, "is not a read's, but there is data")),
        }
    }
}
