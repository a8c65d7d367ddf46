//! The members' bitmaps as one: every bit that any of them has set.

use super::{BitmapPolicy, Intent};
use crate::Pool;
use crate::device::Device;
use crate::error::Refusal;
use crate::inspect::read_bitmap;
use crate::member::Member;
use format::bitmap::{BitmapSuper, SUPER_BYTES, State};
use format::superblock::Superblock;
use std::rc::Rc;

/// What assembly knows of the array when it comes to the bitmap.
pub(crate) struct Circumstances<'a> {
    /// The superblock that counts.
    pub(crate) freshest: &'a Superblock,
    /// Bytes that the bitmap has to cover.
    pub(crate) covered_bytes: u64,
    /// Whether parity and copies agree everywhere.
    pub(crate) agreed: bool,
    pub(crate) policy: BitmapPolicy,
}

/// Reads the bitmaps of an array's members; `None` when it has none.
///
/// # Errors
/// When one cannot be read or is not of this array.
pub(crate) async fn load<M: Member>(
    circumstances: &Circumstances<'_>,
    slots: &[Option<Rc<Device<M>>>],
    pool: &Pool,
) -> Result<Option<Intent>, Refusal> {
    let freshest = circumstances.freshest;
    let mut united: Option<United> = None;
    for device in slots.iter().flatten() {
        let superblock = device.superblock.borrow().clone();
        let found = read_bitmap(&device.name, &device.member, &superblock, pool).await?;
        let Some((header, image)) = found else {
            if freshest.bitmap.is_some() || united.is_some() {
                let reason = "has no bitmap, but the array has";
                return Err(Refusal::new(reason).of(&device.name).field("superblock.feature_map"));
            }
            continue;
        };
        if header.sync_size.bytes() < circumstances.covered_bytes {
            let reason = format!("covers {} bytes of {}", header.sync_size.bytes(), circumstances.covered_bytes);
            return Err(Refusal::new(reason).of(&device.name).field("bitmap.sync_size"));
        }
        match &mut united {
            None => united = Some(United::new(header, image, freshest.events)),
            Some(united) => united.add(&device.name, &header, &image, freshest.events)?,
        }
    }
    Ok(united.map(|United { header, image, trusted, cleared_everywhere }| {
        let intent = Intent::new(header, image, trusted, circumstances.agreed, circumstances.policy);
        intent.cleared_everywhere.set(cleared_everywhere);
        intent
    }))
}

struct United {
    /// The first member's, with the latest `events_cleared` of any.
    header: BitmapSuper,
    image: Vec<u8>,
    trusted: bool,
    cleared_everywhere: u64,
}

/// As new as the superblocks, and not known to have missed anything.
fn is_trusted(header: &BitmapSuper, events: u64) -> bool {
    header.events >= events && !header.state.contains(State::STALE) && !header.state.contains(State::WRITE_ERROR)
}

impl United {
    fn new(header: BitmapSuper, image: Vec<u8>, events: u64) -> Self {
        let trusted = is_trusted(&header, events);
        Self { cleared_everywhere: header.events_cleared, header, image, trusted }
    }

    fn add(&mut self, name: &str, header: &BitmapSuper, image: &[u8], events: u64) -> Result<(), Refusal> {
        let shape = |header: &BitmapSuper| (header.chunk_bytes, header.sync_size);
        if shape(&self.header) != shape(header) || self.image.len() != image.len() {
            return Err(Refusal::new("differs from the other members' bitmaps").of(name).field("bitmap.chunksize"));
        }
        self.trusted &= is_trusted(header, events);
        self.cleared_everywhere = self.cleared_everywhere.min(header.events_cleared);
        self.header.events_cleared = self.header.events_cleared.max(header.events_cleared);
        self.image[SUPER_BYTES..].iter_mut().zip(&image[SUPER_BYTES..]).for_each(|(sum, byte)| *sum |= byte);
        Ok(())
    }
}
