//! Reads the write-intent bitmap at assembly. A bit counts as set if any member has it set; a bitmap in a file counts
//! by itself.
//!
//! Nothing is written here. Format: [`format::bitmap`].

use crate::base::buffer::Pool;
use crate::core::unbuilt::Unbuilt;
use crate::device::Device;
use crate::metadata::bitmap::bits::Bits;
use crate::metadata::bitmap::intent::{Home, IntentBitmap};
use crate::metadata::bitmap::lockless::Lockless;
use crate::metadata::bitmap::map::Map;
use crate::metadata::bitmap::policy::BitmapPolicy;
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::{Candidate, Member};
use format::bitmap::{BitmapSuper, Kind, SUPER_BYTES, State};
use format::superblock::Superblock;
use format::units::MemberByte;
use std::rc::Rc;

/// What assembly knows about the array when it reads the bitmap.
pub(crate) struct LoadContext<'a> {
    /// The newest superblock, which decides.
    pub(crate) freshest: &'a Superblock,
    /// Bytes that the bitmap must cover.
    pub(crate) covered_bytes: u64,
    /// Whether parity and copies agree everywhere.
    pub(crate) agreed: bool,
    /// What was never written to.
    pub(crate) unbuilt: &'a Rc<Unbuilt>,
    /// A stale member was accepted by force: bits may have been cleared while it was away.
    pub(crate) is_forced: bool,
    pub(crate) policy: BitmapPolicy,
}

fn check_covered(name: &str, header: &BitmapSuper, covered_bytes: u64) -> Result<(), Refusal> {
    if header.sync_size.bytes() < covered_bytes {
        let reason = format!("covers {} bytes of {covered_bytes}", header.sync_size.bytes());
        return Err(Refusal::new(reason).of(name).field("bitmap.sync_size"));
    }
    Ok(())
}

/// Reads the bitmaps of an array's members, which cover at least so many bytes; `None` when it has none.
///
/// # Errors
/// When one cannot be read or is not of this array.
pub(crate) async fn read_all<M: Member>(
    freshest: &Superblock,
    covered_bytes: u64,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
    pool: &Pool,
) -> Result<Option<United>, Refusal> {
    follow_all(freshest, slots, spares)?;
    let mut united: Option<United> = None;
    for device in slots.iter().flatten() {
        let superblock = device.superblock.borrow().clone();
        let Some((header, map)) = read_bitmap(&device.name, &device.member, &superblock, pool).await? else {
            continue;
        };
        check_covered(&device.name, &header, covered_bytes)?;
        give_up_covered_log(device, &header)?;
        match &mut united {
            None => united = Some(United::new(header, map, freshest.events)),
            Some(united) => united.add(&device.name, &header, &map, freshest.events)?,
        }
    }
    Ok(united)
}

/// mdadm 4.6 places the bad-block log of a new array where the states of a lockless bitmap go on. A log without entries
/// is given up: from now on no superblock names one.
fn give_up_covered_log<M: Member>(device: &Device<M>, header: &BitmapSuper) -> Result<(), Refusal> {
    let mut superblock = device.superblock.borrow_mut();
    let room = superblock.bitmap_room(device.member.limits().bytes).unwrap_or(0);
    if header.kind != Kind::Lockless || header.used_bytes() <= room {
        return Ok(());
    }
    if superblock.bad_blocks.is_some_and(|log| log.in_use) {
        return Err(Refusal::new(
            "the log is in use, and lies within the lockless bitmap: one has overwritten the other",
        )
        .of(&device.name)
        .field("superblock.bblog_offset")
        .advice("serve it --read-only; replace this member"));
    }
    superblock.bad_blocks = None;
    device.bad.drop_log();
    Ok(())
}

/// Whether a device's superblock counts among those that establish the array's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Member,
    /// The device fills no slot yet. An interrupted round may have reached this device only, and the next round may
    /// have the same events.
    Spare,
}

/// Gives all devices the bitmap of the freshest superblock.
fn follow_all<M: Member>(
    freshest: &Superblock,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
) -> Result<(), Refusal> {
    for device in slots.iter().flatten() {
        follow(freshest, device, Standing::Member)?;
        device.successor().map_or(Ok(()), |successor| follow(freshest, &successor, Standing::Spare))?;
    }
    spares.iter().try_for_each(|device| follow(freshest, device, Standing::Spare))
}

