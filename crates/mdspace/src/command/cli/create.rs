//! `create`: a new array of new or existing members.
//!
//! [`crate::create`] creates the array. This file turns arguments into its recipe, and prints notes and the result.

use crate::command::cli::arguments::{Bitmap, ConsistencyPolicy, CreateArguments, Metadata, NewUuid};
use crate::command::opening::assembly::resync;
use crate::command::opening::bitmap_file::BitmapFile;
use crate::command::opening::by_hand;
use crate::command::opening::members::expand;
use crate::command::text::failure::Failure;
use crate::command::text::geometry::GeometryText;
use crate::command::text::level::level_name;
use crate::command::text::output::{print, print_json, tell};
use crate::command::text::progress::Progress;
use crate::command::text::size::Size;
use crate::create::{Devices, Watcher, are_all_new, default_recipe};
use crate::machine::{Arena, Machine};
use crate::names::{name_of, word_of};
use engine::create::{Contents, Recipe};
use engine::status::Status;
use format::geometry::Level;
use format::placement::BitmapChoice;
use format::superblock::{DeviceFlags, Version};
use parity::Kernel;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Runs `mdspace create`.
pub(crate) fn run(arguments: &CreateArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let slots = slots(arguments)?;
    let recipe = Recipe { device_flags: device_flags(arguments, &slots)?, ..recipe(arguments)? };
    let machine = Machine::start(kernel, Arena::Medium)?.over(arguments.overlay.directory())?;
    let machine = if arguments.dry_run { machine.rehearsing() } else { machine };
    let devices = Devices { slots: &slots, spares: &arguments.spare, journal: arguments.write_journal.as_ref() };
    let status = machine.run(create(&machine, recipe, devices, arguments.size, bitmap_file(arguments)?))?;
    if arguments.bitmap.is_none() && status.bitmap.is_some() {
        tell!("note: members this large get an internal bitmap, as in mdadm; --bitmap none turns it off");
    }
    warn_of_small_chunk(arguments.level(), status.chunk_bytes);
    if arguments.told.json { print_json(&status) } else { print(&summary(arguments, &status, &slots)) }
}

/// Creates the array that `recipe` describes, and resyncs it if needed and not left for later. Returns its status afterwards.
pub(crate) async fn create(
    machine: &Machine,
    recipe: Recipe,
    devices: Devices<'_>,
    size: Option<Size>,
    bitmap: Option<BitmapFile>,
) -> Result<Status, Failure> {
    let is_resynced_later = recipe.resync_later || machine.is_rehearsal();
    let watcher = Reporter::default();
    let created = crate::create::create(machine, recipe, devices, size.map(|size| size.0), &watcher).await;
    drop(watcher); // clears its bar before other output
    let (array, made) = created?;
    if let Some(bitmap) = bitmap
        && let Err(refusal) = bitmap.add_to(&array, machine).await
    {
        if are_all_new(&made, devices) || machine.is_rehearsal() {
            return Err(refusal.into()); // the new members are removed again
        }
        made.keep();
        return Err(refusal.after("the array was created, without a bitmap").into());
    }
    warn_of_little_room(made.paths());
    if !machine.is_rehearsal() {
        made.keep();
    }
    if !is_resynced_later {
        resync(&array).await;
    }
    array.stop().await?;
    Ok(array.status())
}

/// The largest page of a Linux system. On some processors pages have 4, 16 or 64 KiB, as the kernel was built.
const LARGEST_PAGE_BYTES: u64 = 64 << 10;

/// Warns of a chunk that is smaller than a page of some systems: md refuses such an array there. Source: `setup_conf` in
/// Linux's drivers/md/raid5.c and raid10.c.
fn warn_of_small_chunk(level: Level, chunk_bytes: u64) {
    let is_of_pages = matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10);
    if is_of_pages && chunk_bytes < LARGEST_PAGE_BYTES {
        tell!(
            "warning: md refuses chunks of {} where a page is larger (16K and 64K on some ARM and POWER systems); \
             --chunk 64K works everywhere",
            Size(chunk_bytes)
        );
    }
}

