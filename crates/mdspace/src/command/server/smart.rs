//! What smartd last noted of members' drives: whether SMART calls one failing, and its bad sectors.
//!
//! smartd asks the drives, with the rights for it, and keeps what it must remember in a file for each. Reading those needs
//! no rights, wakes no drive and runs no program. A thread of its own reads them, as the file system that holds them may lie
//! on the array that is served. It never writes.
//!
//! Facts: smartmontools' `src/smartd.cpp` (`write_dev_state`, `not_allowed_in_filename`, the numbers of mails).

use crate::drive::Drive;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, UNIX_EPOCH};

/// How files of smartd begin, where no option of its unit says otherwise.
pub(crate) const STATE_PREFIX: &str = "/var/lib/smartmontools/smartd.";

/// Time between two looks. smartd asks the drives every half hour.
const PERIOD: Duration = Duration::from_secs(60);

/// The longest file that is read. smartd's have some KiB.
const BYTES_MAX: u64 = 64 << 10;

/// How the files of ATA, SCSI and NVMe drives end.
const ENDINGS: [&str; 3] = [".ata.state", ".scsi.state", ".nvme.state"];

/// What smartd last noted of a drive. `None`: drives of its kind do not tell, or smartd keeps no note of it. Its fields are a
/// stable interface (docs/json.md).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Smart {
    /// Whether smartd has sent a mail that SMART calls the drive failing.
    pub(super) failing: bool,
    /// Sectors that the drive put elsewhere, that it would like to, and that it could not read.
    pub(super) reallocated_sectors: Option<u64>,
    pub(super) pending_sectors: Option<u64>,
    pub(super) uncorrectable_sectors: Option<u64>,
    /// Errors of the medium, of an NVMe drive.
    pub(super) media_errors: Option<u64>,
    /// How much of its life was used, in percent.
    pub(super) used_percent: Option<u64>,
    /// Seconds since 1970.
    pub(super) noted: u64,
}

/// What smartd noted, by the names of drives. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Smarts(Arc<Mutex<BTreeMap<String, Smart>>>);

impl Smarts {
    /// Starts to read what smartd notes in files that begin so, until all clones are dropped.
    pub(crate) fn watch(prefix: PathBuf) -> Self {
        let smarts = Self::default();
        let known = Arc::downgrade(&smarts.0);
        let started = std::thread::Builder::new().name("smart".to_owned()).spawn(move || keep(&known, &prefix));
        if let Err(error) = started {
            tracing::warn!(%error, "the system starts no thread for what smartd noted");
        }
        smarts
    }

    /// What is noted of a drive.
    pub(super) fn of(&self, Drive { model, serial }: &Drive) -> Option<Smart> {
        let serial = serial.as_ref()?;
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match model {
            Some(model) => known.get(&plain(&format!("{model} {serial}"))).cloned(),
            // A disk of a virtual machine has a serial number alone.
            None => {
                let end = format!("_{}", plain(serial));
                known.iter().find(|(name, _)| name.ends_with(&end)).map(|(_, smart)| smart.clone())
            }
        }
    }
}

/// Reads all files again and again, while they are wanted.
fn keep(known: &Weak<Mutex<BTreeMap<String, Smart>>>, prefix: &Path) {
    while known.strong_count() > 0 {
        let found = all(prefix);
        if let Some(known) = known.upgrade() {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
        std::thread::sleep(PERIOD);
    }
}

/// What the files that begin so hold, by the plain names of their drives.
fn all(prefix: &Path) -> BTreeMap<String, Smart> {
    let (Some(directory), Some(start)) = (prefix.parent(), prefix.file_name()) else { return BTreeMap::new() };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                tracing::debug!(%error, directory = %directory.display(), "what smartd noted cannot be read");
            }
            return BTreeMap::new();
        }
    };
    let found = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_prefix(start.to_str()?)?;
        let name = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending))?;
        let about = entry.metadata().ok().filter(|about| about.is_file() && about.len() <= BYTES_MAX)?;
        let noted = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let text = fs::read_to_string(entry.path()).ok()?;
        Some((without_namespace(plain(name)), Smart { noted, ..Smart::of(&text) }))
    });
    found.collect()
}

