//! One block request: decoded, carried out, answered.
//!
//! Every request with room for a status gets an answer; an invalid request gets an error status. Source: Virtio 1.2,
//! 5.2.6. It never trusts a length in the header.

use super::chain::{Chain, ChainError};
use super::config::{ID_BYTES, Properties, RANGE_SECTORS_MAX, RANGES_MAX, REQUEST_BYTES_MAX, SECTOR_BYTES};
use crate::volume::{Durability, Volume, VolumeError};
use virtio_bindings::virtio_blk as blk;
use vm_memory::GuestMemoryMmap;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The head of `struct virtio_blk_req`.
#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Header {
    pub(super) kind: U32,
    pub(super) reserved: U32,
    pub(super) sector: U64,
}

/// `struct virtio_blk_discard_write_zeroes`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Range {
    pub(super) sector: U64,
    pub(super) sectors: U32,
    pub(super) flags: U32,
}

const HEADER_BYTES: u32 = size_of::<Header>() as u32;
const STATUS_BYTES: u32 = 1;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("unsupported")]
    Unsupported,
    #[error("{0}")]
    Invalid(&'static str),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Chain(#[from] ChainError),
}

/// Carries out the request in `chain`. Returns the number of bytes written into its memory: 0 when it has no room for a
/// status.
pub(super) async fn serve<V: Volume>(
    volume: &V,
    properties: &Properties,
    durability: Durability,
    memory: &GuestMemoryMmap,
    chain: &Chain,
) -> u32 {
    let Some(room) = chain.writable.bytes.checked_sub(STATUS_BYTES) else {
        tracing::warn!("a request without room for its status");
        return 0;
    };
    let (status, written) = match carry_out(volume, properties, durability, memory, chain, room).await {
        Ok(written) => (blk::VIRTIO_BLK_S_OK, written),
        Err(Refused::Unsupported) => (blk::VIRTIO_BLK_S_UNSUPP, 0),
        Err(refused) => {
            tracing::warn!(%refused, "a request failed");
            (blk::VIRTIO_BLK_S_IOERR, 0)
        }
    };
    match chain.writable.write(memory, room, &[status as u8]) {
        Ok(()) => written + STATUS_BYTES,
        Err(error) => {
            tracing::warn!(%error, "a status cannot be written");
            0
        }
    }
}

/// Returns the number of bytes written into the first `room` of the chain's memory.
async fn carry_out<V: Volume>(
    volume: &V,
    properties: &Properties,
    durability: Durability,
    memory: &GuestMemoryMmap,
    chain: &Chain,
    room: u32,
) -> Result<u32, Refused> {
    let Some(payload) = chain.readable.bytes.checked_sub(HEADER_BYTES) else {
        return Err(Refused::Invalid("a request shorter than its head"));
    };
    if payload.max(room) > REQUEST_BYTES_MAX {
        return Err(Refused::Invalid("more than 32 MiB in one request"));
    }
    let mut head = [0; HEADER_BYTES as usize];
    chain.readable.read(memory, 0, &mut head)?;
    let Header { kind, sector, .. } = zerocopy::transmute!(head);
    let kind = kind.get();
    let is_write = matches!(kind, blk::VIRTIO_BLK_T_OUT | blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES);
    if is_write && properties.read_only {
        return Err(Refused::Invalid("a write to a read-only disk"));
    }
    match kind {
        blk::VIRTIO_BLK_T_IN => {
            let at = place(properties, sector.get(), room.into())?;
            let data = volume.read(at, volume.pool().take(room as usize)).await?;
            chain.writable.write(memory, 0, &data)?;
            Ok(room)
        }
        blk::VIRTIO_BLK_T_OUT => {
            let at = place(properties, sector.get(), payload.into())?;
            let mut data = volume.pool().take(payload as usize);
            chain.readable.read(memory, HEADER_BYTES, &mut data)?;
            volume.write(at, data.freeze(), durability).await?;
            Ok(0)
        }
        blk::VIRTIO_BLK_T_FLUSH => {
            volume.flush().await?;
            Ok(0)
        }
        blk::VIRTIO_BLK_T_GET_ID => {
            let length = (ID_BYTES as u32).min(room);
            chain.writable.write(memory, 0, &properties.id[..length as usize])?;
            Ok(length)
        }
        blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES => {
            let zero = kind == blk::VIRTIO_BLK_T_WRITE_ZEROES;
            for Range { sector, sectors, flags } in ranges(memory, chain, payload)? {
                // Bit 0 of the flags is "unmap", valid for zeroing only.
                if sectors > RANGE_SECTORS_MAX || flags.get() > u32::from(zero) {
                    return Err(Refused::Unsupported);
                }
                let bytes = u64::from(sectors.get()) * SECTOR_BYTES;
                let at = place(properties, sector.get(), bytes)?;
                if zero {
                    volume.write_zeroes(at, bytes, flags.get() == 1, durability).await?;
                } else {
                    volume.discard(at, bytes).await?;
                }
            }
            Ok(0)
        }
        _ => Err(Refused::Unsupported),
    }
}

/// The offset in bytes of a range of whole sectors within the volume.
fn place(properties: &Properties, sector: u64, bytes: u64) -> Result<u64, Refused> {
    let at = sector.checked_mul(SECTOR_BYTES);
    at.filter(|at| {
        bytes.is_multiple_of(SECTOR_BYTES) && at.checked_add(bytes).is_some_and(|end| end <= properties.bytes)
    })
    .ok_or(Refused::Invalid("a range that is not whole sectors of the disk"))
}

fn ranges(memory: &GuestMemoryMmap, chain: &Chain, payload: u32) -> Result<Vec<Range>, Refused> {
    const RANGE_BYTES: u32 = size_of::<Range>() as u32;
    if !payload.is_multiple_of(RANGE_BYTES) || payload / RANGE_BYTES > RANGES_MAX {
        return Err(Refused::Unsupported);
    }
    let mut bytes = vec![0; payload as usize];
    chain.readable.read(memory, HEADER_BYTES, &mut bytes)?;
    let pieces = bytes.chunks_exact(RANGE_BYTES as usize);
    Ok(pieces.map(|piece| Range::read_from_bytes(piece).expect("of its size")).collect())
}
