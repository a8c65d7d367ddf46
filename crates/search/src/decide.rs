//! From clues to a verdict: tries all shapes, and reports one only if every other that counts would read the same.

use crate::assign::{FORBIDDEN, near_best};
use crate::compare::{Difference, Recency, difference, recencies};
use crate::cost::{SURE, cost, ends_against, is_in_place, unexplained};
use crate::counting::{SAMENESS_RANKS, faults, is_doubtful, preference, retain_known, sameness};
use crate::evidence::{Base, Clue, Clues, Frame, Kind, System};
use crate::judge::Candidate;
use crate::member::Member;
use crate::order::Orders;
use crate::outer::What;
use crate::scan::Scan;
use crate::seen::{Holder, Place};
use crate::shape::{Rows, Shape, shapes};
use disk::Source;
use format::geometry::{Geometry, Level};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// A shape of the array, with the members in its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The level.
    pub level: Level,
    /// md's number of the layout.
    pub layout: u32,
    /// Bytes in a chunk; 0 for RAID-1.
    pub chunk_bytes: u64,
    /// Where data begins on each member.
    pub offset: u64,
    /// Bytes of each member, where the places of copies may depend on it: far and offset layouts of RAID-10.
    pub size_bytes: Option<u64>,
    /// By slot, the index of the member; `None` if it is missing.
    pub order: Vec<Option<usize>>,
    /// Members that are in no slot: stale, or of nothing that was found.
    pub left_out: Vec<usize>,
    /// Known blocks of the file system that are where this shape has them.
    pub fits: u64,
    /// Known blocks that are not.
    pub against: u64,
    /// Members, and bytes of them, that this shape takes for the file system's, where md has written superblocks since.
    pub overwritten: Vec<(usize, Range<u64>)>,
    /// Where it reads something else than the first of several that are listed.
    pub difference: Option<Difference>,
    /// In a list of several: whether its file systems are newer or older than those of the others, if they say so.
    pub recency: Option<Recency>,
}

/// What can be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// This shape, and every other that counts reads the same bytes.
    Found(Answer),
    /// Several shapes that count would read different bytes, or a member is left out as stale and nothing shows that it
    /// is this one.
    Undecided(Vec<Answer>),
    /// No file system that is known, or no shape that fits it.
    Nothing(String),
}

/// The result of a search.
#[derive(Debug, Clone)]
pub struct Found {
    /// What can be said.
    pub verdict: Verdict,
    /// The best shape of those that do not count. Clues against it are why.
    pub second: Option<Answer>,
    /// The file system, if one was seen.
    pub system: Option<&'static str>,
    /// Its length.
    pub system_bytes: u64,
    /// Bytes read in the pass over the members.
    pub read_bytes: u64,
    /// Bytes of them that could not be read.
    pub unreadable_bytes: u64,
}

/// Chunks that are tried, in blocks of 4 KiB: 4 KiB to 2 MiB.
const CHUNKS: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Members at most: their masks have 64 bits.
const MEMBERS_MAX: usize = 32;
/// A candidate counts if no more clues are against it than against the best, and this: what is still in a journal is not in
/// its place.
pub(crate) const MARGIN: u64 = 2;
/// A candidate counts if no more blocks of files would be zeros than so many times those of the best, and this.
const UNUSUAL_TIMES: u64 = 4;
const UNUSUAL: u64 = 16;
/// If more than this part of the blocks cannot be read, only Q shows that no member is stale.
const UNREADABLE_PART: u64 = 100;
/// Candidates of which parity or copies are compared. Where so many are equally good, the others stay, and nothing is decided.
const CHECKS_MAX: u64 = 10_000;
/// Candidates that are listed.
const LISTED_MAX: usize = 8;
const BLOCK: u64 = 4096;

/// Searches `disks`, reading about `budget` bytes. `progress` is given bytes done and in all.
pub async fn search<S: Source>(disks: &[S], budget: u64, progress: &dyn Fn(u64, u64)) -> Found {
    let disks: Vec<Member<'_>> = disks.iter().map(Member::of).collect();
    search_in(&disks, budget, progress).await
}

