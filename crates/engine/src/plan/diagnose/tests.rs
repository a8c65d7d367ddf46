//! Tests the verdicts against a search over every explanation, with independent arithmetic.

use super::*;
use parity::Kernel;
use proptest::prelude::*;

/// GF(2^8) product by definition: the oracle shares no code with `parity`.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

/// What is known of a block apart from its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Absent,
    Unreadable,
    Unverified,
    Verified,
    Mismatched,
}

impl Kind {
    fn of(self, block: &[u8]) -> BlockEvidence<'_> {
        match self {
            Self::Absent => BlockEvidence::Absent,
            Self::Unreadable => BlockEvidence::Unreadable,
            Self::Unverified => BlockEvidence::Unverified(block),
            Self::Verified => BlockEvidence::Verified(block),
            Self::Mismatched => BlockEvidence::Mismatched(Some(block)),
        }
    }
}

/// A row as it was read.
#[derive(Debug, Clone)]
struct Case {
    exponents: Vec<u8>,
    /// Data, P, Q.
    blocks: Vec<Vec<u8>>,
    kinds: Vec<Kind>,
}

impl Case {
    fn row(&self) -> StripeRow<'_> {
        let evidence = self.kinds.iter().zip(&self.blocks).map(|(kind, block)| kind.of(block)).collect();
        StripeRow { exponents: self.exponents.iter().copied().collect(), evidence }
    }

    fn parities(&self) -> usize {
        self.blocks.len() - self.exponents.len()
    }

    fn having(&self, kinds: &[Kind]) -> Vec<usize> {
        (0..self.kinds.len()).filter(|index| kinds.contains(&self.kinds[*index])).collect()
    }

    /// Coefficients of a block in the equations.
    fn column(&self, index: usize) -> Vec<u8> {
        let data = self.exponents.len();
        let power = |exponent: u8| (0..exponent).fold(1, |product, _| multiply(product, 2));
        let column = match index.checked_sub(data) {
            None => vec![1, power(self.exponents[index])],
            Some(0) => vec![1, 0],
            Some(_) => vec![0, 1],
        };
        column[..self.parities()].to_vec()
    }

    /// The sums of the equations in byte `at`, without the blocks `free`.
    fn sums(&self, at: usize, free: &[usize]) -> Vec<u8> {
        let mut sums = vec![0; self.parities()];
        for index in (0..self.blocks.len()).filter(|index| !free.contains(index)) {
            for (sum, coefficient) in sums.iter_mut().zip(self.column(index)) {
                *sum ^= multiply(coefficient, self.blocks[index][at]);
            }
        }
        sums
    }

    /// Whether other contents of the blocks `free` could make the row obey its equations.
    fn is_possible_with(&self, free: &[usize]) -> bool {
        (0..self.blocks[0].len()).all(|at| {
            let sums = self.sums(at, free);
            match free {
                _ if free.len() >= self.parities() => true, // as many columns as equations can produce any sums
                [] => sums.iter().all(|sum| *sum == 0),
                [one] => (0..=255).any(|value| {
                    self.column(*one).iter().zip(&sums).all(|(coefficient, sum)| multiply(*coefficient, value) == *sum)
                }),
                _ => unreachable!("there are as many equations as free blocks"),
            }
        })
    }

    /// Whether exchanging two blocks would make a row with two remaining equations obey them.
    fn is_exchange(&self) -> bool {
        let relied_on = self.having(&[Kind::Unverified, Kind::Verified]);
        relied_on.len() == self.blocks.len()
            && self.parities() == 2
            && relied_on.iter().any(|&one| {
                relied_on.iter().filter(|other| self.blocks[**other] != self.blocks[one]).any(|&other| {
                    let mut exchanged = self.clone();
                    exchanged.blocks.swap(one, other);
                    exchanged.is_possible_with(&[])
                })
            })
    }

    /// The rule by definition: the only explanation with the fewest wrong blocks.
    fn judged(&self) -> Option<Vec<usize>> {
        let out = self.having(&[Kind::Absent, Kind::Unreadable, Kind::Mismatched]);
        let unverified = self.having(&[Kind::Unverified]);
        let known_bad = self.having(&[Kind::Unreadable, Kind::Mismatched]);
        let mut sizes: Vec<Vec<Vec<usize>>> =
            vec![vec![Vec::new()], unverified.iter().map(|index| vec![*index]).collect()];
        // Verified blocks are where they belong. If they determine all others, nothing was exchanged.
        let is_determined = out.len() + unverified.len() <= self.parities();
        if is_determined {
            sizes.push(vec![unverified]);
        }
        for explanations in sizes {
            let with = |more: &Vec<usize>| [&out[..], more].concat();
            let possible: Vec<_> = explanations.into_iter().filter(|more| self.is_possible_with(&with(more))).collect();
            match &possible[..] {
                [] => {}
                [only] if only.len() == 1 && !is_determined && self.is_exchange() => return None,
                [only] => {
                    let mut wrong = [&known_bad[..], only].concat();
                    wrong.sort_unstable();
                    return Some(wrong);
                }
                _ => return None,
            }
        }
        None
    }
}

