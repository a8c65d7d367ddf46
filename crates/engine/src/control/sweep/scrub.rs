//! Scrubs: begin, pause, cancel and continue a check or repair.
//!
//! A scrub is kept as its report: the request, the position and the findings. [`crate::Array::keep_whole`]
//! runs it after recovery and resync, which interrupt it when they become due. Without `keep_whole`,
//! [`crate::Array::scrub`] runs it.
//!
//! md has no superblock field for the position of a check or repair (`resync_min` is only in the driver's
//! memory). So [`crate::Array::watch_scrub`] hands the report out at every checkpoint for its caller to save,
//! and [`crate::Array::restore_scrub`] continues from a saved report.
//!
//! Facts: `sync_action` in md(4); `action_store` in `drivers/md/md.c`.

use crate::control::state::Control;
use crate::control::sweep::findings::{FINDINGS_LISTED_MAX, Findings, ScrubAction, ScrubReport, ScrubState};
use crate::control::sweep::purpose::{Ending, Purpose, SweepRange};
use crate::control::sweep::state::{Scrub, SweepStatus, Sweeps, UnderWay};
use crate::core::authority::Authority;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind, Refusal};
use crate::seam::member::Member;
use crate::seam::report::{LOG_TARGET, MemberChange};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The unit of md's count for copies: what it compares at a time.
pub(super) const COPIES_UNIT_BYTES: u64 = 64 << 10;

