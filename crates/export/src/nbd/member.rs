//! An export of another server as a member of an array.
//!
//! Connecting, the handshake and the reads of [`Remote`] block, so that they can run on a thread that may wait. Bound to
//! an executor it becomes a [`NbdMember`], a [`Client`] behind the seam of members. Replies are simple ones on both ways:
//! a member needs neither holes nor parts of a read. A connection that ended is not made again: the member is gone.
//!
//! It takes no lock, because NBD has none. Source: `doc/proto.md`.

use super::address::{Address, ServerAddress};
use super::client::{Client, ClientError, connected};
use super::handshake::{ClientHandshake, ClientOptions, ClientProgress, RemoteExport};
use super::wire::{Errno, REQUEST_MAGIC, RequestHeader, SIMPLE_REPLY_MAGIC, SimpleReply, command, transmission_flag};
use crate::volume::Durability;
use engine::{Block, Buffer, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation, Pool};
use format::units::MemberByte;
use futures_util::future::join_all;
use io::net::Stream;
use std::fmt;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// Time that a server has to accept, and for each piece of the handshake and of a blocking read.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of one blocking read.
const PIECE_BYTES: u64 = 1 << 20;

/// Bytes of one request that carries no data.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// The unit of md's format, in bytes.
const SECTOR_BYTES: u32 = 512;

/// A connection to an export, which is read while the caller waits.
#[derive(Debug)]
pub struct Remote {
    socket: Socket,
    export: RemoteExport,
    requests: u64,
    /// The bytes of the member.
    part: Range<u64>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn connect(server: &ServerAddress) -> Result<Self> {
        match server {
            ServerAddress::Unix(path) => {
                let named = |error: Error| Error::new(error.kind(), format!("the socket {}: {error}", path.display()));
                uninterrupted(|| UnixStream::connect(path)).map(Self::Unix).map_err(named)
            }
            ServerAddress::Tcp { host, port } => {
                let mut failed = Error::new(ErrorKind::NotFound, "the host has no address");
                for address in (&**host, *port).to_socket_addrs()? {
                    match uninterrupted(|| TcpStream::connect_timeout(&address, TIMEOUT)) {
                        Ok(stream) => return stream.set_nodelay(true).map(|()| Self::Tcp(stream)),
                        Err(error) => failed = error,
                    }
                }
                Err(failed)
            }
        }
    }

    /// Limits the time of each call, or of none.
    fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)),
            Self::Tcp(stream) => stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)),
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize> {
        let received = uninterrupted(|| match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        });
        received.map_err(late)
    }

    fn receive_all(&mut self, into: &mut [u8]) -> Result<()> {
        let received = match self {
            Self::Unix(stream) => stream.read_exact(into),
            Self::Tcp(stream) => stream.read_exact(into),
        };
        received.map_err(late)
    }

    fn send(&mut self, from: &[u8]) -> Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(from),
            Self::Tcp(stream) => stream.write_all(from),
        }
    }

    fn into_fd(self) -> OwnedFd {
        match self {
            Self::Unix(stream) => stream.into(),
            Self::Tcp(stream) => stream.into(),
        }
    }
}

/// The result of a call that is repeated while it is interrupted: a ring of the thread interrupts calls that wait.
fn uninterrupted<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The error of a call that took too long, in words.
fn late(error: Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock => Error::new(
            ErrorKind::TimedOut,
            "the server gave no answer within 10 s; does it allow several connections (qemu-nbd --shared)?",
        ),
        _ => error,
    }
}

impl Remote {
    /// Connects to an export.
    ///
    /// # Errors
    /// When nothing listens there, or the server does not have the export.
    pub fn connect(address: &Address) -> Result<Self> {
        let mut socket = Socket::connect(&address.server)?;
        socket.set_timeout(Some(TIMEOUT))?;
        let wanted = ClientOptions { export: address.export.clone(), structured: false, allocation: false };
        let (mut handshake, mut out, mut received) = (ClientHandshake::new(wanted), Vec::new(), [0; 4096]);
        let mut input: &[u8] = &[];
        loop {
            let progress = handshake.advance(&mut input, &mut out).map_err(Error::other)?;
            socket.send(&out)?;
            out.clear();
            match progress {
                ClientProgress::Transmission(export) => {
                    return Ok(Self { socket, requests: 0, part: 0..export.bytes, export });
                }
                ClientProgress::NeedInput => match socket.receive(&mut received)? {
                    0 => return Err(Error::new(ErrorKind::UnexpectedEof, "the server ended the handshake")),
                    bytes => input = &received[..bytes],
                },
            }
        }
    }

    /// The export's length.
    pub fn bytes(&self) -> u64 {
        self.export.bytes
    }

