//! Assembles an array from members, or says why not.
//!
//! The rules are md's. The freshest event count wins, a member more than one event behind is left out, and
//! the freshest superblock decides every role. Where md would have to guess, this engine refuses: members of
//! the same age that disagree, members of another array, and duplicates. Members that were used apart are
//! left out (`split.rs`).
//!
//! Nothing is written here. The first write of the running array marks the members.
//!
//! Facts: `drivers/md/md.c` (`super_1_validate`, `analyze_sbs`), mdadm's `Assemble.c`.

use crate::base::buffer::Pool;
use crate::base::versioned::Growing;
use crate::control::blocks::{check_blocks, largest_block, noted_block};
use crate::control::election::{Election, Offered, adopt_size, elect, rescue};
use crate::control::forced::{Rescue, slots_text};
use crate::control::inspect::{Found, find_superblock, read_bad_blocks};
pub use crate::control::offer::{AssembleOptions, CACHE_BYTES, LeftOut, Offer};
use crate::control::state::{AssemblyReport, Control};
use crate::control::{forced, logs, lost_roles};
use crate::core::metadata_lock::Guarded;
use crate::core::personality::{StripeUnits, personality};
use crate::core::{ArrayInfo, Core, Health, Roster};
use crate::data::cache::PAGE_BYTES;
use crate::data::{DataOptions, DataPlane};
use crate::device::context::DeviceContext;
use crate::device::{Device, DeviceState};
use crate::metadata::Metadata;
use crate::metadata::bitmap::intent::IntentBitmap;
use crate::metadata::bitmap::load::{LoadContext, load, load_file};
use crate::metadata::record::{ROUNDS_TO_EJECT, ROUNDS_TO_EJECT_ABSENT, Record, SharedFields};
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::{Candidate, Limits, Member};
use format::geometry::{Geometry, Level, Redundancy, SyncSpace};
use format::integrity::BLOCK_BYTES;
use format::superblock::{DeviceRole, Resync, Superblock};
use format::units::{Sectors, Slot};
use std::ops::Range;
use std::rc::Rc;

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
        let mut offered = find_all(members, &pool).await?;
        adopt_size(&mut offered);
        let mut election = elect(&offered)?;
        let context = DeviceContext::new(pool.clone());
        let freshest = offered[election.freshest].found.superblock.clone();
        let freshest_name = offered[election.freshest].name.clone();
        check_supported(&freshest_name, &freshest, journal_of(&offered), &options)?;
        let rescue = rescue(&offered, &mut election, &freshest, options.force);
        let (slots, spares, left_out) = seat(offered, &election, &freshest, &options, &pool, &context).await?;
        let geometry = geometry(&freshest, &slots, &left_out, &rescue, &options)?;
        check_fit(&geometry, &slots)?;
        options.stripe_size.check(&geometry)?;
        let missing = |slot: Slot| {
            !slots[slot.index()].as_ref().is_some_and(|d: &Rc<Device<M>>| d.state.get() == DeviceState::InSync)
        };
        if !geometry.survives(&missing) {
            let spares: Vec<&str> = spares.iter().map(|spare| &*spare.name).collect();
            return Err(too_few(&geometry, &missing, &left_out, &spares, &rescue));
        }
        let mut warnings = Warnings::of(&geometry, &rescue, &missing);
        let (resync, agreed) = agreement(&geometry, &freshest, &rescue, &mut warnings, &options)
            .map_err(|refusal| refusal.because(&missing_text(&geometry, &missing, &left_out)))?;
        let circumstances = LoadContext {
            freshest: &freshest,
            covered_bytes: geometry.sync_bytes(),
            agreed,
            is_forced: !rescue.taken.is_empty(),
            policy: options.bitmap,
        };
        let intent = match bitmap {
            _ if options.read_only => None,
            Some(file) => Some(load_file(&circumstances, file, &slots, &spares, &pool).await?),
            None => load(&circumstances, &slots, &spares, &pool).await?,
        };
        let forced = !agreed && !options.read_only && {
            let needed = |range: Range<u64>| match &intent {
                Some(intent) => intent.next_needed(range, 0).is_some(),
                None => true,
            };
            check_bad_blocks(&geometry, &slots, resync, &needed, &mut warnings, &options)?
        };
        if let Some(from) = doubtful_from(&geometry, freshest.resync, intent.as_ref()) {
            slots.iter().flatten().filter_map(|device| device.successor()).for_each(|device| device.revert_to(from));
        }
        let whole = slots.iter().all(|device| device.as_ref().is_some_and(|device| device.is_whole()));
        let mut record = first_record(&freshest, resync, &slots, &spares, &election, &rescue, intent.is_some());
        record.is_force_pending = options.force && !options.read_only && !warnings.texts.is_empty();
        let devices = devices_of(&slots, &spares);
        for device in &devices {
            device.find_checksums(&pool, clock.wall(), options.verify).await;
        }
        let block_bytes = check_block_bytes(&geometry, &devices, (&freshest_name, &freshest), !options.read_only)?;
        let forced_members = if rescue.taken.is_empty() { Vec::new() } else { rescue.forced };
        let origin = AssemblyReport { left_out, forced: forced_members, warnings: warnings.texts };
        let assembled = Assembled {
            geometry,
            slots,
            spares,
            context,
            resync,
            agreed,
            whole,
            forced,
            intent,
            record,
            block_bytes,
            origin,
        };
        Ok(Self::start(assembled, &devices, &options, pool, clock))
    }

    /// Builds the running array.
    fn start(
        assembled: Assembled<M>,
        devices: &[Rc<Device<M>>],
        options: &AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Rc<Self> {
        let Assembled { geometry, block_bytes, .. } = assembled;
        let limits = || devices.iter().map(|device| device.member.limits());
        let data_options = DataOptions {
            stripe_size: options.stripe_size,
            cache_bytes: cache_bytes(&geometry, options.cache_bytes, limits()),
            gather_bytes: options.gather_bytes,
            read_ahead_bytes: options.read_ahead_bytes,
            optimal_bytes: limits().map(|limits| limits.optimal_bytes).max().unwrap_or(0).into(),
        };
        let agreed_below = agreed_below(&geometry, assembled.resync, block_bytes);
        let health = Health::new(assembled.whole, assembled.agreed, agreed_below);
        let core = Rc::new(Core {
            geometries: Growing::new(geometry),
            info: ArrayInfo {
                kernel: options.kernel.unwrap_or_else(parity::Kernel::best),
                read_only: options.read_only,
                block_bytes,
                forced: assembled.forced,
            },
            pool,
            clock,
            roster: Roster {
                slots: Guarded::new(assembled.slots),
                others: Guarded::new(assembled.spares),
                slot_changed: Default::default(),
            },
            health,
            locks: Default::default(),
            gate: Default::default(),
            writers: Default::default(),
            context: assembled.context,
            listener: Default::default(),
        });
        let metadata = Rc::new(Metadata::new(core.clone(), assembled.record, assembled.intent));
        let data = Rc::new(DataPlane::new(core.clone(), metadata.clone(), &data_options));
        Self::new(core, metadata, data, options.verify, assembled.origin)
    }
}

