//! One client's connection, from the greeting to the end.
//!
//! Three loops run side by side on the volume's thread: one receives and
//! starts requests, one drives those that did not finish at once, one sends
//! replies, all that are ready at a time.
//!
//! Invariants: a request holds its part of [`Limits`] and of the server's
//! [`Memory`] from before its payload is received until its reply is sent, so a
//! client that does not read what it asked for stops being read itself. A request that was started is finished,
//! whatever becomes of the connection.

use super::answer::{Answer, descriptors, status_bytes};
use super::handshake::{ExportInfo, Negotiated, ServerHandshake, ServerProgress};
use super::memory::{Account, Memory, Source};
use super::request::{Command, Request, RequestDecoder, RequestEvent};
use super::strangers::Entrance;
use super::stream::{Batch, ByteStream, Closing, Outbox, ReceiveError, Receiver, Waiter};
use super::tls::Security;
#[cfg(feature = "tls")]
use super::tls::{Credentials, TlsStream};
use super::wire::WireError;
use crate::volume::{Durability, Volume, VolumeError};
use engine::{Block, Pool};
use futures_util::future::{Either, LocalBoxFuture, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use zerocopy::IntoBytes;

/// What one connection may have under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests, from their arrival until their replies are sent.
    pub requests: usize,
    /// Bytes of their payloads; a single request may exceed it when alone.
    pub payload_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 256, payload_bytes: 16 << 20 }
    }
}

/// Something that is offered under a name.
#[derive(Debug, Clone)]
pub struct Export<V> {
    /// The name that clients ask for.
    pub name: String,
    /// What they get.
    pub volume: V,
}

/// How a session ended when nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client said goodbye, or left between two messages.
    ByClient,
    /// [`Closing::close`] was called.
    ByServer,
    /// The client chose an export that does not exist, in the way that allows
    /// no answer.
    UnknownExport,
}

/// As `serve_admitted`, of a client that nobody keeps waiting.
///
/// # Errors
/// As there.
///
/// # Panics
/// As there.
pub async fn serve<S: ByteStream, V: Volume>(
    stream: &S,
    exports: &[Export<V>],
    limits: Limits,
    memory: &Rc<Memory>,
    closing: &Closing,
    security: &Security,
    patience: impl Future<Output = ()>,
) -> Result<Ended, ReceiveError> {
    serve_admitted(stream, exports, limits, memory, closing, security, Entrance::open(patience)).await
}

/// Serves one client until it or `closing` ends the session; requests that
/// were received until then are finished, and answered where that is possible.
///
/// The first of `exports` is the default. A client that has not finished the
/// handshake, and got its place, when the entrance's patience completes loses the connection, so that those who
/// say nothing keep nobody else out.
///
/// # Errors
/// The client broke the protocol or was late, or the connection failed.
///
/// # Panics
/// When `exports` is empty.
pub(crate) async fn serve_admitted<S: ByteStream, V: Volume>(
    stream: &S,
    exports: &[Export<V>],
    limits: Limits,
    memory: &Rc<Memory>,
    closing: &Closing,
    security: &Security,
    entrance: Entrance<impl Future<Output = ()>, impl Future<Output = ()>>,
) -> Result<Ended, ReceiveError> {
    let Entrance { patience, admitted } = entrance;
    let pool = exports.first().expect("something is exported").volume.pool();
    let mut patience = pin!(patience);
    let mut handshake = ServerHandshake::new(exports.iter().map(described).collect(), security.tls());
    let mut receiver = Receiver::new(stream, closing, pool);
    let shaken = in_time(greet(stream, &mut receiver, &mut handshake, pool), patience.as_mut()).await;
    match shaken {
        Ok(Shaken::StartTls) => {}
        shaken => {
            let shaken = in_time(agreed(shaken, admitted, closing), patience).await;
            return converse(stream, &mut receiver, exports, limits, memory.account(), closing, shaken).await;
        }
    }
    #[cfg(feature = "tls")]
    if let Security::Offered(credentials) | Security::Required(credentials) = security {
        let accepting = in_time(accept(stream, pool, credentials, closing), patience.as_mut());
        let secured = match accepting.await {
            Err(ReceiveError::Closed) => return Ok(Ended::ByServer),
            accepted => accepted?,
        };
        let mut receiver = Receiver::new(&secured, closing, pool);
        let mut handshake = handshake.secured();
        let shaken = in_time(shake_hands(&secured, &mut receiver, &mut handshake, pool), patience.as_mut()).await;
        let shaken = in_time(agreed(shaken, admitted, closing), patience).await;
        let ended = converse(&secured, &mut receiver, exports, limits, memory.account(), closing, shaken).await;
        // Manners; a client that has gone does not need it.
        drop(secured.finish().await);
        return ended;
    }
    unreachable!("a handshake that does not know TLS does not begin it")
}

