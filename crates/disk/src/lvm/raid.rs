//! The superblock that device-mapper's RAID keeps on the metadata volume of each of its images.
//!
//! Its level and layout are md's numbers. The superblocks show which image is current, as md's events do.
//!
//! Facts: the kernel's `drivers/md/dm-raid.c`.

use crate::bytes::{le32, le64};
use crate::source::{Source, read_up_to};
use format::geometry::Level;

const MAGIC: u32 = 0x6452_6d44;
const SECTOR_BYTES: u64 = 512;

/// Where the write-intent bitmap is behind the superblock, and its signature.
const BITMAP_AT: u64 = 4096;
const BITMAP: &[u8] = b"bitm";
const BITMAP_HEAD_BYTES: usize = 256;
/// The bytes of the bitmap that are looked at.
const BITMAP_BYTES_MAX: usize = 1 << 20;

/// What one image's metadata say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageState {
    /// Its slot.
    pub slot: u32,
    /// How many images there are.
    pub slots: u32,
    events: u64,
    failed: u64,
    /// It is being rebuilt.
    is_rebuilt: bool,
    /// Copies or parity may not agree: by a resync that is not done, or by the bitmap.
    is_dirty: bool,
    /// The level; `None` for one that is not md's.
    pub level: Option<Level>,
    /// The layout, in md's number.
    pub layout: u32,
    /// Bytes in a chunk.
    pub chunk_bytes: u64,
    /// Its shape is being changed, or its data has moved by that.
    is_reshaped: bool,
}

/// Reads the superblock, and the bitmap behind it. `None`: there is none.
///
/// # Errors
/// When it cannot be read.
pub async fn read<S: Source + ?Sized>(metadata: &S) -> Result<Option<ImageState>, String> {
    let block = read_up_to(metadata, 0, SECTOR_BYTES as usize).await?;
    if le32(&block, 0) != MAGIC {
        return Ok(None);
    }
    const HAS_RESHAPE: u32 = 1;
    const IN_RESHAPE: u32 = 1;
    let is_newer = le32(&block, 4) & HAS_RESHAPE != 0;
    Ok(Some(ImageState {
        slot: le32(&block, 12),
        slots: le32(&block, 8),
        events: le64(&block, 16),
        failed: le64(&block, 24),
        is_rebuilt: le64(&block, 32) != u64::MAX,
        is_dirty: le64(&block, 40) != u64::MAX || has_bits(metadata).await?,
        level: match le32(&block, 48) {
            0 => Some(Level::Raid0),
            1 => Some(Level::Raid1),
            4 => Some(Level::Raid4),
            5 => Some(Level::Raid5),
            6 => Some(Level::Raid6),
            10 => Some(Level::Raid10),
            _ => None,
        },
        layout: le32(&block, 52),
        chunk_bytes: u64::from(le32(&block, 56)) * SECTOR_BYTES,
        is_reshaped: is_newer && (le32(&block, 60) & IN_RESHAPE != 0 || le64(&block, 96) != 0),
    }))
}

/// Whether a bit of the write-intent bitmap is set.
async fn has_bits<S: Source + ?Sized>(metadata: &S) -> Result<bool, String> {
    let bitmap = read_up_to(metadata, BITMAP_AT, BITMAP_BYTES_MAX).await?;
    if !bitmap.starts_with(BITMAP) {
        return Ok(false);
    }
    let (bytes, chunk) = (le64(&bitmap, 40).saturating_mul(SECTOR_BYTES), u64::from(le32(&bitmap, 52)));
    let bits = if chunk == 0 { 0 } else { bytes.div_ceil(chunk) };
    // Behind the last bit the driver leaves ones.
    let is_set = |bit: u64| {
        let at = usize::try_from(bit / 8).ok().and_then(|byte| byte.checked_add(BITMAP_HEAD_BYTES));
        at.and_then(|at| bitmap.get(at)).is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
    };
    Ok((0..bits.min(8 * BITMAP_BYTES_MAX as u64)).any(is_set))
}

/// What all images' metadata say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaidState {
    /// The level.
    pub level: Level,
    /// The layout, in md's number.
    pub layout: u32,
    /// Bytes in a chunk; 0 for RAID-1.
    pub chunk_bytes: u64,
    /// Whether each slot's image is current.
    pub current: Vec<bool>,
    /// Copies or parity may not agree.
    pub is_dirty: bool,
}

/// Puts the images' metadata together; `None` in `images` is one that is missing or cannot be read.
///
/// # Errors
/// When no image knows, the images contradict each other, or the shape is one that is not read.
pub fn together(images: &[Option<ImageState>]) -> Result<RaidState, String> {
    let freshest = images.iter().flatten().max_by_key(|state| state.events);
    let freshest = freshest.ok_or("none of its images has a superblock")?;
    if freshest.is_reshaped {
        return Err("it is being changed to another shape, or was, and its data has moved".to_owned());
    }
    let level = freshest.level.ok_or("its level is not one of md's")?;
    if freshest.slots as usize != images.len() {
        return Err(format!("its superblocks say {} images, and LVM's metadata {}", freshest.slots, images.len()));
    }
    let is_current = |(slot, state): (usize, &Option<ImageState>)| {
        let Some(state) = state else { return false };
        let is_failed = slot < 64 && freshest.failed >> slot & 1 != 0;
        // As with md's members: one event behind is what a power cut leaves.
        let is_stale = state.events.saturating_add(1) < freshest.events;
        state.slot as usize == slot && !state.is_rebuilt && !is_failed && !is_stale
    };
    let shape = |state: &ImageState| (state.level, state.layout, state.chunk_bytes);
    if images.iter().flatten().any(|state| state.events == freshest.events && shape(state) != shape(freshest)) {
        return Err("its images contradict each other".to_owned());
    }
    Ok(RaidState {
        level,
        layout: freshest.layout,
        chunk_bytes: if level.has_chunks() { freshest.chunk_bytes } else { 0 },
        current: images.iter().enumerate().map(is_current).collect(),
        is_dirty: images.iter().flatten().any(|state| state.is_dirty),
    })
}
