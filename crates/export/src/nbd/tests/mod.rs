//! Sessions and clients over pipes in memory: conversations, disconnects at
//! every byte, and many clients against a model.

mod client;
mod pipe;
mod session;
#[cfg(feature = "tls")]
mod tls;
