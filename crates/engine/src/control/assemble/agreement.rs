//! Whether parity and copies can be trusted after what the superblocks, the bitmap and the bad blocks say; and the
//! warnings where the user has accepted that they cannot.
//!
//! Pure. Facts: `drivers/md/raid5.c` (`raid5_run`, for a dirty and degraded array).

use crate::control::forced::{Rescue, slots_text};
use crate::control::logs::Log;
use crate::control::offer::AssembleOptions;
use crate::control::{forced, logs};
use crate::core::ParityTrust;
use crate::core::personality::personality;
use crate::device::Device;
use crate::metadata::bitmap::intent::IntentBitmap;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::geometry::{Geometry, Level, Redundancy, SyncSpace};
use format::superblock::{Resync, Superblock};
use format::units::{Sectors, Slot};
use std::ops::Range;
use std::rc::Rc;

/// What the user has accepted by `--force`, in words.
pub(super) struct Warnings {
    pub(super) texts: Vec<String>,
    /// Slots without a current member.
    missing: Vec<Slot>,
}

impl Warnings {
    pub(super) fn of(
        geometry: &Geometry,
        rescue: &Rescue,
        missing: &dyn Fn(Slot) -> bool,
        options: &AssembleOptions,
    ) -> Self {
        let is_short = options.partial && !geometry.survives(missing);
        let missing: Vec<Slot> = (0..geometry.slots()).map(Slot).filter(|&slot| missing(slot)).collect();
        let taken = (!rescue.taken.is_empty()).then(|| forced::warning(&rescue.forced, geometry.level(), &missing));
        let partial = is_short.then(|| partial_warning(geometry, &missing, options.force));
        Self { texts: taken.into_iter().chain(partial).collect(), missing }
    }
}

/// The warning about an array with fewer members than it needs.
fn partial_warning(geometry: &Geometry, missing: &[Slot], force: bool) -> String {
    let slots = slots_text(missing);
    match geometry.level().redundancy() {
        Redundancy::None if geometry.level() == Level::Linear && !force => format!(
            "what {slots} held cannot be read, and neither can what lies behind the first missing member: its place depends \
             on how long the missing ones are, and --force takes them to be as long as the others"
        ),
        Redundancy::None => format!(
            "what {slots} held cannot be read; the missing members are taken to be as long as the others, and if they \
             were not, what is read may be out of its place"
        ),
        Redundancy::Copies | Redundancy::Parity => format!("what only {slots} held cannot be read"),
    }
}

/// Whether parity and copies agree after what the superblocks and the log say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreement {
    /// The resync position that the array returns to when it is stopped.
    pub(super) resync: Resync,
    /// They agree everywhere.
    pub(super) agreed: bool,
    /// What parity may give where it does not agree.
    pub(super) trust: ParityTrust,
}

impl Agreement {
    const AGREED: Self = Self { resync: Resync::Clean, agreed: true, trust: ParityTrust::Nothing };

    /// A resync is due, from there on.
    fn due(resync: Resync) -> Self {
        Self { resync, agreed: false, trust: ParityTrust::Nothing }
    }

    /// Parity stands in for missing members although a write may have been under way: its log was replayed, or the user
    /// has accepted that. A resync is due, as in md, unless the absent members leave nothing that could be made to agree.
    /// Members that are recovering are no absent ones: what they have is data, and the resync follows the recovery.
    fn trusted(geometry: &Geometry, absent: &dyn Fn(Slot) -> bool, resync: Resync) -> Self {
        let mut here = (0..geometry.slots()).map(Slot).filter(|slot| !absent(*slot));
        let has_further = here.all(|further| geometry.survives(&|slot| absent(slot) || slot == further));
        match has_further && !mutant!("torn-stripes-left") {
            true => Self { trust: ParityTrust::Members, ..Self::due(resync) },
            false => Self::AGREED,
        }
    }
}

