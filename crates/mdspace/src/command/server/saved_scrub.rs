//! The files that hold an array's unfinished scrub and the result of its last one, for which md's metadata has no place.
//!
//! Each array has its own in the user's state directory: `$XDG_STATE_HOME/mdspace`, `~/.local/state/mdspace`, or
//! `/var/lib/mdspace` for root. The unfinished scrub is its report as JSON. Both are replaced as a whole. If they are
//! lost, the scrub starts over, and the last one is unknown; nothing else is lost.

use crate::command::server::replies::json;
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use crate::machine::{Array, Machine, Purpose};
use engine::inspect::find_superblock;
use engine::status::uuid_text;
use engine::{ScrubAction, ScrubReport, ScrubState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time between two checkpoints. A killed scrub repeats no more than this.
const INTERVAL: Duration = Duration::from_secs(10);

/// The extension of the last scrub's file, in place of that of the unfinished one.
const LAST: &str = "last.json";

/// The files for one array's scrubs.
pub(crate) struct SavedScrub {
    /// Of the unfinished scrub; `None` if the user has no directory for it.
    path: Option<PathBuf>,
    has_failed: Cell<bool>,
    last: RefCell<Option<LastScrub>>,
}

/// The result of the last complete scrub of the whole array (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastScrub {
    action: ScrubAction,
    /// Seconds since 1970.
    pub(super) ended: u64,
    /// Rows that were wrong, and those that it left so.
    pub(super) found: u64,
    pub(super) left: u64,
}

impl LastScrub {
    /// The result of a scrub that ends now; `None` of a scrub that did not complete, or covered a part of the array.
    fn of(report: &ScrubReport, array_bytes: u64) -> Option<Self> {
        let is_whole = report.state == ScrubState::Complete && report.array == (0..array_bytes);
        let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let counts = &report.found.counts;
        is_whole.then(|| Self { action: report.action, ended, found: counts.found(), left: counts.left() })
    }
}

impl SavedScrub {
    /// The saved scrub of `array`. One in an overlay is not saved: the overlay may be discarded.
    pub(crate) fn of(array: &Array, machine: &Machine) -> Result<Self, Failure> {
        let path = if machine.has_overlay() { None } else { path(&array.status().uuid) };
        let last = path.as_deref().and_then(|path| read(&path.with_extension(LAST)));
        Ok(Self { path, has_failed: Cell::new(false), last: RefCell::new(last) })
    }

    /// The last complete scrub.
    pub(crate) fn last(&self) -> Option<LastScrub> {
        self.last.borrow().clone()
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
        let Some(report) = self.path.as_deref().and_then(read::<ScrubReport>) else { return };
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
        array.watch_scrub(INTERVAL, &|report| self.save(report, array.bytes())).await;
    }

    fn save(&self, report: &ScrubReport, array_bytes: u64) {
        let ended = LastScrub::of(report, array_bytes);
        if ended.is_some() {
            self.last.replace(ended.clone());
        }
        let Some(path) = &self.path else { return };
        let kept = ended.map_or(Ok(()), |ended| write(&path.with_extension(LAST), &ended));
        let saved = kept.and_then(|()| if report.state.is_over() { remove(path) } else { write(path, report) });
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

/// What was saved; `None` if the file is missing or holds something else. By a value, as clients decode reports: each further
/// source of a report would compile its decoder again.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let value: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    T::deserialize(&value).ok()
}

fn write(path: &Path, value: &impl Serialize) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, json(value).to_string())?;
    std::fs::rename(fresh, path)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
