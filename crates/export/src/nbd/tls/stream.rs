//! A [`ByteStream`] through TLS over another one.
//!
//! Receiving never sends: what TLS wants to answer in the middle of a session (a change of keys) goes out before the
//! next bytes that are sent, as RFC 8446 (4.6.3) allows. So the one receiver and the one sender need not agree on anything, and a
//! receiver that is dropped leaves the other direction whole. The connection is never borrowed while something waits.

use super::Credentials;
use crate::nbd::stream::ByteStream;
use engine::{Block, Buffer, Pool};
use rustls::{Connection, ServerConnection};
use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};

/// What is received at once, and sent at once, in the form that it has on the way.
const WIRE_BYTES: usize = 64 << 10;
/// What is made ready to be sent at once: with what TLS adds to each record, one buffer of [`WIRE_BYTES`].
const READY_BYTES: usize = 63 << 10;

/// One end.
pub(crate) struct TlsStream<S> {
    stream: S,
    pool: Pool,
    connection: RefCell<Connection>,
    /// What was received and not yet taken apart.
    wire: RefCell<Option<Buffer>>,
}

impl<S: ByteStream> TlsStream<S> {
    /// Shakes hands with the client behind `stream`.
    ///
    /// # Errors
    /// The connection's; or the client and we have no common ground, which is told to it too.
    pub(crate) async fn accept(stream: S, pool: &Pool, credentials: &Credentials) -> io::Result<Self> {
        let connection = ServerConnection::new(credentials.0.clone()).map_err(io::Error::other)?;
        Self::shake_hands(stream, pool, connection.into()).await
    }

    /// Shakes hands as `connection` says, which has not begun.
    pub(crate) async fn shake_hands(stream: S, pool: &Pool, mut connection: Connection) -> io::Result<Self> {
        connection.set_buffer_limit(Some(READY_BYTES));
        let tls = Self { stream, pool: pool.clone(), connection: RefCell::new(connection), wire: RefCell::default() };
        tls.flush().await?;
        while tls.connection.borrow().is_handshaking() {
            let received = tls.receive_wire().await;
            let flushed = tls.flush().await; // the alert too, if that is the answer
            if !received? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            flushed?;
        }
        Ok(tls)
    }

    /// Tells the other side that nothing more will come.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) async fn finish(&self) -> io::Result<()> {
        self.connection.borrow_mut().send_close_notify();
        self.flush().await
    }

    /// Takes more from the socket if nothing is left of what it gave; whether there was anything.
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

    /// Gives TLS what was received, as far as it takes it (it keeps no more than a record or two that nobody has
    /// read); the rest.
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
    /// An end without TLS's own is an end as well: NBD says by itself whether it comes in the middle of something.
    async fn recv(&self, mut into: Buffer) -> io::Result<(usize, Buffer)> {
        let mut filled = 0;
        while filled < into.len() {
            let read = self.connection.borrow_mut().reader().read(&mut into[filled..]);
            match read {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                // What is there is given without waiting for more.
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