/// Prints a note for each file system with less free space than its new sparse members may need.
fn warn_of_little_room(made: &[PathBuf]) {
    let mut needed: BTreeMap<u64, (&Path, u64)> = BTreeMap::new();
    for path in made {
        let Ok(file) = std::fs::metadata(path) else { continue };
        let missing = file.len().saturating_sub(file.blocks() * BLOCKS_BYTES);
        needed.entry(file.dev()).or_insert((path, 0)).1 += missing;
    }
    for (path, needed) in needed.into_values() {
        let Ok(system) = rustix::fs::statvfs(path) else { continue };
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if needed > free {
            tell!(
                "note: {}: sparse members may need {} more, and their file system has {} free: \
                 when it is full, writes to the array fail",
                path.display(),
                Size(needed),
                Size(free)
            );
        }
    }
}

/// The unit of a file's `st_blocks`.
const BLOCKS_BYTES: u64 = 512;

/// Reports a creation on standard error.
#[derive(Default)]
struct Reporter {
    /// The progress, and the bytes it shows.
    shown: RefCell<Option<(Progress, u64)>>,
}

impl Watcher for Reporter {
    fn announce(&self, what: &str) {
        tell!("note: {what}");
    }

    fn progress(&self, done: u64, total: u64) {
        let mut shown = self.shown.borrow_mut();
        let (bar, before) = shown.get_or_insert_with(|| (Progress::start("zeroing", Some(total)), 0));
        bar.advance(done - *before);
        *before = done;
    }
}

fn bitmap_file(arguments: &CreateArguments) -> Result<Option<BitmapFile>, Failure> {
    let Some(Bitmap::File(path)) = &arguments.bitmap else { return Ok(None) };
    if !arguments.level().is_redundant() {
        return Err(Failure::refused("--bitmap: a level without redundancy has no bitmap"));
    }
    let file = BitmapFile { path: path.clone(), chunk_bytes: arguments.bitmap_chunk.map(|size| size.0) };
    file.check_is_new()?; // before members are created
    Ok(Some(file))
}

/// The recipe for `arguments`.
fn recipe(arguments: &CreateArguments) -> Result<Recipe, Failure> {
    let level = arguments.level();
    if let (Level::Linear | Level::Raid0, Some(spare)) = (level, arguments.spare.first()) {
        let reason =
            format!("--spare {}: at a level without redundancy a spare cannot replace a member", name_of(spare));
        return Err(Failure::refused(reason).advise("make it a member"));
    }
    let layout = arguments.layout_code().map_err(|error| Failure::refused(format!("--layout: {error}")))?;
    let policy = arguments.consistency_policy;
    check_policy(arguments)?;
    let bitmap = match (&arguments.bitmap, arguments.bitmap_chunk) {
        (None, None) if has_own_bitmap(policy) => BitmapChoice::DefaultChunk,
        (None, Some(chunk)) if has_own_bitmap(policy) => BitmapChoice::Chunk(chunk.0),
        (None, None) if policy.is_some() || arguments.write_journal.is_some() => BitmapChoice::None,
        (None, None) => BitmapChoice::Auto,
        (Some(Bitmap::None), None) | (Some(Bitmap::File(_)), _) => BitmapChoice::None,
        (Some(Bitmap::Lockless), chunk) => BitmapChoice::Lockless(chunk.map(|size| size.0)),
        (Some(Bitmap::Internal), None) => BitmapChoice::DefaultChunk,
        (Some(Bitmap::Internal), Some(chunk)) => BitmapChoice::Chunk(chunk.0),
        (None | Some(Bitmap::None), Some(_)) => {
            return Err(Failure::refused("--bitmap-chunk: there is no bitmap").advise("add --bitmap internal"));
        }
    };
    check_bitmap_details(arguments, bitmap)?;
    let default = default_recipe(level)?;
    let by_hand = arguments.geometry.as_ref();
    let data_offset = match by_hand {
        Some(geometry) => Some(common_offset(geometry)?),
        None => arguments.data_offset.map(|offset| offset.0),
    };
    Ok(Recipe {
        version: match arguments.metadata {
            Metadata::V0_90 => Version::V0_90,
            Metadata::V1_0 => Version::V1_0,
            Metadata::V1_1 => Version::V1_1,
            Metadata::V1_2 => Version::V1_2,
        },
        layout: layout.unwrap_or(default.layout),
        chunk_bytes: match by_hand {
            Some(geometry) => geometry.chunk_bytes,
            None => chunk_bytes(level, arguments.chunk)?.unwrap_or(default.chunk_bytes),
        },
        name: arguments.name.clone().unwrap_or_default(),
        preferred_minor: preferred_minor(arguments)?,
        set_uuid: set_uuid(arguments).unwrap_or(default.set_uuid),
        data_offset_bytes: data_offset,
        component_bytes: match by_hand {
            Some(geometry) => geometry.size,
            None => component_bytes(arguments)?,
        },
        bitmap,
        bitmap_delay_seconds: arguments.bitmap_delay,
        write_behind: arguments.write_behind.unwrap_or(0),
        parity_log: policy == Some(ConsistencyPolicy::Ppl),
        stripe_log: policy == Some(ConsistencyPolicy::Log),
        resync_later: arguments.resync_later,
        contents: if arguments.assume_clean { Contents::Consistent } else { Contents::Unknown },
        integrity: arguments.integrity,
        overwrite: arguments.force,
        logical_block_bytes: logical_block_bytes(arguments.logical_block_size)?,
        ..default
    })
}

