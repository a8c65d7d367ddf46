//! Placement of a new array's parts on a member: superblock, bitmap, bad-block log, data. The positions are those of
//! mdadm 4.2 (Debian 12), so that its own tools find nothing unusual.
//!
//! Pure arithmetic on the member's length; it never looks at existing data. Facts: real `mdadm --create` output for
//! many sizes (`tests/kernel`), and mdadm's manual; `docs/format.md`, "Placement".

use crate::Defect;
use crate::bitmap::Kind;
use crate::geometry::{Level, SyncSpace};
use crate::integrity;
use crate::lockless;
use crate::partial_parity::HEADER_BYTES;
use crate::superblock::{BadBlockPlace, BitmapPlace, PplPlace, Version};
use crate::units::{SECTOR_BYTES, Sectors};

/// Sectors in a kibibyte, the unit of mdadm's sizes.
const KIBIBYTE: u64 = 2;

/// Sectors in a mebibyte. Data offsets are multiples of it.
const MEBIBYTE: u64 = 2048;

/// Sectors of the bad-block log: constant.
pub(crate) const BAD_BLOCK_LOG_SECTORS: u64 = 8;

/// Sectors that mdadm reserves for the bitmap of the longest members.
pub(crate) const BITMAP_SECTORS_MAX: u64 = 256;

/// Maximum headroom for later reshapes, in sectors: 128 MiB.
const HEADROOM_MAX: u64 = 128 * MEBIBYTE;

/// Minimum length of a member, in sectors.
const MEMBER_SECTORS_MIN: u64 = 24;

/// Sectors that 0.90 rounds a member's length down to, and of which it leaves the last ones to its superblock.
const V0_SECTORS: u64 = 128;

/// 0.90 counts a component in 32 bits of KiB: this many sectors are too many.
const V0_COMPONENT_SECTORS: u64 = 4 << 31;

/// Bytes between the superblock of 0.90 and the end of the space that it is left, where a bitmap may lie.
const V0_BITMAP_BYTES: u64 = 60 << 10;

/// Sectors of the partial parity log, in place of a bitmap: constant, where there is room.
pub(crate) const PARITY_LOG_SECTORS: u64 = 2048;

/// The least sectors of a log in which the kernel keeps several in a row: 128 KiB and a header.
pub(crate) const PARITY_LOGS_SECTORS: u64 = 264;

/// Bytes of the bitmap's own superblock.
const BITMAP_SUPERBLOCK_BYTES: u64 = 256;

/// Minimum of the default bitmap chunk, in bytes.
const BITMAP_CHUNK_DEFAULT_MIN: u64 = 64 << 20;

/// Whether to create a write-intent bitmap, and with which chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitmapChoice {
    /// None.
    None,
    /// By mdadm's rule: for levels 1 and up, when the component is larger than 100 GiB.
    Auto,
    /// With mdadm's default chunk.
    DefaultChunk,
    /// With chunks of this many bytes: a power of two from 4096 up.
    Chunk(u64),
    /// A lockless one ([`crate::lockless`]) with md's chunks, or chunks of this many bytes: a power of two from 4096 up.
    Lockless(Option<u64>),
}

/// The parameters of a placement, the same for every member; see [`place`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Metadata format.
    pub version: Version,
    /// Level.
    pub level: Level,
    /// Layout; needed only for level 10, for the size that the bitmap covers.
    pub layout: u32,
    /// Number of slots; needed only for level 10, for the same reason.
    pub raid_disks: u16,
    /// Chunk in bytes; 0 for levels without chunks.
    pub chunk_bytes: u64,
    /// The start of the data area, if the user chooses it.
    pub data_offset: Option<Sectors>,
    /// The component size, if the user chooses it; otherwise as much as the shortest member allows.
    pub component: Option<Sectors>,
    /// The bitmap.
    pub bitmap: BitmapChoice,
    /// Whether to reserve space for a bad-block log.
    pub bad_block_log: bool,
    /// Whether to reserve space for a partial parity log; level 5 only, and without a bitmap.
    pub parity_log: bool,
    /// Whether to reserve space for checksums ([`crate::integrity`]), which mdadm does not know.
    pub integrity: bool,
}

