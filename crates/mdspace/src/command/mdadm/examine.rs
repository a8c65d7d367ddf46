//! `--examine`, `--examine-bitmap` and `--examine-badblocks`: a member's metadata in mdadm's lines.
//!
//! It only reads, also members in use. Damaged superblocks are refused with the damaged field's name, where mdadm may
//! print them. Facts: mdadm 4.2's `super0.c`, `super1.c`, `bitmap.c` and `Examine.c`, and its output: a test compares
//! both line by line.

use super::text::{
    array_bytes, chunk_text, human, human_decimal, layout_name, local_time, locality, quoted, without_host,
};
use super::words::Words;
use super::{Trouble, host_of, tell};
use crate::command::opening::mdadm_conf::{Config, block_devices};
use crate::command::opening::members::{ArrayUuid, expand_with_directories};
use crate::command::text::failure::Failure;
use crate::command::text::output::print;
use crate::machine::{Arena, Machine, Purpose};
use engine::Member;
use engine::examined::{BadBlocksExamined, BitmapExamined, Examination};
use engine::inspect::{Found, find_superblock};
use engine::status::{level_name, uuid_text};
use format::bitmap::{Kind, State};
use format::geometry::Level;
use format::superblock::{Counts, DeviceFlags, DeviceRole, Listed, Reshape, Resync, Superblock, Version, checksum_at};
use format::units::{SECTOR_BYTES, Sectors, Slot};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The first four bytes of each superblock and of each bitmap, as numbers.
const MAGIC: u32 = 0xa92b_4efc;
const BITMAP_MAGIC: u32 = 0x6d74_6962;

/// The word of `--metadata` for superblocks 0.90 of the other byte order.
const SWAPPED: &str = "0.swap";

/// Sectors that md keeps free behind a superblock, and in which mdadm counts no free space.
const SUPERBLOCK_ROOM: u64 = 72;

/// A member that was read.
pub(super) struct Examined {
    /// As it was given.
    pub(super) name: String,
    pub(super) found: Found,
    pub(super) examination: Examination,
}

/// Reads `path`. The error is mdadm's: for a path that cannot be opened, and for one without a superblock.
pub(super) fn read(machine: &Machine, path: &Path) -> Result<Examined, Trouble> {
    read_in(machine, path, false)
}

/// As [`read`], of a superblock in this machine's byte order, or else in the other one, which is turned.
fn read_in(machine: &Machine, path: &Path, is_other_order: bool) -> Result<Examined, Trouble> {
    let name = path.to_string_lossy().into_owned();
    if let Err(error) = std::fs::File::open(path) {
        return Err(Trouble::failed(format!("cannot open {name}: {}", reason(&error))));
    }
    let candidate = machine.open(path, Purpose::Look)?;
    let found = machine.run(find_superblock(&candidate.name, &candidate.member, &machine.pool));
    let mut found = found.map_err(|refusal| match refusal.field.as_deref() {
        Some("superblock.magic") => Trouble::failed(format!("No md superblock detected on {name}.")),
        _ => Trouble::from(Failure::from(refusal)).with_status(1),
    })?;
    match (found.superblock.other_byte_order, is_other_order) {
        (true, true) => {
            found.superblock.other_byte_order = false;
            found.place = found.superblock.encode().into();
        }
        (false, false) => {}
        (true, false) => {
            return Err(Trouble::failed(format!(
                "No md superblock detected on {name}.\nIt has one of the other byte order: --metadata={SWAPPED} shows it"
            )));
        }
        (false, true) => return Err(Trouble::failed(format!("No md superblock detected on {name}."))),
    }
    let bytes = candidate.member.limits().bytes;
    let examination = Examination::of(&candidate.name, bytes, &found);
    let examination = machine.run(examination.with_logs(&candidate.member, &found, &machine.pool));
    Ok(Examined { name, found, examination })
}

/// Refuses a member of another metadata version than `--metadata` says.
pub(super) fn check_version(words: &Words, member: &Examined) -> Result<(), Trouble> {
    let Some(wanted) = words.value("metadata") else { return Ok(()) };
    let version = member.found.superblock.version;
    let is_it = match &*wanted {
        "0" | "0.90" | SWAPPED => version == Version::V0_90,
        "1" | "default" => version != Version::V0_90,
        "1.0" | "1.1" | "1.2" => version.to_string() == wanted,
        _ => return Err(Trouble::refused(format!("--metadata={wanted}: not here: 0.90, 1.0, 1.1 and 1.2 are"))),
    };
    match is_it {
        true => Ok(()),
        false => {
            Err(Trouble::failed(format!("No md superblock of version {wanted} on {}: it has {version}", member.name)))
        }
    }
}

