//! Creates an array: places metadata where mdadm would, and makes the members' contents agree.
//!
//! Everything is checked before the first byte is written. Old superblocks, of every version and on every
//! member, are erased first; the new ones are written last. So a creation cut short leaves no array: neither
//! the new one, nor an old one whose data is gone.
//!
//! Facts: mdadm's `Create.c` and `super1.c` for the layout ([`mod@format`] has them).

use crate::base::buffer::Pool;
use crate::base::join::join_all;
use crate::control::blocks::{check_blocks, largest_block};
use crate::control::inspect::{find_claim, find_claim_of_md};
use crate::device::checksums::{Checksums, MemberContents};
use crate::device::place_bytes;
use crate::metadata::journal::log::rows_bytes;
use crate::seam::bytes::{read_bytes, write_bytes, zero_or_write};
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::{Candidate, Member, MemberError};
use format::Defect;
use format::bitmap::{BitmapSuper, Kind, SUPER_BYTES};
use format::geometry::{Geometry, Level, Redundancy, default_layout};
use format::integrity::Layout;
use format::journal::{BLOCK_BYTES, MetaBlock};
use format::lockless::{ChunkState, STATES_AT};
use format::partial_parity::Header;
use format::placement::{BitmapChoice, BitmapPlacement, Placement, Request, place, place_journal};
use format::stripe_log::{self, Place};
use format::superblock::{
    Blueprint, DeviceFlags, DeviceRole, Resync, SetName, Superblock, Timestamp, Version, decode, places,
};
use format::units::{DeviceNumber, MemberByte, SECTOR_BYTES, Sectors, Slot};
use std::cell::Cell;
use std::time::Duration;

/// The array to create.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Metadata format.
    pub version: Version,
    /// The level.
    pub level: Level,
    /// The layout, in the level's own coding ([`format::geometry::default_layout`]).
    pub layout: u32,
    /// Bytes in a chunk; 0 where the level has none.
    pub chunk_bytes: u64,
    /// The array's name; metadata 0.90 has none.
    pub name: String,
    /// The number of the array's device, 5 of `/dev/md5`: only metadata 0.90 has it.
    pub preferred_minor: u32,
    /// The flags of each member: slots first, then spares. Members beyond the list have none.
    pub device_flags: Vec<DeviceFlags>,
    /// Where data begins on each member, in bytes; mdadm's choice when `None`.
    pub data_offset_bytes: Option<u64>,
    /// Bytes used of each member; when `None`, as many as the smallest member allows.
    pub component_bytes: Option<u64>,
    /// The write-intent bitmap.
    pub bitmap: BitmapChoice,
    /// Seconds that a bit of it stays set after the last write; md's choice when `None`.
    pub bitmap_delay_seconds: Option<u32>,
    /// Writes that the kernel's md may leave outstanding on write-mostly members, recorded in the bitmap; 0 for none.
    pub write_behind: u32,
    /// Keep a partial parity log: level 5 only, without bitmap and checksums.
    pub parity_log: bool,
    /// Keep a stripe log ([`format::stripe_log`]): levels 4, 5 and 6, metadata 1.1 and 1.2.
    pub stripe_log: bool,
    /// Identity of the array.
    pub set_uuid: [u8; 16],
    /// What the members hold before.
    pub contents: Contents,
    /// Of [`Contents::Unknown`] at levels with parity: fill nothing with zeros, and mark the array for a resync. A missing
    /// member, whose data parity is to have, and a log, which relies on parity, rule that out.
    pub resync_later: bool,
    /// Keep checksums of every block.
    pub integrity: bool,
    /// Accept members that carry a superblock or another known signature.
    pub overwrite: bool,
    /// Bytes in a logical block, a field of Linux 6.19; 0 for none. Older kernels refuse an array that sets
    /// it.
    pub logical_block_bytes: u32,
}

/// mdadm's default chunk.
const CHUNK_BYTES: u64 = 512 << 10;

impl Recipe {
    /// An array of `level` with mdadm's defaults: metadata 1.2, chunks of 512 KiB, the level's usual layout, no name,
    /// no bitmap. The members may hold anything, but no other array.
    pub fn new(level: Level, set_uuid: [u8; 16]) -> Self {
        Self {
            version: Version::V1_2,
            level,
            layout: default_layout(level),
            chunk_bytes: if level.has_chunks() { CHUNK_BYTES } else { 0 },
            name: String::new(),
            preferred_minor: 0,
            device_flags: Vec::new(),
            data_offset_bytes: None,
            component_bytes: None,
            bitmap: BitmapChoice::None,
            bitmap_delay_seconds: None,
            write_behind: 0,
            parity_log: false,
            stripe_log: false,
            set_uuid,
            contents: Contents::Unknown,
            resync_later: false,
            integrity: false,
            overwrite: false,
            logical_block_bytes: 0,
        }
    }
}

