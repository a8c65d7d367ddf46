//! Garbage on the NBD socket of a served array: the server keeps serving other clients, and no byte of any member
//! changes.
//!
//! A black-box test of the command. The tests of mdspace-export check the replies, and its fuzz targets the decoders.

use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

const MEMBERS: [&str; 3] = ["a", "b", "c"];

/// The valid beginning of a client: its flags, and the option for the default export.
const HANDSHAKE: [u8; 20] = *b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";

/// A server closes the connection of a client that has disconnected well before that.
const PATIENCE: Duration = Duration::from_secs(20);

/// An option and its data, with a length that may be wrong.
fn option(number: u32, bytes: u32, data: &[u8]) -> Vec<u8> {
    [&HANDSHAKE[..4], b"IHAVEOPT", &number.to_be_bytes(), &bytes.to_be_bytes(), data].concat()
}

/// A request, valid or not.
fn request(flags: u16, kind: u16, at: u64, bytes: u32) -> Vec<u8> {
    let numbers = [&flags.to_be_bytes()[..], &kind.to_be_bytes(), &[7; 8], &at.to_be_bytes(), &bytes.to_be_bytes()];
    [&0x2560_9513_u32.to_be_bytes()[..], &numbers.concat()].concat()
}

/// Random bytes, the same for the same seed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    let states = std::iter::successors(Some(seed ^ 0x9e37_79b9_7f4a_7c15), next);
    states.skip(1).map(|state| (state >> 56) as u8).take(bytes).collect()
}

/// Garbage from the first byte on.
fn handshakes() -> Vec<(String, Vec<u8>)> {
    let mut all = vec![
        ("nothing".to_owned(), Vec::new()),
        ("zeros".to_owned(), vec![0; 4096]),
        ("unknown flags".to_owned(), [&[0xff; 4], &HANDSHAKE[4..]].concat()),
        ("a wrong magic".to_owned(), [&HANDSHAKE[..4], b"IHAVENOT", &HANDSHAKE[12..]].concat()),
        ("an unknown option".to_owned(), option(0x7fff_ffff, 0, &[])),
        ("an export name of 4 GiB".to_owned(), option(1, u32::MAX, &[b'x'; 4096])),
        ("an export that is not there".to_owned(), option(1, 7, b"nowhere")),
        ("an option of 4 GiB".to_owned(), option(7, u32::MAX, &noise(1, 4096))),
        ("a name longer than its option".to_owned(), option(7, 6, &[0xff, 0xff, 0xff, 0xff, 0, 0])),
        ("information beyond its option".to_owned(), option(7, 6, &[0, 0, 0, 0, 0xff, 0xff])),
        ("contexts beyond their option".to_owned(), option(10, 8, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff])),
        ("TLS".to_owned(), [option(5, 0, &[]), noise(2, 4096)].concat()),
    ];
    all.extend((0..4).map(|seed| (format!("noise {seed}"), noise(seed, 1 << (seed * 6)))));
    all.extend((1..HANDSHAKE.len()).map(|end| (format!("{end} bytes of a handshake"), HANDSHAKE[..end].to_vec())));
    all
}

/// Garbage behind a valid handshake, for an array of `bytes`.
fn requests(bytes: u64) -> Vec<(String, Vec<u8>)> {
    let payload = [0xee; 8192];
    let write = [&request(0, 1, 0, 8192)[..], &payload].concat();
    let mut all = vec![
        ("zeros".to_owned(), vec![0; 4096]),
        ("a reply's magic".to_owned(), [&0x6744_6698_u32.to_be_bytes()[..], &write[4..]].concat()),
        ("an unknown command".to_owned(), request(0, 99, 0, 4096)),
        ("unknown flags".to_owned(), [&request(0xfff0, 1, 0, 8192)[..], &payload].concat()),
        ("a write of 4 GiB".to_owned(), [&request(0, 1, 0, u32::MAX)[..], &payload].concat()),
        ("a write at the end of all bytes".to_owned(), [&request(0, 1, u64::MAX, 8192)[..], &payload].concat()),
        ("a write past the end".to_owned(), [&request(0, 1, bytes - 4096, 8192)[..], &payload].concat()),
        ("a write of nothing".to_owned(), request(0, 1, 0, 0)),
        ("zeros past the end".to_owned(), request(0, 6, bytes - 4096, 8192)),
        ("zeros of 4 GiB".to_owned(), request(0, 6, 4096, u32::MAX)),
        ("a trim past the end".to_owned(), request(0, 4, bytes, 4096)),
        ("a read of 4 GiB".to_owned(), request(0, 0, 0, u32::MAX)),
        ("a read past the end".to_owned(), request(0, 0, bytes, 1)),
        ("a block status of everything".to_owned(), request(0, 7, 0, u32::MAX)),
        ("a flush with a length".to_owned(), request(0, 3, 4096, 4096)),
        ("good-bye, and a write".to_owned(), [request(0, 2, 0, 0), write.clone()].concat()),
    ];
    all.extend((0..4).map(|seed| (format!("noise {seed}"), noise(seed + 9, 1 << (seed * 6)))));
    let ends = (1..28).chain([28, 29, 28 + 4096, write.len() - 1]);
    all.extend(ends.map(|end| (format!("{end} bytes of a write"), write[..end].to_vec())));
    all
}

/// Sends all bytes and disconnects; the server must disconnect, too.
fn throw(socket: &str, what: &str, garbage: &[u8]) {
    let mut stream = UnixStream::connect(socket).unwrap_or_else(|error| panic!("{what}: no server listens: {error}"));
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    // The server may disconnect before everything is sent.
    drop(stream.write_all(garbage));
    drop(stream.shutdown(Shutdown::Write));
    if let Err(error) = stream.read_to_end(&mut Vec::new()) {
        assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{what}: the server holds on");
    }
}

fn hashes(here: &Workplace) -> Vec<u64> {
    let hash = |bytes: Vec<u8>| {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        hasher.finish()
    };
    here.contents(&MEMBERS).into_iter().map(hash).collect()
}

#[test]
fn whatever_a_client_sends_others_are_served_and_no_member_changes() {
    for (bitmap, how) in [("none", ""), ("internal", ""), ("none", "--cache writeback")] {
        let here = Workplace::new();
        here.run(&format!("create --level 5 --chunk 64K --size 8M --bitmap {bitmap} a b c")).ok();
        let data = noise(77, 3 << 20);
        here.run_with("write a b c", &data).ok();
        let before = hashes(&here);
        let line = format!("serve a b c --nbd unix:nbd.socket {how}");
        let mut command = here.command(&line.split_whitespace().collect::<Vec<_>>());
        command.stderr(Stdio::null()); // it logs every connection
        let server = Server::start(command);
        let socket = here.path().join("nbd.socket").display().to_string();
        let bytes = Nbd::connect(&socket).bytes;
        // A client that connected before the garbage.
        let mut witness = Nbd::connect(&socket);
        for (what, garbage) in handshakes() {
            throw(&socket, &what, &garbage);
        }
        for (what, garbage) in requests(bytes) {
            throw(&socket, &what, &[&HANDSHAKE[..], &garbage].concat());
            assert!(witness.read(0, 4096) == data[..4096], "{what}: others are served");
        }
        let mut newcomer = Nbd::connect(&socket);
        assert!(newcomer.read(0, data.len() as u32) == data, "{how}: it is all there");
        drop((witness, newcomer));
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0), "{how}");
        assert!(hashes(&here) == before, "{how}: members changed");
    }
}