/// A bitmap to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapPlacement {
    /// The variant: normal or lockless.
    pub kind: Kind,
    /// The position.
    pub place: BitmapPlace,
    /// Bytes that one bit covers.
    pub chunk_bytes: u64,
    /// Sectors that the bits cover.
    pub sync_size: Sectors,
    /// Bytes to write there: superblock and bits, in whole 4 KiB blocks.
    pub bytes: u64,
}

/// The positions on one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The start of the superblock.
    pub super_offset: Sectors,
    /// The start of the data area.
    pub data_offset: Sectors,
    /// The length of the data area.
    pub data_size: Sectors,
    /// Sectors used of every member's data area. For linear and RAID-0 it is 0, as mdadm writes it.
    pub component: Sectors,
    /// The bitmap, if wanted.
    pub bitmap: Option<BitmapPlacement>,
    /// The bad-block log, if there is room for one.
    pub bad_blocks: Option<BadBlockPlace>,
    /// The partial parity log, if wanted.
    pub ppl: Option<PplPlace>,
}

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

/// Sectors to reserve for a bitmap on an area of `sectors`, even if none is created now.
pub(crate) const fn bitmap_space(sectors: u64) -> u64 {
    if sectors < 128 {
        0
    } else if sectors - 128 >= 200 << 21 {
        BITMAP_SECTORS_MAX
    } else if sectors - 8 > 8 << 21 {
        128
    } else {
        8
    }
}

impl Request {
    /// Sectors to reserve on an area of `sectors`: for the partial parity log, or else for a bitmap.
    fn reserved(&self, sectors: u64) -> u64 {
        if self.parity_log { PARITY_LOG_SECTORS } else { bitmap_space(sectors) }
    }
}

/// The data offset for a member of `sectors`: space for superblock, log of bad blocks and what is `reserved`, headroom of
/// about a thousandth, and `checksums`, rounded up to a mebibyte.
fn default_data_offset(sectors: u64, chunk: u64, reserved: u64, checksums: u64) -> u64 {
    let mut headroom = HEADROOM_MAX;
    while headroom << 10 > sectors && (chunk == 0 || headroom / 2 >= chunk * 2) {
        headroom /= 2;
    }
    (24 + reserved + headroom + checksums).next_multiple_of(MEBIBYTE)
}

/// The placement on each of `members_bytes`: the lengths of all members, in the user's order. The first determines the
/// data offset of all.
///
/// # Errors
/// When a member is too short, or the request does not fit it.
pub fn place(request: &Request, members_bytes: &[u64]) -> Result<Vec<Placement>, Defect> {
    let members: Vec<u64> = members_bytes.iter().map(|bytes| bytes / SECTOR_BYTES).collect();
    let Some(first) = members.first() else {
        return defect("placement.members", "no members");
    };
    if let Some(short) = members.iter().find(|sectors| **sectors < MEMBER_SECTORS_MIN) {
        return defect(
            "placement.members",
            format!("one of {short} sectors is too short: {MEMBER_SECTORS_MIN} at least"),
        );
    }
    if request.integrity && request.version == Version::V0_90 {
        return defect("placement.version", "checksums are not kept beside metadata 0.90");
    }
    if request.parity_log {
        check_parity_log(request)?;
    }
    let data_offset = data_offset(request, *first)?;
    let component = component(request, &members, data_offset)?;
    let bitmap = match request.bitmap {
        BitmapChoice::Lockless(asked) => Some(lockless_bitmap(request, asked, component, data_offset)?),
        _ => bitmap(request, component)?,
    };
    members.iter().map(|sectors| place_one(request, *sectors, data_offset, component, bitmap)).collect()
}

