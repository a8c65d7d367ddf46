//! A cursor: an array as a stream with a position.

use crate::array::Array;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Reads and writes an array from a position on, like a [`File`](std::fs::File). [`Array::cursor`] returns one; an
/// array can have any number.
///
/// Nothing is buffered, and each call is a request. For small calls, wrap it in a [`BufReader`](io::BufReader) or
/// [`BufWriter`](io::BufWriter) of a few [`Array::preferred_bytes`]. Reads end at the array's end; writes there fail
/// with [`ErrorKind::StorageFull`]. [`Write::flush`] calls [`Array::flush`].
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    array: &'a Array,
    at: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(array: &'a Array) -> Self {
        Self { array, at: 0 }
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.array.read_at(into, self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}

impl Write for Cursor<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let bytes = self.array.bytes().saturating_sub(self.at).min(from.len() as u64) as usize;
        if bytes == 0 && !from.is_empty() {
            return Err(io::Error::new(ErrorKind::StorageFull, "the array ends here"));
        }
        let bytes = self.array.write_at(&from[..bytes], self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.array.flush()?)
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.array.bytes().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at =
            at.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "a position before the array's beginning"))?;
        Ok(self.at)
    }
}
