//! Images of disks in the formats of virtual machines and of forensics: recognised by their first bytes, and read by
//! programs that know them.
//!
//! qemu-nbd reads the image in a process of its own and exports its disk on a unix socket, which only this user can
//! reach and which is removed once it is connected. qemu-nbd ends with that connection, so no process is left behind,
//! however this one ends. It reads an image in use by a virtual machine as little as qemu does.
//!
//! Only regular files are looked at: a disk that happens to begin with such bytes stays a disk. Nothing here decodes more
//! than the first bytes, and nothing is ever written. Sources of the magic bytes: qemu's docs/interop/qcow2.txt and
//! block/{vmdk,vhdx,vpc,vdi}.c, and the documentation of libewf.

use export::nbd::address::{Address, ServerAddress};
use export::nbd::member::Remote;
use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// A format of images that is not read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageFormat {
    name: &'static str,
    /// qemu's name of it; `None` if qemu cannot read it.
    qemu: Option<&'static str>,
    at: usize,
    magic: &'static [u8],
}

const fn format(name: &'static str, qemu: Option<&'static str>, at: usize, magic: &'static [u8]) -> ImageFormat {
    ImageFormat { name, qemu, at, magic }
}

const FORMATS: [ImageFormat; 10] = [
    format("qcow2", Some("qcow2"), 0, b"QFI\xfb\0\0\0\x02"),
    format("qcow2", Some("qcow2"), 0, b"QFI\xfb\0\0\0\x03"),
    format("qcow", Some("qcow"), 0, b"QFI\xfb\0\0\0\x01"),
    format("VMDK", Some("vmdk"), 0, b"KDMV"),
    format("VMDK", Some("vmdk"), 0, b"COWD"),
    format("VMDK", Some("vmdk"), 0, b"# Disk DescriptorFile"),
    format("VHDX", Some("vhdx"), 0, b"vhdxfile"),
    format("VHD", Some("vpc"), 0, b"conectix"),
    format("VDI", Some("vdi"), 64, b"\x7f\x10\xda\xbe"),
    format("EWF (E01)", None, 0, b"EVF\x09\x0d\x0a\xff\0"),
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

    /// Lets the image at `path` be read.
    ///
    /// # Errors
    /// What is missing for that, or the words of the program that cannot read the image.
    pub(crate) fn open(self, path: &Path) -> Result<Remote> {
        let Self { name, qemu, .. } = self;
        let Some(format) = qemu else {
            return Err(Error::other(format!(
                "it is an image in the format {name}, which mdspace does not read; `ewfmount FILE DIRECTORY` of the Debian \
                 package ewf-tools shows its disk as DIRECTORY/ewf1"
            )));
        };
        let place = SocketPlace::new()?;
        let socket = place.0.join("nbd");
        // An absolute path never begins like an URL or an option of qemu's.
        let image = path.canonicalize()?;
        let mut program = Command::new("qemu-nbd");
        program.args(["--fork", "--read-only", "--format", format, "--socket"]).arg(&socket).arg("--").arg(&image);
        let output = program.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::other(format!(
                "it is a {name} image, which qemu-nbd reads: install it (Debian package qemu-utils)"
            )),
            _ => Error::new(error.kind(), format!("it is a {name} image, and qemu-nbd does not start: {error}")),
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().lines().last().unwrap_or_default().trim_start_matches("qemu-nbd: ");
            return Err(Error::other(format!("it is a {name} image, and qemu-nbd cannot read it: {said}")));
        }
        Remote::connect(&Address { server: ServerAddress::Unix(socket), export: String::new() })
    }

    /// Why it is not written to.
    pub(crate) fn refusal_to_write(self) -> Error {
        Error::other(format!(
            "it is a {} image, which is only read: keep the writes in an overlay (--overlay DIR), or convert it \
             (qemu-img convert -O raw)",
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
            (b"", None),
            (&[0; 512], None),
        ] {
            assert_eq!(ImageFormat::of_bytes(head).map(|format| format.name), name, "{head:?}");
        }
    }
}
