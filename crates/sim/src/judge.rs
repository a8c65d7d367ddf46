//! What md would make of the members in their present state, and whether that is legal.
//!
//! md's rules of assembly are stated here anew and not taken from the engine. The greatest event count wins, and
//! members one event behind it are accepted too. For such a member, older kernels use the role in its own superblock
//! and newer ones the role in the freshest superblock, so both must be right. md reads the bitmap of any member that is
//! in sync; a bitmap older than the superblock counts as all set. Unless the array is clean, md resyncs it from the
//! resync offset on, and with a bitmap only where bits are set.
//!
//! Then each sector is checked ([`crate::rows`], [`Truth`]):
//! * an accepted member's data is legal on its own, except where its bad-block log lists it;
//! * copies are equal, P is the sum and Q the syndrome of the data, both where no write is in doubt and where md would
//!   not resync;
//! * data of a missing member that md would reconstruct from P is legal.
//!
//! md replays the partial parity logs of an array that is not clean. So nothing then needs a resync: parity agrees
//! everywhere, also while any one member is missing. Such a member's data is legal, except in blocks with a write in
//! doubt, which may hold anything. It replays the write journal whenever it starts an array. After that, such a member's
//! data is legal without an exception.
//!
//! md reads a replacement up to its recovery offset. If there is one, everything is checked twice: with the replaced
//! member in the slot, and with the replacement.
//!
//! Facts: `drivers/md/md.c` (`super_1_validate`, `analyze_sbs`), `md-bitmap.c`
//! (`md_bitmap_read_sb`, `read_sb_page`), md(4).

use crate::journal::{self, Blocks};
use crate::parity_log::Log;
use crate::rows::{Row, SECTOR_BYTES};
use crate::truth::{Look, Truth};
use format::bad_blocks;
use format::bitmap::{self, BitmapSuper, SUPER_BYTES, State};
use format::geometry::{Geometry, Parity};
use format::superblock::{DeviceRole, Resync, Superblock, decode, places};
use format::units::{ComponentByte, Sectors, Slot};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// How much of its data a member is current for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    All,
    /// Component bytes below this one.
    Below(u64),
    /// Everything that its bitmap does not list.
    ByBitmap,
}

/// A member that md would accept in a slot.
#[derive(Clone)]
struct Accepted<'a> {
    number: usize,
    image: &'a [u8],
    data_at: usize,
    current: Current,
    bitmap: Option<Bits<'a>>,
    /// Ranges of its component that the bad-block log lists.
    bad: Vec<Range<u64>>,
    log: Option<Log>,
    /// By component byte: sectors that a replay of the log wrote.
    replayed: BTreeMap<u64, Vec<u8>>,
}

/// A bitmap that md would use.
#[derive(Clone)]
struct Bits<'a> {
    header: BitmapSuper,
    map: &'a [u8],
}

impl Bits<'_> {
    fn is_set(&self, covered: u64) -> bool {
        let mut bits = self.header.bits_of(covered..covered + SECTOR_BYTES as u64);
        bits.any(|bit| bitmap::is_set(self.map, bit))
    }
}

impl Accepted<'_> {
    fn sector(&self, at: ComponentByte) -> &[u8] {
        if let Some(replayed) = self.replayed.get(&at.0) {
            return replayed;
        }
        let start = self.data_at + at.0 as usize;
        &self.image[start..start + SECTOR_BYTES]
    }

    fn is_current(&self, at: ComponentByte, covered: u64) -> bool {
        if self.bad.iter().any(|bad| bad.start < at.0 + SECTOR_BYTES as u64 && at.0 < bad.end) {
            return false;
        }
        match self.current {
            Current::All => true,
            Current::Below(end) => at.0 + SECTOR_BYTES as u64 <= end,
            Current::ByBitmap => self.bitmap.as_ref().is_some_and(|bits| !bits.is_set(covered)),
        }
    }
}

/// One array that md might start.
#[derive(Clone)]
struct Verdict<'a> {
    /// The bitmap file, if there is a valid one.
    file: Option<Rc<Bits<'a>>>,
    slots: Vec<Option<Rc<Accepted<'a>>>>,
    /// Where md's resync begins; `None` when the array is clean.
    resync: Option<u64>,
    /// The log that md replays before it uses the array.
    log: Option<Logged<'a>>,
}

/// A log against the write hole.
#[derive(Clone)]
enum Logged<'a> {
    /// The members' partial parity logs, of an array with this geometry.
    PartialParity(Parity),
    /// The write journal, as the blocks that it gives the members.
    Journal(Rc<Blocks<'a>>),
}

