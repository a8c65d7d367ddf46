//! Reads and writes of a few bytes of a member, by transfers of whole logical blocks; and zeros, by the member's own
//! operation or by writing.
//!
//! No other data of the array passes here.

use crate::base::buffer::{Block, Pool};
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use format::units::MemberByte;

/// Writes `bytes` at `at` by read-modify-write, which preserves the rest of their logical blocks.
pub(crate) async fn write_bytes<M: Member>(
    member: &M,
    pool: &Pool,
    at: MemberByte,
    bytes: &[u8],
) -> Result<(), MemberError> {
    let unit = u64::from(member.limits().logical_block_bytes);
    let (start, end) = (at.0 / unit * unit, (at.0 + bytes.len() as u64).next_multiple_of(unit));
    let (result, mut buffer) = member.read(MemberByte(start), pool.take((end - start) as usize)).await;
    result?;
    let skip = (at.0 - start) as usize;
    buffer[skip..skip + bytes.len()].copy_from_slice(bytes);
    member.write(MemberByte(start), buffer.freeze()).await
}

/// As [`write_bytes`], but whole logical blocks are written without a read, which a bad medium would fail. Only for members
/// whose writes stay in memory.
pub(crate) async fn replace_bytes<M: Member>(
    member: &M,
    pool: &Pool,
    at: MemberByte,
    bytes: &[u8],
) -> Result<(), MemberError> {
    let unit = u64::from(member.limits().logical_block_bytes);
    match at.0.is_multiple_of(unit) && (bytes.len() as u64).is_multiple_of(unit) {
        true => member.write(at, pool.copy_of(bytes)).await,
        false => write_bytes(member, pool, at, bytes).await,
    }
}

/// Reads any byte range of a member.
pub(crate) async fn read_bytes<M: Member>(
    member: &M,
    pool: &Pool,
    at: MemberByte,
    bytes: u64,
) -> Result<Vec<u8>, String> {
    let limits = member.limits();
    let unit = u64::from(limits.logical_block_bytes);
    let (start, end) = (at.0 / unit * unit, (at.0 + bytes).next_multiple_of(unit));
    if end > limits.bytes {
        return Err(format!("bytes {} to {} lie past the member's end at {}", at.0, at.0 + bytes, limits.bytes));
    }
    let (result, buffer) = member.read(MemberByte(start), pool.take((end - start) as usize)).await;
    result.map_err(|error| error.to_string())?;
    let skip = (at.0 - start) as usize;
    Ok(buffer[skip..skip + bytes as usize].to_vec())
}

/// Zeroes `bytes` by the member's own `operation`. A member without it is written `zeros`, as often as it takes: `write`
/// gets the offset of each part.
pub(crate) async fn zero_or_write(
    operation: impl Future<Output = Result<(), MemberError>>,
    bytes: u64,
    zeros: impl FnOnce() -> Block,
    write: impl AsyncFn(u64, Block) -> Result<(), MemberError>,
) -> Result<(), MemberError> {
    match operation.await {
        Err(error) if error.kind == MemberErrorKind::Unsupported => {}
        done => return done,
    }
    let zeros = zeros();
    for start in (0..bytes).step_by(zeros.len()) {
        let length = (bytes - start).min(zeros.len() as u64) as usize;
        write(start, zeros.slice(0..length)).await?;
    }
    Ok(())
}
