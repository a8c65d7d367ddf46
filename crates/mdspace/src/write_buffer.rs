//! Where the write buffer of an array is: a file in memory. It has a name for each of the array's members: by the array's
//! uuid, the system's start, and where the member's bytes are.
//!
//! A server that answers writes from memory makes it. Whatever opens these members next finds there what that server had
//! answered and not written, if it was killed. A copy of the members has the same uuid and other places: it does not get
//! the writes, and is refused as long as they wait for the members. The file goes with the last of these writes, or when
//! the system ends: then what is left there counts no more, and nothing finds it. The layout is `format::write_buffer`'s.

use crate::machine::Purpose;
use crate::names::path_of;
use crate::place;
use engine::{FindWriteBuffer, Refusal, WriteBack, WriteBuffer};
use format::write_buffer::{Header, memory_bytes};
use io::{Foundation, SharedMemory};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// A file system in memory that every user may write to.
const PLACE: &str = "/dev/shm";

/// Identifies the time since the system's start.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Blocks of a buffer: room for all that an array answers from memory at a time, and for small writes, which take a block
/// each. Streams need a few stripes alone. A small file system in memory gets fewer, down to the least that pays.
const BLOCKS: u32 = 20 << 10;
const BLOCKS_OF_STREAMS: u32 = 8 << 10;
const BLOCKS_MIN: u32 = 1 << 10;

/// The end of a buffer's name.
const SUFFIX: &str = ".writes";

/// Letters of an export's address in a name, of which the last are the most telling.
const ADDRESS_LETTERS: usize = 120;

/// The names of an array's buffer.
pub(crate) struct Names {
    /// What the names of all buffers of this uuid begin with, also those of copies.
    stem: String,
    /// The name for each member, by the member's own; `None` if it has no place.
    members: BTreeMap<String, Option<PathBuf>>,
}

impl Names {
    /// The names for the array of this uuid and these members; `None` on systems without such a file system.
    pub(crate) fn of<'a>(uuid: [u8; 16], members: impl Iterator<Item = &'a str>) -> Option<Self> {
        let boot = std::fs::read_to_string(BOOT).ok().filter(|_| Path::new(PLACE).is_dir())?;
        let mut stem = "mdspace-".to_owned();
        for byte in uuid {
            let _ = write!(stem, "{byte:02x}");
        }
        let mut names = Self { stem: format!("{stem}.{}.", boot.trim()), members: BTreeMap::new() };
        names.add(members);
        Some(names)
    }

    /// Adds names for members that have none yet.
    pub(crate) fn add<'a>(&mut self, members: impl Iterator<Item = &'a str>) {
        for member in members {
            if !self.members.contains_key(member) {
                let name = place_name(&path_of(member));
                let path = name.map(|name| Path::new(PLACE).join(format!("{}{name}{SUFFIX}", self.stem)));
                self.members.insert(member.to_owned(), path);
            }
        }
    }

    fn own(&self) -> impl Iterator<Item = &Path> {
        self.members.values().flatten().map(PathBuf::as_path)
    }

    /// The files that any member names, each once: usually one.
    fn files(&self) -> Vec<&Path> {
        let mut files: Vec<(Foundation, &Path)> = Vec::new();
        for path in self.own() {
            if let Ok(file) = Foundation::of(path, 0)
                && files.iter().all(|(other, _)| *other != file)
            {
                files.push((file, path));
            }
        }
        files.into_iter().map(|(_, path)| path).collect()
    }

    /// The names of all buffers of this uuid.
    fn all(&self) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(PLACE).into_iter().flatten().flatten();
        let is_one = |entry: &std::fs::DirEntry| {
            entry.file_name().to_str().is_some_and(|name| name.starts_with(&self.stem) && name.ends_with(SUFFIX))
        };
        entries.filter(is_one).map(|entry| entry.path())
    }

    /// A buffer with writes for members that are elsewhere, and whose server was killed.
    fn of_others(&self) -> Option<PathBuf> {
        // What this user may not read is no buffer of members that he can write.
        self.all().find(|path| holds_writes(path).unwrap_or(false) && !io::is_mapped(path).unwrap_or(true))
    }

    /// Gives the file of the array's buffer the names that it lacks, as members have come. False if it has none left: a
    /// login manager may remove it when its owner logs out (`RemoveIPC` of systemd's).
    #[cfg(feature = "command")]
    pub(crate) fn keep(&self) -> bool {
        let Some(first) = self.own().find(|path| path.exists()) else { return false };
        for path in self.own().filter(|path| !path.exists()) {
            drop(std::fs::hard_link(first, path)); // another name leads there as well
        }
        true
    }
}

/// Where a member's bytes are, in letters for a name.
fn place_name(member: &Path) -> Option<String> {
    let (file, part) = place::resolve(member).ok()?;
    let at = part.map_or(0, |part| part.at);
    if place::is_uri(&file) {
        let letters = file.to_str()?.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
        let letters: Vec<char> = letters.collect();
        let last: String = letters[letters.len().saturating_sub(ADDRESS_LETTERS)..].iter().collect();
        return Some(format!("export-{last}-{at:x}"));
    }
    Foundation::of(&file, at).ok().map(|foundation| foundation.to_string())
}

/// Whether the buffer at `path` holds writes.
fn holds_writes(path: &Path) -> Result<bool, Error> {
    let bytes = std::fs::read(path)?;
    Ok(Header::find(&bytes).is_some_and(|header| !header.writes(&bytes).is_empty()))
}