/// Judges members with these contents, and the bitmap file.
///
/// With `is_any_replaced`, two members may claim one slot, and both must be legal: older kernels take the one that
/// comes last. `unread` marks rows that could not be read while a resync was pending. There, a write may only have been
/// possible as a read-modify-write, which leaves wrong parity wrong until the resync. `block_bytes` is what members
/// write at least.
///
/// # Errors
/// What md would accept although it is illegal, in words.
pub fn judge(
    images: &[&[u8]],
    file: Option<&[u8]>,
    rows: &[Row],
    truth: &Truth,
    unread: &[bool],
    is_any_replaced: bool,
    block_bytes: usize,
) -> Result<(), String> {
    let check = |verdict: &Verdict<'_>| {
        let mut rows = rows.iter().zip(unread);
        rows.try_for_each(|(row, unread)| verdict.check_row(row, truth, *unread, block_bytes))
    };
    for verdict in assemble(images, file, is_any_replaced)? {
        if verdict.log.is_none() {
            check(&verdict)?;
        }
        for lost in verdict.losses() {
            check(&verdict.replayed_without(lost)?).map_err(|why| match lost {
                None => format!("after a replay of the logs: {why}"),
                Some(lost) => format!("after a replay of the logs without slot {lost}: {why}"),
            })?;
        }
    }
    Ok(())
}

/// The superblock that mdadm would find: of all places, the one created last.
pub(crate) fn superblock(number: usize, image: &[u8]) -> Result<Superblock, String> {
    let mut found: Option<Superblock> = None;
    let mut wrong = None;
    for (version, at) in places(image.len() as u64) {
        let bytes = &image[at.0 as usize..image.len().min(at.0 as usize + 4096)];
        match decode(version, at, bytes, image.len() as u64) {
            Ok(None) => {}
            Ok(Some(other)) if found.as_ref().is_some_and(|found| found.created >= other.created) => {}
            Ok(other) => found = other,
            Err(defect) => wrong = Some(defect),
        }
    }
    found.ok_or_else(|| format!("member {number}: md finds no superblock: {wrong:?}"))
}

/// Whether one of the `offered` members is as new as the newest member.
pub fn is_newest_among(images: &[&[u8]], offered: &[bool]) -> bool {
    let events = |(number, image): (usize, &&[u8])| superblock(number, image).map_or(0, |found| found.events);
    let events: Vec<u64> = images.iter().enumerate().map(events).collect();
    let newest = events.iter().max();
    events.iter().zip(offered).any(|(events, offered)| *offered && Some(events) == newest)
}

/// The arrays that md might start: with the members of the slots, and with their replacements.
fn assemble<'a>(
    images: &[&'a [u8]],
    file: Option<&'a [u8]>,
    is_any_replaced: bool,
) -> Result<Vec<Verdict<'a>>, String> {
    let superblocks: Vec<Superblock> =
        images.iter().enumerate().map(|(number, image)| superblock(number, image)).collect::<Result<_, _>>()?;
    // Of equal ones md takes the first; what the members say is judged.
    let age = |own: &&Superblock| (own.events, own.own_role() != DeviceRole::Journal);
    let freshest = superblocks.iter().max_by_key(age).ok_or("no member is left")?;
    let mut slots: Vec<Option<Rc<Accepted<'a>>>> = (0..freshest.raid_disks).map(|_| None).collect();
    let mut successors = slots.clone();
    for (number, (own, image)) in superblocks.iter().zip(images).enumerate() {
        if own.events + 1 < freshest.events {
            continue;
        }
        for role in [own.own_role(), freshest.role(own.device_number)] {
            let DeviceRole::Active(slot) = role else { continue };
            let row = if own.replacement { &mut successors } else { &mut slots };
            let seat = row.get_mut(slot.index()).ok_or_else(|| format!("member {number}: there is no slot {slot}"))?;
            let claimant = Rc::new(accept(number, own, freshest, image)?);
            match seat {
                // Two members may claim the slot until every superblock records the replacement, or the failure of the
                // replaced member.
                Some(other) if other.number != number && is_any_replaced => successors[slot.index()] = Some(claimant),
                Some(other) if other.number != number => {
                    return Err(format!("members {} and {number} both claim slot {slot}", other.number));
                }
                _ => *seat = Some(claimant),
            }
        }
    }
    let same_age = || superblocks.iter().filter(|superblock| superblock.events == freshest.events);
    let resyncs = same_age().map(|superblock| match superblock.resync {
        Resync::Clean => None,
        Resync::From(sectors) => Some(sectors.bytes()),
    });
    // md uses the first of these superblocks that it reads, so the one that trusts most is judged.
    let resync = resyncs.map(|resync| resync.unwrap_or(u64::MAX)).max().filter(|&offset| offset != u64::MAX);
    // md then refuses to start the array. If only some of the newest name a log, it depends on their order.
    if same_age().all(|superblock| superblock.ppl.is_some())
        && let Some(without) = slots.iter().chain(&successors).flatten().find(|member| member.log.is_none())
    {
        return Err(format!("md may expect a partial parity log, but member {} has none", without.number));
    }
    let journal = journal(&superblocks, images, freshest)?;
    let file = file.filter(|_| freshest.bitmap.is_none()).and_then(|bytes| bitmap_file(bytes, freshest)).map(Rc::new);
    let log = match Geometry::new(&freshest.shape(&[])) {
        Ok(Geometry::Parity(parity)) if freshest.ppl.is_some() && resync.is_some() => {
            Some(Logged::PartialParity(parity))
        }
        Ok(Geometry::Parity(parity)) => match journal {
            Some((own, image)) => Some(Logged::Journal(Rc::new(journal::replayed(image, own, &parity)?))),
            None => None,
        },
        _ => None,
    };
    let verdict = |slots| Verdict { file: file.clone(), slots, resync, log: log.clone() };
    let changed = successors.iter().zip(&slots).map(|(new, old)| new.clone().or_else(|| old.clone())).collect();
    let is_any = successors.iter().any(Option::is_some);
    Ok([Some(slots), is_any.then_some(changed)].into_iter().flatten().map(verdict).collect())
}

