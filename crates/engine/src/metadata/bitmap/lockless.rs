//! What the lockless bitmaps (version 6) of an array say, before anything else of the array is decided: whether parity
//! and copies agree in all that was written, and which parts were never written to.
//!
//! The superblock does not say it. With such a bitmap md builds parity only once a chunk is written, calls the array
//! clean meanwhile, and may be stopped before it has ended. Nothing is written here.
//!
//! Facts: `drivers/md/md-llbitmap.c`.

use crate::base::buffer::Pool;
use crate::core::unbuilt::Unbuilt;
use crate::device::Device;
use crate::metadata::bitmap::load::{is_trusted, read_bitmap};
use crate::metadata::bitmap::map::Map;
use crate::seam::bytes::read_bytes;
use crate::seam::member::Member;
use format::bitmap::{BitmapSuper, Kind, SUPER_BYTES};
use format::superblock::Superblock;
use std::rc::Rc;

/// What lockless bitmaps say together.
pub(crate) struct Lockless {
    /// Whether copies and parity agree in all that was written.
    pub(crate) is_agreed: bool,
    /// What was never written to.
    pub(crate) unbuilt: Unbuilt,
}

impl Lockless {
    /// An array without such a bitmap.
    pub(crate) fn absent() -> Self {
        Self { is_agreed: true, unbuilt: Unbuilt::default() }
    }

    /// A bitmap that cannot be read, or is out of date. A lockless one then says nothing: everything may have been
    /// written, and may disagree.
    pub(super) fn unknown(kind: Kind) -> Self {
        Self { is_agreed: kind != Kind::Lockless, unbuilt: Unbuilt::default() }
    }

    /// What the members' bitmaps say together.
    pub(super) fn of(header: &BitmapSuper, map: &Map) -> Self {
        if mutant!("unbuilt-parity-trusted") {
            return Self::absent();
        }
        Self { is_agreed: !map.needs_sync(), unbuilt: Unbuilt::new(map.unwritten(header), header.chunk_bytes) }
    }

    /// Reads the members' bitmaps of an array that is only read.
    pub(crate) async fn find<M: Member>(freshest: &Superblock, slots: &[Option<Rc<Device<M>>>], pool: &Pool) -> Self {
        let mut united: Option<(BitmapSuper, Map)> = None;
        for device in slots.iter().flatten() {
            let superblock = device.superblock.borrow().clone();
            if !is_lockless(device, &superblock, pool).await {
                continue;
            }
            let found = read_bitmap(&device.name, &device.member, &superblock, pool).await;
            let Ok(Some((header, map))) = found else { return Self::unknown(Kind::Lockless) };
            let is_like =
                |first: &BitmapSuper| first.chunk_bytes == header.chunk_bytes && first.sync_size == header.sync_size;
            match &mut united {
                _ if !is_trusted(&header, freshest.events) => return Self::unknown(Kind::Lockless),
                None => united = Some((header, map)),
                Some((first, united)) if is_like(first) => united.unite(&map),
                Some(_) => return Self::unknown(Kind::Lockless),
            }
        }
        united.map_or_else(Self::absent, |(header, map)| Self::of(&header, &map))
    }
}

async fn is_lockless<M: Member>(device: &Device<M>, superblock: &Superblock, pool: &Pool) -> bool {
    let Some(at) = superblock.bitmap_at() else { return false };
    let head = read_bytes(&device.member, pool, at, SUPER_BYTES as u64).await;
    head.is_ok_and(|head| BitmapSuper::kind_of(&head) == Some(Kind::Lockless))
}
