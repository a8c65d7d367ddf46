//! Any bytes as an EWF image, with the checksums of its sections mended: never a panic or an endless walk, and a chunk
//! has the length that the disk gives it.
#![no_main]

use disk::ewf::{Image, MAGIC};
use disk::{Section, Source};
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

/// Sums up `length` bytes at `at`, and puts the checksum behind them.
fn mend(image: &mut [u8], at: usize, length: usize) {
    if let Some(part) = image.get(at..at + length) {
        let (a, b) = part.iter().fold((1_u32, 0_u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (a + b) % 65521)
        });
        if let Some(sum) = image.get_mut(at + length..at + length + 4) {
            sum.copy_from_slice(&(b << 16 | a).to_le_bytes());
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut image = [&MAGIC[..], &[1, 1, 0, 0, 0], input].concat();
    let mut at = 13;
    for _ in 0..16 {
        let Some(next) = image.get(at + 16..at + 18) else { break };
        let next = usize::from(u16::from_le_bytes([next[0], next[1]]));
        if let Some(high) = image.get_mut(at + 18..at + 24) {
            high.fill(0);
        }
        mend(&mut image, at, 72);
        for length in [20, 516, 1048] {
            mend(&mut image, at + 76, length);
        }
        at = next;
    }
    let segments = [Section::new(&image[..], 0, u64::MAX)];
    let Ok(found) = Image::open(&segments).now_or_never().expect("memory answers at once") else { return };
    for chunk in 0..8 {
        let range = found.range_of(chunk);
        let Ok(entries) = found.entries(&segments, chunk).now_or_never().expect("memory answers at once") else { continue };
        if let Ok(bytes) = found.chunk(&segments, &entries, chunk).now_or_never().expect("memory answers at once") {
            assert_eq!(bytes.len() as u64, range.end - range.start);
        }
    }
    assert!(segments[0].bytes() > 0);
});
