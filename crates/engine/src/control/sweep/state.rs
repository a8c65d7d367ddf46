//! State and settings of an array's sweeps: the sweep under way, the scrub, and how far checksums were learned.
//!
//! Nothing is read or written here.

use crate::base::notify::{Seen, Signal};
use crate::control::sweep::findings::ScrubReport;
use crate::control::sweep::purpose::{Purpose, SweepRange};
use crate::control::sweep::throttle::{HeldBy, SyncSpeed};
use crate::control::sweep::transfers::SweepTransfers;
use crate::seam::clock::Moment;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The shortest time over which a sweep's rate is measured.
const RATE_INTERVAL: Duration = Duration::from_secs(3);

/// State and settings of an array's sweeps.
#[derive(Default)]
pub(crate) struct Sweeps {
    pub(super) speed: Cell<SyncSpeed>,
    pub(super) transfers: Cell<SweepTransfers>,
    /// No sweep runs while this is set.
    pub(super) frozen: Cell<bool>,
    /// The sweeps in progress, in the order in which they began. [`crate::Array::keep_whole`] runs one at a time, but a
    /// caller may run another beside it.
    pub(super) under_way: RefCell<Vec<Rc<Cell<UnderWay>>>>,
    /// Why the last sweep failed.
    pub(super) failure: RefCell<Option<String>>,
    /// Raised when there may be new work.
    pub(crate) changed: Signal,
    /// The check or repair under way, or the last one.
    pub(super) scrub: RefCell<Option<Scrub>>,
    /// Raised when a scrub begins, continues, pauses or ends.
    pub(crate) scrub_changed: Signal,
    pub(super) learning: Learning,
}

/// A sweep in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    pub(super) purpose: Purpose,
    pub(super) start: u64,
    pub(super) position: u64,
    pub(super) end: u64,
    pub(super) begun: Moment,
    /// Positions for each byte of a member.
    pub(super) scale: f64,
    /// Position and time that the rate is measured from, and the next such point.
    pub(super) since: (u64, Moment),
    pub(super) mark: (u64, Moment),
    pub(super) held_by: Option<HeldBy>,
}

/// A scrub, and the state in which it last went on.
pub(super) struct Scrub {
    pub(super) report: ScrubReport,
    /// The state of `Sweeps::changed` when it last went on.
    pub(super) seen: Option<Seen>,
}

/// Progress of learning.
#[derive(Default)]
pub(super) struct Learning {
    pub(super) position: Cell<u64>,
    pub(super) is_over: Cell<bool>,
    /// The state of `Sweeps::changed` when learning last went on.
    pub(super) seen: Cell<Option<Seen>>,
}

impl Learning {
    /// Starts over, as there may be more to learn.
    pub(super) fn begin_anew(&self) {
        self.position.set(0);
        self.is_over.set(false);
    }

    pub(super) fn learned_to(&self, position: u64) {
        self.position.set(position);
    }
}

/// Progress of a sweep, for its user.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SweepStatus {
    /// `resync`, `recover`, `check` or `repair`, as md's `sync_action`; or `learn`, of checksums.
    pub action: String,
    /// Bytes done of each member (of the array for a resync of RAID-10); for a scrub, of its range.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Progress in percent.
    pub percent: f64,
    /// Rate over the last seconds.
    pub bytes_per_second: u64,
    /// Time left at this rate.
    pub seconds_left: Option<u64>,
    /// Whether this is a scrub that its user paused.
    pub paused: bool,
    /// What keeps the sweep from running faster: `requests`, to which it yields, or `sync-speed-max`. `None`: its members.
    #[serde(default)]
    pub held_by: Option<String>,
}

impl Sweeps {
    /// Progress of the sweep under way at `now`.
    pub(crate) fn status(&self, now: Moment) -> Option<SweepStatus> {
        let UnderWay { purpose, start, position, end, since, begun, scale, held_by, .. } = self.newest()?;
        let (done, total) = (position - start, end - start);
        let seconds = now.since(since.1).as_secs_f64();
        let measured = if seconds > 0.0 { (position - since.0) as f64 / seconds } else { 0.0 };
        // The first window does not wait, so that it alone says nothing of how a limited sweep goes on.
        let speed = self.speed.get();
        let max = speed.max.filter(|_| since.1 == begun && held_by == Some(HeldBy::Maximum));
        let rate = max.map_or(measured, |max| measured.min(max.max(speed.min) as f64 * scale));
        Some(SweepStatus {
            action: purpose.action().to_owned(),
            done_bytes: done,
            total_bytes: total,
            percent: done as f64 * 100.0 / total.max(1) as f64,
            bytes_per_second: rate as u64,
            seconds_left: (rate >= 1.0).then(|| ((total - done) as f64 / rate) as u64),
            paused: false,
            held_by: held_by.map(|held_by| held_by.name().to_owned()),
        })
    }

    /// md's `sync_action`.
    pub(crate) fn action(&self) -> &'static str {
        match self.newest() {
            Some(sweep) => sweep.purpose.action(),
            None if self.frozen.get() => "frozen",
            None => "idle",
        }
    }

    /// Waits until no sweep is under way. The caller keeps new ones from beginning.
    pub(crate) async fn end(&self) {
        while !self.is_idle() {
            self.scrub_changed.changed_since(self.scrub_changed.seen()).await;
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.borrow().is_empty()
    }

    /// Why the last sweep failed; cleared by the next one.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// The sweep in progress that began last.
    fn newest(&self) -> Option<UnderWay> {
        self.under_way.borrow().last().map(|sweep| sweep.get())
    }

    pub(super) fn begin(&self, purpose: Purpose, sweep_range: SweepRange, now: Moment) -> Sweeping<'_> {
        let point = (sweep_range.from, now);
        let SweepRange { start, from: position, end, step, member_bytes } = sweep_range;
        let scale = step as f64 / member_bytes.max(1) as f64;
        let (begun, since, mark) = (now, point, point);
        let sweep = UnderWay { purpose, start, position, end, begun, scale, since, mark, held_by: None };
        let sweep = Rc::new(Cell::new(sweep));
        self.under_way.borrow_mut().push(sweep.clone());
        Sweeping { sweeps: self, sweep }
    }
}

/// Marks a sweep as in progress until it is dropped.
pub(super) struct Sweeping<'a> {
    sweeps: &'a Sweeps,
    pub(super) sweep: Rc<Cell<UnderWay>>,
}

impl Sweeping<'_> {
    pub(super) fn advance(&self, position: u64, now: Moment) {
        let mut sweep = self.sweep.get();
        sweep.position = position;
        if now.since(sweep.mark.1) >= RATE_INTERVAL {
            sweep.since = std::mem::replace(&mut sweep.mark, (position, now));
        }
        self.sweep.set(sweep);
    }
}

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.sweeps.under_way.borrow_mut().retain(|sweep| !Rc::ptr_eq(sweep, &self.sweep));
        self.sweeps.scrub_changed.raise(); // `watch_scrub` and `end` wait until no sweep is under way
    }
}
