//! What the file system says of its blocks, held against the members, for all shapes with the same [`Rows`] at once.
//!
//! For each block that is known, it is computed which members hold it at the position that the rows give, and whether
//! the xor of members does, as if one were missing. Only the order of the members and the layout are left open.

use crate::crc::BLOCK;
use crate::ext4;
use crate::outer::{Inner, Map};
use crate::reading::Reader;
use crate::scan::{Scan, Summary};
use crate::seen::{Expected, Finder, Holder, Seen, Walk, Want};
use crate::shape::Rows;
use crate::{btrfs, outer, xfs};
use disk::Source;
use std::collections::HashSet;

/// What was seen at the start of an array: a file system, or what file systems lie in.
#[derive(Debug, Clone)]
pub(crate) struct System {
    pub(crate) base: Base,
    /// The content of the block by which it was seen.
    pub(crate) content: u64,
}

/// What is at the start of an array.
#[derive(Debug, Clone)]
pub(crate) enum Base {
    Inner(Kind),
    Outer(outer::First),
}

/// What a superblock says, by its kind.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Ext4(ext4::Super),
    Xfs(xfs::Super),
    Btrfs(btrfs::Super),
}

impl Kind {
    /// The superblock in `block`, with an age that grows with each change of it.
    pub(crate) fn of(block: &[u8]) -> Option<(Self, u64)> {
        let ext4 = || ext4::Super::of(block).map(|own| (Self::Ext4(own), own.written.into()));
        let xfs = || xfs::Super::of(block).map(|(own, age)| (Self::Xfs(own), age));
        let btrfs = || btrfs::Super::of(block).map(|own| (Self::Btrfs(own.clone()), own.generation));
        ext4().or_else(xfs).or_else(btrfs)
    }

    /// Walks the file system. `seen` is what the pass over the members has seen.
    pub(crate) async fn walk<F: Finder>(&self, seen: &Seen, finder: &mut Inner<'_, F>) -> Walk {
        match self {
            Self::Xfs(found) => {
                let expected = seen.xfs.expected(found, &|place| finder.holder(place));
                Walk { expected, ..Walk::default() }
            }
            Self::Btrfs(found) => found.walk(finder).await,
            Self::Ext4(found) => found.walk(finder).await,
        }
    }

    /// What tells it from others.
    pub(crate) fn id(&self) -> [u8; 16] {
        match self {
            Self::Ext4(found) => found.id,
            Self::Xfs(found) => found.id,
            Self::Btrfs(found) => found.id,
        }
    }

    /// Its length in blocks.
    pub(crate) fn blocks(&self) -> u64 {
        match self {
            Self::Ext4(found) => found.blocks,
            Self::Xfs(found) => found.blocks,
            Self::Btrfs(found) => found.blocks,
        }
    }

    /// The block of its superblock.
    pub(crate) fn super_block(&self) -> u64 {
        match self {
            Self::Ext4(found) => found.super_block(),
            Self::Xfs(found) => found.super_block(),
            Self::Btrfs(found) => found.super_block,
        }
    }

    /// Whether its superblock is a copy.
    pub(crate) fn is_copy(&self) -> bool {
        self.super_block() > btrfs::SUPER_BLOCK
    }
}

impl System {
    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        match &self.base {
            Base::Inner(Kind::Ext4(_)) => "ext4",
            Base::Inner(Kind::Xfs(_)) => "XFS",
            Base::Inner(Kind::Btrfs(_)) => "Btrfs",
            Base::Outer(found) => found.name(),
        }
    }

    /// Its length in blocks, as far as it is known.
    pub(crate) fn blocks(&self) -> u64 {
        match &self.base {
            Base::Inner(kind) => kind.blocks(),
            Base::Outer(found) => found.blocks,
        }
    }

    /// The blocks of the array that shapes are compared in: all, if its length is unknown.
    pub(crate) fn span(&self) -> u64 {
        match &self.base {
            Base::Outer(first) if first.what == outer::What::Luks => u64::MAX / BLOCK as u64,
            _ => self.blocks(),
        }
    }

    /// Whether `other` may be another version of it: what a stale member has in its place.
    pub(crate) fn is_version_of(&self, other: &Self) -> bool {
        match (&self.base, &other.base) {
            (Base::Inner(own), Base::Inner(other)) => {
                own.id() == other.id() && own.super_block() == other.super_block()
            }
            (Base::Outer(own), Base::Outer(other)) => own.what == other.what,
            (Base::Inner(_), Base::Outer(_)) | (Base::Outer(_), Base::Inner(_)) => false,
        }
    }

    /// The block of the array by which it was seen.
    pub(crate) fn first_block(&self) -> u64 {
        match &self.base {
            Base::Inner(kind) => kind.super_block(),
            Base::Outer(_) => 0,
        }
    }
}

