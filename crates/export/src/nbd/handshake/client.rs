//! The client's side of the handshake. It asks for structured replies, for `base:allocation`, then for the export.
//!
//! It continues without the first two when the server does not support them. It falls back to `EXPORT_NAME` when the
//! server does not support `GO`. It does no I/O. Source: `doc/proto.md`.

use super::{Data, Fields, Missing, put_string, put_u16, put_u32};
use crate::nbd::wire::{
    BASE_ALLOCATION, EXPORT_NAME_PADDING_BYTES, ExportSize, GREETING_MAGIC, Gather, Greeting, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, OptionHeader, OptionReplyHeader, PAYLOAD_BYTES_MAX, WireError, check_magic, handshake_flag,
    info, option, option_reply,
};
use zerocopy::IntoBytes;

/// What the client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// The export's name; empty for the server's default.
    pub export: String,
    /// Whether to ask for structured replies.
    pub structured: bool,
    /// Whether to ask for `base:allocation`, which needs structured replies.
    pub allocation: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { export: String::new(), structured: true, allocation: true }
    }
}

/// The server's description of the export, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteExport {
    /// Its size in bytes.
    pub bytes: u64,
    /// Bits of [`crate::nbd::wire::transmission_flag`].
    pub flags: u16,
    /// Offsets and lengths are multiples of this, in bytes; a power of two.
    pub minimum_block_bytes: u32,
    /// The fastest block size, in bytes.
    pub preferred_block_bytes: u32,
    /// Maximum payload of a request, in bytes.
    pub payload_bytes_max: u32,
    /// Whether replies to reads are structured.
    pub structured: bool,
    /// The id of the context `base:allocation`, when the server has it.
    pub allocation_context: Option<u32>,
}

/// Why the handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The server does not speak NBD.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server does not support the fixed newstyle handshake.
    #[error("the server does not offer the fixed newstyle handshake")]
    NotFixedNewstyle,
    /// The server refused the export.
    #[error("the server refused the export (reply {kind:#x}): {text}")]
    Refused {
        /// One of [`option_reply`], or an unknown type.
        kind: u32,
        /// The server's description.
        text: String,
    },
    /// The data of a reply ends before a field, or continues after the last.
    #[error("reply to an option: {0} does not fit its data")]
    Malformed(&'static str),
}

impl From<Missing> for HandshakeError {
    fn from(missing: Missing) -> Self {
        Self::Malformed(missing.0)
    }
}

/// The progress of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProgress {
    /// The client waits for the server, once `out` is sent.
    NeedInput,
    /// The transmission phase has begun.
    Transmission(RemoteExport),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Greeting,
    /// Waits for replies to the option.
    Header {
        option: u32,
    },
    Data {
        option: u32,
        kind: u32,
    },
    /// Waits for the reply to `EXPORT_NAME`, which has a format of its own.
    ExportName,
    Padding {
        left: usize,
    },
}

/// The state of a handshake.
#[derive(Debug)]
pub struct ClientHandshake {
    wanted: ClientOptions,
    state: State,
    gather: Gather,
    data: Data,
    padding: bool,
    /// Whether the information `EXPORT` has arrived.
    described: bool,
    export: RemoteExport,
}

impl ClientHandshake {
    /// A handshake that requests `wanted`.
    pub fn new(wanted: ClientOptions) -> Self {
        let export = RemoteExport {
            bytes: 0,
            flags: 0,
            minimum_block_bytes: 1,
            preferred_block_bytes: 4096,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            structured: false,
            allocation_context: None,
        };
        Self {
            wanted,
            state: State::Greeting,
            gather: Gather::default(),
            data: Data::default(),
            padding: true,
            described: false,
            export,
        }
    }

    /// Consumes the front of `input`, and appends the bytes to send to `out`.
    ///
    /// # Errors
    /// The handshake failed; the caller closes the connection.
    pub fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<ClientProgress, HandshakeError> {
        loop {
            match self.state {
                State::Greeting => {
                    let Some(greeting) = self.gather.take::<Greeting>(input) else { break };
                    self.greeting(&greeting, out)?;
                }
                State::Header { option } => {
                    let Some(header) = self.gather.take::<OptionReplyHeader>(input) else { break };
                    check_magic("option reply", header.magic, OPTION_REPLY_MAGIC)?;
                    if header.option.get() != option {
                        let found = header.option.get();
                        return Err(WireError::field("option reply", "option", found, "was not asked").into());
                    }
                    self.data.expect(header.bytes.get());
                    if self.data.too_long {
                        return Err(
                            WireError::field("option reply", "length", header.bytes.get(), "is too long").into()
                        );
                    }
                    self.state = State::Data { option, kind: header.kind.get() };
                }
                State::Data { option, kind } => {
                    if !self.data.take(input) {
                        break;
                    }
                    let data = std::mem::take(&mut self.data.kept);
                    self.state = State::Header { option };
                    if self.reply(option, kind, &data, out)? {
                        return Ok(ClientProgress::Transmission(self.export));
                    }
                    self.data.kept = data;
                }
                State::ExportName => {
                    let Some(size) = self.gather.take::<ExportSize>(input) else { break };
                    self.describe(&size);
                    self.state = State::Padding { left: if self.padding { EXPORT_NAME_PADDING_BYTES } else { 0 } };
                }
                State::Padding { left } => {
                    let now = left.min(input.len());
                    *input = &input[now..];
                    self.state = State::Padding { left: left - now };
                    if left > now {
                        break;
                    }
                    return Ok(ClientProgress::Transmission(self.export));
                }
            }
        }
        Ok(ClientProgress::NeedInput)
    }

