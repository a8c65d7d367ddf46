//! Network Block Device: the server's and the client's side, newstyle fixed
//! handshake only.
//!
//! The protocol is decoded without I/O by [`handshake`], [`request`] and
//! [`reply`], which hold a bounded amount of memory whatever arrives and give
//! the same events however the bytes are cut. No TLS, no oldstyle handshake,
//! no extended headers: what a peer asks of these is refused in the words that
//! the protocol has for it. Source: `doc/proto.md` of NetworkBlockDevice/nbd.

pub mod handshake;
pub mod reply;
pub mod request;
pub mod wire;
