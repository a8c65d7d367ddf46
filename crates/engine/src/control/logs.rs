//! Decides what may be done with arrays whose unfinished writes are in a log of md's: a write journal, or the partial
//! parity log of RAID-5. [`crate::metadata::partial_parity`] and [`crate::metadata::journal`] read and write the members.
//!
//! * A journal that is present holds data and parity that the members may lack: it is replayed. When the journal is lost, the members' superblocks call the array clean even after a power
//!   loss. mdadm refuses such an array without `--force`, and starts it read-only with it. So does this engine.
//! * A dirty array with a partial parity log is repaired by that log, as by md. Where a member is missing, nothing else
//!   repairs it: if the log cannot be used, the array is refused without `force`.
//! * md calls each active array with such a log dirty from its first byte, also in its first resync. So parity may not
//!   have been built yet, and nothing on the members tells. md resyncs an array with all members whose log holds no
//!   write, and starts a degraded one. Here parity then replaces nothing as long as all members are present. Without a
//!   member it does, as by md, with a warning.
//!
//! Facts: measured on the kernel and mdadm; `super_1_sync` in `drivers/md/md.c` (`MD_JOURNAL_CLEAN`),
//! `Assemble.c` of mdadm.

use crate::base::buffer::Pool;
use crate::control::forced::slots_text;
use crate::control::offer::{AssembleOptions, JournalPlan};
use crate::device::{Device, DeviceState};
use crate::metadata::partial_parity;
use crate::metadata::replay::{Replayed, Slots};
use crate::metadata::stripe_log::replay::{self, Found};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::geometry::Geometry;
use format::superblock::{DeviceRole, Resync, Superblock};
use format::units::{Sectors, Slot};
use std::rc::Rc;

/// Checks whether an array with a write journal may be used. `journal` is the member that calls itself the
/// journal, if one was given.
pub(crate) fn check_journal(name: &str, journal: Option<&str>, options: &AssembleOptions) -> Result<(), Refusal> {
    let refuse = |member: &str, reason: &str, advice: &str| {
        Err(Refusal::new(reason).of(member).field("superblock.feature_map").advice(advice))
    };
    if journal.is_some() && may_replay(options) {
        return Ok(());
    }
    let is_given_up = options.journal == JournalPlan::GivenUp;
    if let Some(journal) = journal {
        return refuse(
            journal,
            "the array's write journal, which may hold data that the members lack: such an array is only read once it is \
             replayed",
            "read it with `mdspace read` or `mdspace serve --read-only`, which replay the journal in memory",
        );
    }
    if !options.read_only && !is_given_up {
        return refuse(
            name,
            "the array has a write journal, which is not given: without it the array can only be read",
            "`mdspace read --force`, or serve it with --read-only --force; if the journal is lost, `mdspace update \
             --write-journal none --force` has the array go on without",
        );
    }
    if !options.force {
        return refuse(
            name,
            "the array has a write journal, which is not given: writes that it alone holds are missing, and no superblock \
             says whether there are any",
            match is_given_up {
                true => "give the journal as well, and nothing is lost; if it is lost, --force gives it up",
                false => {
                    "give the journal as well, which is replayed in memory; if it is lost, --force reads the array \
                          without"
                }
            },
        );
    }
    Ok(())
}

/// The warning for an array that is used without its journal.
pub(crate) fn journal_warning(options: &AssembleOptions) -> String {
    let further = match options.journal {
        JournalPlan::GivenUp => "from now on the array has no journal, and its parity is resynced",
        JournalPlan::Kept | JournalPlan::ToCome => "the array is read-only",
    };
    format!(
        "the write journal is not given: writes that it alone held are lost, the last ones may be there in part, and \
         {further}"
    )
}

