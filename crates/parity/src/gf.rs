//! The field GF(2^8) of md's RAID-6: polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), generator 2. All tables are computed
//! at compile time.
//!
//! Scalars only; [`Kernel`](crate::Kernel) computes on blocks.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6" (2004..2011).

/// The reduction polynomial, with its x^8 term.
pub const POLYNOMIAL: u16 = 0x11d;

/// The number of distinct powers of the generator: all elements but zero.
pub const ORDER: usize = 255;

/// 2^e for e in 0..512: long enough for an index that is the sum of two logarithms.
static EXP: [u8; 512] = exponentials();

/// log2 of every element. The entry of zero, which has no logarithm, is never used.
static LOG: [u8; 256] = logarithms();

/// The product of two elements.
pub fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// The element whose product with `a` is one.
///
/// # Panics
/// When `a` is zero.
pub fn inv(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[ORDER - LOG[a as usize] as usize]
}

/// The generator's power 2^`exponent`: the factor of data with that exponent in Q.
pub fn pow2(exponent: u8) -> u8 {
    EXP[exponent as usize]
}

/// Products of each element with the sixteen low and the sixteen high nibbles: `c * x == NIBBLES[c][0][x & 15] ^
/// NIBBLES[c][1][x >> 4]`. The tables for byte shuffles.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static NIBBLES: [[[u8; 16]; 2]; 256] = nibble_products();

/// Multiplication by each element as an 8x8 bit matrix, in the format of the `gf2p8affineqb` instruction: byte 7-i is
/// the mask of input bits whose parity is bit i of the product. (The instruction `gf2p8mulb` is of no use: it is fixed
/// to AES's polynomial 0x11b.)
#[cfg(target_arch = "x86_64")]
pub(crate) static MATRICES: [u64; 256] = matrices();

/// The fixed point of an inverted doubling, which reduces exactly the bytes that need no reduction: `double(PIVOT) ^
/// 0x1d == PIVOT`. Relative to it, the inverted doubling is a doubling: `PIVOT ^ double(a) == double(PIVOT ^ a) ^
/// 0x1d`.
#[cfg(target_arch = "x86_64")]
pub(crate) const PIVOT: u8 = {
    let mut a = 0;
    while double(a) ^ POLYNOMIAL as u8 != a {
        a += 1;
    }
    a
};

const fn double(a: u8) -> u8 {
    let wide = (a as u16) << 1;
    (if wide & 0x100 == 0 { wide } else { wide ^ POLYNOMIAL }) as u8
}

/// The product by shift and add, for the tables below, before the logarithms exist.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) const fn slow_mul(a: u8, b: u8) -> u8 {
    let (mut product, mut bit) = (0, 8);
    while bit > 0 {
        bit -= 1;
        product = double(product) ^ if b >> bit & 1 == 1 { a } else { 0 };
    }
    product
}

const fn exponentials() -> [u8; 512] {
    let mut table = [1; 512];
    let mut e = 1;
    while e < table.len() {
        table[e] = double(table[e - 1]);
        e += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let exponentials = exponentials();
    let mut table = [0; 256];
    let mut e = 0;
    while e < ORDER {
        table[exponentials[e] as usize] = e as u8;
        e += 1;
    }
    table
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const fn nibble_products() -> [[[u8; 16]; 2]; 256] {
    let mut table = [[[0; 16]; 2]; 256];
    let mut at = 0;
    while at < 256 * 16 {
        let (c, nibble) = (at / 16, at % 16);
        table[c][0][nibble] = slow_mul(c as u8, nibble as u8);
        table[c][1][nibble] = slow_mul(c as u8, (nibble << 4) as u8);
        at += 1;
    }
    table
}

#[cfg(target_arch = "x86_64")]
const fn matrices() -> [u64; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 * 64 {
        let (c, input, output) = (at / 64, at / 8 % 8, at % 8);
        if slow_mul(c as u8, 1 << input) >> output & 1 == 1 {
            table[c] |= 1 << ((7 - output) * 8 + input);
        }
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_the_standard_example_come_out() {
        // Known answers: 2 * 0x80 reduces once; 0x8e is the inverse of 2.
        assert_eq!((mul(2, 0x80), inv(2), pow2(8), pow2(255)), (0x1d, 0x8e, 0x1d, 1));
    }

    #[test]
    fn every_element_but_zero_times_its_inverse_is_one() {
        for a in 1..=255 {
            assert_eq!(mul(a, inv(a)), 1, "{a}");
        }
    }

    #[test]
    fn the_generator_reaches_every_element_but_zero() {
        let mut seen: Vec<u8> = (0..ORDER as u8).map(pow2).collect();
        seen.sort_unstable();
        assert_eq!(seen, (1..=255).collect::<Vec<u8>>());
    }

    #[test]
    #[should_panic(expected = "no inverse")]
    fn zero_has_no_inverse() {
        inv(0);
    }
}
