//! What `read` writes to: standard output, a file or a device.
//!
//! It is never a member of an array, never in use, and holds no data unless the user consents. Zeros become holes of a
//! file. A refused file or device is not changed.

use crate::command::text::failure::Failure;
use crate::machine::{Array, Machine, Purpose};
use crate::medium::Medium;
use crate::names::{name_of, path_of};
use crate::place::{check_hides_no_part, file_of};
use crate::whole_disks::look;
use engine::Candidate;
use engine::inspect::{find_superblock, what_it_holds};
use engine::status::uuid_text;
use format::superblock::Superblock;
use io::AnyMember;
use rustix::fs::{OFlags, SeekFrom, seek};
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The unit in which zeros become holes.
const BLOCK: usize = 4096;

/// Advice for an output that holds something.
const OVERWRITE: &str = "choose another --output, or overwrite it with --overwrite";

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// How bytes get into the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// In order alone: a pipe, or a file that another program opened.
    Stream,
    /// At any position.
    Device,
    /// At any position, and zeros are holes.
    File,
}

/// A file, device or pipe that takes bytes of an array.
pub(super) struct Sink {
    file: File,
    kind: Kind,
    /// Its name in messages.
    pub(super) name: String,
    /// Where the next byte of [`Sink::append`] goes.
    at: u64,
    /// A file of our own that may hold data where zeros are put.
    holds_data: bool,
}

impl Sink {
    /// Standard output.
    pub(super) fn stdout() -> Result<Self, Failure> {
        let stdout = std::io::stdout().as_fd().try_clone_to_owned();
        let file = stdout.map_err(|error| Failure::refused(format!("standard output: {error}")))?.into();
        Ok(Self { file, kind: Kind::Stream, name: "standard output".to_owned(), at: 0, holds_data: true })
    }

    /// The file or device `path`, empty. A file that does not exist is created.
    pub(super) async fn create(
        machine: &Machine,
        path: &Path,
        arrays: &[Array],
        overwrite: bool,
    ) -> Result<Self, Failure> {
        refuse_member(path, arrays, "--output")?;
        let cannot = |error: std::io::Error| Failure::refused(format!("{}: cannot create: {error}", name_of(path)));
        check_hides_no_part(path).map_err(|refusal| refusal.advice("choose another --output"))?;
        if path.metadata().is_err() {
            return Ok(Self::of(File::create(path).map_err(cannot)?, Kind::File, path, false));
        }
        let (file, kind) = open(path, false)?;
        if kind != Kind::Stream && (kind == Kind::Device || file.metadata().map_err(cannot)?.len() > 0) {
            check_unused(machine, path, overwrite).await?;
        }
        if kind == Kind::File {
            file.set_len(0).map_err(cannot)?;
        }
        Ok(Self::of(file, kind, path, false))
    }

    /// The file or device `path` of an earlier run, with what it holds. The caller checks that it is still the same.
    pub(super) fn reopen(path: &Path, arrays: &[Array]) -> Result<Self, Failure> {
        refuse_member(path, arrays, "--output")?;
        let (file, kind) = open(path, true)?;
        Ok(Self::of(file, kind, path, true))
    }

    fn of(file: File, kind: Kind, path: &Path, holds_data: bool) -> Self {
        Self { file, kind, name: name_of(path), at: 0, holds_data }
    }

    /// Whether bytes can be put at any position.
    pub(super) fn is_seekable(&self) -> bool {
        self.kind != Kind::Stream
    }

    /// Whether bytes that are never put read as zeros.
    pub(super) fn is_sparse(&self) -> bool {
        self.kind == Kind::File
    }