/// What assembly has decided.
struct Assembled<M: Member> {
    geometry: Geometry,
    slots: Vec<Option<Rc<Device<M>>>>,
    spares: Vec<Rc<Device<M>>>,
    context: Rc<DeviceContext>,
    resync: Resync,
    agreed: bool,
    whole: bool,
    /// [`ArrayInfo::forced`].
    forced: bool,
    intent: Option<IntentBitmap<M>>,
    record: Record,
    block_bytes: u64,
    origin: AssemblyReport,
}

/// Finds the superblock of each candidate.
async fn find_all<M: Member>(members: Vec<Candidate<M>>, pool: &Pool) -> Result<Vec<Offered<M>>, Refusal> {
    let mut offered = Vec::with_capacity(members.len());
    for Candidate { name, member } in members {
        let found = find_superblock(&name, &member, pool).await?;
        offered.push(Offered { name, member, found });
    }
    Ok(offered)
}

/// The candidate that calls itself the write journal.
fn journal_of<M>(offered: &[Offered<M>]) -> Option<&str> {
    let journal = offered.iter().find(|offered| offered.found.superblock.own_role() == DeviceRole::Journal);
    journal.map(|journal| &*journal.name)
}

/// Gives the members that `--force` takes their roles, and marks them.
fn record_taken<M: Member>(record: &mut Record, rescue: &Rescue, election: &Election, slots: &[Option<Rc<Device<M>>>]) {
    for (index, slot) in &rescue.taken {
        record.set_role(election.numbers[*index].into(), DeviceRole::Active(*slot));
        let device = slots[slot.index()].as_ref().expect("a taken member is seated");
        device.take_by_force();
    }
}