/// The journal of an array that has one, with its image. While it has, the superblocks call the array clean.
fn journal<'s, 'a>(
    superblocks: &'s [Superblock],
    images: &[&'a [u8]],
    freshest: &Superblock,
) -> Result<Option<(&'s Superblock, &'a [u8])>, String> {
    let members = || superblocks.iter().filter(|own| own.own_role() != DeviceRole::Journal);
    if !freshest.journal {
        return Ok(None);
    }
    if members().all(|own| own.events + 1 < freshest.events) {
        return Err("md would accept no member: the journal has left all behind".to_owned());
    }
    if let Some(own) = members().find(|own| own.events == freshest.events && !own.journal) {
        return Err(format!("md may start without the journal: device {} names none", own.device_number.0));
    }
    if members().any(|own| own.events == freshest.events && own.resync != Resync::Clean) {
        return Err("an array with a journal is dirty".to_owned());
    }
    let is_named = |own: &Superblock| {
        own.own_role() == DeviceRole::Journal && freshest.role(own.device_number) == DeviceRole::Journal
    };
    let mut found =
        superblocks.iter().zip(images).filter(|(own, _)| is_named(own) && own.events + 1 >= freshest.events);
    let (own, image) = found.next().ok_or("md would refuse the array: its journal is not there, or stale")?;
    Ok(Some((own, image)))
}

/// The bitmap file. mdadm refuses a file whose header belongs to another array, and goes on without it.
fn bitmap_file<'a>(bytes: &'a [u8], freshest: &Superblock) -> Option<Bits<'a>> {
    let header = BitmapSuper::decode(bytes, bytes.len() as u64).ok()?;
    let map = &bytes[SUPER_BYTES..SUPER_BYTES + header.bits().div_ceil(8) as usize];
    let counts = header.events >= freshest.events && !header.state.contains(State::STALE);
    counts.then_some(Bits { header, map })
}

