//! Where a scrub is kept that is not over: md's metadata has no place for it.
//!
//! A file for each array in the user's state directory, `$XDG_STATE_HOME/mdspace` or
//! `~/.local/state/mdspace`, of root `/var/lib/mdspace`: the report as JSON,
//! replaced as a whole. Losing it loses nothing but the way already gone.

use crate::command::failure::Failure;
use crate::command::output::tell;
use crate::machine::{Array, Machine, Purpose};
use engine::ScrubReport;
use engine::inspect::find_superblock;
use engine::status::uuid_text;
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two checkpoints: a scrub that is killed does no more than this once more.
const INTERVAL: Duration = Duration::from_secs(10);

/// The place for one array's scrub.
pub(crate) struct Kept {
    path: Option<PathBuf>,
    has_failed: Cell<bool>,
}

impl Kept {
    /// That of `array`.
    pub(crate) fn of(array: &Array) -> Result<Self, Failure> {
        Ok(Self { path: path(&array.status().uuid), has_failed: Cell::new(false) })
    }

    /// The scrub of the array on `paths` that was interrupted.
    pub(crate) async fn resumed(machine: &Machine, paths: &[PathBuf]) -> Result<ScrubReport, Failure> {
        let none = || Failure::refused("no scrub of this array was interrupted").advise("begin one without --resume");
        let first = paths.first().ok_or_else(none)?;
        let candidate = machine.open(first, Purpose::Look)?;
        let found = find_superblock(&candidate.name, &candidate.member, &machine.pool).await?;
        path(&uuid_text(&found.superblock.set_uuid)).as_deref().and_then(read).ok_or_else(none)
    }

    /// Hands what is kept to the array that is about to be served.
    pub(crate) fn restore(&self, array: &Array) {
        let Some(report) = self.path.as_deref().and_then(read) else { return };
        let (action, position, end) = (report.action, report.position, report.positions.end);
        match array.restore_scrub(report) {
            Ok(()) => {
                let percent = position as f64 * 100.0 / end.max(1) as f64;
                tell!("note: the scrub ({action:?}) that was interrupted goes on at {percent:.0} %");
            }
            Err(refusal) => tell!("note: a scrub that was interrupted is given up: {refusal}"),
        }
    }

    /// Keeps the array's scrub while it is not over, until the array is stopped.
    pub(crate) async fn keep(&self, array: &Array) {
        array.watch_scrub(INTERVAL, &|report| self.save(report)).await;
    }

    fn save(&self, report: &ScrubReport) {
        let Some(path) = &self.path else { return };
        let saved = if report.state.is_over() { remove(path) } else { write(path, report) };
        if let Err(error) = saved
            && !self.has_failed.replace(true)
        {
            tell!("note: {}: {error}; the scrub begins anew when it is interrupted", path.display());
        }
    }
}

/// The file for the array with this uuid; none where the user has no place for it.
fn path(uuid: &str) -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = match given("XDG_STATE_HOME") {
        Some(state) => state.join("mdspace"),
        None if rustix::process::getuid().is_root() => PathBuf::from("/var/lib/mdspace"),
        None => given("HOME")?.join(".local/state/mdspace"),
    };
    Some(directory.join(format!("{}.scrub.json", uuid.replace(':', "-"))))
}

/// What is there, if it can be understood: whatever else it is, it is no scrub to go on with.
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
