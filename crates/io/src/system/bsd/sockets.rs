//! How a stream socket is made, and which users may reach a unix socket's file. It neither listens nor connects.
//! Sources: socket(2), setsockopt(2), unix(4), chmod(2).

use crate::system::wide;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags};
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A socket that child processes do not get, and that sends no SIGPIPE.
pub(crate) fn stream(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    sockopt::set_socket_nosigpipe(&socket, true)?;
    Ok(socket)
}

/// The same, whose calls never wait.
pub(crate) fn stream_without_waiting(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let socket = stream(family)?;
    rustix::fs::fcntl_setfl(&socket, rustix::fs::fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
    Ok(socket)
}

/// The mode of a socket's file does not come from the socket here: [`give`] sets it, before anything listens.
pub(crate) fn set_mode(_: &OwnedFd, _mode: u32) -> rustix::io::Result<()> {
    Ok(())
}

/// Gives the file of a socket, which has this device and inode, its group and its mode. A link is not followed.
pub(crate) fn give(path: &Path, identity: (u64, u64), mode: u32, group: Option<u32>) -> io::Result<()> {
    let status = rustix::fs::lstat(path)?;
    if (wide(status.st_dev), wide(status.st_ino)) != identity {
        return Err(io::Error::other("was replaced meanwhile"));
    }
    if let Some(group) = group {
        rustix::fs::chownat(CWD, path, None, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("its group: {error}")))?;
    }
    let mode = Mode::from_raw_mode((mode & 0o777) as _);
    Ok(rustix::fs::chmodat(CWD, path, mode, AtFlags::SYMLINK_NOFOLLOW)?)
}