impl Recipe {
    /// The recipe as these members allow it: without [`Recipe::resync_later`], if something rules that out.
    #[must_use]
    pub fn settled<M>(&self, newcomers: &Newcomers<'_, M>) -> Self {
        let has_log = self.parity_log || self.stripe_log || newcomers.journal.is_some();
        let is_whole = newcomers.slots.iter().all(Option::is_some);
        Self { resync_later: self.resync_later && self.level.has_parity() && is_whole && !has_log, ..self.clone() }
    }

    /// Of a settled recipe: whether the members in slots are filled with zeros.
    pub fn fills_with_zeros(&self) -> bool {
        self.contents == Contents::Unknown && self.level.has_parity() && !self.resync_later && !self.is_lockless()
    }

    /// Of a settled recipe: whether the array is marked for a resync.
    fn needs_resync(&self) -> bool {
        let is_left = self.level.redundancy() == Redundancy::Copies || self.resync_later;
        self.contents == Contents::Unknown && is_left && !self.is_lockless()
    }

    fn is_lockless(&self) -> bool {
        matches!(self.bitmap, BitmapChoice::Lockless(_))
    }
}

/// What the members' data areas hold before the array is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Nothing but zeros: copies and parity agree.
    Zeros,
    /// Copies and parity agree: the user says so (`--assume-clean`).
    Consistent,
    /// Anything. Parity levels are filled with zeros, whose parity is zero; levels 1 and 10 are marked for a
    /// resync from the first copy. With a lockless bitmap neither is done: it says that nothing was written.
    Unknown,
}

/// A new member, and the identity that it gets.
pub struct Newcomer<M> {
    /// The member.
    pub candidate: Candidate<M>,
    /// Its device uuid.
    pub device_uuid: [u8; 16],
}

/// All members of a new array.
pub struct Newcomers<'a, M> {
    /// By slot; `None` for a missing member.
    pub slots: &'a [Option<Newcomer<M>>],
    /// The spares.
    pub spares: &'a [Newcomer<M>],
    /// The device of the write journal.
    pub journal: Option<&'a Newcomer<M>>,
}

impl<'a, M> Newcomers<'a, M> {
    /// The members in slots and the spares, by their device numbers.
    fn members(&self) -> impl Iterator<Item = (usize, &'a Newcomer<M>)> {
        let slots = self.slots.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.as_ref()?)));
        slots.chain(self.spares.iter().enumerate().map(|(index, spare)| (self.slots.len() + index, spare)))
    }

    /// All, with the journal as the last.
    fn all(&self) -> impl Iterator<Item = (usize, &'a Newcomer<M>)> {
        let journal = self.journal.map(|journal| (self.slots.len() + self.spares.len(), journal));
        self.members().chain(journal)
    }

    fn roles(&self) -> Vec<DeviceRole> {
        let role = |(index, slot): (usize, &Option<Newcomer<M>>)| match slot {
            Some(_) => DeviceRole::Active(Slot(index as u16)),
            None => DeviceRole::Faulty,
        };
        let slots = self.slots.iter().enumerate().map(role);
        let spares = std::iter::repeat_n(DeviceRole::Spare, self.spares.len());
        slots.chain(spares).chain(self.journal.map(|_| DeviceRole::Journal)).collect()
    }
}

/// What is written to one member.
struct MemberPlan<'a, M> {
    name: &'a str,
    member: &'a M,
    placement: Placement,
    superblock: Superblock,
}

/// Creates an array of `slots` (`None`: missing) and `spares`. `progress` is given bytes done and bytes in
/// all.
///
/// # Errors
/// A [`Refusal`] with nothing written. When a member fails during creation, the refusal says what was changed
/// ([`Refusal::changed`]).
pub async fn create<M: Member, C: Clock>(
    recipe: &Recipe,
    slots: &[Option<Newcomer<M>>],
    spares: &[Newcomer<M>],
    pool: &Pool,
    clock: &C,
    progress: &dyn Fn(u64, u64),
) -> Result<(), Refusal> {
    create_announced(recipe, Newcomers { slots, spares, journal: None }, pool, clock, progress, &|| {}).await
}

