//! Copies: the one that is vouched for counts, otherwise the majority.

use crate::plan::diagnose::{Evidence, Indices, Verdict, Witness, confession, indices};

/// Judges the copies of one block.
pub fn judge_copies(witnesses: &[Witness<'_>]) -> Verdict {
    let confessed = indices(witnesses, Witness::confesses);
    let Some((truth, by)) = truth(witnesses) else {
        return match (witnesses.iter().any(|witness| witness.testimony().is_some()), confessed.is_empty()) {
            (true, _) => Verdict::Undecidable,
            (false, true) => Verdict::Sound, // nobody is there
            (false, false) => Verdict::Lost { who: confessed },
        };
    };
    let is_wrong =
        |witness: Witness<'_>| witness.confesses() || witness.testimony().is_some_and(|bytes| !is_same(bytes, truth));
    let who: Indices = indices(witnesses, is_wrong);
    match who.len() {
        0 => Verdict::Sound,
        count if count == confessed.len() => Verdict::Wrong { who, by: confession(witnesses) },
        _ => Verdict::Wrong { who, by },
    }
}

/// What the block should be, when that can be said, and by what.
pub fn truth<'a>(witnesses: &[Witness<'a>]) -> Option<(&'a [u8], Evidence)> {
    let vouched = || {
        witnesses.iter().filter_map(|witness| match *witness {
            Witness::Vouched(bytes) => Some(bytes),
            _ => None,
        })
    };
    if let Some(first) = vouched().next() {
        return vouched().all(|other| is_same(other, first)).then_some((first, Evidence::Checksum));
    }
    let heard = || witnesses.iter().filter_map(|witness| witness.testimony());
    let (votes, best) = heard()
        .map(|bytes| (heard().filter(|other| is_same(other, bytes)).count(), bytes))
        .max_by_key(|(votes, _)| *votes)?;
    (votes * 2 > heard().count()).then_some((best, Evidence::Majority))
}

/// Equal; of blocks that are one in memory without a look at them.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    std::ptr::eq(a, b) || a == b
}
