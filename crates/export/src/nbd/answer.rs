//! Encodes a server's replies.
//!
//! Pure: the negotiated options and a request's result go in, the head of the reply and its data come out. Source:
//! `doc/proto.md`, sections "Simple reply message", "Structured reply chunk message", "Structured reply types". Nothing
//! here does I/O.

use super::handshake::Negotiated;
use super::request::Refusal;
use super::stream::Head;
use super::wire::{
    CHUNK_MAGIC, ChunkHeader, Errno, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, SimpleReply, chunk, extent_flag,
};
use crate::volume::{Extent, VolumeError, VolumeErrorKind};
use engine::Block;
use zerocopy::IntoBytes;

/// Maximum number of extents in one reply. The client asks again from their end.
const EXTENTS_MAX: usize = 8192;

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Success without data.
    Done,
    /// The data read at `at`.
    Data { at: u64, data: Block },
    /// Descriptors of the extents: merged, and cut to the request.
    Status(Vec<(u32, u32)>),
    /// An error number, and its description.
    Failed { errno: Errno, text: String },
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::Failed { errno: refusal.errno, text: refusal.why.into() }
    }
}

impl From<VolumeError> for Answer {
    fn from(error: VolumeError) -> Self {
        let errno = match error.kind {
            VolumeErrorKind::Io => Errno::Io,
            VolumeErrorKind::NoSpace => Errno::NoSpace,
            VolumeErrorKind::ReadOnly => Errno::Permission,
            VolumeErrorKind::OutOfRange => Errno::Invalid,
            VolumeErrorKind::ShuttingDown => Errno::ShuttingDown,
        };
        Self::Failed { errno, text: error.text }
    }
}

impl Answer {
    /// The bytes of the reply: a head, and the data block without a copy.
    pub(crate) fn encode(self, cookie: u64, agreed: &Negotiated) -> (Head, Option<Block>) {
        if !agreed.structured {
            return self.encode_simple(cookie);
        }
        match self {
            // A read is always answered in chunks, so an empty read needs this one.
            Self::Data { data, .. } if data.is_empty() => (chunk_head(chunk::NONE, cookie, 0), None),
            Self::Data { at, data } => {
                let mut head = chunk_head(chunk::OFFSET_DATA, cookie, 8 + data.len() as u32);
                head.extend_from_slice(&at.to_be_bytes());
                (head, Some(data))
            }
            Self::Status(extents) => {
                let mut head = chunk_head(chunk::BLOCK_STATUS, cookie, 4 + 8 * extents.len() as u32);
                head.extend_from_slice(&agreed.allocation_context.unwrap_or_default().to_be_bytes());
                for (bytes, flags) in extents {
                    head.extend_from_slice(&bytes.to_be_bytes());
                    head.extend_from_slice(&flags.to_be_bytes());
                }
                (head, None)
            }
            Self::Failed { errno, text } => {
                let longest = text.len().min(STRING_BYTES_MAX);
                let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
                let text = &text.as_bytes()[..end];
                let mut head = chunk_head(chunk::ERROR, cookie, 6 + text.len() as u32);
                head.extend_from_slice(&(errno as u32).to_be_bytes());
                head.extend_from_slice(&(text.len() as u16).to_be_bytes());
                head.extend_from_slice(text);
                (head, None)
            }
            Self::Done => self.encode_simple(cookie),
        }
    }

    fn encode_simple(self, cookie: u64) -> (Head, Option<Block>) {
        let (error, data) = match self {
            Self::Failed { errno, .. } => (errno as u32, None),
            Self::Data { data, .. } => (0, Some(data).filter(|data| !data.is_empty())),
            Self::Done | Self::Status(_) => (0, None),
        };
        let reply = SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() };
        (Head::from_slice(reply.as_bytes()), data)
    }
}

/// The header of a reply's only chunk.
fn chunk_head(kind: u16, cookie: u64, bytes: u32) -> Head {
    let header = ChunkHeader {
        magic: CHUNK_MAGIC.into(),
        flags: chunk::FLAG_DONE.into(),
        kind: kind.into(),
        cookie: cookie.into(),
        bytes: bytes.into(),
    };
    Head::from_slice(header.as_bytes())
}

/// The longest answer to BLOCK_STATUS of `bytes`, in bytes; with `one`, that of a single extent.
pub(crate) fn status_bytes(bytes: u32, one: bool) -> u64 {
    let extents = if one { 1 } else { u64::from(bytes).min(EXTENTS_MAX as u64) };
    extents * size_of::<(u32, u32)>() as u64
}

/// A volume's extents as descriptors: adjacent extents of one state are merged. They are cut to the `bytes` requested,
/// and to the first with `one`.
pub(crate) fn descriptors(extents: &[Extent], bytes: u32, one: bool) -> Vec<(u32, u32)> {
    let mut descriptors: Vec<(u32, u32)> = Vec::new();
    let mut left = bytes;
    for extent in extents {
        let now = u32::try_from(extent.bytes).unwrap_or(u32::MAX).min(left);
        let flags = if extent.hole { extent_flag::HOLE } else { 0 } | if extent.zero { extent_flag::ZERO } else { 0 };
        left -= now;
        let full = descriptors.len() == if one { 1 } else { EXTENTS_MAX };
        match descriptors.last_mut() {
            _ if now == 0 => {}
            Some(last) if last.1 == flags => last.0 += now,
            Some(_) if full => break,
            _ => descriptors.push((now, flags)),
        }
    }
    if descriptors.is_empty() {
        descriptors.push((bytes, 0)); // "allocated" is always a correct answer
    }
    descriptors
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u32 = 0;
    const HOLE: u32 = extent_flag::HOLE | extent_flag::ZERO;

    #[test]
    fn extents_are_merged_and_cut_to_what_was_asked() {
        let data = |bytes| Extent { bytes, hole: false, zero: false };
        let hole = |bytes| Extent { bytes, hole: true, zero: true };
        let table = [
            (vec![data(10)], 10, false, vec![(10, DATA)]),
            (vec![data(10), data(5), hole(5)], 20, false, vec![(15, DATA), (5, HOLE)]),
            (vec![data(10), data(5), hole(5)], 20, true, vec![(15, DATA)]),
            (vec![data(10), hole(5)], 12, false, vec![(10, DATA), (2, HOLE)]),
            (vec![data(10), hole(5)], 10, false, vec![(10, DATA)]),
            (vec![hole(u64::MAX)], u32::MAX, false, vec![(u32::MAX, HOLE)]),
            (vec![hole(u64::from(u32::MAX)), hole(1)], u32::MAX, false, vec![(u32::MAX, HOLE)]),
            (vec![], 7, false, vec![(7, DATA)]),
        ];
        for (extents, bytes, one, expected) in table {
            assert_eq!(descriptors(&extents, bytes, one), expected, "{extents:?} {bytes} {one}");
        }
        let many: Vec<Extent> = (0..20_000).map(|i| if i % 2 == 0 { data(1) } else { hole(1) }).collect();
        assert_eq!(descriptors(&many, 20_000, false).len(), EXTENTS_MAX);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let agreed = Negotiated { export: 0, bytes: 1, read_only: false, structured: true, allocation_context: None };
        let text = "é".repeat(3000);
        let (head, _) = Answer::Failed { errno: Errno::Io, text }.encode(1, &agreed);
        assert_eq!(head.len(), 20 + 6 + STRING_BYTES_MAX);
        assert!(std::str::from_utf8(&head[26..]).is_ok());
    }
}
