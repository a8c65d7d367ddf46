//! A write-intent bitmap in a new file, for an array that is created or served.
//!
//! The file never replaces another one. If the array refuses it, it is removed again.

use crate::machine::{Array, Machine, OPEN_TIMEOUT, Purpose, not_opened};
use crate::made_files::MadeFiles;
use crate::names::name_of;
use crate::place::check_hides_no_part;
use engine::{BitmapPolicy, Refusal};
use std::io::ErrorKind;
use std::path::PathBuf;

/// A bitmap file to be created.
pub(crate) struct BitmapFile {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Bytes for each bit; as mdadm would choose if `None`.
    pub(crate) chunk_bytes: Option<u64>,
}

impl BitmapFile {
    /// Refuses a file that exists, and one that would hide a part of a disk.
    pub(crate) fn check_is_new(&self) -> Result<(), Refusal> {
        check_hides_no_part(&self.path).map_err(|refusal| refusal.advice("name a new file"))?;
        if self.path.symlink_metadata().is_ok() { Err(self.exists()) } else { Ok(()) }
    }

    /// Creates the file, opens it on the thread of `machine`, and adds it to `array`.
    pub(crate) async fn add_to(&self, array: &Array, machine: &Machine) -> Result<(), Refusal> {
        if machine.has_overlay() {
            return Err(self.refused("an overlay does not cover the file of a bitmap".to_owned()));
        }
        let bytes = array.bitmap_file_bytes(self.chunk_bytes)?;
        let path = self.path.clone();
        // Preallocated: a full file system fails here, and not while clients wait for writes of the bitmap.
        let make = move || {
            let mut made = MadeFiles::default();
            check_hides_no_part(&path).map_err(|refusal| std::io::Error::other(refusal.reason))?;
            made.make(&path, |path| io::create_preallocated(path, bytes)).map(|()| made)
        };
        let limit = array.member_timeout().unwrap_or_default().max(OPEN_TIMEOUT);
        let made = machine.blocking.run(&machine.clock, limit, make).await;
        let made = made.map_err(|refusal| refusal.of(self.path.display().to_string()))?;
        let made = made.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => self.exists(),
            _ => self
                .refused(format!("cannot create: {error}"))
                .advice("name a new file in a directory that the server can write to"),
        })?;
        let opened = machine.open_in_background(&self.path, Purpose::Write, array.member_timeout()).await?;
        let file = opened.map_err(|error| not_opened(&error))?;
        array.add_bitmap_file(file, self.chunk_bytes, BitmapPolicy::default()).await?;
        if !machine.is_rehearsal() {
            made.keep();
        }
        Ok(())
    }

    fn exists(&self) -> Refusal {
        self.refused("exists already".to_owned()).advice("name a new file")
    }

    fn refused(&self, reason: String) -> Refusal {
        Refusal::new(reason).of(name_of(&self.path))
    }
}
