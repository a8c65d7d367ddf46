//! The rules for copies: a verified copy decides, otherwise the majority.
//!
//! Pure.

use crate::plan::diagnose::evidence::{BlockEvidence, Evidence, Indices, Verdict, indices, known_bad_by};

/// Judges the copies of one block.
pub fn judge_copies(evidence: &[BlockEvidence<'_>]) -> Verdict {
    let known_bad = indices(evidence, BlockEvidence::is_known_bad);
    let Some((truth, by)) = truth(evidence) else {
        return match (evidence.iter().any(|block| block.usable().is_some()), known_bad.is_empty()) {
            (true, _) => Verdict::Undecidable,
            (false, true) => Verdict::Sound, // all copies are absent
            (false, false) => Verdict::Lost { blocks: known_bad },
        };
    };
    let is_wrong =
        |block: BlockEvidence<'_>| block.is_known_bad() || block.usable().is_some_and(|bytes| !is_same(bytes, truth));
    let blocks: Indices = indices(evidence, is_wrong);
    match blocks.len() {
        0 => Verdict::Sound,
        count if count == known_bad.len() => Verdict::Wrong { blocks, by: known_bad_by(evidence) },
        _ => Verdict::Wrong { blocks, by },
    }
}

/// The right contents of the block and the evidence for them, if the copies determine them.
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
    let unverified = || evidence.iter().filter_map(|block| block.usable());
    let (votes, best) = unverified()
        .map(|bytes| (unverified().filter(|other| is_same(other, bytes)).count(), bytes))
        .max_by_key(|(votes, _)| *votes)?;
    (votes * 2 > unverified().count()).then_some((best, Evidence::Majority))
}

/// Whether two blocks are equal; the same memory is not compared with itself.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    std::ptr::eq(a, b) || a == b
}
