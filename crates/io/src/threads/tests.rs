//! Tests of what hangs: calls that do not return leave threads to other files.
//!
//! A connection to a listener whose queue is full hangs like a transfer of a file system that does not answer.

use super::*;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// More files than a pool of a fixed size would have threads for.
const HANGING: usize = 6;
const JOBS: u64 = 40;
const LAST: u64 = HANGING as u64 * JOBS;

/// A listener whose queue is full, and what fills it.
struct Full {
    _listener: OwnedFd,
    _queued: Vec<OwnedFd>,
    address: Vec<u8>,
}

impl Full {
    fn new(path: &Path) -> Self {
        let stream = || socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
        let (listener, address) = (stream(), SocketAddrUnix::new(path).expect("a short path"));
        bind(&listener, &address).expect("bound");
        listen(&listener, 0).expect("it listens");
        let queued = stream();
        connect(&queued, &address).expect("a queue of no length takes one");
        let mut bytes = libc::AF_UNIX.cast_unsigned().to_ne_bytes()[..2].to_vec();
        bytes.extend(path.as_os_str().as_encoded_bytes());
        bytes.push(0);
        Self { _listener: listener, _queued: vec![queued], address: bytes }
    }

    /// A call that waits until the listener is gone.
    fn call(&self) -> Call {
        Call::Connect { address: self.address.as_ptr().cast(), bytes: self.address.len() as u32 }
    }
}

/// Submits what hangs on each file, and then a flush of a file; whether the flush completes.
fn flushes_beside(threads: &Threads, full: &Full, sockets: &[OwnedFd], file: &OwnedFd) -> bool {
    for (number, socket) in sockets.iter().enumerate() {
        let target = Target {
            fd: socket.as_raw_fd(),
            slot: Some(threads.register_file(socket.as_raw_fd())),
            is_in_memory: false,
        };
        for job in 0..JOBS {
            // SAFETY: the address and the socket outlive the pool, which the caller ends.
            unsafe { threads.submit(number as u64 * JOBS + job, target, full.call()) };
        }
    }
    let target =
        Target { fd: file.as_raw_fd(), slot: Some(threads.register_file(file.as_raw_fd())), is_in_memory: false };
    let mut reaped = Vec::new();
    threads.enter(Wait::No, &mut reaped);
    // SAFETY: the file is open until the end of the test.
    unsafe { threads.submit(LAST, target, Call::SyncData) };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        threads.enter(Wait::For(Duration::from_millis(100)), &mut reaped);
        if reaped.contains(&(LAST, 0)) {
            return true;
        }
    }
    false
}

#[test]
fn files_that_hang_leave_threads_to_every_other_file() {
    let place = tempfile::tempdir().expect("a directory");
    let full = Full::new(&place.path().join("socket"));
    let file = OwnedFd::from(std::fs::File::create(place.path().join("file")).expect("a file"));
    let stream = |_| socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    let sockets: Vec<OwnedFd> = (0..HANGING).map(stream).collect();
    let threads = Threads::new(&engine::Pool::new(4096), false).expect("threads");
    assert!(flushes_beside(&threads, &full, &sockets, &file), "no thread is left for the flush");

    // All that wait are refused now, and the threads can end.
    let Full { _listener: listener, _queued: queued, address: _address } = full;
    drop((listener, queued));
    let mut reaped = Vec::new();
    while (reaped.len() as u64) < LAST {
        threads.enter(Wait::Forever, &mut reaped);
    }
    threads.end();
}
