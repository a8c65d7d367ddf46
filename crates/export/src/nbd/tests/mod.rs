//! Sessions and clients over pipes in memory: dialogues, disconnects at every byte, and many clients against a model.
//! No socket is opened.

mod client;
mod pipe;
mod session;
#[cfg(feature = "tls")]
mod tls;

use super::memory::Memory;
use std::rc::Rc;

/// The budget of a whole server.
fn memory() -> Rc<Memory> {
    Rc::new(Memory::new(512 << 20, 128))
}
