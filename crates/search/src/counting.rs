//! Which candidates count, and in which order: rules over what is known of each, without a look at the members.

use crate::decide::MARGIN;
use crate::judge::Candidate;
use format::geometry::Level;

/// If this many known blocks fit a candidate, one that fits fewer than this part of them does not count.
const MANY_FIT: u64 = 64;
const FEW_FIT: u64 = 4;
/// Blocks at which Q of RAID-6 has to agree to prove that no member is stale.
const Q_PROVES: u64 = 16;

/// Ends of files that a fault of the medium may have changed, where all else is in its place.
const FAULTY_ENDS: u64 = 1;

/// Of the known blocks `against` a candidate, `ends` of which are ends of files, those that no fault of the medium excuses.
pub(crate) fn faults(against: u64, ends: u64) -> u64 {
    against.saturating_sub(ends.min(FAULTY_ENDS))
}

/// Keeps those that fit many of the known blocks that another fits, against which nearly nothing speaks. A shape that has
/// unreadable blocks where others are known fits few, and nothing speaks against it.
pub(crate) fn retain_known(candidates: &mut Vec<Candidate>) {
    let most = candidates.iter().filter(|own| own.has_nearly_all()).map(|own| own.fits).max().unwrap_or(0);
    if most >= MANY_FIT {
        candidates.retain(|candidate| candidate.fits >= most / FEW_FIT);
    }
}

/// Whether a member may be stale: what was compared disagrees, or nothing fits well. `has_copies` is whether a shape
/// with copies came near: with a stale member it looks like stripes without copies, of which nothing can disagree.
pub(crate) fn is_doubtful(candidates: &[Candidate], has_copies: bool) -> bool {
    // Q depends on each member and its slot. If it agrees everywhere with all of them, none is stale.
    let is_proved_by_q = |candidate: &Candidate| !candidate.disagrees && candidate.q_agreements >= Q_PROVES;
    if candidates.iter().any(is_proved_by_q) {
        return false;
    }
    let best = |disagrees: bool| {
        let alike = candidates.iter().filter(|candidate| candidate.disagrees == disagrees);
        alike.min_by_key(|candidate| candidate.against)
    };
    let Some(agreeing) = best(false) else { return true };
    let least = agreeing.against;
    let comes_near = |disagreeing: &Candidate| disagreeing.against <= least.saturating_add(MARGIN);
    let is_striped = agreeing.shape.level == Level::Raid0;
    least > MARGIN || best(true).is_some_and(comes_near) || has_copies && is_striped
}

/// The values of [`sameness`], the greatest first.
pub(crate) const SAMENESS_RANKS: [u8; 3] = [2, 1, 0];

/// How much of the members' contents a level explains by being the same.
pub(crate) fn sameness(level: Level) -> u8 {
    match level {
        Level::Raid1 => 2,
        Level::Raid10 => 1,
        Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => 0,
    }
}

