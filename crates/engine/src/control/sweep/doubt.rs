//! Detects long runs of zeros on a member that the other members contradict: holes where a copying program
//! could not read.
//!
//! An image of a failing disk has zeros where the disk could not be read, and the image alone does not tell
//! them from data. Parity and copies do. The search covers a bounded part of the array: places that the
//! caller knows (holes of an image's file), and windows spread evenly over the members; a small array is
//! searched whole. It finds long runs, and proves nothing about the rest.
//!
//! It only reads, past counters and read repair, and skips places where parity or copies need not agree.

use crate::base::buffer::Block;
use crate::base::join::join_all;
use crate::control::state::Control;
use crate::core::personality::Group;
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::units::{ComponentByte, Slot};
use std::ops::Range;

/// Bytes of each member in one window.
const WINDOW_BYTES: u64 = 64 << 10;

/// The most windows, and bytes of all members, that a search reads. An array no larger than that is searched
/// whole.
const WINDOWS_MAX: u64 = 128;
const BYTES_MAX: u64 = 96 << 20;

/// The shortest run reported: shorter ones may be data that a power loss left behind.
const ZEROS_MIN: u64 = 2 * ROW_BYTES;

static ZEROS: [u8; ROW_BYTES as usize] = [0; ROW_BYTES as usize];