/// A row that obeys its equations, with some blocks changed afterwards.
fn cases() -> impl Strategy<Value = Case> {
    let shape = (1..5_usize, 1..3_usize, 1..3_usize);
    shape.prop_flat_map(|(data, parities, bytes)| {
        let slots = data + parities;
        let block = || prop::collection::vec(any::<u8>(), bytes);
        let kind = prop_oneof![
            1 => Just(Kind::Absent),
            1 => Just(Kind::Unreadable),
            8 => Just(Kind::Unverified),
            6 => Just(Kind::Verified),
            1 => Just(Kind::Mismatched),
        ];
        (
            prop::sample::subsequence((0..9_u8).collect::<Vec<_>>(), data),
            prop::collection::vec(block(), data),
            prop::collection::vec(kind, slots),
            prop::collection::vec((0..slots, block()), 0..3),
            any::<bool>(),
        )
            .prop_map(move |(exponents, mut blocks, kinds, changes, all_unverified)| {
                blocks.resize(slots, vec![0; bytes]);
                let kinds = if all_unverified { vec![Kind::Unverified; slots] } else { kinds };
                let mut case = Case { exponents, blocks, kinds };
                for at in 0..bytes {
                    let sums = case.sums(at, &[]);
                    for (parity, sum) in sums.into_iter().enumerate() {
                        case.blocks[data + parity][at] ^= sum;
                    }
                }
                for (index, change) in changes {
                    case.blocks[index].iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
                }
                case
            })
    })
}