/// Takes the journal that was lost out of what the superblocks are to say, if that is the plan.
pub(crate) fn give_up_journal<M: Member>(
    freshest: &mut Superblock,
    devices: &[Rc<Device<M>>],
    options: &AssembleOptions,
) -> bool {
    let is_here = devices.iter().any(|device| device.state.get() == DeviceState::Journal);
    let is_due = freshest.journal && !is_here && options.journal == JournalPlan::GivenUp && !options.read_only;
    if is_due {
        freshest.journal = false;
        let journals = freshest.roles.iter_mut().filter(|role| **role == DeviceRole::Journal);
        journals.for_each(|role| *role = DeviceRole::Faulty);
        devices.iter().for_each(|device| device.superblock.borrow_mut().journal = false);
    }
    is_due
}

/// Drops the logs unless all superblocks with the most events name one, also those of members without all data. Power
/// went while the log was being turned on or off, when no write was under way ([`crate::metadata::consistency`]).
pub(crate) fn drop_unfinished<M: Member>(freshest: &mut Superblock, devices: &[Rc<Device<M>>]) {
    let newest = devices.iter().map(|device| device.superblock.borrow().events).max();
    let lacks_log = |device: &Rc<Device<M>>| {
        let own = device.superblock.borrow();
        Some(own.events) == newest && own.ppl.is_none()
    };
    if devices.iter().any(lacks_log) && !mutant!("unfinished-log-kept") {
        freshest.ppl = None;
        devices.iter().for_each(|device| device.superblock.borrow_mut().ppl = None);
    }
}

/// Gives spares a log if the array has one. A spare may have left before that, as it has no age.
pub(crate) fn give_to_spares<M: Member>(freshest: &Superblock, devices: &[Rc<Device<M>>]) {
    let is_without =
        |device: &&Rc<Device<M>>| device.state.get() == DeviceState::Spare && device.superblock.borrow().ppl.is_none();
    for device in devices.iter().filter(|_| freshest.ppl.is_some()).filter(is_without) {
        let with_log = device.superblock.borrow().with_parity_log(device.member.limits().bytes);
        // One without room is refused by name.
        with_log.into_iter().for_each(|with_log| device.superblock.replace(with_log));
    }
}

/// Refuses a bitmap file beside a log of md's, which allows no bitmap there.
pub(crate) fn check_bitmap_file(file: &str, freshest: &Superblock, options: &AssembleOptions) -> Result<(), Refusal> {
    let log = match (freshest.ppl.is_some(), freshest.journal) {
        (true, _) => "partial parity log",
        (false, true) => "write journal",
        (false, false) => return Ok(()),
    };
    if options.read_only || mutant!("bitmap-file-beside-a-log") {
        return Ok(());
    }
    let reason = format!("the array has a {log}, which md allows beside no bitmap");
    Err(Refusal::new(reason).of(file).field("superblock.feature_map").advice("assemble it without a bitmap file"))
}

/// Refuses to write to an array whose partial parity log this engine cannot keep. It has to hold a chunk. Checksums are
/// not kept by a replay, here or by md.
pub(crate) fn check_parity_log<M: Member>(
    freshest: &Superblock,
    devices: &[Rc<Device<M>>],
    options: &AssembleOptions,
) -> Result<(), Refusal> {
    if freshest.ppl.is_none() || options.read_only {
        return Ok(());
    }
    let refuse = |device: &Device<M>, field: &str, reason: &str| {
        let refusal = Refusal::new(reason).of(&device.name).field(field);
        Err(refusal.advice("serve it --read-only, or let md change it: mdadm --grow --consistency-policy=resync"))
    };
    for device in devices {
        if device.parity_log_room().is_none_or(|room| room < freshest.chunk.bytes()) {
            return refuse(
                device,
                "superblock.ppl.size",
                "its partial parity log is shorter than a header and a chunk",
            );
        }
        if device.checksums.get().is_some() {
            let reason = "it has checksums beside a partial parity log, whose replay does not keep them";
            return refuse(device, "superblock.feature_map", reason);
        }
    }
    Ok(())
}

const PARITY_LOG: &str = "partial parity log";
const STRIPE_LOG: &str = "stripe log";

