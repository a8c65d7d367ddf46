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
use std::path::{Path, PathBuf};
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

/// The header of a page of vital product data: type, number of the page, and length.
const VPD_HEADER_BYTES: usize = 4;

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
        let text = std::fs::read_to_string(root.join(format!("run/udev/data/b{major}:{minor}"))).unwrap_or_default();
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix("E:")?.strip_prefix(key));
        let model = value("ID_MODEL=").map(|model| model.replace('_', " "));
        Self { model: model.and_then(label), serial: value("ID_SERIAL_SHORT=").map(str::to_owned).and_then(label) }
    }

    fn in_sysfs(root: &Path, major: u32, minor: u32) -> Self {
        let own = root.join(format!("sys/dev/block/{major}:{minor}"));
        let Ok(own) = own.canonicalize() else { return Self::default() };
        // The directory of a partition is in that of its disk.
        let is_partition = own.join("partition").exists();
        let disk = own.parent().filter(|_| is_partition).map_or(own.clone(), PathBuf::from);
        let text = |name: &str| std::fs::read_to_string(disk.join(name)).ok().and_then(label);
        let page = |name: &str| {
            let page = std::fs::read(disk.join(name)).ok()?;
            label(String::from_utf8_lossy(page.get(VPD_HEADER_BYTES..)?).into_owned())
        };
        let model = match (text("device/vendor"), text("device/model").or_else(|| text("device/name"))) {
            // The vendor of virtio's disks is a number. That of a drive behind a translation of ATA to SCSI is no maker.
            (Some(vendor), Some(model)) if vendor != "ATA" && !vendor.starts_with("0x") => {
                Some(format!("{vendor} {model}"))
            }
            (_, model) => model,
        };
        Self { model, serial: text("device/serial").or_else(|| text("serial")).or_else(|| page("device/vpd_pg80")) }
    }
}

/// A text without the blanks and zeros around it; `None` if nothing is left. A drive may claim any bytes.
fn label(text: String) -> Option<String> {
    let text = text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0');
    (!text.is_empty()).then(|| quoted(text.as_bytes()))
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
