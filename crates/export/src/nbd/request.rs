//! Decodes requests: the server's side of the transmission phase.
//!
//! [`RequestDecoder`] frames a request, [`Command::check`] validates it. Neither does I/O. For any input, the decoder
//! holds less than one header. A payload passes through in the pieces in which it arrives, or bypasses the decoder into
//! the memory that it is written from. Source: `doc/proto.md`, sections "Request message", "Request types", "Error
//! values".

use super::handshake::Negotiated;
use super::wire::{
    Errno, Gather, PAYLOAD_BYTES_MAX, REQUEST_MAGIC, RequestHeader, WireError, check_magic, command, command_flag,
};
use crate::volume::Durability;

/// A request as received, not yet validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// One of [`command`], or an unknown type.
    pub kind: u16,
    /// The client's cookie, returned with each reply.
    pub cookie: u64,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u32,
}

impl Request {
    /// Bytes of payload that follow the header.
    pub fn payload_bytes(&self) -> u32 {
        if self.kind == command::WRITE { self.bytes } else { 0 }
    }
}

/// What the decoder returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEvent<'a> {
    /// A request starts; its payload, if any, follows.
    Request(Request),
    /// A piece of the current request's payload; never empty.
    Payload(&'a [u8]),
}

/// Splits a stream of bytes into requests.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    gather: Gather,
    payload_left: u32,
}

impl RequestDecoder {
    /// The next event. Consumes the front of `input`; returns `None` when `input` is used up.
    ///
    /// # Errors
    /// The stream is out of step: no later byte can be decoded.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<RequestEvent<'a>>, WireError> {
        if self.payload_left > 0 {
            let now = input.len().min(self.payload_left as usize);
            if now == 0 {
                return Ok(None);
            }
            let (piece, rest) = input.split_at(now);
            *input = rest;
            self.payload_left -= now as u32;
            return Ok(Some(RequestEvent::Payload(piece)));
        }
        let Some(header) = self.gather.take::<RequestHeader>(input) else { return Ok(None) };
        check_magic("request", header.magic, REQUEST_MAGIC)?;
        let request = Request {
            flags: header.flags.get(),
            kind: header.kind.get(),
            cookie: header.cookie.get(),
            offset: header.offset.get(),
            bytes: header.bytes.get(),
        };
        self.payload_left = request.payload_bytes();
        Ok(Some(RequestEvent::Request(request)))
    }

    /// Whether the stream may end here without truncating a message.
    pub fn is_between_messages(&self) -> bool {
        self.payload_left == 0 && self.gather.is_empty()
    }

    /// Bytes of payload that have not arrived yet.
    pub fn payload_left(&self) -> u32 {
        self.payload_left
    }

    /// Tells the decoder that `bytes` of payload were received without it.
    ///
    /// # Panics
    /// When `bytes` exceeds [`RequestDecoder::payload_left`].
    pub fn skip_payload(&mut self, bytes: u32) {
        self.payload_left = self.payload_left.checked_sub(bytes).expect("no more than the payload was received");
    }
}

/// A request that is valid for its export. Ranges lie within the export; empty ranges are harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read `bytes` at `at`.
    Read {
        /// The offset in bytes.
        at: u64,
        /// At most [`PAYLOAD_BYTES_MAX`].
        bytes: u32,
    },
    /// Write the payload at `at`.
    Write {
        /// The offset in bytes.
        at: u64,
        /// At most [`PAYLOAD_BYTES_MAX`].
        bytes: u32,
        /// What the reply promises.
        durability: Durability,
    },
    /// Put every answered write on stable storage.
    Flush,
    /// Discard a range.
    Trim {
        /// The offset in bytes.
        at: u64,
        /// The length in bytes.
        bytes: u32,
        /// What the reply promises.
        durability: Durability,
    },
    /// Zero a range.
    WriteZeroes {
        /// The offset in bytes.
        at: u64,
        /// The length in bytes.
        bytes: u32,
        /// Whether the range may become a hole.
        may_discard: bool,
        /// What the reply promises.
        durability: Durability,
    },
    /// Return the allocation of a range.
    BlockStatus {
        /// The offset in bytes.
        at: u64,
        /// The length in bytes; never 0.
        bytes: u32,
        /// Whether the client wants one extent only.
        one: bool,
    },
    /// End the session once all earlier requests are answered.
    Disconnect,
}