impl Smart {
    /// What a file of smartd says. It leaves out what is zero.
    fn of(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let values: BTreeMap<&str, u64> =
            lines.filter_map(|(key, value)| Some((key.trim(), value.trim().parse().ok()?))).collect();
        let attribute = |wanted: u64| {
            let (key, _) = values.iter().find(|(key, value)| {
                key.starts_with("ata-smart-attribute.") && key.ends_with(".id") && **value == wanted
            })?;
            let raw = format!("{}.raw", key.strip_suffix(".id")?);
            Some(values.get(&*raw).copied().unwrap_or(0))
        };
        Self {
            failing: values.get("mail.1.count").is_some_and(|mails| *mails > 0),
            reallocated_sectors: attribute(5),
            pending_sectors: attribute(197),
            uncorrectable_sectors: attribute(198),
            media_errors: values.get("nvme-media-errors").copied(),
            used_percent: values.get("nvme-percentage-used").copied(),
            noted: 0,
        }
    }
}

/// A name with one `_` for each run of what is no letter or digit. smartd and udev put different characters there.
fn plain(name: &str) -> String {
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("_")
}

/// The plain name of a drive, from that of its file: one namespace of an NVMe drive may have a file of its own.
fn without_namespace(mut name: String) -> String {
    if let Some((drive, last)) = name.rsplit_once('_')
        && last.strip_prefix('n').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    {
        name.truncate(drive.len());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILING: &str = "# smartd state file\ntemperature-min = 20\nmail.1.count = 2\nmail.1.first-sent-time = 1700000000\n\
        mail.10.count = 1\nata-smart-attribute.0.id = 1\nata-smart-attribute.0.val = 200\n\
        ata-smart-attribute.4.id = 5\nata-smart-attribute.4.raw = 17\nata-smart-attribute.9.id = 197\n\
        ata-smart-attribute.9.val = 200\nata-smart-attribute.10.id = 198\nata-smart-attribute.10.raw = 3\n";

    #[test]
    fn a_file_of_smartd_tells_of_failures_and_bad_sectors_and_leaves_out_zeros() {
        let ata = Smart::of(FAILING);
        assert!(ata.failing);
        assert_eq!(
            (ata.reallocated_sectors, ata.pending_sectors, ata.uncorrectable_sectors),
            (Some(17), Some(0), Some(3))
        );
        assert_eq!((ata.media_errors, ata.used_percent), (None, None));
        let nvme = Smart::of("mail.2.count = 1\nnvme-percentage-used = 4\nnvme-media-errors = 9\n");
        assert!(!nvme.failing, "another mail");
        assert_eq!((nvme.used_percent, nvme.media_errors, nvme.pending_sectors), (Some(4), Some(9), None));
        for other in ["", "=", "mail.1.count = x", "mail.1.count", "ata-smart-attribute.0.id = 5000000000000000000000"]
        {
            assert_eq!(Smart::of(other), Smart::default(), "{other}");
        }
    }

    #[test]
    fn a_drive_finds_its_file_by_model_and_serial_number() {
        let here = tempfile::tempdir().expect("a directory");
        let prefix = here.path().join("smartd.");
        assert_eq!(all(&here.path().join("none/smartd.")), BTreeMap::new());
        for (name, mails) in [
            ("smartd.WDC_WD40EFRX_68N32N0-WD_WCC7K0.ata.state", 1),
            ("smartd.WDC_WD40EFRX_68N32N0-WD_WCC7K0.ata.state~", 0),
            ("smartd.SEAGATE-ST4000NM0023-Z1Z0.scsi.state", 2),
            ("smartd.Samsung_SSD_980_PRO_1TB-S5P2NG0R-n1.nvme.state", 3),
            ("attrlog.WDC_WD40EFRX_68N32N0-WD_WCC7K0.ata.csv", 4),
        ] {
            let text = format!("ata-smart-attribute.0.id = 5\nata-smart-attribute.0.raw = {mails}\n");
            fs::write(here.path().join(name), text).expect("a file");
        }
        let smarts = Smarts(Arc::new(Mutex::new(all(&prefix))));
        let found = |model: Option<&str>, serial: Option<&str>| {
            let drive = Drive { model: model.map(str::to_owned), serial: serial.map(str::to_owned) };
            smarts.of(&drive).and_then(|smart| smart.reallocated_sectors)
        };
        assert_eq!(found(Some("WDC WD40EFRX-68N32N0"), Some("WD-WCC7K0")), Some(1));
        assert_eq!(found(Some("SEAGATE ST4000NM0023"), Some("Z1Z0")), Some(2));
        assert_eq!(found(Some("Samsung SSD 980 PRO 1TB"), Some("S5P2NG0R")), Some(3));
        assert_eq!(found(None, Some("Z1Z0")), Some(2));
        assert_eq!(found(None, Some("1Z0")), None, "a part of a serial number");
        assert_eq!(found(Some("WDC WD40EFRX-68N32N0"), Some("WD-WCC7K1")), None, "another drive of the model");
        assert_eq!(found(Some("WDC WD40EFRX-68N32N0"), None), None);
    }
}