/// The placement on the device of a write journal, of `bytes`, beside members of which one has this placement.
///
/// # Errors
/// When the device is too short, or the array cannot have a journal.
pub fn place_journal(request: &Request, member: &Placement, bytes: u64) -> Result<Placement, Defect> {
    let refuse = |reason: &str| defect("placement.journal", reason);
    if !request.level.has_parity() {
        return refuse("only levels 4, 5 and 6 have a write journal");
    }
    if request.version == Version::V1_0 {
        return refuse("with metadata 1.0 md does not take one: choose 1.2");
    }
    if member.bitmap.is_some() || member.ppl.is_some() {
        return refuse("md does not take one beside a bitmap or a partial parity log");
    }
    let (sectors, data_offset) = (bytes / SECTOR_BYTES, member.data_offset.0);
    if sectors < data_offset + 8 {
        return refuse("the device has no room behind its metadata");
    }
    place_one(request, sectors, data_offset, member.component.0, None)
}

fn check_parity_log(request: &Request) -> Result<(), Defect> {
    if request.version == Version::V0_90 {
        return defect("placement.ppl", "metadata 0.90 has no partial parity log");
    }
    if request.level != Level::Raid5 {
        return defect("placement.ppl", "only level 5 has a partial parity log");
    }
    if request.bitmap != BitmapChoice::None {
        return defect("placement.ppl", "a bitmap is in its place: an array has one or the other");
    }
    if request.integrity {
        return defect("placement.ppl", "checksums are not kept beside a partial parity log");
    }
    Ok(())
}

fn data_offset(request: &Request, first: u64) -> Result<u64, Defect> {
    match (request.version, request.data_offset) {
        (Version::V0_90 | Version::V1_0, None | Some(Sectors(0))) => Ok(0),
        (Version::V0_90 | Version::V1_0, Some(_)) => {
            defect("placement.data_offset", format!("with metadata {}, data starts at sector 0", request.version))
        }
        (_, Some(offset)) => Ok(offset.0),
        (_, None) => {
            let component = request.component.unwrap_or(Sectors(first)).0.min(first) * SECTOR_BYTES;
            let checksums = if request.integrity { integrity::bytes_for(component) / SECTOR_BYTES } else { 0 };
            Ok(default_data_offset(first, request.chunk_bytes / SECTOR_BYTES, request.reserved(first), checksums))
        }
    }
}

/// Maximum sectors of data on a member of `sectors`.
fn free_sectors(request: &Request, sectors: u64, data_offset: u64) -> Option<u64> {
    match request.version {
        Version::V0_90 => (sectors & !(V0_SECTORS - 1)).checked_sub(V0_SECTORS),
        Version::V1_0 => (sectors & !7).checked_sub(16 + BAD_BLOCK_LOG_SECTORS + request.reserved(sectors)),
        Version::V1_1 | Version::V1_2 => sectors.checked_sub(data_offset),
    }
}

/// The unit of a component, in sectors: whole KiB, or whole chunks. For level 1 it is 64 KiB, for a later reshape to a
/// level with chunks.
pub(crate) fn component_unit(level: Level, chunk: Sectors) -> u64 {
    match level {
        Level::Raid1 => 128,
        Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => chunk.0.max(2),
    }
}

fn component(request: &Request, members: &[u64], data_offset: u64) -> Result<u64, Defect> {
    let unit = component_unit(request.level, Sectors(request.chunk_bytes / SECTOR_BYTES));
    let mut free = u64::MAX;
    for sectors in members {
        match free_sectors(request, *sectors, data_offset).map(|free| free / unit * unit) {
            None | Some(0) => {
                let reason = format!("one of {sectors} sectors has no room for data after its metadata");
                return defect("placement.members", reason);
            }
            Some(sectors) => free = free.min(sectors),
        }
    }
    let component = chosen_component(request, free, unit)?;
    if request.version == Version::V0_90 && request.level.has_component() && component >= V0_COMPONENT_SECTORS {
        let reason = format!("{component} sectors, and metadata 0.90 counts less than {V0_COMPONENT_SECTORS} (4 TiB)");
        return defect("placement.component", reason);
    }
    Ok(component)
}

