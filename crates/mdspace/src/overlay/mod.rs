//! Overlays: a directory whose files take every write of a command, so that the members stay as they are.
//!
//! Each member has a data file and an index there ([`format::overlay`]), which names the member and what it held. A
//! member that has changed since is refused: its overlay would show bytes that no array ever had. The overlay of an image
//! with a map keeps the map's holes, so that the image is never taken for whole under it. One process writes to
//! an overlay at a time. A directory that holds anything else is never used. What a refused command made is removed.

#[cfg(feature = "command")]
mod commit;
mod files;
mod identity;
#[cfg(feature = "command")]
mod record;

#[cfg(feature = "command")]
pub(crate) use commit::Commit;

use crate::machine::Purpose;
use crate::names::name_of;
use crate::place::check_hides_no_part;
use engine::Refusal;
use files::{Entry, Stage, entries, make_entry, open_entry};
use format::overlay::{Header, Holes};
use identity::{identity_of, key_of};
use io::{AnyMember, OpenError, OpenFile, StoredFiles, StoredOverlay};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The file that marks a directory as an overlay. A process that uses the overlay has it locked.
const MARK: &str = "overlay";
const MARK_TEXT: &[u8] = b"An overlay of mdspace: `mdspace overlay show` prints what it holds.\n";

/// What an [`OpenError`] says about an overlay that cannot be used.
pub(crate) const ACTION: &str = "use its overlay";

/// A directory with an overlay, or one that will become an overlay with the first member.
pub(crate) struct OverlayDirectory {
    path: PathBuf,
    /// Whether the directory existed before this process used it.
    existed: bool,
    held: Mutex<Option<Held>>,
    /// Whether this process made the mark, which is removed again if no entry is left.
    made_mark: AtomicBool,
    /// The entries that this process made, which are removed again if they stay empty.
    made: Mutex<Vec<Entry>>,
}

/// The lock on an overlay.
struct Held {
    is_exclusive: bool,
    _mark: File,
}

/// The files over one member, which are open and locked, but not bound to an executor yet.
pub(crate) struct Layer {
    bytes: u64,
    data: OpenFile,
    index: Option<(File, u64)>,
    blocks: format::overlay::Blocks,
    /// What the member below lacks.
    pub(crate) holes: Option<Holes>,
}

impl Layer {
    /// Puts the files over `under`, which has the holes.
    pub(crate) fn over(self, under: AnyMember) -> StoredOverlay {
        let Self { bytes, data, index, blocks, holes: _ } = self;
        let index = index.map(|(file, end)| (file.into(), end));
        StoredOverlay::new(under, StoredFiles { bytes, data: data.into_member(), index, blocks })
    }
}

