//! The file that holds an unfinished scrub, for which md's metadata has no place.
//!
//! Each array has one in the user's state directory: `$XDG_STATE_HOME/mdspace`, `~/.local/state/mdspace`, or
//! `/var/lib/mdspace` for root. It is the report as JSON, and replaced as a whole. If it is lost, the scrub starts
//! over; nothing else is lost.

use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use crate::machine::{Array, Machine, Purpose};
use engine::ScrubReport;
use engine::inspect::find_superblock;
use engine::status::uuid_text;
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two checkpoints. A killed scrub repeats no more than this.
const INTERVAL: Duration = Duration::from_secs(10);

/// The file for one array's scrub.
pub(crate) struct SavedScrub {
    /// `None` if the user has no directory for it.
    path: Option<PathBuf>,
    has_failed: Cell<bool>,
}

impl SavedScrub {
    /// The saved scrub of `array`.
    pub(crate) fn of(array: &Array) -> Result<Self, Failure> {
        Ok(Self { path: path(&array.status().uuid), has_failed: Cell::new(false) })
    }

    /// The interrupted scrub of the array on `paths`.
    pub(crate) async fn resumed(machine: &Machine, paths: &[PathBuf]) -> Result<ScrubReport, Failure> {
        let none = || Failure::refused("no scrub of this array was interrupted").advise("start one without --resume");
        let first = paths.first().ok_or_else(none)?;
        let candidate = machine.open(first, Purpose::Look)?;
        let found = find_superblock(&candidate.name, &candidate.member, &machine.pool).await?;
        path(&uuid_text(&found.superblock.set_uuid)).as_deref().and_then(read).ok_or_else(none)
    }

    /// Passes the saved scrub to the array, which continues it.
    pub(crate) fn restore(&self, array: &Array) {
        let Some(report) = self.path.as_deref().and_then(read) else { return };
        let (action, position, end) = (report.action, report.position, report.positions.end);
        match array.restore_scrub(report) {
            Ok(()) => {
                let percent = position as f64 * 100.0 / end.max(1) as f64;
                tell!("note: the interrupted scrub ({action:?}) continues at {percent:.0} %");
            }
            Err(refusal) => tell!("note: the interrupted scrub is dropped: {refusal}"),
        }
    }

    /// Saves the array's scrub at each checkpoint, until the array is stopped. The end of the scrub removes the file.
    pub(crate) async fn keep(&self, array: &Array) {
        array.watch_scrub(INTERVAL, &|report| self.save(report)).await;
    }

    fn save(&self, report: &ScrubReport) {
        let Some(path) = &self.path else { return };
        let saved = if report.state.is_over() { remove(path) } else { write(path, report) };
        if let Err(error) = saved
            && !self.has_failed.replace(true)
        {
            tell!("note: {}: {error}; if the scrub is interrupted, it starts over", path.display());
        }
    }
}

/// The file for the array `uuid`; `None` if the user has no directory for it.
fn path(uuid: &str) -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = match given("XDG_STATE_HOME") {
        Some(state) => state.join("mdspace"),
        None if rustix::process::getuid().is_root() => PathBuf::from("/var/lib/mdspace"),
        None => given("HOME")?.join(".local/state/mdspace"),
    };
    Some(directory.join(format!("{}.scrub.json", uuid.replace(':', "-"))))
}

/// The saved report; `None` if the file is missing or is not such a report.
fn read(path: &Path) -> Option<ScrubReport> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn write(path: &Path, report: &ScrubReport) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, serde_json::to_vec(report)?)?;
    std::fs::rename(fresh, path)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