/// A handshake that led to something, once its client is admitted.
async fn agreed(
    shaken: Result<Shaken, ReceiveError>,
    admitted: impl Future<Output = ()>,
    closing: &Closing,
) -> Result<Shaken, ReceiveError> {
    if !matches!(shaken, Ok(Shaken::Agreed(_))) {
        return shaken;
    }
    match select(pin!(admitted), pin!(closing.closed())).await {
        Either::Left(((), _)) => shaken,
        Either::Right(((), _)) => Err(ReceiveError::Closed),
    }
}

/// What `waiting` gives, unless `patience` ends first.
async fn in_time<T>(
    waiting: impl Future<Output = Result<T, ReceiveError>>,
    patience: impl Future<Output = ()>,
) -> Result<T, ReceiveError> {
    match select(pin!(waiting), pin!(patience)).await {
        Either::Left((result, _)) => result,
        Either::Right(((), _)) => Err(ReceiveError::Late),
    }
}

fn described<V: Volume>(Export { name, volume }: &Export<V>) -> ExportInfo {
    ExportInfo {
        name: name.clone(),
        bytes: volume.bytes(),
        read_only: volume.is_read_only(),
        preferred_block_bytes: volume.preferred_block_bytes(),
        minimum_block_bytes: volume.logical_block_bytes().unwrap_or(1),
    }
}

#[cfg(feature = "tls")]
async fn accept<'a, S: ByteStream>(
    stream: &'a S,
    pool: &Pool,
    credentials: &Credentials,
    closing: &Closing,
) -> Result<TlsStream<&'a S>, ReceiveError> {
    match select(pin!(TlsStream::accept(stream, pool, credentials)), pin!(closing.closed())).await {
        Either::Left((accepted, _)) => accepted.map_err(ReceiveError::Tls),
        Either::Right(((), _)) => Err(ReceiveError::Closed),
    }
}

/// The transmission phase after the handshake, if that led to one.
async fn converse<S: ByteStream, V: Volume>(
    stream: &S,
    receiver: &mut Receiver<'_, S>,
    exports: &[Export<V>],
    limits: Limits,
    account: Account,
    closing: &Closing,
    shaken: Result<Shaken, ReceiveError>,
) -> Result<Ended, ReceiveError> {
    let agreed = match shaken {
        Ok(Shaken::Agreed(agreed)) => agreed,
        Ok(Shaken::Ended(ended)) => return Ok(ended),
        Ok(Shaken::StartTls) => unreachable!("TLS is begun by the caller, and once"),
        Err(ReceiveError::Closed) => return Ok(Ended::ByServer),
        Err(error) => return Err(error),
    };
    let session = Rc::new(Session::new(exports[agreed.export].volume.clone(), agreed, limits, account));
    let _dropped = Dropped(session.clone());
    let (received, sent, ()) = futures_util::future::join3(
        session.receive_requests(receiver),
        session.send_replies(stream, closing),
        session.drive_requests(),
    )
    .await;
    // When sending fails, receiving is closed, so that is not the cause.
    match (received, sent) {
        (Ok(()), Ok(())) => Ok(Ended::ByClient),
        (Err(ReceiveError::Closed), Ok(())) => Ok(Ended::ByServer),
        (Ok(()) | Err(ReceiveError::Closed), Err(error)) => Err(error.into()),
        (Err(error), _) => Err(error),
    }
}

enum Shaken {
    Agreed(Negotiated),
    StartTls,
    Ended(Ended),
}

/// The handshake from its first byte.
async fn greet<S: ByteStream>(
    stream: &S,
    receiver: &mut Receiver<'_, S>,
    handshake: &mut ServerHandshake,
    pool: &Pool,
) -> Result<Shaken, ReceiveError> {
    stream.send(vec![pool.copy_of(ServerHandshake::greeting().as_bytes())]).await?;
    shake_hands(stream, receiver, handshake, pool).await
}

