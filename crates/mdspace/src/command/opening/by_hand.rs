//! An array by hand: assembled from a geometry that the user states, whatever superblocks its members have or lack.
//!
//! Each member is opened for reading, and shown to the engine as a member of 1.2 metadata: [`HEAD_BYTES`] bytes in
//! memory with a superblock of that geometry, and behind them the member's data area. So the engine assembles and reads
//! it as any array, and nothing on a member can be in the way. Nothing is ever written to a member: the array is
//! assembled read-only.

use crate::command::opening::members::expand;
use crate::command::text::failure::Failure;
use crate::command::text::geometry::{GeometryText, MISSING};
use crate::command::text::output::tell;
use crate::machine::{Array, Machine, Purpose, refuse_duplicates};
use crate::names::{name_of, path_of};
use engine::{BitmapPolicy, Candidate, Member, Offer, Refusal};
use format::geometry::Level;
use format::placement::Placement;
use format::superblock::{Blueprint, DeviceRole, Resync, SetName, Superblock, Timestamp, Version};
use format::units::{DeviceNumber, MemberByte, SECTOR_BYTES, Sectors, Slot};
use io::{AnyMember, Overlay};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Bytes in memory before a member's data.
const HEAD_BYTES: u64 = 1 << 20;

/// The place of the superblock in them.
const SUPERBLOCK_AT: u64 = 4096;

/// The time of creation in the superblocks: later than any. Where a member has a superblock of its own at its end, the
/// later created one counts.
const CREATED: Timestamp = Timestamp { seconds: (1 << 40) - 1, micros: 0 };

/// A member in its slot.
struct Placed {
    path: PathBuf,
    slot: usize,
    offset: u64,
    /// Bytes from the offset to the member's end.
    room: u64,
}

/// Assembles the array of `geometry`, for reading. `words` are the members on the command line.
pub(crate) async fn assemble(machine: &Machine, geometry: &GeometryText, words: &[OsString]) -> Result<Array, Failure> {
    let array = open(machine, geometry, words, Purpose::Read).await?;
    tell!("note: assembled by --geometry, for reading only: nothing says that it fits, so check what is inside");
    Ok(array)
}

/// The same without a note, for a geometry that is known. `purpose` is never to write.
pub(crate) async fn open(
    machine: &Machine,
    geometry: &GeometryText,
    words: &[OsString],
    purpose: Purpose,
) -> Result<Array, Failure> {
    let slots = slots(geometry, words)?;
    let placed = place(machine, geometry, &slots)?;
    let superblocks = superblocks(geometry, &placed, slots.len())?;
    let mut members = Vec::new();
    for (Placed { path, offset, .. }, superblock) in placed.iter().zip(superblocks) {
        let part = io::Part { at: *offset, bytes: superblock.data_bytes() };
        let Candidate { name, member } = machine.open_data(path, part, purpose)?;
        members.push(Candidate { member: behind(member, &superblock, &name, machine).await?, name });
    }
    let offer = Offer { members, bitmap: None };
    Ok(machine.assemble_offer(offer, Default::default(), purpose, BitmapPolicy::default()).await?)
}

/// `member` behind a superblock in memory.
async fn behind(
    member: AnyMember,
    superblock: &Superblock,
    name: &str,
    machine: &Machine,
) -> Result<AnyMember, Failure> {
    let overlay = Overlay::behind(HEAD_BYTES, member);
    let mut block = superblock.encode();
    block.resize(block.len().next_multiple_of(SUPERBLOCK_AT as usize), 0);
    let written = overlay.write(MemberByte(SUPERBLOCK_AT), machine.pool.copy_of(&block)).await;
    written.map_err(|error| Refusal::member_error(name, &error))?;
    Ok(overlay.into())
}

/// The members by slot: as `order=` lists them, or as they stand on the command line.
pub(crate) fn slots(geometry: &GeometryText, words: &[OsString]) -> Result<Vec<Option<PathBuf>>, Failure> {
    let refused = |reason: String| Failure::refused(format!("--geometry: {reason}"));
    let mut given = Vec::new();
    for word in words {
        match word == MISSING {
            true => given.push(None),
            false => given.extend(expand(std::slice::from_ref(word))?.into_iter().map(Some)),
        }
    }
    let slots = match &geometry.order {
        None if given.is_empty() => {
            return Err(refused("order: neither it nor a MEMBER is stated".to_owned())
                .advise("name the members in the order of their slots, with the word `missing` for a missing one"));
        }
        None => given,
        Some(order) => ordered(order, &given)?,
    };
    geometry.check_slots(&slots.iter().map(Option::is_some).collect::<Vec<_>>()).map_err(refused)?;
    refuse_duplicates(&slots.iter().flatten().cloned().collect::<Vec<_>>())?;
    Ok(slots)
}

