//! The two backends of an executor, and the choice between them. It starts nothing by itself.
//!
//! io_uring is the faster one. Container profiles, `kernel.io_uring_disabled`, a limit on locked memory and old kernels
//! refuse it. Threads need nothing but the system calls that every program uses. Source: io_uring_setup(2).

use std::fmt;
use std::io;

/// How an executor carries operations out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// One io_uring for each executor.
    IoUring,
    /// System calls of a pool of threads, and epoll.
    Threads,
}

impl Backend {
    /// Both, the faster one first.
    pub const ALL: [Self; 2] = [Self::IoUring, Self::Threads];

    /// Its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Threads => "threads",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which backend an executor is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring, or threads where the system refuses io_uring.
    #[default]
    Auto,
    /// This one, or an error.
    Only(Backend),
}

/// Whether the system refuses io_uring itself, for a reason that does not concern threads. Without descriptors, for
/// example, threads could not work either.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || matches!(
            error.raw_os_error(),
            Some(libc::EPERM | libc::ENOSYS | libc::EACCES | libc::EINVAL | libc::ENOMEM | libc::EOPNOTSUPP)
        )
}
