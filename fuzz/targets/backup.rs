//! Any bytes as the header of mdadm's backup of a reshape: never a panic, and what it gives of the array follows the
//! position without a gap and lies within what the header names.
//!
//! The input is the header, behind a byte that says whether its magic and its checksums are as they should be, and the
//! reshape's position.
#![no_main]

use format::backup::{Backup, HEADER_BYTES, Saved};
use format::superblock::{Superblock, Version, decode};
use format::units::{MemberByte, Sectors};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static RESHAPING: LazyLock<Superblock> = LazyLock::new(|| {
    let bytes = include_bytes!("../../crates/format/tests/fixtures/raid5-reshaping/3.superblock");
    decode(Version::V1_2, MemberByte(4096), bytes, 1 << 40).expect("right").expect("there")
});

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, ref position @ ..], header)) = input.split_first_chunk::<9>() else { return };
    let mut header = header.to_vec();
    header.resize(HEADER_BYTES, 0);
    if kind & 1 == 0 {
        header[..16].copy_from_slice(if kind & 2 == 0 { b"md_backup_data-1" } else { b"md_backup_data-2" });
        header[16..32].copy_from_slice(&RESHAPING.set_uuid);
        // mdadm's checksum depends on the first byte alone.
        let sum = (0..64).fold(0_u32, |sum, _| (sum << 3).wrapping_add(b'm'.into())).to_le_bytes();
        header[64..68].copy_from_slice(&sum);
        header[96..100].copy_from_slice(&sum);
    }
    let Ok(Some(backup)) = Backup::decode(&header) else { return };
    assert!(backup.is_header(&header));
    let Some(mut reshape) = RESHAPING.reshape else { return };
    reshape.position = Sectors(u64::from_le_bytes(*position) >> 10);
    reshape.backwards = kind & 4 != 0;
    let Ok(parts) = backup.unmoved(&RESHAPING, &reshape, true) else { return };
    let mut at = reshape.position.bytes();
    for Saved { range, at: place } in &parts {
        assert!(range.start < range.end);
        assert_eq!(at, if reshape.backwards { range.end } else { range.start }, "no gap");
        at = if reshape.backwards { range.start } else { range.end };
        let is_in = |one: &Saved| {
            let skip = range.start.checked_sub(one.range.start);
            range.end <= one.range.end && skip.is_some() && place.0.checked_sub(one.at.0) == skip
        };
        assert!(backup.saved.iter().any(is_in), "as the header says");
    }
});
