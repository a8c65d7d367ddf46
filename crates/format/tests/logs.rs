//! Bitmap, bad-block log and partial parity log: round trips, and refusals with the field's name. `metadata.rs` has
//! real ones.

use mdspace_format::bad_blocks::{self, BadRange, COUNT_MAX};
use mdspace_format::bitmap::{self, BitmapSuper};
use mdspace_format::geometry::{Geometry, Level, Parity, Shape};
use mdspace_format::journal::{self, MetaBlock, Payload};
use mdspace_format::partial_parity::{self, ENTRIES_MAX, Entry, HEADER_BYTES, Header};
use mdspace_format::units::Sectors;
use proptest::prelude::*;

const UUID: [u8; 16] = *b"a set of members";

/// 100 chunks of 64 KiB and a part of another.
fn bitmap() -> BitmapSuper {
    BitmapSuper::new(UUID, Sectors(100 * 128 + 2), 64 << 10, 7)
}

#[test]
fn a_wrong_field_of_a_bitmap_is_refused_by_name() {
    let lies: [(&str, usize, &[u8], &str); 13] = [
        ("no magic", 0, &[0], "bitmap.magic"),
        ("version 2", 4, &[2], "bitmap.version"),
        ("version 7", 4, &[7], "bitmap.version"),
        ("chunk of 0", 52, &[0; 4], "bitmap.chunksize"),
        ("chunk of 256 bytes", 52, &[0, 1, 0, 0], "bitmap.chunksize"),
        ("chunk of 3 KiB", 52, &[0, 12, 0, 0], "bitmap.chunksize"),
        ("covers 2^63 sectors", 47, &[0x80], "bitmap.sync_size"),
        ("covers more than the room", 41, &[0xff, 0xff], "bitmap.sync_size"),
        ("finer than the room", 52, &[0, 2, 0, 0], "bitmap.sync_size"),
        ("sleeps for 0 s", 56, &[0; 4], "bitmap.daemon_sleep"),
        ("2^24 writes behind", 63, &[1], "bitmap.write_behind"),
        ("16384 writes behind", 60, &[0, 0x40], "bitmap.write_behind"),
        ("finest chunk, longest array", 40, &[0xff; 8], "bitmap.sync_size"),
    ];
    for (what, at, bytes, field) in lies {
        let mut encoded = bitmap().encode();
        encoded[at..at + bytes.len()].copy_from_slice(bytes);
        let defect = BitmapSuper::decode(&encoded, 1024).expect_err(what);
        assert_eq!(defect.field, field, "{what}: {defect}");
    }
    assert_eq!(BitmapSuper::decode(&bitmap().encode()[..255], 1024).expect_err("short").field, "bitmap");
}

#[test]
fn a_bitmap_fits_its_room_to_the_byte() {
    let bitmap = bitmap();
    assert_eq!(bitmap.bits(), 101);
    assert_eq!(BitmapSuper::decode(&bitmap.encode(), 256 + 13), Ok(bitmap.clone()));
    assert!(BitmapSuper::decode(&bitmap.encode(), 256 + 12).is_err());
    assert_eq!(bitmap.bytes_on_disk(u64::MAX), 4096);
    assert_eq!(bitmap.bytes_on_disk(3072), 512);
}

#[test]
fn clustered_and_lockless_bitmaps_are_known_by_name() {
    for (version, kind) in [(5, bitmap::Kind::Clustered), (6, bitmap::Kind::Lockless)] {
        let mut encoded = bitmap().encode();
        encoded[4] = version;
        encoded[140] = 9;
        let decoded = BitmapSuper::decode(&encoded, 4096).expect("known");
        assert_eq!(decoded.kind, kind);
        assert_eq!(decoded.encode(), encoded);
    }
}

#[test]
fn a_lockless_bitmap_of_the_kernels_counts_its_chunk_in_sectors() {
    // Linux 7.2 and mdadm 4.6: level 5 on members of 40 MiB with a data offset of 1 MiB.
    let uuid = [0xd7, 0xe2, 0xaa, 0x67, 0x73, 0x79, 0x8f, 0x1a, 0xb3, 0xe4, 0x28, 0x99, 0xaa, 0xdb, 0x3f, 0xc9];
    let words: [u32; 12] = [7, 0, 0, 0, 0x13800, 0, 0, 128, 30, 0, 256, 0];
    let mut kernels = [&b"bitm"[..], &6_u32.to_le_bytes(), &uuid].concat();
    kernels.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    kernels.resize(bitmap::SUPER_BYTES, 0);

    let mut ours = BitmapSuper::new_lockless(uuid, Sectors(0x13800), 64 << 10, 7, Sectors(256));
    ours.events_cleared = 0;
    assert_eq!(ours.encode()[..], kernels);
    assert_eq!(BitmapSuper::decode(&kernels, 1024 + 624), Ok(ours.clone()), "a byte for each chunk, behind 1024");
    assert_eq!(BitmapSuper::decode(&kernels, 1024 + 623).expect_err("too little room").field, "bitmap.sync_size");
    assert_eq!((ours.bits(), ours.used_bytes(), ours.bytes_on_disk(u64::MAX)), (624, 1648, 4096));
}