fn accept<'a>(number: usize, own: &Superblock, freshest: &Superblock, image: &'a [u8]) -> Result<Accepted<'a>, String> {
    let current = match own.recovery_offset {
        _ if own.recovery_from_bitmap => Current::ByBitmap,
        Some(offset) => Current::Below(offset.bytes()),
        None => Current::All,
    };
    let bitmap = match own.bitmap_at() {
        None => None,
        Some(at) => {
            let room = own.bitmap_room(image.len() as u64).unwrap_or(0);
            let header = BitmapSuper::decode(&image[at.0 as usize..], room)
                .map_err(|defect| format!("member {number}: md would refuse its bitmap: {defect:?}"))?;
            let start = at.0 as usize + SUPER_BYTES;
            let map = &image[start..start + header.bits().div_ceil(8) as usize];
            let counts = header.events >= freshest.events && !header.state.contains(State::STALE);
            counts.then_some(Bits { header, map })
        }
    };
    let bad = match (own.bad_blocks.filter(|log| log.in_use), own.bad_blocks_at()) {
        (Some(log), Some(at)) => {
            let bytes = &image[at.0 as usize..at.0 as usize + usize::from(log.sectors) * SECTOR_BYTES];
            let bad = bad_blocks::decode(bytes, log.shift)
                .map_err(|defect| format!("member {number}: md would refuse its bad-block log: {defect:?}"))?;
            let place = |sectors: Sectors| sectors.bytes().saturating_sub(own.data_at().0);
            bad.iter().map(|bad| place(bad.first)..place(Sectors(bad.first.0 + bad.count.0))).collect()
        }
        _ => Vec::new(),
    };
    let (data_at, log) = (own.data_at().0 as usize, Log::of(own));
    Ok(Accepted { number, image, data_at, current, bitmap, bad, log, replayed: BTreeMap::new() })
}

impl<'a> Verdict<'a> {
    /// The losses before a replay of the logs: none, and each member of a complete array.
    fn losses(&self) -> Vec<Option<usize>> {
        let is_whole = self.slots.iter().all(Option::is_some);
        match &self.log {
            None => Vec::new(),
            Some(_) if is_whole => std::iter::once(None).chain((0..self.slots.len()).map(Some)).collect(),
            Some(_) => vec![None],
        }
    }

    /// The array after a replay of its log, with the member in `lost` missing.
    fn replayed_without(&self, lost: Option<usize>) -> Result<Self, String> {
        let mut replayed = self.clone();
        if let Some(lost) = lost {
            replayed.slots[lost] = None;
        }
        match &self.log {
            None => Ok(replayed),
            Some(Logged::Journal(blocks)) => {
                replayed.put(blocks);
                Ok(replayed)
            }
            Some(Logged::PartialParity(parity)) => replayed.with_parity_of_logs(parity),
        }
    }

    /// Writes a journal's blocks to the members that are there.
    fn put(&mut self, blocks: &Blocks<'_>) {
        for ((slot, at), block) in blocks {
            let Some(member) = &mut self.slots[slot.index()] else { continue };
            let sectors = (*at..).step_by(SECTOR_BYTES).zip(block.chunks(SECTOR_BYTES));
            Rc::make_mut(member).replayed.extend(sectors.map(|(at, sector)| (at, sector.to_vec())));
        }
    }

    /// The array after a replay of its partial parity logs. Nothing is resynced any more.
    fn with_parity_of_logs(self, parity: &Parity) -> Result<Self, String> {
        let mut replayed = self;
        replayed.resync = None;
        for index in 0..replayed.slots.len() {
            let Some(member) = replayed.slots[index].clone() else { continue };
            let Some(log) = &member.log else { return Err(format!("slot {index} has no partial parity log")) };
            let mut after = Accepted::clone(&member);
            for due in log.due(member.image, parity)? {
                let changed: Vec<Slot> = due.repair.changed_slots().collect();
                for at in due.sectors() {
                    let mut sum = due.partial(at).map_or(Words([0; WORDS]), Words::of);
                    let chunks = changed.iter().map(|slot| replayed.sector(*slot, ComponentByte(at), at));
                    if let Some(chunks) = chunks.collect::<Option<Vec<_>>>() {
                        chunks.iter().for_each(|chunk| sum.add(chunk));
                        after.replayed.insert(at, sum.bytes());
                    }
                }
            }
            replayed.slots[index] = Some(Rc::new(after));
        }
        Ok(replayed)
    }

    /// Whether md would resync this row before it relies on it, with every bitmap that it might read.
    fn would_resync(&self, row: &Row) -> bool {
        let mut bitmaps =
            self.slots.iter().flatten().filter_map(|member| member.bitmap.as_ref()).chain(self.file.as_deref());
        self.resync.is_some_and(|offset| row.covered >= offset) && bitmaps.all(|bits| bits.is_set(row.covered))
    }

    /// A sector that is current on an accepted member.
    fn sector(&self, slot: Slot, at: ComponentByte, covered: u64) -> Option<&[u8]> {
        let member = self.slots.get(slot.index())?.as_ref()?;
        member.is_current(at, covered).then(|| member.sector(at))
    }

