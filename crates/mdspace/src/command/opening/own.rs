//! Whether a directory, or a file in it, is the user's own: where others could have put it, or can change it, what is found there is
//! theirs to choose.

use crate::command::failure::Failure;
use crate::names::name_of;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// Refuses a directory that is not the user's own, or that others can write to; of links none is followed.
pub(crate) fn check_directory(path: &Path) -> Result<(), Failure> {
    let metadata = look(path)?;
    let reason = if metadata.is_symlink() {
        "a symbolic link, which whoever made it can lead elsewhere"
    } else if !metadata.is_dir() {
        "not a directory"
    } else {
        return check_owner(path, &metadata);
    };
    Err(refused(path, reason))
}

/// Refuses a file that is not the user's own regular one under this name alone, or that others can write to.
pub(crate) fn check_file(path: &Path) -> Result<(), Failure> {
    let metadata = look(path)?;
    let reason = if metadata.is_symlink() {
        "a symbolic link, which whoever made it can lead elsewhere"
    } else if !metadata.is_file() {
        "not a regular file"
    } else if metadata.nlink() > 1 {
        "it has another name besides, by which it is used for something else"
    } else {
        return check_owner(path, &metadata);
    };
    Err(refused(path, reason))
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    if metadata.uid() != rustix::process::getuid().as_raw() {
        return Err(refused(path, &format!("it belongs to user {}, not to you", metadata.uid())));
    }
    if metadata.mode() & OTHERS_WRITE != 0 {
        return Err(refused(path, &format!("others can write to it (mode {:o})", metadata.mode() & 0o7777)));
    }
    Ok(())
}

fn look(path: &Path) -> Result<Metadata, Failure> {
    path.symlink_metadata().map_err(|error| refused(path, &error.to_string()))
}

fn refused(path: &Path, reason: &str) -> Failure {
    Failure::refused(format!("{}: {reason}", name_of(path)))
        .advise("work in a directory that nobody else can write to, such as one of your home")
}
