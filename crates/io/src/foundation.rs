//! Where the bytes of a file or disk are, whatever path and device lead to them.
//!
//! A path, a loop device over the file and a partition of that loop device have one foundation, each at its own byte.
//! Nothing is opened here, and nothing changes.

use crate::system::{aliases, disk, wide};
use rustix::fs::{FileType, Stat};
use std::fmt;
use std::io;
use std::path::Path;

/// A file or disk that stands on no other one, and a byte of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Foundation {
    kind: Kind,
    /// In bytes.
    at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// The number of the file system's device, and the inode.
    File { device: u64, inode: u64 },
    /// Its number. The system gives that to another disk later, with another sequence; 0 if it counts none.
    Disk { device: u64, sequence: u64 },
}

impl Foundation {
    /// Where byte `at` of the file or disk at `path` is.
    ///
    /// # Errors
    /// There is none, or it may not be looked at.
    pub fn of(path: &Path, at: u64) -> io::Result<Self> {
        Ok(Self::of_status(&rustix::fs::stat(path)?, at))
    }

    pub(crate) fn of_status(status: &Stat, at: u64) -> Self {
        match disk::may_be_disk(FileType::from_raw_mode(status.st_mode)) {
            true => aliases::foundation(wide(status.st_rdev), at),
            false => Self { kind: Kind::File { device: wide(status.st_dev), inode: wide(status.st_ino) }, at },
        }
    }

    /// A disk itself.
    pub(crate) fn disk(device: u64, sequence: u64, at: u64) -> Self {
        Self { kind: Kind::Disk { device, sequence }, at }
    }
}

/// Letters, digits and hyphens alone.
impl fmt::Display for Foundation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::File { device, inode } => write!(formatter, "file-{device:x}-{inode:x}-{:x}", self.at),
            Kind::Disk { device, sequence } => write!(formatter, "disk-{device:x}-{sequence:x}-{:x}", self.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_one_foundation_and_a_copy_has_another() -> io::Result<()> {
        let place = tempfile::tempdir()?;
        let [file, link, hard, copy] = ["file", "link", "hard", "copy"].map(|name| place.path().join(name));
        std::fs::write(&file, "bytes")?;
        std::os::unix::fs::symlink(&file, &link)?;
        std::fs::hard_link(&file, &hard)?;
        std::fs::copy(&file, &copy)?;
        let own = Foundation::of(&file, 0)?;
        assert_eq!([Foundation::of(&link, 0)?, Foundation::of(&hard, 0)?], [own; 2]);
        assert_ne!(Foundation::of(&copy, 0)?, own);
        assert_ne!(Foundation::of(&file, 512)?, own);
        assert!(own.to_string().chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-'), "{own}");
        Ok(())
    }
}
