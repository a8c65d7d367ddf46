//! Memory that a kill leaves: what an array is given as its write buffer.

use engine::{FindWriteBuffer, WriteBuffer};
use std::cell::RefCell;
use std::rc::Rc;

/// The memory, while no array has it.
#[derive(Debug, Clone, Default)]
pub struct KeptMemory(Rc<RefCell<Vec<u8>>>);

/// The memory while an array has it. Dropped, it is left as it is.
struct Lent {
    bytes: Vec<u8>,
    home: Rc<RefCell<Vec<u8>>>,
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.replace(std::mem::take(&mut self.bytes));
    }
}

impl KeptMemory {
    /// What an assembly is given: the memory, with room for so many blocks.
    pub fn lend(&self, blocks: u32) -> FindWriteBuffer {
        let home = self.0.clone();
        Box::new(move |_| {
            let mut bytes = home.take();
            bytes.resize(format::write_buffer::memory_bytes(blocks), 0);
            Ok(Some(Box::new(Lent { bytes, home }) as WriteBuffer))
        })
    }

    /// The memory is gone, as with a loss of power.
    pub fn lose(&self) {
        self.0.take();
    }
}
