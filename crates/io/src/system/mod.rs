//! What each operating system does its own way: one folder for Linux, and one for FreeBSD and macOS. Both have the same
//! modules with the same functions, so that no other file of this crate names a system.
//!
//! | Module | Linux | FreeBSD, macOS |
//! |---|---|---|
//! | `aliases` | the file behind a loop device | none are known |
//! | `asynchronous` | io_submit | none |
//! | `bell` | an eventfd | a pipe |
//! | `calls` | `RWF_NOWAIT`, fdatasync, fallocate, accept4 | what each has in their place |
//! | `disk` | block devices, by ioctls and `/sys`; `O_DIRECT` | disks by ioctls; `F_NOCACHE` |
//! | `locks` | byte ranges of open files; `/proc/locks` | whole files |
//! | `memory` | madvise | a new mapping |
//! | `poller` | epoll | kqueue |
//! | `processes` | a descriptor of the process | kqueue |
//! | `ring` | io_uring | none |
//! | `signals` | signalfd | kqueue |
//! | `sockets` | flags of socket(2), `O_PATH` | fcntl, options, no links followed |
//! | `status` | statx | fstat |
//!
//! Linux alone has `ublk`. What a system lacks is an error that says so, and never an operation that only seems done.
//! Nothing here decides what is done with a member.

#[cfg(not(any(target_os = "linux", target_os = "freebsd", target_os = "macos")))]
compile_error!(
    "mdspace-io knows Linux, FreeBSD and macOS; `engine`, `format` and `parity` need no system (docs/systems.md)"
);

#[cfg(not(target_os = "linux"))]
mod bsd;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use bsd::{
    aliases, asynchronous, bell, calls, disk, locks, memory, poller, processes, ring, signals, sockets, status,
};
#[cfg(target_os = "linux")]
pub use linux::ublk;
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    aliases, asynchronous, bell, calls, disk, locks, memory, poller, processes, ring, signals, sockets, status,
};

use std::io;

/// The result of a system call, repeated while a signal interrupts it: not negative, or a negated error number.
pub(crate) fn repeat(mut call: impl FnMut() -> isize) -> i32 {
    loop {
        match once(call()) {
            interrupted if interrupted == -libc::EINTR => {}
            result => return result,
        }
    }
}

/// The same of a call that is not repeated.
pub(crate) fn once(result: isize) -> i32 {
    match result {
        // Lengths are at most 1 GiB.
        0.. => result as i32,
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}

/// A field whose width differs between systems and processors.
pub(crate) fn wide(field: impl TryInto<u64>) -> u64 {
    field.try_into().unwrap_or(u64::MAX)
}
