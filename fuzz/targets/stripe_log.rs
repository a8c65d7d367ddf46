//! Any bytes as a stripe log: never a panic; what is accepted reads back the same. A header locates a log before the data
//! or none. A ring is scanned as a replay scans it: no record and no partial parity lies beyond it.
//!
//! The input is a header and pages of a ring. Magics, places and checksums are set right where the input says so, as
//! none is found by chance. So it needs no seeds.
#![no_main]

use format::stripe_log::{Header, PAGE_BYTES, Place, Record, checksum};
use format::superblock::{Superblock, Version, decode};
use libfuzzer_sys::fuzz_target;

const PAGE: u64 = PAGE_BYTES as u64;

/// Of a RAID-6 that the kernel wrote, on members of 8 MiB.
const SUPERBLOCK: &[u8] = include_bytes!("../../crates/format/tests/fixtures/raid6-failed/0.superblock");

fn superblock() -> Superblock {
    let at = Version::V1_2.place(8 << 20).expect("long enough");
    decode(Version::V1_2, at, SUPERBLOCK, 8 << 20).expect("the kernel's").expect("it is there")
}

/// A page of the ring: whether its magic and place are set right, whether its checksum is, and whether the lengths of its
/// partial parity are as of chunks up to 64 KiB; the number of its entries; its bytes.
type Page = (bool, bool, bool, u8, Vec<u8>);

fuzz_target!(|input: (Vec<u8>, Vec<Page>)| {
    let (mut bytes, pages) = input;
    bytes.resize(PAGE_BYTES, 0);
    check_header(&bytes);
    bytes[..12].copy_from_slice(b"md-strip\x01\0\0\0");
    bytes[112] &= 1;
    bytes[113..120].fill(0);
    bytes[152..512].fill(0);
    set_checksum(&mut bytes[..512], 12, 0);
    let header = check_header(&bytes).expect("all that is checked was set right");
    check_ring(&ring(&header, pages), &header);
});

fn set_checksum(bytes: &mut [u8], at: usize, seed: u32) {
    bytes[at..at + 4].fill(0);
    let sum = checksum(bytes) ^ seed;
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

fn check_header(bytes: &[u8]) -> Option<Header> {
    let header = Header::decode(bytes).ok()??;
    assert_eq!(header.encode()[..512], bytes[..512]);
    let superblock = superblock();
    if let Ok(place) = Place::found(&superblock, &header) {
        assert!(place.at == Place::start(&superblock).expect("a level with parity"));
        assert!(place.bytes == header.bytes && place.end().0 <= superblock.data_at().0);
        let _ = header.check(&superblock, &place);
    }
    Some(header)
}

/// The ring's bytes.
fn ring(header: &Header, pages: Vec<Page>) -> Vec<u8> {
    let mut ring = Vec::new();
    for (is_placed, is_sealed, is_short, count, mut page) in pages.into_iter().take(64) {
        page.resize(PAGE_BYTES, 0);
        if is_placed {
            page[..8].copy_from_slice(b"md-strec");
            page[12..16].copy_from_slice(&u32::from(count).to_le_bytes());
            page[16..24].copy_from_slice(&header.epoch.to_le_bytes());
            page[40..48].copy_from_slice(&(ring.len() as u64).to_le_bytes());
        }
        if is_short {
            page[512..].chunks_exact_mut(56).for_each(|entry| entry[50..52].fill(0));
        }
        if is_sealed {
            set_checksum(&mut page, 8, header.seed());
        }
        ring.extend(page);
    }
    ring
}

/// Scans a ring.
fn check_ring(ring: &[u8], header: &Header) {
    let (ring_bytes, mut offset) = (ring.len() as u64, 0);
    while offset + PAGE <= ring_bytes {
        let head = &ring[offset as usize..(offset + PAGE) as usize];
        let Some(record) = Record::decode(head, offset, ring_bytes, header.epoch, header.seed()) else {
            offset += PAGE;
            continue;
        };
        let mut partial_at = offset + PAGE;
        for entry in &record.entries {
            let partial = &ring[partial_at as usize..][..entry.partial_bytes as usize];
            let _ = checksum(partial) == entry.checksum;
            partial_at += u64::from(entry.partial_bytes);
            if entry.check(16, 64 << 10, 3).is_ok() {
                assert!(entry.stripe < 16 && entry.changed.iter().all(|index| index < 3));
                assert!(entry.rows.start < entry.rows.end && entry.rows.end <= 64 << 10);
                assert!(entry.changed.iter().next().is_some());
            }
        }
        let encoded = record.encode(header.seed());
        assert_eq!(Record::decode(&encoded, offset, ring_bytes, header.epoch, header.seed()).as_ref(), Some(&record));
        offset += record.bytes();
        assert!(offset <= ring_bytes && partial_at <= offset && record.bytes() >= PAGE);
    }
}
