//! Replies as tables, split at every kind of place, and garbage.

use super::*;
use crate::nbd::wire::extent_flag;
use proptest::prelude::*;

/// The READ with one of these cookies asked for as many bytes as the cookie's value.
fn simple_bytes(cookie: u64) -> u32 {
    if cookie < 100 { cookie as u32 } else { 0 }
}

fn simple(error: u32, cookie: u64, data: &[u8]) -> Vec<u8> {
    [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes(), data].concat()
}

fn chunk(flags: u16, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    [
        &CHUNK_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &length.to_be_bytes(),
        payload,
    ]
    .concat()
}

/// An event that owns its bytes, so that adjacent pieces of data can be merged.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Event(ReplyEvent<'static>),
    Payload(Vec<u8>),
}

/// Decodes pieces that end at `cuts`, and merges adjacent pieces of data.
fn decode(bytes: &[u8], cuts: &[usize]) -> (Vec<Seen>, Result<(), WireError>) {
    let mut decoder = ReplyDecoder::default();
    let mut seen = Vec::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let mut input = &bytes[start..end];
        start = end;
        loop {
            match decoder.next(&mut input, simple_bytes) {
                Ok(None) => break assert!(input.is_empty()),
                Ok(Some(ReplyEvent::Payload(piece))) => match seen.last_mut() {
                    Some(Seen::Payload(payload)) => payload.extend_from_slice(piece),
                    _ => seen.push(Seen::Payload(piece.to_vec())),
                },
                Ok(Some(event)) => seen.push(Seen::Event(owned(event))),
                Err(error) => return (seen, Err(error)),
            }
        }
    }
    (seen, Ok(()))
}

