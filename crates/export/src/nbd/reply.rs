//! Decodes replies: the client's side of the transmission phase.
//!
//! [`ReplyDecoder`] frames each message and checks its own fields. The client checks that a reply fits its request. The
//! decoder does no I/O and holds at most the text of one error ([`ERROR_BYTES_MAX`]). Data passes through in the pieces
//! in which it arrives, or bypasses the decoder; extents are returned one by one. Source: `doc/proto.md`, sections
//! "Simple reply message", "Structured reply chunk message", "Structured reply types".

use super::wire::{CHUNK_MAGIC, Errno, Gather, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, SimpleReply, WireError, chunk};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Maximum payload of an error chunk that is examined, in bytes.
pub const ERROR_BYTES_MAX: usize = STRING_BYTES_MAX + 256;

/// What the decoder returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEvent<'a> {
    /// Data for the request starts: `bytes` of payload follow.
    Data {
        /// The cookie of the request.
        cookie: u64,
        /// The offset in the export. `None` for a simple reply, whose data is at the request's own offset.
        at: Option<u64>,
        /// The length; never 0.
        bytes: u32,
    },
    /// A piece of the data before; never empty.
    Payload(&'a [u8]),
    /// A range that reads as zeroes.
    Hole {
        /// The cookie of the request.
        cookie: u64,
        /// The offset in the export.
        at: u64,
        /// The length; never 0.
        bytes: u32,
    },
    /// One extent.
    Extent {
        /// The cookie of the request.
        cookie: u64,
        /// The id of the metadata context.
        context: u32,
        /// The length in bytes; never 0.
        bytes: u32,
        /// Bits of [`super::wire::extent_flag`].
        flags: u32,
    },
    /// The request failed, at least in part.
    Failed {
        /// The cookie of the request.
        cookie: u64,
        /// The error number.
        errno: Errno,
        /// The server's description, possibly empty.
        text: String,
    },
    /// The reply is complete.
    Finished {
        /// The cookie of the request.
        cookie: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Between messages.
    Header,
    /// A simple reply has the length of both headers' common part. The rest of a chunk's header is missing.
    ChunkLength(SimpleReply),
    DataOffset(Current, u32),
    Payload(Current, u32),
    Hole(Current),
    Context(Current, u32),
    Extents(Current, u32, u32),
    Error(Current, u32),
    /// The message is complete.
    End(Current),
}

/// The request of the current message, and whether the message is its last.
#[derive(Debug, Clone, Copy)]
struct Current {
    cookie: u64,
    last: bool,
}

#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HoleBody {
    at: U64,
    bytes: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ExtentBody {
    bytes: U32,
    flags: U32,
}

/// Splits a stream of bytes into replies.
#[derive(Debug)]
pub struct ReplyDecoder {
    state: State,
    gather: Gather,
    error: Vec<u8>,
}

impl Default for ReplyDecoder {
    fn default() -> Self {
        Self { state: State::Header, gather: Gather::default(), error: Vec::new() }
    }
}

impl ReplyDecoder {
    /// The next event. Consumes the front of `input`; returns `None` when `input` is used up. `simple_bytes` returns
    /// how much data a successful simple reply carries for the request with that cookie.
    ///
    /// # Errors
    /// The stream is out of step: no later byte can be decoded.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        simple_bytes: impl Fn(u64) -> u32,
    ) -> Result<Option<ReplyEvent<'a>>, WireError> {
        loop {
            match self.state {
                State::Header => {
                    let Some(header) = self.gather.take::<SimpleReply>(input) else { return Ok(None) };
                    if let Some(failed) = self.header(header, &simple_bytes)? {
                        return Ok(Some(failed));
                    }
                }
                State::ChunkLength(header) => {
                    let Some(bytes) = self.gather.take::<U32>(input) else { return Ok(None) };
                    self.chunk(header, bytes.get())?;
                }
                State::DataOffset(current, bytes) => {
                    let Some(at) = self.gather.take::<U64>(input) else { return Ok(None) };
                    self.state = State::Payload(current, bytes);
                    return Ok(Some(ReplyEvent::Data { cookie: current.cookie, at: Some(at.get()), bytes }));
                }
                State::Payload(current, 0) => self.state = State::End(current),
                State::Payload(..) => return Ok(self.payload(input)),
                State::Hole(current) => {
                    let Some(body) = self.gather.take::<HoleBody>(input) else { return Ok(None) };
                    self.state = State::End(current);
                    let bytes = not_zero("hole", "size", body.bytes.get())?;
                    return Ok(Some(ReplyEvent::Hole { cookie: current.cookie, at: body.at.get(), bytes }));
                }
                State::Context(current, bytes) => {
                    let Some(context) = self.gather.take::<U32>(input) else { return Ok(None) };
                    self.state = State::Extents(current, context.get(), bytes);
                }
                State::Extents(current, _, 0) => self.state = State::End(current),
                State::Extents(current, context, left) => {
                    let Some(body) = self.gather.take::<ExtentBody>(input) else { return Ok(None) };
                    self.state = State::Extents(current, context, left - 8);
                    let bytes = not_zero("extent", "length", body.bytes.get())?;
                    let flags = body.flags.get();
                    return Ok(Some(ReplyEvent::Extent { cookie: current.cookie, context, bytes, flags }));
                }
                State::Error(current, left) => {
                    let (now, rest) = input.split_at(input.len().min(left as usize));
                    *input = rest;
                    self.error.extend_from_slice(now);
                    let left = left - now.len() as u32;
                    self.state = State::Error(current, left);
                    if left > 0 {
                        return Ok(None);
                    }
                    self.state = State::End(current);
                    return self.failed(current).map(Some);
                }
                State::End(current) => {
                    self.state = State::Header;
                    if current.last {
                        return Ok(Some(ReplyEvent::Finished { cookie: current.cookie }));
                    }
                }
            }
        }
    }

    /// Bytes of the current data that have not arrived yet.
    pub fn payload_left(&self) -> u32 {
        if let State::Payload(_, left) = self.state { left } else { 0 }
    }

    /// Tells the decoder that `bytes` of data were received without it.
    ///
    /// # Panics
    /// When `bytes` exceeds [`ReplyDecoder::payload_left`].
    pub fn skip_payload(&mut self, bytes: u32) {
        let State::Payload(current, left) = self.state else {
            assert_eq!(bytes, 0, "no data is awaited");
            return;
        };
        self.state = State::Payload(current, left.checked_sub(bytes).expect("no more than the data was received"));
    }

    fn header<'a>(
        &mut self,
        header: SimpleReply,
        simple_bytes: &impl Fn(u64) -> u32,
    ) -> Result<Option<ReplyEvent<'a>>, WireError> {
        let cookie = header.cookie.get();
        let current = Current { cookie, last: true };
        match (header.magic.get(), Errno::from_wire(header.error.get())) {
            (CHUNK_MAGIC, _) => self.state = State::ChunkLength(header),
            (SIMPLE_REPLY_MAGIC, Some(errno)) => {
                self.state = State::End(current);
                return Ok(Some(ReplyEvent::Failed { cookie, errno, text: String::new() }));
            }
            (SIMPLE_REPLY_MAGIC, None) => match simple_bytes(cookie) {
                0 => self.state = State::End(current),
                bytes => {
                    self.state = State::Payload(current, bytes);
                    return Ok(Some(ReplyEvent::Data { cookie, at: None, bytes }));
                }
            },
            (found, _) => {
                let (found, expected) = (found.into(), SIMPLE_REPLY_MAGIC.into());
                return Err(WireError::Magic { message: "reply", found, expected });
            }
        }
        Ok(None)
    }

    /// Handles the complete header of a chunk: checks its length and sets the next state.
    fn chunk(&mut self, start: SimpleReply, bytes: u32) -> Result<(), WireError> {
        // Both headers have the cookie at the same offset. The error field of a simple reply is the flags and type of a
        // chunk.
        let flags = (start.error.get() >> 16) as u16;
        let kind = start.error.get() as u16;
        let current = Current { cookie: start.cookie.get(), last: flags & chunk::FLAG_DONE != 0 };
        let bad = |why| Err(WireError::field("chunk", "length", bytes, why));
        self.state = match kind {
            chunk::NONE if bytes != 0 => return bad("must be 0 for a chunk without content"),
            chunk::NONE if !current.last => {
                return Err(WireError::field("chunk", "flags", flags, "lacks DONE on a chunk without content"));
            }
            chunk::NONE => State::End(current),
            chunk::OFFSET_DATA if bytes < 9 => return bad("is less than 9 for a chunk with data"),
            chunk::OFFSET_DATA => State::DataOffset(current, bytes - 8),
            chunk::OFFSET_HOLE if bytes != 12 => return bad("is not 12 for a hole"),
            chunk::OFFSET_HOLE => State::Hole(current),
            chunk::BLOCK_STATUS if bytes < 12 || bytes % 8 != 4 => return bad("is not 4 and a multiple of 8"),
            chunk::BLOCK_STATUS => State::Context(current, bytes - 4),
            _ if kind & chunk::ERROR_BIT == 0 => {
                return Err(WireError::field("chunk", "type", kind, "is not known"));
            }
            _ if bytes < 6 => return bad("is less than 6 for an error"),
            _ if bytes as usize > ERROR_BYTES_MAX => return bad("is too long for an error"),
            _ => {
                self.error.clear();
                State::Error(current, bytes)
            }
        };
        Ok(())
    }

    fn payload<'a>(&mut self, input: &mut &'a [u8]) -> Option<ReplyEvent<'a>> {
        let now = input.len().min(self.payload_left() as usize);
        let (piece, rest) = input.split_at(now);
        *input = rest;
        self.skip_payload(now as u32);
        (now > 0).then_some(ReplyEvent::Payload(piece))
    }

    fn failed<'a>(&self, current: Current) -> Result<ReplyEvent<'a>, WireError> {
        let (number, rest) = U32::read_from_prefix(&self.error).expect("an error has at least 6 bytes");
        let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        let text = rest[2..].get(..length).ok_or_else(|| {
            WireError::field("error chunk", "message length", length as u64, "exceeds the chunk's length")
        })?;
        let errno = Errno::from_wire(number.get())
            .ok_or_else(|| WireError::field("error chunk", "error", 0u32, "is not an error"))?;
        Ok(ReplyEvent::Failed { cookie: current.cookie, errno, text: String::from_utf8_lossy(text).into_owned() })
    }
}

fn not_zero(message: &'static str, field: &'static str, bytes: u32) -> Result<u32, WireError> {
    if bytes == 0 { Err(WireError::field(message, field, bytes, "must not be 0")) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