/// mdadm.conf, or the file that `--config` names.
pub(super) fn config(words: &Words) -> Result<Config, Trouble> {
    match words.word("config") {
        Some(word) if word == OsStr::new("partitions") => Ok(Config::default()),
        Some(word) if word == OsStr::new("none") => Err(Trouble::refused("--config=none: not yet: give a file")),
        path => Ok(Config::read(path.map(Path::new))?),
    }
}

/// The system's word for an error, without its number.
pub(super) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Runs `--examine`.
pub(super) fn examine(words: &Words) -> Result<u8, Trouble> {
    let machine = Machine::start(None, Arena::Small)?;
    let is_brief = words.has("brief") || (words.has("scan") && !words.has("export"));
    let paths = paths(words)?;
    if paths.is_empty() {
        return Err(Trouble::usage("No devices to examine"));
    }
    let (mut status, mut members) = (0, Vec::new());
    let is_other_order = words.word("metadata").is_some_and(|wanted| wanted == OsStr::new(SWAPPED));
    for path in &paths {
        let member =
            read_in(&machine, path, is_other_order).and_then(|member| check_version(words, &member).map(|()| member));
        match member {
            Ok(member) => members.push(member),
            // In a scan, devices are candidates, and not members by the user's word.
            Err(_) if words.has("scan") || is_brief => {}
            Err(trouble) => {
                tell(&trouble);
                status = trouble.status;
            }
        }
    }
    if is_brief {
        print(&brief(&members, words.verbose > 0))?;
        return Ok(status);
    }
    let host = host_of(words);
    for member in &members {
        let text = match words.has("export") {
            true => export(&member.found.superblock),
            false => format!("{}:\n{}", member.name, member.text(host.as_deref())),
        };
        print(&text)?;
    }
    Ok(status)
}

/// What is examined: the given devices, or with `--scan` those of mdadm.conf.
fn paths(words: &Words) -> Result<Vec<PathBuf>, Trouble> {
    let given: Vec<PathBuf> = words.devices.iter().map(|device| PathBuf::from(&device.word)).collect();
    if !given.is_empty() || !words.has("scan") {
        return Ok(given);
    }
    let config = match words.has("config") {
        true => config(words)?,
        false => Config::read(None).unwrap_or_default(),
    };
    let places: Vec<OsString> = config.all_places();
    let places = if places.is_empty() { block_devices() } else { places };
    Ok(expand_with_directories(&places).unwrap_or_default())
}

/// `ARRAY` lines: of each array the first member's, the array that was found last first.
fn brief(members: &[Examined], is_verbose: bool) -> String {
    // mdadm takes members for one array's only if these agree.
    let identity = |member: &Examined| {
        let Superblock { set_uuid, created, level, raid_disks, .. } = &member.found.superblock;
        (*set_uuid, created.seconds, *level, *raid_disks)
    };
    let mut firsts: Vec<&Examined> = Vec::new();
    for member in members {
        if !firsts.iter().any(|first| identity(first) == identity(member)) {
            firsts.push(member);
        }
    }
    let mut text = String::new();
    for first in firsts.into_iter().rev() {
        let own: Vec<&Examined> = members.iter().filter(|member| identity(member) == identity(first)).collect();
        // mdadm counts what replaces a member as a spare.
        let is_active = |member: &&&Examined| {
            let superblock = &member.found.superblock;
            matches!(superblock.own_role(), DeviceRole::Active(_)) && !superblock.replacement
        };
        let spares = own.len() - own.iter().filter(is_active).count();
        text += &array_line(&first.found, is_verbose);
        if spares > 0 {
            text += &format!("   spares={spares}");
        }
        if is_verbose {
            let names: Vec<&str> = own.iter().map(|member| &*member.name).collect();
            text += &format!("   devices={}", names.join(","));
        }
        if spares > 0 || is_verbose {
            text.push('\n');
        }
    }
    text
}

