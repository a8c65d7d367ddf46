//! Scrubs: who asks for one, how far it is, and when it goes on.
//!
//! A scrub is kept as its report: what was asked, how far it is and what it
//! found. Whoever serves the array runs it with [`Array::keep_whole`], after
//! recovery and resync, which interrupt it when they become due; an array that
//! is not served, with [`Array::scrub`]. md has no field for where a check or
//! repair stands, on no member (`resync_min` is the driver's memory alone); so
//! the report is handed out at every checkpoint for its user to keep
//! ([`Array::watch_scrub`]), and one that is handed in goes on from there.

use super::findings::{FINDINGS_LISTED_MAX, Findings, ScrubAction, ScrubReport, ScrubState};
use super::{Course, Ending, Purpose, SweepStatus, UnderWay};
use crate::array::{Array, Inner};
use crate::changes::{LOG_TARGET, MemberChange};
use crate::clock::Clock;
use crate::error::{ArrayError, ArrayErrorKind, Refusal};
use crate::member::Member;
use crate::signal::Seen;
use std::ops::Range;
use std::time::Duration;

/// Units of md's count for copies: what it compares at a time.
pub(super) const COPIES_UNIT_BYTES: u64 = 64 << 10;

/// A scrub to be begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubRequest {
    /// What to do about what is found.
    pub action: ScrubAction,
    /// The bytes of the array to go over, widened to whole stripes; all when `None`.
    pub range: Option<Range<u64>>,
}

/// A scrub, and whether it stands still for others.
pub(crate) struct Scrub {
    report: ScrubReport,
    /// What had changed in the array when it last went on.
    seen: Option<Seen>,
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Begins a scrub; whoever runs [`Array::keep_whole`] or [`Array::scrub`] carries it out.
    ///
    /// # Errors
    /// One is under way; the level has no redundancy; the range is not within
    /// the array; the array is read-only and it is to repair, or takes no more writes. Nothing changed.
    pub fn begin_scrub(&self, request: &ScrubRequest) -> Result<(), Refusal> {
        let inner = &*self.0;
        inner.check_scrub(request.action)?;
        let is_over = inner.sweeps.scrub.borrow().as_ref().is_none_or(|scrub| scrub.report.state.is_over());
        if !is_over || inner.sweeps.is_scrubbing() {
            let advice = "cancel it first, or let it go on if it is paused";
            return Err(Refusal::new("a check or repair is under way").field("sync_action").advice(advice));
        }
        let array_bytes = inner.geometry().array_bytes();
        let array = request.range.clone().unwrap_or(0..array_bytes);
        if array.is_empty() || array.end > array_bytes {
            let reason = format!("bytes {} to {} are not a part of the array's {array_bytes}", array.start, array.end);
            return Err(Refusal::new(reason).field("range"));
        }
        let positions = inner.scrub_positions(&array);
        inner.set_scrub(ScrubReport {
            action: request.action,
            state: ScrubState::Waiting,
            failure: None,
            array,
            position: positions.start,
            positions,
            found: Findings::default(),
            changes: Vec::new(),
        });
        Ok(())
    }

    /// Takes over a scrub as [`Array::watch_scrub`] handed it out, to go on from there.
    ///
    /// # Errors
    /// As [`Array::begin_scrub`]; and when the report is not of an array of this shape.
    pub fn restore_scrub(&self, report: ScrubReport) -> Result<(), Refusal> {
        let inner = &*self.0;
        let is_of_this_array = report.array.end <= inner.geometry().array_bytes()
            && !report.array.is_empty()
            && report.positions == inner.scrub_positions(&report.array)
            && (report.positions.start..=report.positions.end).contains(&report.position);
        if !is_of_this_array {
            return Err(Refusal::new("the scrub that was interrupted is of an array of another shape"));
        }
        if !report.state.is_over() {
            inner.check_scrub(report.action)?;
        }
        let state = if report.state == ScrubState::Running { ScrubState::Waiting } else { report.state };
        inner.set_scrub(ScrubReport { state, ..report });
        Ok(())
    }

