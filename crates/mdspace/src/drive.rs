//! The drive that holds a member: the model and the serial number on its label, so that people pull the right one.
//!
//! Both are looked up when a member is opened, and kept: a look at a path whose file system hangs would hang too. A file
//! has no drive here, nor has a device without a label, such as a loop device. It only reads.
//!
//! Facts: udev's database (`ata_id` and `scsi_id` find `ID_MODEL` and `ID_SERIAL_SHORT`; a partition has
//! those of its disk); in sysfs, `drivers/scsi/scsi_sysfs.c` (`vendor`, `model`, `vpd_pg80`),
//! `drivers/nvme/host/sysfs.c` (`model`, `serial`), `drivers/mmc/core/mmc.c` (`name`, `serial`) and
//! `drivers/block/virtio_blk.c` (`serial`).

use format::text::quoted;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

/// What is on the label of a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Drive {
    /// Its maker and model.
    pub(crate) model: Option<String>,
    /// Its serial number.
    pub(crate) serial: Option<String>,
}

/// By name, the drives of members that were opened. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drives(Rc<RefCell<BTreeMap<String, Drive>>>);

impl Drives {
    /// Keeps the drive of the member with this name.
    pub(crate) fn keep(&self, name: String, drive: Option<Drive>) {
        match drive {
            Some(drive) => self.0.borrow_mut().insert(name, drive),
            None => self.0.borrow_mut().remove(&name),
        };
    }

    /// The drive of the member with this name, as it was when the member was opened.
    #[cfg(feature = "command")]
    pub(crate) fn of(&self, name: &str) -> Option<Drive> {
        self.0.borrow().get(name).cloned()
    }
}

impl Drive {
    /// The drive of the block device at `path`.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let (major, minor) = io::device_numbers(path)?;
        Self::numbered(Path::new("/"), major, minor)
    }

    /// The drive of the device with these numbers, as the files below `root` tell.
    fn numbered(root: &Path, major: u32, minor: u32) -> Option<Self> {
        let (known, told) = (Self::known_to_udev(root, major, minor), Self::in_sysfs(root, major, minor));
        let drive = Self { model: known.model.or(told.model), serial: known.serial.or(told.serial) };
        (drive != Self::default()).then_some(drive)
    }

    /// From udev, to which ATA drives tell their whole model.
    fn known_to_udev(root: &Path, major: u32, minor: u32) -> Self {
        let text = bytes_of(&root.join(format!("run/udev/data/b{major}:{minor}")));
        let mut known = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            if let Some(model) = line.strip_prefix(b"E:ID_MODEL=") {
                known.model =
                    label(&model.iter().map(|byte| if *byte == b'_' { b' ' } else { *byte }).collect::<Vec<_>>());
            } else if let Some(serial) = line.strip_prefix(b"E:ID_SERIAL_SHORT=") {
                known.serial = label(serial);
            }
        }
        known
    }

    fn in_sysfs(root: &Path, major: u32, minor: u32) -> Self {
        let Ok(own) = root.join(format!("sys/dev/block/{major}:{minor}")).canonicalize() else {
            return Self::default();
        };
        // The directory of a partition is in that of its disk.
        let disk = if own.join("partition").exists() { own.parent().unwrap_or(&own) } else { &own };
        let mut drive = Self::default();
        for (name, skipped, is_model) in FILES {
            let to = if is_model { &mut drive.model } else { &mut drive.serial };
            if to.is_none() {
                *to = bytes_of(&disk.join(name)).get(skipped..).and_then(label);
            }
        }
        // The vendor of a drive behind a translation of ATA to SCSI is no maker.
        let maker = label(&bytes_of(&disk.join("device/vendor"))).filter(|maker| maker != "ATA");
        if let (Some(maker), Some(model)) = (maker, &mut drive.model) {
            model.insert_str(0, &format!("{maker} "));
        }
        drive
    }
}

/// Files in the directory of a disk in sysfs, bytes that they begin with, and whether the rest is the model, else the serial
/// number. The page of vital product data has a header.
const FILES: [(&str, usize, bool); 5] = [
    ("device/model", 0, true),
    ("device/name", 0, true),
    ("device/serial", 0, false),
    ("serial", 0, false),
    ("device/vpd_pg80", 4, false),
];

