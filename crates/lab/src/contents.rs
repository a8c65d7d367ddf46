//! The contents of a member of any length: a map of the pages that are not all zeros.
//!
//! The contents are exact, whatever is written. The laboratory writes zeros as data, whose parity is zeros too; so of
//! terabytes only the metadata takes memory. A table of checksums of zeros takes little, as its words are all alike.

use std::collections::HashMap;

const PAGE_BYTES: usize = 4096;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// A page is stored in full when more words than this differ from its commonest word.
const OTHERS_MAX: usize = 256;

#[derive(Debug)]
enum Page {
    Whole(Box<[u8; PAGE_BYTES]>),
    /// A page whose words are all `word`, apart from `others`: pairs of a position and a value.
    Even {
        word: u32,
        others: Box<[(u16, u32)]>,
    },
}

impl Page {
    fn of(bytes: &[u8; PAGE_BYTES]) -> Self {
        let words = || bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let word = likely_majority(words());
        let others = (0..).zip(words()).filter(|(_, other)| *other != word);
        match others.clone().nth(OTHERS_MAX) {
            Some(_) => Self::Whole(Box::new(*bytes)),
            None => Self::Even { word, others: others.collect() },
        }
    }

    fn bytes(&self) -> [u8; PAGE_BYTES] {
        let (word, others) = match self {
            Self::Whole(bytes) => return **bytes,
            Self::Even { word, others } => (word, others),
        };
        let mut bytes = ZEROS;
        let words = bytes.as_chunks_mut::<4>().0;
        words.fill(word.to_le_bytes());
        others.iter().for_each(|(place, other)| words[usize::from(*place)] = other.to_le_bytes());
        bytes
    }
}

/// The word that makes up the majority, if there is one (Boyer and Moore's vote).
fn likely_majority(words: impl Iterator<Item = u32>) -> u32 {
    let vote = |(word, votes), next| match votes {
        0 => (next, 1),
        _ if word == next => (word, votes + 1),
        _ => (word, votes - 1),
    };
    words.fold((0, 0), vote).0
}

/// Bytes, initially all zero.
#[derive(Debug, Default)]
pub(crate) struct Contents(HashMap<u64, Page>);

impl Contents {
    /// Reads the bytes from `at` on into `into`.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        for_each_page(at, into.len(), |number, within, part| match self.0.get(&number) {
            Some(page) => into[part.clone()].copy_from_slice(&page.bytes()[within..within + part.len()]),
            None => into[part].fill(0),
        });
    }

    /// Writes `bytes` at `at`.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        for_each_page(at, bytes.len(), |number, within, part| {
            let bytes = &bytes[part];
            let is_zero = *bytes == ZEROS[..bytes.len()];
            if is_zero && (bytes.len() == PAGE_BYTES || !self.0.contains_key(&number)) {
                self.0.remove(&number);
                return;
            }
            let mut whole = self.0.get(&number).map_or(ZEROS, Page::bytes);
            whole[within..within + bytes.len()].copy_from_slice(bytes);
            self.0.insert(number, Page::of(&whole));
        });
    }
}

/// Splits a transfer at page boundaries. Calls `each` with the page's number, the part's offset in the page, and the
/// part's range in the transfer.
fn for_each_page(at: u64, length: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut start = 0;
    while start < length {
        let position = at + start as u64;
        let within = (position % PAGE_BYTES as u64) as usize;
        let end = length.min(start + PAGE_BYTES - within);
        each(position / PAGE_BYTES as u64, within, start..end);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Random;

    #[test]
    fn contents_equal_a_flat_array_and_zeros_take_no_page() {
        let mut random = Random::new(9);
        let (mut contents, mut flat) = (Contents::default(), vec![0_u8; 64 << 10]);
        for round in 0..400 {
            let at = random.within(0..flat.len() as u64) as usize;
            let length = random.within(0..20_000).min((flat.len() - at) as u64) as usize;
            let mut bytes = vec![0; length];
            match round % 4 {
                0 => {}
                1 => bytes.fill(round as u8),
                _ => random.fill(&mut bytes),
            }
            contents.write(at as u64, &bytes);
            flat[at..at + length].copy_from_slice(&bytes);
            let mut found = vec![1; flat.len()];
            contents.read(0, &mut found);
            assert!(found == flat, "round {round}");
        }
        contents.write(0, &vec![0; flat.len()]);
        assert!(contents.0.is_empty());
    }
}