/// All devices: by slot, then spares, then successors.
fn devices_of<M: Member>(slots: &[Option<Rc<Device<M>>>], spares: &[Rc<Device<M>>]) -> Vec<Rc<Device<M>>> {
    let successors = slots.iter().flatten().filter_map(|device| device.successor());
    slots.iter().flatten().chain(spares).cloned().chain(successors).collect()
}

/// The unit of the array's transfers: the largest block of any member, of the checksums, and of the superblock.
///
/// # Errors
/// A size in the superblock that no device has.
fn block_bytes<M: Member>(devices: &[Rc<Device<M>>], freshest: &Superblock) -> Result<u64, String> {
    let largest = largest_block(devices.iter().map(|device| &device.member));
    let has_checksums = devices.iter().any(|device| device.checksums.get().is_some());
    Ok(largest.max(if has_checksums { BLOCK_BYTES } else { 0 }).max(noted_block(freshest)?))
}

/// Memory for the stripe cache, as [`AssembleOptions::cache_bytes`] defines it.
fn cache_bytes<'a>(geometry: &Geometry, wanted: Option<usize>, mut members: impl Iterator<Item = &'a Limits>) -> usize {
    // The cache's rows are whole pages of a chunk.
    let is_paged = |stripe: StripeUnits| stripe.chunk_bytes.is_multiple_of(PAGE_BYTES as u64);
    let has_rows = personality(geometry).stripe().is_some_and(is_paged);
    let pays = members.any(|limits| !limits.synchronous);
    let wanted = wanted.unwrap_or(if pays { CACHE_BYTES } else { 0 });
    if has_rows { wanted } else { 0 }
}

/// What the user has accepted by `--force`, in words.
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

/// More changes than any member ever sees; leaves room to count on.
const EVENTS_MAX: u64 = u64::MAX / 2;

