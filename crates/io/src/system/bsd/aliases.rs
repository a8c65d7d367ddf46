//! The same bytes through other paths. Disks made of files (md(4) of FreeBSD, disk images of macOS) are not recognized:
//! docs/systems.md says so. Nothing is locked here.

use crate::file::{Lock, OpenError};
use crate::foundation::Foundation;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Locks the same bytes through their aliases, of which none are known.
pub(crate) fn lock_aliases(_: &Path, _: &OwnedFd, _: Lock) -> Result<Vec<OwnedFd>, OpenError> {
    Ok(Vec::new())
}

/// Where byte `at` of a disk is: on itself.
pub(crate) fn foundation(device: u64, at: u64) -> Foundation {
    Foundation::disk(device, 0, at)
}