fn array_line(found: &Found, is_verbose: bool) -> String {
    let superblock = &found.superblock;
    let (level, slots) = (level_name(superblock.level), superblock.raid_disks);
    let uuid = array_uuid(superblock);
    if superblock.version == Version::V0_90 {
        let minor = Counts::of(&found.place).map_or(0, |counts| counts.minor);
        let verbose = if is_verbose { format!(" level={level} num-devices={slots}") } else { String::new() };
        return format!("ARRAY /dev/md{minor}{verbose} UUID={uuid}\n");
    }
    let name = superblock.set_name.to_string();
    let device = match without_host(&name) {
        "" if name.is_empty() => String::new(),
        own => format!("/dev/md/{} ", own.replace([' ', '\t'], "_")),
    };
    let (verbose, count) = match is_verbose {
        true => (format!(" level={level}"), format!("num-devices={slots} ")),
        false => (String::new(), String::new()),
    };
    let named = if name.is_empty() { String::new() } else { format!(" name={}", quoted(&name)) };
    format!("ARRAY {device}{verbose} metadata={} {count}UUID={uuid}{named}\n", superblock.version)
}

/// The array's uuid as mdadm prints it: that of 0.90 is four numbers.
pub(super) fn array_uuid(superblock: &Superblock) -> String {
    let uuid = ArrayUuid(superblock.set_uuid);
    match superblock.version {
        Version::V0_90 => uuid.with_words_reversed().to_string(),
        Version::V1_0 | Version::V1_1 | Version::V1_2 => uuid.to_string(),
    }
}

/// Lines of `KEY=value`.
fn export(superblock: &Superblock) -> String {
    let mut text = format!("MD_LEVEL={}\nMD_DEVICES={}\n", level_name(superblock.level), superblock.raid_disks);
    if superblock.version == Version::V0_90 {
        text += &format!("MD_UUID={}\n", array_uuid(superblock));
        // mdadm prints the time of creation here.
        text += &format!("MD_UPDATE_TIME={}\nMD_EVENTS={}\n", superblock.created.seconds, superblock.events);
        return text;
    }
    let name = superblock.set_name.to_string();
    let name = name.split('\n').next().unwrap_or_default();
    if !name.is_empty() {
        text += &format!("MD_NAME={name}\n");
    }
    if let Some(bytes) = size_of(superblock) {
        text += &format!("MD_ARRAY_SIZE={}\n", human_decimal(bytes));
    }
    text += &format!("MD_UUID={}\nMD_UPDATE_TIME={}\n", array_uuid(superblock), superblock.updated.seconds);
    text += &format!("MD_DEV_UUID={}\n", uuid_text(&superblock.device_uuid.unwrap_or_default()));
    text + &format!("MD_EVENTS={}\n", superblock.events)
}

fn size_of(superblock: &Superblock) -> Option<u64> {
    let Superblock { level, raid_disks, component, layout, .. } = superblock;
    array_bytes(*level, (*raid_disks).into(), component.bytes(), *layout)
}

/// `  Label : value` with the colon where mdadm has it.
fn line(label: &str, value: impl std::fmt::Display) -> String {
    format!("{label:>15} : {value}\n")
}

impl Examined {
    fn text(&self, host: Option<&str>) -> String {
        match self.found.superblock.version {
            Version::V0_90 => self.text_of_0_90(host),
            Version::V1_0 | Version::V1_1 | Version::V1_2 => self.text_of_1(host),
        }
    }

    fn text_of_1(&self, host: Option<&str>) -> String {
        let superblock = &self.found.superblock;
        let name = superblock.set_name.to_string();
        let mut text = line("Magic", format!("{MAGIC:08x}"));
        text += &line("Version", superblock.version);
        text += &line("Feature Map", format!("{:#x}", superblock.features().0));
        text += &line("Array UUID", array_uuid(superblock));
        text += &line("Name", format!("{name}{}", locality(&name, host)));
        text += &line("Creation Time", local_time(superblock.created.seconds));
        text += &line("Raid Level", level_name(superblock.level));
        text += &line("Raid Devices", superblock.raid_disks);
        text += "\n";
        text += &self.space();
        text += &line("State", if superblock.resync == Resync::Clean { "clean" } else { "active" });
        text += &line("Device UUID", uuid_text(&superblock.device_uuid.unwrap_or_default()));
        text += "\n";
        text += &areas(superblock);
        text += &superblock.reshape.as_ref().map(|reshape| reshape_of_1(superblock, reshape)).unwrap_or_default();
        text += &flags(superblock.device_flags);
        text += &line("Update Time", local_time(superblock.updated.seconds));
        text += &bad_block_log(superblock);
        text += &self.checksum();
        text += &line("Events", superblock.events);
        text += "\n";
        text += &shape(superblock);
        text += "\n";
        text += &format!("   Device Role : {}\n", role(superblock));
        let states = "('A' == active, '.' == missing, 'R' == replacing)";
        text + &format!("   Array State : {} {states}\n", array_state(superblock))
    }