/// A member that is one event behind may not know yet that a bitmap was added or removed. An added bitmap is on that
/// member already: it was written before any superblock named it. No lock is needed: the array does not run yet.
fn follow<M: Member>(freshest: &Superblock, device: &Device<M>, standing: Standing) -> Result<(), Refusal> {
    let superblock = device.superblock.borrow().clone();
    if superblock.bitmap == freshest.bitmap {
        return Ok(());
    }
    if superblock.events == freshest.events && (mutant!("spare-decides") || standing == Standing::Member) {
        let reason = "has its bitmap at another place than the other members, or has none";
        return Err(Refusal::new(reason).of(&device.name).field("superblock.bitmap_offset"));
    }
    let followed = superblock.with_bitmap(freshest.bitmap, device.member.limits().bytes);
    device.superblock.replace(followed.map_err(|defect| Refusal::defect(&device.name, defect))?);
    Ok(())
}

/// Reads the bitmap that an array keeps in a file.
///
/// # Errors
/// When it cannot be read or is not of this array, or the array has another.
pub(crate) async fn load_file<M: Member>(
    context: &LoadContext<'_>,
    file: Candidate<M>,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
    pool: &Pool,
) -> Result<IntentBitmap<M>, Refusal> {
    let freshest = context.freshest;
    if freshest.bitmap.is_some() {
        return Err(Refusal::new("the array has a bitmap on its members")
            .of(&file.name)
            .field("superblock.feature_map")
            .advice("assemble it without a bitmap file"));
    }
    follow_all(freshest, slots, spares)?;
    let room = file.member.limits().bytes;
    let (header, map) =
        read_bitmap_at(&file.name, &file.member, MemberByte(0), &|_| room, &freshest.set_uuid, pool).await?;
    check_covered(&file.name, &header, context.covered_bytes)?;
    if header.kind == Kind::Lockless {
        return Err(Refusal::new("a lockless bitmap is kept on the members alone")
            .of(&file.name)
            .field("bitmap.version"));
    }
    Ok(United::new(header, map, freshest.events).into_intent(Home::File(file.into()), context))
}

/// The bitmaps of several members, united.
pub(crate) struct United {
    /// The first member's header, with the latest `events_cleared` of any.
    header: BitmapSuper,
    map: Map,
    trusted: bool,
    cleared_everywhere: u64,
}

/// Whether a bitmap is as new as the superblocks and is not known to lack bits.
pub(super) fn is_trusted(header: &BitmapSuper, events: u64) -> bool {
    header.events >= events && !header.state.contains(State::STALE) && !header.state.contains(State::WRITE_ERROR)
}

/// The events at which bits were last cleared. In a lockless bitmap md writes 0 and keeps no such events: any bit may
/// have been cleared since a member left.
fn cleared(header: &BitmapSuper, events: u64) -> u64 {
    match header.events_cleared {
        0 if header.kind == Kind::Lockless => events,
        cleared => cleared,
    }
}

impl United {
    fn new(mut header: BitmapSuper, map: Map, events: u64) -> Self {
        let trusted = is_trusted(&header, events);
        header.events_cleared = cleared(&header, events);
        Self { cleared_everywhere: header.events_cleared, header, map, trusted }
    }

    fn add(&mut self, name: &str, header: &BitmapSuper, map: &Map, events: u64) -> Result<(), Refusal> {
        let is_longer = self.header.sync_size != header.sync_size;
        if self.header.kind != header.kind {
            return Err(Refusal::new("is of another version than the other members'").of(name).field("bitmap.version"));
        }
        if is_longer || self.header.chunk_bytes != header.chunk_bytes {
            let field = if is_longer { "bitmap.sync_size" } else { "bitmap.chunksize" };
            return Err(Refusal::new("differs from the other members' bitmaps").of(name).field(field));
        }
        self.trusted &= is_trusted(header, events);
        let cleared = cleared(header, events);
        self.cleared_everywhere = self.cleared_everywhere.min(cleared);
        self.header.events_cleared = self.header.events_cleared.max(cleared);
        self.map.unite(map);
        Ok(())
    }

    /// The bitmap of the array.
    pub(crate) fn into_members_intent<M>(self, context: &LoadContext<'_>) -> IntentBitmap<M> {
        self.into_intent(Home::Members, context)
    }

    /// What they say beyond bits, if they name all writes.
    pub(crate) fn lockless(&self, names_all: bool) -> Lockless {
        if self.trusted && names_all {
            Lockless::of(&self.header, &self.map)
        } else {
            Lockless::unknown(self.header.kind)
        }
    }

    fn into_intent<M>(self, home: Home<M>, context: &LoadContext<'_>) -> IntentBitmap<M> {
        let Self { header, map, trusted, cleared_everywhere } = self;
        let trusted = trusted && !context.is_forced;
        let bits = Bits::new(header, map.set(), context.agreed, context.unbuilt.clone());
        let intent = IntentBitmap::new(home, bits, trusted, context.policy);
        intent.cleared_everywhere.set(cleared_everywhere);
        intent
    }
}

