//! Accepts connections and serves each with a [`session`](super::session).
//!
//! What connections can hold in memory is bounded by [`ServerLimits`]; who is let in, by `strangers`. A
//! client that breaks the protocol or disappears loses its connection, and
//! nobody else notices.

use super::memory::Memory;
use super::session::{Export, Limits, serve_admitted};
use super::strangers::{Counted, Counts, Entrance, Strangers};
use super::stream::{ByteStream, Closing, ReceiveError};
use super::tls::Security;
use crate::volume::Volume;
use engine::{Block, Buffer, Clock, Moment};
use io::RealClock;
use io::net::{Listener, Stream};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
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

/// A connection of which it is told when its client says something.
struct Heard<'a, T> {
    stream: &'a Stream,
    tell: T,
}

impl<T: Fn()> ByteStream for Heard<'_, T> {
    async fn recv(&self, into: Buffer) -> std::io::Result<(usize, Buffer)> {
        let received = Stream::recv(self.stream, into).await;
        if received.as_ref().is_ok_and(|(bytes, _)| *bytes > 0) {
            (self.tell)();
        }
        received
    }

    fn send(&self, from: Vec<Block>) -> impl Future<Output = std::io::Result<()>> {
        Stream::send(self.stream, from)
    }
}

/// How often strangers' failures are told of.
const COMPLAINTS_INTERVAL: Duration = Duration::from_secs(1);

/// Failures of strangers, which can be had by the thousand, so that they fill no log.
#[derive(Default)]
struct Complaints {
    last: Cell<Option<Moment>>,
    unsaid: Cell<u64>,
}

impl Complaints {
    fn note(&self, error: &ReceiveError, now: Moment) {
        if self.last.get().is_some_and(|last| now.since(last) < COMPLAINTS_INTERVAL) {
            self.unsaid.set(self.unsaid.get() + 1);
            return;
        }
        self.last.set(Some(now));
        match self.unsaid.take() {
            0 => tracing::warn!(%error, "an NBD session ended in its handshake"),
            others => tracing::warn!(%error, others, "NBD sessions ended in their handshakes"),
        }
    }
}

/// What a server takes on at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections that have finished the handshake; more wait to be accepted.
    pub connections: usize,
    /// Connections that have not, besides; a further one takes the place of another.
    pub strangers: usize,
    /// Bytes of payloads that all of them together may have under way; [`Memory`] says who gets them.
    pub payload_bytes: u64,
    /// How long a client may take for the handshake.
    pub handshake: Duration,
    /// What each of them may have under way.
    pub connection: Limits,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            strangers: 64,
            payload_bytes: 512 << 20,
            handshake: Duration::from_secs(10),
            connection: Limits::default(),
        }
    }
}

/// Serves volumes over any number of listeners; clones are the same server.
/// Belongs to the thread of its volumes, which has an [`io::Executor`].
pub struct Server<V: Volume>(Rc<Inner<V>>);

struct Inner<V: Volume> {
    exports: Rc<[Export<V>]>,
    limits: ServerLimits,
    memory: Rc<Memory>,
    security: Security,
    stopping: Cell<bool>,
    connections: RefCell<Vec<Connection>>,
    counts: Rc<Counts>,
    strangers: RefCell<Strangers>,
    /// What is said of strangers whose connections ended.
    complaints: Complaints,
    /// Woken when a connection ends, and when the server stops.
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
    /// A server of `exports`, the first of which is the default.
    ///
    /// # Panics
    /// When `exports` is empty.
    pub fn new(exports: Vec<Export<V>>, limits: ServerLimits) -> Self {
        Self::secured(exports, limits, Security::Plain)
    }

    /// The same, with connections protected as `security` says.
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
            strangers: RefCell::default(),
            complaints: Complaints::default(),
            changed: RefCell::default(),
        }))
    }

    /// Connections that have finished the handshake.
    pub fn connections(&self) -> usize {
        self.0.counts.admitted()
    }

    /// Accepts connections until [`Server::stop`] is called.
    ///
    /// # Errors
    /// When the system refuses to accept although nothing that could end and
    /// make room is being served.
    pub async fn accept_from(&self, listener: Listener) -> std::io::Result<()> {
        loop {
            let mut accepting = pin!(listener.accept());
            let accepted = self.until(|cx| self.poll_accept(accepting.as_mut(), cx)).await;
            match accepted {
                None => return Ok(()),
                Some(Ok(stream)) => self.take_in(stream),
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

    /// Stops accepting and receiving, and completes when every request that
    /// was received is finished and answered. Whoever has not taken its
    /// answers when `grace` completes is cut off.
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

    /// Polls until it is ready or the server stops; polled again at each change.
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

    /// Serves a connection, which is a stranger's at first.
    fn take_in(&self, stream: Stream) {
        let (peer, most) = (stream.peer(), self.0.limits.strangers);
        let counted = self.0.strangers.borrow_mut().take_in(&self.0.counts, peer, Some(stream.clone()), most);
        self.serve(stream, counted);
    }

    fn serve(&self, stream: Stream, mut counted: Counted) {
        let connection = Connection { closing: Rc::default(), stream };
        self.0.connections.borrow_mut().push(connection.clone());
        let server = self.clone();
        // The task tells of its end itself.
        drop(io::spawn(async move {
            let Connection { closing, stream } = connection;
            let limits = server.0.limits;
            let clock = RealClock::new();
            let patience = clock.sleep_until(clock.now() + limits.handshake);
            let Inner { exports, memory, security, complaints, .. } = &*server.0;
            let heard = Heard { stream: &stream, tell: counted.heard() };
            let is_known = Cell::new(false);
            let admitted = async {
                counted.admit(limits.connections).await;
                is_known.set(true);
            };
            let entrance = Entrance { patience, admitted };
            let ended = serve_admitted(&heard, exports, limits.connection, memory, &closing, security, entrance).await;
            match ended {
                Ok(ended) => tracing::debug!(?ended, "an NBD session ended"),
                Err(error) if is_known.get() => tracing::warn!(%error, "an NBD session ended"),
                Err(error) => complaints.note(&error, clock.now()),
            }
            server.0.connections.borrow_mut().retain(|other| !Rc::ptr_eq(&other.closing, &closing));
            drop(counted);
            server.wake();
        }));
    }
}