/// Why a request is refused without being tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The error number of the reply.
    pub errno: Errno,
    /// The description for the client's user.
    pub why: &'static str,
}

fn refuse(errno: Errno, why: &'static str) -> Refusal {
    Refusal { errno, why }
}

impl Command {
    /// Validates `request` against the negotiated options and its export.
    ///
    /// # Errors
    /// The error that the protocol prescribes.
    pub fn check(request: &Request, agreed: &Negotiated) -> Result<Self, Refusal> {
        check_flags(request, agreed)?;
        let Request { offset: at, bytes, .. } = *request;
        let durability = if request.flags & command_flag::FUA != 0 { Durability::Stable } else { Durability::Ordinary };
        let command = match request.kind {
            command::DISC => return Ok(Self::Disconnect),
            command::FLUSH if at == 0 && bytes == 0 => return Ok(Self::Flush),
            command::FLUSH => return Err(refuse(Errno::Invalid, "a flush has no offset and no length")),
            command::READ => Self::Read { at, bytes },
            command::WRITE => Self::Write { at, bytes, durability },
            command::TRIM => Self::Trim { at, bytes, durability },
            command::WRITE_ZEROES if request.flags & command_flag::FAST_ZERO != 0 => {
                return Err(refuse(Errno::NotSupported, "zeroing may not be faster than a write"));
            }
            command::WRITE_ZEROES => {
                let may_discard = request.flags & command_flag::NO_HOLE == 0;
                Self::WriteZeroes { at, bytes, may_discard, durability }
            }
            command::BLOCK_STATUS if agreed.allocation_context.is_none() => {
                return Err(refuse(Errno::Invalid, "no metadata context was chosen"));
            }
            command::BLOCK_STATUS if bytes == 0 => {
                return Err(refuse(Errno::Invalid, "an empty range has no status"));
            }
            command::BLOCK_STATUS => Self::BlockStatus { at, bytes, one: request.flags & command_flag::REQ_ONE != 0 },
            _ => return Err(refuse(Errno::Invalid, "unknown command")),
        };
        command.check_range(at, bytes, agreed)?;
        Ok(command)
    }

    fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Trim { .. } | Self::WriteZeroes { .. })
    }

    fn check_range(&self, at: u64, bytes: u32, agreed: &Negotiated) -> Result<(), Refusal> {
        if self.is_write() && agreed.read_only {
            return Err(refuse(Errno::Permission, "the export is read-only"));
        }
        match self {
            Self::Write { .. } if bytes > PAYLOAD_BYTES_MAX => {
                return Err(refuse(Errno::Invalid, "longer than the longest payload, 32 MiB"));
            }
            Self::Read { .. } if bytes > PAYLOAD_BYTES_MAX => {
                return Err(refuse(Errno::Overflow, "longer than the longest payload, 32 MiB"));
            }
            _ => {}
        }
        if at.checked_add(bytes.into()).is_some_and(|end| end <= agreed.bytes) {
            return Ok(());
        }
        match self {
            Self::Write { .. } | Self::WriteZeroes { .. } => Err(refuse(Errno::NoSpace, "past the end of the export")),
            _ => Err(refuse(Errno::Invalid, "past the end of the export")),
        }
    }
}