    /// The lengths and places, of 1.x.
    fn space(&self) -> String {
        let superblock = &self.found.superblock;
        let sectors = |sectors: Sectors| format!("{} sectors", sectors.0);
        let sized = |sectors: Sectors| format!("{} sectors{}", sectors.0, human(sectors.bytes()));
        let mut text = line("Avail Dev Size", sized(superblock.data_size));
        if superblock.level != Level::Raid0 {
            if let Some(bytes) = size_of(superblock) {
                text += &line("Array Size", format!("{} KiB{}", bytes >> 10, human(bytes)));
            }
            if superblock.component != superblock.data_size {
                text += &line("Used Dev Size", sized(superblock.component));
            }
        }
        if superblock.data_offset.0 > 0 {
            text += &line("Data Offset", sectors(superblock.data_offset));
        }
        if let Some(new) = superblock.new_offset.filter(|new| *new != 0) {
            let offset = superblock.data_offset.0.saturating_add_signed(new.into());
            text += &line("New Offset", sectors(Sectors(offset)));
        }
        text += &line("Super Offset", sectors(superblock.super_offset));
        if let Some(offset) = superblock.recovery_offset {
            text += &line("Recovery Offset", sectors(offset));
        }
        let (before, after) = self.unused();
        if superblock.new_offset.is_none() && after != 1 {
            text += &line("Unused Space", format!("before={before} sectors, after={after} sectors"));
        }
        text
    }

    /// Sectors before and behind the data that mdadm counts as free. It shows no line for 1 behind.
    fn unused(&self) -> (u64, u64) {
        let superblock = &self.found.superblock;
        let (at, data) = (superblock.super_offset.0, superblock.data_offset.0);
        let used = match superblock.level {
            Level::Linear | Level::Raid0 => superblock.data_size.0,
            _ => superblock.component.0,
        };
        let bitmap = superblock.bitmap.map_or(0, |place| i64::from(place.sectors_from_superblock));
        let ppl = superblock.ppl.filter(|_| superblock.bitmap.is_none());
        let ppl_at = ppl.map_or(0, |place| i64::from(place.sectors_from_superblock));
        let log =
            superblock.bad_blocks.map(|log| (at.wrapping_add_signed(log.sectors_from_superblock.into()), log.sectors));
        let (before, after) = if data < at {
            let ends = [Some(at), log.map(|(log, _)| log), Some(at.wrapping_add_signed(bitmap + ppl_at))];
            let end = ends.into_iter().flatten().min().unwrap_or(at);
            (data, end.saturating_sub(data.saturating_add(used)))
        } else {
            let mut earliest = at + SUPERBLOCK_ROOM;
            if bitmap > 0 {
                earliest = earliest.max(bitmap.cast_unsigned() + self.bitmap_sectors());
            } else if let Some(place) = ppl.filter(|_| ppl_at > 0) {
                earliest = earliest.max(ppl_at.cast_unsigned() + u64::from(place.sectors));
            }
            if let Some((log, sectors)) = log {
                earliest = earliest.max(log + u64::from(sectors));
            }
            let device = self.examination.member_bytes / SECTOR_BYTES;
            (data.saturating_sub(earliest), device.wrapping_sub(used).wrapping_sub(data))
        };
        if (before, after) == (0, 0) { (1, 1) } else { (before, after) }
    }