/// The component, where a member has room for `free` sectors, in whole units.
fn chosen_component(request: &Request, free: u64, unit: u64) -> Result<u64, Defect> {
    // Without chunks, a size that the user chooses needs no room for them.
    let unit = if request.level == Level::Raid1 { KIBIBYTE } else { unit };
    match request.component {
        Some(Sectors(wanted)) if wanted > free => {
            defect("placement.component", format!("{wanted} sectors, but a member has room for only {free}"))
        }
        Some(Sectors(wanted)) if wanted < unit => {
            defect("placement.component", format!("{wanted} sectors, and {unit} are the least"))
        }
        Some(Sectors(wanted)) => Ok(wanted / unit * unit),
        None if !request.level.has_component() => Ok(0),
        None => Ok(free),
    }
}

/// Sectors that the bitmap covers: the component, or for level 10 the array.
fn sync_size(request: &Request, component: u64) -> Result<u64, Defect> {
    if request.level.sync_space() == SyncSpace::Component {
        return Ok(component);
    }
    let (near, far) = (u64::from(request.layout & 0xff), u64::from((request.layout >> 8) & 0xff));
    let chunk = request.chunk_bytes / SECTOR_BYTES;
    if near == 0 || far == 0 {
        return defect("placement.layout", format!("{:#x} is a layout without copies", request.layout));
    }
    if chunk == 0 {
        return defect("placement.chunk", "level 10 needs one");
    }
    // Rounded to whole chunks at each step, as the kernel computes the array's size.
    match (component / chunk / far).checked_mul(request.raid_disks.into()) {
        Some(chunks) => Ok(chunks / near * chunk),
        None => defect("placement.component", format!("{component} sectors are too many")),
    }
}

fn bitmap(request: &Request, component: u64) -> Result<Option<BitmapPlacement>, Defect> {
    let asked = match request.bitmap {
        BitmapChoice::None | BitmapChoice::Lockless(_) => return Ok(None),
        BitmapChoice::Auto if component <= 100 << 21 => return Ok(None),
        BitmapChoice::Auto if !request.level.is_redundant() => return Ok(None),
        BitmapChoice::Auto | BitmapChoice::DefaultChunk => None,
        BitmapChoice::Chunk(bytes) => Some(bytes),
    };
    if !request.level.is_redundant() {
        return defect("placement.bitmap", "a level without redundancy has no bitmap");
    }
    let sync_size = sync_size(request, component)?;
    let room_bytes = match request.version {
        Version::V0_90 => V0_BITMAP_BYTES,
        Version::V1_0 | Version::V1_1 | Version::V1_2 => bitmap_space(component) * SECTOR_BYTES,
    };
    let chunk_bytes = bitmap_chunk(Sectors(sync_size), asked, room_bytes)?;
    let chunk = chunk_bytes / SECTOR_BYTES;
    let blocks = |bits: u64| (bits.div_ceil(8) + BITMAP_SUPERBLOCK_BYTES).next_multiple_of(4096);
    let sectors_from_superblock = match request.version {
        // The bitmap is before the log. mdadm reserves space for one bit more than necessary.
        Version::V1_0 => -((blocks(sync_size / chunk + 1) / SECTOR_BYTES + BAD_BLOCK_LOG_SECTORS) as i32),
        _ => 8,
    };
    Ok(Some(BitmapPlacement {
        kind: Kind::Normal,
        place: BitmapPlace { sectors_from_superblock },
        chunk_bytes,
        sync_size: Sectors(sync_size),
        bytes: blocks(sync_size.div_ceil(chunk)),
    }))
}

