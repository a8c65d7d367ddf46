//! Any bytes as the metadata of ext, XFS or Btrfs: saying what has which bytes never panics and always ends, and places
//! lie in what was asked for.
#![no_main]

use disk::content::Kind;
use disk::owners::find;
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

const BYTES: usize = 256 << 10;

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    // The superblock's place, and its magic number with the place of that.
    let (kind, at, magic, magic_at): (_, usize, &[u8], usize) = match first % 3 {
        0 => (Kind::Ext, 1024, b"\x53\xef", 0x38),
        1 => (Kind::Xfs, 0, b"XFSB", 0),
        _ => (Kind::Btrfs, 64 << 10, b"_BHRfS_M", 64),
    };
    let mut image = vec![0; BYTES];
    // Input that is longer than a superblock is repeated behind it, so that pointers lead to something.
    for place in (0..BYTES).step_by(4096).filter(|_| rest.len() > 1024) {
        let length = (rest.len() - 1024).min(4096);
        image[place..place + length].copy_from_slice(&rest[1024..1024 + length]);
    }
    let length = rest.len().min(1024);
    image[at..at + length].copy_from_slice(&rest[..length]);
    image[at + magic_at..at + magic_at + magic.len()].copy_from_slice(magic);
    let wanted = 3000..BYTES as u64 - 500;
    let found = find(&image[..], kind, &[wanted.clone()]).now_or_never().expect("memory answers at once");
    let Some(Ok(owners)) = found else { return };
    for place in owners.places {
        assert!(place.range.start >= wanted.start && place.range.end <= wanted.end && !place.range.is_empty());
    }
});
