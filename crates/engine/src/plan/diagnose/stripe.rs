//! The rules for stripes: what P and Q tell about a row.
//!
//! Pure. A row obeys the equations of [`parity::recovery()`]; each block that cannot
//! be used costs one of them. The remaining equations decide:
//!
//! * Two: let `p` and `q` be their sums, which should be zero. A single wrong block
//!   of column (a, b) with the error e has `p = a * e` and `q = b * e`. At most one
//!   column meets that in all bytes.
//! * One: every remaining block is part of it, so it blames none of them.
//! * None: there is nothing to compare.

use crate::plan::diagnose::evidence::{BlockEvidence, Evidence, Indices, Verdict, indices, known_bad_by};
use crate::plan::equations::parity_symbol;
use format::geometry::Role;
use parity::{Kernel, Symbol, gf};
use smallvec::SmallVec;

const _: () = assert!(Role::PARITIES.len() == 2, "this file knows the equations of P and Q alone");

/// One row of a stripe.
#[derive(Debug, Clone)]
pub struct StripeRow<'a> {
    /// For each data chunk the exponent of 2 in Q; without Q, any distinct numbers.
    pub exponents: SmallVec<[u8; 32]>,
    /// Data in order, then P, then Q if the level has it.
    pub evidence: SmallVec<[BlockEvidence<'a>; 32]>,
}

/// A factor for each block of a row.
type Weights = SmallVec<[u8; 32]>;

/// Blocks, each with its factor.
type Terms<'a> = SmallVec<[(u8, &'a [u8]); 32]>;

impl<'a> StripeRow<'a> {
    /// Whether all bytes read obey the remaining equations, which is what md checks.
    /// Checksums are ignored.
    pub fn agrees(&self, kernel: &Kernel) -> bool {
        let unread = indices(&self.evidence, |block| block.bytes().is_none());
        self.syndromes(kernel, &unread).is_none_or(|syndromes| syndromes.iter().all(|sum| is_zero(sum)))
    }

    /// Decides which blocks are wrong.
    pub fn judge(&self, kernel: &Kernel) -> Verdict {
        let known_bad = indices(&self.evidence, BlockEvidence::is_known_bad);
        let unusable = indices(&self.evidence, |block| block.usable().is_none());
        if unusable.len() > self.parities() {
            return if known_bad.is_empty() { Verdict::Sound } else { Verdict::Lost { blocks: known_bad } };
        }
        let unverified = indices(&self.evidence, |block| matches!(block, BlockEvidence::Unverified(_)));
        if unusable.len() + unverified.len() <= self.parities() {
            return self.judge_by_verified(kernel, known_bad, &unusable, &unverified);
        }
        let sums = self.syndromes(kernel, &unusable).unwrap_or_default();
        if sums.iter().all(|sum| is_zero(sum)) {
            return Self::blame(known_bad, known_bad_by(&self.evidence));
        }
        match &sums[..] {
            [p, q] => match self.explains(p, q).filter(|index| unverified.contains(index)) {
                Some(index) if !self.is_exchange(p, q) => Self::blame(Indices::from_iter([index]), Evidence::Parity),
                Some(_) | None => Verdict::Undecidable,
            },
            // One equation blames no block.
            [] | [_] | [_, _, _, ..] => Verdict::Undecidable,
        }
    }

    /// The right contents of `index`, computed from all blocks except `without` and itself.
    pub fn solved(&self, kernel: &Kernel, index: usize, without: &[usize]) -> Option<Vec<u8>> {
        let unread = (0..self.evidence.len()).filter(|other| self.evidence[*other].bytes().is_none());
        let not_there = (self.parities()..Role::PARITIES.len()).map(parity_symbol);
        let lost: SmallVec<[Symbol; 4]> =
            without.iter().copied().chain(unread).map(|other| self.symbol(other)).chain(not_there).collect();
        let terms = parity::recovery(&self.exponents, &lost, self.symbol(index))?;
        let block = |symbol| self.evidence[self.index_of(symbol)].bytes();
        let terms: Option<Terms<'_>> =
            terms.into_iter().map(|(weight, symbol)| Some((weight, block(symbol)?))).collect();
        let mut solved = vec![0; self.bytes()];
        kernel.combine(&mut solved, &terms?);
        Some(solved)
    }

    fn blame(blocks: Indices, by: Evidence) -> Verdict {
        if blocks.is_empty() { Verdict::Sound } else { Verdict::Wrong { blocks, by } }
    }