/// As [`create`], with a write journal if there is one. `begin` is called after the last check, before the first byte is written.
///
/// # Errors
/// As [`create`].
pub async fn create_announced<M: Member, C: Clock>(
    recipe: &Recipe,
    newcomers: Newcomers<'_, M>,
    pool: &Pool,
    clock: &C,
    progress: &dyn Fn(u64, u64),
    begin: &dyn Fn(),
) -> Result<(), Refusal> {
    let recipe = &recipe.settled(&newcomers);
    check_free(recipe, &newcomers, pool).await?;
    let plans = plan_members(recipe, &newcomers, clock)?;
    begin();
    // Otherwise `check_free` has shown that there are none.
    if recipe.overwrite || recipe.contents == Contents::Unknown {
        for plan in &plans {
            let erased = erase_superblocks(plan.name, plan.member, pool).await;
            erased.map_err(|refusal| cut_short(refusal, "old superblocks may be erased, the data is not"))?;
        }
    }
    let prepared = prepare(recipe, &plans, pool, clock, progress).await;
    prepared.map_err(|refusal| cut_short(refusal, "the members' old contents are lost, at least in part"))?;
    for plan in &plans {
        let written = write_superblock(plan, pool).await;
        let failed = |error| Refusal::member_error(plan.name, &error);
        written.map_err(failed).map_err(|refusal| cut_short(refusal, "some members have its superblock"))?;
    }
    Ok(())
}

