//! How a stream socket is made, and which users may reach a unix socket's file. It neither listens nor connects.
//! Sources: socket(2), unix(7), open(2) for `O_PATH`.

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// A socket that child processes do not get.
pub(crate) fn stream(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// The same, whose calls never wait.
pub(crate) fn stream_without_waiting(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Sets the mode that the socket's file is to have, before it is bound: the file gets the socket's own mode, without the
/// bits of the umask.
pub(crate) fn set_mode(socket: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::fchmod(socket, Mode::from_raw_mode(mode))
}

/// Gives the file of a socket, which has this device and inode, its group, and what the umask took from its mode.
pub(crate) fn give(path: &Path, identity: (u64, u64), mode: u32, group: Option<u32>) -> io::Result<()> {
    let file = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let status = rustix::fs::fstat(&file)?;
    if (status.st_dev, status.st_ino) != identity {
        return Err(io::Error::other("was replaced meanwhile"));
    }
    if let Some(group) = group {
        rustix::fs::chownat(&file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)
            .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("its group: {error}")))?;
    }
    if status.st_mode & 0o777 != mode {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()); // a descriptor of a path takes no fchmod
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}