/// What was done about the logs of an array.
pub(crate) enum Log {
    /// There are none that matter, or the caller gives no members to replay them into.
    Untouched,
    /// They were replayed.
    Replayed(Replayed),
    /// They cannot be used: why.
    Unusable {
        /// Which one.
        log: &'static str,
        reason: Refusal,
    },
    /// The stripe logs were replayed.
    Stripes(Replayed),
    /// The array has a stripe log, and it does not count: why.
    Void(Refusal),
    /// There is a write journal, and it was replayed.
    Journal {
        /// The rows of stripes that it held.
        rows: u64,
    },
}

/// Replays the partial parity logs of an array that needs it.
pub(crate) async fn replay<M: Member>(
    geometry: &Geometry,
    freshest: &Superblock,
    slots: &Slots<M>,
    options: &AssembleOptions,
    pool: &Pool,
) -> Log {
    let Geometry::Parity(parity) = geometry else { return Log::Untouched };
    let is_due = freshest.ppl.is_some() && freshest.resync == Resync::From(Sectors(0));
    if !(may_replay(options) && (is_due || mutant!("log-of-clean-array-replayed"))) {
        return Log::Untouched;
    }
    match partial_parity::replay(parity, slots, pool).await {
        Ok(replayed) => {
            for device in slots.iter().flatten() {
                device.keep_replayed_log();
                device.successor().inspect(|successor| successor.keep_replayed_log());
            }
            Log::Replayed(replayed)
        }
        Err(reason) => Log::Unusable { log: PARITY_LOG, reason },
    }
}

/// Replays the stripe logs of an array that was not stopped cleanly.
pub(crate) async fn replay_stripe_log<M: Member>(
    found: &Found,
    geometry: &Geometry,
    freshest: &Superblock,
    slots: &Slots<M>,
    options: &AssembleOptions,
    pool: &Pool,
) -> Log {
    let Geometry::Parity(parity) = geometry else { return Log::Untouched };
    if freshest.resync == Resync::Clean {
        return Log::Untouched;
    }
    let logs = match found {
        Found::None => return Log::Untouched,
        Found::Void(reason, _) => return Log::Void(reason.clone()),
        Found::Good(logs) => logs,
    };
    if !may_replay(options) || !logs.is_built() {
        return Log::Untouched;
    }
    let kernel = options.kernel.unwrap_or_else(parity::Kernel::best);
    match replay::replay(logs, parity, kernel, slots, pool).await {
        Ok(replayed) => Log::Stripes(replayed),
        Err(reason) => Log::Unusable { log: STRIPE_LOG, reason },
    }
}

/// Whether the members may be written, or their writes stay in memory.
pub(crate) fn may_replay(options: &AssembleOptions) -> bool {
    options.replay || !options.read_only
}

impl Log {
    /// Whether parity may stand in for members. `missing` are slots without a current one. A stripe log knows whether
    /// parity was ever built, so that members may also fail later. md's partial parity log does not.
    pub(crate) fn agrees(&self, missing: &[Slot]) -> bool {
        match self {
            Self::Stripes(_) => true,
            Self::Replayed(_) => !missing.is_empty(),
            Self::Untouched | Self::Unusable { .. } | Self::Void(_) | Self::Journal { .. } => false,
        }
    }

    /// Whether the array goes on without its partial parity log. Once parity disagrees where no entry says so, md's next
    /// replay would take it for right. An array that lacks a member has nothing else, and is refused.
    pub(crate) fn is_given_up(&self, is_degraded: bool, options: &AssembleOptions) -> bool {
        let is_unusable = matches!(self, Self::Unusable { log: PARITY_LOG, .. });
        is_unusable && !is_degraded && !options.read_only && !mutant!("unusable-log-kept")
    }

    /// The refusal of an array whose log can be neither used nor given up. It names the member at which the replay failed:
    /// without that member, the logs of the others may do.
    pub(crate) fn why_given_up(&self, refusal: &Refusal) -> Refusal {
        let Self::Unusable { reason, .. } = self else { return refusal.clone() };
        let further = format!("nor can its log be given up: {}", refusal.reason_and_changes());
        reason.clone().because(&further).advice("try without this member: the others have logs of their own")
    }

