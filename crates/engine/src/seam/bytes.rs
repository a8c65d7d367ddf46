//! Reads and writes of a few bytes of a member, by transfers of whole logical blocks.
//!
//! For metadata only; array data never passes here.

use crate::base::buffer::Pool;
use crate::seam::member::{Member, MemberError};
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