async fn search_in(disks: &[Member<'_>], budget: u64, progress: &dyn Fn(u64, u64)) -> Found {
    let scan = Scan::of(disks, budget, progress).await;
    let mut found = Found {
        verdict: Verdict::Nothing(
            "no superblock of ext4, XFS or Btrfs with blocks of 4 KiB was seen, nor LVM, partitions or LUKS".to_owned(),
        ),
        second: None,
        system: None,
        system_bytes: 0,
        read_bytes: scan.bytes,
        unreadable_bytes: scan.unreadable * BLOCK,
    };
    if disks.len() > MEMBERS_MAX {
        found.verdict = Verdict::Nothing(format!("{} members, more than {MEMBERS_MAX}", disks.len()));
        return found;
    }
    let strides = scan.strides();
    let systems = systems(&scan);
    for seen in &systems {
        let system = &seen[0].0;
        found.system = Some(system.name());
        found.system_bytes = system.blocks() * BLOCK;
        let is_version = |(other, _): &&Sighting| other.is_version_of(system);
        let versions = systems.iter().flatten().filter(is_version).cloned().collect();
        let search = Search { disks, scan: &scan, system, seen, versions, strides: strides.clone() };
        (found.verdict, found.second) = search.verdict().await;
        if !matches!(found.verdict, Verdict::Nothing(_)) {
            break;
        }
    }
    found
}

/// A system, and where the block was seen by which it is known.
type Sighting = (System, Vec<Place>);

/// A superblock: its place, what it says, its age and its block's content.
type Version = (Place, Kind, u64, u64);

/// Sightings that are tried, at most.
const SYSTEMS_MAX: usize = 6;

/// What may be at the start of the array, in the order in which it is tried: what file systems lie in, then the file
/// system that was seen most, the latest superblock first, and its copies last. Versions of one age are tried together:
/// a stale member may hold the older one.
fn systems(scan: &Scan) -> Vec<Vec<Sighting>> {
    let is_luks = |(system, _): &Sighting| matches!(&system.base, Base::Outer(first) if first.what == What::Luks);
    let (hidden, open): (Vec<_>, Vec<_>) = outer(scan).into_iter().partition(is_luks);
    let single = |sightings: Vec<Sighting>| sightings.into_iter().map(|sighting| vec![sighting]);
    single(open).chain(inner(scan)).chain(single(hidden)).take(SYSTEMS_MAX).collect()
}

/// What file systems lie in, by its first block: what a member holds first.
fn outer(scan: &Scan) -> Vec<Sighting> {
    let mut found: Vec<Sighting> = Vec::new();
    for (place, first, content) in &scan.seen.outer {
        match found.iter_mut().find(|(system, _)| system.content == *content) {
            Some((_, places)) => places.push(*place),
            None => found.push((System { base: Base::Outer(first.clone()), content: *content }, vec![*place])),
        }
    }
    let holder = |places: &[Place]| places.iter().map(|place| place.holder).max();
    found.sort_by_cached_key(|(_, places)| std::cmp::Reverse((holder(places), places.len())));
    found
}

/// The file system that was seen most, by the versions of its superblock.
fn inner(scan: &Scan) -> Vec<Vec<Sighting>> {
    let seen = &scan.seen;
    let ext4 =
        seen.ext4.iter().map(|(place, own, content)| (*place, Kind::Ext4(*own), u64::from(own.written), *content));
    let xfs = seen.xfs.supers.iter().map(|(place, own, age, content)| (*place, Kind::Xfs(*own), *age, *content));
    let btrfs = seen.btrfs.supers.iter();
    let btrfs = btrfs.map(|(place, own, content)| (*place, Kind::Btrfs(own.clone()), own.generation, *content));
    let mut by_id: HashMap<[u8; 16], Vec<Version>> = HashMap::new();
    for own in ext4.chain(xfs).chain(btrfs) {
        by_id.entry(own.1.id()).or_default().push(own);
    }
    let most = by_id.into_iter().max_by_key(|(id, all)| {
        let firsts = all.iter().filter(|(_, kind, ..)| !kind.is_copy());
        let blocks = all.iter().map(|(_, kind, ..)| kind.blocks()).max();
        (firsts.count(), blocks, *id)
    });
    // The first block first, and the latest. Without checksums, parity may look like one of another length.
    let mut versions: BTreeMap<(u64, u64, u64), Vec<Sighting>> = BTreeMap::new();
    for (place, kind, age, content) in most.map(|(_, all)| all).unwrap_or_default() {
        let version = versions.entry((kind.super_block(), u64::MAX - age, kind.blocks())).or_default();
        match version.iter_mut().find(|(system, _)| system.content == content) {
            Some((_, places)) => places.push(place),
            None => version.push((System { base: Base::Inner(kind), content }, vec![place])),
        }
    }
    versions.into_values().collect()
}

struct Search<'a, S> {
    disks: &'a [S],
    scan: &'a Scan,
    /// The file system, or what is around it, in the version that stands for all.
    system: &'a System,
    seen: &'a [Sighting],
    /// All versions of it, also older ones.
    versions: Vec<Sighting>,
    /// Where far copies may be.
    strides: Vec<u64>,
}

