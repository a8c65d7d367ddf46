//! Any bytes as the footer of a VHD image, as they are and with the fields of a footer of this length: never a panic, and
//! a disk is the file without its footer.
#![no_main]

use disk::vhd::{FOOTER_BYTES, fixed_disk_bytes};
use libfuzzer_sys::fuzz_target;

fn look(footer: &[u8; FOOTER_BYTES as usize], file_bytes: u64) -> bool {
    let disk = fixed_disk_bytes(footer, file_bytes);
    assert!(disk.is_none_or(|bytes| bytes.checked_add(FOOTER_BYTES) == Some(file_bytes)));
    disk.is_some()
}

fuzz_target!(|input: &[u8]| {
    let Some((length, rest)) = input.split_first_chunk() else { return };
    let file_bytes = u64::from_le_bytes(*length);
    let mut footer = [0; FOOTER_BYTES as usize];
    let known = rest.len().min(footer.len());
    footer[..known].copy_from_slice(&rest[..known]);
    look(&footer, file_bytes);
    // The cookie, the length, the type of a disk of fixed size, and the checksum over all of it.
    let Some(disk_bytes) = file_bytes.checked_sub(FOOTER_BYTES) else { return };
    footer[..8].copy_from_slice(b"conectix");
    footer[48..56].copy_from_slice(&disk_bytes.to_be_bytes());
    footer[60..64].copy_from_slice(&2_u32.to_be_bytes());
    footer[64..68].fill(0);
    let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
    footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
    assert!(look(&footer, file_bytes));
    // No other length of a file has this footer.
    assert!(!look(&footer, file_bytes.wrapping_add(512)));
});