    /// What the user should know.
    pub(crate) fn warnings(&self, missing: &[Slot], options: &AssembleOptions) -> Vec<String> {
        let replayed = match self {
            Self::Untouched | Self::Journal { rows: 0 } => return Vec::new(),
            Self::Journal { rows } => {
                let (place, changed) =
                    if options.read_only { (" in memory", "; no member was changed") } else { ("", "") };
                return vec![format!(
                    "the write journal was replayed{place}: it held {} KiB of each member's rows{changed}",
                    rows * 4
                )];
            }
            Self::Unusable { log, reason } => {
                let further = match self.is_given_up(!missing.is_empty(), options) {
                    true => "; from now on the array has no log, and its parity is resynced",
                    false => "",
                };
                return vec![format!("the {log} cannot be used: {reason}{further}")];
            }
            Self::Void(reason) => return vec![void_text(reason)],
            Self::Replayed(replayed) | Self::Stripes(replayed) => replayed,
        };
        let (log, has_unbuilt) = match self {
            Self::Stripes(_) => (STRIPE_LOG, false),
            _ => (PARITY_LOG, true),
        };
        let writes = if replayed.entries == 1 { "1 write".to_owned() } else { format!("{} writes", replayed.entries) };
        let torn = match replayed.torn {
            0 => String::new(),
            torn => format!("; {torn} of its parts were torn, so that their writes had not begun"),
        };
        let (place, changed) = match options.read_only {
            true => (" in memory", "; no member was changed"),
            false => ("", ""),
        };
        let first =
            format!("the array was not stopped cleanly: its {log} was replayed{place}, {writes}{torn}{changed}");
        let unknown = (replayed.unknown_bytes > 0).then(|| {
            format!(
                "writes to several chunks, of which {} held {} bytes, may have been under way: what was being written there \
                 is read as parity gives it, and may be anything if the write had not ended",
                slots_text(missing),
                replayed.unknown_bytes
            )
        });
        let unbuilt = (has_unbuilt && !missing.is_empty()).then(|| unbuilt_warning(replayed.entries, missing));
        [Some(first), unbuilt, unknown].into_iter().flatten().collect()
    }

    /// Adds to the refusal of a dirty and degraded array why its log does not repair it.
    pub(crate) fn explain(&self, refusal: Refusal) -> Refusal {
        match self {
            Self::Void(reason) => refusal.because(&void_text(reason)),
            _ => refusal,
        }
    }

    /// Refuses a dirty and degraded array whose log was not replayed, if the log alone can repair it.
    pub(crate) fn check(&self, freshest: &Superblock, options: &AssembleOptions) -> Result<(), Refusal> {
        match self {
            Self::Unusable { reason, .. } if !options.force => Err(reason.clone().advice(
                "without that log, what the missing member held may be wrong where a write was under way: give a current \
                 member for each slot, or accept that with --force",
            )),
            Self::Untouched if freshest.ppl.is_some() && !may_replay(options) => Err(needs_its_ppl()),
            Self::Untouched
            | Self::Unusable { .. }
            | Self::Replayed(_)
            | Self::Stripes(_)
            | Self::Void(_)
            | Self::Journal { .. } => Ok(()),
        }
    }
}

fn void_text(reason: &Refusal) -> String {
    format!("the stripe log is void: {reason}")
}

/// The warning that no superblock tells whether the parity that stands in for a member was ever built.
fn unbuilt_warning(writes: u64, missing: &[Slot]) -> String {
    let held = slots_text(missing);
    let weakest = match writes {
        0 => "; no log held a write, so that the array may well have been in that resync",
        _ => "",
    };
    format!(
        "what {held} held is wrong where parity was never built: if the array's first resync had not ended, nothing on the \
         members tells{weakest}"
    )
}

/// The refusal of a dirty and degraded array with a partial parity log, for a caller that cannot replay it.
fn needs_its_ppl() -> Refusal {
    Refusal::new(
        "the array is dirty and degraded, and what the missing member held is right only once the partial parity log was \
         replayed; --force would give wrong data",
    )
    .field("superblock.feature_map")
    .advice("read it with `mdspace read` or `mdspace serve --read-only`, which replay the log in memory")
}
