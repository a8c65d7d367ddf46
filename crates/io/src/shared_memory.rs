//! Memory that outlives the process: a shared mapping of a file, which a file system in memory holds.
//!
//! The file belongs to one user alone and is locked as long as it is mapped, as another process could shorten it. Its
//! room is allocated at once: a store into a page that the file system cannot give would end the process. It may have
//! several names. The contents mean nothing here.

use crate::plain::reserve;
use memmap2::{MmapMut, MmapOptions};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Only its owner may read and write the file.
const MODE: u32 = 0o600;

/// A mapped file.
pub struct SharedMemory {
    map: MmapMut,
    /// Holds the lock.
    file: File,
    path: PathBuf,
}

/// How long a process that is just ending has to release a lock, and the interval between attempts.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

impl SharedMemory {
    /// Maps an existing file; `None` when there is none.
    ///
    /// # Errors
    /// It belongs to another user, others may write to it, or it cannot be mapped.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        open(path, options().write(true))?.map(|file| Self::of(file, path)).transpose()
    }

    /// Maps a new file of so many bytes, all zeros, or the file that is there.
    ///
    /// # Errors
    /// As [`SharedMemory::open`], or there is no room.
    pub fn open_or_create(path: &Path, bytes: usize) -> Result<Self> {
        if let Some(there) = Self::open(path)? {
            return Ok(there);
        }
        let file = options().write(true).create_new(true).mode(MODE).open(path)?;
        Self::of_new(file, path, bytes as u64).inspect_err(|_| {
            drop(std::fs::remove_file(path)); // the first error says more
        })
    }

    /// What a file holds, without mapping it; `None` when there is none.
    ///
    /// # Errors
    /// As [`SharedMemory::open`].
    pub fn contents(path: &Path) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = open(path, &mut options())? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn of_new(file: File, path: &Path, bytes: u64) -> Result<Self> {
        file.set_len(bytes)?;
        if !reserve(&file, 0, bytes)? {
            return Err(Error::new(ErrorKind::Unsupported, "its file system allocates no room in advance"));
        }
        Self::of(file, path)
    }

    fn of(file: File, path: &Path) -> Result<Self> {
        lock(&file)?;
        // SAFETY: the file is this user's own and locked, so that no other process changes or shortens it.
        #[expect(unsafe_code, reason = "a mapping of a file")]
        let map = unsafe { MmapOptions::new().map_mut(&file)? };
        Ok(Self { map, file, path: path.to_owned() })
    }

    /// Gives the file one more name, if nothing has that name.
    ///
    /// # Errors
    /// The system's.
    pub fn link(&self, path: &Path) -> Result<()> {
        match std::fs::hard_link(&self.path, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    }

    /// Whether `path` is a name of the file.
    pub fn is_at(&self, path: &Path) -> bool {
        let own = self.file.metadata().map(|status| (status.dev(), status.ino())).ok();
        own.is_some() && own == path.symlink_metadata().map(|status| (status.dev(), status.ino())).ok()
    }
}

/// Locks the file. Another holder can only be a process that is just ending, as the members' locks come first; but
/// exports have none.
fn lock(file: &File) -> Result<()> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOCK_INTERVAL),
            locked => return Ok(locked?),
        }
    }
}

/// Whether a process has the file at `path` mapped. None has a file that is not there.
///
/// # Errors
/// As [`SharedMemory::open`].
pub fn is_mapped(path: &Path) -> Result<bool> {
    let Some(file) = open(path, &mut options())? else { return Ok(false) };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

impl AsMut<[u8]> for SharedMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}

/// For reading; neither a link nor a pipe keeps the caller waiting.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32);
    options
}

/// Opens a file, if it is this user's own; `None` when there is none.
fn open(path: &Path, options: &mut OpenOptions) -> Result<Option<File>> {
    let file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let status = file.metadata()?;
    if status.uid() != rustix::process::geteuid().as_raw() || status.mode() & 0o077 != 0 || !status.is_file() {
        return Err(Error::new(ErrorKind::PermissionDenied, "it is not this user's own file"));
    }
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_one_mapping_stored_the_next_one_finds() -> Result<()> {
        let place = tempfile::tempdir()?;
        let path = place.path().join("memory");
        assert!(SharedMemory::open(&path)?.is_none());
        SharedMemory::open_or_create(&path, 8192)?.as_mut()[4100] = 7;
        let mut again = SharedMemory::open_or_create(&path, 100)?;
        assert_eq!((again.as_mut().len(), again.as_mut()[4100]), (8192, 7));
        let other = place.path().join("other");
        again.link(&other)?;
        again.link(&other)?;
        assert!(again.is_at(&path) && again.is_at(&other) && !again.is_at(&place.path().join("none")));
        assert!(is_mapped(&other)?);
        drop(again);
        assert!(!is_mapped(&other)?);
        std::fs::remove_file(&path)?;
        assert!(SharedMemory::open(&path)?.is_none());
        assert_eq!(SharedMemory::open(&other)?.expect("its other name").as_mut()[4100], 7);
        Ok(())
    }

    #[test]
    fn a_file_that_others_may_read_and_a_link_are_refused() -> Result<()> {
        let place = tempfile::tempdir()?;
        let (path, link) = (place.path().join("memory"), place.path().join("link"));
        drop(SharedMemory::open_or_create(&path, 4096)?);
        std::os::unix::fs::symlink(&path, &link)?;
        assert!(SharedMemory::open(&link).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640))?;
        assert!(SharedMemory::open(&path).is_err() && SharedMemory::contents(&path).is_err());
        Ok(())
    }
}
