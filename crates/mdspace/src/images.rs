//! Images of disks in the formats of virtual machines and of forensics: recognised by their first bytes, and most read
//! by programs that know them.
//!
//! qemu-nbd reads the image in a process of its own and exports its disk on a unix socket, which only this user can
//! reach and which is removed once it is connected. qemu-nbd ends with that connection, so no process is left behind,
//! however this one ends. It reads an image in use by a virtual machine as little as qemu does.
//!
//! Only regular files are looked at: a disk that happens to begin with such bytes stays a disk. The data of a member may
//! begin so, too, and whatever writes to the array chooses these bytes: a file with a superblock of md is refused. So is
//! an image that names another file outside of its directory, and one that is cut off, whose lost parts qemu reads as
//! zeros; qemu-img tells these. EWF images (E01) are read here ([`crate::ewf`]): what exists for them reads damage as
//! zeros, too. Nothing here decodes more than the first bytes, and nothing is ever written. Sources of the magic bytes:
//! qemu's docs/interop/qcow2.txt and block/{vmdk,vhdx,vpc,vdi}.c, and the documentation of libewf.

use crate::ewf::EwfDisk;
use crate::place::{DiskFile, at_once};
use export::nbd::address::{Address, ServerAddress};
use export::nbd::member::Remote;
use io::ForeignMember;
use serde_json::Value;
use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind, Read, Result};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A format of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageFormat {
    name: &'static str,
    reader: Reader,
    at: usize,
    magic: &'static [u8],
}

/// What reads a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// qemu, by its name of the format.
    Qemu(&'static str),
    /// [`EwfDisk`]
    Ewf,
    /// Nothing.
    None,
}

use Reader::Qemu;

/// An image that is open for reading, or an export.
pub(crate) enum Opened {
    /// Another program reads it.
    Remote(Remote),
    /// An EWF image.
    Ewf(EwfDisk),
}

impl Opened {
    /// The length of the disk.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Remote(remote) => remote.bytes(),
            Self::Ewf(disk) => disk.bytes(),
        }
    }

    /// Fills `into` from byte `at` on.
    pub(crate) fn read_exact_at(&mut self, into: &mut [u8], at: u64) -> Result<()> {
        match self {
            Self::Remote(remote) => remote.read_exact_at(into, at),
            Self::Ewf(disk) => disk.read_exact_at(into, at),
        }
    }

    /// Why it cannot be written to; `None` if it can.
    pub(crate) fn forbids_writes(&self) -> Option<&'static str> {
        match self {
            Self::Remote(remote) => remote.forbids_writes(),
            Self::Ewf(_) => Some("an EWF image is only read"),
        }
    }

    /// Makes only the bytes of `part` that it has the member.
    pub(crate) fn narrow(&mut self, part: Range<u64>) -> Result<()> {
        match self {
            Self::Remote(remote) => remote.narrow(part),
            Self::Ewf(disk) => disk.narrow(part),
        }
    }

    /// Makes it a member on the current thread's executor.
    pub(crate) fn into_member(self) -> ForeignMember {
        match self {
            Self::Remote(remote) => ForeignMember::new(remote.into_member()),
            Self::Ewf(disk) => ForeignMember::new(disk.into_member()),
        }
    }
}

const fn format(name: &'static str, reader: Reader, at: usize, magic: &'static [u8]) -> ImageFormat {
    ImageFormat { name, reader, at, magic }
}

const FORMATS: [ImageFormat; 13] = [
    format("qcow2", Qemu("qcow2"), 0, b"QFI\xfb\0\0\0\x02"),
    format("qcow2", Qemu("qcow2"), 0, b"QFI\xfb\0\0\0\x03"),
    format("qcow", Qemu("qcow"), 0, b"QFI\xfb\0\0\0\x01"),
    format("VMDK", Qemu("vmdk"), 0, b"KDMV"),
    format("VMDK", Qemu("vmdk"), 0, b"COWD"),
    format("VMDK", Qemu("vmdk"), 0, b"# Disk DescriptorFile"),
    format("VHDX", Qemu("vhdx"), 0, b"vhdxfile"),
    format("VHD", Qemu("vpc"), 0, b"conectix"),
    format("VDI", Qemu("vdi"), 64, b"\x7f\x10\xda\xbe"),
    format("EWF (E01)", Reader::Ewf, 0, b"EVF\x09\x0d\x0a\xff\0"),
    format("EWF (Ex01)", Reader::None, 0, b"EVF2\x0d\x0a\x81\0"),
    // Of files and not of a disk.
    format("EWF (L01)", Reader::None, 0, b"LVF\x09\x0d\x0a\xff\0"),
    format("EWF (Lx01)", Reader::None, 0, b"LEF2\x0d\x0a\x81\0"),
];

/// Bytes that decide.
const HEAD_BYTES: u64 = 68;

