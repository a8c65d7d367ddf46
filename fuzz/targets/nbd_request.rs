//! Any bytes as requests: never a panic, the same requests however the bytes
//! are cut, and what is taken for a command stays within the export.
#![no_main]

use export::nbd::handshake::Negotiated;
use export::nbd::request::{Command, Request, RequestDecoder, RequestEvent};
use export::nbd::wire::{PAYLOAD_BYTES_MAX, REQUEST_MAGIC};
use libfuzzer_sys::fuzz_target;

type Requests = Vec<(u16, u16, u64, u64, u32, Vec<u8>)>;

/// The requests, the bytes of payload after each, and how it ended.
fn decode(bytes: &[u8], cut: usize) -> (Vec<(Request, usize)>, String) {
    let mut decoder = RequestDecoder::default();
    let mut seen: Vec<(Request, usize)> = Vec::new();
    let (first, second) = bytes.split_at(cut);
    for mut input in [first, second] {
        loop {
            match decoder.next(&mut input) {
                Ok(Some(RequestEvent::Request(request))) => seen.push((request, 0)),
                Ok(Some(RequestEvent::Payload(piece))) => {
                    assert!(!piece.is_empty());
                    seen.last_mut().expect("a payload follows its request").1 += piece.len();
                }
                Ok(None) => break assert!(input.is_empty()),
                Err(error) => return (seen, error.to_string()),
            }
        }
    }
    (seen, format!("{} {}", decoder.payload_left(), decoder.is_between_messages()))
}

fn check(request: &Request, agreed: &Negotiated) {
    let Ok(command) = Command::check(request, agreed) else { return };
    let (at, bytes) = match command {
        Command::Read { at, bytes } | Command::Write { at, bytes, .. } => {
            assert!(bytes <= PAYLOAD_BYTES_MAX);
            (at, bytes)
        }
        Command::Trim { at, bytes, .. } | Command::WriteZeroes { at, bytes, .. } => (at, bytes),
        Command::BlockStatus { at, bytes, .. } => {
            assert!(bytes > 0 && agreed.allocation_context.is_some());
            (at, bytes)
        }
        Command::Flush | Command::Disconnect => (0, 0),
    };
    assert!(at.checked_add(bytes.into()).is_some_and(|end| end <= agreed.bytes));
    let writes = matches!(command, Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. });
    assert!(!(agreed.read_only && writes));
}

fuzz_target!(|input: (u64, u8, Requests, Vec<u8>, u16)| {
    let (bytes, agreed, requests, tail, cut) = input;
    let agreed = Negotiated {
        export: 0,
        bytes,
        read_only: agreed & 1 != 0,
        structured: agreed & 2 != 0,
        allocation_context: (agreed & 4 != 0).then_some(1),
    };
    let mut stream = Vec::new();
    for (flags, kind, cookie, offset, length, payload) in requests {
        stream.extend(REQUEST_MAGIC.to_be_bytes());
        stream.extend((flags & 63).to_be_bytes());
        stream.extend((kind % 10).to_be_bytes());
        stream.extend(cookie.to_be_bytes());
        stream.extend(offset.to_be_bytes());
        // Mostly in step: a write's length is that of what follows.
        let length = if kind % 10 == 1 && flags & 64 == 0 { payload.len() as u32 } else { length };
        stream.extend(length.to_be_bytes());
        stream.extend(payload);
    }
    stream.extend(tail);
    let whole = decode(&stream, 0);
    whole.0.iter().for_each(|(request, _)| check(request, &agreed));
    assert_eq!(decode(&stream, usize::from(cut) % (stream.len() + 1)), whole);
});
