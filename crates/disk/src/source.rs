//! The seam to bytes: a length, and a read at a position. Members, arrays and memory implement it.

use std::future::{Future, ready};

/// Bytes that can be read at any position.
pub trait Source {
    /// The length in bytes.
    fn bytes(&self) -> u64;

    /// The `length` bytes at `at`. The range may be unaligned, and lies within [`Source::bytes`].
    ///
    /// # Errors
    /// The reason, as text, if a byte of them cannot be read.
    fn read(&self, at: u64, length: usize) -> impl Future<Output = Result<Vec<u8>, String>>;
}

impl Source for [u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, length: usize) -> impl Future<Output = Result<Vec<u8>, String>> {
        let part = usize::try_from(at).ok().and_then(|at| self.get(at..at.checked_add(length)?));
        ready(part.map(<[u8]>::to_vec).ok_or_else(|| format!("bytes {at} and on lie past the end")))
    }
}

/// A range of another source, such as a partition.
#[derive(Debug)]
pub struct Section<'a, S: ?Sized> {
    source: &'a S,
    at: u64,
    bytes: u64,
}

impl<'a, S: Source + ?Sized> Section<'a, S> {
    /// The `bytes` bytes from `at` on, or fewer if the source ends before.
    pub fn new(source: &'a S, at: u64, bytes: u64) -> Self {
        Self { source, at, bytes: bytes.min(source.bytes().saturating_sub(at)) }
    }
}

impl<S: Source + ?Sized> Source for Section<'_, S> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        match at.checked_add(length as u64) {
            Some(end) if end <= self.bytes => self.source.read(self.at + at, length).await,
            _ => Err(format!("bytes {at} and on lie past the end")),
        }
    }
}

/// The bytes of `source` from `at` on, up to `length` of them, as far as they exist.
pub(crate) async fn read_up_to<S: Source + ?Sized>(source: &S, at: u64, length: usize) -> Result<Vec<u8>, String> {
    let rest = usize::try_from(source.bytes().saturating_sub(at)).unwrap_or(usize::MAX);
    match length.min(rest) {
        0 => Ok(Vec::new()),
        length => source.read(at, length).await,
    }
}