    /// Sectors of the bitmap with its superblock, in whole pages.
    fn bitmap_sectors(&self) -> u64 {
        const SUPER_BYTES: u64 = 256;
        const PAGE: u64 = 4096;
        let bits = self.examination.bitmap.as_ref().map_or(0, |bitmap| bitmap.bits);
        (bits.div_ceil(8) + SUPER_BYTES).next_multiple_of(PAGE) / SECTOR_BYTES
    }

    fn checksum(&self) -> String {
        let stored = checksum_at(self.found.superblock.version, &self.found.place).unwrap_or_default();
        // A superblock with another checksum is damaged, and was refused.
        line("Checksum", format!("{stored:x} - correct"))
    }

    fn text_of_0_90(&self, host: Option<&str>) -> String {
        let superblock = &self.found.superblock;
        let Some(counts) = Counts::of(&self.found.place) else { return String::new() };
        let minor = if superblock.reshape.is_some() { 91 } else { 90 };
        let mut text = line("Magic", format!("{MAGIC:08x}"));
        text += &line("Version", format!("0.{minor}.{:02}", counts.patch));
        text += &line("UUID", array_uuid(superblock));
        // mdadm hashes the host's name into the uuid; this program does not, and says nothing of it.
        let _ = host;
        text += &line("Creation Time", local_time(superblock.created.seconds));
        text += &line("Raid Level", level_name(superblock.level));
        if superblock.level != Level::Raid0 && superblock.level != Level::Linear {
            let sized = |bytes: u64| format!("{}{}", bytes >> 10, human(bytes));
            text += &line("Used Dev Size", sized(superblock.component.bytes()));
            text += &size_of(superblock).map(|bytes| line("Array Size", sized(bytes))).unwrap_or_default();
        }
        text += &line("Raid Devices", superblock.raid_disks);
        text += &line("Total Devices", counts.total);
        text += &line("Preferred Minor", counts.minor);
        text += "\n";
        text += &superblock.reshape.as_ref().map(|reshape| reshape_text(superblock, reshape, "")).unwrap_or_default();
        text += &line("Update Time", local_time(superblock.updated.seconds));
        text += &line("State", if superblock.resync == Resync::Clean { "clean" } else { "active" });
        if superblock.bitmap.is_some() {
            text += &line("Internal Bitmap", "present");
        }
        text += &line("Active Devices", counts.active);
        text += &line("Working Devices", counts.working);
        text += &line("Failed Devices", counts.failed);
        text += &line("Spare Devices", counts.spare);
        text += &self.checksum();
        text += &line("Events", superblock.events);
        text += "\n";
        text += &shape(superblock);
        text += "\n";
        text + &device_table(superblock, &counts)
    }
}

/// The bitmap, or the partial parity log.
fn areas(superblock: &Superblock) -> String {
    if let Some(place) = superblock.bitmap {
        return line("Internal Bitmap", format!("{} sectors from superblock", place.sectors_from_superblock));
    }
    let Some(place) = superblock.ppl else { return String::new() };
    let at = place.sectors_from_superblock;
    line("PPL", format!("{} sectors at offset {at} sectors from superblock", place.sectors))
}

fn flags(flags: DeviceFlags) -> String {
    let names = [(DeviceFlags::WRITE_MOSTLY, " write-mostly"), (DeviceFlags::FAIL_FAST, " failfast")];
    let set: String = names.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect();
    if flags.0 == 0 { String::new() } else { format!("{:>15} :{set}\n", "Flags") }
}

fn bad_block_log(superblock: &Superblock) -> String {
    const ENTRIES_IN_SECTOR: u32 = 64;
    let Some(log) = superblock.bad_blocks else { return String::new() };
    let entries = u32::from(log.sectors) * ENTRIES_IN_SECTOR;
    let used = if log.in_use { " - bad blocks present." } else { "" };
    let at = log.sectors_from_superblock;
    line("Bad Block Log", format!("{entries} entries available at offset {at} sectors{used}"))
}

/// Layout and chunk.
fn shape(superblock: &Superblock) -> String {
    let name = layout_name(superblock.level, superblock.layout, superblock.raid0_layout);
    let mut text = name.map(|name| line("Layout", name)).unwrap_or_default();
    let chunk = format!("{}K", superblock.chunk.0 / 2);
    match superblock.level {
        Level::Linear => text += &line("Rounding", chunk),
        Level::Raid1 => {}
        _ => text += &line("Chunk Size", chunk),
    }
    text
}