/// A request for a scrub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubRequest {
    /// What to do about findings.
    pub action: ScrubAction,
    /// The array bytes to cover, widened to whole stripes; all when `None`.
    pub range: Option<Range<u64>>,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::begin_scrub`].
    pub(crate) fn begin_scrub(&self, request: &ScrubRequest) -> Result<(), Refusal> {
        self.check_scrub(request.action)?;
        let is_over = self.sweeps.scrub.borrow().as_ref().is_none_or(|scrub| scrub.report.state.is_over());
        if !is_over || self.sweeps.is_scrubbing() {
            let advice = "cancel it first, or continue it if it is paused";
            return Err(Refusal::new("a check or repair is under way").field("sync_action").advice(advice));
        }
        let array_bytes = self.core.geometry().array_bytes();
        let array = request.range.clone().unwrap_or(0..array_bytes);
        if array.is_empty() || array.end > array_bytes {
            let reason =
                format!("bytes {} to {} are not within the array's {array_bytes} bytes", array.start, array.end);
            return Err(Refusal::new(reason).field("range"));
        }
        let positions = self.scrub_positions(&array);
        self.set_scrub(ScrubReport {
            action: request.action,
            state: ScrubState::Waiting,
            failure: None,
            array,
            position: positions.start,
            positions,
            found: Findings::default(),
            changes: Vec::new(),
        });
        tracing::info!(target: LOG_TARGET, "{} begins", request.action.name());
        Ok(())
    }

    /// [`crate::Array::restore_scrub`].
    pub(crate) fn restore_scrub(&self, report: ScrubReport) -> Result<(), Refusal> {
        let is_of_this_array = report.array.end <= self.core.geometry().array_bytes()
            && !report.array.is_empty()
            && report.positions == self.scrub_positions(&report.array)
            && (report.positions.start..=report.positions.end).contains(&report.position);
        if !is_of_this_array {
            return Err(Refusal::new("the scrub that was interrupted is of an array of another shape"));
        }
        if !report.state.is_over() {
            self.check_scrub(report.action)?;
        }
        let state = if report.state == ScrubState::Running { ScrubState::Waiting } else { report.state };
        self.set_scrub(ScrubReport { state, ..report });
        Ok(())
    }

    /// [`crate::Array::pause_scrub`].
    pub(crate) fn pause_scrub(&self, paused: bool) -> Result<(), Refusal> {
        let from: &[ScrubState] =
            if paused { &[ScrubState::Waiting, ScrubState::Running] } else { &[ScrubState::Paused] };
        let to = if paused { ScrubState::Paused } else { ScrubState::Waiting };
        let what = if paused { "no check or repair is under way" } else { "no check or repair is paused" };
        self.change_scrub(from, to, what)?;
        let action = self.sweeps.scrub.borrow().as_ref().map(|scrub| scrub.report.action.name());
        let does = if paused { "is paused" } else { "continues" };
        tracing::info!(target: LOG_TARGET, "{} {does}", action.unwrap_or_default());
        Ok(())
    }

    /// [`crate::Array::cancel_scrub`].
    pub(crate) fn cancel_scrub(&self) -> Result<(), Refusal> {
        let from = [ScrubState::Waiting, ScrubState::Running, ScrubState::Paused];
        self.change_scrub(&from, ScrubState::Cancelled, "no check or repair is under way")
    }

    fn change_scrub(&self, from: &[ScrubState], to: ScrubState, otherwise: &str) -> Result<(), Refusal> {
        let changed = self.update_scrub(|report| {
            let is_one = from.contains(&report.state);
            if is_one {
                report.state = to;
                if to == ScrubState::Cancelled {
                    log_scrub_end(report);
                }
            }
            is_one
        });
        if changed != Some(true) {
            return Err(Refusal::new(otherwise).field("sync_action"));
        }
        self.sweeps.changed.raise();
        Ok(())
    }

    /// [`crate::Array::scrub_at_rest`].
    pub(crate) async fn scrub_at_rest(&self) {
        let sweeps = &self.sweeps;
        loop {
            let seen = sweeps.scrub_changed.seen();
            if !sweeps.is_scrubbing() {
                return;
            }
            sweeps.scrub_changed.changed_since(seen).await;
        }
    }

    /// [`crate::Array::scrub_report`].
    pub(crate) fn scrub_report(&self) -> Option<ScrubReport> {
        self.sweeps.scrub.borrow().as_ref().map(|scrub| scrub.report.clone())
    }

    /// [`crate::Array::scrub`].
    pub(crate) async fn scrub(&self, progress: &dyn Fn(u64, u64)) -> Result<(), ArrayError> {
        if !self.core.health.agreed.get() {
            let reason = "the array was not stopped cleanly: differences may be due to the missing resync";
            return Err(ArrayError::new(ArrayErrorKind::Io, reason));
        }
        while self.is_scrub_due() && !self.core.gate.is_closed() {
            self.go_on_with_scrub(progress).await?;
        }
        Ok(())
    }

    /// [`crate::Array::watch_scrub`].
    pub(crate) async fn watch_scrub(&self, interval: Duration, keep: &dyn Fn(&ScrubReport)) {
        let mut last: Option<ScrubReport> = None;
        loop {
            let seen = self.sweeps.scrub_changed.seen();
            let is_closed = self.core.gate.is_closed() && self.sweeps.is_idle();
            let now = self.scrub_report();
            if let Some(report) = now.as_ref().filter(|_| now != last) {
                keep(report);
            }
            last = now;
            if is_closed {
                return;
            }
            let is_running = last.as_ref().is_some_and(|report| report.state == ScrubState::Running);
            let changed = std::pin::pin!(self.sweeps.scrub_changed.changed_since(seen));
            if is_running {
                let later = std::pin::pin!(self.core.clock.sleep_until(self.core.clock.now() + interval));
                futures_util::future::select(changed, later).await;
            } else {
                changed.await;
            }
        }
    }
}

impl Sweeps {
    /// The status of a paused scrub.
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

    /// Fails a scrub that is not over, as it cannot go on.
    pub(crate) fn give_up_scrub(&self, reason: &str) {
        {
            let mut scrub = self.scrub.borrow_mut();
            let Some(scrub) = scrub.as_mut().filter(|scrub| !scrub.report.state.is_over()) else { return };
            (scrub.report.state, scrub.report.failure) = (ScrubState::Failed, Some(reason.to_owned()));
            log_scrub_end(&scrub.report);
        }
        self.scrub_changed.raise();
        self.changed.raise();
    }

    /// Adds a member's change to the report of a scrub that is not over.
    pub(crate) fn note_change(&self, change: &MemberChange) {
        let mut scrub = self.scrub.borrow_mut();
        let report = scrub.as_mut().map(|scrub| &mut scrub.report).filter(|report| !report.state.is_over());
        if let Some(report) = report.filter(|report| report.changes.len() < FINDINGS_LISTED_MAX) {
            report.changes.push(change.clone());
        }
    }

    fn is_scrubbing(&self) -> bool {
        let is_scrub = |sweep: &Rc<Cell<UnderWay>>| matches!(sweep.get().purpose, Purpose::Check | Purpose::Repair);
        self.under_way.borrow().iter().any(is_scrub)
    }
}

/// Logs the end of a scrub.
fn log_scrub_end(report: &ScrubReport) {
    let (what, counts) = (report.action.name(), &report.found.counts);
    let (found, left) = (counts.found(), counts.left());
    match (&report.failure, report.state) {
        (Some(reason), _) => tracing::warn!(target: LOG_TARGET, "{what} failed: {reason}"),
        (None, ScrubState::Cancelled) => {
            tracing::info!(target: LOG_TARGET, "{what} cancelled; {found} rows found wrong")
        }
        (None, _) if found > 0 => {
            tracing::warn!(target: LOG_TARGET, "{what} complete: {found} rows of 4 KiB found wrong, {left} not corrected");
        }
        (None, _) => tracing::info!(target: LOG_TARGET, "{what} complete: all that was compared agrees"),
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    fn check_scrub(&self, action: ScrubAction) -> Result<(), Refusal> {
        if let Err(error) = self.core.check_not_failed() {
            let advice = "`mdspace status` shows the members; stop the array, and look at each with `mdspace examine`";
            return Err(Refusal::new(error.reason).advice(advice));
        }
        if self.other_side.get().is_some() {
            let reason = "a reshape is under way: a scrub would compare parts of two shapes";
            return Err(Refusal::new(reason).field("superblock.reshape_position"));
        }
        if !self.core.is_redundant() {
            let reason = "the level has neither parity nor copies: there is nothing to compare";
            return Err(Refusal::new(reason).field("level"));
        }
        if self.core.info.read_only && action != ScrubAction::Check || self.core.gate.is_closed_to_writes() {
            return Err(self.core.refuse_read_only());
        }
        if self.core.info.read_only && !self.core.health.agreed.get() {
            let reason =
                "the array was not stopped cleanly, and is read-only: copies and parity may differ until a resync";
            return Err(Refusal::new(reason).field("superblock.resync_offset"));
        }
        Ok(())
    }

    /// Logs how far a scrub came that the end of the array interrupts.
    pub(crate) fn log_unfinished_scrub(&self) {
        let scrub = self.sweeps.scrub.borrow();
        let Some(report) = scrub.as_ref().map(|scrub| &scrub.report).filter(|report| !report.state.is_over()) else {
            return;
        };
        let Range { start, end } = report.positions;
        let percent = (report.position - start) as f64 * 100.0 / (end - start).max(1) as f64;
        tracing::info!(target: LOG_TARGET, "{} is interrupted at {percent:.0} %", report.action.name());
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

    /// The whole stripes, or units of copies, that hold a range of the array.
    fn scrub_positions(&self, array: &Range<u64>) -> Range<u64> {
        self.core.personality().scrubbed(array, COPIES_UNIT_BYTES)
    }

    pub(super) fn is_scrub_due(&self) -> bool {
        let is_due = |state| matches!(state, ScrubState::Waiting | ScrubState::Running);
        self.sweeps.scrub.borrow().as_ref().is_some_and(|scrub| is_due(scrub.report.state))
    }

    /// The first part of a range of positions to compare. What was never written to is left out, as md leaves it out.
    pub(super) fn next_to_scrub(&self, range: Range<u64>) -> Option<Range<u64>> {
        if mutant!("unwritten-scrubbed") { Some(range) } else { self.core.health.unbuilt.first_built(range) }
    }

    /// The action of the scrub under way.
    pub(super) fn scrub_action(&self) -> ScrubAction {
        self.sweeps.scrub.borrow().as_ref().map_or(ScrubAction::Check, |scrub| scrub.report.action)
    }

    /// Continues the due scrub until it is over or other work may be due. True when there may be more to do.
    pub(super) async fn go_on_with_scrub(&self, progress: &dyn Fn(u64, u64)) -> Result<bool, ArrayError> {
        let seen = self.sweeps.changed.seen();
        if let Some(scrub) = self.sweeps.scrub.borrow_mut().as_mut() {
            scrub.seen = Some(seen);
        }
        self.update_scrub(|report| report.state = ScrubState::Running);
        let purpose = if self.scrub_action() == ScrubAction::Check { Purpose::Check } else { Purpose::Repair };
        let mut swept = self.sweep(purpose, progress).await;
        if purpose == Purpose::Repair && swept.is_ok() && !self.core.info.read_only {
            swept = match self.metadata.flush_devices().await {
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
                        log_scrub_end(report);
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
                        return; // already failed, with the reason
                    }
                    report.state = ScrubState::Failed;
                    report.failure = Some(error.reason.clone());
                    log_scrub_end(report);
                });
            }
        }
        self.sweeps.scrub_changed.raise();
        swept.map(|_| self.is_scrub_due())
    }

    /// Whether the scrub under way must stop for now: its user paused or cancelled it, or other work may be
    /// more urgent.
    pub(super) fn is_scrub_interrupted(&self) -> bool {
        let scrub = self.sweeps.scrub.borrow();
        let is_running = scrub.as_ref().is_some_and(|scrub| scrub.report.state == ScrubState::Running);
        !is_running || scrub.as_ref().and_then(|scrub| scrub.seen) != Some(self.sweeps.changed.seen())
    }

    pub(super) fn scrub_range(&self) -> SweepRange {
        let whole = self.resync_range();
        let scrub = self.sweeps.scrub.borrow();
        let report = scrub.as_ref().map(|scrub| &scrub.report);
        let (start, from, end) =
            report.map_or((0, 0, 0), |report| (report.positions.start, report.position, report.positions.end));
        SweepRange { start, from, end, ..whole }
    }

    /// Records that all windows up to `position` are done.
    pub(super) fn scrubbed_to(&self, position: u64) {
        self.update_scrub(|report| report.position = position);
    }

    /// Adds a window's findings to the report, even if earlier windows are not done: repairs must be
    /// reported.
    pub(super) fn note_findings(&self, found: Findings) {
        self.update_scrub(|report| report.found.absorb(found));
    }
}
