//! Accepts connections and serves each with a [`session`](super::session).
//!
//! What connections can hold in memory is bounded by [`ServerLimits`]. A
//! client that breaks the protocol or disappears loses its connection, and
//! nobody else notices.

use super::memory::Memory;
use super::session::{Export, Limits, serve};
use super::stream::{ByteStream, Closing};
use super::tls::Security;
use crate::volume::Volume;
use engine::{Block, Buffer, Clock};
use futures_util::task::AtomicWaker;
use io::RealClock;
use io::net::{Listener, Stream};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// What a server takes on at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections; more wait to be accepted.
    pub connections: usize,
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
            payload_bytes: 512 << 20,
            handshake: Duration::from_secs(10),
            connection: Limits::default(),
        }
    }
}

/// Serves volumes over any number of listeners; clones are the same server.
/// Belongs to the thread of its volumes, which has an [`io::Executor`].
pub struct Server<V: Volume>(Rc<Inner<V>>);

/// Connections of several servers, each on a thread of its own, that are one to their clients.
#[derive(Clone, Default)]
pub struct Together(Arc<Count>);

#[derive(Default)]
struct Count {
    connections: AtomicUsize,
    /// Who waits for one to end.
    full: AtomicWaker,
}

impl Together {
    fn count(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }
}

/// A connection that counts while this lives, wherever it is served.
pub struct Counted(Together);

impl Counted {
    fn new(together: &Together) -> Self {
        together.0.connections.fetch_add(1, Ordering::Relaxed);
        Self(together.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.0.full.wake();
    }
}

/// Takes connections that were accepted here to a server on another thread ([`Server::take_over`]).
pub type Other = Box<dyn Fn(OwnedFd, Counted)>;

struct Inner<V: Volume> {
    exports: Rc<[Export<V>]>,
    limits: ServerLimits,
    memory: Rc<Memory>,
    security: Security,
    stopping: Cell<bool>,
    connections: RefCell<Vec<Connection>>,
    together: Together,
    /// Where connections go in turn, besides here, and whose turn is next.
    others: RefCell<Vec<Other>>,
    turn: Cell<usize>,
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
            together: Together::default(),
            others: RefCell::default(),
            turn: Cell::new(0),
            changed: RefCell::default(),
        }))
    }

    /// Connections that are being served, here and by the others.
    pub fn connections(&self) -> usize {
        self.0.together.count()
    }

    /// Has connections that are accepted here served by others, too, in turn.
    pub fn share_with(&self, others: Vec<Other>) {
        self.0.others.replace(others);
    }

    /// Serves a connection that another server, on another thread, has accepted.
    pub fn take_over(&self, connection: OwnedFd, counted: Counted) {
        if !self.0.stopping.get() {
            self.serve(Stream::attached(connection), counted);
        }
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
                Some(Ok(stream)) => self.place(stream),
                Some(Err(error)) if self.connections() == 0 => return Err(error),
                Some(Err(error)) => {
                    tracing::warn!(%error, "a connection was not accepted; waiting for another to end");
                    let before = self.connections();
                    self.until(|cx| {
                        self.0.together.0.full.register(cx.waker());
                        if self.connections() < before { Poll::Ready(()) } else { Poll::Pending }
                    })
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
        self.0.together.0.full.register(cx.waker());
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

    /// Serves a connection here, or has another do so whose turn it is.
    fn place(&self, stream: Stream) {
        let counted = Counted::new(&self.0.together);
        let others = self.0.others.borrow();
        let turn = self.0.turn.replace((self.0.turn.get() + 1) % (others.len() + 1));
        match turn.checked_sub(1).map(|other| &others[other]) {
            None => self.serve(stream, counted),
            Some(other) => match stream.detach() {
                Ok(connection) => other(connection, counted),
                Err(error) => tracing::warn!(%error, "a connection was not handed over"),
            },
        }
    }

    fn serve(&self, stream: Stream, counted: Counted) {
        let connection = Connection { closing: Rc::default(), stream };
        self.0.connections.borrow_mut().push(connection.clone());
        let server = self.clone();
        // The task tells of its end itself.
        drop(io::spawn(async move {
            let Connection { closing, stream } = connection;
            let limits = server.0.limits;
            let clock = RealClock::new();
            let patience = clock.sleep_until(clock.now() + limits.handshake);
            let Inner { exports, memory, security, .. } = &*server.0;
            let ended = serve(&stream, exports, limits.connection, memory, &closing, security, patience).await;
            match ended {
                Ok(ended) => tracing::debug!(?ended, "an NBD session ended"),
                Err(error) => tracing::warn!(%error, "an NBD session ended"),
            }
            server.0.connections.borrow_mut().retain(|other| !Rc::ptr_eq(&other.closing, &closing));
            drop(counted);
            server.wake();
        }));
    }
}
