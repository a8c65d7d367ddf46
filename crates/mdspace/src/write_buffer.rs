//! Where the write buffer of an array is: a file in memory. It has a name for each of the array's members: by the array's
//! uuid, the system's start, and where the member's bytes are.
//!
//! A server that answers writes from memory makes it. Whatever opens these members next finds there what that server had
//! answered and not written, if it was killed. A copy of the members has the same uuid and other places: it does not get
//! the writes, and is refused as long as they wait for the members. The file goes with the last of these writes, or when
//! the system ends: then what is left there counts no more, and nothing finds it. The layout is `format::write_buffer`'s.

use crate::in_memory::digest;
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

/// The names of an array's buffer.
pub(crate) struct Names {
    /// What the names of all buffers of this uuid begin with, also those of copies.
    stem: String,
    /// The name for each member, by the member's own.
    members: BTreeMap<String, PathBuf>,
    /// The file that is kept, once it is known.
    #[cfg(feature = "command")]
    file: Option<Foundation>,
}

impl Names {
    /// The names for the array of this uuid and these members; `None` on systems without such a file system.
    pub(crate) fn of<'a>(uuid: [u8; 16], members: impl Iterator<Item = &'a str>) -> Option<Self> {
        let boot = std::fs::read_to_string(BOOT).ok().filter(|_| Path::new(PLACE).is_dir())?;
        let mut stem = "mdspace-".to_owned();
        for byte in uuid {
            let _ = write!(stem, "{byte:02x}");
        }
        let mut names = Self {
            stem: format!("{stem}.{}.", boot.trim()),
            members: BTreeMap::new(),
            #[cfg(feature = "command")]
            file: None,
        };
        names.add(members);
        Some(names)
    }

    /// Adds names for members that have none yet. A member whose place cannot be told has none.
    fn add<'a>(&mut self, members: impl Iterator<Item = &'a str>) {
        for member in members {
            if !self.members.contains_key(member)
                && let Some(name) = place_name(&path_of(member))
            {
                let path = Path::new(PLACE).join(format!("{}{name}{SUFFIX}", self.stem));
                self.members.insert(member.to_owned(), path);
            }
        }
    }

    fn own(&self) -> impl Iterator<Item = &Path> {
        self.members.values().map(PathBuf::as_path)
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

    /// Gives the file that this process has mapped a name for each of these members, as they come and go. False if it has
    /// no name left: a login manager may remove them when its owner logs out (`RemoveIPC` of systemd's).
    #[cfg(feature = "command")]
    pub(crate) fn keep<'a>(&mut self, members: impl Iterator<Item = &'a str>) -> bool {
        let members: Vec<&str> = members.collect();
        self.members.retain(|member, _| members.contains(&&**member));
        self.add(members.into_iter());
        if self.file.is_none() {
            let mapped = self.own().find(|path| io::is_mapped(path).unwrap_or(false));
            self.file = mapped.and_then(|path| Foundation::of(path, 0).ok());
        }
        let is_it = |path: &Path| Foundation::of(path, 0).is_ok_and(|file| Some(file) == self.file);
        let names: Vec<PathBuf> = self.all().filter(|path| is_it(path)).collect();
        let Some(first) = names.first() else { return false };
        for path in self.own().filter(|path| !path.exists()) {
            drop(std::fs::hard_link(first, path)); // another name leads there as well
        }
        if self.own().any(is_it) {
            let has_left = |name: &&PathBuf| self.own().all(|own| own != **name);
            names.iter().filter(has_left).for_each(|name| drop(std::fs::remove_file(name)));
        }
        true
    }
}

/// Where a member's bytes are, in letters for a name.
fn place_name(member: &Path) -> Option<String> {
    if place::is_uri(member) {
        return Some(format!("export-{:032x}", u128::from_le_bytes(digest(&member))));
    }
    let (file, part) = place::resolve(member).ok()?;
    Foundation::of(&file, part.map_or(0, |part| part.at)).ok().map(|foundation| foundation.to_string())
}

/// Whether the buffer at `path` holds writes. There may be none any more, if its server has just ended.
fn holds_writes(path: &Path) -> Result<bool, Error> {
    let bytes = SharedMemory::contents(path)?.unwrap_or_default();
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
        let files = names.files();
        if what.purpose == Purpose::Look {
            return Ok(shown(&files));
        }
        let holding = holding(&files)?;
        match holding[..] {
            [] => refuse_writes_of_others(&names, copy_opened_by(what.force))?,
            [_] => {}
            [first, second, ..] if what.force => {
                tracing::warn!(
                    "{}: what a killed server had answered stays there: {} counts",
                    show(second),
                    show(first)
                );
            }
            [first, second, ..] => return Err(two_found(first, second)),
        }
        let path = holding.first().or(files.first()).map(|path| path.to_path_buf());
        take(names, path.as_deref(), what)
    })
}

/// Bytes that a killed server had answered for the array of this member, and that wait for its members.
#[cfg(feature = "command")]
pub(crate) fn waiting_bytes(uuid: [u8; 16], member: &str) -> u64 {
    let names = Names::of(uuid, std::iter::once(member));
    let held = |path: &Path| {
        let bytes = SharedMemory::contents(path).ok()??;
        Some(Header::find(&bytes)?.writes(&bytes).iter().map(|write| u64::from(write.bytes)).sum::<u64>())
    };
    names.iter().flat_map(Names::own).filter_map(held).sum()
}

