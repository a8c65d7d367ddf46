//! A server of any kind over a memory volume, on a thread of its own.
#![allow(dead_code, reason = "each of the tests that include it uses a part")]

use engine::Pool;
use io::{Executor, Options, Remote};
use mdspace_export::MemoryVolume;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Completes when the server is to stop. A server that awaits it is ready for clients.
pub(crate) type Stopped = Pin<Box<dyn Future<Output = ()>>>;

/// A server that is stopped when dropped.
pub(crate) struct Served {
    directory: tempfile::TempDir,
    pub(crate) remote: Remote,
    stop: Option<futures_channel::oneshot::Sender<()>>,
    thread: Option<JoinHandle<Vec<u8>>>,
}

impl Served {
    /// Lets `server` serve `bytes` of memory, with its socket in the directory passed to it.
    pub(crate) fn by(
        bytes: usize,
        read_only: bool,
        server: impl AsyncFnOnce(&Path, MemoryVolume, Stopped) + Send + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let place = directory.path().to_owned();
        let (stop, stopped) = futures_channel::oneshot::channel::<()>();
        let (sender, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let pool = Pool::new(64 << 20);
            let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
            let volume = MemoryVolume::new(bytes, pool);
            let offered = if read_only { volume.clone().read_only() } else { volume.clone() };
            let remote = executor.remote();
            let stopped = Box::pin(async move {
                sender.send(remote).expect("the test waits");
                // A stop, and the end of the test, have the same effect.
                let _ = stopped.await;
            });
            executor.block_on(server(&place, offered, stopped));
            volume.snapshot()
        });
        let remote = started.recv().expect("the server starts");
        Self { directory, remote, stop: Some(stop), thread: Some(thread) }
    }

    /// A path in the socket's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops the server. Returns the final contents of the volume.
    pub(crate) fn stop(mut self) -> Vec<u8> {
        drop(self.stop.take());
        self.thread.take().expect("stopped once").join().expect("the server ends well")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends well");
        }
    }
}