/// A lockless bitmap: a byte for each chunk, and at most as much room as md gives it.
fn lockless_bitmap(
    request: &Request,
    asked: Option<u64>,
    component: u64,
    data_offset: u64,
) -> Result<BitmapPlacement, Defect> {
    if !request.level.is_redundant() {
        return defect("placement.bitmap", "a level without redundancy has no bitmap");
    }
    let room = match request.version {
        Version::V1_0 => bitmap_space(component),
        Version::V1_1 => data_offset.saturating_sub(8 + BAD_BLOCK_LOG_SECTORS),
        _ => data_offset.saturating_sub(16 + BAD_BLOCK_LOG_SECTORS),
    };
    let sync_size = sync_size(request, component)?;
    let room = room.min(BITMAP_SECTORS_MAX) / 8 * 8 * SECTOR_BYTES;
    let chunk_bytes = lockless_chunk(Sectors(sync_size), asked, room)?;
    let chunks = (sync_size * SECTOR_BYTES).div_ceil(chunk_bytes);
    let bytes = (lockless::STATES_AT + chunks).next_multiple_of(4096);
    let sectors_from_superblock = match request.version {
        Version::V1_0 => -((bytes / SECTOR_BYTES + BAD_BLOCK_LOG_SECTORS) as i32),
        _ => 8,
    };
    let place = BitmapPlace { sectors_from_superblock };
    Ok(BitmapPlacement { kind: Kind::Lockless, place, chunk_bytes, sync_size: Sectors(sync_size), bytes })
}

/// Bytes that one state of a lockless bitmap over `covers` covers: `asked`, or md's choice. Superblock and states must fit
/// `room_bytes`.
///
/// # Errors
/// When `asked` is no valid chunk, or the bitmap does not fit.
pub fn lockless_chunk(covers: Sectors, asked: Option<u64>, room_bytes: u64) -> Result<u64, Defect> {
    let Some(states) = room_bytes.checked_sub(lockless::STATES_AT).filter(|states| *states > 0) else {
        return defect("placement.bitmap", "there is no room for one");
    };
    let fits = |chunk: u64| (covers.0 * SECTOR_BYTES).div_ceil(chunk) <= states;
    let chunks =
        |least: u64| std::iter::successors(Some(least), |chunk| chunk.checked_mul(2)).find(|&chunk| fits(chunk));
    match asked {
        None => chunks(lockless::CHUNK_MIN).ok_or_else(|| Defect::new("placement.bitmap", "there is no room for one")),
        Some(bytes) if !bytes.is_power_of_two() || !(4096..=1 << 31).contains(&bytes) => {
            defect("placement.bitmap_chunk", format!("{bytes} bytes is not a power of two from 4 KiB to 2 GiB"))
        }
        Some(bytes) if !fits(bytes) => {
            let least = chunks(4096).unwrap_or(u64::MAX);
            defect("placement.bitmap_chunk", format!("{bytes} bytes: for this size at least {least}"))
        }
        Some(bytes) => Ok(bytes),
    }
}

/// Bytes that one bit of a bitmap over `covers` covers: `asked`, or mdadm's choice. Superblock and bits must fit
/// `room_bytes`.
///
/// # Errors
/// When `asked` is no valid chunk, or the bitmap does not fit.
pub fn bitmap_chunk(covers: Sectors, asked: Option<u64>, room_bytes: u64) -> Result<u64, Defect> {
    let Some(room) = room_bytes.checked_sub(BITMAP_SUPERBLOCK_BYTES).filter(|room| *room > 0) else {
        return defect("placement.bitmap", "there is no room for one");
    };
    let chunk_min = smallest_chunk(covers.0, room.saturating_mul(8));
    match asked {
        None => Ok(chunk_min.max(BITMAP_CHUNK_DEFAULT_MIN)),
        Some(bytes) if !bytes.is_power_of_two() || bytes > 1 << 31 => {
            defect("placement.bitmap_chunk", format!("{bytes} bytes is not a power of two up to 2 GiB"))
        }
        Some(bytes) if bytes < chunk_min => {
            defect("placement.bitmap_chunk", format!("{bytes} bytes: for this size at least {chunk_min}"))
        }
        Some(bytes) => Ok(bytes),
    }
}

/// The smallest chunk, in bytes, with which `bits` cover `sync_size` sectors.
fn smallest_chunk(sync_size: u64, bits: u64) -> u64 {
    let mut chunk = 4096;
    let mut needed = sync_size / 8 + 1;
    while needed > bits {
        chunk *= 2;
        needed = needed.div_ceil(2);
    }
    chunk
}

