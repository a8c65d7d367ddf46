//! Stripes: what P, and Q, say of a row.
//!
//! A row obeys the equations of [`parity::recovery()`]; each block that cannot be
//! relied on uses one up. What is left of them is asked:
//!
//! * two: with `p` and `q` what the sums come to instead of zero, a single wrong
//!   block of column (a, b) has `p = a * e` and `q = b * e` for its error e. For
//!   at most one column that is true of all bytes;
//! * one: every block that is left enters it, so it convicts nobody;
//! * none: there is nothing to compare.

use crate::plan::diagnose::{BlockEvidence, Evidence, Indices, Verdict, indices, known_bad_by};
use parity::{Kernel, Symbol, gf};
use smallvec::SmallVec;

/// One row of a stripe.
#[derive(Debug, Clone)]
pub struct StripeRow<'a> {
    /// Of each data chunk the exponent of 2 in Q; where there is no Q, any numbers that differ.
    pub exponents: SmallVec<[u8; 32]>,
    /// Data in order, then P, then Q where there is one.
    pub evidence: SmallVec<[BlockEvidence<'a>; 32]>,
}

/// A factor for each block of a row.
type Weights = SmallVec<[u8; 32]>;

/// Blocks, each with its factor.
type Terms<'a> = SmallVec<[(u8, &'a [u8]); 32]>;

impl<'a> StripeRow<'a> {
    /// Whether all that was read obeys what equations are left: md's question.
    /// Checksums count for nothing.
    pub fn agrees(&self, kernel: &Kernel) -> bool {
        let silent = indices(&self.evidence, |block| block.bytes().is_none());
        self.syndromes(kernel, &silent).is_none_or(|syndromes| syndromes.iter().all(|sum| is_zero(sum)))
    }

    /// Who is wrong.
    pub fn judge(&self, kernel: &Kernel) -> Verdict {
        let known_bad = indices(&self.evidence, BlockEvidence::is_known_bad);
        let out = indices(&self.evidence, |block| block.claim().is_none());
        if out.len() > self.parities() {
            return if known_bad.is_empty() { Verdict::Sound } else { Verdict::Lost { blocks: known_bad } };
        }
        let doubted = indices(&self.evidence, |block| matches!(block, BlockEvidence::Unverified(_)));
        if out.len() + doubted.len() <= self.parities() {
            return self.judge_by_verified(kernel, known_bad, &out, &doubted);
        }
        let sums = self.syndromes(kernel, &out).unwrap_or_default();
        if sums.iter().all(|sum| is_zero(sum)) {
            return Self::blame(known_bad, known_bad_by(&self.evidence));
        }
        match &sums[..] {
            [p, q] => match self.explains(p, q).filter(|index| doubted.contains(index)) {
                Some(index) if !self.is_exchange(p, q) => Self::blame(Indices::from_iter([index]), Evidence::Parity),
                _ => Verdict::Undecidable,
            },
            _ => Verdict::Undecidable,
        }
    }

    /// What `index` should be, from all but `without` and itself.
    pub fn solved(&self, kernel: &Kernel, index: usize, without: &[usize]) -> Option<Vec<u8>> {
        let silent = (0..self.evidence.len()).filter(|other| self.evidence[*other].bytes().is_none());
        let no_q = (self.parities() == 1).then_some(Symbol::Q);
        let lost: SmallVec<[Symbol; 4]> =
            without.iter().copied().chain(silent).map(|other| self.symbol(other)).chain(no_q).collect();
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

    /// Those who are vouched for say what all others should be.
    fn judge_by_verified(&self, kernel: &Kernel, known_bad: Indices, out: &Indices, doubted: &Indices) -> Verdict {
        let unproven: Indices = out.iter().chain(doubted).copied().collect();
        let is_contradicted = |sums: SmallVec<[Vec<u8>; 2]>| sums.iter().any(|sum| !is_zero(sum));
        if self.syndromes(kernel, &unproven).is_some_and(is_contradicted) {
            return Verdict::Undecidable; // of two that are vouched for one is wrong
        }
        let is_wrong = |index: &usize| {
            let solved = self.solved(kernel, *index, &unproven);
            solved.is_none_or(|solved| self.evidence[*index].bytes() != Some(&solved))
        };
        let mut blocks = known_bad;
        let before = blocks.len();
        blocks.extend(doubted.iter().copied().filter(is_wrong));
        let by = if blocks.len() > before { Evidence::Checksum } else { known_bad_by(&self.evidence) };
        blocks.sort_unstable();
        Self::blame(blocks, by)
    }

    /// The one block that is wrong, if one alone can be.
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

    /// Whether two blocks that were written to each other's places would explain it as well.
    /// Without this question two data blocks that were exchanged convict Q.
    fn is_exchange(&self, p: &[u8], q: &[u8]) -> bool {
        let blocks: SmallVec<[(usize, &[u8]); 32]> =
            self.evidence.iter().enumerate().filter_map(|(index, block)| Some((index, block.claim()?))).collect();
        blocks.iter().enumerate().any(|(number, &(one, a))| {
            blocks[..number].iter().any(|&(other, b)| {
                let ([a0, a1], [b0, b1]) = (self.symbol(one).column(), self.symbol(other).column());
                let mut sums = p.iter().zip(q);
                let mut bytes = a.iter().zip(b);
                bytes.all(|(a, b)| {
                    let (error, (p, q)) = (a ^ b, sums.next().expect("all are of one length"));
                    gf::mul(a0 ^ b0, error) == *p && gf::mul(a1 ^ b1, error) == *q
                })
            })
        })
    }

    /// What the equations that hold without `out` come to; `None` when there is none.
    fn syndromes(&self, kernel: &Kernel, out: &[usize]) -> Option<SmallVec<[Vec<u8>; 2]>> {
        let one = |weight: &dyn Fn([u8; 2]) -> u8| {
            let weights: Weights = (0..self.evidence.len()).map(|index| weight(self.symbol(index).column())).collect();
            let terms: Terms<'_> = weights
                .iter()
                .zip(&self.evidence)
                .enumerate()
                .filter(|(index, _)| !out.contains(index))
                .filter_map(|(_, (&weight, block))| Some((weight, block.bytes()?)))
                .filter(|(weight, _)| *weight != 0)
                .collect();
            let mut sum = vec![0; self.bytes()];
            kernel.combine(&mut sum, &terms);
            sum
        };
        match (self.parities(), out) {
            (1, []) => Some(SmallVec::from_iter([one(&|[first, _]| first)])),
            (2, []) => Some(SmallVec::from_iter([one(&|[first, _]| first), one(&|[_, second]| second)])),
            (2, [lost]) => {
                let [a, b] = self.symbol(*lost).column();
                // The one combination of the two in which the lost block cancels.
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
            Some(0) => Symbol::P,
            Some(_) => Symbol::Q,
        }
    }

    fn index_of(&self, symbol: Symbol) -> usize {
        match symbol {
            Symbol::P => self.exponents.len(),
            Symbol::Q => self.exponents.len() + 1,
            Symbol::Data(exponent) => {
                self.exponents.iter().position(|e| *e == exponent).expect("recovery names chunks of this stripe")
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
