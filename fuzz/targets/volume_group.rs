//! Any bytes as LVM's metadata, as text and as a physical volume: never a panic, and a byte of a logical volume is in
//! one of the group's physical volumes.
#![no_main]

use disk::lvm::{self, Group};
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

fn check(group: &Group) {
    for volume in &group.logical {
        for at in [0, 1, volume.bytes / 2, volume.bytes.saturating_sub(1), volume.bytes, u64::MAX] {
            if let Some((physical, _, bytes)) = volume.locate(at) {
                assert!(physical < group.physical.len() && bytes > 0);
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    if let Ok(group) = Group::decode(&String::from_utf8_lossy(input)) {
        check(&group);
    }
    let mut volume = input.to_vec();
    volume.resize(volume.len().max(4096), 0);
    volume[512..520].copy_from_slice(b"LABELONE");
    let found = lvm::read(&volume[..]).now_or_never().expect("memory answers at once");
    if let Some(Ok(group)) = found.map(|volume| volume.group) {
        check(&group);
    }
});