/// Zeros on a member that the other members contradict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubtfulZeros {
    /// The member; where several have zeros at this place, all of them.
    pub members: Vec<String>,
    /// The first byte, on the first of these members.
    pub at: u64,
    /// Bytes of zeros that were seen.
    pub bytes: u64,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::doubtful_zeros`].
    pub(crate) async fn doubtful_zeros(&self, holes: &[(String, Range<u64>)]) -> Vec<DoubtfulZeros> {
        let mut found: Vec<DoubtfulZeros> = Vec::new();
        for group in self.groups(&self.windows_to_look_at(holes)) {
            for doubt in self.doubts_in(&group).await {
                match found.last_mut().filter(|last| last.members == doubt.members && last.at + last.bytes == doubt.at)
                {
                    Some(last) => last.bytes += doubt.bytes,
                    None => found.push(doubt),
                }
            }
        }
        found.retain(|doubt| doubt.bytes >= ZEROS_MIN);
        found
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Numbers of the windows to read, in order, each once.
    fn windows_to_look_at(&self, holes: &[(String, Range<u64>)]) -> Vec<u64> {
        if !self.core.is_redundant() || self.other_side.get().is_some() {
            return Vec::new();
        }
        let count = self.core.geometry().sync_bytes().div_ceil(WINDOW_BYTES);
        let affordable = BYTES_MAX / WINDOW_BYTES / u64::from(self.core.personality().witnesses());
        if count <= affordable {
            return (0..count).collect();
        }
        let affordable = affordable.clamp(2, WINDOWS_MAX);
        let known: Vec<u64> = holes.iter().flat_map(|(name, hole)| self.windows_of_hole(name, hole)).collect();
        let mut windows: Vec<u64> =
            spread(known.len() as u64, affordable / 2).map(|index| known[index as usize]).collect();
        windows.extend(spread(count, affordable - windows.len() as u64));
        windows.sort_unstable();
        windows.dedup();
        windows
    }

    /// The first, the middle and the last window of a hole, within the member's data.
    fn windows_of_hole(&self, name: &str, hole: &Range<u64>) -> Vec<u64> {
        let Some((slot, data_at)) = (0..self.core.geometry().slots()).map(Slot).find_map(|slot| {
            let device = self.core.device(slot).filter(|device| device.name == name)?;
            Some((slot, device.data_at()))
        }) else {
            return Vec::new();
        };
        let used = self.core.geometry().used_bytes(slot);
        let (start, end) = (hole.start.saturating_sub(data_at), hole.end.saturating_sub(data_at).min(used));
        if start >= end {
            return Vec::new();
        }
        let position = |at: u64| self.core.personality().position_of(slot, ComponentByte(at));
        let window = |at: u64| position(at).map(|position| position / WINDOW_BYTES);
        [start, start + (end - start) / 2, end - 1].into_iter().filter_map(window).collect()
    }

    /// The groups in each of the windows.
    fn groups(&self, windows: &[u64]) -> Vec<Group> {
        let range = |window: &u64| window * WINDOW_BYTES..(window + 1) * WINDOW_BYTES;
        windows.iter().flat_map(|window| self.core.personality().groups(&range(window))).collect()
    }

    /// The doubtful zeros of one group, in rows.
    async fn doubts_in(&self, group: &Group) -> Vec<DoubtfulZeros> {
        if !self.core.is_agreed(group.array_end, &group.positions()) {
            return Vec::new();
        }
        let reads = group.places.iter().map(async |&(slot, at)| {
            let device = self.core.device(slot).filter(|device| device.is_readable(at..at + group.bytes))?;
            let into = self.core.pool.take(group.bytes as usize);
            let (result, buffer) = device.member.read(device.absolute(ComponentByte(at)), into, Why::Sweep).await;
            result.ok().map(|()| buffer.freeze())
        });
        // With a member absent, nothing contradicts the zeros, or nothing says which member is wrong.
        let blocks: Option<Vec<Block>> = join_all(reads).await.into_iter().collect();
        let Some(blocks) = blocks.filter(|blocks| !self.agrees(group, blocks)) else { return Vec::new() };
        let rows = (0..group.bytes).step_by(ROW_BYTES as usize);
        rows.filter_map(|start| self.doubt_of_row(group, &blocks, start)).collect()
    }

    fn doubt_of_row(&self, group: &Group, blocks: &[Block], start: u64) -> Option<DoubtfulZeros> {
        let end = group.bytes.min(start + ROW_BYTES);
        let row: Vec<Block> = blocks.iter().map(|block| block.slice(start as usize..end as usize)).collect();
        if self.agrees(group, &row) {
            return None;
        }
        let zeros = group.places.iter().zip(&row).filter(|(_, block)| is_zeros(block)).map(|(place, _)| *place);
        let devices: Vec<_> = zeros.filter_map(|(slot, at)| Some((self.core.device(slot)?, at))).collect();
        let (first, at) = devices.first()?;
        Some(DoubtfulZeros {
            at: first.absolute(ComponentByte(at + start)).0,
            bytes: end - start,
            members: devices.iter().map(|(device, _)| device.name.clone()).collect(),
        })
    }

    /// Whether parity matches the data, or all copies are equal.
    fn agrees(&self, group: &Group, blocks: &[Block]) -> bool {
        match &group.stripe {
            Some(stripe) => {
                let (data, parities) = blocks.split_at(usize::from(stripe.data_chunks()));
                let right = self.parity_of(stripe, data);
                right.iter().zip(parities).all(|(right, found)| right[..] == found[..])
            }
            None => blocks.windows(2).all(|pair| pair[0][..] == pair[1][..]),
        }
    }
}

/// Whether a block of a row holds nothing but zeros.
pub(super) fn is_zeros(block: &Block) -> bool {
    block[..] == ZEROS[..block.len()]
}

/// At most `wanted` of `count` numbers, evenly spread, including the first and the last.
fn spread(count: u64, wanted: u64) -> impl Iterator<Item = u64> {
    let steps = wanted.min(count);
    (0..steps).map(move |step| {
        if steps < 2 { 0 } else { (u128::from(step) * u128::from(count - 1) / u128::from(steps - 1)) as u64 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_from_the_first_to_the_last() {
        for (count, wanted, expected) in
            [(0, 5, vec![]), (3, 0, vec![]), (3, 5, vec![0, 1, 2]), (100, 3, vec![0, 49, 99]), (7, 1, vec![0])]
        {
            assert_eq!(spread(count, wanted).collect::<Vec<_>>(), expected, "{count} {wanted}");
        }
        assert_eq!(spread(u64::MAX, 2).last(), Some(u64::MAX - 1));
    }
}
