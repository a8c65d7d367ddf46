//! `--cache`: which writes are answered from memory.
//!
//! Where nothing says that memory outlives the server, only a user who asks for it gets writes answered from there.

use crate::write_buffer::outlives_the_server;
use engine::WriteBack;

/// When `serve` answers a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum CacheMode {
    /// When the members have it
    Writethrough,
    /// As writethrough, but linear writes from memory where that fills whole stripes and the memory outlives the server
    #[default]
    Streams,
    /// From memory, as a disk with a volatile cache
    Writeback,
}

impl CacheMode {
    /// Which writes are answered from memory, if any.
    pub(crate) fn asked(self) -> Option<WriteBack> {
        match self {
            Self::Writethrough => None,
            Self::Streams => Some(WriteBack::Streams),
            Self::Writeback => Some(WriteBack::All),
        }
    }

    /// As `asked`, on this system: where nothing says that memory outlives a server, the user has to.
    pub(crate) fn answers(self) -> Option<WriteBack> {
        self.asked().filter(|answers| *answers == WriteBack::All || outlives_the_server())
    }
}