/// Refuses flags that the command does not allow. Every command allows FUA.
fn check_flags(request: &Request, agreed: &Negotiated) -> Result<(), Refusal> {
    let known = match request.kind {
        command::DISC => return Ok(()),
        command::READ if agreed.structured => command_flag::DF,
        command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
        command::BLOCK_STATUS => command_flag::REQ_ONE,
        _ => 0,
    };
    if request.flags & !(known | command_flag::FUA) != 0 {
        return Err(refuse(Errno::Invalid, "a flag that this command does not take"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    const AGREED: Negotiated =
        Negotiated { export: 0, bytes: 1 << 20, read_only: false, structured: true, allocation_context: Some(1) };
    const SIMPLE: Negotiated = Negotiated { structured: false, allocation_context: None, ..AGREED };
    const READ_ONLY: Negotiated = Negotiated { read_only: true, ..AGREED };
    const HUGE: Negotiated = Negotiated { bytes: u64::MAX, ..AGREED };

    /// command, flags, offset, length -> the command or the error
    fn check(agreed: &Negotiated, kind: u16, flags: u16, offset: u64, bytes: u32) -> Result<Command, Errno> {
        let request = Request { flags, kind, cookie: 7, offset, bytes };
        Command::check(&request, agreed).map_err(|refusal| refusal.errno)
    }

    #[test]
    fn requests_that_make_sense_become_commands() {
        use Durability::{Ordinary, Stable};
        use command_flag::{DF, FUA, NO_HOLE, REQ_ONE};
        const END: u64 = AGREED.bytes;
        let table = [
            (command::READ, 0, 0, 4096, Command::Read { at: 0, bytes: 4096 }),
            (command::READ, DF | FUA, 1, 1, Command::Read { at: 1, bytes: 1 }),
            (command::READ, 0, END, 0, Command::Read { at: END, bytes: 0 }),
            (command::READ, 0, END - 1, 1, Command::Read { at: END - 1, bytes: 1 }),
            (command::WRITE, 0, 512, 512, Command::Write { at: 512, bytes: 512, durability: Ordinary }),
            (command::WRITE, FUA, 0, 1, Command::Write { at: 0, bytes: 1, durability: Stable }),
            (command::FLUSH, FUA, 0, 0, Command::Flush),
            (command::TRIM, FUA, 0, 9, Command::Trim { at: 0, bytes: 9, durability: Stable }),
            (
                command::WRITE_ZEROES,
                0,
                0,
                9,
                Command::WriteZeroes { at: 0, bytes: 9, may_discard: true, durability: Ordinary },
            ),
            (
                command::WRITE_ZEROES,
                NO_HOLE | FUA,
                0,
                9,
                Command::WriteZeroes { at: 0, bytes: 9, may_discard: false, durability: Stable },
            ),
            (command::BLOCK_STATUS, REQ_ONE, 0, 9, Command::BlockStatus { at: 0, bytes: 9, one: true }),
            (command::DISC, 0xffff, 3, 3, Command::Disconnect),
        ];
        for (kind, flags, offset, bytes, expected) in table {
            assert_eq!(check(&AGREED, kind, flags, offset, bytes), Ok(expected), "{kind} {flags} {offset} {bytes}");
        }
    }

    #[test]
    fn requests_that_make_no_sense_get_the_error_the_protocol_prescribes() {
        use Errno::{Invalid, NoSpace, NotSupported, Overflow, Permission};
        use command_flag::{DF, FAST_ZERO, NO_HOLE, REQ_ONE};
        const END: u64 = AGREED.bytes;
        const BIG: u32 = PAYLOAD_BYTES_MAX + 1;
        let table = [
            (&AGREED, command::READ, 0, END, 1, Invalid),
            (&AGREED, command::READ, 0, u64::MAX, 2, Invalid),
            (&AGREED, command::READ, NO_HOLE, 0, 1, Invalid),
            (&SIMPLE, command::READ, DF, 0, 1, Invalid),
            (&HUGE, command::READ, 0, 0, BIG, Overflow),
            (&HUGE, command::WRITE, 0, 0, BIG, Invalid),
            (&AGREED, command::WRITE, 0, END - 1, 2, NoSpace),
            (&AGREED, command::WRITE, 0, u64::MAX, 1, NoSpace),
            (&AGREED, command::WRITE, DF, 0, 1, Invalid),
            (&READ_ONLY, command::WRITE, 0, 0, 1, Permission),
            (&READ_ONLY, command::TRIM, 0, 0, 1, Permission),
            (&READ_ONLY, command::WRITE_ZEROES, 0, 0, 1, Permission),
            (&AGREED, command::WRITE_ZEROES, 0, END, 1, NoSpace),
            (&AGREED, command::WRITE_ZEROES, FAST_ZERO, 0, 1, NotSupported),
            (&AGREED, command::WRITE_ZEROES, REQ_ONE, 0, 1, Invalid),
            (&AGREED, command::TRIM, 0, END, 1, Invalid),
            (&AGREED, command::FLUSH, 0, 1, 0, Invalid),
            (&AGREED, command::FLUSH, 0, 0, 1, Invalid),
            (&AGREED, command::BLOCK_STATUS, 0, 0, 0, Invalid),
            (&AGREED, command::BLOCK_STATUS, 0, END, 1, Invalid),
            (&SIMPLE, command::BLOCK_STATUS, 0, 0, 1, Invalid),
            (&AGREED, 5, 0, 0, 1, Invalid),
            (&AGREED, 0xffff, 0, 0, 1, Invalid),
        ];
        for (agreed, kind, flags, offset, bytes, expected) in table {
            assert_eq!(
                check(agreed, kind, flags, offset, bytes),
                Err(expected),
                "{kind} {flags} {offset} {bytes} {agreed:?}"
            );
        }
    }

    fn header(kind: u16, cookie: u64, bytes: u32) -> Vec<u8> {
        let magic = REQUEST_MAGIC.into();
        let [flags, kind] = [0, kind].map(Into::into);
        let (cookie, bytes) = (cookie.into(), bytes.into());
        RequestHeader { magic, flags, kind, cookie, offset: 0.into(), bytes }.as_bytes().to_vec()
    }

    /// A request, or its payload.
    type Seen = Result<Request, Vec<u8>>;

    /// Decodes pieces that end at `cuts`, and merges adjacent pieces of a payload.
    fn decode(bytes: &[u8], cuts: &[usize]) -> (Vec<Seen>, Result<(), WireError>) {
        let mut decoder = RequestDecoder::default();
        let mut seen: Vec<Seen> = Vec::new();
        let mut start = 0;
        for end in cuts.iter().copied().chain([bytes.len()]) {
            let mut input = &bytes[start..end];
            start = end;
            loop {
                match decoder.next(&mut input) {
                    Ok(None) => break assert!(input.is_empty()),
                    Ok(Some(RequestEvent::Request(request))) => seen.push(Ok(request)),
                    Ok(Some(RequestEvent::Payload(piece))) => match seen.last_mut() {
                        Some(Err(payload)) => payload.extend_from_slice(piece),
                        _ => seen.push(Err(piece.to_vec())),
                    },
                    Err(error) => return (seen, Err(error)),
                }
            }
        }
        (seen, Ok(()))
    }

    proptest! {
        #[test]
        fn the_same_is_seen_however_the_bytes_are_cut(
            requests in proptest::collection::vec((0u16..9, any::<u64>(), 0u32..600), 0..8),
            garbage in proptest::collection::vec(any::<u8>(), 0..40),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for (kind, cookie, length) in requests {
                bytes.extend(header(kind, cookie, length));
                expected.push(Ok(Request { flags: 0, kind, cookie, offset: 0, bytes: length }));
                if kind == command::WRITE && length > 0 {
                    bytes.extend(vec![cookie as u8; length as usize]);
                    expected.push(Err(vec![cookie as u8; length as usize]));
                }
            }
            prop_assert_eq!(decode(&bytes, &[]), (expected, Ok(())));
            bytes.extend(garbage);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len().max(1))).collect();
            cuts.sort_unstable();
            prop_assert_eq!(decode(&bytes, &cuts), decode(&bytes, &[]));
        }
    }

    #[test]
    fn a_stream_out_of_step_is_an_error_that_names_the_message() {
        let error = RequestDecoder::default().next(&mut &[0u8; 28][..]).expect_err("no magic");
        assert_eq!(error.to_string(), "request: magic is 0x0, not 0x25609513");
    }
}