impl OverlayDirectory {
    /// The overlay at `path`, which need not exist.
    ///
    /// # Errors
    /// When something else is there.
    pub(crate) fn at(path: &Path) -> std::result::Result<Self, Refusal> {
        let refused = |reason: String| Refusal::new(reason).of(name_of(path)).field("--overlay");
        match path.read_dir() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(refused(format!("cannot be used for an overlay: {error}"))),
            Ok(mut entries) => {
                if !is_marked(path) && entries.next().is_some() {
                    return Err(refused("holds other files".to_owned()).advice("name a new directory"));
                }
            }
        }
        Ok(Self {
            path: path.to_owned(),
            existed: path.exists(),
            held: Mutex::default(),
            made_mark: AtomicBool::new(false),
            made: Mutex::default(),
        })
    }

    /// Its path.
    #[cfg(feature = "command")]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The files over `member`, which the caller has locked, and which lacks `holes` by the map that was given. They are
    /// made if `purpose` is to write. `None` if the overlay holds nothing of it.
    ///
    /// # Errors
    /// When the overlay is in use or damaged, was made with another map, or the member has changed.
    pub(crate) fn layer(
        &self,
        member: &Path,
        purpose: Purpose,
        holes: Option<&Holes>,
    ) -> std::result::Result<Option<Layer>, OpenError> {
        let layered = self.try_layer(member, purpose, holes);
        layered.map_err(|source| OpenError::System { path: member.to_owned(), action: ACTION, source })
    }

    fn try_layer(&self, member: &Path, purpose: Purpose, holes: Option<&Holes>) -> Result<Option<Layer>> {
        match purpose {
            Purpose::Write => self.hold(true)?,
            Purpose::Read => self.hold(false)?,
            Purpose::Look if !is_marked(&self.path) => return Ok(None),
            Purpose::Look => {}
        }
        let stage = Stage::of(&self.path);
        match stage {
            Stage::InUse => {}
            Stage::Committing if purpose != Purpose::Write => {}
            Stage::Committing => {
                return Err(Error::other("the commit of the overlay was interrupted, and must be completed first"));
            }
            Stage::Committed => return Err(Error::other("the overlay has been committed to its members")),
        }
        let entry = match self.entry_of(member, stage)? {
            Some(entry) => entry,
            None => {
                identity::refuse_other_name(member, &entries(&self.path)?, purpose)?;
                if purpose != Purpose::Write {
                    return Ok(None);
                }
                let header = Header { name: key_of(member)?, identity: identity_of(member)?, holes: holes.cloned() };
                let entry = make_entry(&self.path, &header)?;
                self.made.lock().unwrap_or_else(PoisonError::into_inner).push(entry.clone());
                entry
            }
        };
        let layer = open_entry(&entry, purpose)?;
        match (holes, &layer.holes) {
            (Some(_), None) => {
                Err(Error::other("the overlay was made without a map of the member, from holes as data"))
            }
            (Some(given), Some(kept)) if given != kept => {
                Err(Error::other("the overlay was made with another map of the member"))
            }
            _ => Ok(Some(layer)),
        }
    }

    /// The entry of `member`, which must be as it was when the entry was made, unless a commit has begun to change it.
    fn entry_of(&self, member: &Path, stage: Stage) -> Result<Option<Entry>> {
        let Some((entry, header)) = identity::find(member, entries(&self.path)?)? else { return Ok(None) };
        if stage == Stage::InUse
            && let Some(change) = header.identity.change(&identity_of(member)?)
        {
            return Err(Error::other(format!("the member has changed since the overlay was made: {change}")));
        }
        Ok(Some(entry))
    }

    /// Locks the overlay, which is made if it does not exist and the lock is exclusive.
    fn hold(&self, is_exclusive: bool) -> Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|held| held.is_exclusive || !is_exclusive) {
            return Ok(());
        }
        let path = self.path.join(MARK);
        if !is_exclusive && !path.exists() {
            return Err(Error::new(ErrorKind::NotFound, format!("{}: there is no overlay", self.path.display())));
        }
        let is_new = !path.exists();
        if is_new {
            check_hides_no_part(&self.path)
                .map_err(|refusal| Error::other(format!("{}: {}", name_of(&self.path), refusal.reason)))?;
            DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
            if let Err(error) = File::create_new(&path) {
                if !self.existed {
                    drop(std::fs::remove_dir(&self.path)); // it may hold the mark of another process
                }
                return Err(error);
            }
        }
        let mut mark = File::options().read(true).write(is_exclusive).open(&path)?;
        *held = None; // a shared lock of this process would exclude its exclusive one
        match if is_exclusive { mark.try_lock() } else { mark.try_lock_shared() } {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::other("another process uses the overlay")),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        self.made_mark.fetch_or(is_new, Ordering::Relaxed);
        if is_exclusive && mark.metadata()?.len() == 0 {
            mark.write_all(MARK_TEXT)?;
            mark.sync_all()?;
        }
        *held = Some(Held { is_exclusive, _mark: mark });
        Ok(())
    }
}

impl Drop for OverlayDirectory {
    /// Removes entries that this process made and that name no block, and the directory if nothing else is in it.
    fn drop(&mut self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        let has_made = self.made_mark.load(Ordering::Relaxed) || !made.is_empty();
        if has_made && made.iter().all(Entry::remove_if_empty) {
            drop(self.remove_if_empty()); // fails where something else is in it
        }
    }
}

impl OverlayDirectory {
    /// Removes the overlay itself if it has no entry, and the directory if this process made it.
    fn remove_if_empty(&self) -> Result<()> {
        if files::all_files(&self.path)?.is_empty() {
            std::fs::remove_file(self.path.join(MARK))?;
            if !self.existed {
                std::fs::remove_dir(&self.path)?;
            }
        }
        Ok(())
    }
}

/// Whether `directory` is an overlay. Its mark is a file with our text; a process that was killed may have left an empty
/// one, with nothing beside it.
fn is_marked(directory: &Path) -> bool {
    let mark = directory.join(MARK);
    if !mark.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return false; // opening anything else could wait or act
    }
    let mut text = Vec::new();
    let read = File::open(mark).and_then(|file| file.take(MARK_TEXT.len() as u64).read_to_end(&mut text));
    match (read, directory.read_dir()) {
        (Ok(0), Ok(files)) => files.count() == 1,
        (Ok(_), _) => text == MARK_TEXT,
        (Err(_), _) => false,
    }
}
