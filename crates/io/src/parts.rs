//! What several kinds of members have in common: the bounds of a transfer, and a vectored read one part at a time.
//!
//! It moves no bytes of its own.

use engine::{Buffer, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::units::MemberByte;
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// The range of a transfer.
///
/// # Errors
/// [`MemberErrorKind::Short`] if it does not lie within the member.
pub fn range_within(
    limits: &Limits,
    operation: Operation,
    at: MemberByte,
    bytes: u64,
) -> Result<Range<u64>, MemberError> {
    match at.0.checked_add(bytes) {
        Some(end) if end <= limits.bytes => Ok(at.0..end),
        _ => {
            let text = format!("beyond the member's end at byte {}", limits.bytes);
            let source = Rc::new(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            Err(MemberFault { kind: MemberErrorKind::Short, operation, at, bytes, source }.into())
        }
    }
}

/// [`Member::read_vectored`] by one [`Member::read`] after the other, up to the first error.
pub(crate) async fn read_each(
    member: &impl Member,
    at: MemberByte,
    into: Vec<Buffer>,
) -> (Result<(), MemberError>, Vec<Buffer>) {
    let mut done = Vec::with_capacity(into.len());
    let (mut result, mut position) = (Ok(()), at.0);
    for part in into {
        let bytes = part.len() as u64;
        let (read, part) = if result.is_ok() { member.read(MemberByte(position), part).await } else { (Ok(()), part) };
        result = result.and(read);
        done.push(part);
        position += bytes;
    }
    (result, done)
}