async fn shake_hands<S: ByteStream>(
    stream: &S,
    receiver: &mut Receiver<'_, S>,
    handshake: &mut ServerHandshake,
    pool: &Pool,
) -> Result<Shaken, ReceiveError> {
    let mut out = Vec::new();
    loop {
        let mut input = receiver.input();
        let progress = handshake.advance(&mut input, &mut out)?;
        let unused = input.len();
        receiver.leave(unused);
        if !out.is_empty() {
            stream.send(vec![pool.copy_of(&out)]).await?;
            out.clear();
        }
        match progress {
            ServerProgress::Answered => {}
            ServerProgress::Transmission(agreed) => return Ok(Shaken::Agreed(agreed)),
            // Whoever could put bytes in here would have them taken for what comes through TLS.
            ServerProgress::StartTls if unused > 0 => {
                let why = "must be 0 until it is answered";
                return Err(WireError::field("STARTTLS", "bytes after it", unused as u64, why).into());
            }
            ServerProgress::StartTls => return Ok(Shaken::StartTls),
            ServerProgress::Aborted => return Ok(Shaken::Ended(Ended::ByClient)),
            ServerProgress::UnknownExport => return Ok(Shaken::Ended(Ended::UnknownExport)),
            ServerProgress::NeedInput => {
                if !receiver.fill().await? {
                    return Ok(Shaken::Ended(Ended::ByClient));
                }
            }
        }
    }
}

/// What a request holds until its reply is sent.
struct Permit<V: Volume> {
    session: Rc<Session<V>>,
    bytes: u64,
    source: Source,
}

impl<V: Volume> Drop for Permit<V> {
    fn drop(&mut self) {
        self.session.requests.set(self.session.requests.get() - 1);
        self.session.payload_bytes.set(self.session.payload_bytes.get() - self.bytes);
        self.session.account.put_back(self.bytes, self.source);
        self.session.receiver.wake();
    }
}

struct Session<V: Volume> {
    volume: V,
    agreed: Negotiated,
    limits: Limits,
    account: Account,
    /// Requests that hold a permit, and the bytes that they hold.
    requests: Cell<usize>,
    payload_bytes: Cell<u64>,
    /// No request comes any more.
    received_all: Cell<bool>,
    running: RefCell<FuturesUnordered<LocalBoxFuture<'static, ()>>>,
    replies: RefCell<Outbox<Permit<V>>>,
    receiver: Waiter,
    driver: Waiter,
    sender: Waiter,
}

impl<V: Volume> Session<V> {
    fn new(volume: V, agreed: Negotiated, limits: Limits, account: Account) -> Self {
        Self {
            volume,
            agreed,
            limits,
            account,
            requests: Cell::new(0),
            payload_bytes: Cell::new(0),
            received_all: Cell::new(false),
            running: RefCell::default(),
            replies: RefCell::default(),
            receiver: Waiter::default(),
            driver: Waiter::default(),
            sender: Waiter::default(),
        }
    }

    async fn receive_requests<S: ByteStream>(
        self: &Rc<Self>,
        receiver: &mut Receiver<'_, S>,
    ) -> Result<(), ReceiveError> {
        let result = self.receive_until_end(receiver).await;
        self.received_all.set(true);
        self.driver.wake();
        self.sender.wake();
        result
    }

    async fn receive_until_end<S: ByteStream>(
        self: &Rc<Self>,
        receiver: &mut Receiver<'_, S>,
    ) -> Result<(), ReceiveError> {
        let mut decoder = RequestDecoder::default();
        loop {
            let mut input = receiver.input();
            let event = decoder.next(&mut input)?;
            let unused = input.len();
            let request = match event {
                Some(RequestEvent::Request(request)) => Some(request),
                // Of a write that was refused: it goes by.
                Some(RequestEvent::Payload(_)) => None,
                None => {
                    receiver.leave(unused);
                    if receiver.fill().await? {
                        continue;
                    }
                    return if decoder.is_between_messages() {
                        Ok(())
                    } else {
                        Err(ReceiveError::Truncated("a request"))
                    };
                }
            };
            receiver.leave(unused);
            let Some(request) = request else { continue };
            if self.begin(&request, &mut decoder, receiver).await?.is_break() {
                return Ok(());
            }
        }
    }