/// The order among candidates that count: fewer missing members, redundancy that agrees, the usual level and layout,
/// fewer clues against, the usual chunk.
pub(crate) fn preference(candidate: &Candidate) -> (usize, bool, usize, u32, u64, u64) {
    let missing = candidate.order.iter().filter(|member| member.is_none()).count();
    let level = [Level::Raid5, Level::Raid6, Level::Raid1, Level::Raid10, Level::Raid4, Level::Raid0];
    let level = level.iter().position(|level| *level == candidate.shape.level).unwrap_or(level.len());
    let usual = u32::from(!matches!(candidate.shape.layout, 2 | 0x102 | 0));
    let chunk = candidate.chunk.abs_diff(128); // mdadm's default
    (missing, candidate.agreements == 0, level, usual, candidate.against, chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    /// A candidate of three or four members with chunks of 64 KiB, of which 100 known blocks fit.
    fn candidate(level: Level) -> Candidate {
        let slots = 3 + u16::from(level == Level::Raid6);
        let layout = match level {
            Level::Raid10 => 0x102,
            Level::Raid5 | Level::Raid6 => 2,
            Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 => 0,
        };
        let shape = Shape { level, layout, slots, stride: 0 };
        Candidate {
            shape,
            geometry: shape.geometry(16, 1600).expect("an ordinary shape"),
            chunk: 16,
            offset: 256,
            order: (0..usize::from(slots)).map(Some).collect(),
            fits: 100,
            against: 0,
            faults: 0,
            unusual: 0,
            is_checked: true,
            agreements: 0,
            disagrees: false,
            q_agreements: 0,
        }
    }

    #[test]
    fn a_shape_that_fits_few_of_many_known_blocks_does_not_count() {
        // What the best one fits, how many are against it, what the other one fits, and whether that one counts.
        for (most, against, fits, counts) in [
            (400, 0, 100, true),
            (400, 0, 99, false),
            (400, 6, 99, false),
            (400, 7, 99, true), // too many for a best one
            (MANY_FIT, 0, MANY_FIT / FEW_FIT, true),
            (MANY_FIT, 0, MANY_FIT / FEW_FIT - 1, false),
            (MANY_FIT - 1, 0, 1, true), // too few to tell
        ] {
            let best = Candidate { fits: most, against, ..candidate(Level::Raid5) };
            let mut candidates = vec![best, Candidate { fits, ..candidate(Level::Raid6) }];
            retain_known(&mut candidates);
            assert_eq!(candidates.len() == 2, counts, "{most} {against} {fits}");
        }
        retain_known(&mut Vec::new());
    }

    #[test]
    fn one_end_of_a_file_may_be_a_fault_of_the_medium_and_nothing_else() {
        for (against, ends, expected) in [(0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 1, 1), (2, 2, 1), (3, 3, 2)] {
            assert_eq!(faults(against, ends), expected, "{against} {ends}");
        }
    }

    #[test]
    fn a_member_may_be_stale_if_what_is_compared_disagrees_or_nothing_fits_well() {
        let own = |level, disagrees, against| Candidate { disagrees, against, ..candidate(level) };
        let by_q = |disagrees| Candidate { q_agreements: Q_PROVES, ..own(Level::Raid6, disagrees, 9) };
        for (candidates, has_copies, expected) in [
            (vec![], false, true),
            (vec![own(Level::Raid5, true, 0)], false, true),
            (vec![own(Level::Raid5, false, 0)], false, false),
            (vec![own(Level::Raid5, false, MARGIN)], false, false),
            (vec![own(Level::Raid5, false, MARGIN + 1)], false, true),
            (vec![own(Level::Raid5, false, 0), own(Level::Raid5, true, MARGIN)], false, true),
            (vec![own(Level::Raid5, false, 0), own(Level::Raid5, true, MARGIN + 1)], false, false),
            (vec![own(Level::Raid0, false, 0)], false, false),
            (vec![own(Level::Raid0, false, 0)], true, true),
            (vec![own(Level::Raid5, true, 0), by_q(false)], false, false),
            (vec![own(Level::Raid5, true, 0), by_q(true)], false, true),
        ] {
            assert_eq!(is_doubtful(&candidates, has_copies), expected, "{candidates:?} {has_copies}");
        }
    }

    #[test]
    fn the_shape_that_is_printed_first_needs_no_missing_member_and_agrees_and_is_usual() {
        let whole = candidate(Level::Raid5);
        let agreeing = Candidate { agreements: 1, ..candidate(Level::Raid4) };
        let lacking = Candidate { order: vec![Some(0), None, Some(1)], agreements: 9, ..candidate(Level::Raid5) };
        let unusual = Candidate { shape: Shape { layout: 1, ..whole.shape }, ..whole.clone() };
        let smaller = Candidate { chunk: 16, against: 1, ..whole.clone() };
        let mirror = Candidate { agreements: 1, ..candidate(Level::Raid1) };
        let expected = [&mirror, &agreeing, &whole, &smaller, &unusual, &lacking];
        for (index, first) in expected.iter().enumerate() {
            for second in &expected[index + 1..] {
                assert!(preference(first) < preference(second), "{first:?} {second:?}");
            }
        }
        for pair in SAMENESS_RANKS.windows(2) {
            assert!(pair[0] > pair[1], "the greatest first");
        }
        assert!([Level::Raid1, Level::Raid10, Level::Raid5].map(sameness) == SAMENESS_RANKS);
    }
}