    fn greeting(&mut self, greeting: &Greeting, out: &mut Vec<u8>) -> Result<(), HandshakeError> {
        check_magic("greeting", greeting.magic, GREETING_MAGIC)?;
        check_magic("greeting's second word", greeting.option_magic, OPTION_MAGIC)?;
        let offered = greeting.flags.get();
        if offered & handshake_flag::FIXED_NEWSTYLE == 0 {
            return Err(HandshakeError::NotFixedNewstyle);
        }
        let flags = offered & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        self.padding = flags & handshake_flag::NO_ZEROES == 0;
        put_u32(out, flags.into());
        if self.wanted.structured {
            self.ask(option::STRUCTURED_REPLY, &[], out);
        } else {
            self.ask_to_go(out);
        }
        Ok(())
    }

    /// Sends an option. Its replies come next.
    fn ask(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let bytes = data.len() as u32;
        let header = OptionHeader { magic: OPTION_MAGIC.into(), option: option.into(), bytes: bytes.into() };
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(data);
        self.state = State::Header { option };
    }

    fn ask_for_context(&mut self, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        put_string(&mut data, self.wanted.export.as_bytes());
        put_u32(&mut data, 1);
        put_string(&mut data, BASE_ALLOCATION.as_bytes());
        self.ask(option::SET_META_CONTEXT, &data, out);
    }

    fn ask_to_go(&mut self, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        put_string(&mut data, self.wanted.export.as_bytes());
        put_u16(&mut data, 1);
        put_u16(&mut data, info::BLOCK_SIZE);
        self.ask(option::GO, &data, out);
    }

    /// Handles one reply. Returns whether the transmission phase has begun.
    fn reply(&mut self, option: u32, kind: u32, data: &[u8], out: &mut Vec<u8>) -> Result<bool, HandshakeError> {
        let refused = kind & option_reply::ERROR != 0;
        match (option, kind) {
            (option::STRUCTURED_REPLY, option_reply::ACK) => {
                self.export.structured = true;
                if self.wanted.allocation { self.ask_for_context(out) } else { self.ask_to_go(out) }
            }
            (option::SET_META_CONTEXT, option_reply::META_CONTEXT) => {
                let mut fields = Fields(data);
                let number = fields.u32("metadata context")?;
                if fields.0 == BASE_ALLOCATION.as_bytes() {
                    self.export.allocation_context = Some(number);
                }
            }
            (option::SET_META_CONTEXT, option_reply::ACK) => self.ask_to_go(out),
            (option::STRUCTURED_REPLY | option::SET_META_CONTEXT, _) if refused => {
                self.export.allocation_context = None;
                self.ask_to_go(out);
            }
            (option::GO, option_reply::INFO) => self.information(data)?,
            (option::GO, option_reply::ACK) if self.described => return Ok(true),
            (option::GO, option_reply::ACK) => return Err(HandshakeError::Malformed("the export's size")),
            (option::GO, option_reply::ERROR_UNSUPPORTED) => {
                let name = std::mem::take(&mut self.wanted.export);
                self.ask(option::EXPORT_NAME, name.as_bytes(), out);
                self.state = State::ExportName;
            }
            (option::GO, _) if refused => {
                return Err(HandshakeError::Refused { kind, text: String::from_utf8_lossy(data).into_owned() });
            }
            _ => return Err(WireError::field("option reply", "type", kind, "does not belong to the option").into()),
        }
        Ok(false)
    }

    fn describe(&mut self, size: &ExportSize) {
        self.described = true;
        self.export.bytes = size.bytes.get();
        self.export.flags = size.flags.get();
    }

    fn information(&mut self, data: &[u8]) -> Result<(), HandshakeError> {
        let mut fields = Fields(data);
        match fields.u16("information type")? {
            info::EXPORT => {
                let high = u64::from(fields.u32("export size")?);
                let low = u64::from(fields.u32("export size")?);
                let flags = fields.u16("transmission flags")?;
                self.describe(&ExportSize { bytes: (high << 32 | low).into(), flags: flags.into() });
                fields.end("transmission flags")?;
            }
            info::BLOCK_SIZE => {
                let minimum = fields.u32("minimum block size")?;
                let preferred = fields.u32("preferred block size")?;
                let maximum = fields.u32("maximum payload")?;
                fields.end("maximum payload")?;
                self.block_sizes(minimum, preferred, maximum)?;
            }
            _ => {} // the protocol says to ignore it
        }
        Ok(())
    }

    fn block_sizes(&mut self, minimum: u32, preferred: u32, maximum: u32) -> Result<(), WireError> {
        let bad = |field, value: u32, why| Err(WireError::field("block sizes", field, value, why));
        if !minimum.is_power_of_two() || minimum > 1 << 16 {
            return bad("minimum", minimum, "is not a power of two up to 65536");
        }
        if !preferred.is_power_of_two() || preferred < minimum.max(512) {
            return bad("preferred", preferred, "is not a power of two from the larger of minimum and 512");
        }
        if maximum < preferred {
            return bad("maximum", maximum, "is less than the preferred block size");
        }
        self.export.minimum_block_bytes = minimum;
        self.export.preferred_block_bytes = preferred;
        self.export.payload_bytes_max = maximum.min(PAYLOAD_BYTES_MAX);
        Ok(())
    }
}