    /// Puts bytes behind those of the last call.
    pub(super) fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self.kind {
            Kind::Stream => self.file.write_all(bytes)?,
            Kind::Device | Kind::File => self.put(self.at, bytes)?,
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Puts bytes at a position.
    pub(super) fn put(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        if self.kind != Kind::File {
            return self.file.write_all_at(bytes, at);
        }
        for (range, is_zero) in runs(at, bytes) {
            let place = at + range.start as u64;
            match is_zero {
                true => self.put_zeros(place, &bytes[range])?,
                false => self.file.write_all_at(&bytes[range], place)?,
            }
        }
        Ok(())
    }

    fn put_zeros(&self, at: u64, zeros: &[u8]) -> std::io::Result<()> {
        if !self.holds_data {
            return Ok(());
        }
        io::punch_hole(&self.file, at, zeros.len() as u64).or_else(|_| self.file.write_all_at(zeros, at))
    }

    /// Ends a file where the last byte of [`Sink::append`] is, which may be a hole.
    pub(super) fn finish(&self) -> std::io::Result<()> {
        if self.kind == Kind::File { self.file.set_len(self.at) } else { Ok(()) }
    }

    /// Makes a file `bytes` long; checks that a device is not shorter.
    pub(super) fn make_room(&self, bytes: u64) -> std::io::Result<()> {
        if self.kind == Kind::File {
            return self.file.set_len(bytes);
        }
        let there = self.bytes()?;
        match there < bytes {
            true => Err(std::io::Error::other(format!("it has {there} bytes, and {bytes} are to be written"))),
            false => Ok(()),
        }
    }

    /// The length of the file or device.
    pub(super) fn bytes(&self) -> std::io::Result<u64> {
        io::length(&self.file)
    }

    /// The bytes at a place of a sink that was reopened.
    pub(super) fn get(&self, place: &Range<u64>) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; (place.end - place.start) as usize];
        self.file.read_exact_at(&mut bytes, place.start)?;
        Ok(bytes)
    }

    /// The first byte at or behind `at` that is in no hole of the file; `at` where that is not known.
    pub(super) fn data_at(&self, at: u64) -> u64 {
        match self.kind {
            Kind::File => seek(&self.file, SeekFrom::Data(at)).unwrap_or(at),
            Kind::Device | Kind::Stream => at,
        }
    }

    /// The first byte at or behind `at` that is in no hole of the file; `None` where only a hole follows.
    pub(super) fn next_data(&self, at: u64) -> std::io::Result<Option<u64>> {
        match seek(&self.file, SeekFrom::Data(at)) {
            Ok(data) => Ok(Some(data)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What was put is on stable storage afterwards.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        io::sync_data(&self.file)
    }
}

/// Cuts bytes for position `at` of a file into runs of whole blocks of zeros, and of everything else.
fn runs(at: u64, bytes: &[u8]) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let rest = BLOCK - (at as usize + start) % BLOCK;
        let end = bytes.len().min(start + rest);
        let is_zero = end - start == BLOCK && bytes[start..end] == ZEROS;
        match runs.last_mut() {
            Some((run, was_zero)) if *was_zero == is_zero => run.end = end,
            _ => runs.push((start..end, is_zero)),
        }
        start = end;
    }
    runs
}

/// Opens an existing file or device for writing, and for reading if `is_read`. A file is locked against other mdspace processes, a device against all
/// users of block devices.
fn open(path: &Path, is_read: bool) -> Result<(File, Kind), Failure> {
    let refused = |reason: String| Failure::refused(format!("{}: {reason}", name_of(path)));
    let cannot = |error: std::io::Error| refused(format!("cannot open: {error}"));
    let metadata = path.metadata().map_err(cannot)?;
    let kind = match metadata.file_type() {
        kind if kind.is_file() => Kind::File,
        _ if io::is_disk(path) => Kind::Device,
        _ => Kind::Stream,
    };
    // A pipe that is open for reading too would never end.
    let is_read = is_read && kind != Kind::Stream;
    let exclusively = if kind == Kind::Device { OFlags::EXCL.bits() as i32 } else { 0 };
    let file =
        File::options().read(is_read).write(true).custom_flags(exclusively).open(path).map_err(|error| match error
            .kind()
        {
            ErrorKind::ResourceBusy => refused("in use: mounted, or held by a device or program above it".to_owned())
                .advise("choose another --output"),
            _ => cannot(error),
        })?;
    if kind == Kind::File && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(refused("in use by another program".to_owned()).advise("choose another --output"));
    }
    Ok((file, kind))
}

