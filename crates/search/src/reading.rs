//! Reads blocks of the file system while only the rows are known, and not the order of the members.
//!
//! The file system says how a block is recognized. It is looked for on each member, and in what a missing member would
//! hold. A tree block of Btrfs is longer than a small chunk, so that its parts are on several members. Its CRC tells
//! which: a CRC is linear, so no part has to be read before they are known.

use crate::crc::{BLOCK, behind};
use crate::evidence::Frame;
use crate::seen::{Finder, Holder, Node, Place};
use crate::shape::Rows;
use disk::Source;
use std::collections::{HashMap, HashSet};

/// What may be a block: the xor of what these members hold at a position. Of one member, what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice {
    at: u64,
    members: u64,
}

/// Combinations of parts of a tree block that are tried, at most.
const COMBINATIONS_MAX: usize = 200_000;

/// Finds blocks of metadata on the members, or in the xor of them.
pub(crate) struct Reader<'a, 'b, S> {
    frame: &'a Frame<'b, S>,
    /// Blocks that were read, by member and position.
    read: HashMap<(usize, u64), Vec<u8>>,
}

/// Blocks that are kept.
const KEPT_MAX: usize = 4096;

impl<'a, 'b, S: Source> Reader<'a, 'b, S> {
    pub(crate) fn new(frame: &'a Frame<'b, S>) -> Self {
        Self { frame, read: HashMap::new() }
    }

    /// All that may be `block`: what each member holds at a position of a copy, and what a missing one would hold.
    fn choices(&self, block: u64) -> Vec<Choice> {
        let Frame { scan, rows, members, .. } = self.frame;
        let mut choices = Vec::new();
        for at in self.frame.positions(block) {
            let there: Vec<u64> =
                members.iter().filter(|member| at < scan.lengths[**member]).map(|member| 1 << member).collect();
            choices.extend(there.iter().map(|members| Choice { at, members: *members }));
            if matches!(rows, Rows::Striped(_)) && there.len() > 1 {
                let all: u64 = there.iter().sum();
                choices.push(Choice { at, members: all });
                choices.extend(there.iter().filter(|_| there.len() > 2).map(|one| Choice { at, members: all ^ one }));
            }
        }
        choices
    }

    async fn bytes(&mut self, choice: Choice) -> Option<Vec<u8>> {
        let mut xor = vec![0; BLOCK];
        for member in self.frame.members.iter().filter(|member| choice.members >> **member & 1 == 1) {
            if self.frame.scan.is_lost(*member, choice.at) {
                return None; // nor is a failing disk asked again
            }
            if self.read.len() > KEPT_MAX {
                self.read.clear();
            }
            let key = (*member, choice.at);
            if !self.read.contains_key(&key) {
                let bytes = self.frame.disks[*member].read(choice.at * BLOCK as u64, BLOCK).await.ok()?;
                self.read.insert(key, bytes);
            }
            xor.iter_mut().zip(&self.read[&key]).for_each(|(xor, byte)| *xor ^= byte);
        }
        Some(xor)
    }

    /// The sum of what `choice` holds, if all of it was read in the pass over the members.
    fn sum(&self, choice: Choice) -> Option<u32> {
        self.content(choice).map(|content| content as u32)
    }

    /// The content of what `choice` holds, if all of it was read in the pass over the members.
    fn content(&self, choice: Choice) -> Option<u64> {
        let members = self.frame.members.iter().filter(|member| choice.members >> **member & 1 == 1);
        let mut summaries = members.map(|member| self.frame.scan.summary(*member, choice.at));
        summaries.try_fold(0, |all, own| Some(all ^ own?.content()))
    }

    /// The choices for the blocks of a chunk: each is one of [`Reader::choices`] for all of them, as they are on one
    /// member. With the sum of these blocks, each moved to its place before the node's end.
    fn joint(&self, blocks: std::ops::Range<u64>, end: u64) -> Vec<(Vec<Choice>, u32)> {
        let each: Vec<Vec<Choice>> = blocks.clone().map(|block| self.choices(block)).collect();
        let count = each.iter().map(Vec::len).min().unwrap_or(0);
        let of = |index: usize| {
            let choices: Vec<Choice> = each.iter().map(|choices| choices[index]).collect();
            let sums = choices.iter().zip(blocks.clone());
            let mut sum = sums.map(|(choice, block)| Some(behind(self.sum(*choice)?, end - block - 1)));
            let sum = sum.try_fold(0, |all, own: Option<u32>| Some(all ^ own?))?;
            Some((choices, sum))
        };
        (0..count).filter_map(of).collect()
    }