/// Refuses features that this engine does not support, or only reads.
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
    if superblock.bitmap.is_some() && !superblock.level.is_redundant() {
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
            "a NAS has set the flag \"disk error\" of a member, and the kernel's md refuses such a member",
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
            "the array has a partial parity log, which this engine does not maintain",
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
                let state = state_of(&name, &superblock)?;
                let seat = slots.get_mut(slot.index()).ok_or_else(|| {
                    let reason = format!("slot {slot} of an array of {}", freshest.raid_disks);
                    Refusal::new(reason).of(&name).field("superblock.dev_roles")
                })?;
                if superblock.replacement {
                    // A complete successor has yet to take over its slot.
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
                    let reason = format!("slot {slot} already belongs to {}", other.name);
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
    seat_successors(&mut slots, successors)?;
    Ok((slots, spares, left_out))
}

/// The state of an active member, by its superblock.
fn state_of(name: &str, superblock: &Superblock) -> Result<DeviceState, Refusal> {
    match superblock.recovery_offset {
        _ if superblock.recovery_from_bitmap => Ok(DeviceState::Recovering { current: 0 }),
        Some(offset) => match offset.checked_bytes() {
            Some(current) => Ok(DeviceState::Recovering { current }),
            None => {
                let reason = format!("{} sectors are beyond any member", offset.0);
                Err(Refusal::new(reason).of(name).field("superblock.recovery_offset"))
            }
        },
        None => Ok(DeviceState::InSync),
    }
}

/// Puts successors beside the members that they replace, or into empty slots.
fn seat_successors<M: Member>(
    slots: &mut [Option<Rc<Device<M>>>],
    successors: Vec<(Slot, Rc<Device<M>>)>,
) -> Result<(), Refusal> {
    for (slot, successor) in successors {
        match &mut slots[slot.index()] {
            Some(old) if old.successor().is_none() => old.replacement.begin(successor),
            Some(_) => {
                let reason = format!("slot {slot} has a replacement already");
                return Err(Refusal::new(reason).of(&successor.name).field("superblock.dev_roles"));
            }
            // The member to be replaced is gone: the successor goes on from where it is.
            seat @ None => {
                successor.found_without_member();
                *seat = Some(successor);
            }
        }
    }
    Ok(())
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
    if !freshest.level.is_redundant() && slots.iter().any(Option::is_none) {
        let missing: Vec<Slot> =
            (0..freshest.raid_disks).map(Slot).filter(|slot| slots[slot.index()].is_none()).collect();
        let is = if missing.len() == 1 { "is" } else { "are" };
        let mut reason = format!("{} {is} missing, and this level has no redundancy", slots_text(&missing));
        reason.push_str(&left_out_text(left_out));
        return Err(Refusal::new(reason).advice(advice_for_too_few("give all members", &[], rescue)));
    }
    let mut shape = freshest.shape(&slots.iter().map(data_bytes).collect::<Vec<_>>());
    if let (Level::Raid0, 0, Some(layout)) = (shape.level, shape.layout, options.raid0_layout) {
        shape.layout = layout;
    }
    let first = slots.iter().flatten().next().map_or("the array", |device| &device.name);
    let geometry = Geometry::new(&shape).map_err(|defect| {
        let refusal = Refusal::defect(first, defect);
        match shape.level == Level::Raid0 && shape.layout == 0 {
            true => refusal.advice("choose with --raid0-layout original or --raid0-layout alternate"),
            false => refusal,
        }
    })?;
    match personality(&geometry).unsupported() {
        Some(reason) => Err(Refusal::new(reason).of(first).field("superblock.raid_disks")),
        None => Ok(geometry),
    }
}

fn check_fit<M: Member>(geometry: &Geometry, slots: &[Option<Rc<Device<M>>>]) -> Result<(), Refusal> {
    let seated = slots.iter().enumerate().filter_map(|(index, device)| Some((index, device.clone()?)));
    let all = seated.flat_map(|(index, device)| [device.successor(), Some(device)].map(|device| (index, device)));
    for (index, device) in all.filter_map(|(index, device)| Some((index, device?))) {
        let used = geometry.used_bytes(Slot(index as u16));
        let there = device.member.limits().bytes.saturating_sub(device.data_at());
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
    let mut details = missing_text(geometry, missing, left_out);
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

/// Slots without a current member, and the candidates that were left out.
fn missing_text(geometry: &Geometry, missing: &dyn Fn(Slot) -> bool, left_out: &[LeftOut]) -> String {
    let slots: Vec<String> =
        (0..geometry.slots()).filter(|&slot| missing(Slot(slot))).map(|slot| slot.to_string()).collect();
    format!("of {} slots, missing: {}{}", geometry.slots(), slots.join(", "), left_out_text(left_out))
}

fn left_out_text(left_out: &[LeftOut]) -> String {
    left_out.iter().map(|LeftOut { name, reason }| format!("; {name} was left out: {reason}")).collect()
}

/// Whether parity and copies can be trusted, and the resync position that the array returns to when it is
/// stopped.
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
    // With a journal, superblocks say clean while the array is in use.
    let resync = if freshest.journal { Resync::From(Sectors(0)) } else { freshest.resync };
    let is_degraded = !warnings.missing.is_empty();
    match geometry.level().redundancy() {
        _ if resync == Resync::Clean && rescue.taken.is_empty() => Ok((resync, true)),
        Redundancy::None | Redundancy::Copies if rescue.taken.is_empty() => Ok((resync, false)),
        Redundancy::None => Ok((Resync::Clean, true)),
        Redundancy::Copies => Ok((Resync::From(Sectors(0)), false)),
        Redundancy::Parity if !is_degraded && rescue.taken.is_empty() => Ok((resync, false)),
        Redundancy::Parity if !is_degraded => Ok((Resync::From(Sectors(0)), false)),
        Redundancy::Parity if freshest.ppl.is_some() && resync != Resync::Clean => Err(logs::needs_its_ppl()),
        Redundancy::Parity if options.force || mutant!("write-hole-taken") => {
            if resync != Resync::Clean {
                warnings.texts.push(format!(
                    "the array is dirty and degraded: where a write was under way when it stopped, what {} held may be \
                     wrong (the write hole)",
                    slots_text(&warnings.missing)
                ));
            }
            Ok((Resync::Clean, true))
        }
        Redundancy::Parity => Err(Refusal::new(
            "the array is dirty and degraded: where a write was under way when it stopped, \
             the missing member's data would be reconstructed wrong (the write hole)",
        )
        .field("superblock.resync_offset")
        .advice("give a current member for each slot, or accept that with --force")),
    }
}

/// An array with bad blocks where parity may be wrong is dirty and degraded there: true when the user has
/// accepted that. `needed` says whether any of a component range may disagree.
fn check_bad_blocks<M: Member>(
    geometry: &Geometry,
    slots: &[Option<Rc<Device<M>>>],
    resync: Resync,
    needed: &dyn Fn(Range<u64>) -> bool,
    warnings: &mut Warnings,
    options: &AssembleOptions,
) -> Result<bool, Refusal> {
    let Resync::From(from) = resync else { return Ok(false) };
    if !personality(geometry).needs_agreement() {
        return Ok(false);
    }
    let agreed_below = from.checked_bytes().unwrap_or(u64::MAX);
    for device in slots.iter().flatten() {
        let bad = device.bad.ranges();
        let mut doubtful = bad.iter().map(|bad| bad.start.max(agreed_below)..bad.end);
        let Some(range) = doubtful.find(|range| range.start < range.end && needed(range.clone())) else { continue };
        if options.force {
            warnings.texts.push(format!(
                "the array is dirty and degraded: where a write was under way when it stopped, the data in the bad \
                 blocks of {} may be wrong (the write hole)",
                device.name
            ));
            return Ok(true);
        }
        let reason = format!(
            "the array is dirty and degraded: this member has bad blocks at byte {} of its data; where a write was \
             under way when the array stopped, the data there would be reconstructed wrong (the write hole)",
            range.start
        );
        return Err(Refusal::new(reason).of(&device.name).field("bad-block log").advice("accept that with --force"));
    }
    Ok(false)
}

/// The array byte below which all is in agreement, by a resync's checkpoint. It is rounded down to a whole
/// block, as md stops at any sector.
fn agreed_below(geometry: &Geometry, resync: Resync, block_bytes: u64) -> u64 {
    let Resync::From(sectors) = resync else { return geometry.array_bytes() };
    let position = sectors.checked_bytes().unwrap_or(u64::MAX);
    geometry.array_byte_at(mutant!("checkpoint-mid-block" => position, else position / block_bytes * block_bytes))
}

/// The component byte from which on a write may have been under way when the array stopped. From there a
/// successor may differ from its member, and only a recovery compares the two. `None` after a clean stop.
fn doubtful_from<M: Member>(geometry: &Geometry, resync: Resync, intent: Option<&IntentBitmap<M>>) -> Option<u64> {
    let Resync::From(sectors) = resync else { return None };
    if geometry.sync_space() == SyncSpace::Array {
        return Some(0); // positions and bitmap bits are no component bytes
    }
    let covered = geometry.used_bytes(Slot(0));
    match intent {
        Some(intent) => intent.next_needed(0..covered, 0).map(|needed| needed.start),
        None => Some(sectors.checked_bytes().unwrap_or(covered).min(covered)),
    }
}

/// The record to begin with, with the rounds that are pending after assembly.
fn first_record<M: Member>(
    freshest: &Superblock,
    resync: Resync,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
    election: &Election,
    rescue: &Rescue,
    has_bitmap: bool,
) -> Record {
    let mut record = record_found(freshest, resync, slots, spares);
    record.rounds_pending = record.rounds_pending.max(election.rounds_pending);
    record_taken(&mut record, rescue, election, slots);
    if !has_bitmap && !mutant!("file-not-left-behind") {
        // The array may have been used with a bitmap in a file, which an interrupted round has left one event
        // ahead. That file must become stale once a write happens that it does not know of.
        record.rounds_pending = record.rounds_pending.max(ROUNDS_TO_EJECT);
    }
    record
}

/// The unit of transfers in bytes, once it is sure that every part of the array lies on whole units.
fn check_block_bytes<M: Member>(
    geometry: &Geometry,
    devices: &[Rc<Device<M>>],
    (name, freshest): (&str, &Superblock),
    is_writable: bool,
) -> Result<u64, Refusal> {
    let block_bytes = block_bytes(devices, freshest)
        .map_err(|reason| Refusal::new(reason).of(name).field("superblock.logical_block_size"))?;
    let parties =
        devices.iter().map(|device| (&*device.name, device.member.limits(), device.superblock.borrow().clone()));
    check_blocks(geometry, block_bytes, parties, is_writable)?;
    Ok(block_bytes)
}

/// The record to continue from. Absent devices become faulty with the next change, so that they are stale
/// when they return.
fn record_found<M: Member>(
    freshest: &Superblock,
    resync: Resync,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
) -> Record {
    let devices = devices_of(slots, spares);
    let here: Vec<_> = devices.iter().map(|device| device.superblock.borrow().device_number).collect();
    let mut roles = freshest.roles.clone();
    let mut rounds_pending = 0;
    for (number, role) in roles.iter_mut().enumerate() {
        let is_here = here.iter().any(|device| usize::from(device.0) == number);
        if !is_here && matches!(role, DeviceRole::Active(_)) {
            *role = DeviceRole::Faulty;
            rounds_pending = mutant!("absent-told-alone" => ROUNDS_TO_EJECT, else ROUNDS_TO_EJECT_ABSENT);
        }
    }
    for spare in spares {
        // This includes a spare that was about to take a slot when the power failed.
        if let Some(role) = roles.get_mut(usize::from(spare.superblock.borrow().device_number.0)) {
            *role = DeviceRole::Spare;
        }
    }
    let is_behind = |device: &Rc<Device<M>>| device.superblock.borrow().events < freshest.events;
    let lagging = devices.iter().any(is_behind);
    let shared = || SharedFields { resync: freshest.resync, roles: freshest.roles.clone(), bitmap: freshest.bitmap };
    let lagging = (lagging && !mutant!("uneven-events-grow")).then(shared);
    Record {
        events: freshest.events,
        events_found: freshest.events,
        dirty: false,
        resync,
        roles,
        rounds_pending,
        lagging,
        is_flush_pending: !mutant!("found-unflushed"),
        is_force_pending: false,
        is_out_of_room: false,
    }
}
