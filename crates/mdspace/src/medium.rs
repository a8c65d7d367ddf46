//! What a member is kept on: a file or block device, an image in another format, or an export of an NBD server; or a
//! part of one of them.
//!
//! Images in other formats are never written to ([`crate::images`]). An export has no lock.

use crate::images::{ImageFormat, Opened};
use crate::machine::Purpose;
use crate::place;
use io::{AnyMember, Lock, OpenError, OpenFile, OpenOptions};
use std::io::Error;
use std::path::Path;

/// What a member is kept on, open and locked, but not bound to an executor yet.
pub(crate) enum Medium {
    /// A file or block device, or a part of it.
    File(OpenFile),
    /// An export, or an image in another format; or a part of it.
    Opened(Opened),
}

impl Medium {
    /// Opens the member at `path`, or only `data` of it.
    pub(crate) fn open(path: &Path, data: Option<io::Part>, purpose: Purpose) -> Result<Self, OpenError> {
        let (file, part) = place::resolve_within(path, data).map_err(|source| OpenError::System {
            path: path.to_owned(),
            action: "find the partition",
            source,
        })?;
        let failed = |source| OpenError::System { path: path.to_owned(), action: "use it", source };
        if let Some(opened) = opened(&file, part, purpose).map_err(failed)? {
            return Ok(Self::Opened(opened));
        }
        OpenFile::open(&file, &OpenOptions { part, ..options_for(purpose) }).map(Self::File)
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::File(file) => file.limits().bytes,
            Self::Opened(opened) => opened.bytes(),
        }
    }

    /// Binds it to the current thread's executor.
    pub(crate) fn into_member(self) -> AnyMember {
        match self {
            Self::File(file) => file.into_member().into(),
            Self::Opened(opened) => AnyMember::Foreign(opened.into_member()),
        }
    }
}

/// `part` of an export or image; `None` if `file` is neither.
fn opened(file: &Path, part: Option<io::Part>, purpose: Purpose) -> Result<Option<Opened>, Error> {
    if let Some(format) = ImageFormat::of(file).filter(|_| purpose == Purpose::Write) {
        return Err(format.refusal_to_write(file));
    }
    let Some(mut opened) = place::opened(file)? else { return Ok(None) };
    if let Some(reason) = opened.forbids_writes().filter(|_| purpose == Purpose::Write) {
        return Err(Error::other(reason));
    }
    if let Some(io::Part { at, bytes }) = part {
        opened.narrow(at..at.saturating_add(bytes))?;
    }
    Ok(Some(opened))
}

fn options_for(purpose: Purpose) -> OpenOptions {
    let (read_only, lock) = match purpose {
        Purpose::Write => (false, Lock::Exclusive),
        Purpose::Read => (true, Lock::Shared),
        Purpose::Look => (true, Lock::None),
    };
    OpenOptions { read_only, lock, ..OpenOptions::default() }
}
