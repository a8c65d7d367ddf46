//! Whether a directory, or a file in it, is the user's own.
//!
//! Members and sockets are used only in places that no other user can change. Otherwise another user chooses what
//! the command opens, or answers in the place of the user's servers.

use rustix::process::Uid;
use std::fs::Metadata;
use std::io::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Mode bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

const LINK: &str = "a symbolic link, which its owner can lead elsewhere";

/// Checks that `path` is a directory of the user's own. A symbolic link is refused and not followed.
///
/// # Errors
/// The reason, or why the directory cannot be looked at: `NotFound` if it does not exist.
pub(crate) fn check_directory(path: &Path) -> Result<()> {
    check_directory_of(path, rustix::process::getuid())
}

/// As [`check_directory`], for the user `uid`.
pub(crate) fn check_directory_of(path: &Path, uid: Uid) -> Result<()> {
    let metadata = path.symlink_metadata()?;
    if metadata.is_symlink() {
        Err(Error::other(LINK))
    } else if !metadata.is_dir() {
        Err(Error::other("not a directory"))
    } else {
        check_owner(&metadata, uid)
    }
}

/// Checks that `path` is a regular file of the user's own, with no other name.
///
/// # Errors
/// As [`check_directory`].
pub(crate) fn check_file(path: &Path) -> Result<()> {
    let metadata = path.symlink_metadata()?;
    if metadata.is_symlink() {
        Err(Error::other(LINK))
    } else if !metadata.is_file() {
        Err(Error::other("not a regular file"))
    } else if metadata.nlink() > 1 {
        Err(Error::other("it has another name (hard link), under which it may be used for something else"))
    } else {
        check_owner(&metadata, rustix::process::getuid())
    }
}

fn check_owner(metadata: &Metadata, uid: Uid) -> Result<()> {
    if metadata.uid() != uid.as_raw() {
        return Err(Error::other(format!("it belongs to user {}, not to you", metadata.uid())));
    }
    if metadata.mode() & OTHERS_WRITE != 0 {
        return Err(Error::other(format!("others can write to it (mode {:o})", metadata.mode() & 0o7777)));
    }
    Ok(())
}