impl ImageFormat {
    /// The format of the regular file at `path`; `None` if its bytes are those of the disk, or it cannot be read.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let mut head = Vec::new();
        File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
        Self::of_bytes(&head)
    }

    fn of_bytes(head: &[u8]) -> Option<Self> {
        let is_at = |format: &&Self| head.get(format.at..).is_some_and(|rest| rest.starts_with(format.magic));
        FORMATS.iter().find(is_at).copied()
    }

    /// Its name.
    #[cfg(feature = "command")]
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// Lets the image at `path` be read.
    ///
    /// # Errors
    /// What is missing for that, or the words of the program that cannot read the image.
    pub(crate) fn open(self, path: &Path) -> Result<Opened> {
        self.refuse_member(path)?;
        match self.reader {
            Qemu(format) => self.open_by_qemu(format, path).map(Opened::Remote),
            Reader::Ewf => EwfDisk::open(path).map(Opened::Ewf),
            Reader::None => Err(Error::other(format!(
                "it is an image in the format {}, which mdspace does not read; `ewfexport -u -f raw -t NEW FILE` of the \
                 Debian package ewf-tools may make NEW.raw of it, and prints the sectors that are damaged: they are zeros \
                 then, and belong into a map (--map)",
                self.name
            ))),
        }
    }

    fn open_by_qemu(self, format: &str, path: &Path) -> Result<Remote> {
        // An absolute path never begins like an URL or an option of qemu's.
        let image = path.canonicalize()?;
        self.look(format, &image)?;
        let place = SocketPlace::new()?;
        let socket = place.0.join("nbd");
        let mut program = Command::new("qemu-nbd");
        program.args(["--fork", "--read-only", "--format", format, "--socket"]).arg(&socket).arg("--").arg(&image);
        let output = self.run(&mut program)?;
        if !output.status.success() {
            return Err(self.unreadable(&output));
        }
        Remote::connect(&Address { server: ServerAddress::Unix(socket), export: String::new() })
    }

    fn run(self, program: &mut Command) -> Result<Output> {
        let name = self.name;
        program.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::other(format!(
                "it is a {name} image, which qemu-nbd reads: install it (Debian package qemu-utils)"
            )),
            _ => Error::new(error.kind(), format!("it is a {name} image, and qemu-nbd does not start: {error}")),
        })
    }

    fn unreadable(self, output: &Output) -> Error {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or_default();
        let said = said.trim_start_matches("qemu-nbd: ").trim_start_matches("qemu-img: ");
        Error::other(format!("it is a {} image, and qemu-nbd cannot read it: {said}", self.name))
    }

    /// Refuses a file that may be a member itself. Its data would then be taken for an image, as it was written there.
    fn refuse_member(self, path: &Path) -> Result<()> {
        let Self { name, .. } = self;
        if matches!(at_once(disk::content::superblock(&DiskFile::raw(path)?)), Ok(None)) {
            return Ok(());
        }
        let format = match self.reader {
            Qemu(format) => format,
            Reader::Ewf | Reader::None => "raw",
        };
        Err(Error::other(format!(
            "it begins like a {name} image, and has a superblock of md as a raw member: to say which it is, export it \
             (qemu-nbd --persistent --shared=4 --socket=PATH with --format=raw for a member, with --format={format} for an \
             image), and name nbd+unix:///?socket=PATH"
        )))
    }

    /// Refuses an image that needs another file, or is cut off. What was looked at is not looked at again while it stays.
    fn look(self, format: &str, image: &Path) -> Result<()> {
        static SOUND: LazyLock<Mutex<HashSet<[u64; 5]>>> = LazyLock::new(Mutex::default);
        let found = image.metadata()?;
        let times = [found.mtime(), found.mtime_nsec()].map(i64::cast_unsigned);
        let state = [found.dev(), found.ino(), found.len(), times[0], times[1]];
        let sound = || SOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if sound().contains(&state) {
            return Ok(());
        }
        let files = self.files(image, &self.ask("info", format, image)?)?;
        self.check(format, image)?;
        self.refuse_short(&files, &self.ask("map", format, image)?)?;
        sound().insert(state);
        Ok(())
    }

    /// What qemu-img says of the image.
    fn ask(self, what: &str, format: &str, image: &Path) -> Result<Value> {
        let mut program = Command::new("qemu-img");
        program.args([what, "--output=json", "--force-share", "-f", format]).arg(image);
        let output = self.run(&mut program)?;
        if !output.status.success() {
            return Err(self.unreadable(&output));
        }
        let answer = serde_json::from_slice(&output.stdout);
        answer.map_err(|error| Error::other(format!("qemu-img {what} gives no JSON: {error}")))
    }

    /// The files that hold its data, in order: the bytes of the disk that each has, and its own length.
    fn files(self, image: &Path, info: &Value) -> Result<Vec<(u64, u64)>> {
        let Self { name, .. } = self;
        let data = &info["format-specific"]["data"];
        let named = ["backing-filename", "full-backing-filename"].map(|field| &info[field]);
        if let Some(other) = named.into_iter().chain([&data["data-file"]]).find_map(Value::as_str) {
            return Err(Error::other(format!(
                "it is a {name} image that needs the file {other}, and mdspace opens no file because an image names it: \
                 `qemu-img convert -O raw IMAGE FILE` makes one file of both"
            )));
        }
        let Some(extents) = data["extents"].as_array() else { return Ok(vec![(u64::MAX, image.metadata()?.len())]) };
        let file = |extent: &Value| {
            let named = extent["filename"].as_str().unwrap_or_default();
            match Path::new(named).canonicalize() {
                Ok(file) if file.parent() == image.parent() => {
                    Ok((extent["virtual-size"].as_u64().unwrap_or(u64::MAX), file.metadata()?.len()))
                }
                _ => Err(Error::other(format!(
                    "it is a {name} image that needs the file {named}, which is not in the same directory"
                ))),
            }
        };
        extents.iter().map(file).collect()
    }

    /// Refuses an image whose own tables are damaged, where qemu can check them.
    fn check(self, format: &str, image: &Path) -> Result<()> {
        let mut program = Command::new("qemu-img");
        program.args(["check", "--force-share", "-f", format]).arg(image);
        match self.run(&mut program)?.status.code() {
            // 3: space is lost, and nothing else. 63: the format has no check.
            Some(0 | 3 | 63) => Ok(()),
            _ => Err(Error::other(format!(
                "it is a {} image that is damaged or cut off, so that parts of it would read as zeros: see `qemu-img check`",
                self.name
            ))),
        }
    }

    /// Refuses an image whose data lies past the end of its file.
    fn refuse_short(self, files: &[(u64, u64)], map: &Value) -> Result<()> {
        for piece in map.as_array().into_iter().flatten() {
            let number = |field: &str| piece[field].as_u64();
            let (Some(start), Some(length), Some(offset)) = (number("start"), number("length"), number("offset"))
            else {
                continue; // nothing, or compressed, where qemu refuses what is missing
            };
            let mut before = 0_u64;
            let of_start = files.iter().find(|(disk, _)| {
                before = before.saturating_add(*disk);
                start < before
            });
            let bytes = of_start.map_or(0, |(_, bytes)| *bytes);
            if piece["data"] == true && offset.saturating_add(length) > bytes {
                return Err(Error::other(format!(
                    "it is a {} image that is cut off: it has data at byte {offset} and {length} on, and its file has {bytes} \
                     bytes; copy it again",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// Why it is not written to.
    pub(crate) fn refusal_to_write(self, path: &Path) -> Error {
        if let Err(error) = self.refuse_member(path) {
            return error;
        }
        let convert = match self.reader {
            Qemu(_) => "qemu-img convert -O raw",
            Reader::Ewf | Reader::None => "ewfexport -f raw",
        };
        Error::other(format!(
            "it is a {} image, which is only read: keep the writes in an overlay (--overlay DIR), or convert it ({convert})",
            self.name
        ))
    }
}

/// A directory for one socket, removed with what is in it.
struct SocketPlace(PathBuf);

impl SocketPlace {
    fn new() -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let place = std::env::temp_dir().join(format!("mdspace-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&place) {
                Ok(()) => return Ok(Self(place)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {} // of a process that was killed
                Err(error) => return Err(Error::new(error.kind(), format!("{}: {error}", place.display()))),
            }
        }
    }
}

impl Drop for SocketPlace {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0)); // what stays is empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_their_first_bytes_and_nothing_else_is_taken_for_one() {
        let vdi = [&b"<<< Oracle VM VirtualBox Disk Image >>>\n"[..], &[0; 24], b"\x7f\x10\xda\xbe"].concat();
        for (head, name) in [
            (&b"QFI\xfb\0\0\0\x03\0\0"[..], Some("qcow2")),
            (b"QFI\xfb\0\0\0\x02", Some("qcow2")),
            (b"QFI\xfb\0\0\0\x01", Some("qcow")),
            (b"QFI\xfb\0\0\0\x04", None),
            (b"QFI\xfb", None),
            (b"KDMV\x01\0\0\0", Some("VMDK")),
            (b"# Disk DescriptorFile\nversion=1", Some("VMDK")),
            (b"vhdxfile", Some("VHDX")),
            (b"conectix", Some("VHD")),
            (&vdi, Some("VDI")),
            (&vdi[..67], None),
            (b"EVF\x09\x0d\x0a\xff\0\x01", Some("EWF (E01)")),
            (b"EVF2\x0d\x0a\x81\0\x02\x01", Some("EWF (Ex01)")),
            (b"LVF\x09\x0d\x0a\xff\0\x01", Some("EWF (L01)")),
            (b"LEF2\x0d\x0a\x81\0\x02", Some("EWF (Lx01)")),
            (b"EVF\x09\x0d\x0a\xff\x01", None),
            (b"", None),
            (&[0; 512], None),
        ] {
            assert_eq!(ImageFormat::of_bytes(head).map(|format| format.name), name, "{head:?}");
        }
    }
}
