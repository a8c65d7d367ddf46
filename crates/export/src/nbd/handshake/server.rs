//! The server's side of the handshake.
//!
//! A malformed, unknown or overlong option is answered with the protocol's error, and the session continues. Only bytes
//! that are no option end the session. It does no I/O. Source: `doc/proto.md`.

use super::{Data, Fields, Missing, put_string, put_u16, put_u32};
use crate::nbd::wire::{
    BASE_ALLOCATION, BlockSizes, EXPORT_NAME_PADDING_BYTES, ExportSize, GREETING_MAGIC, Gather, Greeting, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, OptionHeader, OptionReplyHeader, PAYLOAD_BYTES_MAX, STRING_BYTES_MAX, WireError, check_magic,
    handshake_flag, info, option, option_reply, transmission_flag,
};
use std::rc::Rc;
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

/// The id of `base:allocation` in replies.
const ALLOCATION_CONTEXT: u32 = 1;

/// An export as the server announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its name, at most [`STRING_BYTES_MAX`] bytes.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// The preferred block size in bytes: a power of two of at least 512.
    pub preferred_block_bytes: u32,
    /// The minimum block size in bytes: a power of two.
    pub minimum_block_bytes: u32,
}

/// The options agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// The index of the export.
    pub export: usize,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether writes to it are refused.
    pub read_only: bool,
    /// Whether replies to reads are structured.
    pub structured: bool,
    /// The id of the context `base:allocation`, when the client chose it.
    pub allocation_context: Option<u32>,
}

/// The state of TLS during the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// The server has no TLS.
    #[default]
    Unknown,
    /// A client may start TLS.
    Offered,
    /// A client must start TLS before anything else.
    Required,
    /// TLS protects the handshake.
    Active,
}

/// The progress of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerProgress {
    /// The input is used up; the server waits for the client.
    NeedInput,
    /// An option was answered; more input may follow.
    Answered,
    /// The transmission phase has begun; the rest of the input belongs to it.
    Transmission(Negotiated),
    /// The client sent `ABORT`, which is answered.
    Aborted,
    /// The client starts TLS; see [`ServerHandshake::secured`].
    StartTls,
    /// The client chose an export with `EXPORT_NAME`, which allows no error reply. The export does not exist, or needs
    /// TLS: the session ends.
    UnknownExport,
}

#[derive(Debug)]
enum State {
    ClientFlags,
    Header,
    Data { option: u32 },
}

/// The state of one client's handshake.
#[derive(Debug)]
pub struct ServerHandshake {
    exports: Rc<[ExportInfo]>,
    tls: Tls,
    state: State,
    gather: Gather,
    data: Data,
    padding: bool,
    structured: bool,
    /// The export for which the client chose `base:allocation`.
    context_of: Option<usize>,
}

impl ServerHandshake {
    /// A handshake that offers `exports`. The first is the default.
    pub fn new(exports: Rc<[ExportInfo]>, tls: Tls) -> Self {
        Self {
            exports,
            tls,
            state: State::ClientFlags,
            gather: Gather::default(),
            data: Data::default(),
            padding: true,
            structured: false,
            context_of: None,
        }
    }

    /// The same handshake after [`ServerProgress::StartTls`], now over TLS. It discards the options agreed on before,
    /// since a third party may have sent them.
    #[must_use]
    pub fn secured(self) -> Self {
        Self { state: State::Header, padding: self.padding, ..Self::new(self.exports, Tls::Active) }
    }

    /// The first message of the server.
    pub fn greeting() -> Greeting {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        Greeting { magic: GREETING_MAGIC.into(), option_magic: OPTION_MAGIC.into(), flags: flags.into() }
    }

    /// Consumes the front of `input` up to the end of one option, and appends the reply to `out`. The caller sends
    /// `out` after each call, so it stays small.
    ///
    /// # Errors
    /// The client does not speak NBD; the session ends.
    pub fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<ServerProgress, WireError> {
        loop {
            match self.state {
                State::ClientFlags => {
                    let Some(flags) = self.gather.take::<U32>(input) else { return Ok(ServerProgress::NeedInput) };
                    self.client_flags(flags.get())?;
                    self.state = State::Header;
                }
                State::Header => {
                    let Some(header) = self.gather.take::<OptionHeader>(input) else {
                        return Ok(ServerProgress::NeedInput);
                    };
                    check_magic("option", header.magic, OPTION_MAGIC)?;
                    self.data.expect(header.bytes.get());
                    self.state = State::Data { option: header.option.get() };
                }
                State::Data { option } => {
                    if !self.data.take(input) {
                        return Ok(ServerProgress::NeedInput);
                    }
                    self.state = State::Header;
                    let data = std::mem::take(&mut self.data.kept);
                    let progress = self.answer(option, &data, out);
                    self.data.kept = data;
                    return Ok(progress);
                }
            }
        }
    }

