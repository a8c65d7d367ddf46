//! Network Block Device: server and client, fixed newstyle handshake only.
//!
//! [`handshake`], [`request`] and [`reply`] decode the protocol without I/O. They use bounded memory for any input, and
//! yield the same events wherever the input is split. They never accept the oldstyle handshake or extended headers; a
//! peer that asks for these gets the protocol's error. [`tls`] is for the server only, and a feature.
//!
//! Above them, [`server`] accepts connections, [`session`] serves one connection, and [`client`] is the other side. All
//! run over any [`stream::ByteStream`]. [`member`] makes an export of another server a member of an array. Source: `doc/proto.md` of NetworkBlockDevice/nbd.

pub mod address;
mod answer;
pub mod client;
pub mod handshake;
pub mod member;
pub mod memory;
pub mod reply;
pub mod request;
pub mod server;
pub mod session;
pub mod stream;
pub mod tls;
pub mod wire;

#[cfg(test)]
mod tests;
