//! The order of an assembly, from the candidates to the running array.
//!
//! Each decision is a function of another file; this one reads the members in turn and builds the parts. A log of md's is
//! replayed before parity is trusted.

use crate::base::buffer::Pool;
use crate::base::versioned::Growing;
use crate::control::assemble::agreement::{
    Agreement, Warnings, agreed_below, agreement, check_bad_blocks, check_bad_blocks_before_replay, doubtful_from,
};
use crate::control::assemble::buffered;
use crate::control::assemble::journal::{self, Replay, take_journal};
use crate::control::assemble::record::{devices_of, first_record};
use crate::control::assemble::seats::seat;
use crate::control::assemble::shape::{cache_bytes, check_block_bytes, check_fit, geometry, missing_text, too_few};
use crate::control::assemble::supported::{check_supported, journal_of};
use crate::control::conversion::adopt_conversion;
use crate::control::election::{Offered, adopt_change, elect, rescue};
use crate::control::inspect::find_superblock;
use crate::control::logs::{self, Log};
use crate::control::offer::{AssembleOptions, FindWriteBuffer, Offer};
use crate::control::state::{AssemblyReport, Control};
use crate::core::metadata_lock::Guarded;
use crate::core::unbuilt::Unbuilt;
use crate::core::{ArrayInfo, Core, Health, Roster};
use crate::data::{DataOptions, DataPlane};
use crate::device::context::DeviceContext;
use crate::device::stripe_log::LogState;
use crate::device::{Device, DeviceState};
use crate::metadata::Metadata;
use crate::metadata::bitmap::intent::IntentBitmap;
use crate::metadata::bitmap::load::{LoadContext, load_file, read_all};
use crate::metadata::bitmap::lockless::Lockless;
use crate::metadata::record::{ROUNDS_TO_EJECT, Record};
use crate::metadata::stripe_log::replay::{Found, find as find_stripe_log};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Candidate, Member};
use format::geometry::Geometry;
use format::superblock::Resync;
use format::units::{Sectors, Slot};
use std::ops::Range;
use std::rc::Rc;