fn role(superblock: &Superblock) -> String {
    match superblock.own_role() {
        DeviceRole::Spare | DeviceRole::Faulty => "spare".to_owned(),
        DeviceRole::Journal => "Journal".to_owned(),
        DeviceRole::Active(slot) if superblock.replacement => format!("Replacement device {}", slot.0),
        DeviceRole::Active(slot) => format!("Active device {}", slot.0),
    }
}

/// Slots that a reshape removes, which are still there.
fn leaving(superblock: &Superblock) -> u32 {
    superblock.reshape.map_or(0, |reshape| reshape.delta_disks.min(0).unsigned_abs())
}

fn array_state(superblock: &Superblock) -> String {
    let slots = (u32::from(superblock.raid_disks) + leaving(superblock)).min(u16::MAX.into()) as u16;
    let states = (0..slots).map(|slot| {
        let count = superblock.roles.iter().filter(|role| **role == DeviceRole::Active(Slot(slot))).count();
        match count {
            0 => '.',
            1 => 'A',
            2 if superblock.level != Level::Raid0 => 'R',
            _ => '?',
        }
    });
    states.collect()
}

/// mdadm's name of md's number of a level.
fn new_level_name(reshape: &Reshape) -> &'static str {
    reshape.level().map_or("-unknown-", level_name)
}

fn reshape_of_1(superblock: &Superblock, reshape: &Reshape) -> String {
    reshape_text(superblock, reshape, "K")
}

/// How far a reshape has come, and what it changes. The new chunk has a unit only in 1.x, where it is in KiB.
fn reshape_text(superblock: &Superblock, reshape: &Reshape, unit: &str) -> String {
    let position = reshape.position.checked_bytes().unwrap_or(u64::MAX);
    let mut text = line("Reshape pos'n", format!("{}{}", position >> 10, human(position)));
    let (new, delta) = (i64::from(superblock.raid_disks), reshape.delta_disks);
    if delta != 0 {
        text += &line("Delta Devices", format!("{delta} ({}->{new})", new - i64::from(delta)));
    }
    if reshape.level() != Some(superblock.level) {
        text += &line("New Level", new_level_name(reshape));
    }
    if reshape.new_layout != superblock.layout {
        let named = matches!(superblock.level, Level::Raid5 | Level::Raid6 | Level::Raid10);
        let name = layout_name(superblock.level, reshape.new_layout, false).filter(|_| named);
        text += &name.map(|name| line("New Layout", name)).unwrap_or_default();
    }
    if u64::from(reshape.new_chunk) != superblock.chunk.0 {
        let chunk = if unit.is_empty() { reshape.new_chunk * 512 } else { reshape.new_chunk / 2 };
        text += &line("New Chunksize", format!("{chunk}{unit}"));
    }
    text + "\n"
}

/// The devices of 0.90, the member itself first.
fn device_table(superblock: &Superblock, counts: &Counts) -> String {
    let mut text = "      Number   Major   Minor   RaidDevice State\n".to_owned();
    text += &device_row("this", &counts.own);
    text.push('\n');
    let count = u32::from(superblock.raid_disks) + leaving(superblock) + counts.spare;
    for (number, device) in counts.devices.iter().enumerate().take(count as usize) {
        text += &device_row(&format!("{number:4}"), device);
    }
    text
}

fn device_row(number: &str, device: &Listed) -> String {
    let Listed { major, minor, state, .. } = device;
    let slot = device.slot.cast_signed();
    let states = [
        (Listed::FAULTY, " faulty"),
        (Listed::ACTIVE, " active"),
        (Listed::SYNC, " sync"),
        (Listed::REMOVED, " removed"),
        (Listed::WRITE_MOSTLY, " write-mostly"),
        (Listed::FAIL_FAST, " failfast"),
    ];
    let mut words: String = states.iter().filter(|(bit, _)| state & bit != 0).map(|(_, word)| *word).collect();
    if state & !(Listed::WRITE_MOSTLY | Listed::FAIL_FAST) == 0 {
        words += " spare";
    }
    let path = device_path(*major, *minor).map(|path| format!("   {path}")).unwrap_or_default();
    format!("{number} {:5}   {major:5}    {minor:5}    {slot:5}     {words}{path}\n", device.number)
}

