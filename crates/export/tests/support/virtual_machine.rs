//! A vhost-user-blk client without a guest: libblkio, with memory for the transfers.
#![allow(dead_code, reason = "each of the tests that include it uses a part")]

use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A connected client. The test reaches its memory at offsets, through the descriptor that the server has too.
pub(crate) struct VirtualMachine {
    pub(crate) blkio: Blkio,
    pub(crate) queues: Vec<Blkioq>,
    region: MemoryRegion,
    memory: File,
}

impl VirtualMachine {
    /// Connects with `queues` queues and `bytes` of memory.
    pub(crate) fn connect(socket: &Path, queues: i32, bytes: usize) -> blkio::Result<Self> {
        let mut blkio = Blkio::new("virtio-blk-vhost-user")?;
        blkio.set_str("path", socket.to_str().expect("a plain path"))?;
        blkio.connect()?;
        blkio.set_i32("num-queues", queues)?;
        blkio.set_i32("queue-size", 128)?;
        let queues = blkio.start()?.queues;
        let region = blkio.alloc_mem_region(bytes)?;
        blkio.map_mem_region(&region)?;
        let memory = File::options().read(true).write(true).open(format!("/proc/self/fd/{}", region.fd));
        Ok(Self { blkio, queues, region, memory: memory.expect("our own descriptor") })
    }

    /// The address of byte `offset` of the memory.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.region.len);
        std::ptr::with_exposed_provenance_mut(self.region.addr + offset)
    }

    /// The memory, for another thread to change.
    pub(crate) fn memory(&self) -> File {
        self.memory.try_clone().expect("a descriptor more")
    }

    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        self.memory.write_all_at(bytes, offset as u64).expect("memory can be written");
    }

    pub(crate) fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut got = vec![0; bytes];
        self.memory.read_exact_at(&mut got, offset as u64).expect("memory can be read");
        got
    }

    /// Reads into memory.
    pub(crate) fn read(&mut self, queue: usize, at: u64, offset: usize, bytes: usize, name: usize) {
        let address = self.address(offset);
        self.queues[queue].read(at, address, bytes, name, ReqFlags::empty());
    }

    /// Writes from memory.
    pub(crate) fn write(&mut self, queue: usize, at: u64, offset: usize, bytes: usize, name: usize) {
        let address = self.address(offset);
        self.queues[queue].write(at, address, bytes, name, ReqFlags::empty());
    }

    /// Waits for at least `least` completions of a queue. Returns name and result of each.
    pub(crate) fn wait(&mut self, queue: usize, least: usize) -> Vec<(usize, i32)> {
        let mut completions: Vec<MaybeUninit<Completion>> = (0..128).map(|_| MaybeUninit::uninit()).collect();
        let count = self.queues[queue].do_io(&mut completions, least, None, None).expect("waiting works");
        // SAFETY: do_io has initialized the first `count` completions.
        completions[..count]
            .iter()
            .map(|one| unsafe { one.assume_init_ref() })
            .map(|one| (one.user_data, one.ret))
            .collect()
    }

    /// Waits for the only request in flight of a queue. Returns its result.
    pub(crate) fn only(&mut self, queue: usize) -> i32 {
        let done = self.wait(queue, 1);
        assert_eq!(done.len(), 1);
        done[0].1
    }
}
