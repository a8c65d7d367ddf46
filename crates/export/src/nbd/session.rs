//! One client's connection, from the greeting to the end.
//!
//! Three loops run side by side on the volume's thread. One receives and starts requests, one polls the requests that
//! did not finish at once, and one sends all ready replies at a time.
//!
//! Invariants: a request holds its part of [`Limits`] and of the server's [`Memory`] from before its payload is
//! received until its reply is sent. So the session stops reading from a client that does not read its replies. A
//! started request is finished, whatever happens to the connection. A session never touches another session's state.
//! Source: `doc/proto.md`.

use super::answer::{Answer, descriptors, status_bytes};
use super::handshake::{ExportInfo, Negotiated, ServerHandshake, ServerProgress};
use super::memory::{Account, Memory, Source};
use super::request::{Command, Request, RequestDecoder, RequestEvent};
use super::stream::{Batch, ByteStream, Closing, Outbox, ReceiveError, Receiver, Waiter};
use super::tls::Security;
#[cfg(feature = "tls")]
use super::tls::TlsStream;
use super::wire::WireError;
#[cfg(feature = "tls")]
use crate::Credentials;
use crate::handshaking::Admission;
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

/// The limits of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of requests, from their arrival until their replies are sent.
    pub requests: usize,
    /// Maximum bytes of their payloads. A single request may exceed it when alone.
    pub payload_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 256, payload_bytes: 16 << 20 }
    }
}

/// A volume with a name.
#[derive(Debug, Clone)]
pub struct Export<V> {
    /// The name that clients request.
    pub name: String,
    /// The volume behind it.
    pub volume: V,
}

/// How a session ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client sent DISC, or closed the connection between two messages.
    ByClient,
    /// [`Closing::close`] was called.
    ByServer,
    /// The client chose an unknown export with `EXPORT_NAME`, which allows no error reply.
    UnknownExport,
}

/// The same as `serve_admitted`, for a client that need not wait for admission.
///
/// # Errors
/// The same as of `serve_admitted`.
///
/// # Panics
/// When `exports` is empty.
pub async fn serve<S: ByteStream, V: Volume>(
    stream: &S,
    exports: &[Export<V>],
    limits: Limits,
    memory: &Rc<Memory>,
    closing: &Closing,
    security: &Security,
    timeout: impl Future<Output = ()>,
) -> Result<Ended, ReceiveError> {
    serve_admitted(stream, exports, limits, memory, closing, security, Admission::unbounded(timeout)).await
}

/// Serves one client until the client or `closing` ends the session. Requests received until then are finished, and
/// answered where possible.
///
/// The first of `exports` is the default. The client must finish the handshake and be admitted before
/// `admission.timeout` completes, or it loses the connection. So idle clients cannot block others.
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
    admission: Admission<impl Future<Output = ()>, impl Future<Output = ()>>,
) -> Result<Ended, ReceiveError> {
    let Admission { timeout, admitted } = admission;
    let pool = exports.first().expect("something is exported").volume.pool();
    let mut timeout = pin!(timeout);
    let mut handshake = ServerHandshake::new(exports.iter().map(described).collect(), security.tls());
    let mut receiver = Receiver::new(stream, closing, pool);
    let outcome = in_time(greet(stream, &mut receiver, &mut handshake, pool), timeout.as_mut()).await;
    match outcome {
        Ok(HandshakeOutcome::StartTls) => {}
        outcome => {
            let outcome = in_time(agreed(outcome, admitted, closing), timeout).await;
            return serve_transmission(stream, &mut receiver, exports, limits, memory.account(), closing, outcome)
                .await;
        }
    }
    #[cfg(feature = "tls")]
    if let Security::Offered(credentials) | Security::Required(credentials) = security {
        let accepting = in_time(accept(stream, pool, credentials, closing), timeout.as_mut());
        let secured = match accepting.await {
            Err(ReceiveError::Closed) => return Ok(Ended::ByServer),
            accepted => accepted?,
        };
        let mut receiver = Receiver::new(&secured, closing, pool);
        let mut handshake = handshake.secured();
        let outcome = in_time(shake_hands(&secured, &mut receiver, &mut handshake, pool), timeout.as_mut()).await;
        let outcome = in_time(agreed(outcome, admitted, closing), timeout).await;
        let ended =
            serve_transmission(&secured, &mut receiver, exports, limits, memory.account(), closing, outcome).await;
        // TLS asks for a close notification. It may fail when the client has already left.
        drop(secured.finish().await);
        return ended;
    }
    unreachable!("a handshake that does not know TLS does not begin it")
}

