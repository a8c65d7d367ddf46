//! The vhost-user server: it accepts clients one after the other and runs their queues. It never serves two clients at
//! a time. Source: QEMU's `docs/interop/vhost-user.rst`.

use super::config::Properties;
use super::frontend::{Frontend, Order, OrderKind};
use super::ring::{Ring, RingError};
use crate::volume::Volume;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use io::Event;
use io::net::{SocketAccess, SocketNode, listen_unix};
use std::collections::BTreeMap;
use std::io::Result;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use vhost::vhost_user::{BackendReqHandler, Error};

/// Serves one volume on one socket. It belongs to the volume's thread, which must have an [`io::Executor`].
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    ended: oneshot::Receiver<std::io::Error>,
    device: io::JoinHandle<()>,
    _node: SocketNode,
}

/// State shared by the two threads.
struct Shared {
    listener: UnixListener,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Option<UnixStream>,
    stopping: bool,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Each change of it is a single store.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Listens at `path`, with access for the owner only, and serves `volume`. Guests see the first 20 bytes of `name`.
    /// A socket without a listener is replaced.
    ///
    /// # Errors
    /// The errors of [`io::net::Listener::unix`], and a failure to start the thread.
    ///
    /// # Panics
    /// When the current thread has no executor.
    pub fn start<V: Volume>(path: &Path, access: SocketAccess, volume: V, name: &str) -> Result<Self> {
        let (listener, node) = listen_unix(path, access)?;
        let shared = Arc::new(Shared { listener: listener.into(), state: Mutex::default() });
        let properties = Properties::of(&volume, name);
        let (orders, received) = mpsc::unbounded();
        let device = io::spawn(Device::new(volume, properties.clone()).run(received));
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("vhost-user".to_owned()).spawn({
            let shared = shared.clone();
            move || {
                if let Err(error) = accept(&shared, &properties, &orders) {
                    // The receiver is gone while the server is being stopped.
                    drop(end.send(error));
                }
            }
        })?;
        Ok(Self { shared, thread: Some(thread), ended, device, _node: node })
    }

    /// The number of connected clients: 0 or 1.
    pub fn connections(&self) -> usize {
        usize::from(self.shared.state().client.is_some())
    }

    /// Completes with the reason when no more clients can be accepted.
    pub async fn ended(&mut self) -> std::io::Error {
        (&mut self.ended).await.unwrap_or_else(|_| std::io::Error::other("the vhost-user thread ended"))
    }

    /// Disconnects the client. Completes when all started requests of its queues are finished. The client may send the
    /// unanswered ones to the next server.
    pub async fn stop(mut self) {
        self.shared.stop();
        (&mut self.device).await;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the vhost-user thread panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Shared {
    fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        // Each call fails only when there is nothing to wake.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let _ = state.client.as_ref().map(|client| client.shutdown(Shutdown::Both));
    }
}

/// Serves one client after the other.
fn accept(shared: &Shared, properties: &Properties, orders: &mpsc::UnboundedSender<Order>) -> Result<()> {
    loop {
        let accepted = shared.listener.accept();
        let stream = {
            let mut state = shared.state();
            if state.stopping {
                return Ok(());
            }
            let (stream, _) = accepted?;
            state.client = Some(stream.try_clone()?);
            stream
        };
        let frontend = Arc::new(Mutex::new(Frontend::new(properties.clone(), orders.clone())));
        let mut handler = BackendReqHandler::from_stream(stream, frontend.clone());
        let error = loop {
            if let Err(error) = handler.handle_request() {
                break error;
            }
        };
        match error {
            Error::Disconnected | Error::SocketBroken(_) => tracing::debug!(%error, "a vhost-user client left"),
            error => tracing::warn!(%error, "a vhost-user client was disconnected"),
        }
        frontend.lock().unwrap_or_else(PoisonError::into_inner).close();
        shared.state().client = None;
    }
}

/// The queues, on the volume's thread.
struct Device<V: Volume> {
    volume: V,
    properties: Rc<Properties>,
    running: BTreeMap<usize, (Rc<Ring<V>>, io::JoinHandle<()>)>,
}

impl<V: Volume> Device<V> {
    fn new(volume: V, properties: Properties) -> Self {
        Self { volume, properties: Rc::new(properties), running: BTreeMap::new() }
    }

    /// Carries orders out until the channel is closed.
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(Order { kind, answer }) = orders.next().await {
            let done = self.carry_out(kind).await;
            // The receiver is gone only if its thread panicked.
            drop(answer.send(done));
        }
        self.stop_all().await;
    }

    async fn carry_out(&mut self, kind: OrderKind) -> std::result::Result<u16, RingError> {
        match kind {
            OrderKind::Start(index, setup, kick) => {
                self.stop(index).await;
                let ring = Ring::new(self.volume.clone(), self.properties.clone(), *setup, Event::new(kick))?;
                let ring = Rc::new(ring);
                let task = io::spawn(ring.clone().run());
                self.running.insert(index, (ring, task));
            }
            OrderKind::SetCall(index, call) => {
                if let Some((ring, _)) = self.running.get(&index) {
                    ring.set_call(call.map(Event::new));
                }
            }
            OrderKind::Enable(index, enabled) => {
                if let Some((ring, _)) = self.running.get(&index) {
                    ring.enable(enabled);
                }
            }
            OrderKind::SetMemory(memory) => {
                self.running.values().for_each(|(ring, _)| ring.set_memory(memory.clone()));
            }
            OrderKind::Stop(index) => return Ok(self.stop(index).await.unwrap_or_default()),
            OrderKind::StopAll => self.stop_all().await,
        }
        Ok(0)
    }

    /// Stops a queue and waits for its requests in flight. Returns the index of the next available entry.
    async fn stop(&mut self, index: usize) -> Option<u16> {
        let (ring, task) = self.running.remove(&index)?;
        ring.stop();
        task.await;
        Some(ring.next_avail())
    }

    async fn stop_all(&mut self) {
        self.running.values().for_each(|(ring, _)| ring.stop());
        while let Some((_, (_, task))) = self.running.pop_first() {
            task.await;
        }
    }
}