    /// Lets the scrub stand still after what it has begun; `false`: lets it go on.
    ///
    /// # Errors
    /// There is none to pause, or to go on with.
    pub fn pause_scrub(&self, paused: bool) -> Result<(), Refusal> {
        let from: &[ScrubState] =
            if paused { &[ScrubState::Waiting, ScrubState::Running] } else { &[ScrubState::Paused] };
        let to = if paused { ScrubState::Paused } else { ScrubState::Waiting };
        let what = if paused { "no check or repair is under way" } else { "no check or repair is paused" };
        self.change_scrub(from, to, what)
    }

    /// Ends the scrub where it is; what it found stays to be seen.
    ///
    /// # Errors
    /// There is none.
    pub fn cancel_scrub(&self) -> Result<(), Refusal> {
        let from = [ScrubState::Waiting, ScrubState::Running, ScrubState::Paused];
        self.change_scrub(&from, ScrubState::Cancelled, "no check or repair is under way")
    }

    fn change_scrub(&self, from: &[ScrubState], to: ScrubState, otherwise: &str) -> Result<(), Refusal> {
        let inner = &*self.0;
        let changed = inner.update_scrub(|report| {
            let is_one = from.contains(&report.state);
            if is_one {
                report.state = to;
                if to == ScrubState::Cancelled {
                    tell_end(report);
                }
            }
            is_one
        });
        if changed != Some(true) {
            return Err(Refusal::new(otherwise).field("sync_action"));
        }
        inner.sweeps.changed.raise();
        Ok(())
    }

    /// Returns when nothing of a scrub is under way that was paused or cancelled.
    pub async fn scrub_at_rest(&self) {
        let sweeps = &self.0.sweeps;
        loop {
            let seen = sweeps.scrub_changed.seen();
            if !sweeps.is_scrubbing() {
                return;
            }
            sweeps.scrub_changed.changed_since(seen).await;
        }
    }

    /// The scrub that is under way, or the last one.
    pub fn scrub_report(&self) -> Option<ScrubReport> {
        self.0.sweeps.scrub.borrow().as_ref().map(|scrub| scrub.report.clone())
    }

    /// Carries out the scrub that was begun, on an array that nobody keeps
    /// whole; ends when it is over, paused, or the array is stopped. `progress`
    /// is told positions done and the last one.
    ///
    /// # Errors
    /// A resync is due first; or the array is no longer fit for a scrub.
    pub async fn scrub(&self, progress: &dyn Fn(u64, u64)) -> Result<(), ArrayError> {
        let inner = &*self.0;
        if !inner.agreed.get() {
            let reason = "the array was not stopped cleanly: what differs may be for want of a resync";
            return Err(ArrayError::new(ArrayErrorKind::Io, reason));
        }
        while inner.is_scrub_due() && !inner.gate.is_closed() {
            inner.scrub(progress).await?;
        }
        Ok(())
    }

    /// Tells `keep` of the scrub, for its user to keep where it lasts: when it
    /// is begun, goes on, stands still or is over, and every `interval` while
    /// it is under way; until the array is stopped.
    pub async fn watch_scrub(&self, interval: Duration, keep: &dyn Fn(&ScrubReport)) {
        let inner = &*self.0;
        let mut last: Option<ScrubReport> = None;
        loop {
            let seen = inner.sweeps.scrub_changed.seen();
            let is_closed = inner.gate.is_closed() && inner.sweeps.is_idle();
            let now = self.scrub_report();
            if let Some(report) = now.as_ref().filter(|_| now != last) {
                keep(report);
            }
            last = now;
            if is_closed {
                return;
            }
            let is_running = last.as_ref().is_some_and(|report| report.state == ScrubState::Running);
            let changed = std::pin::pin!(inner.sweeps.scrub_changed.changed_since(seen));
            if is_running {
                let later = std::pin::pin!(self.0.clock.sleep_until(self.0.clock.now() + interval));
                futures_util::future::select(changed, later).await;
            } else {
                changed.await;
            }
        }
    }
}

