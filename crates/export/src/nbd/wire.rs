//! The NBD protocol's numbers and fixed-size messages, for both sides. All integers are big-endian.
//!
//! Nothing here validates a value; the decoders do. Source: `doc/proto.md` of the reference implementation
//! (NetworkBlockDevice/nbd), which is in the public domain. Names follow it, without the `NBD_` prefix.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of the server's greeting, `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second word of the greeting, and the start of each option, `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Start of each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Longest string (a name, a query, an error's text) in bytes.
pub const STRING_BYTES_MAX: usize = 4096;
/// Maximum payload of a READ or WRITE, in bytes: the protocol's default.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Zeroes that follow the reply to `EXPORT_NAME` unless agreed otherwise.
pub const EXPORT_NAME_PADDING_BYTES: usize = 124;
/// The one metadata context that this implementation knows.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// Bits of the greeting and of the client's answer to it.
pub mod handshake_flag {
    /// The fixed newstyle handshake.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No padding after the reply to `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the handshake.
pub mod option {
    /// Choose an export and start the transmission phase, without a way to report an error.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Start TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start the transmission phase.
    pub const GO: u32 = 7;
    /// Agree on structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of a reply to an option.
pub mod option_reply {
    /// Success.
    pub const ACK: u32 = 1;
    /// An export's name.
    pub const SERVER: u32 = 2;
    /// A fact about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The bit set in all errors.
    pub const ERROR: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERROR_UNSUPPORTED: u32 = ERROR + 1;
    /// The option is malformed, or not allowed here.
    pub const ERROR_INVALID: u32 = ERROR + 3;
    /// The option needs TLS.
    pub const ERROR_TLS_REQUIRED: u32 = ERROR + 5;
    /// No such export exists.
    pub const ERROR_UNKNOWN: u32 = ERROR + 6;
    /// The server is shutting down.
    pub const ERROR_SHUTDOWN: u32 = ERROR + 7;
    /// The option is longer than the server accepts.
    pub const ERROR_TOO_BIG: u32 = ERROR + 9;
}

/// Facts about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// The block size constraints.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Bits for the capabilities of an export.
pub mod transmission_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is served.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA flag is honoured.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is served.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is served.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF flag is honoured.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush covers what all connections wrote.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// The FAST_ZERO flag is honoured.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of request.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows the header.
    pub const WRITE: u16 = 1;
    /// End the session.
    pub const DISC: u16 = 2;
    /// Put completed writes on stable storage.
    pub const FLUSH: u16 = 3;
    /// Discard a range: its contents no longer matter.
    pub const TRIM: u16 = 4;
    /// Zero a range, without a payload.
    pub const WRITE_ZEROES: u16 = 6;
    /// Ask for the allocation of a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Bits of a request.
pub mod command_flag {
    /// The data must be on stable storage before the reply.
    pub const FUA: u16 = 1 << 0;
    /// WRITE_ZEROES must leave the range allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ must be answered in one chunk.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS wants one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES must fail rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types of a structured reply's chunk, and its one flag.
pub mod chunk {
    /// Flag: the last chunk of its reply.
    pub const FLAG_DONE: u16 = 1 << 0;
    /// No content; ends the reply.
    pub const NONE: u16 = 0;
    /// Data of a read.
    pub const OFFSET_DATA: u16 = 1;
    /// A range that reads as zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of a metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// The bit set in all errors.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}

/// Bits of an extent of `base:allocation`.
pub mod extent_flag {
    /// Not allocated.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// The error numbers of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: a write to a read-only export.
    Permission = 1,
    /// The storage failed.
    Io = 5,
    /// The request is invalid.
    Invalid = 22,
    /// No space left, or a write past the end.
    NoSpace = 28,
    /// Longer than the server serves in one request.
    Overflow = 75,
    /// The server cannot do it faster than a write.
    NotSupported = 95,
    /// The server is shutting down.
    ShuttingDown = 108,
}

impl Errno {
    /// Decodes a reply's error field, if it is not 0. The protocol says to treat an unknown value as EINVAL.
    pub fn from_wire(value: u32) -> Option<Self> {
        match value {
            0 => None,
            1 => Some(Self::Permission),
            5 => Some(Self::Io),
            28 => Some(Self::NoSpace),
            75 => Some(Self::Overflow),
            95 => Some(Self::NotSupported),
            108 => Some(Self::ShuttingDown),
            _ => Some(Self::Invalid),
        }
    }
}

/// The server's first message.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Greeting {
    /// [`GREETING_MAGIC`].
    pub magic: U64,
    /// [`OPTION_MAGIC`].
    pub option_magic: U64,
    /// Bits of [`handshake_flag`].
    pub flags: U16,
}

/// The header of an option; `bytes` of data follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionHeader {
    /// [`OPTION_MAGIC`].
    pub magic: U64,
    /// One of [`option`], or an unknown value.
    pub option: U32,
    /// Length of the data, in bytes.
    pub bytes: U32,
}

/// The header of a reply to an option; `bytes` of data follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionReplyHeader {
    /// [`OPTION_REPLY_MAGIC`].
    pub magic: U64,
    /// The option that this replies to.
    pub option: U32,
    /// One of [`option_reply`], or an unknown value.
    pub kind: U32,
    /// Length of the data, in bytes.
    pub bytes: U32,
}

/// The reply to `EXPORT_NAME`, and the body of the information `EXPORT`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExportSize {
    /// Size of the export, in bytes.
    pub bytes: U64,
    /// Bits of [`transmission_flag`].
    pub flags: U16,
}

