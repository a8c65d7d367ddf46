//! Cuts long transfers into pieces: several are under way at a time, and a long write needs no reads.

use std::ops::Range;

/// Approximate length of a piece.
const PIECE_BYTES: u64 = 2 << 20;

/// Pieces in flight.
pub(crate) const DEPTH: usize = 4;

/// The length of a piece.
pub(crate) fn piece_bytes(stripe_bytes: u64) -> u64 {
    stripe_bytes.max(1) * (PIECE_BYTES / stripe_bytes.max(1)).max(1)
}

/// Cuts `range` at ends of stripes, into pieces of about [`PIECE_BYTES`].
pub(crate) fn pieces(range: Range<u64>, stripe_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let unit = piece_bytes(stripe_bytes);
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = (start / unit + 1).saturating_mul(unit).min(range.end);
        let piece = start..end;
        start = end;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_and_end_where_stripes_end() {
        for (range, stripe) in [
            (0..10 << 20, 192 << 10),
            (12345..(7 << 20) + 1, 192 << 10),
            (5..6, 64 << 10),
            (0..100 << 20, 31 << 20),
            (7..7, 4096),
        ] {
            let cut: Vec<_> = pieces(range.clone(), stripe).collect();
            let covered: u64 = cut.iter().map(|piece| piece.end - piece.start).sum();
            assert_eq!(covered, range.end - range.start);
            assert!(cut.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].end.is_multiple_of(stripe)));
            assert!(cut.iter().all(|piece| piece.end - piece.start <= PIECE_BYTES.max(stripe)));
            assert!(cut.first().is_none_or(|piece| piece.start == range.start));
        }
    }
}
