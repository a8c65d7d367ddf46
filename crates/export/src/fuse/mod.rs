//! FUSE: a volume as a file, for users without root, and for loop devices.
//!
//! The crate `fuser` mounts a directory with one file and reads the kernel's requests on threads of its own. Requests
//! that touch data go to the volume's thread (`drive`), which answers the kernel itself. A read is answered from the
//! volume's own buffer. A write is copied twice: on arrival, and into a buffer of the volume, which only the volume's
//! thread can allocate.
//!
//! The kernel bounds the requests in flight (`max_background`). The page cache is never used, so an answered write has
//! reached the volume. Sources: `fuse(4)`, the kernel's `Documentation/filesystems/fuse.rst`.

mod drive;
mod file_system;

use crate::volume::Volume;
use file_system::FileSystem;
use fuser::{BackgroundSession, Config, MountOption, Session};
use futures_channel::{mpsc, oneshot};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The file's name in the directory.
pub const FILE_NAME: &str = "array";

/// Number of threads that read the kernel's requests.
const THREADS: usize = 2;

/// A mounted volume. It belongs to the volume's thread, which must have an [`::io::Executor`].
pub struct Mounted {
    session: BackgroundSession,
    opened: Arc<AtomicUsize>,
}

impl Mounted {
    /// Mounts `volume` at the directory `mountpoint`. Only the calling user may access the file.
    ///
    /// # Errors
    /// When the system or `fusermount3` refuses.
    ///
    /// # Panics
    /// When the current thread has no executor.
    pub fn mount<V: Volume>(mountpoint: &Path, volume: V) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", mountpoint.display()));
        let (jobs, received) = mpsc::unbounded();
        let opened = Arc::new(AtomicUsize::new(0));
        let access = if volume.is_read_only() { MountOption::RO } else { MountOption::RW };
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("mdspace".into()), MountOption::Subtype("mdspace".into()), access];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let file_system = FileSystem::new(&volume, jobs, opened.clone());
        let session = Session::new(file_system, mountpoint, &config).map_err(named)?.spawn().map_err(named)?;
        // The task ends with the session.
        drop(::io::spawn(drive::drive(volume, received)));
        Ok(Self { session, opened })
    }

    /// How many open handles the file has.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// Unmounts. Completes when the file system is unmounted, or when `grace` ends first because the file is still in
    /// use. Later requests fail.
    ///
    /// # Errors
    /// When the file is still in use, or the system refuses.
    pub async fn unmount(self, grace: impl Future<Output = ()>) -> io::Result<()> {
        let (ended, end) = oneshot::channel();
        // Unmounting may make the kernel send a flush, which this thread has to answer meanwhile.
        std::thread::Builder::new().name("fuse-unmount".to_owned()).spawn(move || {
            // If `grace` ended first, the receiver is gone.
            let _ = ended.send(self.session.umount_and_join());
        })?;
        let (grace, end) = (std::pin::pin!(grace), std::pin::pin!(end));
        match futures_util::future::select(end, grace).await {
            futures_util::future::Either::Left((ended, _)) => {
                ended.unwrap_or_else(|error| Err(io::Error::other(error)))
            }
            futures_util::future::Either::Right(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
