//! Any bytes as the index of an overlay: never a panic, and no memory beyond the bytes; what is accepted encodes to an
//! index that reads the same.
#![no_main]

use format::overlay::{Blocks, Header, Holes, Identity, Index, checksum, encode_record};
use libfuzzer_sys::fuzz_target;

type Input = (u64, Vec<u8>, Option<Vec<(u64, u32)>>, Vec<(u64, u64)>, Vec<u8>);

fuzz_target!(|input: Input| {
    let (bytes, name, holes, runs, rest) = input;
    let identity = Identity { bytes, first: 1, last: 2, modified: 3, events: 4, samples: 5, written: None };
    // Holes in any order, of which only ascending ones are accepted.
    let range = |(at, bytes): (u64, u32)| at..at.saturating_add(bytes.into());
    let holes = holes.map(|holes| Holes { disk_bytes: bytes / 2, ranges: holes.into_iter().map(range).collect() });
    let header = Header { name, identity, holes };
    let mut index = header.encode();
    // A record with any runs, whose checksum is right.
    let at = index.len();
    index.extend_from_slice(b"mdsp-rec\0\0\0\0");
    index.extend_from_slice(&(runs.len() as u32).to_le_bytes());
    index.extend_from_slice(&(at as u64).to_le_bytes());
    for (first, blocks) in &runs {
        index.extend_from_slice(&first.to_le_bytes());
        index.extend_from_slice(&blocks.to_le_bytes());
    }
    let sum = checksum(&index[at + 12..]);
    index[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
    index.extend_from_slice(&rest);
    drop(Index::decode(&rest));
    let Ok(decoded) = Index::decode(&index) else { return };
    let mut again = decoded.header.encode();
    again.extend_from_slice(&encode_record(again.len() as u64, &decoded.blocks));
    let again = Index::decode(&again).expect("just encoded");
    assert_eq!((&again.header, &again.blocks), (&decoded.header, &decoded.blocks));
    let mut none = again.blocks.clone();
    none.remove(&decoded.blocks);
    assert_eq!(none, Blocks::default());
});
