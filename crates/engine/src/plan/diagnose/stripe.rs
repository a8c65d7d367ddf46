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

use crate::plan::diagnose::{Evidence, Indices, Verdict, Witness, confession, indices};
use parity::{Kernel, Symbol, gf};
use smallvec::SmallVec;

/// One row of a stripe.
#[derive(Debug, Clone)]
pub struct StripeRow<'a> {
    /// Of each data chunk the exponent of 2 in Q; where there is no Q, any numbers that differ.
    pub exponents: SmallVec<[u8; 32]>,
    /// Data in order, then P, then Q where there is one.
    pub witnesses: SmallVec<[Witness<'a>; 32]>,
}

/// A factor for each block of a row.
type Weights = SmallVec<[u8; 32]>;

/// Blocks, each with its factor.
type Terms<'a> = SmallVec<[(u8, &'a [u8]); 32]>;

impl<'a> StripeRow<'a> {
    /// Whether all that was read obeys what equations are left: md's question.
    /// Checksums count for nothing.
    pub fn agrees(&self, kernel: &Kernel) -> bool {
        let silent = indices(&self.witnesses, |witness| witness.bytes().is_none());
        self.syndromes(kernel, &silent).is_none_or(|syndromes| syndromes.iter().all(|sum| is_zero(sum)))
    }

    /// Who is wrong.
    pub fn judge(&self, kernel: &Kernel) -> Verdict {
        let confessed = indices(&self.witnesses, Witness::confesses);
        let out = indices(&self.witnesses, |witness| witness.testimony().is_none());
        if out.len() > self.parities() {
            return if confessed.is_empty() { Verdict::Sound } else { Verdict::Lost { who: confessed } };
        }
        let doubted = indices(&self.witnesses, |witness| matches!(witness, Witness::Heard(_)));
        if out.len() + doubted.len() <= self.parities() {
            return self.judge_by_the_vouched(kernel, confessed, &out, &doubted);
        }
        let sums = self.syndromes(kernel, &out).unwrap_or_default();
        if sums.iter().all(|sum| is_zero(sum)) {
            return Self::convicted(confessed, confession(&self.witnesses));
        }
        match &sums[..] {
            [p, q] => match self.explains(p, q).filter(|index| doubted.contains(index)) {
                Some(index) if !self.is_exchange(p, q) => {
                    Self::convicted(Indices::from_iter([index]), Evidence::Parity)
                }
                _ => Verdict::Undecidable,
            },
            _ => Verdict::Undecidable,
        }
    }

    /// What `index` should be, from all but `without` and itself.
    pub fn solved(&self, kernel: &Kernel, index: usize, without: &[usize]) -> Option<Vec<u8>> {
        let silent = (0..self.witnesses.len()).filter(|other| self.witnesses[*other].bytes().is_none());
        let no_q = (self.parities() == 1).then_some(Symbol::Q);
        let lost: SmallVec<[Symbol; 4]> =
            without.iter().copied().chain(silent).map(|other| self.symbol(other)).chain(no_q).collect();
        let terms = parity::recovery(&self.exponents, &lost, self.symbol(index))?;
        let block = |symbol| self.witnesses[self.index_of(symbol)].bytes();
        let terms: Option<Terms<'_>> =
            terms.into_iter().map(|(weight, symbol)| Some((weight, block(symbol)?))).collect();
        let mut solved = vec![0; self.bytes()];
        kernel.combine(&mut solved, &terms?);
        Some(solved)
    }

    fn convicted(who: Indices, by: Evidence) -> Verdict {
        if who.is_empty() { Verdict::Sound } else { Verdict::Wrong { who, by } }
    }

    /// Those who are vouched for say what all others should be.
    fn judge_by_the_vouched(&self, kernel: &Kernel, confessed: Indices, out: &Indices, doubted: &Indices) -> Verdict {
        let unproven: Indices = out.iter().chain(doubted).copied().collect();
        let is_contradicted = |sums: SmallVec<[Vec<u8>; 2]>| sums.iter().any(|sum| !is_zero(sum));
        if self.syndromes(kernel, &unproven).is_some_and(is_contradicted) {
            return Verdict::Undecidable; // of two that are vouched for one is wrong
        }
        let is_wrong = |index: &usize| {
            let solved = self.solved(kernel, *index, &unproven);
            solved.is_none_or(|solved| self.witnesses[*index].bytes() != Some(&solved))
        };
        let mut who = confessed;
        let before = who.len();
        who.extend(doubted.iter().copied().filter(is_wrong));
        let by = if who.len() > before { Evidence::Checksum } else { confession(&self.witnesses) };
        who.sort_unstable();
        Self::convicted(who, by)
    }

    /// The one block that is wrong, if one alone can be.
    fn explains(&self, p: &[u8], q: &[u8]) -> Option<usize> {
        let (at, (&p0, &q0)) = p.iter().zip(q).enumerate().find(|(_, (p, q))| **p != 0 || **q != 0)?;
        let is_it = |index: &usize| {
            let [a, b] = self.symbol(*index).column();
            gf::mul(a, q0) == gf::mul(b, p0)
        };
        let index = (0..self.witnesses.len()).find(is_it)?;
        let [a, b] = self.symbol(index).column();
        let mut rest = p[at..].iter().zip(&q[at..]);
        rest.all(|(&p, &q)| gf::mul(a, q) == gf::mul(b, p)).then_some(index)
    }

    /// Whether two blocks that were written to each other's places would explain it as well.
    /// Without this question two data blocks that were exchanged convict Q.
    fn is_exchange(&self, p: &[u8], q: &[u8]) -> bool {
        let blocks: SmallVec<[(usize, &[u8]); 32]> = self
            .witnesses
            .iter()
            .enumerate()
            .filter_map(|(index, witness)| Some((index, witness.testimony()?)))
            .collect();
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
            let weights: Weights = (0..self.witnesses.len()).map(|index| weight(self.symbol(index).column())).collect();
            let terms: Terms<'_> = weights
                .iter()
                .zip(&self.witnesses)
                .enumerate()
                .filter(|(index, _)| !out.contains(index))
                .filter_map(|(_, (&weight, witness))| Some((weight, witness.bytes()?)))
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
        self.witnesses.len() - self.exponents.len()
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
        self.witnesses.iter().find_map(|witness| witness.bytes()).map_or(0, <[u8]>::len)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
