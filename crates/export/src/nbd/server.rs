//! The NBD server: it accepts connections and serves each with a [`session`](super::session).
//!
//! [`ServerLimits`] bounds the memory of all connections; `handshaking` decides which connections may stay. A client
//! that breaks the protocol or disconnects loses its connection. It never affects another client. Source:
//! `doc/proto.md`.

use super::memory::Memory;
use super::session::{Export, Limits, serve_admitted};
use super::stream::{ByteStream, Closing, ReceiveError};
use super::tls::Security;
use crate::handshaking::{Admission, ConnectionCounts, CountedConnection, Handshaking};
use crate::volume::Volume;
use engine::{Block, Buffer, Clock, Moment};
use io::RealClock;
use io::net::{Listener, Stream};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

impl ByteStream for Stream {
    fn recv(&self, into: Buffer) -> impl Future<Output = std::io::Result<(usize, Buffer)>> {
        Stream::recv(self, into)
    }

    fn send(&self, from: Vec<Block>) -> impl Future<Output = std::io::Result<()>> {
        Stream::send(self, from)
    }
}

/// A connection that calls `on_receive` when data arrives from its client.
struct Notifying<'a, T> {
    stream: &'a Stream,
    on_receive: T,
}

impl<T: Fn()> ByteStream for Notifying<'_, T> {
    async fn recv(&self, into: Buffer) -> std::io::Result<(usize, Buffer)> {
        let received = Stream::recv(self.stream, into).await;
        if received.as_ref().is_ok_and(|(bytes, _)| *bytes > 0) {
            (self.on_receive)();
        }
        received
    }

    fn send(&self, from: Vec<Block>) -> impl Future<Output = std::io::Result<()>> {
        Stream::send(self.stream, from)
    }
}

/// Minimum time between two log lines about failed handshakes.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The log of failed handshakes. Clients can cause thousands of them, so it is limited in rate.
#[derive(Default)]
struct FailureLog {
    last: Cell<Option<Moment>>,
    suppressed: Cell<u64>,
}

impl FailureLog {
    fn note(&self, error: &ReceiveError, now: Moment) {
        if self.last.get().is_some_and(|last| now.since(last) < FAILURE_LOG_INTERVAL) {
            self.suppressed.set(self.suppressed.get() + 1);
            return;
        }
        self.last.set(Some(now));
        match self.suppressed.take() {
            0 => tracing::warn!(%error, "an NBD session ended in its handshake"),
            others => tracing::warn!(%error, others, "NBD sessions ended in their handshakes"),
        }
    }
}

/// The limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum number of connections past the handshake. Further ones wait to be accepted.
    pub connections: usize,
    /// Maximum number of connections in the handshake, counted separately. One more evicts another.
    pub handshaking: usize,
    /// Maximum bytes of payload of all connections in flight. [`Memory`] divides it.
    pub payload_bytes: u64,
    /// Maximum time for a client's handshake.
    pub handshake: Duration,
    /// The limits of each connection.
    pub connection: Limits,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            handshaking: 64,
            payload_bytes: 512 << 20,
            handshake: Duration::from_secs(10),
            connection: Limits::default(),
        }
    }
}

/// Serves volumes over any number of listeners. Clones are the same server. It belongs to its volumes' thread, which
/// must have an [`io::Executor`].
pub struct Server<V: Volume>(Rc<Inner<V>>);

struct Inner<V: Volume> {
    exports: Rc<[Export<V>]>,
    limits: ServerLimits,
    memory: Rc<Memory>,
    security: Security,
    stopping: Cell<bool>,
    connections: RefCell<Vec<Connection>>,
    counts: Rc<ConnectionCounts>,
    /// The connections in the handshake.
    handshaking: RefCell<Handshaking>,
    /// One for all connections, whose times are compared.
    clock: RealClock,
    /// Limits the log of failed handshakes.
    failure_log: FailureLog,
    /// Wakers, called when a connection ends and when the server stops.
    changed: RefCell<Vec<Waker>>,
}

#[derive(Clone)]
struct Connection {
    closing: Rc<Closing>,
    stream: Stream,
}

impl<V: Volume> Clone for Server<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: Volume> Server<V> {
    /// A server of `exports`. The first is the default.
    ///
    /// # Panics
    /// When `exports` is empty.
    pub fn new(exports: Vec<Export<V>>, limits: ServerLimits) -> Self {
        Self::secured(exports, limits, Security::Plain)
    }

    /// The same, with connections protected by `security`.
    ///
    /// # Panics
    /// When `exports` is empty.
    pub fn secured(exports: Vec<Export<V>>, limits: ServerLimits, security: Security) -> Self {
        assert!(!exports.is_empty(), "something is exported");
        Self(Rc::new(Inner {
            exports: exports.into(),
            limits,
            memory: Rc::new(Memory::new(limits.payload_bytes, limits.connections)),
            security,
            stopping: Cell::new(false),
            connections: RefCell::default(),
            counts: Rc::default(),
            handshaking: RefCell::default(),
            failure_log: FailureLog::default(),
            clock: RealClock::new(),
            changed: RefCell::default(),
        }))
    }

