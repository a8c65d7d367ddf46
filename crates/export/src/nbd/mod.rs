//! Network Block Device: the server's and the client's side, newstyle fixed
//! handshake only.
//!
//! The protocol is decoded without I/O by [`handshake`], [`request`] and
//! [`reply`], which hold a bounded amount of memory whatever arrives and give
//! the same events however the bytes are cut. No oldstyle handshake and no
//! extended headers: what a peer asks of these is refused in the words that
//! the protocol has for it. [`tls`] is the server's alone, and a feature.
//!
//! Above them, [`server`] accepts connections and [`session`] serves one, and
//! [`client`] is the other side; both run over any [`stream::ByteStream`].
//! Source: `doc/proto.md` of NetworkBlockDevice/nbd.

mod answer;
pub mod client;
pub mod handshake;
pub mod memory;
pub mod reply;
pub mod request;
pub mod server;
pub mod session;
mod strangers;
pub mod stream;
pub mod tls;
pub mod wire;

#[cfg(test)]
mod tests;