fn owned(event: ReplyEvent<'_>) -> ReplyEvent<'static> {
    match event {
        ReplyEvent::Payload(_) => unreachable!("handled by the caller"),
        ReplyEvent::Data { cookie, at, bytes } => ReplyEvent::Data { cookie, at, bytes },
        ReplyEvent::Hole { cookie, at, bytes } => ReplyEvent::Hole { cookie, at, bytes },
        ReplyEvent::Extent { cookie, context, bytes, flags } => ReplyEvent::Extent { cookie, context, bytes, flags },
        ReplyEvent::Failed { cookie, errno, text } => ReplyEvent::Failed { cookie, errno, text },
        ReplyEvent::Finished { cookie } => ReplyEvent::Finished { cookie },
    }
}

/// Each kind of reply, and its events.
fn table() -> Vec<(Vec<u8>, Vec<Seen>)> {
    use Seen::{Event, Payload};
    let finished = |cookie| Event(ReplyEvent::Finished { cookie });
    let failed = |cookie, errno, text: &str| Event(ReplyEvent::Failed { cookie, errno, text: text.into() });
    let at = 4096u64.to_be_bytes();
    let error = |text: &str, tail: &[u8]| {
        [&28u32.to_be_bytes()[..], &(text.len() as u16).to_be_bytes(), text.as_bytes(), tail].concat()
    };
    let extents = [7u32, 512, 0, 1024, extent_flag::HOLE].map(u32::to_be_bytes).concat();
    vec![
        (simple(0, 1000, b""), vec![finished(1000)]),
        (simple(5, 3, b""), vec![failed(3, Errno::Io, ""), finished(3)]),
        (simple(12345, 3, b""), vec![failed(3, Errno::Invalid, ""), finished(3)]),
        (
            simple(0, 3, b"abc"),
            vec![Event(ReplyEvent::Data { cookie: 3, at: None, bytes: 3 }), Payload(b"abc".to_vec()), finished(3)],
        ),
        (
            chunk(1, chunk::OFFSET_DATA, 9, &[&at[..], b"data"].concat()),
            vec![
                Event(ReplyEvent::Data { cookie: 9, at: Some(4096), bytes: 4 }),
                Payload(b"data".to_vec()),
                finished(9),
            ],
        ),
        (
            chunk(0, chunk::OFFSET_HOLE, 9, &[&at[..], &[0, 0, 2, 0]].concat()),
            vec![Event(ReplyEvent::Hole { cookie: 9, at: 4096, bytes: 512 })],
        ),
        (chunk(1, chunk::NONE, 9, b""), vec![finished(9)]),
        (
            chunk(1, chunk::BLOCK_STATUS, 9, &extents),
            vec![
                Event(ReplyEvent::Extent { cookie: 9, context: 7, bytes: 512, flags: 0 }),
                Event(ReplyEvent::Extent { cookie: 9, context: 7, bytes: 1024, flags: extent_flag::HOLE }),
                finished(9),
            ],
        ),
        (chunk(1, chunk::ERROR, 9, &error("full", b"")), vec![failed(9, Errno::NoSpace, "full"), finished(9)]),
        (chunk(0, chunk::ERROR_OFFSET, 9, &error("", &at)), vec![failed(9, Errno::NoSpace, "")]),
        (chunk(0, 0xbeef, 9, &error("new", b"tail")), vec![failed(9, Errno::NoSpace, "new")]),
    ]
}

#[test]
fn each_kind_of_reply_is_understood() {
    for (bytes, expected) in table() {
        assert_eq!(decode(&bytes, &[]), (expected, Ok(())), "{bytes:x?}");
    }
}

#[test]
fn a_reply_out_of_step_is_an_error_that_names_the_field() {
    let long = vec![0; ERROR_BYTES_MAX + 1];
    let table = [
        (vec![0; 16], "reply: magic is 0x0, not 0x67446698"),
        (chunk(1, chunk::NONE, 1, b"x"), "chunk: length is 1, which must be 0 for a chunk without content"),
        (chunk(0, chunk::NONE, 1, b""), "chunk: flags is 0, which lacks DONE on a chunk without content"),
        (chunk(1, chunk::OFFSET_DATA, 1, &[0; 8]), "chunk: length is 8, which is less than 9 for a chunk with data"),
        (chunk(1, chunk::OFFSET_HOLE, 1, &[0; 13]), "chunk: length is 13, which is not 12 for a hole"),
        (chunk(1, chunk::OFFSET_HOLE, 1, &[0; 12]), "hole: size is 0, which must not be 0"),
        (chunk(1, chunk::BLOCK_STATUS, 1, &[0; 4]), "chunk: length is 4, which is not 4 and a multiple of 8"),
        (chunk(1, chunk::BLOCK_STATUS, 1, &[0; 12]), "extent: length is 0, which must not be 0"),
        (chunk(1, 3, 1, b""), "chunk: type is 3, which is not known"),
        (chunk(1, chunk::ERROR, 1, &[0; 5]), "chunk: length is 5, which is less than 6 for an error"),
        (chunk(1, chunk::ERROR, 1, &[0; 6]), "error chunk: error is 0, which is not an error"),
        (
            chunk(1, chunk::ERROR, 1, &[0, 0, 0, 5, 0, 1]),
            "error chunk: message length is 1, which exceeds the chunk's length",
        ),
        (chunk(1, chunk::ERROR, 1, &long), "chunk: length is 4353, which is too long for an error"),
    ];
    for (bytes, expected) in table {
        assert_eq!(decode(&bytes, &[]).1.expect_err(expected).to_string(), expected);
    }
}

#[test]
fn data_may_go_past_the_decoder() {
    let bytes = [simple(0, 50, &[]), simple(0, 1000, b"")].concat();
    let mut decoder = ReplyDecoder::default();
    let mut input = &bytes[..16];
    let data = decoder.next(&mut input, simple_bytes).unwrap();
    assert_eq!(data, Some(ReplyEvent::Data { cookie: 50, at: None, bytes: 50 }));
    decoder.skip_payload(20);
    assert_eq!(decoder.payload_left(), 30);
    decoder.skip_payload(30);
    let mut input = &bytes[16..];
    assert_eq!(decoder.next(&mut input, simple_bytes).unwrap(), Some(ReplyEvent::Finished { cookie: 50 }));
    assert_eq!(decoder.next(&mut input, simple_bytes).unwrap(), Some(ReplyEvent::Finished { cookie: 1000 }));
}

proptest! {
    #[test]
    fn the_same_is_seen_however_the_bytes_are_cut(
        chosen in proptest::collection::vec(0..table().len(), 1..8),
        garbage in proptest::collection::vec(any::<u8>(), 0..30),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let table = table();
        let mut bytes: Vec<u8> = chosen.iter().flat_map(|index| table[*index].0.clone()).collect();
        bytes.extend(garbage);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        prop_assert_eq!(decode(&bytes, &cuts), decode(&bytes, &[]));
    }
}
