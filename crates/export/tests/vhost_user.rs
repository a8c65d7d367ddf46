//! A third-party client (libblkio) against this crate's vhost-user-blk server, which serves a memory volume.

#[path = "support/running.rs"]
mod running;
#[path = "support/virtual_machine.rs"]
mod virtual_machine;

use blkio::ReqFlags;
use mdspace_export::vhost_user::Server;
use running::Served;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;
use vhost::vhost_user::Frontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtual_machine::VirtualMachine;
use vmm_sys_util::eventfd::EventFd;

const BYTES: usize = 16 << 20;

impl Served {
    fn new(read_only: bool) -> Self {
        Self::by(BYTES, read_only, async |directory, volume, stopped| {
            let server = Server::start(&directory.join("vhost"), 0o600.into(), volume, "an array").expect("a server");
            stopped.await;
            server.stop().await;
        })
    }

    fn socket(&self) -> PathBuf {
        self.path("vhost")
    }

    fn client(&self, queues: i32) -> VirtualMachine {
        VirtualMachine::connect(&self.socket(), queues, 8 << 20).expect("a client")
    }
}

#[test]
fn a_client_sees_size_queues_and_limits() {
    let served = Served::new(false);
    let client = served.client(1);
    let number = |name: &str| client.blkio.get_i32(name).expect(name);
    let long = |name: &str| client.blkio.get_u64(name).expect(name);
    assert_eq!(long("capacity"), BYTES as u64);
    assert_eq!(number("max-queues"), 64);
    assert_eq!(number("max-segments"), 126);
    assert_eq!(number("request-alignment"), 512);
    assert_eq!(number("optimal-io-size"), 4096);
    assert_eq!(long("max-discard-len"), 1 << 30);
    assert_eq!(long("max-write-zeroes-len"), 1 << 30);
    assert!(client.blkio.get_bool("flush-needed").expect("flush-needed"));
}

/// A deterministic sequence.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

#[test]
fn four_queues_of_depth_sixteen_read_back_what_they_wrote() {
    const QUEUES: usize = 4;
    const DEPTH: usize = 16;
    const SLOT: usize = 64 << 10;
    let served = Served::new(false);
    let mut client = served.client(QUEUES as i32);
    let (mut model, mut seed) = (vec![0; BYTES], 7);
    let mut expected: Vec<Option<Vec<u8>>> = vec![None; QUEUES * DEPTH];
    for round in 0..40 {
        // Each request has its own part of the volume and of the memory.
        for (name, expected) in expected.iter_mut().enumerate() {
            let bytes = 512 * (1 + random(&mut seed) as usize % (SLOT / 1024));
            let at = name * (BYTES / (QUEUES * DEPTH)) + 512 * (random(&mut seed) as usize % 100);
            if random(&mut seed).is_multiple_of(2) {
                let data: Vec<u8> = (0..bytes).map(|index| (index * 7 + name + round) as u8).collect();
                client.put(name * SLOT, &data);
                model[at..at + bytes].copy_from_slice(&data);
                client.write(name % QUEUES, at as u64, name * SLOT, bytes, name);
                *expected = None;
            } else {
                *expected = Some(model[at..at + bytes].to_vec());
                client.read(name % QUEUES, at as u64, name * SLOT, bytes, name);
            }
        }
        for queue in 0..QUEUES {
            let mut done = 0;
            while done < DEPTH {
                for (name, result) in client.wait(queue, 1) {
                    assert_eq!(result, 0, "request {name} of round {round}");
                    if let Some(expected) = &expected[name] {
                        assert!(
                            client.get(name * SLOT, expected.len()) == *expected,
                            "request {name} of round {round}"
                        );
                    }
                    done += 1;
                }
            }
        }
    }
    drop(client);
    assert!(served.stop() == model);
}

#[test]
fn requests_in_many_pieces_are_put_together() {
    let served = Served::new(false);
    let mut client = served.client(1);
    let data: Vec<u8> = (0..126 * 512).map(|index: usize| (index / 3) as u8).collect();
    client.put(0, &data);
    // Pieces of different lengths, from the last to the first.
    let pieces: Vec<(usize, usize)> =
        (0..100).map(|index| (index * 600, 512 * (1 + index % 2) - 100 * (index % 2))).collect();
    let mut vectors: Vec<_> = pieces.iter().rev().map(|(at, bytes)| (client.address(*at), *bytes)).collect();
    let total: usize = pieces.iter().map(|(_, bytes)| bytes).sum();
    let last = vectors.last_mut().expect("pieces");
    last.1 -= total % 512;
    let written: Vec<u8> =
        vectors.iter().flat_map(|(at, bytes)| client.get(at.addr() - client.address(0).addr(), *bytes)).collect();
    let vectors: Vec<libc::iovec> =
        vectors.into_iter().map(|(at, bytes)| libc::iovec { iov_base: at.cast(), iov_len: bytes }).collect();
    client.queues[0].writev(4096, vectors.as_ptr(), vectors.len() as u32, 1, ReqFlags::empty());
    assert_eq!(client.only(0), 0);
    client.put(0, &vec![0; data.len()]);
    client.queues[0].readv(4096, vectors.as_ptr(), vectors.len() as u32, 2, ReqFlags::empty());
    assert_eq!(client.only(0), 0);
    let read: Vec<u8> = vectors
        .iter()
        .flat_map(|piece| client.get(piece.iov_base.addr() - client.address(0).addr(), piece.iov_len))
        .collect();
    assert!(read == written);
    drop(client);
    assert!(served.stop()[4096..4096 + written.len()] == written);
}

