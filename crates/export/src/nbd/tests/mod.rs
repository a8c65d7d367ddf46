//! Sessions and clients over pipes in memory: conversations, disconnects at
//! every byte, and many clients against a model.

mod client;
mod pipe;
mod session;
#[cfg(feature = "tls")]
mod tls;

use super::memory::Memory;
use std::rc::Rc;

/// As much as a server has.
fn memory() -> Rc<Memory> {
    Rc::new(Memory::new(512 << 20, 128))
}
