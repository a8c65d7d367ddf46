//! Where the write buffer of an array is: a file in memory, named by the array's uuid and the system's start.
//!
//! A server that answers writes from memory makes it. Whatever opens the array next finds there what that server had
//! answered and not written, if it was killed. The file goes with the last of these writes, or when the system ends: then
//! what is left there counts no more, and nothing finds it. The layout is `format::write_buffer`'s.

use crate::machine::Purpose;
use engine::{FindWriteBuffer, Refusal, WriteBack, WriteBuffer};
use format::write_buffer::{Header, memory_bytes};
use io::SharedMemory;
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

/// A buffer in use. Its file is removed once nothing is in it.
struct Kept(SharedMemory);

impl AsMut<[u8]> for Kept {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_mut()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let memory = self.0.as_mut();
        if Header::find(memory).is_none_or(|header| header.writes(memory).is_empty()) {
            drop(self.0.remove()); // an empty file harms nothing
        }
    }
}

/// Finds the buffer of an array that is opened for `purpose`; makes one if writes are to be answered from memory.
pub(crate) fn finder(purpose: Purpose, answers: Option<WriteBack>) -> FindWriteBuffer {
    Box::new(move |uuid| {
        let Some(path) = path_of(uuid) else { return Ok(None) };
        find(&path, purpose, answers).map_err(|error| {
            Refusal::new(format!("{}: {error}", path.display()))
                .field("write buffer")
                .advice("it may hold writes that a killed server had answered; its owner can open the array")
        })
    })
}

/// Refuses an array whose buffer holds anything: over an overlay, its writes would be the overlay's and the members'.
pub(crate) fn refusing_any() -> FindWriteBuffer {
    Box::new(|uuid| {
        let Some(bytes) = path_of(uuid).and_then(|path| std::fs::read(path).ok()) else { return Ok(None) };
        match Header::find(&bytes).is_some_and(|header| !header.writes(&bytes).is_empty()) {
            true => Err(Refusal::new("a killed server had answered writes that the members may lack")
                .field("write buffer")
                .advice("serve the array once without the overlay, which writes them")),
            false => Ok(None),
        }
    })
}

fn find(path: &Path, purpose: Purpose, answers: Option<WriteBack>) -> Result<Option<WriteBuffer>, Error> {
    if purpose != Purpose::Write {
        return match std::fs::read(path) {
            Ok(bytes) => Ok(Some(Box::new(bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
    }
    if let Some(there) = SharedMemory::open(path)? {
        return Ok(Some(Box::new(Kept(there))));
    }
    let blocks = match answers {
        None => return Ok(None),
        Some(WriteBack::Streams) => BLOCKS_OF_STREAMS,
        Some(WriteBack::All) => BLOCKS,
    };
    Ok(made(path, blocks).map(|memory| Box::new(Kept(memory)) as WriteBuffer))
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

/// Whether the file of an array's buffer is there. A login manager may remove it when its owner logs out (`RemoveIPC` of
/// systemd's).
#[cfg(feature = "command")]
pub(crate) fn is_there(uuid: [u8; 16]) -> bool {
    path_of(uuid).is_some_and(|path| path.exists())
}

/// `None` on systems without such a file system.
fn path_of(uuid: [u8; 16]) -> Option<PathBuf> {
    let boot = std::fs::read_to_string(BOOT).ok().filter(|_| Path::new(PLACE).is_dir())?;
    let mut name = "mdspace-".to_owned();
    for byte in uuid {
        let _ = write!(name, "{byte:02x}");
    }
    Some(Path::new(PLACE).join(format!("{name}.{}.writes", boot.trim())))
}