#[test]
fn zeroes_are_written_discards_taken_and_flushes_answered() {
    let served = Served::new(false);
    let mut client = served.client(1);
    client.put(0, &[0xa5; 1 << 20]);
    client.write(0, 0, 0, 1 << 20, 1);
    assert_eq!(client.only(0), 0);
    client.queues[0].write_zeroes(4096, 8192, 2, ReqFlags::empty());
    assert_eq!(client.only(0), 0);
    client.queues[0].write_zeroes(65536 + 512, 512, 3, ReqFlags::NO_UNMAP);
    assert_eq!(client.only(0), 0);
    client.queues[0].discard(131072, 65536, 4, ReqFlags::empty());
    assert_eq!(client.only(0), 0);
    client.queues[0].flush(5, ReqFlags::empty());
    assert_eq!(client.only(0), 0);
    drop(client);
    let contents = served.stop();
    let zeroes = [4096..4096 + 8192, 66048..66560, 131072..131072 + 65536];
    for (at, byte) in contents[..1 << 20].iter().enumerate() {
        assert_eq!(*byte == 0, zeroes.iter().any(|range| range.contains(&at)), "byte {at}");
    }
}

#[test]
fn requests_beyond_the_end_fail_and_nothing_else_does() {
    let served = Served::new(false);
    let mut client = served.client(1);
    let end = BYTES as u64;
    for (at, bytes) in [(end, 512), (end - 512, 1024), (end + (1 << 40), 4096)] {
        client.read(0, at, 0, bytes, 1);
        assert_ne!(client.only(0), 0, "a read of {bytes} at {at}");
        client.write(0, at, 0, bytes, 1);
        assert_ne!(client.only(0), 0, "a write of {bytes} at {at}");
    }
    client.read(0, end - 512, 0, 512, 2);
    assert_eq!(client.only(0), 0);
}

#[test]
fn a_read_only_volume_is_only_read() {
    let served = Served::new(true);
    let refused = VirtualMachine::connect(&served.socket(), 1, 1 << 20);
    // The client must declare that it opens the volume read-only.
    assert!(refused.is_err());
}

#[test]
fn a_client_that_vanishes_makes_room_for_the_next() {
    let served = Served::new(false);
    for round in 0..5_u8 {
        let mut client = served.client(2);
        client.read(0, 0, 0, 512, 1);
        assert_eq!(client.only(0), 0);
        assert_eq!(client.get(0, 1)[0], round);
        client.put(0, &[round + 1; 512]);
        client.write(1, 0, 0, 512, 2);
        assert_eq!(client.only(1), 0);
        for name in 0..64 {
            client.read(0, name * 4096 + 4096, 8192, 4096, name as usize);
        }
        // Requests are in flight now, or about to be.
    }
}

/// A killed server may have put an answer into the ring without signalling the client, which then waits. The next
/// server finds nothing in flight, so it must signal once (QEMU's own servers do, too).
#[test]
fn a_queue_that_is_taken_over_is_called_once_in_any_case() {
    const SIZE: u16 = 16;
    const MEMORY_BYTES: u64 = 1 << 16;
    let [table, available, used] = [0, 0x1000, 0x2000];
    let memory = memfd_create("memory", MemfdFlags::CLOEXEC).map(File::from).expect("memory");
    memory.set_len(MEMORY_BYTES).expect("its size");
    // One request was made and one answered. The index is the second field of either ring.
    for ring in [available, used] {
        memory.write_all_at(&1_u16.to_le_bytes(), ring + 2).expect("memory can be written");
    }
    let served = Served::new(false);
    let client = Frontend::connect(served.socket(), 1).expect("it listens");
    client.set_owner().expect("an owner");
    let features = client.get_features().expect("features");
    client.set_features(features & 1 << VIRTIO_F_VERSION_1).expect("they were offered");
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: MEMORY_BYTES,
        userspace_addr: 0,
        mmap_offset: 0,
        mmap_handle: memory.as_raw_fd(),
    };
    client.set_mem_table(&[region]).expect("one region");
    client.set_vring_num(0, SIZE).expect("a size");
    let addresses = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: table,
        used_ring_addr: used,
        avail_ring_addr: available,
        log_addr: None,
    };
    client.set_vring_addr(0, &addresses).expect("addresses");
    client.set_vring_base(0, 1).expect("a base");
    let [call, kick] = [(); 2].map(|()| EventFd::new(0).expect("an eventfd"));
    client.set_vring_call(0, &call).expect("the call eventfd");
    client.set_vring_kick(0, &kick).expect("it starts");
    let (calls, called) = mpsc::channel();
    std::thread::spawn(move || calls.send(call.read()));
    let count = called.recv_timeout(Duration::from_secs(10)).expect("the server must signal");
    assert_eq!(count.expect("it can be read"), 1);
}

#[test]
fn nonsense_on_the_socket_ends_its_connection_alone() {
    let served = Served::new(false);
    let messages: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        // SET_VRING_KICK of queue 0, without a descriptor, as the first message.
        &[12, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        // SET_VRING_NUM of queue 1000.
        &[8, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 232, 3, 0, 0, 0, 1, 0, 0],
        // SET_FEATURES with features that were not offered.
        &[2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255],
    ];
    for message in messages {
        let mut stream = UnixStream::connect(served.socket()).expect("it listens");
        stream.write_all(message).expect("it is sent");
        stream.shutdown(std::net::Shutdown::Write).expect("connected");
        let mut answer = Vec::new();
        // The connection is closed, or reset with unread bytes.
        let _ = stream.read_to_end(&mut answer);
    }
    let mut client = served.client(1);
    client.read(0, 0, 0, 4096, 1);
    assert_eq!(client.only(0), 0);
}