/// Whether parity and copies can be trusted. `absent` are slots without a device.
pub(super) fn agreement(
    geometry: &Geometry,
    freshest: &Superblock,
    rescue: &Rescue,
    log: &Log,
    absent: &dyn Fn(Slot) -> bool,
    warnings: &mut Warnings,
    options: &AssembleOptions,
) -> Result<Agreement, Refusal> {
    let lacks_journal = freshest.journal && !matches!(log, Log::Journal { .. });
    if lacks_journal {
        warnings.texts.push(logs::journal_warning(options));
    }
    // With a journal, superblocks say clean while the array is in use.
    let resync = if lacks_journal { Resync::From(Sectors(0)) } else { freshest.resync };
    let is_degraded = !warnings.missing.is_empty();
    warnings.texts.extend(log.warnings(&warnings.missing, options));
    match geometry.level().redundancy() {
        _ if resync == Resync::Clean && rescue.taken.is_empty() => Ok(Agreement::AGREED),
        Redundancy::Parity if log.agrees(&warnings.missing) => Ok(Agreement::trusted(geometry, absent, resync)),
        Redundancy::None | Redundancy::Copies if rescue.taken.is_empty() => Ok(Agreement::due(resync)),
        Redundancy::None => Ok(Agreement::AGREED),
        Redundancy::Copies => Ok(Agreement::due(Resync::From(Sectors(0)))),
        Redundancy::Parity if !is_degraded && rescue.taken.is_empty() => Ok(Agreement::due(resync)),
        Redundancy::Parity if !is_degraded => Ok(Agreement::due(Resync::From(Sectors(0)))),
        Redundancy::Parity if options.partial && !options.force => {
            let slots = slots_text(&warnings.missing);
            warnings.texts.push(format!(
                "the array was not stopped cleanly, so nothing is reconstructed where parity may be wrong, and what \
                 {slots} held cannot be read there"
            ));
            Ok(Agreement::due(resync))
        }
        Redundancy::Parity if options.force || mutant!("write-hole-taken") => {
            log.check(freshest, options)?;
            if resync != Resync::Clean {
                warnings.texts.push(format!(
                    "the array is dirty and degraded: where a write was under way when it stopped, what {} held may be \
                     wrong (the write hole)",
                    slots_text(&warnings.missing)
                ));
            }
            match rescue.taken.is_empty() && !lacks_journal {
                true => Ok(Agreement::trusted(geometry, absent, resync)),
                // What was taken is of another time than parity: a resync would end what several parities still tell. And
                // an array whose journal is given up is stopped at once.
                false => Ok(Agreement::AGREED),
            }
        }
        Redundancy::Parity => log.check(freshest, options).and_then(|()| {
            let reason = "the array is dirty and degraded: where a write was under way when it stopped, the missing \
                          member's data would be reconstructed wrong (the write hole)";
            Err(log.explain(Refusal::new(reason).field("superblock.resync_offset").advice(
                "give a current member for each slot, or accept that with --force; --partial reads what is certain",
            )))
        }),
    }
}

/// What parity may give. An array with bad blocks where parity may be wrong is dirty and degraded there; the user may have
/// accepted that. `needed` says whether any of a component range may disagree.
pub(super) fn check_bad_blocks<M: Member>(
    geometry: &Geometry,
    slots: &[Option<Rc<Device<M>>>],
    agreement: Agreement,
    needed: &dyn Fn(Range<u64>) -> bool,
    warnings: &mut Warnings,
    options: &AssembleOptions,
) -> Result<ParityTrust, Refusal> {
    let Resync::From(from) = agreement.resync else { return Ok(agreement.trust) };
    if !personality(geometry).needs_agreement() || agreement.trust == ParityTrust::Members {
        return Ok(agreement.trust);
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
            return Ok(ParityTrust::BadBlocks);
        }
        let reason = format!(
            "the array is dirty and degraded: this member has bad blocks at byte {} of its data; where a write was \
             under way when the array stopped, the data there would be reconstructed wrong (the write hole)",
            range.start
        );
        return Err(Refusal::new(reason).of(&device.name).field("bad-block log").advice("accept that with --force"));
    }
    Ok(agreement.trust)
}

/// Refuses before the replay of a partial parity log what [`check_bad_blocks`] would refuse after it, when members have
/// changed. With all members there, that log vouches for no parity, whatever its replay comes to.
pub(super) fn check_bad_blocks_before_replay<M: Member>(
    geometry: &Geometry,
    slots: &[Option<Rc<Device<M>>>],
    freshest: &Superblock,
    warnings: &Warnings,
    options: &AssembleOptions,
) -> Result<(), Refusal> {
    if freshest.ppl.is_none() || !warnings.missing.is_empty() || options.read_only {
        return Ok(());
    }
    let (agreement, mut told_later) = (Agreement::due(freshest.resync), Warnings { texts: vec![], missing: vec![] });
    check_bad_blocks(geometry, slots, agreement, &|_| true, &mut told_later, options).map(drop)
}

/// The array byte below which all is in agreement, by a resync's checkpoint. It is rounded down to a whole
/// block, as md stops at any sector.
pub(super) fn agreed_below(geometry: &Geometry, resync: Resync, block_bytes: u64) -> u64 {
    let Resync::From(sectors) = resync else { return geometry.array_bytes() };
    let position = sectors.checked_bytes().unwrap_or(u64::MAX);
    geometry.array_byte_at(mutant!("checkpoint-mid-block" => position, else position / block_bytes * block_bytes))
}

/// The component byte from which on a write may have been under way when the array stopped. From there a
/// successor may differ from its member, and only a recovery compares the two. `None` after a clean stop.
pub(super) fn doubtful_from<M: Member>(
    geometry: &Geometry,
    resync: Resync,
    intent: Option<&IntentBitmap<M>>,
) -> Option<u64> {
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
