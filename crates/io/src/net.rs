//! Stream sockets: unix and TCP, listening and connected.
//!
//! A [`Stream`] takes buffers, not slices: memory that the kernel may still access belongs to the operation. It neither
//! frames nor buffers anything. The caller must use one receiver and one sender at a time, because two concurrent sends
//! would mix their bytes. Sources: unix(7), tcp(7).

use crate::descriptor::Descriptor;
use crate::system::{sockets, wide};
use crate::transfer;
use engine::{Block, Buffer};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, sockopt};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 1024;

/// Accepts connections.
pub struct Listener {
    descriptor: Rc<Descriptor>,
    /// The file of a unix socket, removed when dropped.
    _node: Option<SocketNode>,
    is_tcp: bool,
}

impl Listener {
    /// Listens on a unix socket at `path`, which has `mode` from its first moment. A socket without a listener is
    /// replaced. Dropping the listener removes the socket.
    ///
    /// # Errors
    /// When another process listens there, when `path` is no socket, and when the system refuses. The message names the
    /// path.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn unix(path: &Path, access: impl Into<SocketAccess>) -> io::Result<Self> {
        let (fd, node) = listen_unix(path, access)?;
        Ok(Self { descriptor: Descriptor::new(fd), _node: Some(node), is_tcp: false })
    }

    /// Listens on a TCP address. Port 0 takes any free port.
    ///
    /// # Errors
    /// When the address is in use, or is not of this machine.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let named = |error: rustix::io::Errno| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{address}: {error}"))
        };
        let fd = tcp_socket(&address).map_err(named)?;
        // Without it a server could not restart while old connections linger.
        sockopt::set_socket_reuseaddr(&fd, true).map_err(named)?;
        rustix::net::bind(&fd, &address).map_err(named)?;
        rustix::net::listen(&fd, BACKLOG).map_err(named)?;
        Ok(Self { descriptor: Descriptor::new(fd), _node: None, is_tcp: true })
    }

    /// A listener on a descriptor that already listens, and which is blocking.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn inherited(fd: OwnedFd, is_tcp: bool) -> Self {
        Self { descriptor: Descriptor::new(fd), _node: None, is_tcp }
    }

    /// The address of a TCP listener, with its actual port. `None` for a unix socket.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn tcp_address(&self) -> io::Result<Option<SocketAddr>> {
        if !self.is_tcp {
            return Ok(None);
        }
        let address = rustix::net::getsockname(self.descriptor.as_fd())?;
        Ok(Some(SocketAddr::try_from(address)?))
    }

    /// Accepts the next connection. Dropping the future closes a connection that is being accepted at that moment.
    ///
    /// # Errors
    /// The connection's (it ended before it was accepted) or the system's (no descriptors left). The listener remains
    /// usable.
    pub async fn accept(&self) -> io::Result<Stream> {
        let (result, _) = transfer::accept(&self.descriptor).await;
        // SAFETY: the kernel has just made this descriptor for us; the operation returns it once.
        let fd = unsafe { OwnedFd::from_raw_fd(result?.cast_signed()) };
        if self.is_tcp {
            sockopt::set_tcp_nodelay(&fd, true)?;
        }
        Ok(Stream::new(fd))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("is_tcp", &self.is_tcp).finish_non_exhaustive()
    }
}

/// A connection. Clones share it; it closes with the last one.
#[derive(Clone)]
pub struct Stream {
    descriptor: Rc<Descriptor>,
}

impl Stream {
    fn new(fd: OwnedFd) -> Self {
        Self { descriptor: Descriptor::new(fd) }
    }

