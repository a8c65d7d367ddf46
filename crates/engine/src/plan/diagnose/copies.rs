//! Copies: the one that is vouched for counts, otherwise the majority.

use crate::plan::diagnose::{BlockEvidence, Evidence, Indices, Verdict, indices, known_bad_by};

/// Judges the copies of one block.
pub fn judge_copies(evidence: &[BlockEvidence<'_>]) -> Verdict {
    let known_bad = indices(evidence, BlockEvidence::is_known_bad);
    let Some((truth, by)) = truth(evidence) else {
        return match (evidence.iter().any(|block| block.claim().is_some()), known_bad.is_empty()) {
            (true, _) => Verdict::Undecidable,
            (false, true) => Verdict::Sound, // nobody is there
            (false, false) => Verdict::Lost { blocks: known_bad },
        };
    };
    let is_wrong =
        |block: BlockEvidence<'_>| block.is_known_bad() || block.claim().is_some_and(|bytes| !is_same(bytes, truth));
    let blocks: Indices = indices(evidence, is_wrong);
    match blocks.len() {
        0 => Verdict::Sound,
        count if count == known_bad.len() => Verdict::Wrong { blocks, by: known_bad_by(evidence) },
        _ => Verdict::Wrong { blocks, by },
    }
}

/// What the block should be, when that can be said, and by what.
pub fn truth<'a>(evidence: &[BlockEvidence<'a>]) -> Option<(&'a [u8], Evidence)> {
    let vouched = || {
        evidence.iter().filter_map(|block| match *block {
            BlockEvidence::Verified(bytes) => Some(bytes),
            _ => None,
        })
    };
    if let Some(first) = vouched().next() {
        return vouched().all(|other| is_same(other, first)).then_some((first, Evidence::Checksum));
    }
    let heard = || evidence.iter().filter_map(|block| block.claim());
    let (votes, best) = heard()
        .map(|bytes| (heard().filter(|other| is_same(other, bytes)).count(), bytes))
        .max_by_key(|(votes, _)| *votes)?;
    (votes * 2 > heard().count()).then_some((best, Evidence::Majority))
}

/// Equal; of blocks that are one in memory without a look at them.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    std::ptr::eq(a, b) || a == b
}