#[test]
fn verified_blocks_decide_where_an_exchange_would_explain_the_row_as_well() {
    let blocks = [0, 222, 222, 248].map(|byte| vec![byte]).to_vec();
    let kinds = vec![Kind::Unverified, Kind::Verified, Kind::Verified, Kind::Unverified];
    let case = Case { exponents: vec![4, 6], blocks, kinds };
    assert!(case.is_exchange(), "the two data blocks exchanged obey the equations");
    let verdict = case.row().judge(Kernel::best());
    let Verdict::Wrong { blocks, by: Evidence::Checksum } = verdict else { panic!("{verdict:?}") };
    assert_eq!(blocks.to_vec(), [3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_stripe_s_verdict_is_the_only_smallest_explanation(case in cases()) {
        let kernel = Kernel::best();
        let verdict = case.row().judge(kernel);
        let out = case.having(&[Kind::Absent, Kind::Unreadable, Kind::Mismatched]);
        let known_bad = case.having(&[Kind::Unreadable, Kind::Mismatched]);
        if out.len() > case.parities() {
            match verdict {
                Verdict::Sound => prop_assert!(known_bad.is_empty()),
                Verdict::Lost { blocks } => prop_assert_eq!(blocks.to_vec(), known_bad),
                other => prop_assert!(false, "{:?}", other),
            }
            return Ok(());
        }
        match (verdict, case.judged()) {
            (Verdict::Sound, Some(wrong)) => prop_assert!(wrong.is_empty()),
            (Verdict::Wrong { blocks, .. }, Some(wrong)) => {
                prop_assert_eq!(blocks.to_vec(), wrong.clone());
                // The solved contents make the row obey its equations.
                let mut repaired = case.clone();
                for &index in &blocks {
                    let solved = case.row().solved(kernel, index, &blocks);
                    repaired.blocks[index] = solved.expect("as few are wrong as can be solved");
                }
                let absent = case.having(&[Kind::Absent]);
                prop_assert!(repaired.is_possible_with(&absent));
            }
            (Verdict::Undecidable, None) => {}
            (verdict, expected) => prop_assert!(false, "{:?}, expected {:?}", verdict, expected),
        }
    }

    #[test]
    fn copies_are_judged_by_verified_copies_or_by_majority(
        contents in prop::collection::vec(0..3_u8, 1..6),
        kinds in prop::collection::vec(0..5_usize, 6),
    ) {
        const KINDS: [Kind; 5] = [Kind::Unverified, Kind::Unverified, Kind::Absent, Kind::Unreadable, Kind::Mismatched];
        let kinds: Vec<Kind> = contents.iter().zip(kinds).map(|(_, kind)| KINDS[kind]).collect();
        let blocks: Vec<[u8; 2]> = contents.iter().map(|byte| [*byte, 7]).collect();
        let evidence: Vec<BlockEvidence<'_>> =
            kinds.iter().zip(&blocks).map(|(kind, block)| kind.of(block)).collect();
        let unverified: Vec<u8> =
            contents.iter().zip(&kinds).filter(|(_, kind)| **kind == Kind::Unverified).map(|(byte, _)| *byte).collect();
        let votes = |byte: &u8| unverified.iter().filter(|other| *other == byte).count();
        let winner = (0..3).find(|byte| votes(byte) * 2 > unverified.len());
        let is_known_bad = |kind: Kind| matches!(kind, Kind::Unreadable | Kind::Mismatched);
        let is_outvoted = |index: usize| kinds[index] == Kind::Unverified && Some(contents[index]) != winner;
        let wrong: Vec<usize> =
            (0..kinds.len()).filter(|index| is_known_bad(kinds[*index]) || is_outvoted(*index)).collect();
        match judge_copies(&evidence) {
            Verdict::Sound => prop_assert!(wrong.is_empty()),
            Verdict::Wrong { blocks, .. } => {
                prop_assert!(winner.is_some());
                prop_assert_eq!(blocks.to_vec(), wrong);
            }
            Verdict::Undecidable => prop_assert!(winner.is_none() && !unverified.is_empty()),
            Verdict::Lost { .. } => prop_assert!(unverified.is_empty() && kinds.iter().any(|kind| is_known_bad(*kind))),
        }
    }
}

#[test]
fn one_verified_copy_outweighs_all_others() {
    let (right, wrong) = ([1; 8], [2; 8]);
    let evidence =
        [BlockEvidence::Unverified(&wrong), BlockEvidence::Verified(&right), BlockEvidence::Unverified(&wrong)];
    let blocks = Indices::from_iter([0, 2]);
    assert_eq!(judge_copies(&evidence), Verdict::Wrong { blocks, by: Evidence::Checksum });
    let evidence =
        [BlockEvidence::Verified(&wrong), BlockEvidence::Verified(&right), BlockEvidence::Unverified(&right)];
    assert_eq!(judge_copies(&evidence), Verdict::Undecidable);
}

#[test]
fn two_exchanged_blocks_are_undecidable() {
    let kernel = Kernel::best();
    let data: Vec<Vec<u8>> =
        (0..4_u32).map(|index| (0..64).map(|at| (at * at * 7 + index * 31) as u8).collect()).collect();
    let (mut p, mut q) = (vec![0; 64], vec![0; 64]);
    kernel.pq(&mut p, &mut q, &data.iter().map(|block| &block[..]).collect::<Vec<_>>());
    let blocks: Vec<Vec<u8>> = data.into_iter().chain([p, q]).collect();
    for one in 0..6 {
        for other in 0..one {
            let mut case =
                Case { exponents: (0..4).collect(), blocks: blocks.clone(), kinds: vec![Kind::Unverified; 6] };
            case.blocks.swap(one, other);
            assert_eq!(case.row().judge(kernel), Verdict::Undecidable, "{one} and {other}");
        }
    }
}

/// What the head of `diagnose` states about RAID-6 without checksums.
#[test]
fn p_and_q_blame_any_one_member_of_a_complete_row_and_none_when_one_is_missing() {
    let kernel = Kernel::best();
    let data: Vec<Vec<u8>> = (0..6).map(|index| (0..4096).map(|at| (at * 7 + index * 31) as u8).collect()).collect();
    let (mut p, mut q) = (vec![0; 4096], vec![0; 4096]);
    kernel.pq(&mut p, &mut q, &data.iter().map(|block| &block[..]).collect::<Vec<_>>());
    let whole = Case {
        exponents: (0..6).collect(),
        blocks: data.into_iter().chain([p, q]).collect(),
        kinds: vec![Kind::Unverified; 8],
    };
    for wrong in 0..8 {
        let mut case = whole.clone();
        case.blocks[wrong][1234] ^= 0x10;
        let blocks = Indices::from_iter([wrong]);
        assert_eq!(case.row().judge(kernel), Verdict::Wrong { blocks, by: Evidence::Parity });
        assert_eq!(case.row().solved(kernel, wrong, &[]).as_ref(), Some(&whole.blocks[wrong]));
        for missing in (0..8).filter(|missing| *missing != wrong) {
            case.kinds = vec![Kind::Unverified; 8];
            case.kinds[missing] = Kind::Absent;
            assert_eq!(case.row().judge(kernel), Verdict::Undecidable);
            assert!(!case.row().agrees(kernel));
            case.kinds[missing] = Kind::Unreadable;
            assert_eq!(
                case.row().judge(kernel),
                Verdict::Undecidable,
                "its contents cannot be computed from the others"
            );
        }
    }
}