    /// A connection on the descriptor of a connected socket, which is blocking.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn inherited(fd: OwnedFd) -> Self {
        Self::new(fd)
    }

    /// Connects to a unix socket.
    ///
    /// # Errors
    /// When no process listens there, or the system refuses.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub async fn connect_unix(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        Self::connect(unix_socket()?, address.into()).await
    }

    /// Connects to a TCP address.
    ///
    /// # Errors
    /// When no process listens there, or the system refuses.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub async fn connect_tcp(address: SocketAddr) -> io::Result<Self> {
        let fd = tcp_socket(&address)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        Self::connect(fd, address.into()).await
    }

    async fn connect(fd: OwnedFd, address: SocketAddrAny) -> io::Result<Self> {
        let stream = Self::new(fd);
        let (result, _) = transfer::connect(&stream.descriptor, address).await;
        result.map(|_| stream)
    }

    /// Receives at least one byte. Returns the number of bytes: 0 at the end of the stream, and for an empty `into`.
    ///
    /// # Errors
    /// The connection's; the buffer is lost then.
    pub async fn recv(&self, into: Buffer) -> io::Result<(usize, Buffer)> {
        let (result, into) = transfer::receive(&self.descriptor, into, 0, 0).await;
        Ok((result? as usize, into))
    }

    /// Receives until the buffer is full.
    ///
    /// # Errors
    /// The connection's, and `UnexpectedEof` when the stream ended before the buffer was full.
    pub async fn recv_exact(&self, mut into: Buffer) -> io::Result<Buffer> {
        let mut done = 0;
        while done < into.len() {
            let (result, back) = transfer::receive(&self.descriptor, into, done, libc::MSG_WAITALL).await;
            into = back;
            match result? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                received => done += received as usize,
            }
        }
        Ok(into)
    }

    /// Sends all bytes of the parts, in order. When the future is dropped, any part of them may have been sent.
    ///
    /// # Errors
    /// The connection's; any part may have been sent.
    pub async fn send(&self, mut parts: Vec<Block>) -> io::Result<()> {
        parts.retain(|part| !part.is_empty());
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut done = 0;
        while done < total {
            let result = if parts.len() == 1 {
                let (result, part) = transfer::send(&self.descriptor, parts.remove(0), done).await;
                parts.push(part);
                result
            } else {
                let (result, message) = transfer::send_vectored(&self.descriptor, parts, done).await;
                parts = message.parts;
                result
            };
            done += result? as usize;
        }
        Ok(())
    }

    /// The peer's address, for a TCP connection.
    pub fn peer(&self) -> Option<IpAddr> {
        let address = rustix::net::getpeername(self.descriptor.as_fd()).ok()??;
        SocketAddr::try_from(address).ok().map(|address| address.ip())
    }

    /// Shuts the connection down in both directions: the peer sees its end, and every operation waiting on it here
    /// completes.
    pub fn shutdown(&self) {
        // It fails only when the connection has already ended.
        let _ = rustix::net::shutdown(self.descriptor.as_fd(), rustix::net::Shutdown::Both);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

fn tcp_socket(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    sockets::stream(family)
}

fn unix_socket() -> rustix::io::Result<OwnedFd> {
    sockets::stream(AddressFamily::UNIX)
}

/// Which users may connect to a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAccess {
    /// The mode of its file.
    pub mode: u32,
    /// The group of its file; `None`: that of the process.
    pub group: Option<u32>,
}

impl Default for SocketAccess {
    /// Its owner alone.
    fn default() -> Self {
        Self::from(0o600)
    }
}

impl From<u32> for SocketAccess {
    fn from(mode: u32) -> Self {
        Self { mode, group: None }
    }
}

/// A socket's file, removed when dropped unless it was replaced by another.
#[derive(Debug)]
pub struct SocketNode {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketNode {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: std::path::absolute(path)?, identity: identity(path)? })
    }
}

impl Drop for SocketNode {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // A failure does no harm: the next listener replaces a stale socket.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let status = rustix::fs::lstat(path)?;
    Ok((wide(status.st_dev), wide(status.st_ino)))
}

/// Does the same as [`Listener::unix`], for a caller without an executor.
///
/// # Errors
/// The same as of [`Listener::unix`].
pub fn listen_unix(path: &Path, access: impl Into<SocketAccess>) -> io::Result<(OwnedFd, SocketNode)> {
    bind_unix(path, access.into()).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn bind_unix(path: &Path, access: SocketAccess) -> io::Result<(OwnedFd, SocketNode)> {
    let address = SocketAddrUnix::new(path)?;
    // Two servers that start at once must not both find the old socket stale: one would remove the other's new socket.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = rustix::fs::openat(CWD, directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
    remove_stale(path, &address)?;
    let fd = unix_socket()?;
    sockets::set_mode(&fd, access.mode)?;
    rustix::net::bind(&fd, &address)?;
    let node = SocketNode::of(path)?;
    sockets::give(&node.path, node.identity, access.mode, access.group)?; // nothing listens yet
    rustix::net::listen(&fd, BACKLOG)?;
    Ok((fd, node))
}

/// Removes a socket without a listener.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let status = match rustix::fs::lstat(path) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        status => status?,
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "exists and is not a socket"));
    }
    let probe = sockets::stream_without_waiting(AddressFamily::UNIX)?;
    match rustix::net::connect(&probe, address) {
        Err(rustix::io::Errno::CONNREFUSED) => Ok(std::fs::remove_file(path)?),
        // Connected, or its queue is full.
        Ok(()) | Err(rustix::io::Errno::AGAIN) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens here"))
        }
        Err(error) => Err(error.into()),
    }
}
