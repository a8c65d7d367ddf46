//! Makes an array of members, or says why not.
//!
//! The rules are md's: the freshest events win, a member more than one event
//! behind is left out, the freshest superblock says who is what. Stricter than
//! md where it would have to guess: members of the same age that disagree,
//! strangers and duplicates are refused. Members that were used apart are left
//! out (`split.rs`). Nothing is written here; the first write of the
//! running array is what marks the members.

use crate::base::buffer::Pool;
use crate::base::versioned::Growing;
use crate::control::blocks::{check_blocks, largest_block, noted_block};
use crate::control::forced::{Known, Rescue, slots_text};
use crate::control::inspect::{Found, find_superblock, read_bad_blocks};
use crate::control::split::Apart;
use crate::control::{Control, Origin, forced, logs, lost_roles, split};
use crate::core::health::{Health, survives};
use crate::core::roster::Roster;
use crate::core::{ArrayInfo, Core};
use crate::data::cache::PAGE_BYTES;
use crate::data::stripe_size::StripeSize;
use crate::data::{DataOptions, DataPlane};
use crate::device::checksums::Verify;
use crate::device::context::DeviceContext;
use crate::device::{Device, DeviceState};
use crate::metadata::Metadata;
use crate::metadata::bitmap::load::{Circumstances, load, load_file};
use crate::metadata::bitmap::{BitmapPolicy, Intent};
use crate::metadata::superblocks::{ROUNDS_TO_LEAVE_ABSENT, ROUNDS_TO_LEAVE_BEHIND, Record, Said};
use crate::plan::planner::DATA_CHUNKS_MAX;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::{Candidate, Limits, Member};
use format::geometry::{Geometry, Level};
use format::integrity::BLOCK_BYTES;
use format::superblock::{DeviceRole, Resync, Superblock};
use format::units::{Sectors, Slot};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// What an array is assembled of.
pub struct Offer<M> {
    /// Its members.
    pub members: Vec<Candidate<M>>,
    /// The file that holds its write-intent bitmap, for an array that keeps it in one.
    pub bitmap: Option<Candidate<M>>,
}

/// What its user allows and wants.
#[derive(Debug, Clone)]
pub struct AssembleOptions {
    /// Take what may have lost something, and say so: the fewest and least stale members that an array with too few current ones
    /// can start with, as mdadm does; a parity array that is both dirty and degraded, where what the missing member held
    /// may be wrong where a write was under way; an array whose write journal is lost, to be read.
    pub force: bool,
    /// Never write to any member.
    pub read_only: bool,
    /// Read what the members' bad-block logs say must not be read: for logs that tell of a fault that is no more, such as a
    /// cable's. What is there may be old. Only with `read_only`, as a write would take the places for sound.
    pub ignore_bad_blocks: bool,
    /// The layout of a RAID-0 of unequal members that does not say: 1 original, 2 alternate.
    pub raid0_layout: Option<u32>,
    /// How the write-intent bitmap is kept.
    pub bitmap: BitmapPolicy,
    /// When checksums are asked, where the members keep them.
    pub verify: Verify,
    /// The parity kernel; the best for this processor when `None`.
    pub kernel: Option<&'static parity::Kernel>,
    /// The unit in which stripes that change in part are moved.
    pub stripe_size: StripeSize,
    /// The most memory, in bytes, for old contents of stripes that are likely to be written again. When `None`, [`CACHE_BYTES`],
    /// and none for members that are memory themselves.
    pub cache_bytes: Option<usize>,
    /// The most bytes of writes that may wait for others of their stripes.
    pub gather_bytes: u64,
    /// The most memory, in bytes, for what streams of a degraded array are about to read; 0 for no reading ahead.
    pub read_ahead_bytes: usize,
}

/// What [`AssembleOptions::read_ahead_bytes`] is by default.
const READ_AHEAD_BYTES: usize = 32 << 20;

/// What [`AssembleOptions::gather_bytes`] is by default.
const GATHER_BYTES: u64 = 64 << 20;

/// What [`AssembleOptions::cache_bytes`] is by default, where it pays.
pub const CACHE_BYTES: usize = 32 << 20;

impl Default for AssembleOptions {
    fn default() -> Self {
        Self {
            force: false,
            read_only: false,
            ignore_bad_blocks: false,
            raid0_layout: None,
            bitmap: BitmapPolicy::default(),
            verify: Verify::default(),
            kernel: None,
            stripe_size: StripeSize::Auto,
            cache_bytes: None,
            gather_bytes: GATHER_BYTES,
            read_ahead_bytes: READ_AHEAD_BYTES,
        }
    }
}

/// A member that was offered and does not take part.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