/// Why parity is doubted although the superblock calls the array clean.
const UNBUILT: &str = "its lockless bitmap names parts that were written, where parity may not have been built yet";

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::assemble`].
    pub(crate) async fn assemble(
        candidates: Vec<Candidate<M>>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Rc<Self>, Refusal> {
        Self::assemble_offer(Offer::of(candidates), options, pool, clock).await
    }

    /// [`crate::Array::assemble_offer`].
    pub(crate) async fn assemble_offer(
        offer: Offer<M>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Rc<Self>, Refusal> {
        if options.partial && !options.read_only {
            return Err(Refusal::new("an array with fewer members than it needs is only read"));
        }
        let Offer { members, bitmap, write_buffer, .. } = offer;
        let mut offered = find_all(members, &pool).await?;
        adopt_change(&mut offered);
        Self::assemble_found(offered, bitmap, write_buffer, options, pool, clock).await
    }

    /// Assembles members whose superblocks are known.
    pub(super) async fn assemble_found(
        offered: Vec<Offered<M>>,
        bitmap: Option<Candidate<M>>,
        write_buffer: Option<FindWriteBuffer>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Rc<Self>, Refusal> {
        let context = DeviceContext::new(pool.clone());
        let may_replay = logs::may_replay(&options);
        let (offered, journal) = if may_replay { take_journal(offered, &context) } else { (offered, None) };
        let mut election = elect(&offered)?;
        let mut freshest = offered[election.freshest].found.superblock.clone();
        let freshest_name = offered[election.freshest].name.clone();
        if let Some(journal) = &journal {
            journal::check_current(journal, &freshest)?;
        }
        let journal_name = journal.as_ref().map(|journal| &*journal.device.name).or(journal_of(&offered));
        check_supported(&freshest_name, &freshest, journal_name, &options)?;
        let rescue = rescue(&offered, &mut election, &freshest, options.force);
        let (slots, mut spares, left_out) = seat(offered, &election, &freshest, &options, &pool, &context).await?;
        let geometry = geometry(&freshest, &slots, &left_out, &rescue, &options)?;
        check_fit(&geometry, &slots)?;
        options.stripe_size.check(&geometry)?;
        let missing = |slot: Slot| {
            !slots[slot.index()].as_ref().is_some_and(|d: &Rc<Device<M>>| d.state.get() == DeviceState::InSync)
        };
        if !geometry.survives(&missing) && !options.partial {
            let spares: Vec<&str> = spares.iter().map(|spare| &*spare.name).collect();
            return Err(too_few(&geometry, &missing, &left_out, &spares, &rescue));
        }
        spares.extend(journal.as_ref().map(|journal| journal.device.clone()));
        let devices = devices_of(&slots, &spares);
        logs::drop_unfinished(&mut freshest, &devices);
        logs::give_to_spares(&freshest, &devices);
        let find_checksums = async || {
            for device in devices.iter().filter(|device| device.state.get() != DeviceState::Journal) {
                device.find_checksums(&pool, clock.wall(), options.verify).await;
            }
        };
        // With md's logs, a header of a stripe log is one that other software has left: writes were logged in md's.
        let has_md_log = (freshest.ppl.is_some() || freshest.journal) && !mutant!("old-log-before-that-of-md");
        let stripe_log = if has_md_log { Found::None } else { find_stripe_log(&slots, &pool).await };
        let keeps_log = freshest.ppl.is_some() || freshest.journal || stripe_log.epoch().is_some();
        if keeps_log {
            find_checksums().await; // a replay changes them
        }
        logs::check_parity_log(&freshest, &devices, &options)?;
        bitmap.as_ref().map_or(Ok(()), |file| logs::check_bitmap_file(&file.name, &freshest, &options))?;
        let bitmaps = match &bitmap {
            None if !options.read_only => read_all(&freshest, geometry.sync_bytes(), &slots, &spares, &pool).await?,
            _ => None,
        };
        let Lockless { is_agreed: is_built, unbuilt } = match &bitmaps {
            _ if options.read_only => Lockless::find(&freshest, &slots, &pool).await,
            // A stale member that was accepted by force may know of writes that no bitmap names.
            Some(bitmaps) => bitmaps.lockless(rescue.taken.is_empty()),
            None => Lockless::absent(),
        };
        let unbuilt = Rc::new(unbuilt);
        if !is_built {
            freshest.resync = Resync::From(Sectors(0));
        }
        let mut warnings = Warnings::of(&geometry, &rescue, &missing, &options);
        let buffered = buffered::take(write_buffer, &freshest, &context, &mut warnings, &options)?;
        check_bad_blocks_before_replay(&geometry, &slots, &freshest, &warnings, &options)?;
        let mut replay: Option<Replay<M>> = None;
        let log = match journal {
            Some(found) => replay.insert(journal::replay(found, &geometry, &slots, &options, &pool).await?).log(),
            None if stripe_log.epoch().is_some() && rescue.taken.is_empty() => {
                logs::replay_stripe_log(&stripe_log, &geometry, &freshest, &slots, &options, &pool).await
            }
            None if rescue.taken.is_empty() => logs::replay(&geometry, &freshest, &slots, &options, &pool).await,
            None => Log::Untouched, // the log of a stale member is stale, too
        };
        let absent = |slot: Slot| slots[slot.index()].is_none();
        let agreement = agreement(&geometry, &freshest, &rescue, &log, &absent, &mut warnings, &options)
            .map_err(|refusal| if is_built { refusal } else { refusal.because(UNBUILT) })
            .map_err(|refusal| refusal.because(&missing_text(&geometry, &missing, &left_out)))?;
        let journal_given_up = logs::give_up_journal(&mut freshest, &devices, &options);
        let is_replayed = matches!(log, Log::Stripes(_));
        // Members that are absent lack the replay, so they must not return. And md does not know of a stripe log.
        let is_degraded = (0..geometry.slots()).map(Slot).any(missing);
        let is_md_log_replayed = matches!(log, Log::Replayed(_) | Log::Journal { rows: 1.. });
        let has_replay_to_tell = is_replayed || (is_md_log_replayed && is_degraded);
        let circumstances = LoadContext {
            freshest: &freshest,
            covered_bytes: geometry.sync_bytes(),
            agreed: agreement.agreed,
            unbuilt: &unbuilt,
            is_forced: !rescue.taken.is_empty(),
            policy: options.bitmap,
        };
        let intent = match bitmap {
            _ if options.read_only => None,
            Some(file) => Some(load_file(&circumstances, file, &slots, &spares, &pool).await?),
            None => bitmaps.map(|bitmaps| bitmaps.into_members_intent(&circumstances)),
        };
        let is_needed = |range: Range<u64>| match &intent {
            Some(intent) => intent.next_needed(range, 0).is_some(),
            None => true,
        };
        let trust = match options.read_only {
            true => agreement.trust,
            false => check_bad_blocks(&geometry, &slots, agreement, &is_needed, &mut warnings, &options)?,
        };
        if let Some(from) = doubtful_from(&geometry, freshest.resync, intent.as_ref()) {
            slots.iter().flatten().filter_map(|device| device.successor()).for_each(|device| device.revert_to(from));
        }
        let whole = slots.iter().all(|device| device.as_ref().is_some_and(|device| device.is_whole()));
        let mut record =
            first_record(&freshest, agreement.resync, &slots, &spares, &election, &rescue, intent.is_some());
        if journal_given_up {
            // Should it be found after all, it must not be replayed.
            record.rounds_pending = record.rounds_pending.max(ROUNDS_TO_EJECT);
        }
        let is_news = has_replay_to_tell || (options.force && !warnings.texts.is_empty());
        record.is_assembly_pending = is_news && !options.read_only;
        if !keeps_log {
            find_checksums().await;
        }
        let block_bytes = check_block_bytes(&geometry, &devices, (&freshest_name, &freshest), &options)?;
        let forced_members = if rescue.taken.is_empty() { Vec::new() } else { rescue.forced };
        let origin = AssemblyReport { left_out, forced: forced_members, warnings: warnings.texts };
        let assembled = Assembled {
            geometry,
            slots,
            spares,
            context,
            agreement: Agreement { trust, ..agreement },
            unbuilt,
            whole,
            intent,
            record,
            block_bytes,
            origin,
        };
        if let Some(epoch) = stripe_log.epoch().filter(|_| !options.read_only) {
            let is_built = agreement.agreed || is_replayed;
            assembled.context.keep_stripe_log(LogState::after(epoch, clock.wall(), is_built));
        }
        let array = Self::start(assembled, &devices, &options, pool, clock);
        if log.is_given_up(is_degraded, &options) {
            array.metadata.give_up_parity_log().await.map_err(|refusal| log.why_given_up(&refusal))?;
        }
        let journal = array.finish_replay(replay).await?;
        if has_replay_to_tell && !options.read_only && !mutant!("replay-untold") {
            array.metadata.record_assembly().await.map_err(ArrayError::refusal)?;
        }
        if let Some(journal) = journal {
            array.metadata.begin_journal(journal).await.map_err(ArrayError::refusal)?;
        }
        array.write_found(buffered, options.force).await?;
        Ok(array)
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
        let Agreement { resync, agreed, trust } = assembled.agreement;
        let agreed_below = agreed_below(&geometry, resync, block_bytes);
        let doubtful = assembled.intent.as_ref().and_then(IntentBitmap::needed);
        let health = Health::new(assembled.whole, agreed, agreed_below, trust, doubtful, assembled.unbuilt);
        let core = Rc::new(Core {
            geometries: Growing::new(geometry),
            info: ArrayInfo {
                kernel: options.kernel.unwrap_or_else(parity::Kernel::best),
                read_only: options.read_only,
                block_bytes,
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
    agreement: Agreement,
    unbuilt: Rc<Unbuilt>,
    whole: bool,
    intent: Option<IntentBitmap<M>>,
    record: Record,
    block_bytes: u64,
    origin: AssemblyReport,
}

/// Finds the superblock of each candidate. Those that an interrupted conversion left behind count as converted.
pub(in crate::control) async fn find_all<M: Member>(
    members: Vec<Candidate<M>>,
    pool: &Pool,
) -> Result<Vec<Offered<M>>, Refusal> {
    let mut offered = Vec::with_capacity(members.len());
    for Candidate { name, member } in members {
        let found = find_superblock(&name, &member, pool).await?;
        offered.push(Offered { name, member, found });
    }
    adopt_conversion(&mut offered);
    Ok(offered)
}