impl super::Sweeps {
    /// The scrub that its user has paused.
    pub(crate) fn paused(&self) -> Option<SweepStatus> {
        let scrub = self.scrub.borrow();
        let report = &scrub.as_ref().filter(|scrub| scrub.report.state == ScrubState::Paused)?.report;
        let purpose = if report.action == ScrubAction::Check { Purpose::Check } else { Purpose::Repair };
        let (done, total) = (report.position - report.positions.start, report.positions.end - report.positions.start);
        Some(SweepStatus {
            action: purpose.action().to_owned(),
            done_bytes: done,
            total_bytes: total,
            percent: done as f64 * 100.0 / total.max(1) as f64,
            bytes_per_second: 0,
            seconds_left: None,
            paused: true,
            held_by: None,
        })
    }

    /// Ends a scrub that is not over, as it cannot go on.
    pub(crate) fn give_up_scrub(&self, reason: &str) {
        {
            let mut scrub = self.scrub.borrow_mut();
            let Some(scrub) = scrub.as_mut().filter(|scrub| !scrub.report.state.is_over()) else { return };
            (scrub.report.state, scrub.report.failure) = (ScrubState::Failed, Some(reason.to_owned()));
            tell_end(&scrub.report);
        }
        self.scrub_changed.raise();
        self.changed.raise();
    }

    /// Adds to the report of a scrub that is not over what became of a member.
    pub(crate) fn note_change(&self, change: &MemberChange) {
        let mut scrub = self.scrub.borrow_mut();
        let report = scrub.as_mut().map(|scrub| &mut scrub.report).filter(|report| !report.state.is_over());
        if let Some(report) = report.filter(|report| report.changes.len() < FINDINGS_LISTED_MAX) {
            report.changes.push(change.clone());
        }
    }

    fn is_scrubbing(&self) -> bool {
        matches!(self.under_way.get(), Some(UnderWay { purpose: Purpose::Check | Purpose::Repair, .. }))
    }
}

/// A line of the log about a scrub that is over.
fn tell_end(report: &ScrubReport) {
    let (what, counts) = (report.action.name(), &report.found.counts);
    let (found, left) = (counts.found(), counts.left());
    match (&report.failure, report.state) {
        (Some(reason), _) => tracing::warn!(target: LOG_TARGET, "{what} given up: {reason}"),
        (None, ScrubState::Cancelled) => {
            tracing::info!(target: LOG_TARGET, "{what} cancelled; {found} rows found wrong")
        }
        (None, _) if found > 0 => {
            tracing::warn!(target: LOG_TARGET, "{what} complete: {found} rows of 4 KiB found wrong, {left} are left so");
        }
        (None, _) => tracing::info!(target: LOG_TARGET, "{what} complete: all that was compared agrees"),
    }
}

impl<M: Member, C: Clock> Inner<M, C> {
    pub(crate) fn note_in_scrub(&self, change: &MemberChange) {
        self.sweeps.note_change(change);
    }

    fn check_scrub(&self, action: ScrubAction) -> Result<(), Refusal> {
        if let Err(error) = self.check_unbroken() {
            let advice = "`mdspace status` shows the members; stop the array, and look at each with `mdspace examine`";
            return Err(Refusal::new(error.reason).advice(advice));
        }
        if !self.is_redundant() {
            let reason = "the level has neither parity nor copies: there is nothing to compare";
            return Err(Refusal::new(reason).field("level"));
        }
        if self.read_only && action != ScrubAction::Check {
            return Err(Refusal::new("the array is read-only"));
        }
        if self.read_only && !self.agreed.get() {
            let reason =
                "the array was not stopped cleanly, and is read-only: copies and parity may differ until a resync";
            return Err(Refusal::new(reason).field("superblock.resync_offset"));
        }
        Ok(())
    }

    fn set_scrub(&self, report: ScrubReport) {
        self.sweeps.scrub.replace(Some(Scrub { report, seen: None }));
        self.sweeps.scrub_changed.raise();
        self.sweeps.changed.raise();
    }

    fn update_scrub<T>(&self, change: impl FnOnce(&mut ScrubReport) -> T) -> Option<T> {
        let mut scrub = self.sweeps.scrub.borrow_mut();
        let report = &mut scrub.as_mut()?.report;
        let before = report.state;
        let result = change(report);
        if report.state != before {
            self.sweeps.scrub_changed.raise();
        }
        Some(result)
    }