    /// Why the export cannot be written to; `None` if it can.
    pub fn forbids_writes(&self) -> Option<&'static str> {
        let has = |flag| self.export.flags & flag != 0;
        match (has(transmission_flag::READ_ONLY), has(transmission_flag::SEND_FLUSH)) {
            (true, _) => Some("the export is read-only"),
            (false, false) => Some("the server has no flush, so that no write is known to last"),
            (false, true) => None,
        }
    }

    /// Fills `into` from byte `at` on, which need not be aligned.
    ///
    /// # Errors
    /// The server's, or the connection's.
    pub fn read_exact_at(&mut self, into: &mut [u8], at: u64) -> Result<()> {
        let unit = u64::from(self.export.minimum_block_bytes);
        let mut done = 0;
        while done < into.len() {
            let from = at + done as u64;
            let start = from / unit * unit;
            let bytes = (into.len() - done) as u64;
            let end = from.saturating_add(bytes.min(PIECE_BYTES)).next_multiple_of(unit).min(self.export.bytes);
            if end <= from {
                return Err(Error::new(ErrorKind::UnexpectedEof, "past the end of the export"));
            }
            let piece = self.read(start..end)?;
            let piece = &piece[(from - start) as usize..];
            let count = piece.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&piece[..count]);
            done += count;
        }
        Ok(())
    }

    fn read(&mut self, range: Range<u64>) -> Result<Vec<u8>> {
        self.requests += 1;
        let bytes = (range.end - range.start) as u32;
        let header = RequestHeader {
            magic: REQUEST_MAGIC.into(),
            flags: 0.into(),
            kind: command::READ.into(),
            cookie: self.requests.into(),
            offset: range.start.into(),
            bytes: bytes.into(),
        };
        self.socket.send(header.as_bytes())?;
        let mut reply = [0; size_of::<SimpleReply>()];
        self.socket.receive_all(&mut reply)?;
        let reply = SimpleReply::read_from_bytes(&reply).expect("its own size");
        if reply.magic.get() != SIMPLE_REPLY_MAGIC || reply.cookie.get() != self.requests {
            return Err(Error::new(ErrorKind::InvalidData, "the server's reply belongs to no request"));
        }
        if let Some(errno) = Errno::from_wire(reply.error.get()) {
            return Err(Error::other(format!("the server answered {errno:?}")));
        }
        let mut data = vec![0; bytes as usize];
        self.socket.receive_all(&mut data)?;
        Ok(data)
    }

    /// Makes only the bytes of `part` that the export has the member.
    ///
    /// # Errors
    /// When the part does not begin on a block of the export.
    pub fn narrow(&mut self, part: Range<u64>) -> Result<()> {
        let unit = u64::from(self.logical_block_bytes());
        if !part.start.is_multiple_of(unit) || part.start >= self.export.bytes {
            let reason = format!("byte {} is inside a block of {unit} bytes, or past the end", part.start);
            return Err(Error::new(ErrorKind::InvalidInput, reason));
        }
        self.part = part.start..part.end.min(self.export.bytes);
        Ok(())
    }

    fn logical_block_bytes(&self) -> u32 {
        self.export.minimum_block_bytes.max(SECTOR_BYTES)
    }

    /// Binds it to the current thread's executor, as a member.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn into_member(self) -> NbdMember {
        let logical_block_bytes = self.logical_block_bytes();
        let unit = u64::from(logical_block_bytes);
        let Self { socket, export, part, .. } = self;
        let bytes = (part.end - part.start) / unit * unit;
        let has = |flag| export.flags & flag != 0;
        let limits = Limits {
            bytes,
            logical_block_bytes,
            physical_block_bytes: export.preferred_block_bytes.clamp(logical_block_bytes, 1 << 20),
            optimal_bytes: 0,
            longest_bytes: 0,
            synchronous: false,
            discards: has(transmission_flag::SEND_TRIM) && !has(transmission_flag::READ_ONLY),
            discards_to_zeros: false,
            volatile_cache: has(transmission_flag::SEND_FLUSH),
        };
        socket.set_timeout(None).expect("a socket takes every timeout");
        let pool = io::current_pool();
        let (client, run) = connected(Stream::inherited(socket.into_fd()), pool.clone(), export);
        drop(io::spawn(run)); // its error is that of every request
        NbdMember { client, pool, limits, at: part.start }
    }
}

/// An export of another server, or a part of it.
pub struct NbdMember {
    client: Client,
    pool: Pool,
    limits: Limits,
    /// Its first byte in the export.
    at: u64,
}

/// A transfer, for its bounds and errors.
#[derive(Clone, Copy)]
struct Request {
    operation: Operation,
    at: MemberByte,
    bytes: u64,
}

impl Request {
    fn failed(self, kind: MemberErrorKind, source: Rc<dyn std::error::Error>) -> MemberError {
        let Self { operation, at, bytes } = self;
        MemberFault { kind, operation, at, bytes, source }.into()
    }

    fn answered(self, error: ClientError) -> MemberError {
        let kind = match &error {
            ClientError::Refused { errno, .. } => match errno {
                Errno::NoSpace => MemberErrorKind::NoSpace,
                Errno::Permission | Errno::ShuttingDown => MemberErrorKind::Gone,
                Errno::NotSupported => MemberErrorKind::Unsupported,
                _ => MemberErrorKind::Io,
            },
            ClientError::Handshake(_) | ClientError::Disconnected(_) => MemberErrorKind::Gone,
        };
        self.failed(kind, Rc::new(error))
    }
}

