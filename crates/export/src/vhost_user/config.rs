//! The device as a client sees it: features, and the block device's configuration space. Nothing here changes while a
//! volume is served. Source: Virtio 1.2, 5.2.

use super::QUEUES_MAX;
use crate::volume::Volume;
use virtio_bindings::virtio_blk as blk;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

/// The unit of every offset and length in a request, whatever the logical block.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Maximum payload of a request, in bytes; the same as in NBD.
pub(super) const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Maximum number of segments in a request: a queue of 128 without header and status.
const PIECES_MAX: u32 = 126;

/// Maximum number of ranges in one discard or zeroing.
pub(super) const RANGES_MAX: u32 = 32;

/// Maximum length of one range to discard or zero, in sectors.
pub(super) const RANGE_SECTORS_MAX: u32 = 1 << 21;

/// Bytes of the name that `GET_ID` returns.
pub(super) const ID_BYTES: usize = 20;

/// vhost-user's own feature bit among virtio's: the back-end negotiates protocol features.
pub(super) const PROTOCOL_FEATURES: u64 = 1 << 30;

/// The physical block in bytes, written atomically: the upper bound of the logical block.
const WHOLE_BYTES: u32 = 4096;

/// Properties of the volume, fixed while it is served.
#[derive(Debug, Clone)]
pub(super) struct Properties {
    pub(super) bytes: u64,
    pub(super) read_only: bool,
    preferred_block_bytes: u32,
    logical_block_bytes: u32,
    pub(super) id: [u8; ID_BYTES],
}

impl Properties {
    pub(super) fn of(volume: &impl Volume, name: &str) -> Self {
        let mut id = [0; ID_BYTES];
        let length = name.len().min(ID_BYTES);
        id[..length].copy_from_slice(&name.as_bytes()[..length]);
        let preferred_block_bytes = volume.preferred_block_bytes();
        let logical_block_bytes = volume.logical_block_bytes().unwrap_or(SECTOR_BYTES as u32);
        let (bytes, read_only) = (volume.bytes(), volume.is_read_only());
        Self { bytes, read_only, preferred_block_bytes, logical_block_bytes, id }
    }

    /// The features offered.
    pub(super) fn features(&self) -> u64 {
        let bits = [
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_INDIRECT_DESC,
            VIRTIO_RING_F_EVENT_IDX,
            blk::VIRTIO_BLK_F_SEG_MAX,
            blk::VIRTIO_BLK_F_BLK_SIZE,
            blk::VIRTIO_BLK_F_TOPOLOGY,
            blk::VIRTIO_BLK_F_FLUSH,
            blk::VIRTIO_BLK_F_MQ,
        ];
        let writing = [blk::VIRTIO_BLK_F_DISCARD, blk::VIRTIO_BLK_F_WRITE_ZEROES];
        let more: &[u32] = if self.read_only { &[blk::VIRTIO_BLK_F_RO] } else { &writing };
        bits.iter().chain(more).fold(PROTOCOL_FEATURES, |features, bit| features | 1 << bit)
    }

    /// `length` bytes of the configuration space, zeroes beyond its end.
    pub(super) fn config(&self, offset: u32, length: u32) -> Vec<u8> {
        let writing = |value: u32| if self.read_only { 0.into() } else { value.into() };
        let config = Config {
            capacity: (self.bytes / SECTOR_BYTES).into(),
            seg_max: PIECES_MAX.into(),
            blk_size: self.logical_block_bytes.into(),
            // The physical block, as a power of two of logical blocks and as their number.
            physical_block_exp: (WHOLE_BYTES / self.logical_block_bytes).ilog2() as u8,
            min_io_size: ((WHOLE_BYTES / self.logical_block_bytes) as u16).into(),
            opt_io_size: (self.preferred_block_bytes / self.logical_block_bytes).into(),
            num_queues: (QUEUES_MAX as u16).into(),
            max_discard_sectors: writing(RANGE_SECTORS_MAX),
            max_discard_seg: writing(RANGES_MAX),
            discard_sector_alignment: writing(8),
            max_write_zeroes_sectors: writing(RANGE_SECTORS_MAX),
            max_write_zeroes_seg: writing(RANGES_MAX),
            write_zeroes_may_unmap: u8::from(!self.read_only),
            ..Config::default()
        };
        let rest = config.as_bytes().get(offset as usize..).unwrap_or_default();
        rest.iter().copied().chain(std::iter::repeat(0)).take(length as usize).collect()
    }
}

/// `struct virtio_blk_config` up to the fields of WRITE_ZEROES (Virtio 1.2, 5.2.4).
#[derive(Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Config {
    capacity: U64,
    size_max: U32,
    seg_max: U32,
    cylinders: U16,
    heads: u8,
    sectors: u8,
    blk_size: U32,
    physical_block_exp: u8,
    alignment_offset: u8,
    min_io_size: U16,
    opt_io_size: U32,
    writeback: u8,
    unused0: u8,
    num_queues: U16,
    max_discard_sectors: U32,
    max_discard_seg: U32,
    discard_sector_alignment: U32,
    max_write_zeroes_sectors: U32,
    max_write_zeroes_seg: U32,
    write_zeroes_may_unmap: u8,
    unused1: [u8; 3],
}

const _: () = assert!(size_of::<Config>() == 60);
