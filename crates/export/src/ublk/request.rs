//! One ublk request, carried out on a volume.
//!
//! It issues no ublk command itself: it takes a request and returns the result code that the driver expects. Source:
//! the kernel's `ublk_cmd.h`.

use crate::volume::{Durability, Volume, VolumeError, VolumeErrorKind};
use ::io::ublk::Request;
use rustix::io::Errno;
use std::io;

/// The unit of every offset and length in a request, whatever the logical block.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Maximum payload of a request, in bytes.
pub(super) const REQUEST_BYTES_MAX: u32 = 512 << 10;

// Operations (`UBLK_IO_OP_...`) and flags (`UBLK_IO_F_...`) of the kernel's ublk_cmd.h.
const READ: u8 = 0;
const WRITE: u8 = 1;
const FLUSH: u8 = 2;
const DISCARD: u8 = 3;
const WRITE_ZEROES: u8 = 5;
const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

/// Access to the payload of a request.
pub(super) trait Payload {
    /// Copies the data to write into `into`.
    fn read(&self, into: &mut [u8]) -> io::Result<()>;

    /// Copies the data read out of `from`.
    fn write(&self, from: &[u8]) -> io::Result<()>;
}

/// The result of `request`: bytes transferred (0 for a request without payload), or a negative error number.
pub(super) async fn serve<V: Volume>(volume: &V, request: Request, payload: &impl Payload) -> i32 {
    match carry_out(volume, request, payload).await {
        Ok(bytes) => bytes as i32,
        Err(refused) => {
            tracing::warn!(%refused, ?request, "a request through ublk failed");
            -refused.errno().raw_os_error()
        }
    }
}

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Volume(#[from] VolumeError),
    #[error("its payload: {0}")]
    Payload(#[from] io::Error),
    #[error("it is not within the device")]
    OutOfRange,
    #[error("more than {REQUEST_BYTES_MAX} bytes")]
    TooLong,
    #[error("an operation that was not offered")]
    Unsupported,
}

impl Refused {
    fn errno(&self) -> Errno {
        match self {
            Self::Volume(VolumeError { kind: VolumeErrorKind::NoSpace, .. }) => Errno::NOSPC,
            Self::Unsupported => Errno::OPNOTSUPP,
            Self::Volume(_) | Self::Payload(_) | Self::OutOfRange | Self::TooLong => Errno::IO,
        }
    }
}

async fn carry_out<V: Volume>(volume: &V, request: Request, payload: &impl Payload) -> Result<u32, Refused> {
    let durability = if request.flags & FUA == 0 { Durability::Ordinary } else { Durability::Stable };
    // The operation comes before the range: the offset of a flush is undefined.
    match request.operation {
        READ => {
            let (at, bytes) = piece(volume, request)?;
            let data = volume.read(at, volume.pool().take(bytes as usize)).await?;
            payload.write(&data)?;
            Ok(bytes)
        }
        WRITE => {
            let (at, bytes) = piece(volume, request)?;
            let mut data = volume.pool().take(bytes as usize);
            payload.read(&mut data)?;
            volume.write(at, data.freeze(), durability).await?;
            Ok(bytes)
        }
        FLUSH => {
            volume.flush().await?;
            Ok(0)
        }
        DISCARD => {
            let (at, bytes) = range(volume, request)?;
            volume.discard(at, bytes).await?;
            Ok(0)
        }
        WRITE_ZEROES => {
            let (at, bytes) = range(volume, request)?;
            volume.write_zeroes(at, bytes, request.flags & NO_UNMAP == 0, durability).await?;
            Ok(0)
        }
        _ => Err(Refused::Unsupported),
    }
}

/// Offset and length of a request with payload, in bytes.
fn piece(volume: &impl Volume, request: Request) -> Result<(u64, u32), Refused> {
    let (at, bytes) = range(volume, request)?;
    match u32::try_from(bytes) {
        Ok(bytes @ ..=REQUEST_BYTES_MAX) => Ok((at, bytes)),
        _ => Err(Refused::TooLong),
    }
}

/// Offset and length of a request, in bytes.
fn range(volume: &impl Volume, request: Request) -> Result<(u64, u64), Refused> {
    let bytes = u64::from(request.sectors) * SECTOR_BYTES;
    let at = request.start_sector.checked_mul(SECTOR_BYTES);
    at.filter(|at| at.checked_add(bytes).is_some_and(|end| end <= volume.bytes()))
        .map(|at| (at, bytes))
        .ok_or(Refused::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryVolume;
    use engine::Pool;
    use futures_executor::block_on;
    use std::cell::RefCell;

    /// The payload of one request.
    struct Bytes(RefCell<Vec<u8>>);

    impl Payload for Bytes {
        fn read(&self, into: &mut [u8]) -> io::Result<()> {
            into.copy_from_slice(&self.0.borrow());
            Ok(())
        }

        fn write(&self, from: &[u8]) -> io::Result<()> {
            self.0.replace(from.to_vec());
            Ok(())
        }
    }

    const VOLUME_SECTORS: u64 = 4096;

    fn asked(volume: &MemoryVolume, request: (u8, u32, u64, u32), brought: &[u8]) -> (i32, Vec<u8>) {
        let (operation, flags, start_sector, sectors) = request;
        let payload = Bytes(RefCell::new(brought.to_vec()));
        let result = block_on(serve(volume, Request { operation, flags, start_sector, sectors }, &payload));
        (result, payload.0.into_inner())
    }

    #[test]
    fn what_is_written_is_read_and_what_is_zeroed_is_gone() {
        let volume = MemoryVolume::new((VOLUME_SECTORS * SECTOR_BYTES) as usize, Pool::new(1 << 20));
        let data: Vec<u8> = (0..1536_u32).map(|index| index as u8 | 1).collect();
        assert_eq!(asked(&volume, (WRITE, FUA, 7, 3), &data).0, 1536);
        assert_eq!(asked(&volume, (READ, 0, 7, 3), &[]), (1536, data.clone()));
        assert_eq!(asked(&volume, (WRITE_ZEROES, NO_UNMAP, 8, 1), &[]).0, 0);
        assert_eq!(asked(&volume, (WRITE_ZEROES, FUA, 9, 1), &[]).0, 0);
        let (bytes, read) = asked(&volume, (READ, 0, 7, 3), &[]);
        assert_eq!((bytes, &read[..512], &read[512..]), (1536, &data[..512], &[0; 1024][..]));
        assert_eq!(asked(&volume, (DISCARD, 0, 0, VOLUME_SECTORS as u32), &[]).0, 0);
    }

    #[test]
    fn what_is_not_within_the_device_is_an_error_unless_it_is_a_flush() {
        let volume = MemoryVolume::new((VOLUME_SECTORS * SECTOR_BYTES) as usize, Pool::new(1 << 20));
        let (failed, unsupported) = (-Errno::IO.raw_os_error(), -Errno::OPNOTSUPP.raw_os_error());
        for (request, expected) in [
            ((READ, 0, VOLUME_SECTORS - 1, 2), failed),
            ((WRITE, 0, VOLUME_SECTORS, 1), failed),
            ((WRITE, 0, u64::MAX, 1), failed),
            ((READ, 0, u64::MAX / SECTOR_BYTES, 8), failed),
            ((READ, 0, 0, REQUEST_BYTES_MAX / SECTOR_BYTES as u32 + 1), failed),
            ((DISCARD, 0, 1, VOLUME_SECTORS as u32), failed),
            ((WRITE_ZEROES, 0, 1, u32::MAX), failed),
            ((FLUSH, 0, u64::MAX, 0), 0),
            ((FLUSH, 0, VOLUME_SECTORS, 8), 0),
            ((4, 0, 0, 1), unsupported), // "write same", which the kernel has removed
            ((13, 0, 0, 1), unsupported),
            ((255, 0, 0, 1), unsupported),
        ] {
            assert_eq!(asked(&volume, request, &[]).0, expected, "{request:?}");
        }
    }
}