/// The result of a handshake, once its client is admitted.
async fn agreed(
    outcome: Result<HandshakeOutcome, ReceiveError>,
    admitted: impl Future<Output = ()>,
    closing: &Closing,
) -> Result<HandshakeOutcome, ReceiveError> {
    if !matches!(outcome, Ok(HandshakeOutcome::Agreed(_))) {
        return outcome;
    }
    match select(pin!(admitted), pin!(closing.closed())).await {
        Either::Left(((), _)) => outcome,
        Either::Right(((), _)) => Err(ReceiveError::Closed),
    }
}

/// The result of `waiting`, unless `timeout` completes first.
async fn in_time<T>(
    waiting: impl Future<Output = Result<T, ReceiveError>>,
    timeout: impl Future<Output = ()>,
) -> Result<T, ReceiveError> {
    match select(pin!(waiting), pin!(timeout)).await {
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

/// The transmission phase, if the handshake led to one.
async fn serve_transmission<S: ByteStream, V: Volume>(
    stream: &S,
    receiver: &mut Receiver<'_, S>,
    exports: &[Export<V>],
    limits: Limits,
    account: Account,
    closing: &Closing,
    outcome: Result<HandshakeOutcome, ReceiveError>,
) -> Result<Ended, ReceiveError> {
    let agreed = match outcome {
        Ok(HandshakeOutcome::Agreed(agreed)) => agreed,
        Ok(HandshakeOutcome::Ended(ended)) => return Ok(ended),
        Ok(HandshakeOutcome::StartTls) => unreachable!("TLS is begun by the caller, and once"),
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
    // When sending fails, the session also stops receiving, so that is not the cause.
    match (received, sent) {
        (Ok(()), Ok(())) => Ok(Ended::ByClient),
        (Err(ReceiveError::Closed), Ok(())) => Ok(Ended::ByServer),
        (Ok(()) | Err(ReceiveError::Closed), Err(error)) => Err(error.into()),
        (Err(error), _) => Err(error),
    }
}

enum HandshakeOutcome {
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
) -> Result<HandshakeOutcome, ReceiveError> {
    stream.send(vec![pool.copy_of(ServerHandshake::greeting().as_bytes())]).await?;
    shake_hands(stream, receiver, handshake, pool).await
}

async fn shake_hands<S: ByteStream>(
    stream: &S,
    receiver: &mut Receiver<'_, S>,
    handshake: &mut ServerHandshake,
    pool: &Pool,
) -> Result<HandshakeOutcome, ReceiveError> {
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
            ServerProgress::Transmission(agreed) => return Ok(HandshakeOutcome::Agreed(agreed)),
            // A third party could insert bytes here that would count as received over TLS.
            ServerProgress::StartTls if unused > 0 => {
                let why = "must be 0 until it is answered";
                return Err(WireError::field("STARTTLS", "bytes after it", unused as u64, why).into());
            }
            ServerProgress::StartTls => return Ok(HandshakeOutcome::StartTls),
            ServerProgress::Aborted => return Ok(HandshakeOutcome::Ended(Ended::ByClient)),
            ServerProgress::UnknownExport => return Ok(HandshakeOutcome::Ended(Ended::UnknownExport)),
            ServerProgress::NeedInput => {
                if !receiver.fill().await? {
                    return Ok(HandshakeOutcome::Ended(Ended::ByClient));
                }
            }
        }
    }
}

/// The part of the limits that a request holds until its reply is sent.
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
    /// No further request will arrive.
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
                // A piece of a refused write's payload: skipped.
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

    /// Waits until the limits allow `request`, receives its payload and starts it.
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

    /// Waits for room within [`Limits`], then within the server's memory.
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

    /// Polls a command once, and leaves the rest to the driver.
    async fn start(self: &Rc<Self>, command: Command, cookie: u64, payload: Block, permit: Permit<V>) {
        let session = self.clone();
        let mut execution: LocalBoxFuture<'static, ()> = Box::pin(async move {
            let answer = execute(&session.volume, command, payload).await.unwrap_or_else(Answer::from);
            session.reply(cookie, answer, permit);
        });
        // A command that finishes at once costs no turn of the driver. Another registers the driver's waker when the
        // driver polls it.
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

    /// Polls requests until no further one can arrive.
    async fn drive_requests(&self) {
        poll_fn(|cx| {
            self.driver.register(cx);
            let mut running = self.running.borrow_mut();
            while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {}
            if self.received_all.get() && running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sends replies until no further one can arrive. After a failed send, replies are dropped, so that their permits
    /// are free.
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
        // All permits but those of requests in flight were released with the previous batch.
        if self.received_all.get() && self.requests.get() == 0 {
            return Poll::Ready(None);
        }
        self.sender.register(cx);
        Poll::Pending
    }
}

/// Breaks the reference cycles between a session and its requests in flight, when the session is dropped early.
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