/// A member's bitmap: its superblock, and what it says.
///
/// # Errors
/// When it cannot be read, or a field of it is wrong.
pub(crate) async fn read_bitmap<M: Member>(
    name: &str,
    member: &M,
    superblock: &Superblock,
    pool: &Pool,
) -> Result<Option<(BitmapSuper, Map)>, Refusal> {
    let Some(at) = superblock.bitmap_at() else { return Ok(None) };
    let bytes = member.limits().bytes;
    let room = |kind| match kind {
        // See `give_up_covered_log`.
        Some(Kind::Lockless) => {
            let mut without_log = superblock.clone();
            without_log.bad_blocks = None;
            without_log.bitmap_room(bytes).unwrap_or(0)
        }
        _ => superblock.bitmap_room(bytes).unwrap_or(0),
    };
    read_bitmap_at(name, member, at, &room, &superblock.set_uuid, pool).await.map(Some)
}

/// The bitmap at `at` of a member or file. `room` is how many bytes there are up to the next structure.
///
/// # Errors
/// As [`read_bitmap`], and when it is not one that this engine writes.
pub(crate) async fn read_bitmap_at<M: Member>(
    name: &str,
    member: &M,
    at: MemberByte,
    room: &dyn Fn(Option<Kind>) -> u64,
    set_uuid: &[u8; 16],
    pool: &Pool,
) -> Result<(BitmapSuper, Map), Refusal> {
    let unreadable = |reason| Refusal::new(reason).of(name).field("bitmap");
    let head = read_bytes(member, pool, at, SUPER_BYTES as u64).await.map_err(unreadable)?;
    let room = room(BitmapSuper::kind_of(&head));
    let header = BitmapSuper::decode(&head, room).map_err(|defect| Refusal::defect(name, defect))?;
    if !matches!(header.kind, Kind::Normal | Kind::Lockless) {
        let reason = format!("mdspace does not write {:?} bitmaps", header.kind);
        return Err(Refusal::new(reason)
            .of(name)
            .field("bitmap.version")
            .advice("serve it --read-only, or remove the bitmap with mdadm --grow --bitmap=none"));
    }
    if header.kind == Kind::Lockless && header.state.contains(State::FIRST_USE) {
        return Err(Refusal::new("the bitmap was made, and no kernel has begun to use it, so it says nothing yet")
            .of(name)
            .field("bitmap.state")
            .advice("start the array once with md of Linux 6.18 or newer"));
    }
    if header.has_unknown_state() || header.nodes > 0 {
        let (field, what) =
            if header.nodes > 0 { ("bitmap.nodes", "clustered") } else { ("bitmap.state", "in an unknown state") };
        return Err(Refusal::new(format!("the bitmap is {what}, and mdspace does not write it"))
            .of(name)
            .field(field)
            .advice("serve it --read-only; a newer kernel may have made it"));
    }
    if header.uuid != *set_uuid {
        return Err(Refusal::new("belongs to another array").of(name).field("bitmap.uuid"));
    }
    let bytes = header.bytes_on_disk(room);
    let unit = u64::from(member.limits().logical_block_bytes);
    if !bytes.is_multiple_of(unit) {
        return Err(unreadable(format!("its {bytes} bytes are not whole {unit}-byte blocks of the member")));
    }
    let image = read_bytes(member, pool, at, bytes).await.map_err(unreadable)?;
    let map = Map::of(&header, &image);
    Ok((header, map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::lockless::ChunkState::{Clean, Dirty, Unwritten};
    use format::units::Sectors;

    #[test]
    fn a_lockless_bitmap_of_mds_does_not_say_when_bits_were_cleared() {
        let header = |cleared| {
            let mut header = BitmapSuper::new_lockless([1; 16], Sectors(3 * 128), 64 << 10, 9, Sectors(8));
            header.events_cleared = cleared;
            header
        };
        for (first, second, expected) in [(0, 0, (9, 9)), (0, 4, (9, 4)), (4, 0, (9, 4)), (4, 5, (5, 4))] {
            let map = Map::States(vec![Unwritten, Clean, Dirty]);
            let mut united = United::new(header(first), map.clone(), 9);
            united.add("b", &header(second), &map, 9).expect("alike");
            assert_eq!((united.header.events_cleared, united.cleared_everywhere), expected, "{first} {second}");
            assert!(united.trusted && united.lockless(true).is_agreed);
        }
    }
}
