//! Any bytes as replies to a client: never a panic, the same replies however
//! the bytes are cut, and nothing kept but one error's text.
#![no_main]

use export::nbd::reply::{ERROR_BYTES_MAX, ReplyDecoder, ReplyEvent};
use export::nbd::wire::{CHUNK_MAGIC, SIMPLE_REPLY_MAGIC};
use libfuzzer_sys::fuzz_target;

type Replies = Vec<(bool, u16, u16, u64, Vec<u8>)>;

/// Reads asked for as much as their cookie says.
fn simple_bytes(cookie: u64) -> u32 {
    if cookie < 64 { cookie as u32 } else { 0 }
}

/// The events as text, with pieces of data counted together, and how it ended.
fn decode(bytes: &[u8], cut: usize) -> (Vec<String>, String) {
    let mut decoder = ReplyDecoder::default();
    let mut seen = Vec::new();
    let mut payload = 0;
    let (first, second) = bytes.split_at(cut);
    for mut input in [first, second] {
        loop {
            let event = match decoder.next(&mut input, simple_bytes) {
                Ok(Some(ReplyEvent::Payload(piece))) => {
                    assert!(!piece.is_empty());
                    payload += piece.len();
                    continue;
                }
                Ok(Some(event)) => event,
                Ok(None) => break assert!(input.is_empty()),
                Err(error) => return (seen, format!("{error} after {payload}")),
            };
            match &event {
                ReplyEvent::Data { bytes, .. } | ReplyEvent::Hole { bytes, .. } | ReplyEvent::Extent { bytes, .. } => {
                    assert!(*bytes > 0);
                }
                // Replacement characters take up to three bytes for one.
                ReplyEvent::Failed { text, .. } => assert!(text.len() <= 3 * ERROR_BYTES_MAX),
                ReplyEvent::Finished { .. } | ReplyEvent::Payload(_) => {}
            }
            seen.push(format!("{payload} {event:?}"));
        }
    }
    (seen, format!("{payload} of it, {} left", decoder.payload_left()))
}

fuzz_target!(|input: (Replies, Vec<u8>, u16)| {
    let (replies, tail, cut) = input;
    let mut stream = Vec::new();
    for (simple, flags, kind, cookie, data) in replies {
        if simple {
            stream.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
            stream.extend(u32::from(kind).to_be_bytes());
            stream.extend((cookie % 128).to_be_bytes());
        } else {
            stream.extend(CHUNK_MAGIC.to_be_bytes());
            stream.extend((flags & 3).to_be_bytes());
            stream.extend((kind & 0x8007).to_be_bytes());
            stream.extend(cookie.to_be_bytes());
            stream.extend((data.len() as u32).to_be_bytes());
        }
        stream.extend(data);
    }
    stream.extend(tail);
    assert_eq!(decode(&stream, usize::from(cut) % (stream.len() + 1)), decode(&stream, 0));
});
