//! Any bytes as the metadata of images of LVM's RAID: never a panic, and a slot for each image.
#![no_main]

use disk::lvm::raid::{read, together};
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut states = Vec::new();
    for part in input.chunks(128).take(8) {
        let mut metadata = vec![0; 8192];
        metadata[..part.len()].copy_from_slice(part);
        metadata[..4].copy_from_slice(b"DmRd");
        metadata[4096..4100].copy_from_slice(b"bitm");
        let tail = &part[part.len().min(64)..];
        metadata[4100..4100 + tail.len()].copy_from_slice(tail);
        states.push(read(&metadata[..]).now_or_never().expect("memory answers at once").expect("memory is readable"));
    }
    if let Ok(state) = together(&states) {
        assert_eq!(state.current.len(), states.len());
    }
});
