//! Where a member is: a file or device, or a part of one, as users name it.
//!
//! `disk.img:2` is the second partition of `disk.img`, and `disk.img@OFFSET[+LENGTH]` a range of it. A file with such a
//! name counts first. The name stays a path everywhere, so that a part is given where any member is given; this file
//! takes it apart when the member is opened. An NBD URI is such a name too, and so is a part of its export. A VHD image of
//! fixed size is its disk without the footer behind it, whatever part is named. It only reads.

use crate::images::{ImageFormat, Opened};
use crate::names::name_of;
use disk::Source;
use disk::content::superblock;
use disk::table::{Partition, Table, find};
use disk::vhd::{FOOTER_BYTES, fixed_disk_bytes};
use engine::Refusal;
use export::nbd::address::{Address, is_uri as is_nbd_uri};
use export::nbd::member::Remote;
use futures_util::FutureExt;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A part of a file or device, as it was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Partition(u32),
    Range { at: u64, bytes: u64 },
}

/// The bytes of a sector in a table of 512-byte sectors, which users know from fdisk.
const SECTOR_BYTES: u64 = 512;

/// A disk as bytes: a file or device, an image in another format, or an export. It blocks while it reads.
pub(crate) struct DiskFile {
    bytes: u64,
    medium: Medium,
}

enum Medium {
    File(File),
    Opened(RefCell<Opened>),
}

impl DiskFile {
    /// Opens an existing file, block device or export for reading. Nothing else is opened, as opening it could wait or
    /// act.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if let Some(opened) = opened(path)? {
            return Ok(Self { bytes: opened.bytes(), medium: Medium::Opened(RefCell::new(opened)) });
        }
        let raw = Self::raw(path)?;
        Ok(Self { bytes: fixed_vhd(path).unwrap_or(raw.bytes), ..raw })
    }

    /// The file's own bytes, even if they are those of an image.
    pub(crate) fn raw(path: &Path) -> Result<Self> {
        if !path.metadata()?.is_file() && !io::is_disk(path) {
            return Err(Error::other("neither a regular file nor a block device"));
        }
        let file = File::open(path)?;
        let bytes = io::length(&file)?;
        Ok(Self { bytes, medium: Medium::File(file) })
    }
}

impl Source for DiskFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, at: u64, length: usize) -> impl Future<Output = std::result::Result<Vec<u8>, String>> {
        let mut bytes = vec![0; length];
        let read = match &self.medium {
            Medium::File(file) => io::read_exact_at(file, &mut bytes, at),
            Medium::Opened(opened) => opened.borrow_mut().read_exact_at(&mut bytes, at),
        };
        std::future::ready(read.map(|()| bytes).map_err(|error| format!("byte {at}: {error}")))
    }
}

/// The result of a decoder on a [`DiskFile`], which answers at once.
pub(crate) fn at_once<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("a file answers at once")
}

/// Whether `path` is an NBD URI, or a part of its export.
pub(crate) fn is_uri(path: &Path) -> bool {
    path.to_str().is_some_and(is_nbd_uri)
}

/// Whether `path` names something that is there already, as far as that can be told without opening it.
pub(crate) fn exists(path: &Path) -> bool {
    is_uri(path) || path.symlink_metadata().is_ok() || is_part(path)
}

/// Whether the bytes of the file or device at `path` are those of the disk.
#[cfg(feature = "command")]
pub(crate) fn is_raw(path: &Path) -> bool {
    !is_uri(path) && ImageFormat::of(path).is_none()
}

/// What is at `path`, if it is an export, or an image in another format.
pub(crate) fn opened(path: &Path) -> Result<Option<Opened>> {
    if let Some(uri) = path.to_str().filter(|text| is_nbd_uri(text)) {
        let address: Address = uri.parse().map_err(|reason: String| Error::new(ErrorKind::InvalidInput, reason))?;
        return Remote::connect(&address).map(|remote| Some(Opened::Remote(remote)));
    }
    ImageFormat::of(path).map(|format| format.open(path)).transpose()
}

