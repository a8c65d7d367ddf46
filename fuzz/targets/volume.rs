//! Any bytes as the content of a partition or array, with each superblock's signature at its place: never a panic.
#![no_main]

use disk::content::look;
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

/// Places and bytes of signatures whose superblocks are decoded.
const SIGNATURES: [(usize, &[u8]); 6] = [
    (0, b"XFSB"),
    (0, b"LUKS\xba\xbe"),
    (0x438, b"\x53\xef"),
    (4086, b"SWAPSPACE2"),
    (0x1_0040, b"_BHRfS_M"),
    (4096, b"\xfc\x4e\x2b\xa9"),
];

fuzz_target!(|input: &[u8]| {
    let look = |disk: &[u8]| look(disk).now_or_never().expect("memory answers at once").expect("it is readable");
    drop(look(input));
    for (at, magic) in SIGNATURES {
        let mut disk = vec![0; 0x1_2000];
        let start = at / 1024 * 1024;
        let length = input.len().min(disk.len() - start);
        disk[start..start + length].copy_from_slice(&input[..length]);
        disk[at..at + magic.len()].copy_from_slice(magic);
        drop(look(&disk));
    }
});