    /// Waits until `request` may be held, receives its payload and starts it.
    async fn begin<S: ByteStream>(
        self: &Rc<Self>,
        request: &Request,
        decoder: &mut RequestDecoder,
        receiver: &mut Receiver<'_, S>,
    ) -> Result<ControlFlow<()>, ReceiveError> {
        let checked = Command::check(request, &self.agreed);
        let bytes = match checked {
            Ok(Command::Disconnect) => return Ok(ControlFlow::Break(())),
            Ok(Command::Read { bytes, .. } | Command::Write { bytes, .. }) => bytes.into(),
            Ok(Command::BlockStatus { bytes, one, .. }) => status_bytes(bytes, one),
            _ => 0,
        };
        let permit = self.permit(bytes).await;
        match checked {
            Err(refusal) => self.reply(request.cookie, refusal.into(), permit),
            Ok(command) => {
                let payload_bytes = decoder.payload_left();
                let payload = receiver.payload(self.volume.pool().take(payload_bytes as usize)).await?;
                decoder.skip_payload(payload_bytes);
                self.start(command, request.cookie, payload.freeze(), permit).await;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Waits for room among the [`Limits`], and then in the server's memory.
    async fn permit(self: &Rc<Self>, bytes: u64) -> Permit<V> {
        let source = poll_fn(|cx| {
            self.receiver.register(cx);
            let fits = self.requests.get() < self.limits.requests
                && self.payload_bytes.get() + bytes <= self.limits.payload_bytes;
            if fits || self.requests.get() == 0 { self.account.poll_take(bytes, cx) } else { Poll::Pending }
        })
        .await;
        self.requests.set(self.requests.get() + 1);
        self.payload_bytes.set(self.payload_bytes.get() + bytes);
        Permit { session: self.clone(), bytes, source }
    }

    /// Runs a command as far as it goes at once, and hands the rest to the driver.
    async fn start(self: &Rc<Self>, command: Command, cookie: u64, payload: Block, permit: Permit<V>) {
        let session = self.clone();
        let mut execution: LocalBoxFuture<'static, ()> = Box::pin(async move {
            let answer = execute(&session.volume, command, payload).await.unwrap_or_else(Answer::from);
            session.reply(cookie, answer, permit);
        });
        // What finishes at once costs no turn of the driver; what does not
        // registers the driver's waker when the driver polls it again.
        if poll_fn(|cx| Poll::Ready(execution.as_mut().poll(cx))).await.is_pending() {
            self.running.borrow_mut().push(execution);
            self.driver.wake();
        }
    }

    fn reply(&self, cookie: u64, answer: Answer, permit: Permit<V>) {
        let (head, data) = answer.encode(cookie, &self.agreed);
        self.replies.borrow_mut().push(head, data, permit);
        self.sender.wake();
    }

    /// Drives requests until no more can come.
    async fn drive_requests(&self) {
        poll_fn(|cx| {
            self.driver.register(cx);
            let mut running = self.running.borrow_mut();
            while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {}
            if self.received_all.get() && running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sends replies until no more can come. Once sending has failed, they are
    /// dropped, so that what they hold is free.
    async fn send_replies<S: ByteStream>(&self, stream: &S, closing: &Closing) -> io::Result<()> {
        let mut result = Ok(());
        while let Some((pieces, permits)) = poll_fn(|cx| self.next_replies(cx)).await {
            if result.is_ok() {
                result = stream.send(pieces).await;
            }
            if result.is_err() {
                closing.close();
            }
            drop(permits);
        }
        result
    }

    fn next_replies(&self, cx: &Context<'_>) -> Poll<Option<Batch<Permit<V>>>> {
        let mut replies = self.replies.borrow_mut();
        if !replies.is_empty() {
            return Poll::Ready(Some(replies.batch(self.volume.pool())));
        }
        // All permits but those of requests under way are gone with the batch before.
        if self.received_all.get() && self.requests.get() == 0 {
            return Poll::Ready(None);
        }
        self.sender.register(cx);
        Poll::Pending
    }
}

/// Breaks the cycles between a session and what it has under way, when the
/// session is dropped before its end.
struct Dropped<V: Volume>(Rc<Session<V>>);

impl<V: Volume> Drop for Dropped<V> {
    fn drop(&mut self) {
        let (running, replies) = (self.0.running.take(), self.0.replies.take());
        drop((running, replies));
    }
}

async fn execute<V: Volume>(volume: &V, command: Command, payload: Block) -> Result<Answer, VolumeError> {
    match command {
        Command::Read { at, bytes } => {
            let data = volume.read(at, volume.pool().take(bytes as usize)).await?.freeze();
            return Ok(Answer::Data { at, data });
        }
        Command::BlockStatus { at, bytes, one } => {
            let extents = volume.allocation(at, bytes.into()).await?;
            return Ok(Answer::Status(descriptors(&extents, bytes, one)));
        }
        Command::Write { at, durability, .. } => volume.write(at, payload, durability).await?,
        Command::Flush => volume.flush().await?,
        Command::Trim { at, bytes, durability } => {
            volume.discard(at, bytes.into()).await?;
            if durability == Durability::Stable {
                volume.flush().await?;
            }
        }
        Command::WriteZeroes { at, bytes, may_discard, durability } => {
            volume.write_zeroes(at, bytes.into(), may_discard, durability).await?;
        }
        Command::Disconnect => {}
    }
    Ok(Answer::Done)
}
