//! Any bytes as a disk with a partition table: never a panic, and every partition lies where a disk can have it. The
//! checksums of the first GPT header are set right once, so that its entries are reached.
#![no_main]

use disk::table::find;
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

fn look(disk: &[u8]) {
    let found = find(disk).now_or_never().expect("memory answers at once").expect("memory is readable");
    for partition in found.into_iter().flat_map(|table| table.partitions) {
        assert!(partition.number > 0);
    }
}

fn crc(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A disk whose GPT has this header and these entries, in sectors of `sector` bytes.
fn with_checksums(input: &[u8], sector: usize) -> Vec<u8> {
    let mut disk = vec![0; 16 * sector];
    let entries = input.get(92..).unwrap_or_default();
    let length = entries.len().min(8 * sector) / 128 * 128;
    disk[2 * sector..][..length].copy_from_slice(&entries[..length]);
    let header = &mut disk[sector..sector + 92];
    let given = input.len().min(92);
    header[..given].copy_from_slice(&input[..given]);
    header[..8].copy_from_slice(b"EFI PART");
    for (at, number) in [(12, 92), (80, length as u32 / 128), (84, 128), (88, crc(&entries[..length])), (16, 0)] {
        header[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    header[24..32].copy_from_slice(&1_u64.to_le_bytes());
    header[72..80].copy_from_slice(&2_u64.to_le_bytes());
    let sum = crc(header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    disk
}

fuzz_target!(|input: &[u8]| {
    look(input);
    for sector in [512, 4096] {
        look(&with_checksums(input, sector));
    }
    // As boot records: the second is where an extended partition may begin.
    let mut records = input.to_vec();
    records.resize(records.len().next_multiple_of(512), 0);
    for record in records.chunks_exact_mut(512) {
        record[510..].copy_from_slice(b"\x55\xaa");
        for entry in 0..4 {
            record[446 + 16 * entry] &= 0x80;
        }
    }
    look(&records);
});