    fn check_row(&self, row: &Row, truth: &Truth, unread: bool, block_bytes: usize) -> Result<(), String> {
        if row.data.iter().all(|datum| truth.is_tainted(datum.sector)) {
            return Ok(());
        }
        let certain = row.data.iter().all(|datum| truth.is_certain(datum.sector));
        let must_agree = certain && !unread || !self.would_resync(row);
        let mut data: Vec<Option<&[u8]>> = Vec::with_capacity(row.data.len());
        for datum in &row.data {
            let mut first: Option<&[u8]> = None;
            for &(slot, at) in &datum.copies {
                let Some(found) = self.sector(slot, at, row.covered) else { continue };
                let whole = bytes_of(datum.sector);
                if first != Some(found) && !truth.allows(datum.sector, found, Look::Members) {
                    let what = truth.describe(datum.sector, whole, found, Look::Members);
                    return Err(format!("md would accept slot {slot}, but at component byte {}: {what}", at.0));
                }
                if must_agree && first.is_some_and(|first| first != found) {
                    return Err(format!(
                        "copies of sector {} differ, md would not resync it (certain: {certain})",
                        datum.sector
                    ));
                }
                first = first.or(Some(found));
            }
            data.push(first);
        }
        if must_agree { self.check_parity(row, &data, truth, block_bytes) } else { Ok(()) }
    }

    fn check_parity(&self, row: &Row, data: &[Option<&[u8]>], truth: &Truth, block_bytes: usize) -> Result<(), String> {
        let place = |slot: Option<Slot>| self.sector(slot?, row.component, row.covered);
        let missing = data.iter().filter(|sector| sector.is_none()).count();
        if let Some(p) = place(row.p).filter(|_| missing <= 1) {
            let mut sum = Words::of(p);
            data.iter().flatten().for_each(|sector| sum.add(sector));
            match data.iter().position(Option::is_none) {
                None if sum.is_zero() => {}
                None => return Err(format!("P is wrong at component byte {}", row.component.0)),
                Some(index)
                    if matches!(self.log, Some(Logged::PartialParity(_)))
                        && !truth.is_block_certain(row.data[index].sector, block_bytes) => {}
                Some(index) => {
                    let sector = row.data[index].sector;
                    let found = sum.bytes();
                    if !truth.allows(sector, &found, Look::Members) {
                        let what = truth.describe(sector, bytes_of(sector), &found, Look::Members);
                        return Err(format!("from P follows for a missing member: {what}"));
                    }
                }
            }
        }
        if let Some(q) = place(row.q).filter(|_| missing == 0) {
            let mut syndrome = syndrome(row, data);
            syndrome.add(q);
            if !syndrome.is_zero() {
                return Err(format!("Q is wrong at component byte {}", row.component.0));
            }
        }
        Ok(())
    }
}

fn bytes_of(sector: usize) -> Range<usize> {
    sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES
}

/// The syndrome: the sum of `2^exponent * data` over GF(2^8) with the polynomial 0x11d, by Horner's rule.
pub(crate) fn syndrome(row: &Row, data: &[Option<&[u8]>]) -> Words {
    let mut sum = Words([0; WORDS]);
    for exponent in (0..=row.exponents.iter().copied().max().unwrap_or(0)).rev() {
        sum.double();
        for (index, _) in row.exponents.iter().enumerate().filter(|(_, of)| **of == exponent) {
            sum.add(data[index].expect("the caller has all data"));
        }
    }
    sum
}

const WORDS: usize = SECTOR_BYTES / 8;

/// A sector as words of eight bytes.
pub(crate) struct Words([u64; WORDS]);

impl Words {
    fn of(bytes: &[u8]) -> Self {
        let mut words = Self([0; WORDS]);
        words.add(bytes);
        words
    }

    fn add(&mut self, bytes: &[u8]) {
        let words = bytes.chunks_exact(8).map(|part| u64::from_le_bytes(part.try_into().expect("eight bytes")));
        self.0.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= word);
    }

    fn double(&mut self) {
        for word in &mut self.0 {
            let tops = *word & 0x8080_8080_8080_8080;
            // A byte whose top bit is shifted out gets 0x1d added.
            *word = ((*word ^ tops) << 1) ^ ((tops >> 7) * 0x1d);
        }
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_is_multiplication_by_two_in_the_field() {
        let mut words = Words::of(&[0x01, 0x80, 0xff, 0x40].repeat(SECTOR_BYTES / 4));
        words.double();
        assert_eq!(words.bytes()[..4], [0x02, 0x1d, 0xe3, 0x80]);
    }
}
