//! Members of an array with any bytes on them: the search ends, reads within them, and never panics.
#![no_main]

use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

/// The bytes of a block, in which the search counts.
const BLOCK: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    // The input in pieces of 16 bytes with a place each, as blocks of zeros are the rule and a member has many.
    let mut members = vec![vec![0; 24 * BLOCK]; 3];
    for piece in bytes.chunks_exact(19) {
        let member = &mut members[usize::from(piece[0]) % 3];
        let at = (usize::from(piece[1]) << 8 | usize::from(piece[2])) % (member.len() - 16);
        member[at..at + 16].copy_from_slice(&piece[3..]);
    }
    let disks: Vec<Memory> = members.into_iter().map(Memory).collect();
    search::search(&disks, 1 << 30, &|_, _| {}).now_or_never().expect("memory answers at once");
});

struct Memory(Vec<u8>);

impl disk::Source for Memory {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, at: u64, length: usize) -> impl Future<Output = Result<Vec<u8>, String>> {
        disk::Source::read(&self.0[..], at, length)
    }
}
