//! The blocks and coefficients whose sum is a lost block.
//!
//! A stripe obeys two equations, with data D and exponents e:
//!
//! ```text
//! sum of       D(e)  +  P      = 0
//! sum of 2^e * D(e)      +   Q = 0
//! ```
//!
//! So each symbol is a column of two coefficients: D(e) = (1, 2^e), P = (1, 0), Q = (0, 1). To compute a symbol without
//! another one, take the combination of the two equations in which the other one cancels, and solve for the symbol. Any
//! two columns are linearly independent (2^e repeats only after 255), so this always works. Every remaining symbol has
//! a coefficient other than zero. So there are as many terms as data blocks, which is the minimum (the code is maximum
//! distance separable). All cases, from one lost block to two of any kind, are this one.
//!
//! Example: D(1) and Q are lost. The first equation has no Q, so D(1) is the plain xor of P and the other data.
//!
//! This module never touches a block. Source: H. P. Anvin, "The mathematics of RAID-6", section 4, generalized.

use crate::gf;

/// A block of a stripe, by its role in the two equations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Symbol {
    /// Data with its exponent e, below 255: Q contains it times 2^e. The exponent is not always the index among the
    /// data blocks: md's DDF layouts leave gaps.
    Data(u8),
    /// The parity: the sum of all data.
    P,
    /// The syndrome: the sum of all data, each times its power of two.
    Q,
}

impl Symbol {
    /// Its coefficients in the two equations.
    pub fn column(self) -> [u8; 2] {
        match self {
            Symbol::Data(exponent) => [1, gf::pow2(exponent)],
            Symbol::P => [1, 0],
            Symbol::Q => [0, 1],
        }
    }
}

/// How to compute `wanted` from symbols that are neither lost nor `wanted` itself: the sum of each term's block times
/// its coefficient, for [`Kernel::combine`](crate::Kernel::combine). There are exactly as many terms as data blocks, in
/// the order data, P, Q, none with coefficient 0.
///
/// `data` holds the exponents of all data blocks of the stripe. `lost` are the symbols that must not be used; it may
/// contain `wanted`. For a stripe without Q (RAID-5), Q is lost. Where there is a choice, P is used instead of Q, and
/// then all coefficients are 1.
///
/// `None` when it is impossible: more than two symbols are lost, including `wanted`.
///
/// # Panics
/// When `data` is not a set of exponents below 255, or when a data symbol of `lost` or `wanted` is not in it.
pub fn recovery(data: &[u8], lost: &[Symbol], wanted: Symbol) -> Option<Vec<(u8, Symbol)>> {
    assert_is_stripe(data, lost, wanted);
    let mut others = lost.iter().copied().filter(|&symbol| symbol != wanted);
    let spare = if wanted == Symbol::Q { Symbol::P } else { Symbol::Q };
    let other = others.next().unwrap_or(spare);
    if others.any(|symbol| symbol != other) {
        return None;
    }

    // The first equation times b plus the second times a has no (a, b): ba + ab = 0.
    let [a, b] = other.column();
    let weight = |symbol: Symbol| {
        let [first, second] = symbol.column();
        gf::mul(b, first) ^ gf::mul(a, second)
    };
    let scale = gf::inv(weight(wanted));
    let symbols = data.iter().map(|&exponent| Symbol::Data(exponent)).chain([Symbol::P, Symbol::Q]);
    let used = symbols.filter(|&symbol| symbol != wanted && symbol != other);
    Some(used.map(|symbol| (gf::mul(weight(symbol), scale), symbol)).collect())
}

fn assert_is_stripe(data: &[u8], lost: &[Symbol], wanted: Symbol) {
    let mut seen = [false; 256];
    for &exponent in data {
        assert!((exponent as usize) < gf::ORDER, "exponent {exponent} of a data block is not below {}", gf::ORDER);
        assert!(!seen[exponent as usize], "exponent {exponent} belongs to two data blocks");
        seen[exponent as usize] = true;
    }
    for &symbol in lost.iter().chain([&wanted]) {
        if let Symbol::Data(exponent) = symbol {
            assert!(seen[exponent as usize], "{symbol:?} is not in the stripe");
        }
    }
}