/// The body of the information `BLOCK_SIZE`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this, in bytes.
    pub minimum: U32,
    /// The fastest block size, in bytes.
    pub preferred: U32,
    /// Maximum payload, in bytes.
    pub maximum: U32,
}

/// A request; the payload of a WRITE follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestHeader {
    /// [`REQUEST_MAGIC`].
    pub magic: U32,
    /// Bits of [`command_flag`].
    pub flags: U16,
    /// One of [`command`], or an unknown value.
    pub kind: U16,
    /// Chosen by the client; returned with each reply.
    pub cookie: U64,
    /// The offset in bytes.
    pub offset: U64,
    /// The length in bytes.
    pub bytes: U32,
}

/// A simple reply. The data of a READ follows, unless there is an error.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SimpleReply {
    /// [`SIMPLE_REPLY_MAGIC`].
    pub magic: U32,
    /// An [`Errno`], or 0.
    pub error: U32,
    /// The cookie of the request.
    pub cookie: U64,
}

/// The header of a structured reply's chunk; `bytes` of payload follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChunkHeader {
    /// [`CHUNK_MAGIC`].
    pub magic: U32,
    /// [`chunk::FLAG_DONE`] or nothing.
    pub flags: U16,
    /// One of [`chunk`], or an unknown value.
    pub kind: U16,
    /// The cookie of the request.
    pub cookie: U64,
    /// Length of the payload, in bytes.
    pub bytes: U32,
}

const _: () = {
    assert!(size_of::<Greeting>() == 18);
    assert!(size_of::<OptionHeader>() == 16);
    assert!(size_of::<OptionReplyHeader>() == 20);
    assert!(size_of::<ExportSize>() == 10);
    assert!(size_of::<BlockSizes>() == 12);
    assert!(size_of::<RequestHeader>() == 28);
    assert!(size_of::<SimpleReply>() == 16);
    assert!(size_of::<ChunkHeader>() == 20);
};

/// Why a byte stream cannot be decoded any further: the session ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A message does not begin with its magic number.
    #[error("{message}: magic is {found:#x}, not {expected:#x}")]
    Magic {
        /// The message.
        message: &'static str,
        /// The value found.
        found: u64,
        /// The value expected.
        expected: u64,
    },
    /// A field's value is outside what the protocol allows.
    #[error("{message}: {field} is {value}, which {why}")]
    Field {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// The value found.
        value: u64,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl WireError {
    pub(crate) fn field(message: &'static str, field: &'static str, value: impl Into<u64>, why: &'static str) -> Self {
        Self::Field { message, field, value: value.into(), why }
    }
}

/// Checks that `found` is `expected`.
pub(crate) fn check_magic(
    message: &'static str,
    found: impl Into<u64>,
    expected: impl Into<u64>,
) -> Result<(), WireError> {
    let (found, expected) = (found.into(), expected.into());
    if found == expected { Ok(()) } else { Err(WireError::Magic { message, found, expected }) }
}

/// Collects a fixed-size message that arrives in pieces: at most 32 bytes.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    bytes: [u8; 32],
    filled: usize,
}

impl Gather {
    /// Whether no message has started.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Consumes the front of `input` until a `T` is complete.
    ///
    /// Between two calls for different types, the first must have returned `Some`.
    pub(crate) fn take<T: FromBytes>(&mut self, input: &mut &[u8]) -> Option<T> {
        const { assert!(size_of::<T>() <= 32) };
        let wanted = (size_of::<T>() - self.filled).min(input.len());
        let (now, rest) = input.split_at(wanted);
        *input = rest;
        self.bytes[self.filled..self.filled + wanted].copy_from_slice(now);
        self.filled += wanted;
        if self.filled < size_of::<T>() {
            return None;
        }
        self.filled = 0;
        Some(T::read_from_bytes(&self.bytes[..size_of::<T>()]).expect("the lengths are equal"))
    }
}
