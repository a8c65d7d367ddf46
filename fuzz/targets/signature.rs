//! Any bytes as the beginning and the end of a member of any length: never a panic, and what is found lies within a part
//! that was given.
//!
//! The input is eight bytes of the member's length, and then what its parts begin with, in turn.
#![no_main]

use format::signature::{recognize, windows};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((length, mut rest)) = input.split_first_chunk::<8>() else { return };
    let member_bytes = u64::from_le_bytes(*length);
    let mut parts = Vec::new();
    for window in windows(member_bytes) {
        assert!(window.start < window.end && window.end <= member_bytes);
        let (part, after) = rest.split_at(rest.len().min((window.end - window.start) as usize));
        parts.push((window.start, part.to_vec()));
        rest = after;
    }
    if let Some(found) = recognize(member_bytes, &parts) {
        let holds = |(start, part): &(u64, Vec<u8>)| (*start..*start + part.len() as u64).contains(&found.at);
        assert!(parts.iter().any(holds), "{found:?}");
    }
});