    /// The only content that the CRC of a tree block allows behind its first block, as the choice for each block.
    fn parts(&self, first: u64, blocks: u64, head: Choice, wanted: u32) -> Option<Vec<Choice>> {
        let (end, chunk) = (first + blocks, self.frame.chunk);
        let mut groups = Vec::new();
        let mut from = first;
        while from < end {
            let to = ((from / chunk + 1) * chunk).min(end);
            let mut joint = self.joint(from..to, end);
            if from == first {
                // The first block is known, and the others of its chunk are beside it.
                joint.retain(|(choices, _)| choices[0] == head);
                let own = self.sum(head)?;
                joint.iter_mut().for_each(|(_, sum)| *sum ^= behind(own, blocks - 1));
            }
            groups.push(joint);
            from = to;
        }
        let combinations = groups.iter().try_fold(1_usize, |all, group| all.checked_mul(group.len()))?;
        if combinations > COMBINATIONS_MAX {
            return None;
        }
        let mut found: Option<(Vec<Choice>, Vec<Option<u32>>)> = None;
        for mut number in 0..combinations {
            let (mut sum, mut picks) = (0, Vec::with_capacity(groups.len()));
            for group in &groups {
                let pick = number % group.len();
                number /= group.len();
                sum ^= group[pick].1;
                picks.push(pick);
            }
            if sum != wanted {
                continue;
            }
            let choices: Vec<Choice> =
                groups.iter().zip(picks).flat_map(|(group, pick)| group[pick].0.iter().copied()).collect();
            let sums = choices.iter().map(|choice| self.sum(*choice)).collect();
            match &found {
                Some((_, other)) if *other != sums => return None,
                Some(_) => {}
                None => found = Some((choices, sums)),
            }
        }
        Some(found?.0)
    }
}

impl<S: Source> Finder for Reader<'_, '_, S> {
    fn knows(&self, block: u64) -> bool {
        let Frame { scan, members, .. } = self.frame;
        self.frame.positions(block).all(|at| members.iter().all(|member| !scan.is_lost(*member, at)))
    }

    fn holder(&self, place: Place) -> Option<Holder> {
        let Frame { scan, members, .. } = self.frame;
        let (is_whole, is_in) = (members.len() == scan.lengths.len(), members.contains(&place.disk));
        let is_left_out = members.len() + 1 == scan.lengths.len() && !is_in;
        match place.holder {
            Holder::Member if is_in => Some(Holder::Member),
            Holder::Xor | Holder::XorWithoutOne if is_whole => Some(place.holder),
            // The xor without the only member that is left out is that of all others. Where these agree with it, it is what
            // that member holds.
            Holder::XorWithoutOne if is_left_out => Some(Holder::Xor),
            Holder::Member if is_left_out && scan.agrees(place.at) => Some(Holder::Xor),
            Holder::Member | Holder::Xor | Holder::XorWithoutOne => None,
        }
    }

    async fn find(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        // No block that is looked for is all zeros, and what is not right is not looked at again.
        let mut tried = HashSet::from([0]);
        for choice in self.choices(block) {
            if self.content(choice).is_some_and(|content| !tried.insert(content)) {
                continue;
            }
            let bytes = self.bytes(choice).await;
            if let Some(bytes) = bytes.filter(|bytes| is_right(bytes)) {
                return Some(bytes);
            }
        }
        None
    }

    async fn find_all(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let (mut found, mut tried) = (Vec::new(), HashSet::new());
        for choice in self.choices(block) {
            if self.content(choice).is_some_and(|content| !tried.insert(content)) {
                continue;
            }
            let bytes = self.bytes(choice).await;
            found.extend(bytes.filter(|bytes| is_right(bytes) && !found.contains(bytes)));
        }
        found
    }