/// The same for every path of the same file or device. An URI stays as it is.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    if is_uri(path) { Ok(path.to_owned()) } else { path.canonicalize() }
}

/// The file or device of a member, and its range there: `None` for the whole.
///
/// # Errors
/// When the member is a partition that does not exist, or that cannot be looked up.
pub(crate) fn resolve(path: &Path) -> Result<(PathBuf, Option<io::Part>)> {
    match split(path) {
        None => Ok((path.to_owned(), fixed_vhd(path).map(|bytes| io::Part { at: 0, bytes }))),
        Some((file, Part::Range { at, bytes })) => {
            let bytes = fixed_vhd(&file).map_or(bytes, |disk| bytes.min(disk.saturating_sub(at)));
            Ok((file, Some(io::Part { at, bytes })))
        }
        Some((file, Part::Partition(number))) => {
            let Partition { at, bytes, .. } = partition(&file, number)?;
            Ok((file, Some(io::Part { at, bytes })))
        }
    }
}

/// The length of the disk if the regular file at `path` is a VHD image of fixed size.
///
/// The last bytes of a member are chosen by what writes to the array. So a superblock of md whose data reaches over them
/// says that they are data.
fn fixed_vhd(path: &Path) -> Option<u64> {
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let file = DiskFile::raw(path).ok()?;
    let Medium::File(raw) = &file.medium else { return None };
    let mut footer = [0; FOOTER_BYTES as usize];
    raw.read_exact_at(&mut footer, file.bytes.checked_sub(FOOTER_BYTES)?).ok()?;
    let disk_bytes = fixed_disk_bytes(&footer, file.bytes)?;
    let own = at_once(superblock(&file)).ok().flatten();
    let is_data = own.is_some_and(|own| own.data_at().0.saturating_add(own.data_size.bytes()) > disk_bytes);
    (!is_data).then_some(disk_bytes)
}

/// As [`resolve`], of a range within the member.
pub(crate) fn resolve_within(path: &Path, data: Option<io::Part>) -> Result<(PathBuf, Option<io::Part>)> {
    let (file, part) = resolve(path)?;
    let part = match (part, data) {
        (Some(part), Some(data)) => Some(io::Part {
            at: part.at.saturating_add(data.at),
            bytes: data.bytes.min(part.bytes.saturating_sub(data.at)),
        }),
        (part, data) => data.or(part),
    };
    Ok((file, part))
}

/// The same for every path of the same file or device, or of the same part of it.
pub(crate) fn identity(path: &Path) -> Result<(PathBuf, u64, u64)> {
    let (file, part) = resolve(path)?;
    let io::Part { at, bytes } = part.unwrap_or(io::Part { at: 0, bytes: u64::MAX });
    Ok((canonical(&file)?, at, bytes))
}

/// The file or device that `path` names or is a part of.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    split(path).map_or_else(|| path.to_owned(), |(file, _)| file)
}

/// Whether `path` names a part.
pub(crate) fn is_part(path: &Path) -> bool {
    split(path).is_some()
}

/// Refuses the name of a part for a new file or directory, which would hide the part from then on.
pub(crate) fn check_hides_no_part(path: &Path) -> std::result::Result<(), Refusal> {
    match split(path) {
        None => Ok(()),
        Some((file, _)) => Err(Refusal::new(format!("names a part of {}", name_of(&file))).of(name_of(path))),
    }
}

/// The name of a partition of `disk`.
pub(crate) fn partition_of(disk: &Path, number: u32) -> PathBuf {
    let mut name = disk.as_os_str().to_owned();
    name.push(format!(":{number}"));
    name.into()
}