    fn client_flags(&mut self, flags: u32) -> Result<(), WireError> {
        let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        if flags & !known != 0 {
            return Err(WireError::field("client flags", "flags", flags, "has a bit that was not offered"));
        }
        self.padding = flags & u32::from(handshake_flag::NO_ZEROES) == 0;
        Ok(())
    }

    fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> ServerProgress {
        if option == option::EXPORT_NAME {
            return self.export_name(data, out);
        }
        if option == option::ABORT {
            reply(out, option, option_reply::ACK, &[]);
            return ServerProgress::Aborted;
        }
        let answered = match option {
            _ if self.data.too_long => Err(OptionError::TooBig),
            option::STARTTLS => match self.start_tls(data) {
                Ok(()) => {
                    reply(out, option, option_reply::ACK, &[]);
                    return ServerProgress::StartTls;
                }
                Err(error) => Err(error),
            },
            _ if self.tls == Tls::Required => Err(OptionError::TlsRequired),
            option::LIST => self.list(data, out),
            option::STRUCTURED_REPLY => no_data(data).map(|()| self.structured = true),
            option::INFO => self.info(option, data, out).map(|_| ()),
            option::GO => match self.info(option, data, out) {
                Ok(agreed) => {
                    reply(out, option, option_reply::ACK, &[]);
                    return ServerProgress::Transmission(agreed);
                }
                Err(error) => Err(error),
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data, out),
            _ => Err(OptionError::Unsupported),
        };
        match answered {
            Ok(()) => reply(out, option, option_reply::ACK, &[]),
            Err(error) => reply(out, option, error.reply_type(), error.to_string().as_bytes()),
        }
        ServerProgress::Answered
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        if name.is_empty() {
            return (!self.exports.is_empty()).then_some(0);
        }
        self.exports.iter().position(|export| export.name.as_bytes() == name)
    }

    fn start_tls(&self, data: &[u8]) -> Result<(), OptionError> {
        match self.tls {
            Tls::Unknown => Err(OptionError::Unsupported),
            Tls::Active => Err(OptionError::TlsTwice),
            Tls::Offered | Tls::Required => no_data(data),
        }
    }

    fn export_name(&self, name: &[u8], out: &mut Vec<u8>) -> ServerProgress {
        let is_given = !self.data.too_long && self.tls != Tls::Required;
        let Some(export) = self.find(name).filter(|_| is_given) else {
            return ServerProgress::UnknownExport;
        };
        out.extend_from_slice(self.export_size(export).as_bytes());
        if self.padding {
            out.extend_from_slice(&[0; EXPORT_NAME_PADDING_BYTES]);
        }
        ServerProgress::Transmission(self.agreed(export))
    }

    fn agreed(&self, export: usize) -> Negotiated {
        Negotiated {
            export,
            bytes: self.exports[export].bytes,
            read_only: self.exports[export].read_only,
            structured: self.structured,
            allocation_context: self.context_of.filter(|of| *of == export).map(|_| ALLOCATION_CONTEXT),
        }
    }

