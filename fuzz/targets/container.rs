//! Any bytes as the metadata of a container: never a panic, and a volume has slots and a name of its own.
#![no_main]

use disk::container::{self, Container};
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

/// Bytes of the disk. DDF's anchor and IMSM's block are at its end.
const DISK_BYTES: usize = 128 << 10;

fn read(disk: &[u8]) -> Option<Container> {
    container::read(disk).now_or_never().expect("memory answers at once").ok().flatten()
}

/// Mends the checksum of a record of DDF.
fn sign(record: &mut [u8], signature: u32) {
    record[..4].copy_from_slice(&signature.to_be_bytes());
    record[4..8].fill(0xff);
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    let sum = record.iter().fold(0_u32, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step));
    record[4..8].copy_from_slice(&sum.to_be_bytes());
}

/// A block of IMSM with this content behind its head.
fn imsm(input: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    let block = &mut disk[DISK_BYTES - 1024..DISK_BYTES - 512];
    let length = input.len().min(block.len() - 0x34);
    block[0x34..][..length].copy_from_slice(&input[..length]);
    block[..24].copy_from_slice(b"Intel Raid ISM Cfg Sig. ");
    block[0x24..0x28].copy_from_slice(&512_u32.to_le_bytes());
    block[0x34..0x38].fill(0);
    let sum = block
        .chunks_exact(4)
        .fold(0_u32, |sum, word| sum.wrapping_add(u32::from_le_bytes(word.try_into().expect("four bytes"))));
    block[0x20..0x24].copy_from_slice(&sum.to_le_bytes());
    disk
}

/// Metadata of DDF whose records have this content, and their checksums.
fn ddf(input: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    let sectors = DISK_BYTES / 512;
    let primary = sectors - 16;
    let mut header = vec![0_u8; 512];
    header[96..104].copy_from_slice(&(primary as u64).to_be_bytes());
    header[134..136].copy_from_slice(&2_u16.to_be_bytes());
    header[136..138].copy_from_slice(&16_u16.to_be_bytes());
    for (at, first, length) in [(200, 1_u32, 2_u32), (208, 3, 2), (216, 5, 4), (224, 9, 1)] {
        header[at..at + 4].copy_from_slice(&first.to_be_bytes());
        header[at + 4..at + 8].copy_from_slice(&length.to_be_bytes());
    }
    sign(&mut header, 0xde11_de11);
    disk[(sectors - 1) * 512..].copy_from_slice(&header);
    header[112] = 1;
    sign(&mut header, 0xde11_de11);
    disk[primary * 512..][..512].copy_from_slice(&header);
    let records = &mut disk[(primary + 1) * 512..(primary + 10) * 512];
    let length = input.len().min(records.len());
    records[..length].copy_from_slice(&input[..length]);
    let parts =
        [(0..1024, 0x2222_2222), (1024..2048, 0xdddd_dddd), (2048..3072, 0xeeee_eeee), (4096..4608, 0x3333_3333)];
    for (range, signature) in parts {
        sign(&mut records[range], signature);
    }
    disk
}

fuzz_target!(|input: &[u8]| {
    let found: Vec<Container> =
        [input.to_vec(), imsm(input), ddf(input)].iter().filter_map(|disk| read(disk)).collect();
    let disks: Vec<&Container> = found.iter().collect();
    for volume in container::volumes(&disks) {
        assert!(!volume.slots.is_empty());
        assert!(!volume.level.has_chunks() || volume.refusal.is_some() || volume.chunk_bytes > 0);
    }
});