/// The bytes of a file; none if it is not there.
fn bytes_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// A text without the blanks and zeros around it; `None` if nothing is left. A drive may claim any bytes.
fn label(text: &[u8]) -> Option<String> {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    let from = text.iter().position(|byte| !is_blank(byte))?;
    let last = text.iter().rposition(|byte| !is_blank(byte))?;
    Some(quoted(&text[from..=last]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_drive_is_named_by_udev_or_by_the_files_of_its_driver() {
        let scsi = ("sys/dev/block/8:0/", [("device/vendor", "ATA     "), ("device/model", "WDC WD40EFRX-68N\n")]);
        let page = ("sys/dev/block/8:0/device/vpd_pg80", "\0\u{1}\0\u{c}  WD-WCC4E000");
        let sas = [("device/vendor", "SEAGATE "), ("device/model", "ST4000NM0023    ")];
        let nvme = [("device/model", "Samsung SSD 980 PRO 1TB   "), ("device/serial", "S5P2NG0R  ")];
        let udev = "E:ID_ATA=1\nE:ID_MODEL=WDC_WD40EFRX-68N32N0\nE:ID_MODEL_ENC=WDC\\x20\nE:ID_SERIAL_SHORT=WD-1\n";
        let below = |files: &[(&'static str, &'static str)]| -> Vec<(String, &'static str)> {
            files.iter().map(|(name, text)| (format!("{}{name}", scsi.0), *text)).collect()
        };
        let sata = [below(&scsi.1), vec![(page.0.to_owned(), page.1)]].concat();
        let by_udev = [sata.clone(), vec![("run/udev/data/b8:0".to_owned(), udev)]].concat();
        let table = [
            (Vec::new(), None),
            (below(&[("device/vendor", "0x1af4\n"), ("serial", "disk-of-vm")]), Some((None, Some("disk-of-vm")))),
            (below(&[("serial", "\u{1b}[2J")]), Some((None, Some("$'\\x1b[2J'")))),
            (below(&sas), Some((Some("SEAGATE ST4000NM0023"), None))),
            (below(&nvme), Some((Some("Samsung SSD 980 PRO 1TB"), Some("S5P2NG0R")))),
            (sata, Some((Some("WDC WD40EFRX-68N"), Some("WD-WCC4E000")))),
            (by_udev, Some((Some("WDC WD40EFRX-68N32N0"), Some("WD-1")))),
        ];
        for (files, expected) in table {
            let root = tempfile::tempdir().expect("a directory");
            for (name, text) in &files {
                let path = root.path().join(name);
                fs::create_dir_all(path.parent().expect("it is in a directory")).expect("of our own");
                fs::write(path, text).expect("of our own");
            }
            let drive = Drive::numbered(root.path(), 8, 0);
            let told = drive.as_ref().map(|drive| (drive.model.as_deref(), drive.serial.as_deref()));
            assert_eq!(told, expected, "{files:?}");
        }
    }

    #[test]
    fn a_partition_is_on_the_drive_of_its_disk() {
        let root = tempfile::tempdir().expect("a directory");
        let disk = root.path().join("sys/devices/pci/block/vdb");
        fs::create_dir_all(disk.join("vdb1")).expect("of our own");
        fs::create_dir_all(root.path().join("sys/dev/block")).expect("of our own");
        fs::write(disk.join("serial"), "of-the-disk").expect("of our own");
        fs::write(disk.join("vdb1/partition"), "1\n").expect("of our own");
        std::os::unix::fs::symlink(disk.join("vdb1"), root.path().join("sys/dev/block/254:17")).expect("of our own");
        let drive = Drive::numbered(root.path(), 254, 17).expect("it has a label");
        assert_eq!(drive.serial.as_deref(), Some("of-the-disk"));
    }

    #[test]
    fn a_file_has_no_drive() {
        assert_eq!(Drive::of(Path::new("/proc/self/exe")), None);
    }
}
