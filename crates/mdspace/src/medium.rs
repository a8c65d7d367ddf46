//! What a member is kept on: a file or block device, or a part of one.

use crate::machine::Purpose;
use crate::place;
use io::{AnyMember, Lock, OpenError, OpenFile, OpenOptions};
use std::path::Path;

/// What a member is kept on, open and locked, but not bound to an executor yet.
pub(crate) enum Medium {
    /// A file or block device, or a part of it.
    File(OpenFile),
}

impl Medium {
    /// Opens the member at `path`, or only `data` of it.
    pub(crate) fn open(path: &Path, data: Option<io::Part>, purpose: Purpose) -> Result<Self, OpenError> {
        let (file, part) = place::resolve(path).map_err(|source| OpenError::System {
            path: path.to_owned(),
            action: "find the partition",
            source,
        })?;
        let part = place::part_of(part, data);
        OpenFile::open(&file, &OpenOptions { part, ..options_for(purpose) }).map(Self::File)
    }

    /// Binds it to the current thread's executor.
    pub(crate) fn into_member(self) -> AnyMember {
        match self {
            Self::File(file) => file.into_member().into(),
        }
    }
}

fn options_for(purpose: Purpose) -> OpenOptions {
    let (read_only, lock) = match purpose {
        Purpose::Write => (false, Lock::Exclusive),
        Purpose::Read => (true, Lock::Shared),
        Purpose::Look => (true, Lock::None),
    };
    OpenOptions { read_only, lock, ..OpenOptions::default() }
}