/// A known block, and which members hold it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clue {
    /// The block of the file system.
    pub(crate) block: u64,
    /// The members that hold it at the position that the rows give.
    pub(crate) members: u64,
    /// The members that hold it at the positions of its second and third copy.
    pub(crate) copies: [u64; COPIES - 1],
    /// Those of them of which that is not known, as their block cannot be read, or md wrote over it: by copy.
    lost: [u64; COPIES],
    /// Whether the xor of all members is it: what a missing member of RAID-5 holds.
    pub(crate) in_xor: bool,
    /// Whether exceptions are usual.
    pub(crate) is_weak: bool,
    /// Whether it is the end of a file, which a fault of the medium may change.
    pub(crate) is_end: bool,
    /// What held it: if that is an xor, it means something only where a missing member holds that.
    pub(crate) holder: Holder,
    /// The members without which the xor of the others is it: then they hold Q.
    pub(crate) without: u64,
}

/// Copies of RAID-10 that are tried, at most.
const COPIES: usize = 3;

impl Clue {
    /// What is known of a block that these members hold, in the first row or in any, and may be what a missing one holds.
    fn held_by(known: &Expected, members: u64) -> Self {
        Self {
            block: known.block,
            members,
            copies: [members; COPIES - 1],
            lost: [0; COPIES],
            in_xor: true,
            without: u64::MAX,
            is_weak: known.want == Want::Data,
            is_end: matches!(known.want, Want::End(_)),
            holder: known.holder,
        }
    }

    /// Whether a copy was seen on this member; of a missing one, whether the others show that it has it.
    pub(crate) fn is_seen_on(&self, copy: usize, member: Option<usize>) -> bool {
        let lost = self.lost.get(copy).copied().unwrap_or(0);
        member.map_or(lost == 0, |member| lost >> member & 1 == 0)
    }

    /// The members that hold a copy, or may.
    pub(crate) fn holders(&self, copy: usize) -> u64 {
        copy.checked_sub(1).map_or(self.members, |copy| self.copies.get(copy).copied().unwrap_or(u64::MAX))
    }
}

/// Rows with chunk and offset, in blocks, and the members that take part.
pub(crate) struct Frame<'a, S> {
    pub(crate) disks: &'a [S],
    pub(crate) scan: &'a Scan,
    pub(crate) rows: Rows,
    pub(crate) chunk: u64,
    pub(crate) offset: u64,
    /// The members that take part.
    pub(crate) members: &'a [usize],
}

/// Known blocks that are used at most; of more, a part that is spread evenly.
const CLUES_MAX: usize = 6000;
/// A prime number that is longer than any row of members.
const SPREAD: usize = 7919;
/// Positions that are read of all members for the end of a file on a missing one.
const READS_MAX: u32 = 200;
/// Positions that are read of all members for the end of a file that a member may hold, where the rows may be right.
const HELD_READS_MAX: usize = 1000;

/// The clues for one frame.
pub(crate) struct Clues {
    pub(crate) clues: Vec<Clue>,
    /// Blocks that are nowhere.
    pub(crate) nowhere: u64,
    /// Those of them that are ends of files.
    pub(crate) ends_nowhere: u64,
    /// Blocks of files that would be zeros, or end in them, whichever member holds them.
    pub(crate) unusual: u64,
    /// File systems that members have, and that this frame has in no volume.
    pub(crate) missed: u64,
}

impl Clues {
    /// Whether too many blocks are nowhere for these rows.
    pub(crate) fn rule_out(&self) -> bool {
        let is_sure = |clue: &&Clue| !clue.is_weak && clue.holder == Holder::Member;
        let sure = self.clues.iter().filter(is_sure).count() as u64;
        self.nowhere > sure / 50 + u64::from(sure > 9)
    }

    /// Not this frame.
    fn none() -> Self {
        Self { clues: Vec::new(), nowhere: u64::MAX, ends_nowhere: 0, unusual: 0, missed: 0 }
    }
}