fn place_one(
    request: &Request,
    sectors: u64,
    data_offset: u64,
    component: u64,
    bitmap: Option<BitmapPlacement>,
) -> Result<Placement, Defect> {
    let Some(at) = request.version.place(sectors * SECTOR_BYTES) else {
        return defect("placement.members", format!("one of {sectors} sectors is too short for a superblock"));
    };
    let super_offset = at.0 / SECTOR_BYTES;
    let ppl = if request.parity_log { Some(parity_log(request, super_offset, data_offset, component)?) } else { None };
    let space = match (bitmap, ppl) {
        (Some(bitmap), _) => bitmap.bytes / SECTOR_BYTES,
        (None, Some(ppl)) => ppl.sectors.into(),
        (None, None) => bitmap_space(component),
    };
    let (data_size, log) = match request.version {
        Version::V0_90 => (super_offset, None),
        Version::V1_0 => {
            let space = (space + BAD_BLOCK_LOG_SECTORS).min(super_offset - component);
            (super_offset - space, (space >= BAD_BLOCK_LOG_SECTORS).then_some(-(BAD_BLOCK_LOG_SECTORS as i32)))
        }
        Version::V1_1 | Version::V1_2 => {
            (sectors - data_offset, log_after_superblock(super_offset, data_offset, space, bitmap.is_some())?)
        }
    };
    let bad_blocks = log.filter(|_| request.bad_block_log).map(|sectors_from_superblock| BadBlockPlace {
        sectors_from_superblock,
        sectors: BAD_BLOCK_LOG_SECTORS as u16,
        shift: 0,
        in_use: false,
    });
    Ok(Placement {
        super_offset: Sectors(super_offset),
        data_offset: Sectors(data_offset),
        data_size: Sectors(data_size),
        component: Sectors(component),
        bitmap,
        bad_blocks,
        ppl,
    })
}

/// The place of the partial parity log, with room for the bad-block log behind it.
fn parity_log(request: &Request, super_offset: u64, data_offset: u64, component: u64) -> Result<PplPlace, Defect> {
    let room = match request.version {
        Version::V1_0 => super_offset.saturating_sub(component),
        _ => data_offset.saturating_sub(super_offset + 8),
    };
    let sectors = room.saturating_sub(BAD_BLOCK_LOG_SECTORS).min(PARITY_LOG_SECTORS);
    let least = HEADER_BYTES as u64 / SECTOR_BYTES + request.chunk_bytes / SECTOR_BYTES;
    if sectors < least {
        return defect("placement.ppl", format!("room for {sectors} sectors, and a chunk's log takes {least}"));
    }
    let sectors_from_superblock = match request.version {
        Version::V1_0 => -((sectors + BAD_BLOCK_LOG_SECTORS) as i16),
        _ => 8,
    };
    Ok(PplPlace { sectors_from_superblock, sectors: sectors as u16, multiple: sectors >= PARITY_LOGS_SECTORS })
}

/// The distance of the log from a superblock before the data. `None` when there is no space for a log; an error when
/// not even the bitmap fits.
fn log_after_superblock(
    super_offset: u64,
    data_offset: u64,
    bitmap_space: u64,
    has_bitmap: bool,
) -> Result<Option<i32>, Defect> {
    let room = data_offset.saturating_sub(super_offset);
    if room < 8 {
        let reason = format!("sector {data_offset}: a superblock of 8 sectors at sector {super_offset} is in the way");
        return defect("placement.data_offset", reason);
    }
    if has_bitmap && room < 8 + bitmap_space {
        let reason = format!("sector {data_offset}: but the bitmap ends at sector {}", super_offset + 8 + bitmap_space);
        return defect("placement.data_offset", reason);
    }
    if room >= 8 + bitmap_space + BAD_BLOCK_LOG_SECTORS {
        return Ok(Some(8 + bitmap_space as i32));
    }
    // At the end of the space before the data, unless the bitmap is there.
    let fits = room >= 8 + BAD_BLOCK_LOG_SECTORS && !has_bitmap;
    Ok(fits.then_some((room - BAD_BLOCK_LOG_SECTORS) as i32))
}
