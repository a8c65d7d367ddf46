//! Reads the write-intent bitmap at assembly. A bit counts as set if any member has it set; a bitmap in a file counts
//! by itself.
//!
//! Nothing is written here. Format: [`format::bitmap`].

use crate::base::buffer::Pool;
use crate::device::Device;
use crate::metadata::bitmap::intent::{Home, IntentBitmap};
use crate::metadata::bitmap::policy::BitmapPolicy;
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::{Candidate, Member};
use format::bitmap;
use format::bitmap::{BitmapSuper, SUPER_BYTES, State};
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
    /// A stale member was accepted by force: bits may have been cleared while it was away.
    pub(crate) is_forced: bool,
    pub(crate) policy: BitmapPolicy,
}

impl LoadContext<'_> {
    fn check(&self, name: &str, header: &BitmapSuper) -> Result<(), Refusal> {
        if header.sync_size.bytes() < self.covered_bytes {
            let reason = format!("covers {} bytes of {}", header.sync_size.bytes(), self.covered_bytes);
            return Err(Refusal::new(reason).of(name).field("bitmap.sync_size"));
        }
        Ok(())
    }
}

/// Reads the bitmaps of an array's members; `None` when it has none.
///
/// # Errors
/// When one cannot be read or is not of this array.
pub(crate) async fn load<M: Member>(
    context: &LoadContext<'_>,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
    pool: &Pool,
) -> Result<Option<IntentBitmap<M>>, Refusal> {
    let freshest = context.freshest;
    follow_all(freshest, slots, spares)?;
    let mut united: Option<United> = None;
    for device in slots.iter().flatten() {
        let superblock = device.superblock.borrow().clone();
        let Some((header, image)) = read_bitmap(&device.name, &device.member, &superblock, pool).await? else {
            continue;
        };
        context.check(&device.name, &header)?;
        match &mut united {
            None => united = Some(United::new(header, image, freshest.events)),
            Some(united) => united.add(&device.name, &header, &image, freshest.events)?,
        }
    }
    Ok(united.map(|united| united.into_intent(Home::Members, context)))
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
    let (header, image) =
        read_bitmap_at(&file.name, &file.member, MemberByte(0), room, &freshest.set_uuid, pool).await?;
    context.check(&file.name, &header)?;
    Ok(United::new(header, image, freshest.events).into_intent(Home::File(file.into()), context))
}

/// The bitmaps of several members, united.
struct United {
    /// The first member's header, with the latest `events_cleared` of any.
    header: BitmapSuper,
    image: Vec<u8>,
    trusted: bool,
    cleared_everywhere: u64,
}

/// Whether a bitmap is as new as the superblocks and is not known to lack bits.
fn is_trusted(header: &BitmapSuper, events: u64) -> bool {
    header.events >= events && !header.state.contains(State::STALE) && !header.state.contains(State::WRITE_ERROR)
}

impl United {
    fn new(header: BitmapSuper, image: Vec<u8>, events: u64) -> Self {
        let trusted = is_trusted(&header, events);
        Self { cleared_everywhere: header.events_cleared, header, image, trusted }
    }

    fn add(&mut self, name: &str, header: &BitmapSuper, image: &[u8], events: u64) -> Result<(), Refusal> {
        let is_longer = self.header.sync_size != header.sync_size;
        if is_longer || self.header.chunk_bytes != header.chunk_bytes || self.image.len() != image.len() {
            let field = if is_longer { "bitmap.sync_size" } else { "bitmap.chunksize" };
            return Err(Refusal::new("differs from the other members' bitmaps").of(name).field(field));
        }
        self.trusted &= is_trusted(header, events);
        self.cleared_everywhere = self.cleared_everywhere.min(header.events_cleared);
        self.header.events_cleared = self.header.events_cleared.max(header.events_cleared);
        self.image[SUPER_BYTES..].iter_mut().zip(&image[SUPER_BYTES..]).for_each(|(sum, byte)| *sum |= byte);
        Ok(())
    }

    fn into_intent<M>(self, home: Home<M>, context: &LoadContext<'_>) -> IntentBitmap<M> {
        let Self { header, image, trusted, cleared_everywhere } = self;
        let trusted = trusted && !context.is_forced;
        let intent = IntentBitmap::new(home, header, image, trusted, context.agreed, context.policy);
        intent.cleared_everywhere.set(cleared_everywhere);
        intent
    }
}

/// A member's bitmap: superblock and bits.
///
/// # Errors
/// When it cannot be read, or a field of it is wrong.
pub(crate) async fn read_bitmap<M: Member>(
    name: &str,
    member: &M,
    superblock: &Superblock,
    pool: &Pool,
) -> Result<Option<(BitmapSuper, Vec<u8>)>, Refusal> {
    let Some(at) = superblock.bitmap_at() else { return Ok(None) };
    let room = superblock.bitmap_room(member.limits().bytes).unwrap_or(0);
    read_bitmap_at(name, member, at, room, &superblock.set_uuid, pool).await.map(Some)
}

/// The bitmap at `at` of a member or file, with `room` bytes up to the next structure.
///
/// # Errors
/// As [`read_bitmap`], and when it is not one that this engine writes.
pub(crate) async fn read_bitmap_at<M: Member>(
    name: &str,
    member: &M,
    at: MemberByte,
    room: u64,
    set_uuid: &[u8; 16],
    pool: &Pool,
) -> Result<(BitmapSuper, Vec<u8>), Refusal> {
    let unreadable = |reason| Refusal::new(reason).of(name).field("bitmap");
    let head = read_bytes(member, pool, at, SUPER_BYTES as u64).await.map_err(unreadable)?;
    let header = BitmapSuper::decode(&head, room).map_err(|defect| Refusal::defect(name, defect))?;
    if !matches!(header.kind, bitmap::Kind::Normal) {
        let reason = format!("mdspace does not write {:?} bitmaps", header.kind);
        return Err(Refusal::new(reason)
            .of(name)
            .field("bitmap.version")
            .advice("serve it --read-only, or remove the bitmap with mdadm --grow --bitmap=none"));
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
    Ok((header, image))
}