    /// The verdict where the verified blocks determine all others.
    fn judge_by_verified(
        &self,
        kernel: &Kernel,
        known_bad: Indices,
        unusable: &Indices,
        unverified: &Indices,
    ) -> Verdict {
        let unproven: Indices = unusable.iter().chain(unverified).copied().collect();
        let is_contradicted = |sums: SmallVec<[Vec<u8>; 2]>| sums.iter().any(|sum| !is_zero(sum));
        if self.syndromes(kernel, &unproven).is_some_and(is_contradicted) {
            return Verdict::Undecidable; // two verified blocks contradict each other
        }
        let is_wrong = |index: &usize| {
            let solved = self.solved(kernel, *index, &unproven);
            solved.is_none_or(|solved| self.evidence[*index].bytes() != Some(&solved))
        };
        let mut blocks = known_bad;
        let before = blocks.len();
        blocks.extend(unverified.iter().copied().filter(is_wrong));
        let by = if blocks.len() > before { Evidence::Checksum } else { known_bad_by(&self.evidence) };
        blocks.sort_unstable();
        Self::blame(blocks, by)
    }

    /// The block whose error alone explains `p` and `q`, if there is one.
    fn explains(&self, p: &[u8], q: &[u8]) -> Option<usize> {
        let (at, (&p0, &q0)) = p.iter().zip(q).enumerate().find(|(_, (p, q))| **p != 0 || **q != 0)?;
        let is_it = |index: &usize| {
            let [a, b] = self.symbol(*index).column();
            gf::mul(a, q0) == gf::mul(b, p0)
        };
        let index = (0..self.evidence.len()).find(is_it)?;
        let [a, b] = self.symbol(index).column();
        let mut rest = p[at..].iter().zip(&q[at..]);
        rest.all(|(&p, &q)| gf::mul(a, q) == gf::mul(b, p)).then_some(index)
    }

    /// Whether two blocks written to each other's positions explain `p` and `q` as well.
    /// Without this test two exchanged data blocks would put the blame on Q.
    fn is_exchange(&self, p: &[u8], q: &[u8]) -> bool {
        let blocks: SmallVec<[(usize, &[u8]); 32]> =
            self.evidence.iter().enumerate().filter_map(|(index, block)| Some((index, block.usable()?))).collect();
        blocks.iter().enumerate().any(|(number, &(one, a))| {
            blocks[..number].iter().any(|&(other, b)| {
                let ([a0, a1], [b0, b1]) = (self.symbol(one).column(), self.symbol(other).column());
                let mut sums = p.iter().zip(q);
                let mut bytes = a.iter().zip(b);
                bytes.all(|(a, b)| {
                    let (error, (p, q)) = (a ^ b, sums.next().expect("all blocks have the same length"));
                    gf::mul(a0 ^ b0, error) == *p && gf::mul(a1 ^ b1, error) == *q
                })
            })
        })
    }

    /// The sums of the equations that remain without the `unusable` blocks; `None` when none remains.
    fn syndromes(&self, kernel: &Kernel, unusable: &[usize]) -> Option<SmallVec<[Vec<u8>; 2]>> {
        let one = |weight: &dyn Fn([u8; 2]) -> u8| {
            let weights: Weights = (0..self.evidence.len()).map(|index| weight(self.symbol(index).column())).collect();
            let terms: Terms<'_> = weights
                .iter()
                .zip(&self.evidence)
                .enumerate()
                .filter(|(index, _)| !unusable.contains(index))
                .filter_map(|(_, (&weight, block))| Some((weight, block.bytes()?)))
                .filter(|(weight, _)| *weight != 0)
                .collect();
            let mut sum = vec![0; self.bytes()];
            kernel.combine(&mut sum, &terms);
            sum
        };
        match (self.parities(), unusable) {
            (1, []) => Some(SmallVec::from_iter([one(&|[first, _]| first)])),
            (2, []) => Some(SmallVec::from_iter([one(&|[first, _]| first), one(&|[_, second]| second)])),
            (2, [lost]) => {
                let [a, b] = self.symbol(*lost).column();
                // The combination of the two equations in which the lost block cancels.
                Some(SmallVec::from_iter([one(&|[first, second]| gf::mul(b, first) ^ gf::mul(a, second))]))
            }
            _ => None,
        }
    }

    fn parities(&self) -> usize {
        self.evidence.len() - self.exponents.len()
    }

    fn symbol(&self, index: usize) -> Symbol {
        match index.checked_sub(self.exponents.len()) {
            None => Symbol::Data(self.exponents[index]),
            Some(place) => parity_symbol(place),
        }
    }

    /// The place of a chunk in the row.
    ///
    /// # Panics
    /// For a data chunk that the stripe does not have.
    pub(crate) fn index_of(&self, symbol: Symbol) -> usize {
        match symbol {
            Symbol::P => self.exponents.len(),
            Symbol::Q => self.exponents.len() + 1,
            Symbol::Data(exponent) => {
                self.exponents.iter().position(|e| *e == exponent).expect("recovery returns chunks of this stripe")
            }
        }
    }

    fn bytes(&self) -> usize {
        self.evidence.iter().find_map(|block| block.bytes()).map_or(0, <[u8]>::len)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
