//! Warnings about long runs of zeros that parity or copies contradict, when an array is opened.
//!
//! A program that copies a failing disk leaves such zeros where it cannot read. The warnings never change what reads
//! return.

use crate::machine::Array;
use crate::names::path_of;
use crate::place::{file_of, is_raw, resolve};
use engine::DoubtfulZeros;
use std::collections::BTreeMap;
use std::ops::Range;

/// Checks a bounded part of the array, around the holes of members' files and elsewhere, and logs the warnings.
pub(crate) async fn warn_of_doubtful_zeros(array: &Array) {
    let names = array.status().members.into_iter().map(|member| member.name);
    let holes: Vec<(String, Range<u64>)> =
        names.flat_map(|name| holes(&name).into_iter().map(move |hole| (name.clone(), hole))).collect();
    for warning in warnings(array.doubtful_zeros(&holes).await) {
        tracing::warn!("{warning}");
    }
}

/// The holes of a member's file, or of the part of it that is the member, in bytes of the member.
fn holes(name: &str) -> Vec<Range<u64>> {
    let path = path_of(name);
    if !is_raw(&file_of(&path)) {
        return Vec::new(); // its holes are not those of the disk, and its server may take one client alone
    }
    let Ok((file, part)) = resolve(&path) else { return Vec::new() };
    let holes = io::holes(&file).into_iter();
    let Some(io::Part { at, bytes }) = part else { return holes.collect() };
    let inside = |byte: u64| byte.saturating_sub(at).min(bytes);
    holes.map(|hole| inside(hole.start)..inside(hole.end)).filter(|hole| !hole.is_empty()).collect()
}

/// A warning for each member, or set of members, with doubtful zeros.
fn warnings(found: Vec<DoubtfulZeros>) -> Vec<String> {
    let mut by_members: BTreeMap<Vec<String>, Vec<DoubtfulZeros>> = BTreeMap::new();
    for doubt in found {
        by_members.entry(doubt.members.clone()).or_default().push(doubt);
    }
    let advice = match by_members.len() {
        0 | 1 => "leave that member out, and its data comes from the others",
        _ => {
            "without that member this range is right, but the ranges of the other warnings are not: \
             no choice of members gives everything at once"
        }
    };
    by_members.into_iter().map(|(members, doubts)| warning(&members, &doubts, advice)).collect()
}

fn warning(members: &[String], doubts: &[DoubtfulZeros], advice: &str) -> String {
    let DoubtfulZeros { at, bytes, .. } = doubts[0];
    let more = match doubts.len() - 1 {
        0 => String::new(),
        count => format!(", and {count} more ranges"),
    };
    let (first, last) = (at, at + bytes - 1);
    let (whose, of) = match members {
        [one] => (one.clone(), ""),
        several => (format!("one of {}", several.join(", ")), " of the first"),
    };
    format!(
        "{whose}: bytes {first} to {last}{more}{of} are zeros, but the other members show that there was data; reads there \
         return the zeros. An image of a disk that could not be read everywhere has such holes: {advice}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_has_one_warning_with_its_first_range() {
        let doubt = |members: &[&str], at, bytes| DoubtfulZeros {
            members: members.iter().map(|member| (*member).to_owned()).collect(),
            at,
            bytes,
        };
        let alone = super::warnings(vec![doubt(&["a"], 0, 8192)]);
        assert!(alone[0].ends_with("leave that member out, and its data comes from the others"), "{}", alone[0]);
        let found = vec![doubt(&["b", "c"], 0, 8192), doubt(&["a"], 65_536, 8192), doubt(&["a"], 1 << 20, 16_384)];
        let warnings = warnings(found);
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("a: bytes 65536 to 73727, and 1 more ranges are zeros"), "{}", warnings[0]);
        assert!(warnings.iter().all(|warning| warning.ends_with("no choice of members gives everything at once")));
        assert!(warnings[1].starts_with("one of b, c: bytes 0 to 8191 of the first are zeros"), "{}", warnings[1]);
    }
}
