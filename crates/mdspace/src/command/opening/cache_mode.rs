//! `--cache`: which writes are answered from memory.

use engine::WriteBack;

/// When a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum CacheMode {
    /// When the members have it
    #[default]
    Writethrough,
    /// As writethrough, but linear writes from memory where that fills whole stripes
    Streams,
    /// From memory, as a disk with a volatile cache
    Writeback,
}

impl CacheMode {
    /// Which writes are answered from memory, if any.
    pub(crate) fn answers(self) -> Option<WriteBack> {
        match self {
            Self::Writethrough => None,
            Self::Streams => Some(WriteBack::Streams),
            Self::Writeback => Some(WriteBack::All),
        }
    }
}