    /// Whole stripes, or units, that hold a range of the array.
    fn scrub_positions(&self, array: &Range<u64>) -> Range<u64> {
        match self.geometry() {
            format::geometry::Geometry::Parity(_) => self.covered(array),
            format::geometry::Geometry::Mapping(mapping) => {
                let unit = COPIES_UNIT_BYTES.max(mapping.chunk_bytes());
                array.start / unit * unit..array.end.next_multiple_of(unit).min(mapping.array_bytes())
            }
        }
    }

    pub(super) fn is_scrub_due(&self) -> bool {
        let is_due = |state| matches!(state, ScrubState::Waiting | ScrubState::Running);
        self.sweeps.scrub.borrow().as_ref().is_some_and(|scrub| is_due(scrub.report.state))
    }

    /// What the scrub under way is to do.
    pub(super) fn scrub_action(&self) -> ScrubAction {
        self.sweeps.scrub.borrow().as_ref().map_or(ScrubAction::Check, |scrub| scrub.report.action)
    }

    /// Goes on with the scrub that is due, until it is over or something else
    /// is to be looked at. True when there may be more to do.
    pub(super) async fn scrub(&self, progress: &dyn Fn(u64, u64)) -> Result<bool, ArrayError> {
        let seen = self.sweeps.changed.seen();
        if let Some(scrub) = self.sweeps.scrub.borrow_mut().as_mut() {
            scrub.seen = Some(seen);
        }
        self.update_scrub(|report| report.state = ScrubState::Running);
        let purpose = if self.scrub_action() == ScrubAction::Check { Purpose::Check } else { Purpose::Repair };
        let mut swept = self.sweep(purpose, progress).await;
        if purpose == Purpose::Repair && swept.is_ok() && !self.read_only {
            swept = match self.flush_devices().await {
                Ok(()) => swept,
                Err(error) => Err(error),
            };
        }
        let is_running = |report: &ScrubReport| report.state == ScrubState::Running;
        match &swept {
            Ok((Ending::Complete, _)) => {
                self.update_scrub(|report| {
                    report.position = report.positions.end;
                    if is_running(report) {
                        report.state = ScrubState::Complete;
                        tell_end(report);
                    }
                });
            }
            Ok((Ending::Interrupted, _)) => {
                self.update_scrub(|report| {
                    if is_running(report) {
                        report.state = ScrubState::Waiting;
                    }
                });
            }
            Err(error) => {
                self.update_scrub(|report| {
                    if report.state.is_over() {
                        return; // given up already, with the reason
                    }
                    report.state = ScrubState::Failed;
                    report.failure = Some(error.reason.clone());
                    tell_end(report);
                });
            }
        }
        self.sweeps.scrub_changed.raise();
        swept.map(|_| self.is_scrub_due())
    }

    /// Whether the scrub under way has to stand still: its user wants it to, or something may be more urgent.
    pub(super) fn is_scrub_interrupted(&self) -> bool {
        let scrub = self.sweeps.scrub.borrow();
        let is_running = scrub.as_ref().is_some_and(|scrub| scrub.report.state == ScrubState::Running);
        !is_running || scrub.as_ref().and_then(|scrub| scrub.seen) != Some(self.sweeps.changed.seen())
    }

    pub(super) fn scrub_course(&self) -> Course {
        let whole = self.resync_course();
        let scrub = self.sweeps.scrub.borrow();
        let report = scrub.as_ref().map(|scrub| &scrub.report);
        let (start, from, end) =
            report.map_or((0, 0, 0), |report| (report.positions.start, report.position, report.positions.end));
        Course { start, from, end, ..whole }
    }

    /// All windows up to `position` are done.
    pub(super) fn scrubbed_to(&self, position: u64) {
        self.update_scrub(|report| report.position = position);
    }

    /// What a window found, whether or not those before it are done: what was healed must not go unsaid.
    pub(super) fn note_findings(&self, found: Findings) {
        self.update_scrub(|report| report.found.absorb(found));
    }
}