/// The members that `order=` names. Members on the command line are the same ones.
fn ordered(order: &[Option<String>], given: &[Option<PathBuf>]) -> Result<Vec<Option<PathBuf>>, Failure> {
    let mut slots = Vec::new();
    for member in order {
        let path = member.as_deref().map(|name| expand(&[path_of(name).into_os_string()])).transpose()?;
        match path.as_deref() {
            None => slots.push(None),
            Some([one]) => slots.push(Some(one.clone())),
            Some(_) => {
                let pattern = member.as_deref().unwrap_or_default();
                let reason = format!("--geometry: order: {pattern} matches several files");
                return Err(Failure::refused(reason).advise("name each member by itself"));
            }
        }
    }
    if let Some(other) = given.iter().flatten().find(|path| !slots.iter().flatten().any(|slot| slot == *path)) {
        return Err(Failure::refused(format!("--geometry: order: does not name {}", name_of(other)))
            .advise("leave that member out, or leave out order= and give the members in the order of their slots"));
    }
    Ok(slots)
}

/// Looks at the length of each member.
fn place(machine: &Machine, geometry: &GeometryText, slots: &[Option<PathBuf>]) -> Result<Vec<Placed>, Failure> {
    let mut placed = Vec::new();
    for (slot, path) in slots.iter().enumerate().filter_map(|(slot, path)| Some((slot, path.as_ref()?))) {
        let offset = geometry.offset(slot);
        let bytes = machine.open(path, Purpose::Look)?.member.limits().bytes / SECTOR_BYTES * SECTOR_BYTES;
        let refused = |reason: String| Failure::refused(format!("{}: --geometry: {reason}", name_of(path)));
        let room = bytes.checked_sub(offset).filter(|room| *room > 0);
        let room = room.ok_or_else(|| refused(format!("offset: {offset}, but the member ends at byte {bytes}")))?;
        if let Some(size) = geometry.size.filter(|size| *size > room) {
            let reason = format!("size: {size} bytes from byte {offset} on, but the member ends at byte {bytes}");
            return Err(refused(reason));
        }
        placed.push(Placed { path: path.clone(), slot, offset, room });
    }
    Ok(placed)
}

/// The superblocks of the members.
fn superblocks(geometry: &GeometryText, placed: &[Placed], slots: usize) -> Result<Vec<Superblock>, Failure> {
    let refused = |reason: String| Failure::refused(format!("--geometry: {reason}"));
    let data = geometry.data_bytes(&placed.iter().map(|member| member.room).collect::<Vec<_>>());
    let unequal = data.iter().any(|bytes| *bytes != data[0]);
    if unequal && geometry.level == Level::Raid0 && geometry.layout.is_none() {
        return Err(refused("layout: is not stated, and the members are not equally long".to_owned())
            .advise("state layout=alternate (Linux 3.14 or later) or layout=original, or a size="));
    }
    geometry.geometry(&data, slots as u16).map_err(refused)?;
    let mut roles = vec![DeviceRole::Faulty; slots];
    for Placed { slot, .. } in placed {
        roles[*slot] = DeviceRole::Active(Slot(*slot as u16));
    }
    let defect = |defect: format::Defect| refused(defect.reason);
    let blueprint = Blueprint {
        version: Version::V1_2,
        set_uuid: uuid(geometry, placed),
        set_name: SetName::new("").map_err(defect)?,
        created: CREATED,
        level: geometry.level,
        layout: geometry.layout_number(),
        raid0_layout: geometry.level == Level::Raid0 && unequal,
        chunk: Sectors(geometry.chunk_bytes / SECTOR_BYTES),
        raid_disks: slots as u16,
        roles,
        resync: Resync::Clean,
        logical_block_bytes: 0,
    };
    let superblock = |(Placed { slot, path, .. }, bytes): (&Placed, &u64)| {
        let placement = Placement {
            super_offset: Sectors(SUPERBLOCK_AT / SECTOR_BYTES),
            data_offset: Sectors(HEAD_BYTES / SECTOR_BYTES),
            data_size: Sectors(bytes / SECTOR_BYTES),
            component: Sectors(if geometry.level.has_component() { bytes / SECTOR_BYTES } else { 0 }),
            bitmap: None,
            bad_blocks: None,
        };
        let number = DeviceNumber(*slot as u16);
        Superblock::new(&blueprint, &placement, number, identity(path, *slot), HEAD_BYTES + bytes).map_err(defect)
    };
    placed.iter().zip(&data).map(superblock).collect()
}

/// The array's uuid: the same for the same geometry of the same members.
fn uuid(geometry: &GeometryText, placed: &[Placed]) -> [u8; 16] {
    let paths: Vec<_> = placed.iter().map(|Placed { path, slot, .. }| (slot, whole_name(path))).collect();
    digest(&(geometry, paths))
}

/// A member's uuid.
fn identity(path: &Path, slot: usize) -> [u8; 16] {
    digest(&(slot, whole_name(path)))
}

fn whole_name(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn digest(what: &impl Hash) -> [u8; 16] {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, what).hash(&mut hasher);
        hasher.finish()
    };
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_le_bytes()
}