#[test]
fn bad_blocks_that_cannot_be_are_refused() {
    assert_eq!(bad_blocks::decode(&[0; 7], 0).expect_err("not whole").field, "bad_blocks");
    let last = u64::to_le_bytes(u64::MAX - 1);
    assert_eq!(bad_blocks::decode(&last, 0).map(|ranges| ranges.len()), Ok(1));
    assert_eq!(bad_blocks::decode(&last, 10).expect_err("beyond 2^64 bytes").field, "bad_blocks");
    assert_eq!(bad_blocks::decode(&last, 64).expect_err("no such unit").field, "bad_blocks");
    let long = BadRange { first: Sectors(0), count: Sectors(COUNT_MAX * 512 + 1) };
    assert_eq!(bad_blocks::encode(&[long], 0, 4096).expect_err("513 entries").field, "bad_blocks");
    // Empty entries, which the kernel leaves, are skipped. Entries after the end are ignored.
    let bytes = [5 << 10, 0, 7 << 10 | 2, u64::MAX, 9 << 10 | 1].map(u64::to_le_bytes).concat();
    assert_eq!(bad_blocks::decode(&bytes, 3), Ok(vec![BadRange { first: Sectors(56), count: Sectors(16) }]));
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry =
        any::<(u64, u16, u32, u32, u32)>().prop_map(|(data_sector, pages, data_bytes, parity_slot, checksum)| Entry {
            data_sector,
            partial_parity_bytes: u32::from(pages),
            data_bytes,
            parity_slot,
            checksum,
        });
    prop::collection::vec(entry, 0..ENTRIES_MAX)
}

/// `bytes` with the checksum of a header corrected.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[532..536].fill(0);
    let sum = partial_parity::checksum(&bytes);
    bytes[532..536].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn crc_is_crc_32c() {
    // The check value of the CRC catalogue.
    assert_eq!(partial_parity::checksum(b"123456789"), 0xe306_9283);
}

#[test]
fn a_wrong_field_of_a_partial_parity_log_is_refused_by_name() {
    let entry = Entry { data_sector: 0, partial_parity_bytes: 4096, data_bytes: 4096, parity_slot: 0, checksum: 0 };
    let good = Header { entries: vec![entry; 2], ..Header::empty(&UUID, 1) }.encode();
    let decode = |bytes: &[u8]| Header::decode(bytes, &UUID, 3 * HEADER_BYTES as u64).map(|_| ()).map_err(|d| d.field);
    assert_eq!(decode(&good), Ok(()));
    assert_eq!(decode(&good[..4095]), Err("ppl"));
    let lies = [
        ("another array's", 512, 1, "ppl.signature"),
        ("149 entries", 528, 149, "ppl.entries_count"),
        ("2^24 entries", 531, 1, "ppl.entries_count"),
        ("entries beyond the log", 536 + 8 + 1, 0x20, "ppl.pp_size"),
    ];
    for (what, at, value, field) in lies {
        let mut bytes = good.clone();
        bytes[at] = value;
        // The signature decides first whether a header is there, the checksum whether it is torn.
        let torn = if field == "ppl.signature" { field } else { "ppl.checksum" };
        assert_eq!(decode(&bytes), Err(torn), "{what}");
        assert_eq!(decode(&summed(bytes)), Err(field), "{what}");
    }
}

fn meta_block() -> MetaBlock {
    let payloads = vec![
        Payload::Data { at: Sectors(8), checksum: 1 },
        Payload::Parity { at: Sectors(16), checksums: vec![2, 3] },
        Payload::Flush { rows: vec![Sectors(24), Sectors(32)] },
    ];
    MetaBlock { sequence: 7, position: Sectors(40), payloads }
}

