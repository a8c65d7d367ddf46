//! The limits that simulated members have in common.

use engine::Limits;

/// A member of `bytes` with sectors of 512 bytes and a volatile cache, that cannot discard.
pub fn member_limits(bytes: u64) -> Limits {
    Limits {
        bytes,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        optimal_bytes: 0,
        longest_bytes: 0,
        synchronous: false,
        discards: false,
        discards_to_zeros: false,
        volatile_cache: true,
    }
}
