//! Settings of a sweep's transfers: their length, and the bytes in flight on each member.
//!
//! It is pure, and only checks the settings. The sweep applies them to an array's chunks and members.
//!
//! Facts: measured; what a published scrub lost without long transfers and without enough of them in flight
//! (docs/lab.md, E5).

use crate::seam::error::Refusal;
use std::ops::RangeInclusive;

/// Bounds of both settings: at least a row of blocks, and at most what the buffers of 32 members can hold.
const BYTES: RangeInclusive<u64> = 4 << 10..=64 << 20;

/// How a sweep moves the bytes of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepTransfers {
    /// Bytes of a transfer, about: neighbouring transfers are merged up to this. `None`: 512 KiB, or less
    /// where no member gains by so much; whole chunks where these are longer.
    pub window_bytes: Option<u64>,
    /// Bytes in flight on each member; at least one transfer is.
    pub in_flight_bytes: u64,
}

impl Default for SweepTransfers {
    fn default() -> Self {
        Self { window_bytes: None, in_flight_bytes: 8 << 20 }
    }
}

impl SweepTransfers {
    /// Checks that all sizes are powers of two from 4 KiB to 64 MiB.
    ///
    /// # Errors
    /// Names the setting that is not.
    pub fn check(self) -> Result<Self, Refusal> {
        let fields = [("sweep-window", self.window_bytes), ("sweep-in-flight", Some(self.in_flight_bytes))];
        for (field, bytes) in fields.into_iter().filter_map(|(field, bytes)| Some((field, bytes?))) {
            if !bytes.is_power_of_two() || !BYTES.contains(&bytes) {
                let reason = format!("{bytes} bytes are no power of two from 4 KiB to 64 MiB");
                return Err(Refusal::new(reason).field(field));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_within_bounds() {
        let fits = |window_bytes, in_flight_bytes| SweepTransfers { window_bytes, in_flight_bytes }.check().is_ok();
        for (window, in_flight, expected) in [
            (None, 8 << 20, true),
            (Some(4 << 10), 4 << 10, true),
            (Some(64 << 20), 64 << 20, true),
            (Some(2 << 10), 8 << 20, false),
            (Some(12 << 10), 8 << 20, false),
            (Some(128 << 20), 8 << 20, false),
            (None, 0, false),
            (None, 3 << 20, false),
            (None, 128 << 20, false),
        ] {
            assert_eq!(fits(window, in_flight), expected, "{window:?} {in_flight}");
        }
    }
}