/// Writes everything that the superblocks will vouch for.
async fn prepare<M: Member, C: Clock>(
    recipe: &Recipe,
    plans: &[MemberPlan<'_, M>],
    pool: &Pool,
    clock: &C,
    progress: &dyn Fn(u64, u64),
) -> Result<(), Refusal> {
    if recipe.fills_with_zeros() {
        zero(plans, pool, progress).await?;
    }
    for plan in plans {
        let written = write_logs(recipe, plan, pool, clock.wall()).await;
        written.map_err(|error| Refusal::member_error(plan.name, &error))?;
    }
    if recipe.integrity {
        for plan in plans.iter().filter(|plan| plan.superblock.own_role() != DeviceRole::Journal) {
            write_checksums(recipe, plan, pool, clock.wall()).await?;
        }
    }
    Ok(())
}

/// A member failed, so the array is not created.
fn cut_short(refusal: Refusal, changed: &str) -> Refusal {
    refusal
        .after(format!("the array is incomplete: {changed}"))
        .or_advice("give another member in place of this one, and make the array again, with --force")
}

async fn check_free<M: Member>(recipe: &Recipe, newcomers: &Newcomers<'_, M>, pool: &Pool) -> Result<(), Refusal> {
    if recipe.overwrite {
        return Ok(());
    }
    for (_, newcomer) in newcomers.all() {
        let Candidate { name, member } = &newcomer.candidate;
        let claim = match recipe.contents {
            Contents::Zeros => find_claim_of_md(name, member, pool).await?,
            Contents::Consistent | Contents::Unknown => find_claim(name, member, pool).await?,
        };
        if claim.is_some() {
            return Err(Refusal::new("belongs to an array already")
                .of(name)
                .field("superblock.magic")
                .advice("`mdspace examine` shows which; --force makes a new array of it"));
        }
    }
    Ok(())
}

/// Computes and checks everything that will be written.
fn plan_members<'a, M: Member, C: Clock>(
    recipe: &Recipe,
    newcomers: &Newcomers<'a, M>,
    clock: &C,
) -> Result<Vec<MemberPlan<'a, M>>, Refusal> {
    let slots = newcomers.slots;
    let Some((_, first)) = newcomers.members().next() else {
        return Err(Refusal::new("no member was given"));
    };
    if recipe.is_lockless() && (recipe.integrity || recipe.stripe_log) {
        let beside = if recipe.integrity { "checksums" } else { "a stripe log" };
        return Err(Refusal::new(format!("mdspace keeps no lockless bitmap beside {beside}")).field("bitmap"));
    }
    let refuse = |defect| Refusal::defect(&first.candidate.name, defect);
    let raid_disks = u16::try_from(slots.len()).map_err(|_| Refusal::new("too many members"))?;
    let sectors = |bytes: u64, field: &str| {
        let whole = bytes.is_multiple_of(SECTOR_BYTES).then_some(Sectors(bytes / SECTOR_BYTES));
        whole.ok_or_else(|| Refusal::new(format!("{bytes} bytes are not whole 512-byte sectors")).field(field))
    };
    let request = Request {
        version: recipe.version,
        level: recipe.level,
        layout: recipe.layout,
        raid_disks,
        chunk_bytes: recipe.chunk_bytes,
        data_offset: recipe.data_offset_bytes.map(|bytes| sectors(bytes, "data offset")).transpose()?,
        component: recipe.component_bytes.map(|bytes| sectors(bytes, "size")).transpose()?,
        bitmap: recipe.bitmap,
        bad_block_log: true,
        parity_log: recipe.parity_log,
        integrity: recipe.integrity,
    };
    let bytes = |newcomer: &Newcomer<M>| newcomer.candidate.member.limits().bytes;
    let lengths: Vec<u64> = newcomers.members().map(|(_, newcomer)| bytes(newcomer)).collect();
    let mut placements = place(&request, &lengths).map_err(refuse)?;
    let wall = clock.wall();
    let unequal = placements.iter().any(|placement| placement.data_size != placements[0].data_size);
    if let Some(journal) = newcomers.journal {
        let placed = place_journal(&request, &placements[0], bytes(journal));
        placements.push(placed.map_err(|defect| Refusal::defect(&journal.candidate.name, defect))?);
    }
    let blueprint = Blueprint {
        version: recipe.version,
        set_uuid: recipe.set_uuid,
        set_name: SetName::new(&recipe.name).map_err(refuse)?,
        created: Timestamp { seconds: wall.as_secs(), micros: wall.subsec_micros().max(1) },
        level: recipe.level,
        layout: recipe.layout,
        raid0_layout: recipe.level == Level::Raid0 && unequal,
        chunk: sectors(recipe.chunk_bytes, "chunk")?,
        raid_disks,
        roles: newcomers.roles(),
        resync: if recipe.needs_resync() { Resync::From(Sectors(0)) } else { Resync::Clean },
        logical_block_bytes: recipe.logical_block_bytes,
    };
    let mut plans = Vec::with_capacity(placements.len());
    for ((number, newcomer), placement) in newcomers.all().zip(placements) {
        let Candidate { name, member } = &newcomer.candidate;
        let number = DeviceNumber(number as u16);
        let bytes = member.limits().bytes;
        let mut superblock = Superblock::new(&blueprint, &placement, number, newcomer.device_uuid, bytes)
            .map_err(|defect| Refusal::defect(name, defect))?
            .with_preferred_minor(recipe.preferred_minor);
        superblock.device_flags = recipe.device_flags.get(usize::from(number.0)).copied().unwrap_or_default();
        if recipe.integrity && superblock.own_role() != DeviceRole::Journal {
            Layout::of(&superblock).map_err(|defect| Refusal::defect(name, defect))?;
        }
        if recipe.stripe_log {
            check_stripe_log(recipe, &superblock).map_err(|defect| Refusal::defect(name, defect))?;
        }
        if superblock.own_role() == DeviceRole::Journal {
            check_journal(recipe, &superblock).map_err(|refusal| refusal.of(name))?;
        }
        plans.push(MemberPlan { name, member, placement, superblock });
    }
    check_geometry(slots, &plans)?;
    Ok(plans)
}

/// Checks that there is room for a stripe log, beside checksums if there are to be any.
fn check_stripe_log(recipe: &Recipe, superblock: &Superblock) -> Result<(), Defect> {
    if recipe.parity_log {
        return Err(Defect::new("superblock.feature_map", "a partial parity log and a stripe log: one is enough"));
    }
    let place = Place::of(superblock)?;
    if recipe.integrity { place.check_apart(&Layout::of(superblock)?) } else { Ok(()) }
}

/// Checks that the device is long enough for a journal of the array, and that no log is beside it.
fn check_journal(recipe: &Recipe, superblock: &Superblock) -> Result<(), Refusal> {
    if recipe.stripe_log {
        let refusal = Refusal::new("a write journal and a stripe log: one is enough");
        return Err(refusal.field("superblock.feature_map"));
    }
    match Geometry::new(&superblock.shape(&[])) {
        Ok(Geometry::Parity(parity)) => rows_bytes(superblock, &parity).map(drop),
        _ => Ok(()), // refused for the members
    }
}

