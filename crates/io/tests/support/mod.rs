//! Helpers for the tests and the benchmark of this crate.
#![allow(dead_code)] // each of its users needs a part

use engine::{Buffer, Pool};
use mdspace_io::{Backend, Choice, Executor, Options};
use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

thread_local! {
    /// The backend of the test that runs on this thread.
    static BACKEND: Cell<Backend> = const { Cell::new(Backend::IoUring) };
}

/// Runs `claim` once for each backend, which [`options`] then ask for.
pub(crate) fn on_each_backend(claim: impl Fn()) {
    for backend in Backend::ALL {
        BACKEND.set(backend);
        claim();
    }
}

/// Options for an executor with the backend whose turn it is.
pub(crate) fn options(pool: Pool) -> Options {
    Options { backend: Choice::Only(BACKEND.get()), ..Options::new(pool) }
}

/// An executor with a registered arena of 16 MiB, and its pool.
pub(crate) fn executor() -> (Executor, Pool) {
    let pool = Pool::new(16 << 20);
    (Executor::new(&options(pool.clone())).unwrap_or_else(|error| panic!("{}: {error}", BACKEND.get())), pool)
}

/// Excludes the other tests of the process. Between fork and exec, a child process has a copy of every descriptor. So a
/// program started by one test may briefly hold what another test has just closed.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner) // the failed test has reported it
}

/// Bytes that differ between offsets and between seeds.
pub(crate) fn fill(buffer: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for piece in buffer.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        piece.copy_from_slice(&state.to_be_bytes()[..piece.len()]);
    }
}

/// A buffer filled as by [`fill`].
pub(crate) fn filled(pool: &Pool, bytes: usize, seed: u64) -> Buffer {
    let mut buffer = pool.take(bytes);
    fill(&mut buffer, seed);
    buffer
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

/// Reports, despite the harness's capture of output, that a test did not run, and why. In CI that is a failure.
pub(crate) fn did_not_run(test: &str, reason: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} did not run: {reason}");
    writeln!(std::io::stderr(), "did not run: {test}: {reason}").expect("standard error");
}

/// A loop device over a sparse file, detached when dropped.
pub(crate) struct LoopDevice {
    path: PathBuf,
    _backing: Option<tempfile::NamedTempFile>,
}

impl LoopDevice {
    /// A device over a file on tmpfs, which needs `/dev/shm`.
    ///
    /// # Errors
    /// The reason why that is not possible here.
    pub(crate) fn new(bytes: u64) -> Result<Self, String> {
        let backing = tempfile::Builder::new().tempfile_in("/dev/shm").map_err(|error| error.to_string())?;
        backing.as_file().set_len(bytes).map_err(|error| error.to_string())?;
        let mut device = Self::over(backing.path(), &["--direct-io=on"])?;
        device._backing = Some(backing);
        Ok(device)
    }

    /// A device over an existing file or block device, with further options of losetup.
    ///
    /// # Errors
    /// The reason why that is not possible here.
    pub(crate) fn over(path: &Path, options: &[&str]) -> Result<Self, String> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(path)
            .output()
            .map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned());
        }
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
        Ok(Self { path, _backing: None })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // If it fails, the device disappears with its last user.
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}
