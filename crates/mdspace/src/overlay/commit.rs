//! The end of an overlay: its changes are written to the members, or discarded.
//!
//! A commit may be interrupted at any point and is then repeated: the overlay stays until all is on the members and
//! flushed. In between, the members have some of the changes, and must not be taken for an array. So their superblocks
//! are first copied into the overlay and removed from the members, then the data is written, and the superblocks last.

use super::record::{Record, reserve};
use super::{ACTION, Layer, MARK, OverlayDirectory, identity, is_marked};
use crate::images::ImageFormat;
use crate::machine::{Machine, Purpose, not_opened};
use crate::medium::Medium;
use crate::names::name_of;
use crate::overlay::files::{Stage, all_files, entries, open_entry};
use crate::place;
use engine::wipe::{superblocks, wipe};
use engine::{Member, MemberError, Pool, Refusal};
use format::overlay::{BLOCK_BYTES, Blocks};
use format::units::MemberByte;
use io::{OpenError, StoredOverlay};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Bytes of one transfer.
const PIECE_BYTES: u64 = 1 << 20;

impl OverlayDirectory {
    /// The members of the overlay, as they are opened.
    pub(crate) fn members(&self) -> Result<Vec<PathBuf>, Refusal> {
        self.must_exist()?;
        let entries = entries(&self.path).map_err(|error| self.refused(error.to_string()))?;
        Ok(entries.into_iter().map(|(_, header)| std::ffi::OsString::from_vec(header.name).into()).collect())
    }

    /// Those members whose names can be read, for a message.
    pub(crate) fn readable_members(&self) -> Result<Vec<PathBuf>, Refusal> {
        self.must_exist()?;
        let files = all_files(&self.path).map_err(|error| self.refused(error.to_string()))?;
        let headers = files.iter().filter_map(|entry| entry.decode().ok());
        Ok(headers.map(|index| std::ffi::OsString::from_vec(index.header.name).into()).collect())
    }

    fn must_exist(&self) -> Result<(), Refusal> {
        if is_marked(&self.path) { Ok(()) } else { Err(self.refused("there is no overlay")) }
    }

    /// Whether its changes are all on the members, so that only the overlay is left to be removed.
    pub(crate) fn is_committed(&self) -> bool {
        Stage::of(&self.path) == Stage::Committed
    }

    /// Whether a commit was interrupted.
    pub(crate) fn is_half_committed(&self) -> bool {
        Stage::of(&self.path) == Stage::Committing
    }

    /// Removes the overlay with all that it holds, damaged or not. Returns why its directory stays, if it does.
    pub(crate) fn discard(&self) -> Result<Option<String>, Refusal> {
        self.hold(true).map_err(|error| self.refused(error.to_string()))?;
        if self.is_half_committed() {
            return Err(self
                .refused("its commit was interrupted, so that its members have some of the changes")
                .advice("`mdspace overlay commit` completes it"));
        }
        self.remove()
    }

    /// Removes all of its files, and the directory if nothing else is in it; else the result says why it stays.
    fn remove(&self) -> Result<Option<String>, Refusal> {
        let removed = || {
            for entry in all_files(&self.path)? {
                entry.remove()?;
            }
            Stage::forget(&self.path)?;
            std::fs::remove_file(self.path.join(MARK))
        };
        removed().map_err(|error| self.refused(error.to_string()).after("some of its files may be removed"))?;
        let stays = std::fs::remove_dir(&self.path).err();
        Ok(stays.map(|error| format!("{}: the directory itself stays: {error}", name_of(&self.path))))
    }

    fn refused(&self, reason: impl Into<String>) -> Refusal {
        Refusal::new(reason).of(name_of(&self.path))
    }

    /// Refuses a commit to what is never written to.
    pub(crate) fn check_committable(&self) -> Result<(), Refusal> {
        self.must_exist()?;
        let entries = entries(&self.path).map_err(|error| self.refused(error.to_string()))?;
        for (_, header) in entries {
            let path = PathBuf::from(std::ffi::OsString::from_vec(header.name));
            refuse_image(&path, header.holes.is_some())?;
        }
        Ok(())
    }

    /// Whether nothing can be committed to `member`.
    pub(crate) fn is_only_read(&self, member: &Path) -> bool {
        let found = entries(&self.path).and_then(|entries| identity::find(member, entries));
        let header = found.ok().flatten().map(|(_, header)| header);
        header.is_some_and(|header| refuse_image(member, header.holes.is_some()).is_err())
    }

    /// The files over `member`, to be committed.
    fn layer_to_commit(&self, member: &Path) -> Result<Layer, OpenError> {
        let layer = || {
            self.hold(true)?;
            let entry = self.entry_of(member, Stage::of(&self.path))?;
            open_entry(&entry.ok_or(std::io::ErrorKind::NotFound)?, Purpose::Write)
        };
        layer().map_err(|source| OpenError::System { path: member.to_owned(), action: ACTION, source })
    }
}