/// The text of `word` before and behind the mark of a part; `None` if it has none.
pub(crate) fn split_word(word: &Path) -> Option<(PathBuf, OsString)> {
    let bytes = word.as_os_str().as_bytes();
    let mark = bytes.iter().rposition(|byte| matches!(byte, b':' | b'@'))?;
    parse(bytes[mark], std::str::from_utf8(&bytes[mark + 1..]).ok()?)?;
    let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    // The port of an URI is not a part.
    let first =
        if is_uri(word) { bytes.windows(3).position(|three| three == b"://").map_or(0, |at| at + 3) } else { 0 };
    let is_behind = first == 0 || bytes[first..mark].contains(&b'/');
    (mark > first && is_behind).then(|| (text(&bytes[..mark]).into(), text(&bytes[mark..])))
}

fn split(path: &Path) -> Option<(PathBuf, Part)> {
    if path.symlink_metadata().is_ok() {
        return None;
    }
    let (file, rest) = split_word(path)?;
    let rest = rest.to_str()?;
    let part = parse(rest.as_bytes()[0], &rest[1..])?;
    // A directory has no parts; what cannot be looked at may.
    let has_parts = file.symlink_metadata().is_ok() && !file.is_dir();
    (is_uri(&file) || has_parts).then_some((file, part))
}

fn parse(mark: u8, text: &str) -> Option<Part> {
    if mark == b':' {
        let number = text.parse().ok().filter(|number| *number > 0 && text.bytes().all(|byte| byte.is_ascii_digit()));
        return number.map(Part::Partition);
    }
    let (at, bytes) = text.split_once('+').map_or((text, None), |(at, bytes)| (at, Some(bytes)));
    Some(Part::Range { at: number(at)?, bytes: bytes.map_or(Some(u64::MAX), number)? })
}

/// A number of bytes, with K, M, G or T (powers of 1024), or with `s` of sectors.
fn number(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "" => 1,
        "s" => SECTOR_BYTES,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

fn partition(disk: &Path, number: u32) -> Result<Partition> {
    let table = at_once(find(&DiskFile::open(disk)?)).map_err(Error::other)?;
    let Some(Table { kind, partitions, .. }) = table else {
        return Err(Error::other("no partition table is there"));
    };
    let numbers: Vec<String> = partitions.iter().map(|partition| partition.number.to_string()).collect();
    let found = partitions.into_iter().find(|partition| partition.number == number);
    found.ok_or_else(|| Error::other(format!("its {} has the partitions {}", kind.name(), numbers.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_named_by_number_or_range_and_a_file_of_that_name_counts_first() {
        let place = tempfile::tempdir().expect("a directory");
        let disk = place.path().join("disk.img");
        std::fs::write(&disk, [0; 512]).expect("of our own");
        let range = |at, bytes| Some(Part::Range { at, bytes });
        for (suffix, part) in [
            (":2", Some(Part::Partition(2))),
            (":0", None),
            (":+2", None),
            (":", None),
            (":4294967296", None),
            ("@1M", range(1 << 20, u64::MAX)),
            ("@2048s+4K", range(1 << 20, 4096)),
            ("@512+1G", range(512, 1 << 30)),
            ("@", None),
            ("@1X", None),
            ("@1M+", None),
            ("@99999999999T", None),
        ] {
            let path = PathBuf::from(format!("{}{suffix}", disk.display()));
            assert_eq!(split(&path), part.map(|part| (disk.clone(), part)), "{suffix}");
        }
        for (uri, suffix, part) in [
            ("nbd://host:10809", "", None),
            ("nbd://host:10809/", ":2", Some(Part::Partition(2))),
            ("nbd://host/disk", "@1M", range(1 << 20, u64::MAX)),
            ("nbd+unix:///?socket=/run/nbd.sock", ":1", Some(Part::Partition(1))),
            ("nbd+unix:///disk?socket=/run/nbd.sock", "", None),
        ] {
            let path = PathBuf::from(format!("{uri}{suffix}"));
            assert_eq!(split(&path), part.map(|part| (PathBuf::from(uri), part)), "{}", path.display());
        }
        let colon = place.path().join("disk.img:2");
        std::fs::write(&colon, "").expect("of our own");
        assert_eq!(split(&colon), None);
        assert_eq!(split(&place.path().join("other:2")), None, "there is no such file");
        assert_eq!(split(Path::new(":2")), None);
    }
}