/// Refuses what is recorded in the members' bitmap, where there may be none. A bitmap file gets its delay later.
fn check_bitmap_details(arguments: &CreateArguments, bitmap: BitmapChoice) -> Result<(), Failure> {
    let refuse = |option: &str, reason: &str, advice: &str| {
        Err(Failure::refused(format!("{option}: {reason}")).advise(advice.to_owned()))
    };
    let is_there = !matches!(bitmap, BitmapChoice::None | BitmapChoice::Auto);
    match (arguments.bitmap_delay, arguments.write_behind) {
        (Some(_), _) if !is_there => refuse("--bitmap-delay", "the members have no bitmap", "add --bitmap internal"),
        (_, Some(_)) if arguments.level() != Level::Raid1 => {
            refuse("--write-behind", "md heeds it at RAID-1 alone", "leave it out")
        }
        (_, Some(_)) if !is_there => refuse("--write-behind", "the members have no bitmap", "add --bitmap internal"),
        (_, Some(_)) if arguments.write_mostly.is_empty() => {
            refuse("--write-behind", "no member is write-mostly", "add --write-mostly MEMBER")
        }
        _ => Ok(()),
    }
}

/// Whether the policy is a bitmap, or better with one: md does not know the stripe log, and resyncs by the bitmap.
fn has_own_bitmap(policy: Option<ConsistencyPolicy>) -> bool {
    matches!(policy, Some(ConsistencyPolicy::Bitmap | ConsistencyPolicy::Log))
}

/// Refuses a policy that contradicts another argument.
fn check_policy(arguments: &CreateArguments) -> Result<(), Failure> {
    let has_bitmap = arguments.bitmap.as_ref().is_some_and(|bitmap| *bitmap != Bitmap::None);
    if arguments.write_journal.is_some() {
        return check_journal(arguments, has_bitmap);
    }
    let refuse = |reason: &str, advice: &str| {
        Err(Failure::refused(format!("--consistency-policy: {reason}")).advise(advice.to_owned()))
    };
    match arguments.consistency_policy {
        Some(ConsistencyPolicy::Ppl) if arguments.level() != Level::Raid5 => {
            refuse("only RAID-5 has a partial parity log", "choose `bitmap` or `resync`")
        }
        Some(ConsistencyPolicy::Ppl | ConsistencyPolicy::Resync) if has_bitmap => {
            refuse("an array with a bitmap has the policy `bitmap`", "leave out --bitmap")
        }
        Some(ConsistencyPolicy::Log) if !arguments.level().has_parity() => {
            refuse("a level without parity has no stripe log", "choose `bitmap` or `resync`")
        }
        Some(ConsistencyPolicy::Log) if matches!(arguments.metadata, Metadata::V0_90 | Metadata::V1_0) => {
            refuse("with metadata at the end there is no room for a stripe log", "choose --metadata 1.2")
        }
        Some(ConsistencyPolicy::Ppl) if arguments.integrity => {
            refuse("checksums are not kept beside a partial parity log", "choose `bitmap`, or leave out --integrity")
        }
        Some(ConsistencyPolicy::Bitmap) if arguments.bitmap == Some(Bitmap::None) => {
            refuse("`bitmap`, and --bitmap none", "leave out one of them")
        }
        _ => Ok(()),
    }
}