/// Refuses an array that could not be assembled.
fn check_geometry<M: Member>(slots: &[Option<Newcomer<M>>], plans: &[MemberPlan<'_, M>]) -> Result<(), Refusal> {
    let first = &plans[0];
    let mut members = plans.iter();
    let data_bytes: Vec<u64> = slots
        .iter()
        .map(|slot| slot.as_ref().and_then(|_| members.next()).map_or(0, |plan| plan.superblock.data_bytes()))
        .collect();
    let missing = |slot: Slot| slots[slot.index()].is_none();
    let none_missing = slots.iter().all(Option::is_some);
    if !first.superblock.level.is_redundant() && !none_missing {
        return Err(Refusal::new("this level has no redundancy: no member may be missing"));
    }
    let geometry =
        Geometry::new(&first.superblock.shape(&data_bytes)).map_err(|defect| Refusal::defect(first.name, defect))?;
    if !geometry.survives(&missing) {
        return Err(Refusal::new("too many members are missing for this level"));
    }
    let parties = plans.iter().map(|plan| (plan.name, plan.member.limits(), plan.superblock.clone()));
    let largest = largest_block(plans.iter().map(|plan| plan.member));
    let block_bytes = if first.superblock.journal { largest.max(BLOCK_BYTES as u64) } else { largest };
    check_blocks(&geometry, block_bytes, parties, true)
}

/// Erases superblocks of another array, of any version: they must not outlive its data. A place without a valid
/// superblock may lie in that data, so it is overwritten last: a failure on the way leaves no superblock that vouches
/// for overwritten data.
pub(crate) async fn erase_superblocks<M: Member>(name: &str, member: &M, pool: &Pool) -> Result<(), Refusal> {
    let member_bytes = member.limits().bytes;
    let failed = |error| Refusal::member_error(name, &error);
    let mut doubtful = Vec::new();
    for (version, at) in places(member_bytes) {
        let bytes = place_bytes(at, member_bytes);
        let found = read_bytes(member, pool, at, bytes as u64).await;
        match found.map(|place| decode(version, at, &place, member_bytes)) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(_))) => write_bytes(member, pool, at, &vec![0; bytes]).await.map_err(failed)?,
            Ok(Err(_)) | Err(_) => doubtful.push((version, at, bytes)),
        }
    }
    if !doubtful.is_empty() {
        member.flush().await.map_err(failed)?;
    }
    for (version, at, bytes) in doubtful {
        let place = match read_bytes(member, pool, at, bytes as u64).await {
            Ok(place) => place,
            Err(_) => rewritten(name, member, pool, at, bytes).await?,
        };
        if !matches!(decode(version, at, &place, member_bytes), Ok(None)) {
            write_bytes(member, pool, at, &vec![0; bytes]).await.map_err(failed)?;
        }
    }
    member.flush().await.map_err(failed)
}

/// Writes zeros where a superblock could not be read, and reads again: writing makes most bad sectors
/// readable.
async fn rewritten<M: Member>(
    name: &str,
    member: &M,
    pool: &Pool,
    at: MemberByte,
    bytes: usize,
) -> Result<Vec<u8>, Refusal> {
    let written = member.write(at, pool.zeroed(bytes).freeze()).await;
    written.map_err(|error| Refusal::member_error(name, &error))?;
    read_bytes(member, pool, at, bytes as u64).await.map_err(|why| Refusal::new(why).of(name))
}