/// Refuses `path` if it is a member of one of `arrays`: the copy would overwrite or read the array's own metadata.
pub(super) fn refuse_member(path: &Path, arrays: &[Array], option: &str) -> Result<(), Failure> {
    let mut members = arrays.iter().flat_map(|array| array.status().members);
    if members.any(|member| is_same_file(path, &file_of(&path_of(&member.name)))) {
        let refused = Failure::refused(format!("{}: a member of this array", name_of(path)));
        return Err(refused.advise(format!("choose another {option}")));
    }
    Ok(())
}

/// Refuses an array's member, and without `overwrite` every file or device with data.
pub(super) async fn check_unused(machine: &Machine, path: &Path, overwrite: bool) -> Result<(), Failure> {
    check_unclaimed(machine, path, overwrite).await?;
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    if !overwrite && is_file && File::open(path).is_ok_and(|file| io::has_data(&file)) {
        return Err(Failure::refused(format!("{}: exists already, and holds data", name_of(path))).advise(OVERWRITE));
    }
    Ok(())
}

/// Refuses an array's member, and without `overwrite` what holds something that is known.
pub(super) async fn check_unclaimed(machine: &Machine, path: &Path, overwrite: bool) -> Result<(), Failure> {
    if let Some(found) = superblock_at(machine, path).await? {
        return Err(member_of_another(path, &found));
    }
    let refused = |reason: String| Failure::refused(format!("{}: {reason}", name_of(path)));
    if look(path).is_some_and(|disk| !disk.members.is_empty()) {
        return Err(refused("a disk with members of arrays".to_owned()).advise("choose another --output"));
    }
    let Candidate { name, member } = as_it_is(path)?;
    match what_it_holds(&name, &member, &machine.pool).await.filter(|_| !overwrite) {
        Some(what) => Err(refused(format!("exists already, and holds {what}")).advise(OVERWRITE)),
        None => Ok(()),
    }
}

/// The superblock of a member of an array at `path`.
pub(super) async fn superblock_at(machine: &Machine, path: &Path) -> Result<Option<Superblock>, Failure> {
    let Candidate { name, member } = as_it_is(path)?;
    Ok(find_superblock(&name, &member, &machine.pool).await.ok().map(|found| found.superblock))
}

pub(super) fn member_of_another(path: &Path, superblock: &Superblock) -> Failure {
    let uuid = uuid_text(&superblock.set_uuid);
    Failure::refused(format!("{}: a member of the array {uuid}", name_of(path))).advise("choose another --output")
}

/// The file or device at `path` without a map: the map beside an output is that of the copy.
fn as_it_is(path: &Path) -> Result<Candidate<AnyMember>, Failure> {
    let medium = Medium::open(path, None, Purpose::Look)?;
    Ok(Candidate { name: name_of(path), member: medium.into_member() })
}

pub(super) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_what_was_put_and_its_zeros_take_no_room() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("sink");
        let mut bytes = vec![0; 40 * BLOCK + 100];
        for at in [5, 3 * BLOCK, 20 * BLOCK + 7, 20 * BLOCK + 8] {
            bytes[at] = 1;
        }
        for holds_data in [false, true] {
            for piece in [1000, BLOCK, 7 * BLOCK, bytes.len()] {
                drop(std::fs::remove_file(&path));
                if holds_data {
                    std::fs::write(&path, vec![9; bytes.len()]).expect("of our own");
                }
                let file = File::options().write(true).create(true).truncate(false).open(&path).expect("of our own");
                let mut sink = Sink::of(file, Kind::File, &path, holds_data);
                bytes.chunks(piece).for_each(|piece| sink.append(piece).expect("there is room"));
                sink.finish().expect("there is room");
                assert!(std::fs::read(&path).expect("it is there") == bytes, "{piece} at a time");
                let blocks = path.metadata().expect("it is there").blocks() * 512;
                assert!(piece < BLOCK || blocks <= 8 * BLOCK as u64, "{blocks} bytes in use, {piece} at a time");
            }
        }
    }
}