struct Offered<M> {
    name: String,
    member: M,
    found: Found,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::assemble`].
    pub(crate) async fn assemble(
        candidates: Vec<Candidate<M>>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Rc<Self>, Refusal> {
        Self::assemble_offer(Offer { members: candidates, bitmap: None }, options, pool, clock).await
    }

    /// [`crate::Array::assemble_offer`].
    pub(crate) async fn assemble_offer(
        offer: Offer<M>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Rc<Self>, Refusal> {
        let Offer { members, bitmap } = offer;
        let mut offered = Vec::with_capacity(members.len());
        for Candidate { name, member } in members {
            let found = find_superblock(&name, &member, &pool).await?;
            offered.push(Offered { name, member, found });
        }
        catch_up(&mut offered);
        let mut election = elect(&offered)?;
        let context = DeviceContext::new(pool.clone());
        let freshest = offered[election.freshest].found.superblock.clone();
        let journal = offered.iter().find(|offered| offered.found.superblock.own_role() == DeviceRole::Journal);
        let journal = journal.map(|journal| &*journal.name);
        let freshest_name = offered[election.freshest].name.clone();
        check_supported(&freshest_name, &freshest, journal, &options)?;
        let rescue = rescue(&offered, &mut election, &freshest, options.force);
        let (slots, spares, left_out) = seat(offered, &election, &freshest, &options, &pool, &context).await?;
        let geometry = geometry(&freshest, &slots, &left_out, &rescue, &options)?;
        check_fit(&geometry, &slots)?;
        options.stripe_size.check(&geometry)?;
        let missing = |slot: Slot| {
            !slots[slot.index()].as_ref().is_some_and(|d: &Rc<Device<M>>| d.state.get() == DeviceState::InSync)
        };
        if !survives(&geometry, &missing) {
            let spares: Vec<&str> = spares.iter().map(|spare| &*spare.name).collect();
            return Err(too_few(&geometry, &missing, &left_out, &spares, &rescue));
        }
        let mut warnings = Warnings::of(&geometry, &rescue, &missing);
        let (resync, agreed) = agreement(&geometry, &freshest, &rescue, &mut warnings, &options)
            .map_err(|refusal| refusal.because(&whoever_is_missing(&geometry, &missing, &left_out)))?;
        let intent = if options.read_only {
            None
        } else {
            let covered_bytes = match &geometry {
                Geometry::Parity(_) => geometry.used_bytes(Slot(0)),
                Geometry::Mapping(_) => geometry.array_bytes(),
            };
            let is_forced = !rescue.taken.is_empty();
            let circumstances =
                Circumstances { freshest: &freshest, covered_bytes, agreed, is_forced, policy: options.bitmap };
            match bitmap {
                Some(file) => Some(load_file(&circumstances, file, &pool).await?),
                None => load(&circumstances, &slots, &spares, &pool).await?,
            }
        };
        let forced = !agreed && !options.read_only && {
            let needed = |range: Range<u64>| match &intent {
                Some(intent) => intent.next_needed(range, 0).is_some(),
                None => true,
            };
            check_bad_blocks(&geometry, &slots, resync, &needed, &mut warnings, &options)?
        };
        if let Some(from) = doubtful_from(&geometry, freshest.resync, intent.as_ref()) {
            slots.iter().flatten().filter_map(|device| device.successor()).for_each(|device| device.goes_back_to(from));
        }
        let whole = slots.iter().all(|device| device.as_ref().is_some_and(|device| device.is_whole()));
        let mut record = record(&freshest, resync, &slots, &spares);
        record.owed = record.owed.max(election.owed);
        for (index, slot) in &rescue.taken {
            record.set_role(election.numbers[*index].into(), DeviceRole::Active(*slot));
            let device = slots[slot.index()].as_ref().expect("it was seated");
            device.is_superblock_stale.set(true);
            device.is_forced.set(true);
        }
        record.is_force_owed = options.force && !options.read_only && !warnings.texts.is_empty();
        if intent.is_none() && !mutant!("file-not-left-behind") {
            // It may have been used with a bitmap in a file, which a round cut short has left one event ahead: that
            // must not count any more once something is written that it does not know of.
            record.owed = record.owed.max(ROUNDS_TO_LEAVE_BEHIND);
        }
        let successors: Vec<_> = slots.iter().flatten().filter_map(|device| device.successor()).collect();
        let devices = || slots.iter().flatten().chain(&spares).chain(&successors);
        for device in devices() {
            device.find_checksums(&pool, clock.wall(), options.verify).await;
        }
        let block_bytes = match devices().any(|device| device.checksums.get().is_some()) {
            true => largest_block(devices().map(|device| &device.member)).max(BLOCK_BYTES),
            false => largest_block(devices().map(|device| &device.member)),
        };
        let block_bytes =
            block_bytes
                .max(noted_block(&freshest).map_err(|reason| {
                    Refusal::new(reason).of(&freshest_name).field("superblock.logical_block_size")
                })?);
        let parties =
            devices().map(|device| (&*device.name, device.member.limits(), device.superblock.borrow().clone()));
        check_blocks(&geometry, block_bytes, parties, !options.read_only)?;
        let agreed_below = agreed_below(&geometry, resync, block_bytes);
        let cache_bytes = cache_bytes(&geometry, options.cache_bytes, devices().map(|device| device.member.limits()));
        let optimal_bytes = devices().map(|device| device.member.limits().optimal_bytes).max().unwrap_or(0);
        let data_options = DataOptions {
            stripe_size: options.stripe_size,
            cache_bytes,
            gather_bytes: options.gather_bytes,
            read_ahead_bytes: options.read_ahead_bytes,
            optimal_bytes: optimal_bytes.into(),
        };
        let core = Rc::new(Core {
            geometries: Growing::new(geometry),
            info: ArrayInfo {
                kernel: options.kernel.unwrap_or_else(parity::Kernel::best),
                read_only: options.read_only,
                block_bytes,
                forced,
            },
            pool,
            clock,
            roster: Roster {
                slots: RefCell::new(slots),
                others: RefCell::new(spares),
                slot_changed: Default::default(),
            },
            health: Health {
                whole: Cell::new(whole),
                agreed: Cell::new(agreed),
                agreed_below: Cell::new(agreed_below),
                failed: RefCell::new(None),
            },
            locks: Default::default(),
            gate: Default::default(),
            writers: Default::default(),
            context,
            listener: Default::default(),
        });
        let metadata = Rc::new(Metadata::new(core.clone(), record, intent));
        let data = Rc::new(DataPlane::new(core.clone(), metadata.clone(), &data_options));
        let forced = if rescue.taken.is_empty() { Vec::new() } else { rescue.forced };
        let origin = Origin { left_out, forced, warnings: warnings.texts };
        Ok(Self::new(core, metadata, data, options.verify, origin))
    }
}

/// Memory for the stripe cache of an array with members of such limits, as [`AssembleOptions::cache_bytes`] has it.
fn cache_bytes<'a>(geometry: &Geometry, wanted: Option<usize>, mut members: impl Iterator<Item = &'a Limits>) -> usize {
    // Its rows are whole pages of a chunk.
    let has_rows = matches!(geometry, Geometry::Parity(p) if p.chunk_bytes().is_multiple_of(PAGE_BYTES as u64));
    let pays = members.any(|limits| !limits.synchronous);
    let wanted = wanted.unwrap_or(if pays { CACHE_BYTES } else { 0 });
    if has_rows { wanted } else { 0 }
}

/// What the members' superblocks amount to.
struct Election {
    /// Index of the candidate whose word counts.
    freshest: usize,
    /// For each candidate: what it is, or why it is left out.
    seats: Vec<Result<DeviceRole, String>>,
    /// Rounds until nobody who calls itself active and is not would be taken for it.
    owed: u32,
    /// For each candidate: its device number.
    numbers: Vec<u16>,
}

/// The candidate whose word counts: the newest; of several that with which most are of one shape, so that it is the odd one that is
/// refused by name; and of these that whom most of its age call active. One that was told first that it
/// takes another's place, and failed, is called faulty by those who were told next, under the same number.
fn freshest<M>(offered: &[Offered<M>]) -> Option<usize> {
    let superblock = |index: usize| &offered[index].found.superblock;
    let supporters = |index: usize| {
        let own = superblock(index);
        let supports = |other: &Offered<M>| {
            let other = &other.found.superblock;
            other.events == own.events && matches!(other.role(own.device_number), DeviceRole::Active(_))
        };
        offered.iter().filter(|other| supports(other)).count()
    };
    let alike = |index: usize| {
        let is_alike = |other: &&Offered<M>| difference(&other.found.superblock, superblock(index)).is_none();
        offered.iter().filter(is_alike).count()
    };
    (0..offered.len())
        .filter(|&index| !superblock(index).replacement)
        .max_by_key(|&index| (superblock(index).events, alike(index), supporters(index), std::cmp::Reverse(index)))
}

/// Members that a growth cut short left an event behind know of it from here on: the kernel, too, goes by the freshest.
/// The round that brings them level writes it down.
fn catch_up<M: Member>(offered: &mut [Offered<M>]) {
    let Some(best) = freshest(offered).map(|index| offered[index].found.superblock.clone()) else { return };
    for Offered { member, found, .. } in offered {
        if let Some(superblock) = found.superblock.caught_up(&best, member.limits().bytes) {
            found.superblock = superblock;
        }
    }
}

fn elect<M: Member>(offered: &[Offered<M>]) -> Result<Election, Refusal> {
    let superblock = |index: usize| &offered[index].found.superblock;
    let freshest = freshest(offered)
        .ok_or_else(|| Refusal::new("no members were given").advice("name the files or devices, in any order"))?;
    let fellows = |index: usize| {
        let is_fellow = |other: &&Offered<M>| other.found.superblock.set_uuid == superblock(index).set_uuid;
        offered.iter().filter(is_fellow).count()
    };
    let first = (0..offered.len()).max_by_key(|&index| (fellows(index), std::cmp::Reverse(index)));
    let first = &offered[first.expect("there are some")];
    for (index, candidate) in offered.iter().enumerate() {
        if superblock(index).set_uuid != first.found.superblock.set_uuid {
            let reason = format!("a stranger: it belongs to another array than {}", first.name);
            return Err(Refusal::new(reason).of(&candidate.name).field("superblock.set_uuid"));
        }
        let twin = offered[..index].iter().find(|other| {
            let other = &other.found.superblock;
            other.device_number == superblock(index).device_number
                && (other.device_uuid == superblock(index).device_uuid || other.events == superblock(index).events)
        });
        if let Some(twin) = twin {
            let reason = format!("a duplicate: {} is the same member", twin.name);
            return Err(Refusal::new(reason).of(&candidate.name).field("superblock.dev_number"));
        }
    }
    let best = superblock(freshest);
    let everyone = offered.iter().map(|candidate| (&*candidate.name, &candidate.found.superblock));
    lost_roles::check(everyone, (&offered[freshest].name, best))?;
    // One that was removed may know of all events but the last, and its number belong to another since.
    let heir_of = |own: &Superblock| {
        offered.iter().find(|other| {
            let other = &other.found.superblock;
            other.device_number == own.device_number && other.events > own.events
        })
    };
    let anchor = split::anchor(offered.iter().map(|other| &other.found.superblock), freshest).map(|at| &offered[at]);
    let apart = |own| anchor.and_then(|Offered { name, found, .. }| Apart::find(own, name, &found.superblock));
    let seats = offered.iter().map(|candidate| match apart(&candidate.found.superblock) {
        Some(apart) => apart.reason(&candidate.name).map(Err),
        None => match heir_of(&candidate.found.superblock) {
            Some(heir) => Ok(Err(format!("removed: {} has its number now", heir.name))),
            None => seat_of(candidate, best),
        },
    });
    let seats = seats.collect::<Result<Vec<_>, _>>()?;
    // Older kernels believe one that is an event behind; and a member may be ahead that was told first of a place.
    let is_active = |role: &DeviceRole| matches!(role, DeviceRole::Active(_));
    let left = |(candidate, seat): (&Offered<M>, &Result<DeviceRole, String>)| {
        let own = &candidate.found.superblock;
        let claims = is_active(&own.own_role()) && !seat.as_ref().is_ok_and(is_active);
        claims.then(|| own.events.saturating_add(ROUNDS_TO_LEAVE_BEHIND.into()).saturating_sub(best.events))
    };
    let owed = offered.iter().zip(&seats).filter_map(left).max().unwrap_or(0);
    let numbers = offered.iter().map(|candidate| candidate.found.superblock.device_number.0).collect();
    Ok(Election { freshest, seats, owed: owed.try_into().unwrap_or(ROUNDS_TO_LEAVE_BEHIND), numbers })
}

/// What `--force` can do for the array; with `force`, the members that it takes are seated. Those that would help and are not
/// taken get the reason for that.
fn rescue<M>(offered: &[Offered<M>], election: &mut Election, best: &Superblock, force: bool) -> Rescue {
    let known = |(candidate, seat): (_, &Result<DeviceRole, String>)| {
        let Offered { name, found, .. }: &Offered<M> = candidate;
        Known { name, superblock: &found.superblock, seat: seat.as_ref().ok().copied() }
    };
    let known: Vec<_> = offered.iter().zip(&election.seats).map(known).collect();
    let mut rescue = forced::rescue(&known, best);
    for (index, objection) in &rescue.refused {
        if let Err(reason) = &mut election.seats[*index] {
            reason.push_str(&format!(", and --force does not take it: {objection}"));
        }
    }
    if !force {
        rescue.taken.clear();
    }
    for (index, slot) in &rescue.taken {
        election.seats[*index] = Ok(DeviceRole::Active(*slot));
    }
    rescue
}

/// What the user has accepted by `--force`, for people.
struct Warnings {
    texts: Vec<String>,
    /// Slots without a current member.
    missing: Vec<Slot>,
}

impl Warnings {
    fn of(geometry: &Geometry, rescue: &Rescue, missing: &dyn Fn(Slot) -> bool) -> Self {
        let missing: Vec<Slot> = (0..geometry.slots()).map(Slot).filter(|&slot| missing(slot)).collect();
        let taken = (!rescue.taken.is_empty()).then(|| forced::warning(&rescue.forced, geometry.level(), &missing));
        Self { texts: taken.into_iter().collect(), missing }
    }
}

/// Whether a member takes part by its own word alone because it was told of that before the others, and failed, or the power
/// did: what they were told next has the same number. Members that were used apart call each other faulty; a
/// spare, which takes no part in anything, nobody calls so, and then whom it calls active is asked about.
fn was_told_first(own: &Superblock, best: &Superblock) -> bool {
    let is_active = |role: &DeviceRole| matches!(role, DeviceRole::Active(_));
    let is_active_to_own = |(number, _): (usize, &DeviceRole)| own.roles.get(number).is_some_and(is_active);
    let are_together = match is_active(&best.own_role()) {
        true => is_active(&own.role(best.device_number)),
        false => {
            !mutant!("spare-asked-alone")
                && best.roles.iter().enumerate().filter(|(_, role)| is_active(role)).all(is_active_to_own)
        }
    };
    !is_active(&best.role(own.device_number)) && are_together
}

/// Whether a candidate is a spare by its own word and the array's, and has room for what the array keeps on members since.
fn is_spare_of<M: Member>(Offered { member, found, .. }: &Offered<M>, best: &Superblock) -> bool {
    let own = &found.superblock;
    let is_called_so = own.own_role() == DeviceRole::Spare && best.role(own.device_number) == DeviceRole::Spare;
    is_called_so && difference(own, best).is_none() && own.with_bitmap(best.bitmap, member.limits().bytes).is_ok()
}

/// What one candidate is, going by the freshest superblock.
fn seat_of<M: Member>(candidate: &Offered<M>, best: &Superblock) -> Result<Result<DeviceRole, String>, Refusal> {
    let own = &candidate.found.superblock;
    if is_spare_of(candidate, best) {
        return Ok(Ok(DeviceRole::Spare)); // nothing of it can be old, so md does not ask for its events either
    }
    let broken = mutant!("stale-member-taken");
    if best.events.saturating_sub(own.events) > 1 && !broken {
        return Ok(Err(format!("stale: its events are {}, the array's {}", own.events, best.events)));
    }
    let role = if broken { own.own_role() } else { best.role(own.device_number) };
    if own.events == best.events && own.own_role() != role && !was_told_first(own, best) {
        let (own, others) = (split::in_words(own.own_role()), split::in_words(role));
        let reason = format!("calls itself {own}, but a member of the same age calls it {others}");
        return Err(Refusal::new(reason)
            .of(&candidate.name)
            .field("superblock.dev_roles")
            .advice("the members were used apart from each other; give only those of one half"));
    }
    if let Some(field) = difference(own, best) {
        return Err(Refusal::new("differs from the array's other members").of(&candidate.name).field(field));
    }
    Ok(match role {
        DeviceRole::Faulty => Err("the other members call it faulty".to_owned()),
        // Its slot was given to it, but it was not told how much of its data is current.
        DeviceRole::Active(_) if own.own_role() == DeviceRole::Spare => Ok(DeviceRole::Spare),
        DeviceRole::Active(_) if own.own_role() != role => Err("it was about to become active".to_owned()),
        role => Ok(role),
    })
}

/// The first field of those in which all members must be equal, and these two are not.
pub(crate) fn difference(own: &Superblock, other: &Superblock) -> Option<&'static str> {
    let same = [
        ("superblock.ctime", own.created == other.created),
        ("superblock.level", own.level == other.level),
        ("superblock.layout", own.layout == other.layout),
        ("superblock.chunksize", own.chunk == other.chunk),
        ("superblock.raid_disks", own.raid_disks == other.raid_disks),
        ("superblock.size", own.component == other.component),
        ("superblock.version", own.version == other.version),
    ];
    same.iter().find(|(_, same)| !same).map(|(field, _)| *field)
}

/// More changes than a member ever sees; leaves room to count on.
const EVENTS_MAX: u64 = u64::MAX / 2;

/// What this engine does not serve, or only reads.
fn check_supported(
    name: &str,
    superblock: &Superblock,
    journal: Option<&str>,
    options: &AssembleOptions,
) -> Result<(), Refusal> {
    let refuse = |field: &str, what: &str, advice: &str| Err(Refusal::new(what).of(name).field(field).advice(advice));
    if superblock.events > EVENTS_MAX {
        return refuse("superblock.events", "beyond any count of real changes", "make the array anew");
    }
    if superblock.bitmap.is_some() && matches!(superblock.level, Level::Linear | Level::Raid0) {
        return refuse("superblock.feature_map", "a bitmap at a level without redundancy", "md refuses it as well");
    }
    if superblock.reshape.is_some() {
        return refuse("superblock.reshape_position", "a reshape is under way", "let md finish it first");
    }
    if superblock.journal {
        logs::check_journal(name, journal, options)?;
    }
    if superblock.clustered && !options.read_only {
        return refuse(
            "superblock.feature_map",
            "the array belongs to a cluster",
            "stop it on all nodes and make it local: mdadm --grow --bitmap=none; or serve it --read-only",
        );
    }
    if superblock.other_byte_order && !options.read_only {
        return refuse(
            "superblock.md_magic",
            "the other byte order: a big-endian machine made the array",
            "serve it --read-only, or let mdadm change it: mdadm --assemble --update=byteorder",
        );
    }
    if !superblock.disk_errors.is_empty() && !options.read_only {
        return refuse(
            "superblock.dev_roles",
            "a NAS has set the flag \"disk error\" of a member, and the kernel's md does not take one that has it",
            "copy what it holds with `mdspace read`, or serve it --read-only",
        );
    }
    if superblock.has_unknown_padding() && !options.read_only {
        return refuse(
            "superblock.pad",
            "fields that this engine does not know are set",
            "serve it --read-only; a newer kernel may have made it",
        );
    }
    if superblock.ppl.is_some() && !options.read_only {
        return refuse(
            "superblock.feature_map",
            "the array has a partial parity log, which this engine does not keep up",
            "serve it --read-only, or let md change it: mdadm --grow --consistency-policy=resync",
        );
    }
    Ok(())
}

type Seated<M> = (Vec<Option<Rc<Device<M>>>>, Vec<Rc<Device<M>>>, Vec<LeftOut>);

async fn seat<M: Member>(
    offered: Vec<Offered<M>>,
    election: &Election,
    freshest: &Superblock,
    options: &AssembleOptions,
    pool: &Pool,
    context: &Rc<DeviceContext>,
) -> Result<Seated<M>, Refusal> {
    let mut slots: Vec<Option<Rc<Device<M>>>> = (0..freshest.raid_disks).map(|_| None).collect();
    let (mut spares, mut left_out, mut successors) = (Vec::new(), Vec::new(), Vec::new());
    let listed_max = offered.iter().map(|candidate| candidate.found.superblock.devices_max()).min().unwrap_or(0);
    for (candidate, seat) in offered.into_iter().zip(&election.seats) {
        let Offered { name, member, found: Found { superblock, place } } = candidate;
        let role = match seat {
            Ok(role) => *role,
            Err(reason) => {
                left_out.push(LeftOut { name, reason: reason.clone() });
                continue;
            }
        };
        let number = superblock.device_number.0;
        if role == DeviceRole::Spare && usize::from(number) >= listed_max && !mutant!("number-beyond-room") {
            let reason =
                format!("its number is {number}, and the members' superblocks have room for {listed_max} devices");
            left_out.push(LeftOut { name, reason });
            continue;
        }
        let bad = match options.ignore_bad_blocks && options.read_only {
            true => Vec::new(),
            false => read_bad_blocks(&name, &member, &superblock, pool).await?,
        };
        match role {
            DeviceRole::Active(slot) => {
                let state = match superblock.recovery_offset {
                    _ if superblock.recovery_from_bitmap => DeviceState::Recovering { current: 0 },
                    Some(offset) => DeviceState::Recovering {
                        current: offset.checked_bytes().ok_or_else(|| {
                            let reason = format!("{} sectors are beyond any member", offset.0);
                            Refusal::new(reason).of(&name).field("superblock.recovery_offset")
                        })?,
                    },
                    None => DeviceState::InSync,
                };
                let seat = slots.get_mut(slot.index()).ok_or_else(|| {
                    let reason = format!("slot {slot} of an array of {}", freshest.raid_disks);
                    Refusal::new(reason).of(&name).field("superblock.dev_roles")
                })?;
                if superblock.replacement {
                    // One that has everything has yet to take its place.
                    let state = if state == DeviceState::InSync {
                        DeviceState::Recovering { current: superblock.component.bytes() }
                    } else {
                        state
                    };
                    let device = Device::new(name, member, superblock, place, state, bad, context.clone());
                    successors.push((slot, Rc::new(device)));
                    continue;
                }
                if let Some(other) = seat {
                    let reason = format!("slot {slot} is {}'s already", other.name);
                    return Err(Refusal::new(reason).of(&name).field("superblock.dev_roles"));
                }
                *seat = Some(Rc::new(Device::new(name, member, superblock, place, state, bad, context.clone())));
            }
            DeviceRole::Spare => {
                let mut superblock = superblock;
                superblock.replacement = false;
                let state = DeviceState::Spare;
                spares.push(Rc::new(Device::new(name, member, superblock, place, state, bad, context.clone())));
            }
            DeviceRole::Journal => {
                return Err(Refusal::new("a journal device").of(&name).field("superblock.dev_roles"));
            }
            DeviceRole::Faulty => unreachable!("faulty members were left out"),
        }
    }
    for (slot, successor) in successors {
        match &mut slots[slot.index()] {
            Some(old) if old.successor().is_none() => drop(old.successor.replace(Some(successor))),
            Some(_) => {
                let reason = format!("slot {slot} has a replacement already");
                return Err(Refusal::new(reason).of(&successor.name).field("superblock.dev_roles"));
            }
            // The member that it was to replace is gone: it goes on from where it is.
            seat @ None => {
                successor.superblock.borrow_mut().replacement = false;
                if successor.superblock.borrow().recovery_offset.is_none() {
                    successor.state.set(DeviceState::InSync);
                }
                *seat = Some(successor);
            }
        }
    }
    Ok((slots, spares, left_out))
}

fn geometry<M: Member>(
    freshest: &Superblock,
    slots: &[Option<Rc<Device<M>>>],
    left_out: &[LeftOut],
    rescue: &Rescue,
    options: &AssembleOptions,
) -> Result<Geometry, Refusal> {
    let data_bytes =
        |device: &Option<Rc<Device<M>>>| device.as_ref().map_or(0, |device| device.superblock.borrow().data_bytes());
    if matches!(freshest.level, Level::Linear | Level::Raid0) && slots.iter().any(Option::is_none) {
        let missing: Vec<Slot> =
            (0..freshest.raid_disks).map(Slot).filter(|slot| slots[slot.index()].is_none()).collect();
        let is = if missing.len() == 1 { "is" } else { "are" };
        let mut reason = format!("{} {is} missing, and this level has no redundancy", slots_text(&missing));
        reason.push_str(&those_left_out(left_out));
        return Err(Refusal::new(reason).advice(advice_for_too_few("give all members", &[], rescue)));
    }
    let mut shape = freshest.shape(&slots.iter().map(data_bytes).collect::<Vec<_>>());
    if let (Level::Raid0, 0, Some(layout)) = (shape.level, shape.layout, options.raid0_layout) {
        shape.layout = layout;
    }
    let first = slots.iter().flatten().next().map_or("the array", |device| &device.name);
    let geometry = Geometry::new(&shape).map_err(|defect| {
        let refusal = Refusal::defect(first, defect);
        match (shape.level, shape.layout) {
            (Level::Raid0, 0) => refusal.advice("choose with --raid0-layout original or --raid0-layout alternate"),
            _ => refusal,
        }
    })?;
    match &geometry {
        Geometry::Parity(parity) if parity.data_chunks() > DATA_CHUNKS_MAX => {
            let reason = format!("{} members: more than {DATA_CHUNKS_MAX} data chunks a stripe", parity.slots());
            Err(Refusal::new(reason).of(first).field("superblock.raid_disks"))
        }
        _ => Ok(geometry),
    }
}

fn check_fit<M: Member>(geometry: &Geometry, slots: &[Option<Rc<Device<M>>>]) -> Result<(), Refusal> {
    let seated = slots.iter().enumerate().filter_map(|(index, device)| Some((index, device.clone()?)));
    let all = seated.flat_map(|(index, device)| [device.successor(), Some(device)].map(|device| (index, device)));
    for (index, device) in all.filter_map(|(index, device)| Some((index, device?))) {
        let used = geometry.used_bytes(Slot(index as u16));
        let there = device.member.limits().bytes.saturating_sub(device.data_at);
        if used > there {
            let reason = format!("{used} bytes of data do not fit the {there} bytes behind the data offset");
            return Err(Refusal::new(reason).of(&device.name).field("superblock.size"));
        }
    }
    Ok(())
}

fn too_few(
    geometry: &Geometry,
    missing: &dyn Fn(Slot) -> bool,
    left_out: &[LeftOut],
    spares: &[&str],
    rescue: &Rescue,
) -> Refusal {
    let mut details = whoever_is_missing(geometry, missing, left_out);
    if let Some(note) = lost_roles::note(spares) {
        details.push_str(&format!("; {note}"));
    }
    Refusal::new("too few members").because(&details).advice(advice_for_too_few(
        "give more of its members",
        spares,
        rescue,
    ))
}

fn advice_for_too_few(first: &str, spares: &[&str], rescue: &Rescue) -> String {
    match forced::offer(&rescue.forced) {
        Some(offer) => format!("{first}; {offer}"),
        None if !spares.is_empty() => format!("{first}; if the spares were members before: {}", lost_roles::ADVICE),
        None => first.to_owned(),
    }
}

/// Slots without a current member, and who was not taken for one.
fn whoever_is_missing(geometry: &Geometry, missing: &dyn Fn(Slot) -> bool, left_out: &[LeftOut]) -> String {
    let slots: Vec<String> =
        (0..geometry.slots()).filter(|&slot| missing(Slot(slot))).map(|slot| slot.to_string()).collect();
    format!("of {} slots, missing: {}{}", geometry.slots(), slots.join(", "), those_left_out(left_out))
}

fn those_left_out(left_out: &[LeftOut]) -> String {
    left_out.iter().map(|LeftOut { name, reason }| format!("; {name} was left out: {reason}")).collect()
}

/// Whether parity and copies can be relied on, and what the array goes back to
/// saying of that when it is stopped.
fn agreement(
    geometry: &Geometry,
    freshest: &Superblock,
    rescue: &Rescue,
    warnings: &mut Warnings,
    options: &AssembleOptions,
) -> Result<(Resync, bool), Refusal> {
    if freshest.journal {
        warnings.texts.push(logs::JOURNAL_WARNING.to_owned());
    }
    // Their superblocks say clean while the journal is in use, too.
    let resync = if freshest.journal { Resync::From(Sectors(0)) } else { freshest.resync };
    let is_degraded = !warnings.missing.is_empty();
    match geometry {
        _ if resync == Resync::Clean && rescue.taken.is_empty() => Ok((resync, true)),
        Geometry::Mapping(_) if rescue.taken.is_empty() => Ok((resync, false)),
        Geometry::Mapping(_) if matches!(geometry.level(), Level::Linear | Level::Raid0) => Ok((Resync::Clean, true)),
        Geometry::Mapping(_) => Ok((Resync::From(Sectors(0)), false)),
        Geometry::Parity(_) if !is_degraded && rescue.taken.is_empty() => Ok((resync, false)),
        Geometry::Parity(_) if !is_degraded => Ok((Resync::From(Sectors(0)), false)),
        Geometry::Parity(_) if freshest.ppl.is_some() && resync != Resync::Clean => Err(logs::needs_its_ppl()),
        Geometry::Parity(_) if options.force || mutant!("write-hole-taken") => {
            if resync != Resync::Clean {
                warnings.texts.push(format!(
                    "the array is dirty and degraded: where a write was under way when it stopped, what {} held may be \
                     wrong (the write hole)",
                    slots_text(&warnings.missing)
                ));
            }
            Ok((Resync::Clean, true))
        }
        Geometry::Parity(_) => Err(Refusal::new(
            "the array is dirty and degraded: where a write was under way when it stopped, \
             what the missing member held would come out wrong (the write hole)",
        )
        .field("superblock.resync_offset")
        .advice("give a current member for each slot, or accept that with --force")),
    }
}

/// Where a member has bad blocks and parity may be wrong, the array is dirty and degraded: true when its
/// user has accepted that. `needed` says whether any of a range of components may be in disagreement.
fn check_bad_blocks<M: Member>(
    geometry: &Geometry,
    slots: &[Option<Rc<Device<M>>>],
    resync: Resync,
    needed: &dyn Fn(Range<u64>) -> bool,
    warnings: &mut Warnings,
    options: &AssembleOptions,
) -> Result<bool, Refusal> {
    let (Geometry::Parity(_), Resync::From(from)) = (geometry, resync) else { return Ok(false) };
    let agreed_below = from.checked_bytes().unwrap_or(u64::MAX);
    for device in slots.iter().flatten() {
        let bad = device.bad.ranges();
        let mut doubtful = bad.iter().map(|bad| bad.start.max(agreed_below)..bad.end);
        let Some(range) = doubtful.find(|range| range.start < range.end && needed(range.clone())) else { continue };
        if options.force {
            warnings.texts.push(format!(
                "the array is dirty and degraded: where a write was under way when it stopped, what belongs into the bad \
                 blocks of {} may be wrong (the write hole)",
                device.name
            ));
            return Ok(true);
        }
        let reason = format!(
            "the array is dirty and degraded: this member has bad blocks at byte {} of its data; where a write was \
             under way when the array stopped, what belongs there would come out wrong (the write hole)",
            range.start
        );
        return Err(Refusal::new(reason).of(&device.name).field("bad-block log").advice("accept that with --force"));
    }
    Ok(false)
}

/// The byte of the array below which all is in agreement, by a resync's checkpoint: down to a whole block, as md stops at
/// any sector.
fn agreed_below(geometry: &Geometry, resync: Resync, block_bytes: u64) -> u64 {
    let Resync::From(sectors) = resync else { return geometry.array_bytes() };
    let position = sectors.checked_bytes().unwrap_or(u64::MAX);
    let at = match geometry {
        Geometry::Parity(parity) => (position / parity.chunk_bytes()).min(parity.stripes()) * parity.stripe_bytes(),
        Geometry::Mapping(_) if mutant!("checkpoint-mid-block") => position,
        Geometry::Mapping(_) => position / block_bytes * block_bytes,
    };
    at.min(geometry.array_bytes())
}

/// The component's byte from which on a write may have been under way when the array stopped, so that a successor may
/// not hold what its member does: only a recovery compares them. `None` after a clean stop.
fn doubtful_from<M: Member>(geometry: &Geometry, resync: Resync, intent: Option<&Intent<M>>) -> Option<u64> {
    let Resync::From(sectors) = resync else { return None };
    if geometry.level() == Level::Raid10 {
        return Some(0); // its positions, and its bits, are the array's
    }
    let covered = geometry.used_bytes(Slot(0));
    match intent {
        Some(intent) => intent.next_needed(0..covered, 0).map(|needed| needed.start),
        None => Some(sectors.checked_bytes().unwrap_or(covered).min(covered)),
    }
}

/// The record to go on from. Devices that are not here are called faulty from
/// the next change on, so that they are known to be behind when they return.
fn record<M: Member>(
    freshest: &Superblock,
    resync: Resync,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
) -> Record {
    let successors: Vec<_> = slots.iter().flatten().filter_map(|device| device.successor()).collect();
    let all = || slots.iter().flatten().chain(spares).chain(&successors);
    let here: Vec<_> = all().map(|device| device.superblock.borrow().device_number).collect();
    let mut roles = freshest.roles.clone();
    let mut owed = 0;
    for (number, role) in roles.iter_mut().enumerate() {
        let is_here = here.iter().any(|device| usize::from(device.0) == number);
        if !is_here && matches!(role, DeviceRole::Active(_)) {
            *role = DeviceRole::Faulty;
            owed = mutant!("absent-told-alone" => ROUNDS_TO_LEAVE_BEHIND, else ROUNDS_TO_LEAVE_ABSENT);
        }
    }
    for spare in spares {
        // Even one that was about to get a slot when the power went.
        if let Some(role) = roles.get_mut(usize::from(spare.superblock.borrow().device_number.0)) {
            *role = DeviceRole::Spare;
        }
    }
    let is_behind = |device: &Rc<Device<M>>| device.superblock.borrow().events < freshest.events;
    let uneven = all().any(is_behind);
    let said = || Said { resync: freshest.resync, roles: freshest.roles.clone(), bitmap: freshest.bitmap };
    let uneven = (uneven && !mutant!("uneven-events-grow")).then(said);
    Record {
        events: freshest.events,
        found: freshest.events,
        dirty: false,
        resync,
        roles,
        owed,
        uneven,
        is_flush_owed: !mutant!("found-unflushed"),
        is_force_owed: false,
    }
}
