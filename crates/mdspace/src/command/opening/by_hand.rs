//! An array by hand: assembled from a geometry that the user states, whatever superblocks its members have or lack.
//!
//! The superblocks that say so are in memory alone ([`in_memory`]), and nothing is ever written to a member.

use crate::command::opening::members::expand;
use crate::command::text::failure::Failure;
use crate::command::text::geometry::{GeometryText, MISSING};
use crate::command::text::output::tell;
use crate::in_memory::{self, Shape, digest};
use crate::machine::{Array, Machine, Purpose, refuse_duplicates};
use crate::names::{name_of, path_of};
use engine::{Candidate, Member};
use format::geometry::Level;
use format::units::SECTOR_BYTES;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
    let paths: Vec<PathBuf> = slots.iter().flatten().cloned().collect();
    machine.maps.check_used(&paths)?;
    machine.note_maps(&paths);
    let placed = place(machine, geometry, &slots)?;
    let (shape, data) = shape(geometry, &placed, slots.len())?;
    let mut members = Vec::new();
    for (Placed { path, slot, offset, .. }, data_bytes) in placed.iter().zip(data) {
        let part = io::Part { at: *offset, bytes: data_bytes };
        let Candidate { name, member: data } = machine.open_data(path, part, purpose)?;
        let identity = digest(&(slot, whole_name(path)));
        members.push(in_memory::Placed { slot: *slot as u16, name, data, data_bytes, identity });
    }
    Ok(in_memory::assemble(machine, &shape, uuid(geometry, &placed), members, purpose).await?)
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

/// The array's shape, and the bytes of data on each member.
fn shape(geometry: &GeometryText, placed: &[Placed], slots: usize) -> Result<(Shape, Vec<u64>), Failure> {
    let refused = |reason: String| Failure::refused(format!("--geometry: {reason}"));
    let data = geometry.data_bytes(&placed.iter().map(|member| member.room).collect::<Vec<_>>());
    let unequal = data.iter().any(|bytes| *bytes != data[0]);
    if unequal && geometry.level == Level::Raid0 && geometry.layout.is_none() {
        return Err(refused("layout: is not stated, and the members are not equally long".to_owned())
            .advise("state layout=alternate (Linux 3.14 or later) or layout=original, or a size="));
    }
    geometry.geometry(&data, slots as u16).map_err(refused)?;
    let shape = Shape {
        level: geometry.level,
        layout: geometry.layout_number(),
        raid0_layout: geometry.level == Level::Raid0 && unequal,
        chunk_bytes: geometry.chunk_bytes,
        slots: slots as u16,
    };
    Ok((shape, data))
}

/// The array's uuid: the same for the same geometry of the same members.
fn uuid(geometry: &GeometryText, placed: &[Placed]) -> [u8; 16] {
    let paths: Vec<_> = placed.iter().map(|Placed { path, slot, .. }| (slot, whole_name(path))).collect();
    digest(&(geometry, paths))
}

fn whole_name(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
