//! Any bytes as a header of checksums, a page of the table or the open regions:
//! never a panic; what is accepted reads back the same.
#![no_main]

use format::integrity::{Binding, Header, Open, PAGE_BYTES, Page};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, u64, u32, Vec<u8>)| {
    let (seed, epoch, number, mut bytes) = input;
    bytes.resize(PAGE_BYTES, 0);
    let binding = Binding { seed, epoch };
    if let Ok(page) = Page::decode(&bytes, &binding, number.into()) {
        let mut encoded = vec![0; PAGE_BYTES];
        page.encode(&binding, number.into(), &mut encoded);
        assert_eq!(Page::decode(&encoded, &binding, number.into()), Ok(page));
    }
    let open = Open::decode(&bytes, seed);
    assert_eq!(Open::decode(&open.encode(seed), seed), open);
    bytes[..8].copy_from_slice(b"md-csums");
    let mut zeroed = bytes[..512].to_vec();
    zeroed[12..16].fill(0);
    // A checksum is not found by chance.
    let checksum = format::partial_parity::checksum(&zeroed);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(Some(header)) = Header::decode(&bytes) {
        assert_eq!(Header::decode(&header.encode()), Ok(Some(header)));
    }
});
