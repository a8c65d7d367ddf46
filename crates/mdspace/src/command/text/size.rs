//! Sizes as users write them: `4096`, `64K`, `1.5G`.
//!
//! K, M, G, T and P are powers of 1024, as in mdadm and lvm; an `iB` may follow. `KB` is refused, because to many it
//! means 1000 bytes. A size is a whole number of bytes that fits a `u64`.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A number of bytes, as users write and read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Size(pub(crate) u64);

const UNITS: [(&str, u32); 5] = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift =
            shift_of(unit).ok_or_else(|| format!("`{unit}` is not a unit; use K, M, G, T or P (powers of 1024)"))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
            return Err("expected a size such as 4096, 64K or 1.5G".to_owned());
        }
        let too_large = || "the number of bytes does not fit 64 bits".to_owned();
        let whole: u128 = whole.parse().map_err(|_| too_large())?;
        let mut bytes = whole.checked_mul(1 << shift).ok_or_else(too_large)?;
        if !fraction.is_empty() {
            bytes += fraction_bytes(fraction, shift)?;
        }
        u64::try_from(bytes).map(Size).map_err(|_| too_large())
    }
}

/// Sizes below this are taken for a mistake where no such size makes sense.
const SENSIBLE_MIN: u64 = 4096;

/// A member of fewer bytes has hardly room for its metadata. As KiB it would be 16 GiB.
const MEMBER_MIN: u64 = 16 << 20;

/// A size that is 4 KiB or more where it makes sense. A number without a unit that is smaller, but not 0, was probably
/// meant in KiB, as mdadm counts; one with a unit is what the user says.
pub(crate) fn parse_sensible(text: &str) -> Result<Size, String> {
    parse_from(text, SENSIBLE_MIN)
}

/// The size of a member or of its component, in the same way.
pub(crate) fn parse_member_size(text: &str) -> Result<Size, String> {
    parse_from(text, MEMBER_MIN)
}

fn parse_from(text: &str, least: u64) -> Result<Size, String> {
    let size: Size = text.parse()?;
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    if has_unit || size.0 == 0 || size.0 >= least {
        return Ok(size);
    }
    Err(format!("{text} is {text} bytes; {text}K was probably meant (mdadm counts in KiB)"))
}

/// The unit's power of two; `None` for an unknown unit.
fn shift_of(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(0);
    }
    let letter = unit.strip_suffix("IB").unwrap_or(&unit);
    UNITS.iter().find(|(name, _)| *name == letter).map(|(_, shift)| *shift)
}

/// `0.fraction` of `2^shift` bytes, exactly.
fn fraction_bytes(fraction: &str, shift: u32) -> Result<u128, String> {
    let digits = u32::try_from(fraction.len()).ok().filter(|&digits| digits <= 18);
    let digits = digits.ok_or("more than 18 digits after the point")?;
    let numerator = fraction.parse::<u128>().map_err(|error| error.to_string())? << shift;
    let denominator = 10u128.pow(digits);
    if !numerator.is_multiple_of(denominator) {
        return Err("not a whole number of bytes".to_owned());
    }
    Ok(numerator / denominator)
}

/// The size as a word that reads as exactly this size, with the largest unit that divides it: `1536K`.
pub(crate) fn exact(bytes: u64) -> String {
    let units = UNITS.iter().rev().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    units.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

impl fmt::Display for Size {
    /// Up to one decimal, `1.5 GiB`; plain bytes below 1 KiB.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((unit, shift)) = UNITS.iter().rev().find(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{} bytes", self.0);
        };
        let value = self.0 as f64 / (1u64 << shift) as f64;
        let decimals = if self.0.is_multiple_of(1 << shift) || value >= 100.0 { 0 } else { 1 };
        write!(f, "{value:.decimals$} {unit}iB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_exactly() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("1.5G", 3 << 29),
            ("0.5K", 512),
            ("2T", 2 << 40),
            ("1P", 1 << 50),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn a_small_number_without_a_unit_is_answered_with_what_was_probably_meant() {
        for (text, bytes) in [("64K", 64 << 10), ("4096", 4096), ("0", 0), ("512B", 512), ("0.5K", 512)] {
            assert_eq!(parse_sensible(text), Ok(Size(bytes)), "{text}");
        }
        for text in ["64", "512", "4095", "1"] {
            let error = parse_sensible(text).expect_err(text);
            assert!(error.contains(&format!("; {text}K was probably meant")), "{text}: {error}");
        }
        assert!(parse_sensible("64KB").is_err_and(|error| error.contains("not a unit")));
        assert_eq!(parse_member_size("16777216"), Ok(Size(16 << 20)));
        assert_eq!(parse_member_size("8388608B"), Ok(Size(8 << 20)));
        assert!(parse_member_size("1000000").is_err_and(|error| error.contains("1000000K was probably meant")));
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, reason) in [
            ("", "expected a size"),
            ("K", "expected a size"),
            ("1.", "expected a size"),
            (".5K", "expected a size"),
            ("1.2.3K", "expected a size"),
            ("-1", "not a unit"),
            ("64KB", "not a unit"),
            ("64 K", "not a unit"),
            ("1e9", "not a unit"),
            ("1.3K", "not a whole number"),
            ("0.5", "not a whole number"),
            ("18446744073709551616", "64 bits"),
            ("16384P", "64 bits"),
            ("1.0000000000000000001K", "18 digits"),
            ("999999999999999999999999999999999999999999", "64 bits"),
        ] {
            let error = text.parse::<Size>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_size_is_printed_with_a_unit() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (256 << 20, "256 MiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