/// Refuses a write journal that contradicts another argument.
fn check_journal(arguments: &CreateArguments, has_bitmap: bool) -> Result<(), Failure> {
    let refuse = |reason: &str, advice: &str| {
        Err(Failure::refused(format!("--write-journal: {reason}")).advise(advice.to_owned()))
    };
    match arguments.consistency_policy {
        _ if !arguments.level().has_parity() => refuse("only levels 4, 5 and 6 have a write journal", "leave it out"),
        _ if matches!(arguments.metadata, Metadata::V0_90 | Metadata::V1_0) => {
            refuse("md does not take one with metadata 0.90 or 1.0", "choose --metadata 1.2")
        }
        _ if has_bitmap => refuse("md does not take a bitmap beside it", "leave out --bitmap"),
        Some(_) => refuse("it is the consistency policy of the array", "leave out --consistency-policy"),
        None => Ok(()),
    }
}

/// The array's uuid, if the user chose one. As mdadm, with the words of 0.90 in its own order.
fn set_uuid(arguments: &CreateArguments) -> Option<[u8; 16]> {
    match (arguments.uuid?, arguments.metadata) {
        (NewUuid::Random, _) => None,
        (NewUuid::Given(uuid), Metadata::V0_90) => Some(uuid.with_words_reversed().0),
        (NewUuid::Given(uuid), Metadata::V1_0 | Metadata::V1_1 | Metadata::V1_2) => Some(uuid.0),
    }
}

fn preferred_minor(arguments: &CreateArguments) -> Result<u32, Failure> {
    match arguments.preferred_minor {
        Some(_) if arguments.metadata != Metadata::V0_90 => {
            Err(Failure::refused("--preferred-minor: only metadata 0.90 has it").advise("choose a --name"))
        }
        minor => Ok(minor.unwrap_or(0)),
    }
}

fn component_bytes(arguments: &CreateArguments) -> Result<Option<u64>, Failure> {
    match arguments.component_size {
        Some(_) if !arguments.level().has_component() => {
            let level = level_name(arguments.level());
            Err(Failure::refused(format!("--component-size: {level} uses all of each member")))
        }
        size => Ok(size.map(|size| size.0)),
    }
}

/// The flags of each member: those in slots first, then spares.
fn device_flags(arguments: &CreateArguments, slots: &[Option<PathBuf>]) -> Result<Vec<DeviceFlags>, Failure> {
    let members: Vec<Option<&PathBuf>> =
        slots.iter().map(Option::as_ref).chain(arguments.spare.iter().map(Some)).collect();
    let mut flags = vec![DeviceFlags::default(); members.len()];
    let options: [(&str, DeviceFlags, &[PathBuf], &[Level]); 2] = [
        ("--write-mostly", DeviceFlags::WRITE_MOSTLY, &arguments.write_mostly, &[Level::Raid1]),
        ("--failfast", DeviceFlags::FAIL_FAST, &arguments.failfast, &[Level::Raid1, Level::Raid10]),
    ];
    for (option, flag, flagged, levels) in options {
        for path in flagged {
            if arguments.metadata == Metadata::V0_90 {
                let reason = format!("{option}: mdadm takes a flag in metadata 0.90 for a member's wrong state");
                return Err(Failure::refused(reason).advise("choose --metadata 1.0"));
            }
            if !levels.contains(&arguments.level()) {
                let level = level_name(arguments.level());
                return Err(Failure::refused(format!("{option}: md does not heed it at {level}")));
            }
            let Some(number) = members.iter().position(|member| *member == Some(path)) else {
                let reason = format!("{option} {}: not one of the members", name_of(path));
                return Err(Failure::refused(reason).advise("give it as a member, or with --spare, too"));
            };
            flags[number].0 |= flag.0;
        }
    }
    Ok(flags)
}

