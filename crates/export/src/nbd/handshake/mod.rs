//! The handshake without I/O: received bytes go in, bytes to send come out, until both sides agree on an export and its
//! options.
//!
//! Neither side keeps more than [`DATA_BYTES_MAX`] of a message's data. Source: `doc/proto.md`, sections "Fixed
//! newstyle negotiation", "Option types", "Option reply types", "Size constraints".

mod client;
mod server;

pub use client::{ClientHandshake, ClientOptions, ClientProgress, HandshakeError, RemoteExport};
pub use server::{ExportInfo, Negotiated, ServerHandshake, ServerProgress, Tls};

use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

/// Maximum data of an option, or of a reply to one, that is examined, in bytes.
pub const DATA_BYTES_MAX: usize = 16 << 10;

/// The name of a field that is missing from the data of an option or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Missing(&'static str);

/// Reads fields from the front of a message's data.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Missing> {
        let (now, rest) = self.0.split_at_checked(count).ok_or(Missing(field))?;
        self.0 = rest;
        Ok(now)
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, Missing> {
        let bytes = self.bytes(2, field)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, Missing> {
        let bytes = self.bytes(4, field)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A string with its length before it.
    fn string(&mut self, field: &'static str) -> Result<&'a [u8], Missing> {
        let length = self.u32(field)?;
        self.bytes(length as usize, field)
    }

    fn end(self, field: &'static str) -> Result<(), Missing> {
        if self.0.is_empty() { Ok(()) } else { Err(Missing(field)) }
    }
}

/// Collects the data of a message up to [`DATA_BYTES_MAX`], and skips the rest of longer data.
#[derive(Debug, Default)]
struct Data {
    kept: Vec<u8>,
    left: u32,
    too_long: bool,
}

impl Data {
    /// Expects `bytes` of data.
    fn expect(&mut self, bytes: u32) {
        self.kept.clear();
        self.left = bytes;
        self.too_long = bytes as usize > DATA_BYTES_MAX;
    }

    /// Consumes the front of `input`. Returns whether the data is complete.
    fn take(&mut self, input: &mut &[u8]) -> bool {
        let (now, rest) = input.split_at(input.len().min(self.left as usize));
        *input = rest;
        self.left -= now.len() as u32;
        if !self.too_long {
            self.kept.extend_from_slice(now);
        }
        self.left == 0
    }
}

/// Appends a string with its length before it.
fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_u32(out, string.len() as u32);
    out.extend_from_slice(string);
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(U32::new(value).as_bytes());
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(U16::new(value).as_bytes());
}

#[cfg(test)]
mod tests;