/// Removes the name that leads from this member to a buffer of the array: the member has left it for good. The writes stay
/// as long as another member leads to them.
#[cfg(feature = "command")]
pub(crate) fn forget(uuid: [u8; 16], member: &str) {
    let names = Names::of(uuid, std::iter::once(member));
    names.iter().flat_map(Names::own).for_each(|path| drop(std::fs::remove_file(path))); // mostly there is none
}

/// What a killed server had answered, for a command that only looks at what there is: such a command refuses nothing. Of two
/// killed servers' writes it shows none, as it cannot tell which count.
fn shown(files: &[&Path]) -> Option<WriteBuffer> {
    let left = files.iter().filter(|path| !io::is_mapped(path).unwrap_or(true));
    let contents = left.filter_map(|path| SharedMemory::contents(path).ok()?);
    let mut holding =
        contents.filter(|bytes| Header::find(bytes).is_some_and(|header| !header.writes(bytes).is_empty()));
    let found = holding.next().filter(|_| holding.next().is_none())?;
    Some(Box::new(found))
}

/// Refuses an array whose buffer holds anything: its writes would be lost to a change that does not know of them.
/// `copy` is as in [`refuse_writes_of_others`].
pub(crate) fn refusing_any(members: Vec<String>, advice: &'static str, copy: Option<&'static str>) -> FindWriteBuffer {
    Box::new(move |uuid| {
        let Some(names) = Names::of(uuid, members.iter().map(String::as_str)) else { return Ok(None) };
        if !holding(&names.files())?.is_empty() {
            return Err(refused("a killed server had answered writes that the members may lack").advice(advice));
        }
        refuse_writes_of_others(&names, copy).map(|()| None)
    })
}

/// What the user of a copy is told; nothing if he has given `force`.
pub(crate) fn copy_opened_by(force: bool) -> Option<&'static str> {
    (!force).then_some("--force opens it without them")
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

/// Refuses members while a killed server's writes wait for others of the same uuid. `copy` is the advice if these are a
/// copy; without it they are known to be one. No such writes wait while a server has the others.
fn refuse_writes_of_others(names: &Names, copy: Option<&'static str>) -> Result<(), Refusal> {
    // A file that this user may not use is no buffer of members that he may write.
    for path in names.all().filter(|path| holds_writes(path).unwrap_or(false)) {
        let theirs = show(&path);
        if io::is_mapped(&path).unwrap_or(true) {
            tracing::warn!("{theirs}: a server answers writes from memory for other members of the same uuid");
        } else if let Some(copy) = copy {
            let way_out = names.own().next().map_or_else(String::new, |own| {
                format!("; if they are the members, under other names or numbers: mv {theirs} {}", show(own))
            });
            return Err(refused(
                "a killed server had answered writes for an array of this uuid whose members were other files or devices",
            )
            .advice(format!("if these are a copy, {copy}{way_out}")));
        } else {
            tracing::warn!(
                "{theirs}: what a killed server had answered for other members of the same uuid stays there"
            );
        }
    }
    Ok(())
}

fn two_found(first: &Path, second: &Path) -> Refusal {
    refused(format!("two killed servers had answered writes: {} and {}", show(first), show(second))).advice(
        "the members belong to two copies of an array: open those of each alone; --force takes the first of the two",
    )
}

fn take(names: Names, path: Option<&Path>, what: Use) -> Result<Option<WriteBuffer>, Refusal> {
    if what.purpose != Purpose::Write {
        let Some(path) = path else { return Ok(None) };
        let is_in_use = io::is_mapped(path).map_err(|error| unusable(path, &error))?;
        if is_in_use && !what.force {
            return Err(refused(format!("{}: a server answers these members' writes from memory", show(path)))
                .advice("read the array from that server, or stop it"));
        }
        let bytes = SharedMemory::contents(path).map_err(|error| unusable(path, &error))?;
        return Ok(bytes.map(|bytes| Box::new(bytes) as WriteBuffer));
    }
    let there = match path {
        Some(path) => SharedMemory::open(path).map_err(|error| unusable(path, &error))?,
        None => None,
    };
    // A server that has just ended may have removed it.
    let there = there.filter(|memory| path.is_some_and(|path| memory.is_at(path)));
    let is_new = there.is_none();
    let made = || {
        let blocks = match what.answers? {
            WriteBack::Streams => BLOCKS_OF_STREAMS,
            WriteBack::All => BLOCKS,
        };
        made(names.own().next()?, blocks)
    };
    let Some(memory) = there.or_else(made) else { return Ok(None) };
    let kept = Kept { memory, names };
    for path in kept.names.own() {
        // A killed server's buffer with nothing in it, of some of these members.
        if path.exists() && !kept.memory.is_at(path) && !holds_writes(path).unwrap_or(true) {
            drop(std::fs::remove_file(path)); // the link says why
        }
        match kept.memory.link(path) {
            Err(error) if is_new => {
                tracing::warn!("{}: {error}", path.display());
                return Ok(None);
            }
            linked => linked.map_err(|error| unusable(path, &error))?,
        }
    }
    Ok(Some(Box::new(kept)))
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