    /// The number of connections past the handshake.
    pub fn connections(&self) -> usize {
        self.0.counts.admitted()
    }

    /// Accepts connections until [`Server::stop`] is called.
    ///
    /// When the system refuses to accept, and no served connection can end and free resources.
    pub async fn accept_from(&self, listener: Listener) -> std::io::Result<()> {
        loop {
            let mut accepting = pin!(listener.accept());
            let accepted = self.until(|cx| self.poll_accept(accepting.as_mut(), cx)).await;
            match accepted {
                None => return Ok(()),
                Some(Ok(stream)) => match self.room_for(stream.peer()).await {
                    None => return Ok(()),
                    Some(()) => self.add(stream),
                },
                Some(Err(error)) if self.0.counts.present() == 0 => return Err(error),
                Some(Err(error)) => {
                    tracing::warn!(%error, "a connection was not accepted; waiting for another to end");
                    let before = self.0.counts.present();
                    self.until(|_| if self.0.counts.present() < before { Poll::Ready(()) } else { Poll::Pending })
                        .await;
                }
            }
        }
    }

    /// Stops accepting and receiving. Completes when every received request is finished and answered. When `grace`
    /// completes first, the server closes the connections that have not read their answers.
    pub async fn stop(&self, grace: impl Future<Output = ()>) {
        self.0.stopping.set(true);
        self.0.connections.borrow().iter().for_each(|connection| connection.closing.close());
        self.wake();
        let mut grace = pin!(grace);
        let mut is_over = false;
        poll_fn(|cx| {
            if !is_over && grace.as_mut().poll(cx).is_ready() {
                is_over = true;
                self.0.connections.borrow().iter().for_each(|connection| connection.stream.shutdown());
            }
            self.register(cx);
            if self.0.connections.borrow().is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn poll_accept<F: Future>(&self, accepting: std::pin::Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.connections() < self.0.limits.connections { accepting.poll(cx) } else { Poll::Pending }
    }

    /// Calls `poll` until it is ready or the server stops. Each change of the server calls it again.
    async fn until<T>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        poll_fn(|cx| {
            if self.0.stopping.get() {
                return Poll::Ready(None);
            }
            self.register(cx);
            poll(cx).map(Some)
        })
        .await
    }

    fn register(&self, cx: &Context<'_>) {
        let mut changed = self.0.changed.borrow_mut();
        if !changed.iter().any(|waker| waker.will_wake(cx.waker())) {
            changed.push(cx.waker().clone());
        }
    }

    fn wake(&self) {
        let changed = self.0.changed.take();
        changed.into_iter().for_each(Waker::wake);
    }

    /// Completes when a connection from `peer` may be added. `None`: the server stops.
    async fn room_for(&self, peer: Option<IpAddr>) -> Option<()> {
        let wait = || {
            let now = self.0.clock.now().since(Moment::default());
            self.0.handshaking.borrow_mut().time_until_room(peer, now, self.0.limits.handshaking)
        };
        loop {
            let mut sleep = pin!(self.0.clock.sleep_until(self.0.clock.now() + wait()));
            let has_room = self
                .until(|cx| if wait().is_zero() { Poll::Ready(true) } else { sleep.as_mut().poll(cx).map(|()| false) });
            if has_room.await? {
                return Some(());
            }
        }
    }

    /// Serves a connection, which starts in the handshake.
    fn add(&self, stream: Stream) {
        let (peer, most, now) = (stream.peer(), self.0.limits.handshaking, self.0.clock.now().since(Moment::default()));
        let evicted = stream.clone();
        let counted = self.0.handshaking.borrow_mut().add(&self.0.counts, peer, now, move || evicted.shutdown(), most);
        self.serve(stream, counted);
    }

    fn serve(&self, stream: Stream, mut counted: CountedConnection) {
        let connection = Connection { closing: Rc::default(), stream };
        self.0.connections.borrow_mut().push(connection.clone());
        let server = self.clone();
        // The task itself reports how the session ended.
        drop(io::spawn(async move {
            let Connection { closing, stream } = connection;
            let limits = server.0.limits;
            let clock = &server.0.clock;
            let timeout = clock.sleep_until(clock.now() + limits.handshake);
            let Inner { exports, memory, security, failure_log, .. } = &*server.0;
            let notifying = Notifying { stream: &stream, on_receive: counted.on_receive() };
            let is_past_handshake = Cell::new(false);
            let admitted = async {
                counted.admit(limits.connections).await;
                is_past_handshake.set(true);
            };
            let admission = Admission { timeout, admitted };
            let ended =
                serve_admitted(&notifying, exports, limits.connection, memory, &closing, security, admission).await;
            match ended {
                Ok(ended) => tracing::debug!(?ended, "an NBD session ended"),
                Err(error) if is_past_handshake.get() => tracing::warn!(%error, "an NBD session ended"),
                Err(error) => failure_log.note(&error, clock.now()),
            }
            server.0.connections.borrow_mut().retain(|other| !Rc::ptr_eq(&other.closing, &closing));
            drop(counted);
            server.wake();
        }));
    }
}