    fn export_size(&self, export: usize) -> ExportSize {
        use transmission_flag::{
            CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_DF, SEND_FAST_ZERO, SEND_FLUSH, SEND_FUA, SEND_TRIM,
            SEND_WRITE_ZEROES,
        };
        let export = &self.exports[export];
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        flags |= if export.read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO };
        if self.structured {
            flags |= SEND_DF;
        }
        ExportSize { bytes: export.bytes.into(), flags: flags.into() }
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), OptionError> {
        no_data(data)?;
        for export in &*self.exports {
            let mut body = Vec::new();
            put_string(&mut body, export.name.as_bytes());
            reply(out, option::LIST, option_reply::SERVER, &body);
        }
        Ok(())
    }

    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Negotiated, OptionError> {
        let mut fields = Fields(data);
        let name = string(&mut fields, "export name")?;
        let wanted = (0..fields.u16("number of information requests")?)
            .map(|_| fields.u16("information request"))
            .collect::<Result<Vec<_>, _>>()?;
        fields.end("end of the information requests")?;
        let export = self.find(name).ok_or(OptionError::UnknownExport)?;

        let mut body = Vec::new();
        let mut say = |kind, fact: &[u8]| {
            body.clear();
            put_u16(&mut body, kind);
            body.extend_from_slice(fact);
            reply(out, option, option_reply::INFO, &body);
        };
        say(info::EXPORT, self.export_size(export).as_bytes());
        if wanted.contains(&info::NAME) {
            say(info::NAME, self.exports[export].name.as_bytes());
        }
        if wanted.contains(&info::BLOCK_SIZE) {
            let sizes = BlockSizes {
                minimum: self.exports[export].minimum_block_bytes.into(),
                preferred: self.exports[export].preferred_block_bytes.into(),
                maximum: PAYLOAD_BYTES_MAX.into(),
            };
            say(info::BLOCK_SIZE, sizes.as_bytes());
        }
        Ok(self.agreed(export))
    }

    fn meta_context(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), OptionError> {
        let choose = option == option::SET_META_CONTEXT;
        if choose {
            self.context_of = None; // reset also on failure
        }
        if !self.structured {
            return Err(OptionError::NeedsStructuredReplies);
        }
        let mut fields = Fields(data);
        let name = string(&mut fields, "export name")?;
        let count = fields.u32("number of queries")?;
        let mut matches = !choose && count == 0;
        for _ in 0..count {
            let query = string(&mut fields, "query")?;
            matches |= query == BASE_ALLOCATION.as_bytes() || (!choose && query == b"base:");
        }
        fields.end("end of the queries")?;
        let export = self.find(name).ok_or(OptionError::UnknownExport)?;
        if matches {
            let mut body = Vec::new();
            put_u32(&mut body, if choose { ALLOCATION_CONTEXT } else { 0 });
            body.extend_from_slice(BASE_ALLOCATION.as_bytes());
            reply(out, option, option_reply::META_CONTEXT, &body);
            self.context_of = choose.then_some(export).or(self.context_of);
        }
        Ok(())
    }
}

/// Why the server refuses an option.
#[derive(Debug, thiserror::Error)]
enum OptionError {
    #[error("the option is unknown to this server")]
    Unsupported,
    #[error("there is no such export here")]
    UnknownExport,
    #[error("the option's data is too long")]
    TooBig,
    #[error("the option takes no data")]
    UnexpectedData,
    #[error("this server requires TLS")]
    TlsRequired,
    #[error("TLS is in use already")]
    TlsTwice,
    #[error("metadata contexts need structured replies")]
    NeedsStructuredReplies,
    #[error("the option's data does not fit its field: {0}")]
    Malformed(&'static str),
}

impl OptionError {
    fn reply_type(&self) -> u32 {
        match self {
            Self::Unsupported => option_reply::ERROR_UNSUPPORTED,
            Self::UnknownExport => option_reply::ERROR_UNKNOWN,
            Self::TooBig => option_reply::ERROR_TOO_BIG,
            Self::TlsRequired => option_reply::ERROR_TLS_REQUIRED,
            Self::TlsTwice | Self::UnexpectedData | Self::NeedsStructuredReplies | Self::Malformed(_) => {
                option_reply::ERROR_INVALID
            }
        }
    }
}

impl From<Missing> for OptionError {
    fn from(missing: Missing) -> Self {
        Self::Malformed(missing.0)
    }
}

fn no_data(data: &[u8]) -> Result<(), OptionError> {
    if data.is_empty() { Ok(()) } else { Err(OptionError::UnexpectedData) }
}

/// A string no longer than the protocol allows.
fn string<'a>(fields: &mut Fields<'a>, field: &'static str) -> Result<&'a [u8], OptionError> {
    let string = fields.string(field)?;
    if string.len() > STRING_BYTES_MAX { Err(OptionError::Malformed(field)) } else { Ok(string) }
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    let header = OptionReplyHeader {
        magic: OPTION_REPLY_MAGIC.into(),
        option: option.into(),
        kind: kind.into(),
        bytes: (data.len() as u32).into(),
    };
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(data);
}