#[test]
fn a_wrong_field_of_a_journals_meta_block_is_refused_by_name() {
    let good = meta_block().encode(&UUID);
    let decode = |bytes: &[u8]| MetaBlock::decode(bytes, Sectors(40), 2, &UUID).map_err(|defect| defect.field);
    assert_eq!(decode(&good), Ok(meta_block()));
    assert_eq!(decode(&good[..4095]), Err("journal"));
    assert_eq!(MetaBlock::decode(&good, Sectors(40), 2, &[0; 16]).map_err(|d| d.field), Err("journal.checksum"));
    let lies: [(&str, usize, u8, &str); 9] = [
        ("no magic", 0, 0, "journal.magic"),
        ("version 2", 8, 2, "journal.magic"),
        ("another place", 24, 48, "journal.position"),
        ("longer than a block", 13, 0x20, "journal.meta_size"),
        ("ends within a payload", 12, 40, "journal.meta_size"),
        ("shorter than its head", 12, 31, "journal.meta_size"),
        ("an unknown payload", 32, 9, "journal.type"),
        ("data of two blocks", 36, 16, "journal.size"),
        ("half a row to flush", 32 + 20 + 24 + 4, 12, "journal.type"),
    ];
    for (what, at, value, field) in lies {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes[4..8].fill(0);
        let sum = journal::checksum(&UUID, &bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(decode(&bytes), Err(field), "{what}");
    }
    assert_eq!(MetaBlock::decode(&good, Sectors(40), 1, &UUID).map_err(|d| d.field), Err("journal.size"), "one parity");
}

/// 16 stripes of 3 data chunks of 16 KiB.
fn parity() -> Parity {
    let shape = Shape {
        level: Level::Raid5,
        layout: 2,
        chunk_bytes: 16 << 10,
        slots: 4,
        component_bytes: 256 << 10,
        member_bytes: Vec::new(),
    };
    let Ok(Geometry::Parity(parity)) = Geometry::new(&shape) else { panic!("a shape of level 5") };
    parity
}

#[test]
fn an_entry_repairs_the_rows_that_its_write_touched() {
    let entry = |data_sector, partial_parity_bytes, data_bytes, parity_slot| Entry {
        data_sector,
        partial_parity_bytes,
        data_bytes,
        parity_slot,
        checksum: 0,
    };
    // The sector, the bytes of partial parity and of data, the parity's slot; then the chunks and rows, or the field.
    let table = [
        (0, 4096, 4096, 3, Ok((0..1, 0..4096))),
        (8, 4096, 8192, 3, Ok((0..2, 4096..8192))),
        (32, 8192, 16384, 3, Ok((1..3, 0..8192))),
        (96 + 16, 0, 12288, 2, Ok((0..3, 24576..28672))),
        (96, 16384, 32768, 2, Ok((0..2, 16384..32768))),
        (3, 512, 512, 3, Ok((0..1, 1536..2048))),
        (0, 4096, 0, 3, Err("ppl.data_size")),
        (0, 4096, 4097, 3, Err("ppl.data_size")),
        (0, 100, 4096, 3, Err("ppl.data_size")),
        (0, 8192, 4096, 3, Err("ppl.data_size")),
        (0, 4096, 6144, 3, Err("ppl.pp_size")),
        (0, 0, 4096, 3, Err("ppl.data_size")),
        (64, 4096, 8192, 3, Err("ppl.data_sector")),
        (28, 4096, 4096, 3, Err("ppl.data_sector")),
        (0, 32768, 32768, 3, Err("ppl.data_sector")),
        (32, 0, 12288, 3, Err("ppl.data_sector")),
        (16 * 96, 4096, 4096, 3, Err("ppl.data_sector")),
        (u64::MAX, 4096, 4096, 3, Err("ppl.data_sector")),
        (0, 4096, 4096, 2, Err("ppl.parity_disk")),
        (0, 4096, 4096, u32::MAX, Err("ppl.parity_disk")),
    ];
    for (sector, partial, data, slot, expected) in table {
        let made = entry(sector, partial, data, slot);
        let repair = made.repair(&parity());
        if let Ok(repair) = &repair {
            let partial = vec![0; partial as usize];
            let checksum = partial_parity::checksum(&partial);
            assert_eq!(Entry::of(&parity(), repair, &partial), Entry { checksum, ..made });
        }
        let found = repair.map(|repair| (repair.changed, repair.rows)).map_err(|defect| defect.field);
        assert_eq!(found, expected, "{sector} {partial} {data} {slot}");
    }
}

proptest! {
    #[test]
    fn the_first_set_part_of_a_range_is_what_a_look_at_every_byte_finds(
        set in prop::collection::vec(any::<bool>(), 1..80), start in 0u64..80_000, length in 0u64..80_000, most in 0u64..9000,
    ) {
        let header = BitmapSuper::new([0; 16], Sectors(set.len() as u64 * 2 - 1), 1024, 0);
        let mut map = vec![0; set.len().div_ceil(8)];
        for (bit, _) in set.iter().enumerate().filter(|(_, set)| **set) {
            bitmap::set_range(&mut map, bit as u64..bit as u64 + 1);
        }
        let end = (start + length).min(header.sync_size.bytes());
        let first = (start..end).find(|byte| set[(byte / 1024) as usize]);
        let found = header.first_set(&map, start..end, most);
        prop_assert_eq!(found.as_ref().map(|found| found.start), first);
        if let Some(found) = found {
            let stop = (found.start..end).find(|byte| !set[(byte / 1024) as usize]).unwrap_or(end);
            // Cut only at the end of a chunk, and not before `most`.
            prop_assert!(found.end == stop || (found.end % 1024 == 0 && found.end < stop));
            prop_assert!(found.end == stop || found.end + 1024 > found.start + most);
        }
    }

    #[test]
    fn bits_are_set_and_cleared_as_one_by_one(
        start in 0_u64..200, length in 0_u64..200, before in prop::collection::vec(any::<u8>(), 50), set in any::<bool>(),
    ) {
        let bits = start..start + length;
        let mut map = before.clone();
        if set { bitmap::set_range(&mut map, bits.clone()) } else { bitmap::clear_range(&mut map, bits.clone()) }
        for bit in 0..400 {
            let expected = if bits.contains(&bit) { set } else { bitmap::is_set(&before, bit) };
            prop_assert_eq!(bitmap::is_set(&map, bit), expected, "bit {}", bit);
        }
    }

    #[test]
    fn a_range_has_the_bits_that_its_bytes_have(start in 0_u64..7_000_000, length in 0_u64..500_000) {
        let bitmap = bitmap();
        let range = start..start + length;
        let bits = bitmap.bits_of(range.clone());
        for bit in 0..bitmap.bits() {
            let covered = bitmap.bytes_of(bit);
            let touched = covered.start < range.end && range.start < covered.end && length > 0;
            // The last chunk is shorter: a range just beyond it touches nothing, but may include it.
            prop_assert!(bits.contains(&bit) == touched || bit == 100 && !touched, "bit {}", bit);
        }
        prop_assert!(bits.end <= bitmap.bits());
    }

    #[test]
    fn bitmaps_read_back(events in any::<u64>(), cleared in any::<u64>(), state in any::<u32>(), size in 0_u64..1 << 40, shift in 9_u32..32) {
        let mut bitmap = BitmapSuper::new(UUID, Sectors(size), 1 << shift, events);
        bitmap.events_cleared = cleared;
        bitmap.state = bitmap::State(state);
        prop_assert_eq!(BitmapSuper::decode(&bitmap.encode(), u64::MAX), Ok(bitmap));
    }

    #[test]
    fn bad_blocks_cover_the_same_sectors_after_a_round_trip(
        ranges in prop::collection::vec((0_u64..1 << 30, 1_u64..5000), 0..30), shift in 0_u8..4,
    ) {
        let unit = 1 << shift;
        let ranges: Vec<BadRange> =
            ranges.iter().map(|(first, count)| BadRange { first: Sectors(*first), count: Sectors(*count) }).collect();
        let log = bad_blocks::encode(&ranges, shift, 4096);
        let Ok(log) = log else { return Ok(()) };
        let mut read = bad_blocks::decode(&log, shift).expect("just written").into_iter();
        for range in ranges {
            // Its entries are adjacent, from its start rounded down to its end rounded up.
            let mut at = range.first.0 / unit * unit;
            while at < range.first.0 + range.count.0 {
                let piece = read.next().expect("a piece for it");
                prop_assert_eq!(piece.first.0, at);
                at += piece.count.0;
            }
            prop_assert_eq!(at, (range.first.0 + range.count.0).next_multiple_of(unit));
        }
        prop_assert!(read.next().is_none());
    }

    #[test]
    fn partial_parity_headers_read_back(generation in any::<u64>(), entries in entries()) {
        let header = Header { entries, ..Header::empty(&UUID, generation) };
        prop_assert_eq!(Header::decode(&header.encode(), &UUID, u64::MAX), Ok(header));
    }

    #[test]
    fn one_flipped_bit_of_a_partial_parity_header_is_noticed(bit in 0..HEADER_BYTES * 8, generation in any::<u64>()) {
        let mut bytes = Header::empty(&UUID, generation).encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Header::decode(&bytes, &UUID, u64::MAX).is_err());
    }
}
