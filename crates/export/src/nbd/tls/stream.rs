//! A [`ByteStream`] that runs TLS over another one.
//!
//! Receiving never sends. Answers that TLS generates in a session (key updates) go out before the next bytes sent, as
//! RFC 8446, 4.6.3 allows. So receiver and sender need no coordination, and dropping the receiver leaves the other
//! direction intact. The connection is never borrowed across an await.

use crate::Credentials;
use crate::nbd::stream::ByteStream;
use engine::{Block, Buffer, Pool};
use rustls::{Connection, ServerConnection};
use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};

/// Bytes of encrypted data received or sent at once.
const WIRE_BYTES: usize = 64 << 10;
/// Bytes of plain data prepared for one send: with the overhead of its records it fits one buffer of [`WIRE_BYTES`].
const READY_BYTES: usize = 63 << 10;

/// One end of a TLS connection.
pub(crate) struct TlsStream<S> {
    stream: S,
    pool: Pool,
    connection: RefCell<Connection>,
    /// Encrypted data that was received and not decrypted yet.
    wire: RefCell<Option<Buffer>>,
}

impl<S: ByteStream> TlsStream<S> {
    /// Performs the TLS handshake with the client behind `stream`.
    ///
    /// # Errors
    /// The connection failed, or the handshake did; the client then receives an alert.
    pub(crate) async fn accept(stream: S, pool: &Pool, credentials: &Credentials) -> io::Result<Self> {
        let connection = ServerConnection::new(credentials.config()).map_err(io::Error::other)?;
        Self::shake_hands(stream, pool, connection.into()).await
    }

    /// Performs the handshake of `connection`, which has not started yet.
    pub(crate) async fn shake_hands(stream: S, pool: &Pool, mut connection: Connection) -> io::Result<Self> {
        connection.set_buffer_limit(Some(READY_BYTES));
        let tls = Self { stream, pool: pool.clone(), connection: RefCell::new(connection), wire: RefCell::default() };
        tls.flush().await?;
        while tls.connection.borrow().is_handshaking() {
            let received = tls.receive_wire().await;
            let flushed = tls.flush().await; // includes an alert
            if !received? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            flushed?;
        }
        Ok(tls)
    }

    /// Sends the close notification: no more bytes will follow.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) async fn finish(&self) -> io::Result<()> {
        self.connection.borrow_mut().send_close_notify();
        self.flush().await
    }

    /// Receives from the socket if no encrypted data is left. Returns whether there is any.
    async fn receive_wire(&self) -> io::Result<bool> {
        let left = self.wire.take();
        let wire = match left {
            Some(left) => left,
            None => {
                let (received, mut buffer) = self.stream.recv(self.pool.take(WIRE_BYTES)).await?;
                buffer.split_to(received)
            }
        };
        let is_end = wire.is_empty();
        *self.wire.borrow_mut() = self.take_apart(wire)?;
        Ok(!is_end)
    }

    /// Passes encrypted data to TLS, which buffers no more than one or two unread records. Returns the rest.
    fn take_apart(&self, mut wire: Buffer) -> io::Result<Option<Buffer>> {
        let mut connection = self.connection.borrow_mut();
        while !wire.is_empty() && connection.wants_read() {
            let taken = connection.read_tls(&mut &wire[..])?;
            drop(wire.split_to(taken));
            connection.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
        Ok((!wire.is_empty()).then_some(wire))
    }

    /// Sends what TLS has ready.
    async fn flush(&self) -> io::Result<()> {
        while self.connection.borrow().wants_write() {
            let mut wire = self.pool.take(WIRE_BYTES);
            let written = self.connection.borrow_mut().write_tls(&mut &mut wire[..])?;
            self.stream.send(vec![wire.split_to(written).freeze()]).await?;
        }
        Ok(())
    }
}

impl<S: ByteStream> ByteStream for TlsStream<S> {
    /// An end without a close notification counts as an end too: NBD itself detects a truncated message.
    async fn recv(&self, mut into: Buffer) -> io::Result<(usize, Buffer)> {
        let mut filled = 0;
        while filled < into.len() {
            let read = self.connection.borrow_mut().reader().read(&mut into[filled..]);
            match read {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                // Returns decrypted data without waiting for more.
                Err(_) if filled > 0 && self.wire.borrow().is_none() => break,
                Err(_) if self.receive_wire().await? => {}
                Err(_) => break,
            }
        }
        Ok((filled, into))
    }

    async fn send(&self, from: Vec<Block>) -> io::Result<()> {
        for block in from {
            let mut done = 0;
            while done < block.len() {
                let taken = self.connection.borrow_mut().writer().write(&block[done..])?;
                done += taken;
                if done < block.len() {
                    self.flush().await?;
                }
            }
        }
        self.flush().await
    }
}