impl<S: Source> Search<'_, S> {
    async fn verdict(&self) -> (Verdict, Option<Answer>) {
        let all: Vec<usize> = (0..self.disks.len()).collect();
        let mut orders = Orders::default();
        let mut candidates = self.candidates(&all, None, &mut orders).await;
        retain_known(&mut candidates);
        let mut is_complete = self.check(&mut candidates).await;
        let has_copies = candidates.iter().any(|candidate| candidate.shape.level == Level::Raid10);
        if all.len() > 1 && is_doubtful(&candidates, has_copies) {
            // Parity or copies disagree, or nothing fits well: one member may be stale.
            let near = candidates.iter().map(|candidate| (candidate.shape.rows(), candidate.chunk)).collect();
            for stale in &all {
                let others: Vec<usize> = all.iter().copied().filter(|member| member != stale).collect();
                candidates.extend(self.candidates(&others, Some(&near), &mut orders).await);
            }
            retain_known(&mut candidates);
            is_complete &= self.check(&mut candidates).await;
        }
        let missed = self.scan.seen.missed();
        candidates.retain(|candidate| !candidate.disagrees && !candidate.leaves_out_another(missed, all.len()));
        if candidates.is_empty() {
            let reason = format!("{} was seen, and no shape of these members fits it", self.system.name());
            return (Verdict::Nothing(reason), None);
        }
        let (mut classes, second) = self.classes(candidates, is_complete);
        self.add_copies(&mut classes).await;
        let is_listed = |second: &Answer| {
            let same = |class: &Candidate| class.order == second.order && class.shape.level == second.level;
            classes.iter().any(same)
        };
        (self.decide(&classes, has_copies, is_complete), second.filter(|second| !is_listed(second)))
    }

    /// Adds the copies that a mirror leaves out. What the members have together fits one of two copies that differ, by
    /// chance that of the stale member; so each other copy is looked at alone.
    async fn add_copies(&self, classes: &mut Vec<Candidate>) {
        let count = self.disks.len();
        let is_open = |class: &&Candidate| class.shape.level == Level::Raid1 && !class.is_proved(count);
        let open: Vec<Candidate> = classes.iter().filter(is_open).cloned().collect();
        if open.is_empty() {
            return;
        }
        let mut copies: Vec<Candidate> = Vec::new();
        for member in (0..count).filter(|member| !open.iter().any(|class| class.order.contains(&Some(*member)))) {
            for copy in self.mirrors(&[member], &self.versions).await {
                self.join(&mut copies, copy);
            }
        }
        copies.retain(|copy| !classes.iter().any(|class| class.reads_as(copy, self.scan, self.system.span())));
        classes.extend(copies);
        classes.truncate(LISTED_MAX);
    }

    /// Compares parity and copies of the candidates that may count; false if there are too many of them.
    async fn check(&self, candidates: &mut [Candidate]) -> bool {
        let blocks = self.system.span();
        let (mut checks, mut most) = (CHECKS_MAX, 0);
        loop {
            let left = candidates.iter().filter(|candidate| !candidate.disagrees);
            let Some(best) = left.map(|candidate| candidate.against).min() else { return true };
            let due = |candidate: &Candidate| !candidate.is_checked && candidate.against <= best + MARGIN;
            let mut is_done = true;
            // Mirrors first: if everything agrees with one, what explains less is not needed (see `classes`).
            for rank in SAMENESS_RANKS {
                if most > rank {
                    break;
                }
                let is_next = |candidate: &&mut Candidate| sameness(candidate.shape.level) == rank && due(candidate);
                for candidate in candidates.iter_mut().filter(is_next) {
                    if checks == 0 {
                        return false;
                    }
                    checks -= 1;
                    candidate.is_checked = true;
                    let agreements = candidate.agreements(self.scan, blocks);
                    let q = match agreements {
                        Some(_) => candidate.q_agrees(self.disks, self.scan, blocks).await,
                        None => None,
                    };
                    candidate.agreements = agreements.unwrap_or(0);
                    candidate.q_agreements = q.unwrap_or(0);
                    candidate.disagrees = q.is_none();
                    is_done &= !candidate.disagrees;
                    if candidate.is_sound(self.disks.len()) {
                        most = rank;
                    }
                }
            }
            if is_done {
                return true;
            }
        }
    }

    /// The candidates of these members. With `near`, a member is left out as stale: only shapes with a slot for it, and if
    /// `near` lists rows and chunks that came near with it, only these.
    async fn candidates(
        &self,
        members: &[usize],
        near: Option<&HashSet<(Option<Rows>, u64)>>,
        orders: &mut Orders,
    ) -> Vec<Candidate> {
        let mut candidates = self.mirrors(members, self.seen).await;
        let mut by_rows: HashMap<Rows, Vec<Shape>> = HashMap::new();
        for shape in shapes(members.len() as u16, &self.strides) {
            if near.is_some() && usize::from(shape.slots) == members.len() {
                continue;
            }
            by_rows.entry(shape.rows().expect("listed ones have rows")).or_default().push(shape);
        }
        let mut rows: Vec<_> = by_rows.into_iter().collect();
        rows.sort_by_cached_key(|(rows, _)| format!("{rows:?}"));
        for (rows, shapes) in rows {
            let came_near =
                |chunk: &u64| near.is_none_or(|near| near.is_empty() || near.contains(&(Some(rows), *chunk)));
            for chunk in CHUNKS.into_iter().filter(came_near) {
                for (system, offset) in self.offsets(self.seen, rows, chunk) {
                    let (disks, scan) = (self.disks, self.scan);
                    let frame = Frame { disks, scan, rows, chunk, offset, members };
                    let clues = frame.clues(system).await;
                    if clues.rule_out() {
                        continue;
                    }
                    for shape in &shapes {
                        self.add(&frame, *shape, &clues, orders, &mut candidates).await;
                    }
                }
            }
        }
        candidates
    }

    /// Where data may begin, as what is at its start was seen.
    fn offsets<'b>(
        &self,
        seen: &'b [Sighting],
        rows: Rows,
        chunk: u64,
    ) -> impl Iterator<Item = (&'b System, u64)> + use<'b, S> {
        let from_start: Vec<u64> = rows.positions(self.system.first_block(), chunk).collect();
        seen.iter().flat_map(move |(system, places)| {
            let places = places.iter().flat_map(|place| from_start.iter().map(|from_start| (place.at, *from_start)));
            let offsets: BTreeSet<u64> = places.filter_map(|(at, from_start)| at.checked_sub(from_start)).collect();
            offsets.into_iter().map(move |offset| (system, offset))
        })
    }

    /// Adds the best orders of one shape.
    async fn add(
        &self,
        frame: &Frame<'_, S>,
        shape: Shape,
        clues: &Clues,
        orders: &mut Orders,
        candidates: &mut Vec<Candidate>,
    ) {
        let room = frame.members.iter().map(|member| self.scan.lengths[*member].saturating_sub(frame.offset)).min();
        let Some(geometry) = shape.geometry(frame.chunk, room.unwrap_or(0)) else { return };
        if geometry.array_bytes() / BLOCK < self.system.blocks() {
            return;
        }
        let is_whole = usize::from(shape.slots) == frame.members.len();
        let counts = |clue: &&Clue| match clue.holder {
            Holder::Member => true,
            Holder::Xor => !is_whole && matches!(shape.level, Level::Raid4 | Level::Raid5),
            Holder::XorWithoutOne => !is_whole && shape.level == Level::Raid6,
        };
        let known: Vec<Clue> = clues.clues.iter().filter(counts).copied().collect();
        let sure = known.iter().filter(|clue| !clue.is_weak).count() as u64;
        for (columns, total) in self.best_orders(frame, shape, &geometry, &known, orders).await {
            let order: Vec<_> = columns.iter().map(|column| frame.members.get(*column).copied()).collect();
            // It was seen there, or in what a missing member would hold: a shape without it is another one.
            if !is_in_place(shape, &geometry, &order, &known, self.system.first_block()) {
                continue;
            }
            let unusual = total % SURE + clues.unusual;
            let against = total / SURE + unexplained(shape, &geometry, &order, &known) + clues.nowhere;
            let fits = sure.saturating_sub(against);
            let ends = clues.ends_nowhere + ends_against(shape, &geometry, &order, &known);
            if against > 2 * MARGIN + fits / 10 {
                continue;
            }
            candidates.push(Candidate {
                shape,
                geometry: geometry.clone(),
                chunk: frame.chunk,
                offset: frame.offset,
                order,
                fits,
                against: against + clues.missed * (MARGIN + 1),
                faults: faults(against, ends) + clues.missed,
                unusual,
                is_checked: false,
                agreements: 0,
                disagrees: false,
                q_agreements: 0,
            });
        }
    }

    /// The best orders of one shape by the clues: for each slot its member, as an index or one behind, and the cost. Where
    /// they do not decide, Q does.
    async fn best_orders(
        &self,
        frame: &Frame<'_, S>,
        shape: Shape,
        geometry: &Geometry,
        known: &[Clue],
        orders: &mut Orders,
    ) -> Vec<(Vec<usize>, u64)> {
        let cost = cost(shape, geometry, frame.members, known);
        let near = near_best(&cost, MARGIN * SURE);
        let best = near.iter().map(|(_, total)| total / SURE).min().unwrap_or(0);
        let is_open = near.iter().filter(|(_, total)| total / SURE <= best + MARGIN).count() > 1;
        let Geometry::Parity(parity) = geometry else { return near };
        if !is_open || shape.level != Level::Raid6 || best > 2 * MARGIN + known.len() as u64 / 10 {
            return near;
        }
        let order = orders.of(frame, self.scan.lengths.iter().copied().max().unwrap_or(0)).await;
        let (slots, present) = (usize::from(shape.slots), frame.members.len());
        if present == slots {
            let mut cost = cost;
            order.add_to(&mut cost, parity, frame.chunk, frame.members, None);
            return near_best(&cost, MARGIN * SURE);
        }
        let mut found = Vec::new();
        for missing in (0..slots).filter(|slot| cost[*slot][present] / SURE <= best + MARGIN) {
            let mut cost = cost.clone();
            cost[missing][..present].iter_mut().for_each(|cost| *cost = FORBIDDEN);
            order.add_to(&mut cost, parity, frame.chunk, frame.members, Some(missing));
            found.extend(near_best(&cost, MARGIN * SURE).into_iter().filter(|(_, total)| *total < FORBIDDEN));
        }
        found
    }

    /// RAID-1, and single members.
    async fn mirrors(&self, members: &[usize], seen: &[Sighting]) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let rows = Rows::Striped(1);
        for (system, offset) in self.offsets(seen, rows, 1) {
            let frame = Frame { disks: self.disks, scan: self.scan, rows, chunk: 1, offset, members };
            let Clues { clues, nowhere, ends_nowhere, unusual, missed } = frame.clues(system).await;
            for member in members {
                let room = self.scan.lengths[*member].saturating_sub(offset);
                let shape = Shape { level: Level::Raid1, layout: 0, slots: 1, stride: 0 };
                let Some(geometry) = shape.geometry(1, room) else { continue };
                let lacks = |clue: &&Clue| clue.members >> member & 1 == 0;
                let known = clues.iter().filter(|clue| clue.holder == Holder::Member);
                let (weak, sure): (Vec<&Clue>, Vec<&Clue>) = known.partition(|clue| clue.is_weak);
                let against = nowhere.saturating_add(sure.iter().filter(|clue| lacks(clue)).count() as u64);
                let total = nowhere.saturating_add(sure.len() as u64);
                if room < self.system.blocks() || against > total / 50 + u64::from(total > 9) {
                    continue;
                }
                let lacking_ends = sure.iter().filter(|clue| clue.is_end && lacks(clue)).count() as u64;
                let ends = ends_nowhere + lacking_ends;
                let one = Candidate {
                    shape,
                    geometry,
                    chunk: 1,
                    offset,
                    order: vec![Some(*member)],
                    fits: total - against,
                    against: against + missed * (MARGIN + 1),
                    faults: faults(against, ends) + missed,
                    unusual: unusual + weak.iter().filter(|clue| lacks(clue)).count() as u64,
                    is_checked: false,
                    agreements: 0,
                    disagrees: false,
                    q_agreements: 0,
                };
                self.join(&mut candidates, one);
            }
        }
        candidates
    }

    /// Adds a single member to the mirror that reads the same, wherever both can be read.
    fn join(&self, mirrors: &mut Vec<Candidate>, one: Candidate) {
        let equal =
            |other: &&mut Candidate| other.offset == one.offset && other.is_copy(&one, self.scan, self.system.span());
        let Some(other) = mirrors.iter_mut().find(equal) else { return mirrors.push(one) };
        if one.order.iter().any(|member| other.order.contains(member)) {
            return;
        }
        other.order.extend(one.order);
        other.shape.slots += 1;
        let room = one.geometry.array_bytes().min(other.geometry.array_bytes()) / BLOCK;
        other.geometry = other.shape.geometry(1, room).expect("as before");
    }

    /// Those that count of candidates in which nothing disagrees, and the best of the others. Of those that read the
    /// same, the first stands for all.
    fn classes(&self, candidates: Vec<Candidate>, is_complete: bool) -> (Vec<Candidate>, Option<Answer>) {
        // Where redundancy agrees with all members, a shape that has none to compare needs a missing member in vain, and
        // RAID-0 has copies or parity by chance.
        let is_sound = |candidate: &Candidate| candidate.is_sound(self.disks.len());
        let (mut sound, mut candidates): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_sound);
        let least = |candidates: &[Candidate]| candidates.iter().map(|candidate| candidate.against).min();
        let is_fit = |own: u64| least(&candidates).is_none_or(|least| own <= least + MARGIN);
        if let Some(own) = least(&sound).filter(|own| is_complete && is_fit(*own)) {
            // The xor of equal members is zero, so that copies look like parity, and a mirror like all else.
            let fit = |candidate: &&Candidate| candidate.against <= own + MARGIN;
            let most = sound.iter().filter(fit).map(|candidate| sameness(candidate.shape.level)).max();
            let is_as_same = |candidate: &Candidate| Some(sameness(candidate.shape.level)) >= most;
            sound.retain(is_as_same);
            candidates.retain(|own| own.agreements + own.q_agreements > 0 && is_as_same(own));
        }
        candidates.extend(sound);
        let best = least(&candidates).unwrap_or(0);
        let fit = |candidate: &&Candidate| candidate.against <= best + MARGIN;
        let usual = candidates.iter().filter(fit).map(|candidate| candidate.unusual).min().unwrap_or(0);
        let is_near = |candidate: &Candidate| fit(&candidate) && candidate.unusual <= UNUSUAL + UNUSUAL_TIMES * usual;
        // Where everything was written, and a shape has each known block in its place, one that has not is another.
        let is_settled = self.scan.seen.is_settled();
        let is_any_faultless = is_settled && candidates.iter().any(|own| is_near(own) && own.faults == 0);
        let counts = |candidate: &Candidate| is_near(candidate) && (!is_any_faultless || candidate.faults == 0);
        let others = candidates.iter().filter(|candidate| !counts(candidate));
        let second = others.min_by_key(|candidate| candidate.against).map(|candidate| self.answer(candidate));
        let mut counting: Vec<Candidate> = candidates.into_iter().filter(counts).collect();
        counting.sort_by_cached_key(|candidate| (!candidate.is_proved(self.disks.len()), preference(candidate)));
        // More than are listed change nothing.
        let mut classes: Vec<Candidate> = Vec::new();
        for candidate in counting {
            let same = |other: &Candidate| other.reads_as(&candidate, self.scan, self.system.span());
            if !classes.iter().any(same) {
                classes.push(candidate);
            }
            if classes.len() == LISTED_MAX {
                break;
            }
        }
        (classes, second)
    }

    /// The verdict on shapes that count, and read different bytes. `has_copies` is whether a shape with copies came near:
    /// then one without them is no answer. Nor is one if not all could be compared.
    fn decide(&self, classes: &[Candidate], has_copies: bool, is_complete: bool) -> Verdict {
        // A file system does not know what is in its files, so it does not tell which member is stale. Nor do members of
        // which blocks cannot be read: they may agree everywhere but where it matters.
        let is_readable = self.scan.unreadable <= self.scan.bytes / BLOCK / UNREADABLE_PART;
        let is_told = |one: &Candidate| match one.left_out(self.disks.len()) {
            0 => is_readable || one.q_agreements > 0,
            _ => self.scan.unreadable == 0,
        };
        if let [one] = classes
            && is_complete
            && one.is_checked
            && one.is_proved(self.disks.len())
            && one.is_confirmed()
            && is_told(one)
            && !(has_copies && one.shape.level == Level::Raid0)
        {
            return Verdict::Found(self.answer(one));
        }
        let told = classes.iter().zip(recencies(classes, self.scan)).map(|(class, recency)| Answer {
            difference: difference(&classes[0], class, self.scan, self.system.span()),
            recency,
            ..self.answer(class)
        });
        Verdict::Undecided(told.collect())
    }

    fn answer(&self, candidate: &Candidate) -> Answer {
        let Candidate { shape, chunk, offset, order, fits, against, .. } = candidate;
        let copies = u64::from(shape.layout >> 8 & 0xff);
        let has_far_copies = shape.level == Level::Raid10 && copies > 1;
        let rooms = order.iter().flatten().map(|member| self.scan.lengths[*member].saturating_sub(*offset));
        let size = rooms.min().map(|room| if shape.stride > 0 { shape.stride * copies } else { room / chunk * chunk });
        let size_bytes = size.filter(|_| has_far_copies).map(|blocks| blocks * BLOCK);
        let left_out = (0..self.disks.len()).filter(|member| !order.contains(&Some(*member))).collect();
        Answer {
            level: shape.level,
            layout: shape.layout,
            chunk_bytes: if shape.level.has_chunks() { chunk * BLOCK } else { 0 },
            offset: offset * BLOCK,
            size_bytes,
            order: order.clone(),
            left_out,
            fits: *fits,
            against: *against,
            overwritten: self.overwritten(candidate),
            difference: None,
            recency: None,
        }
    }

    /// The bytes of its members in which the file system should be, and md's superblocks are.
    fn overwritten(&self, Candidate { shape, chunk, offset, order, .. }: &Candidate) -> Vec<(usize, Range<u64>)> {
        let rows = shape.rows().unwrap_or(Rows::Striped(1));
        let last = rows.positions(self.system.blocks().saturating_sub(1), *chunk).max().unwrap_or(0);
        let end = offset + (last / chunk + 1) * chunk;
        let on = |member: usize| {
            let inside = self.scan.overwritten[member].iter().map(|own| own.start.max(*offset)..own.end.min(end));
            inside.filter(|own| !own.is_empty()).map(move |own| (member, own.start * BLOCK..own.end * BLOCK))
        };
        order.iter().flatten().flat_map(|member| on(*member)).collect()
    }
}