/// The commit is on record: whatever becomes of this process, a later one continues with the same members.
struct Begun;

/// A commit. All members are open for writing, and locked.
pub(crate) struct Commit<'a> {
    directory: &'a OverlayDirectory,
    members: Vec<(String, StoredOverlay)>,
    /// The members, as they are opened.
    paths: Vec<PathBuf>,
    pool: Pool,
}

impl<'a> Commit<'a> {
    /// Opens all members, and checks that they are as they were. Nothing is written.
    pub(crate) fn open(machine: &Machine, directory: &'a OverlayDirectory) -> Result<Self, Refusal> {
        let mut members = Vec::new();
        directory.check_committable()?;
        let paths = directory.members()?;
        for path in &paths {
            let under = Medium::open(path, None, Purpose::Write).map_err(|error| not_opened(&error))?;
            let layer = directory.layer_to_commit(path).map_err(|error| not_opened(&error))?;
            members.push((name_of(path), layer.over(under.into_member())));
        }
        Ok(Self { directory, members, paths, pool: machine.pool.clone() })
    }

    /// The bytes that will be written.
    pub(crate) fn bytes(&self) -> u64 {
        self.members.iter().map(|(_, overlay)| overlay.blocks().count() * BLOCK_BYTES).sum()
    }

    /// Writes the changes to the members, and removes the overlay. `progress` gets the bytes of each transfer. Returns why
    /// the overlay's directory stays, if it does.
    ///
    /// # Errors
    /// When a member or the overlay fails; a later commit continues.
    pub(crate) async fn run(&self, progress: &dyn Fn(u64)) -> Result<Option<String>, Refusal> {
        if Stage::of(&self.directory.path) != Stage::Committed {
            let written = self.write(progress).await;
            written.map_err(|refusal| refusal.or_advice("repeat the command when it is well: it continues"))?;
        }
        self.directory.remove()
    }

    async fn write(&self, progress: &dyn Fn(u64)) -> Result<(), Refusal> {
        let file_failed = |error: std::io::Error| self.directory.refused(error.to_string());
        match Stage::of(&self.directory.path) {
            Stage::InUse => {
                let begun = self.begin().await?;
                self.reserve(&begun).map_err(|refusal| self.take_back(refusal, begun))?;
            }
            Stage::Committing | Stage::Committed => {
                let begun = self.check_begun().await?;
                self.reserve(&begun)
                    .map_err(|refusal| refusal.advice("make room on its file system, and repeat the command"))?;
            }
        }
        let begun = |refusal: Refusal| refusal.after("the members have some of the changes");
        for (name, overlay) in &self.members {
            wipe(name, overlay.under(), &self.pool).await.map_err(begun)?;
        }
        let failed = |name: &str, error: MemberError| begun(Refusal::member_error(name, &error));
        self.flush().await.map_err(|(name, error)| failed(name, error))?;
        let mut last = Vec::new();
        for (name, overlay) in &self.members {
            let superblocks = self.superblock_blocks(name, overlay).await;
            let mut data = overlay.blocks();
            data.remove(&superblocks);
            self.copy(overlay, &data, progress).await.map_err(|error| failed(name, error))?;
            last.push((name, overlay, superblocks));
        }
        self.flush().await.map_err(|(name, error)| failed(name, error))?;
        for (name, overlay, superblocks) in last {
            self.copy(overlay, &superblocks, progress).await.map_err(|error| failed(name, error))?;
        }
        self.flush().await.map_err(|(name, error)| failed(name, error))?;
        Stage::end_commit(&self.directory.path).map_err(file_failed).map_err(begun)
    }

    /// Makes sure that the commit can be completed, also by another process. The members stay as they are, and so do the
    /// times of their files.
    async fn begin(&self) -> Result<Begun, Refusal> {
        for (name, overlay) in &self.members {
            self.keep_superblocks(name, overlay).await.map_err(|error| Refusal::member_error(name, &error))?;
        }
        let mut records = Vec::new();
        for (path, (_, overlay)) in self.paths.iter().zip(&self.members) {
            records.push(Record::of(path, overlay, &self.pool).await?);
        }
        let records = serde_json::to_vec(&records).expect("plain values");
        let begun = Stage::begin_commit(&self.directory.path, &records);
        begun.map(|()| Begun).map_err(|error| self.directory.refused(error.to_string()))
    }

    /// Takes the room for the changes. This sets the time of a file's last write for a moment: a process that is killed
    /// then would leave a member that its overlay takes for another, if the commit had not begun.
    fn reserve(&self, _: &Begun) -> Result<(), Refusal> {
        for (path, (name, overlay)) in self.paths.iter().zip(&self.members) {
            reserve(path, overlay)
                .map_err(|error| Refusal::new(format!("there is no room for the changes: {error}")).of(name))?;
        }
        Ok(())
    }

