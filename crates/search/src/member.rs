//! A member, whatever reads it. So the search is compiled once, in its own crate, and optimized as that is.

use disk::Source;
use std::pin::Pin;

/// A read under way.
type Reading<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + 'a>>;

/// A member that is read at any position.
pub(crate) struct Member<'a> {
    bytes: u64,
    read: Box<dyn Fn(u64, usize) -> Reading<'a> + 'a>,
}

impl<'a> Member<'a> {
    /// What `source` reads.
    pub(crate) fn of<S: Source>(source: &'a S) -> Self {
        Self { bytes: source.bytes(), read: Box::new(move |at, length| Box::pin(source.read(at, length))) }
    }
}

impl Source for Member<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, at: u64, length: usize) -> impl Future<Output = Result<Vec<u8>, String>> {
        (self.read)(at, length)
    }
}