/// Where data begins on every member.
fn common_offset(geometry: &GeometryText) -> Result<u64, Failure> {
    let first = geometry.offset(0);
    match geometry.offsets.iter().all(|offset| *offset == first) {
        true => Ok(first),
        false => Err(Failure::refused("--geometry: offset: superblocks are written for one position on all members")
            .advise("copy the data: `mdspace read --geometry` takes a position for each slot")),
    }
}

/// The logical block size for the superblock, as Linux 6.19 records it; 0 for none.
fn logical_block_bytes(asked: Option<Size>) -> Result<u32, Failure> {
    let Some(Size(bytes)) = asked else { return Ok(0) };
    match bytes.is_power_of_two() && (512..=4096).contains(&bytes) {
        true => Ok(bytes as u32),
        false => Err(Failure::refused(format!("--logical-block-size: {bytes} is not a power of two from 512 to 4096"))),
    }
}

fn chunk_bytes(level: Level, asked: Option<Size>) -> Result<Option<u64>, Failure> {
    let may_round = level == Level::Linear; // md cuts each member to a multiple
    if asked.is_some() && !level.has_chunks() && !may_round {
        return Err(Failure::refused(format!("--chunk: {} has no chunks", level_name(level))));
    }
    if let Some(Size(bytes)) = asked.filter(|size| size.0 < 4096) {
        return Err(Failure::refused(format!("--chunk: {bytes} bytes are less than 4K")));
    }
    Ok(asked.map(|size| size.0))
}

/// The members by slot, `None` for the word `missing`.
fn slots(arguments: &CreateArguments) -> Result<Vec<Option<PathBuf>>, Failure> {
    if let Some(geometry) = &arguments.geometry {
        return by_hand::slots(geometry, &arguments.members);
    }
    let mut slots: Vec<Option<PathBuf>> = Vec::new();
    for word in &arguments.members {
        if word == "missing" {
            slots.push(None);
            continue;
        }
        let has = |letters: &[u8]| word.as_bytes().iter().any(|byte| letters.contains(byte));
        let is_name = Path::new(word).symlink_metadata().is_ok() || !has(b"*?[");
        match expand(std::slice::from_ref(word)) {
            _ if is_name => slots.push(Some(word.into())),
            Ok(found) => slots.extend(found.into_iter().map(Some)),
            // No file matches: with --size the word names a new member, unless it is clearly a pattern.
            Err(_) if arguments.size.is_some() && !has(b"*?") => slots.push(Some(word.into())),
            Err(failure) => return Err(failure),
        }
    }
    let mut seen = std::collections::HashSet::new();
    for path in slots.iter().flatten().chain(&arguments.spare).chain(&arguments.write_journal) {
        if !seen.insert(path) {
            return Err(Failure::refused(format!("{}: given twice", name_of(path))).advise("name each member once"));
        }
    }
    Ok(slots)
}

/// The new array, and the next command.
fn summary(arguments: &CreateArguments, status: &Status, slots: &[Option<PathBuf>]) -> String {
    let devices = Devices { slots, spares: &arguments.spare, journal: arguments.write_journal.as_ref() };
    let members: Vec<_> = devices.all().map(|path| word_of(path)).collect();
    let chunk = if status.chunk_bytes > 0 { format!(", chunk {}", Size(status.chunk_bytes)) } else { String::new() };
    let layout = status.layout.as_ref().map(|layout| format!(", {layout}")).unwrap_or_default();
    let array = format!(
        "{} of {} members, {}{chunk}{layout}",
        level_name(arguments.level()),
        status.raid_disks,
        Size(status.array_bytes)
    );
    if arguments.dry_run {
        return format!("would create {array}\nnothing was changed; without --dry-run it is created\n");
    }
    let uuid = &status.uuid;
    let bitmap = match &arguments.bitmap {
        Some(Bitmap::File(path)) => format!(" --bitmap {}", word_of(path)),
        None | Some(Bitmap::Internal | Bitmap::Lockless | Bitmap::None) => String::new(),
    };
    format!("{array}, uuid {uuid}\nnext: mdspace serve {}{bitmap}\n", members.join(" "))
}
