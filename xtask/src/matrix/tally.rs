//! Counts of what the matrix did, so that its extent is measured.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cell::{Cell, Level, Origin};

/// A counter for several threads.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of successes.
#[derive(Default)]
pub(crate) struct Tally {
    /// Arrays made by mdadm and the kernel.
    pub(crate) made_by_kernel: Counter,
    /// Arrays made by `mdspace create`.
    pub(crate) made_here: Counter,
    /// Whole arrays that mdspace read correctly.
    pub(crate) read_healthy: Counter,
    /// Arrays with members missing that mdspace read correctly.
    pub(crate) read_degraded: Counter,
    /// Reads that must be refused, and were.
    pub(crate) refused: Counter,
    /// Runs of `mdspace write` with all members present.
    pub(crate) written_healthy: Counter,
    /// Runs of `mdspace write` with members missing.
    pub(crate) written_degraded: Counter,
    /// Arrays that the kernel assembled, checked, compared and wrote to.
    pub(crate) taken_by_kernel: Counter,
    /// Those among them that Debian 13's kernel judged.
    pub(crate) taken_by_newer: Counter,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("arrays made by mdadm and the kernel", &self.made_by_kernel),
            ("arrays made by mdspace", &self.made_here),
            ("whole arrays read by mdspace, identical", &self.read_healthy),
            ("whole arrays read by mdspace with members missing, identical", &self.read_degraded),
            ("reads with too few members, refused", &self.refused),
            ("writes by mdspace", &self.written_healthy),
            ("writes by mdspace with members missing", &self.written_degraded),
            ("arrays assembled by the kernel without --force, checked, identical", &self.taken_by_kernel),
            ("of these by the newer of two kernels", &self.taken_by_newer),
        ];
        for (what, counter) in rows {
            writeln!(f, "{:>6}  {what}", counter.get())?;
        }
        Ok(())
    }
}

/// The number of cells by origin and level, with a line for each origin.
pub(crate) fn cells_by_kind(cells: &[Cell]) -> String {
    let mut kinds: BTreeMap<Origin, BTreeMap<Level, usize>> = BTreeMap::new();
    for cell in cells {
        *kinds.entry(cell.origin).or_default().entry(cell.level).or_default() += 1;
    }
    let mut text = String::new();
    for (origin, levels) in kinds {
        let levels: Vec<String> = levels.iter().map(|(level, count)| format!("{}: {count}", level.name())).collect();
        text += &format!("cells made {:13}  {}\n", origin.made(), levels.join(", "));
    }
    text
}
