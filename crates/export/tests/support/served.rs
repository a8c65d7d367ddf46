//! A server over a memory volume on a unix socket, and programs that others wrote to ask it.
//!
//! A missing program fails its test with its package's name: nothing is skipped.
#![allow(dead_code, reason = "each of the tests that include it uses a part")]

use engine::Pool;
use io::net::Listener;
use io::{Executor, Options, Remote};
use mdspace_export::MemoryVolume;
use mdspace_export::nbd::server::{Server, ServerLimits};
use mdspace_export::nbd::session::Export;
use mdspace_export::nbd::tls::Security;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread::JoinHandle;

pub(crate) const BYTES: usize = 64 << 20;

/// A server on a thread of its own, stopped when dropped.
pub(crate) struct Served {
    directory: tempfile::TempDir,
    pub(crate) remote: Remote,
    stop: Option<futures_channel::oneshot::Sender<()>>,
    thread: Option<JoinHandle<Vec<u8>>>,
}

impl Served {
    /// Offers `bytes` of memory as `array`.
    pub(crate) fn new(bytes: usize, read_only: bool) -> Self {
        Self::secured(bytes, read_only, Security::Plain)
    }

    /// The same, protected.
    pub(crate) fn secured(bytes: usize, read_only: bool, security: Security) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("nbd");
        let (stop, stopped) = futures_channel::oneshot::channel::<()>();
        let (sender, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let pool = Pool::new(64 << 20);
            let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
            let volume = MemoryVolume::new(bytes, pool);
            let offered = if read_only { volume.clone().read_only() } else { volume.clone() };
            executor.block_on(async {
                let exports = vec![Export { name: "array".into(), volume: offered }];
                let server = Server::secured(exports, ServerLimits::default(), security);
                let listener = Listener::unix(&socket, 0o600).expect("a socket");
                sender.send(executor.remote()).expect("the test waits");
                let accepting = server.clone();
                let accepted = io::spawn(async move { accepting.accept_from(listener).await });
                // Told to stop, or the test is over: the same.
                let _ = stopped.await;
                server.stop(std::future::pending()).await;
                accepted.await.expect("connections were accepted until the stop");
            });
            volume.snapshot()
        });
        let remote = started.recv().expect("the server starts");
        Self { directory, remote, stop: Some(stop), thread: Some(thread) }
    }

    /// Without TLS.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///array?socket={}", self.path("nbd").display())
    }

    /// A file beside the socket.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops the server; what the volume held in the end.
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

/// Runs a program of Debian's `package`; its output when it succeeds.
pub(crate) fn run(package: &str, program: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} cannot be run ({error}): apt-get install {package}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{program} {arguments:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Bytes that differ everywhere, with holes between them.
pub(crate) fn image(path: &Path) -> Vec<u8> {
    let bytes: Vec<u8> = (0..BYTES)
        .map(
            |at| if (at >> 20) % 3 == 1 { 0 } else { (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0] },
        )
        .collect();
    std::fs::write(path, &bytes).expect("an image is written");
    bytes
}