impl NbdMember {
    /// The first byte of a transfer in the export, if it lies within the member.
    fn place(&self, Request { operation, at, bytes }: Request) -> std::result::Result<u64, MemberError> {
        io::range_within(&self.limits, operation, at, bytes).map(|range| self.at + range.start)
    }

    /// The most bytes of data in one request.
    fn payload_bytes(&self) -> usize {
        let unit = self.limits.logical_block_bytes;
        (self.client.export().payload_bytes_max / unit * unit).max(unit) as usize
    }

    /// The ranges of requests without data that make up a transfer.
    fn pieces(at: u64, bytes: u64) -> impl Iterator<Item = (u64, u32)> {
        let starts = (0..bytes).step_by(REQUEST_BYTES_MAX as usize);
        starts.map(move |start| (at + start, REQUEST_BYTES_MAX.min(bytes - start) as u32))
    }

    fn has(&self, flag: u16) -> bool {
        self.client.export().flags & flag != 0
    }
}

impl Member for NbdMember {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (std::result::Result<(), MemberError>, Buffer) {
        let request = Request { operation: Operation::Read, at, bytes: into.len() as u64 };
        let start = match self.place(request) {
            Ok(start) => start,
            Err(error) => return (Err(error), into),
        };
        let mut rest = into;
        let mut done = rest.split_to(0);
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(self.payload_bytes()));
            let bytes = piece.len();
            match self.client.read(start + done.len() as u64, piece).await {
                Ok(piece) => done.join(piece),
                Err(error) => {
                    // The client has lost the buffer; nothing of it is used after an error.
                    done.join(self.pool.take(bytes));
                    done.join(rest);
                    return (Err(request.answered(error)), done);
                }
            }
        }
        (Ok(()), done)
    }

    async fn read_vectored(
        &self,
        at: MemberByte,
        into: Vec<Buffer>,
    ) -> (std::result::Result<(), MemberError>, Vec<Buffer>) {
        let mut position = at.0;
        let reads: Vec<_> = into
            .into_iter()
            .map(|part| {
                let start = position;
                position += part.len() as u64;
                self.read(MemberByte(start), part)
            })
            .collect();
        let (results, parts): (Vec<_>, Vec<_>) = join_all(reads).await.into_iter().unzip();
        (results.into_iter().collect(), parts)
    }

    async fn write(&self, at: MemberByte, from: Block) -> std::result::Result<(), MemberError> {
        let request = Request { operation: Operation::Write, at, bytes: from.len() as u64 };
        let start = self.place(request)?;
        for first in (0..from.len()).step_by(self.payload_bytes()) {
            let piece = from.slice(first..from.len().min(first + self.payload_bytes()));
            let written = self.client.write(start + first as u64, piece, Durability::Ordinary).await;
            written.map_err(|error| request.answered(error))?;
        }
        Ok(())
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> std::result::Result<(), MemberError> {
        let mut position = at.0;
        let writes: Vec<_> = from
            .into_iter()
            .map(|part| {
                let start = position;
                position += part.len() as u64;
                self.write(MemberByte(start), part)
            })
            .collect();
        join_all(writes).await.into_iter().collect()
    }

    async fn flush(&self) -> std::result::Result<(), MemberError> {
        if !self.has(transmission_flag::SEND_FLUSH) {
            return Ok(()); // only for reading, see `Remote::forbids_writes`
        }
        let request = Request { operation: Operation::Flush, at: MemberByte(0), bytes: 0 };
        self.client.flush().await.map_err(|error| request.answered(error))
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> std::result::Result<(), MemberError> {
        let request = Request { operation: Operation::Discard, at, bytes };
        let start = self.place(request)?;
        if !self.limits.discards {
            return Err(request.failed(MemberErrorKind::Unsupported, Rc::new(Error::from(ErrorKind::Unsupported))));
        }
        for (at, bytes) in Self::pieces(start, bytes) {
            self.client.discard(at, bytes).await.map_err(|error| request.answered(error))?;
        }
        Ok(())
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> std::result::Result<(), MemberError> {
        let request = Request { operation: Operation::WriteZeroes, at, bytes };
        let start = self.place(request)?;
        if !self.has(transmission_flag::SEND_WRITE_ZEROES) {
            return Err(request.failed(MemberErrorKind::Unsupported, Rc::new(Error::from(ErrorKind::Unsupported))));
        }
        for (at, bytes) in Self::pieces(start, bytes) {
            let zeroed = self.client.write_zeroes(at, bytes, true, Durability::Ordinary).await;
            zeroed.map_err(|error| request.answered(error))?;
        }
        Ok(())
    }
}

impl Drop for NbdMember {
    fn drop(&mut self) {
        self.client.disconnect();
    }
}

impl fmt::Debug for NbdMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdMember").field("limits", &self.limits).field("at", &self.at).finish_non_exhaustive()
    }
}