/// Fills the data areas with zeros, on all members in parallel.
async fn zero<M: Member>(plans: &[MemberPlan<'_, M>], pool: &Pool, progress: &dyn Fn(u64, u64)) -> Result<(), Refusal> {
    /// Long enough to keep a disk busy, short enough to keep progress visible.
    const STEP_BYTES: u64 = 4 << 20;
    let active = || plans.iter().filter(|plan| matches!(plan.superblock.own_role(), DeviceRole::Active(_)));
    let total = active().map(|plan| plan.superblock.data_bytes()).sum();
    let zeroes = pool.zeroed(STEP_BYTES as usize).freeze();
    let done = Cell::new(0);
    let fills = active().map(|plan| {
        let (zeroes, done) = (&zeroes, &done);
        async move {
            let (start, bytes) = (plan.superblock.data_at().0, plan.superblock.data_bytes());
            for offset in (0..bytes).step_by(STEP_BYTES as usize) {
                let length = (bytes - offset).min(STEP_BYTES);
                let at = MemberByte(start + offset);
                let write = async |start, zeroes| plan.member.write(MemberByte(at.0 + start), zeroes).await;
                let zeroed = zero_or_write(plan.member.write_zeroes(at, length), length, || zeroes.clone(), write);
                zeroed.await.map_err(|error| Refusal::member_error(plan.name, &error))?;
                done.set(done.get() + length);
                progress(done.get(), total);
            }
            Ok(())
        }
    });
    let fills: Vec<_> = fills.collect();
    join_all(fills).await.into_iter().collect()
}

/// The bitmap of a new array.
fn first_bitmap(recipe: &Recipe, bitmap: &BitmapPlacement, events: u64) -> Vec<u8> {
    let BitmapPlacement { kind, chunk_bytes, sync_size, bytes, .. } = *bitmap;
    let mut image = vec![if recipe.needs_resync() { 0xff } else { 0 }; bytes as usize];
    let mut header = match kind {
        Kind::Lockless => {
            let reserved = Sectors(bytes / SECTOR_BYTES);
            let header = BitmapSuper::new_lockless(recipe.set_uuid, sync_size, chunk_bytes, events, reserved);
            let is_built = recipe.contents != Contents::Unknown;
            let state = if is_built { ChunkState::Clean } else { ChunkState::Unwritten };
            image[STATES_AT as usize..header.used_bytes() as usize].fill(state.byte());
            header
        }
        _ => BitmapSuper::new(recipe.set_uuid, sync_size, chunk_bytes, events),
    };
    header.daemon_sleep_seconds = recipe.bitmap_delay_seconds.unwrap_or(header.daemon_sleep_seconds);
    header.write_behind = recipe.write_behind;
    image[..SUPER_BYTES].copy_from_slice(&header.encode());
    image
}

/// Writes bitmap and logs, and flushes: afterwards the superblock may vouch for them.
async fn write_logs<M: Member>(
    recipe: &Recipe,
    plan: &MemberPlan<'_, M>,
    pool: &Pool,
    now: Duration,
) -> Result<(), MemberError> {
    let MemberPlan { member, placement, superblock, .. } = plan;
    if let (Some(bitmap), Some(at)) = (&placement.bitmap, superblock.bitmap_at()) {
        let image = first_bitmap(recipe, bitmap, superblock.events);
        write_bytes(*member, pool, at, &image).await?;
    }
    if let (Some(log), Some(at)) = (&placement.bad_blocks, superblock.bad_blocks_at()) {
        let empty = vec![0xff; usize::from(log.sectors) * SECTOR_BYTES as usize];
        write_bytes(*member, pool, at, &empty).await?;
    }
    if let (Some(log), Some(at)) = (&placement.ppl, superblock.ppl_at()) {
        let mut empty = Header::empty(&recipe.set_uuid, 1).encode();
        empty.resize(usize::from(log.sectors) * SECTOR_BYTES as usize, 0);
        write_bytes(*member, pool, at, &empty).await?;
    }
    if superblock.own_role() == DeviceRole::Journal {
        // Nothing else of this array's can be there: its uuid is new.
        let empty = MetaBlock::empty(1, Sectors(0)).encode(&recipe.set_uuid);
        write_bytes(*member, pool, superblock.data_at(), &empty).await?;
    }
    if let Ok(place) = Place::of(superblock).as_ref()
        && recipe.stripe_log
    {
        let header = stripe_log::Header::new(superblock, place, now.as_micros() as u64);
        write_bytes(*member, pool, place.at, &header.encode()).await?;
    }
    member.flush().await
}

/// Writes the checksum area, without any page of the table. If the member is all zeros, all its checksums are known.
/// Stale bytes in the places of pages match no header's seed and epoch.
async fn write_checksums<M: Member>(
    recipe: &Recipe,
    plan: &MemberPlan<'_, M>,
    pool: &Pool,
    now: Duration,
) -> Result<(), Refusal> {
    let MemberPlan { name, member, superblock, .. } = plan;
    let layout = Layout::of(superblock).map_err(|defect| Refusal::defect(name, defect))?;
    let is_active = matches!(superblock.own_role(), DeviceRole::Active(_));
    let contents = match recipe.contents == Contents::Zeros || (recipe.fills_with_zeros() && is_active) {
        true => MemberContents::Zeros,
        false => MemberContents::Unknown,
    };
    let made = Checksums::make(*member, superblock, layout, pool, now, contents).await;
    made.map(drop).map_err(|error| Refusal::member_error(name, &error))
}

async fn write_superblock<M: Member>(plan: &MemberPlan<'_, M>, pool: &Pool) -> Result<(), MemberError> {
    let superblock = &plan.superblock;
    write_bytes(plan.member, pool, superblock.super_at(), &superblock.encode()).await?;
    plan.member.flush().await
}