/// The block device with these numbers on this machine.
fn device_path(major: u32, minor: u32) -> Option<String> {
    let events = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let path = format!("/dev/{}", events.lines().find_map(|line| line.strip_prefix("DEVNAME="))?);
    Path::new(&path).exists().then_some(path)
}

/// Runs `--examine-bitmap`.
pub(super) fn examine_bitmap(words: &Words) -> Result<u8, Trouble> {
    let machine = Machine::start(None, Arena::Small)?;
    let mut status = 0;
    for device in &words.devices {
        let member = read(&machine, Path::new(&device.word));
        let shown = member.and_then(|member| match &member.examination.bitmap {
            Some(bitmap) => Ok(print(&bitmap_text(&member, bitmap, words.has("brief")))?),
            None => Err(Trouble::failed(format!("No bitmap found in {}", member.name))),
        });
        if let Err(trouble) = shown {
            tell(&trouble);
            status = 1;
        }
    }
    Ok(status)
}

fn bitmap_text(member: &Examined, bitmap: &BitmapExamined, is_brief: bool) -> String {
    let header = &bitmap.header;
    let line = |label: &str, value: String| format!("{label:>16} : {value}\n");
    let version = match header.kind {
        Kind::HostEndian => 3,
        Kind::Normal => 4,
        Kind::Clustered => 5,
        Kind::Lockless => 6,
    };
    let state = match header.state {
        State(0) => "OK",
        State::STALE => "Out of date",
        _ => "Unknown",
    };
    let mode = match header.write_behind {
        0 => "Normal".to_owned(),
        most => format!("Allow write behind, max {most}"),
    };
    let sync_bytes = header.sync_size.checked_bytes().unwrap_or(u64::MAX);
    let mut text = line("Filename", member.name.clone());
    text += &line("Magic", format!("{BITMAP_MAGIC:08x}"));
    text += &line("Version", version.to_string());
    text += &line("UUID", array_uuid(&member.found.superblock));
    text += &line("Events", bitmap.events.to_string());
    text += &line("Events Cleared", bitmap.events_cleared.to_string());
    text += &line("State", state.to_owned());
    text += &line("Chunksize", chunk_text(bitmap.chunk_bytes));
    text += &line("Daemon", format!("{}s flush period", header.daemon_sleep_seconds));
    text += &line("Write Mode", mode);
    text += &line("Sync Size", format!("{}{}", sync_bytes >> 10, human(sync_bytes)));
    if !is_brief {
        let share = 100.0 * bitmap.set as f64 / bitmap.bits.max(1) as f64;
        let (bits, set) = (bitmap.bits, bitmap.set);
        text += &line("Bitmap", format!("{bits} bits (chunks), {set} dirty ({share:.1}%)"));
    }
    text
}

/// Runs `--examine-badblocks`.
pub(super) fn examine_bad_blocks(words: &Words) -> Result<u8, Trouble> {
    let machine = Machine::start(None, Arena::Small)?;
    let mut status = 0;
    for device in &words.devices {
        match read(&machine, Path::new(&device.word)) {
            Ok(member) => print(&bad_blocks_text(&member)?)?,
            Err(trouble) => {
                tell(&trouble);
                status = 1;
            }
        }
    }
    Ok(status)
}

fn bad_blocks_text(member: &Examined) -> Result<String, Trouble> {
    let name = &member.name;
    let superblock = &member.found.superblock;
    if superblock.version == Version::V0_90 {
        return Err(Trouble::failed("0.90 metadata does not support badblocks"));
    }
    Ok(match (superblock.bad_blocks, &member.examination.bad_blocks) {
        (None, _) => format!("No bad-blocks list configured on {name}\n"),
        (Some(log), _) if !log.in_use => format!("Bad-blocks list is empty in {name}\n"),
        (Some(_), None) => return Err(Trouble::failed("Cannot read bad-blocks list")),
        (Some(_), Some(BadBlocksExamined { entries, .. })) => {
            let rows = entries.iter().map(|entry| {
                let (first, count) = (entry.start / SECTOR_BYTES, (entry.end - entry.start) / SECTOR_BYTES);
                format!("{first:20} for {count} sectors\n")
            });
            format!("Bad-blocks on {name}:\n{}", rows.collect::<String>())
        }
    })
}