/// A buffer in use. Its file is removed once nothing is in it.
struct Kept {
    memory: SharedMemory,
    names: Names,
}

impl AsMut<[u8]> for Kept {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let memory = self.memory.as_mut();
        if Header::find(memory).is_some_and(|header| !header.writes(memory).is_empty()) {
            return;
        }
        // Also the names of members that have left.
        for path in self.names.all().filter(|path| self.memory.is_at(path)) {
            drop(std::fs::remove_file(path)); // an empty file harms nothing
        }
    }
}

/// What a caller does with an array, and what its user agreed to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) purpose: Purpose,
    /// Which writes are to be answered from memory, if any.
    pub(crate) answers: Option<WriteBack>,
    /// Open the members without writes that wait for other files or devices of this uuid.
    pub(crate) force: bool,
}

/// Finds the buffer of the array with these members; makes one if writes are to be answered from memory.
pub(crate) fn finder(members: Vec<String>, what: Use) -> FindWriteBuffer {
    Box::new(move |uuid| {
        let Some(names) = Names::of(uuid, members.iter().map(String::as_str)) else { return Ok(None) };
        let buffer = names.files();
        let holding = holding(&buffer)?;
        if let [first, second, ..] = holding[..]
            && !what.force
        {
            return Err(refused(format!(
                "two killed servers had answered writes: {} and {}",
                show(first),
                show(second)
            ))
            .advice(
                "open the members of each alone: they belong to two arrays; --force takes the first, and leaves the \
                     second",
            ));
        }
        match holding.first().or(buffer.first()) {
            None if !what.force => refuse_writes_of_others(&names)?,
            _ => {}
        }
        let path = holding.first().or(buffer.first()).map(|path| path.to_path_buf());
        take(names, path.as_deref(), what)
    })
}

/// Refuses an array whose buffer holds anything: its writes would be lost to a change that does not know of them.
pub(crate) fn refusing_any(members: Vec<String>, advice: &'static str) -> FindWriteBuffer {
    Box::new(move |uuid| {
        let Some(names) = Names::of(uuid, members.iter().map(String::as_str)) else { return Ok(None) };
        match holding(&names.files())?.is_empty() {
            true => Ok(None),
            false => Err(refused("a killed server had answered writes that the members may lack").advice(advice)),
        }
    })
}

/// Those of these files that hold writes.
fn holding<'a>(files: &[&'a Path]) -> Result<Vec<&'a Path>, Refusal> {
    let mut holding = Vec::new();
    for path in files {
        if holds_writes(path).map_err(|error| unusable(path, &error))? {
            holding.push(*path);
        }
    }
    Ok(holding)
}

fn refuse_writes_of_others(names: &Names) -> Result<(), Refusal> {
    let (Some(theirs), Some(own)) = (names.of_others(), names.own().next()) else { return Ok(()) };
    Err(refused(
        "a killed server had answered writes for an array of this uuid whose members were other files or devices",
    )
    .advice(format!(
        "if these are a copy, --force opens it without them; if they are the members, under other names: mv {} {}",
        show(&theirs),
        show(own)
    )))
}

fn take(names: Names, path: Option<&Path>, what: Use) -> Result<Option<WriteBuffer>, Refusal> {
    let failed = |error: &Error| unusable(path.unwrap_or(Path::new(PLACE)), error);
    if what.purpose != Purpose::Write {
        let bytes = path.map(std::fs::read).transpose().map_err(|error| failed(&error))?;
        return Ok(bytes.map(|bytes| Box::new(bytes) as WriteBuffer));
    }
    let there = path.map(SharedMemory::open).transpose().map_err(|error| failed(&error))?.flatten();
    let made = || {
        let blocks = match what.answers? {
            WriteBack::Streams => BLOCKS_OF_STREAMS,
            WriteBack::All => BLOCKS,
        };
        made(names.own().next()?, blocks)
    };
    let Some(memory) = there.or_else(made) else { return Ok(None) };
    for path in names.own() {
        // A killed server's buffer with nothing in it, of some of these members.
        if path.exists() && !memory.is_at(path) && !holds_writes(path).unwrap_or(true) {
            drop(std::fs::remove_file(path)); // the link says why
        }
        memory.link(path).map_err(|error| unusable(path, &error))?;
    }
    Ok(Some(Box::new(Kept { memory, names })))
}

/// A new buffer, as large as the file system allows; `None` if it allows none, of which the server warns.
fn made(path: &Path, mut blocks: u32) -> Option<SharedMemory> {
    loop {
        match SharedMemory::open_or_create(path, memory_bytes(blocks)) {
            Ok(memory) => return Some(memory),
            Err(error) if error.kind() != ErrorKind::StorageFull || blocks <= BLOCKS_MIN => {
                tracing::warn!("{}: {error}", path.display());
                return None;
            }
            Err(_) => blocks /= 2,
        }
    }
}

fn refused(reason: impl Into<String>) -> Refusal {
    Refusal::new(reason).field("write buffer")
}

fn unusable(path: &Path, error: &Error) -> Refusal {
    refused(format!("{}: {error}", path.display()))
        .advice("it may hold writes that a killed server had answered; its owner can open the array")
}

fn show(path: &Path) -> String {
    path.display().to_string()
}