    /// Ends the commit that has just begun, with no change of any member.
    fn take_back(&self, refusal: Refusal, _: Begun) -> Refusal {
        match Stage::cancel_commit(&self.directory.path) {
            Ok(()) => refusal.advice("make room on its file system; no member has changed"),
            Err(error) => {
                self.directory.refused(format!("no member has changed, and the commit is not taken back: {error}"))
            }
        }
    }

    /// Refuses to continue a commit on other members than those with which it began.
    async fn check_begun(&self) -> Result<Begun, Refusal> {
        let damaged = |reason: String| {
            let refusal = self.directory.refused(format!("committing: {reason}")).advice(
                "whether the members are those of the commit cannot be told: they may have some of the changes; restore the \
                 directory's files, or remove the directory, and the changes are lost",
            );
            Err(refusal)
        };
        let read = Stage::record(&self.directory.path).map_err(|error| error.to_string());
        let records: Vec<Record> = match read.and_then(|read| serde_json::from_slice(&read).map_err(|e| e.to_string()))
        {
            Ok(records) => records,
            Err(reason) => return damaged(reason),
        };
        if records.len() != self.members.len() {
            return damaged(format!("it has {} members, and the overlay {}", records.len(), self.members.len()));
        }
        for ((record, path), (_, overlay)) in records.iter().zip(&self.paths).zip(&self.members) {
            record.check(path, overlay, &self.pool).await?;
        }
        Ok(Begun)
    }

    /// Copies the superblocks of the member below into the overlay, where it has none of its own at their places.
    async fn keep_superblocks(&self, name: &str, overlay: &StoredOverlay) -> Result<(), MemberError> {
        for blocks in superblock_blocks(name, overlay.under(), &self.pool).await.runs() {
            let end = (blocks.end * BLOCK_BYTES).min(overlay.limits().bytes);
            let at = MemberByte(blocks.start * BLOCK_BYTES);
            let (read, bytes) = overlay.read(at, self.pool.take((end - at.0) as usize)).await;
            read?;
            overlay.write(at, bytes.freeze()).await?;
        }
        overlay.flush().await
    }

    /// The blocks that the overlay holds and in which its superblocks are.
    async fn superblock_blocks(&self, name: &str, overlay: &StoredOverlay) -> Blocks {
        let found = superblock_blocks(name, overlay, &self.pool).await;
        let mut others = overlay.blocks();
        others.remove(&found);
        let mut held = overlay.blocks();
        held.remove(&others);
        held
    }

    /// Copies `blocks` of the overlay to the member below.
    async fn copy(&self, overlay: &StoredOverlay, blocks: &Blocks, progress: &dyn Fn(u64)) -> Result<(), MemberError> {
        for run in blocks.runs() {
            let end = (run.end * BLOCK_BYTES).min(overlay.limits().bytes);
            let mut at = run.start * BLOCK_BYTES;
            while at < end {
                let bytes = PIECE_BYTES.min(end - at);
                let (read, piece) = overlay.read(MemberByte(at), self.pool.take(bytes as usize)).await;
                read?;
                overlay.under().write(MemberByte(at), piece.freeze()).await?;
                progress(bytes);
                at += bytes;
            }
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), (&str, MemberError)> {
        for (name, overlay) in &self.members {
            overlay.under().flush().await.map_err(|error| (&**name, error))?;
        }
        Ok(())
    }
}

/// Refuses a member that is an image in another format, which is never written to, or the image of a failing disk. Its
/// map would call unread what was written, and ddrescue would go on to write old data there.
fn refuse_image(path: &Path, has_holes: bool) -> Result<(), Refusal> {
    let reason = match ImageFormat::of(&place::file_of(path)) {
        _ if has_holes => "the overlay was made with its map, which would call unread what a commit writes".to_owned(),
        Some(format) if !place::is_uri(path) => {
            format!("it is a {} image, to which no overlay is committed: images are only read", format.name())
        }
        _ => return Ok(()),
    };
    let advice = "use the array with --overlay as it is, or copy it (`mdspace read --overlay DIR --output FILE`)";
    Err(Refusal::new(reason).of(name_of(path)).advice(advice))
}

/// The blocks of all superblocks, of which any has up to 4096 bytes and begins at a multiple of that.
pub(super) async fn superblock_blocks<M: Member>(name: &str, member: &M, pool: &Pool) -> Blocks {
    let mut found = Blocks::default();
    let blocks_of_member = member.limits().bytes.div_ceil(BLOCK_BYTES);
    for place in superblocks(name, member, pool).await {
        let first = place.at.0 / SUPERBLOCK_BYTES_MAX * (SUPERBLOCK_BYTES_MAX / BLOCK_BYTES);
        found.insert(first..(first + SUPERBLOCK_BYTES_MAX / BLOCK_BYTES).min(blocks_of_member));
    }
    found
}

/// The most bytes of a superblock. Each begins at a multiple of it.
const SUPERBLOCK_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests;