    async fn find_node(&mut self, first: u64, blocks: u64, node: &dyn Fn(&[u8]) -> Option<Node>) -> Option<Vec<u8>> {
        let mut tried = HashSet::new();
        for head in self.choices(first) {
            let Some(bytes) = self.bytes(head).await else { continue };
            let Some(Node { stored, register }) = node(&bytes).filter(|_| tried.insert((head.at, head.members))) else {
                continue;
            };
            // The register behind the whole block is what the file system stores, and what the first block left in it
            // is moved by the others.
            let wanted = !stored ^ behind(register, blocks - 1);
            let Some(parts) = self.parts(first, blocks, head, wanted) else { continue };
            let mut found = bytes;
            for part in &parts[1..] {
                found.extend(self.bytes(*part).await?);
            }
            return Some(found);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::raw;
    use crate::memory::{Memory, numbers};
    use crate::scan::Scan;
    use futures_util::FutureExt;

    /// Rows of random chunks with their xor on the last member, and the blocks of the array.
    fn striped(data: u64, chunk: u64, rows: u64, seed: u64) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut random = numbers(seed);
        let mut members = vec![Vec::new(); data as usize + 1];
        let mut blocks = vec![Vec::new(); (data * chunk * rows) as usize];
        for at in 0..rows * chunk {
            let mut xor = vec![0_u8; BLOCK];
            for member in 0..data {
                // Blocks of zeros are the rule behind the end of a tree block's items.
                let is_empty = random().is_multiple_of(4);
                let block: Vec<u8> = (0..BLOCK).map(|_| if is_empty { 0 } else { random() as u8 }).collect();
                xor.iter_mut().zip(&block).for_each(|(xor, byte)| *xor ^= byte);
                members[member as usize].extend(&block);
                blocks[((at / chunk * data + member) * chunk + at % chunk) as usize] = block;
            }
            members[data as usize].extend(xor);
        }
        (members, blocks)
    }

    #[test]
    fn a_tree_block_is_found_in_its_parts_with_all_members_and_with_any_one_missing() {
        for (seed, (data, chunk, node)) in (1..).zip([(3, 1, 4), (5, 1, 4), (4, 2, 4), (3, 8, 4), (5, 1, 1), (2, 2, 8)])
        {
            let (members, blocks) = striped(data, chunk, 64 / chunk, seed);
            for missing in 0..=members.len() {
                let present: Vec<Memory> = members
                    .iter()
                    .enumerate()
                    .filter(|(number, _)| *number != missing)
                    .map(|(_, member)| Memory(member.clone()))
                    .collect();
                let scan = Scan::of(&present, 1 << 30, &|_, _| {}).now_or_never().expect("memory answers at once");
                let all: Vec<usize> = (0..present.len()).collect();
                let rows = Rows::Striped(data);
                let frame = Frame { disks: &present, scan: &scan, rows, chunk, offset: 0, members: &all };
                let mut reader = Reader::new(&frame);
                for first in (0..blocks.len() as u64 - node).step_by(node as usize * 3) {
                    let content = blocks[first as usize..(first + node) as usize].concat();
                    let stored = !raw(!0, &content[32..]);
                    let head = |block: &[u8]| {
                        (*block == content[..BLOCK]).then(|| Node { stored, register: raw(!0, &block[32..]) })
                    };
                    let found = reader.find_node(first, node, &head).now_or_never().expect("memory answers at once");
                    assert!(found.as_ref() == Some(&content), "{data}, {chunk}, {node}, {missing}, {first}");
                    let other = |block: &[u8]| head(block).map(|own| Node { stored: own.stored ^ 1, ..own });
                    let found = reader.find_node(first, node, &other).now_or_never().expect("memory answers at once");
                    assert!(found.is_none(), "no parts have this CRC: {data}, {chunk}, {node}, {missing}, {first}");
                }
            }
        }
    }

    #[test]
    fn what_was_seen_on_a_member_that_is_left_out_counts_only_where_the_others_agree_with_it() {
        let (mut members, _) = striped(2, 1, 4, 9);
        members[2][BLOCK..2 * BLOCK].fill(7); // stale at block 1
        let disks: Vec<Memory> = members.into_iter().map(Memory).collect();
        let scan = Scan::of(&disks, 1 << 30, &|_, _| {}).now_or_never().expect("memory answers at once");
        let holder = |members: &[usize], holder: Holder, disk: usize, at: u64| {
            let frame = Frame { disks: &disks, scan: &scan, rows: Rows::Striped(2), chunk: 1, offset: 0, members };
            Reader::new(&frame).holder(Place { holder, disk, at })
        };
        for kind in [Holder::Member, Holder::Xor, Holder::XorWithoutOne] {
            assert_eq!(holder(&[0, 1, 2], kind, 2, 1), Some(kind));
        }
        for (kind, disk, at, expected) in [
            (Holder::Member, 0, 1, Some(Holder::Member)),
            (Holder::Member, 2, 0, Some(Holder::Xor)),
            (Holder::Member, 2, 1, None),
            (Holder::Xor, 0, 0, None),
            (Holder::XorWithoutOne, 2, 1, Some(Holder::Xor)),
            (Holder::XorWithoutOne, 0, 1, None),
        ] {
            assert_eq!(holder(&[0, 1], kind, disk, at), expected, "{kind:?} {disk} {at}");
        }
        assert_eq!(holder(&[0], Holder::XorWithoutOne, 2, 0), None, "of two missing ones nothing is known");
    }
}