impl<S: Source> Frame<'_, S> {
    fn position(&self, block: u64) -> u64 {
        self.offset + self.rows.position(block, self.chunk)
    }

    /// The positions of a block's copies.
    pub(crate) fn positions(&self, block: u64) -> impl Iterator<Item = u64> {
        self.rows.positions(block, self.chunk).map(|at| self.offset + at)
    }

    /// Collects the clues.
    pub(crate) async fn clues(&self, system: &System) -> Clues {
        // The latest superblock is at its place, or this is a view of the file system as it was before.
        let own = Expected::new(system.first_block(), Want::Content(system.content));
        if !matches!(self.clue(own, &mut 0).await, Look::Clue(_)) {
            return Clues::none();
        }
        let mut reader = Reader::new(self);
        let walk = match &system.base {
            Base::Inner(kind) => {
                let mut inner = Inner { map: &Map::whole(), finder: &mut reader };
                kind.walk(&self.scan.seen, &mut inner).await
            }
            Base::Outer(first) => first.walk(&self.scan.seen, &mut reader).await,
        };
        if walk.is_wrong {
            return Clues::none();
        }
        let (mut expected, mut nowhere) = (walk.expected, walk.lost.len() as u64);
        expected.push(own);
        expected.sort_by_key(|expected| expected.block);
        let (weak, sure): (Vec<_>, Vec<_>) = expected.into_iter().partition(|expected| expected.want == Want::Data);
        let (ends, sums): (Vec<_>, Vec<_>) = sure.into_iter().partition(|own| matches!(own.want, Want::End(_)));
        let mut ends_nowhere = 0;
        let (mut clues, mut unusual, mut open, mut absent) = (Vec::new(), 0, Vec::new(), HashSet::new());
        let mut reads = READS_MAX;
        for (expected, is_certain) in [(sums, true), (walk.likely, false), (ends, true), (weak, true)] {
            // One of each group, and not always the same one: every sixth block might be on the same of six members.
            let step = expected.len().div_ceil(CLUES_MAX).max(1);
            let groups = expected.chunks(step).enumerate();
            for known in groups.map(|(number, group)| &group[number.wrapping_mul(SPREAD) % group.len()]) {
                if known.by.is_some_and(|by| absent.contains(&by)) {
                    continue;
                }
                match self.clue(*known, &mut reads).await {
                    Look::Clue(clue) => {
                        let end = match known.want {
                            Want::End(end) if clue.members != 0 && clue.lost == [0; COPIES] => Some(end),
                            Want::End(_) | Want::Sum(_) | Want::Content(_) | Want::Data => None,
                        };
                        open.extend(end.map(|end| (clues.len(), end)));
                        clues.push(clue);
                    }
                    Look::Nowhere if known.holder != Holder::Member || !is_certain => {}
                    Look::Nowhere => {
                        absent.insert(known.block);
                        nowhere += 1;
                        ends_nowhere += u64::from(matches!(known.want, Want::End(_)));
                    }
                    Look::Zeros => unusual += 1,
                    Look::Unknown => {}
                }
            }
        }
        let mut found = Clues { clues, nowhere, ends_nowhere, unusual, missed: walk.missed };
        if matches!(self.rows, Rows::Striped(_)) && !found.rule_out() {
            for (index, end) in open.iter().step_by(open.len().div_ceil(HELD_READS_MAX).max(1)) {
                let clue = &mut found.clues[*index];
                (clue.in_xor, clue.without) =
                    self.end_in_xor(self.position(clue.block), *end).await.unwrap_or((true, u64::MAX));
            }
        }
        found
    }

    /// Looks for a block. With copies in several rows, one of them has to be there; else a missing member may hold it.
    async fn clue(&self, known: Expected, reads: &mut u32) -> Look {
        if matches!(self.rows, Rows::Striped(_)) {
            return self.clue_of_row(known, reads).await;
        }
        let (mut holders, mut lost) = ([u64::MAX; COPIES], [0; COPIES]);
        let (mut shortest, mut is_seen) = (u16::MAX, false);
        for ((holders, lost), at) in holders.iter_mut().zip(&mut lost).zip(self.positions(known.block)) {
            *holders = 0;
            for member in self.members.iter().filter(|member| at < self.scan.lengths[**member]) {
                match self.scan.summary(*member, at) {
                    None => *lost |= 1 << member,
                    Some(summary) if summary.is(known.want) => *holders |= 1 << member,
                    Some(summary) => shortest = shortest.min(summary.end),
                }
            }
            is_seen |= *holders != 0;
            *holders |= *lost;
        }
        if !is_seen && lost.iter().any(|lost| *lost != 0) {
            return Look::Unknown;
        }
        match (!is_seen, known.want) {
            (true, Want::Sum(_) | Want::Content(_)) => Look::Nowhere,
            (true, Want::End(_)) if shortest > 0 => Look::Nowhere,
            (true, Want::Data | Want::End(_)) => Look::Zeros,
            (false, _) => {
                let [members, copies @ ..] = holders;
                Look::Clue(Clue { copies, lost, in_xor: false, without: 0, ..Clue::held_by(&known, members) })
            }
        }
    }

    async fn clue_of_row(&self, known: Expected, reads: &mut u32) -> Look {
        let at = self.position(known.block);
        let (mut summaries, mut lost) = (Vec::new(), 0);
        for member in self.members {
            match self.scan.summary(*member, at) {
                Some(summary) => summaries.push((*member, summary)),
                None if at >= self.scan.lengths[*member] => {}
                None => lost |= 1 << member,
            }
        }
        let holding = |is: &dyn Fn(&Summary) -> bool| {
            summaries.iter().filter(|(_, summary)| is(summary)).fold(0, |mask, (member, _)| mask | 1 << member)
        };
        let members = holding(&|summary| summary.is(known.want));
        if lost != 0 {
            // A lost block, or that of a missing member, may be it, too. Where nothing else is it, that is no news.
            let clue = Clue { lost: [lost; COPIES], ..Clue::held_by(&known, members | lost) };
            return if members == 0 { Look::Unknown } else { Look::Clue(clue) };
        }
        let xor = summaries.iter().fold(0, |all, (_, summary)| all ^ summary.content());
        match known.want {
            Want::Sum(_) | Want::Content(_) => {
                let without = holding(&|summary| known.want.is_content(xor ^ summary.content()));
                let in_xor = known.want.is_content(xor);
                match members | without {
                    0 if !in_xor => Look::Nowhere,
                    _ => Look::Clue(Clue { in_xor, without, ..Clue::held_by(&known, members) }),
                }
            }
            Want::Data if members == 0 => Look::Zeros,
            Want::Data => Look::Clue(Clue { in_xor: xor != 0, ..Clue::held_by(&known, members) }),
            // Whether a missing member could hold it too is open here.
            Want::End(_) if members != 0 => Look::Clue(Clue::held_by(&known, members)),
            // The file may end with zeros.
            Want::End(_) if summaries.iter().any(|(_, summary)| summary.end == 0) => Look::Zeros,
            Want::End(_) if *reads == 0 => Look::Unknown,
            Want::End(end) => {
                *reads -= 1;
                match self.end_in_xor(at, end).await {
                    None => Look::Unknown,
                    Some((false, 0)) => Look::Nowhere,
                    Some((in_xor, without)) => Look::Clue(Clue { in_xor, without, ..Clue::held_by(&known, 0) }),
                }
            }
        }
    }

    /// Looks for the end of a file in the xor of all members, and in the xor without each: the members without which it
    /// is there. `None` if a member cannot be read.
    async fn end_in_xor(&self, at: u64, end: u16) -> Option<(bool, u64)> {
        let mut xor = vec![0; BLOCK];
        let mut blocks = Vec::new();
        for member in self.members {
            let Ok(bytes) = self.disks[*member].read(at * BLOCK as u64, BLOCK).await else { return None };
            add(&mut xor, &bytes);
            blocks.push((*member, bytes));
        }
        let is_end = |bytes: &[u8]| bytes[usize::from(end)..].iter().all(|byte| *byte == 0);
        let without = blocks.iter().fold(0, |mask, (member, bytes)| {
            let mut rest = xor.clone();
            add(&mut rest, bytes);
            if is_end(&rest) { mask | 1 << member } else { mask }
        });
        Some((is_end(&xor), without))
    }
}

/// What became of a known block.
enum Look {
    Clue(Clue),
    Nowhere,
    /// It would be zeros, or end in zeros.
    Zeros,
    Unknown,
}

fn add(to: &mut [u8], bytes: &[u8]) {
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to ^= byte);
}
