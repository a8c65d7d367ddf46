//! Runs one sweep: windows several at a time, in order, with checkpoints beside them, at the throttle's pace.
//!
//! What a window does is decided by the sweep's purpose, in the files named for it.

use crate::base::gate::Timed;
use crate::base::notify::Signal;
use crate::base::yield_now::yield_now;
use crate::control::state::Control;
use crate::control::sweep::findings::Findings;
use crate::control::sweep::purpose::{Ending, Purpose, SweepRange, Tally, Target};
use crate::control::sweep::state::UnderWay;
use crate::control::sweep::throttle::Throttle;
use crate::control::sweep::transfers::SweepTransfers;
use crate::seam::clock::{Clock, Moment};
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError};
use crate::seam::report::LOG_TARGET;
use format::geometry::Level;
use futures_util::future::{join, select};
use futures_util::{Stream, StreamExt, stream};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// The longest time between checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);

/// Checkpoints in a shorter sweep: md's number.
const CHECKPOINTS: u64 = 16;

/// Progress of a sweep, and its failure.
struct Progress {
    position: Cell<u64>,
    /// No window is under way, and none will begin.
    is_over: Cell<bool>,
    /// The windows ended before the last one, as something interrupted them.
    is_cut: Cell<bool>,
    /// Raised when position or `is_over` changes.
    moved: Signal,
    /// The first failure. No window begins after it; those under way end.
    failure: RefCell<Option<ArrayError>>,
    throttle: RefCell<Throttle>,
    /// Raised when a window ends, for the throttle.
    ended: Signal,
    under_way: Rc<Cell<UnderWay>>,
}

impl Progress {
    fn from(position: u64, throttle: Throttle, under_way: Rc<Cell<UnderWay>>) -> Self {
        Self {
            under_way,
            position: Cell::new(position),
            is_over: Cell::new(false),
            is_cut: Cell::new(false),
            moved: Signal::default(),
            failure: RefCell::default(),
            throttle: RefCell::new(throttle),
            ended: Signal::default(),
        }
    }

    /// Shows what the throttle waits for.
    fn note_held(&self) {
        self.under_way.set(UnderWay { held_by: self.throttle.borrow().held_by(), ..self.under_way.get() });
    }

    fn is_clear(&self) -> bool {
        self.failure.borrow().is_none()
    }

    fn block(&self, error: ArrayError) {
        self.failure.borrow_mut().get_or_insert(error);
    }
}

/// Logs the end of a sweep; see [`Control::log_begin`].
fn log_end(purpose: Purpose, ending: Ending, failure: Option<&ArrayError>) {
    let name = purpose.name();
    match (purpose, failure, ending) {
        (Purpose::Check | Purpose::Repair, ..) => {}
        (_, Some(error), _) => tracing::warn!(target: LOG_TARGET, "{name} cannot continue: {}", error.reason),
        (_, None, Ending::Complete) => tracing::info!(target: LOG_TARGET, "{name} is complete"),
        (_, None, Ending::Interrupted) => {
            tracing::info!(target: LOG_TARGET, "{name} is interrupted, and continues later")
        }
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Runs one sweep, from where the last one of its kind got to. `progress` is given the position and the
    /// last one.
    pub(super) async fn sweep(
        &self,
        purpose: Purpose,
        progress: &dyn Fn(u64, u64),
    ) -> Result<(Ending, Tally), ArrayError> {
        let sweep_range = self.sweep_range(purpose);
        self.sweeps.failure.take();
        let sweeping = self.sweeps.begin(purpose, sweep_range, self.core.clock.now());
        self.log_begin(purpose, sweep_range);
        if purpose == Purpose::Recovery && !mutant!("journal-kept-over-recovery") {
            self.metadata.void_journal().await?;
        }
        let reached = Progress::from(sweep_range.from, self.throttle(purpose, sweep_range), sweeping.sweep.clone());
        let _timed = reached.throttle.borrow().takes_turns().then(|| self.time_requests());
        let report = |position| {
            sweeping.advance(position, self.core.clock.now());
            progress(position, sweep_range.end);
        };
        let (swept, ()) = join(
            self.visit_all(purpose, sweep_range, &reached, &report),
            self.keep_checkpoints(purpose, sweep_range, &reached),
        )
        .await;
        let (ending, tally) = swept;
        let failure = reached.failure.take();
        let is_whole = !reached.is_cut.get() && !self.is_interrupted(purpose);
        let ending = if is_whole { ending } else { Ending::Interrupted };
        log_end(purpose, ending, failure.as_ref());
        match failure {
            Some(error) => Err(error),
            None if ending == Ending::Complete => {
                self.advance(purpose, reached.position.get()..sweep_range.end);
                Ok((Ending::Complete, tally))
            }
            None => Ok((Ending::Interrupted, tally)),
        }
    }

    /// Logs the start of a sweep. Scrubs log only their end, as higher priorities interrupt and restart them
    /// often.
    fn log_begin(&self, purpose: Purpose, sweep_range: SweepRange) {
        let SweepRange { start, from, end, .. } = sweep_range;
        let percent = (from - start) as f64 * 100.0 / (end - start).max(1) as f64;
        let of = |targets: Vec<Target<M>>| {
            let names = targets.iter().map(|target| target.device.name.escape_debug().to_string());
            format!(" of {}", names.collect::<Vec<_>>().join(", "))
        };
        let whose = match purpose {
            Purpose::Recovery => of(self.targets()),
            Purpose::Resync => String::new(),
            Purpose::Check | Purpose::Repair | Purpose::Learn => return,
        };
        tracing::info!(target: LOG_TARGET, "{}{whose} begins at {percent:.0} %", purpose.name());
    }

    /// Visits all windows, several in flight at a time. `report` is called with each position below which all
    /// is done.
    async fn visit_all(
        &self,
        purpose: Purpose,
        sweep_range: SweepRange,
        reached: &Progress,
        report: &dyn Fn(u64),
    ) -> (Ending, Tally) {
        let in_flight_bytes = self.sweeps.transfers.get().in_flight_bytes;
        let depth = (in_flight_bytes / sweep_range.member_bytes).max(1) as usize;
        let windows = self.windows(purpose, sweep_range, reached);
        let visited = windows.map(async |range| (range.end, self.visit_timed(purpose, &range, reached).await));
        let mut done = pin!(visited.buffered(depth));
        let mut tally = Tally::default();
        let mut ending = Ending::Complete;
        while let Some((end, outcome)) = done.next().await {
            match outcome {
                Ok(Some(more)) if ending == Ending::Complete && reached.is_clear() => {
                    self.note_findings(more.found);
                    tally += Tally { found: Findings::default(), ..more };
                    self.advance(purpose, reached.position.replace(end)..end);
                    reached.moved.raise();
                    report(end);
                }
                Ok(Some(more)) => self.note_findings(more.found), // a later window than one that is not done
                Ok(None) => ending = Ending::Interrupted,
                Err(error) => reached.block(error),
            }
        }
        reached.is_over.set(true);
        reached.moved.raise();
        (ending, tally)
    }

    /// Writes checkpoints until the sweep is over. Windows go on meanwhile: a flush waits for earlier
    /// requests of its member, so all windows would drain otherwise. A scrub has no checkpoint on the
    /// members; its caller keeps the report.
    async fn keep_checkpoints(&self, purpose: Purpose, sweep_range: SweepRange, reached: &Progress) {
        if matches!(purpose, Purpose::Check | Purpose::Repair | Purpose::Learn) {
            return;
        }
        let mut last = (sweep_range.from, self.core.clock.now());
        while !reached.is_over.get() {
            if reached.is_clear() && self.is_checkpoint_due(sweep_range, last, reached.position.get()) {
                last = (reached.position.get(), self.core.clock.now());
                self.checkpoint().await.unwrap_or_else(|error| reached.block(error));
            } else {
                reached.moved.changed_since(reached.moved.seen()).await;
            }
        }
    }

    fn sweep_range(&self, purpose: Purpose) -> SweepRange {
        match purpose {
            Purpose::Resync => self.resync_range(),
            Purpose::Recovery => self.recovery_range(),
            Purpose::Check | Purpose::Repair => self.scrub_range(),
            Purpose::Learn => self.learning_range(),
        }
    }

    /// The first part of a range with work to do, widened to whole blocks, as a bit may cover less than a
    /// block. It may be cut after `most` bytes.
    fn next_due(&self, purpose: Purpose, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        let due = match purpose {
            Purpose::Resync => self.next_to_resync(range.clone(), most),
            Purpose::Recovery => self.next_to_recover(range.clone(), most),
            Purpose::Check | Purpose::Repair => self.next_to_scrub(range.clone()),
            Purpose::Learn => self.next_to_learn(range.clone(), most),
        }?;
        let (start, end) = (
            due.start / self.core.info.block_bytes * self.core.info.block_bytes,
            due.end.next_multiple_of(self.core.info.block_bytes),
        );
        if mutant!("bits-mid-block") {
            return Some(due);
        }
        Some(start.max(range.start)..end.min(range.end))
    }

    /// The windows to visit, each when the throttle allows it. Ends early when the array is stopped or a
    /// window failed.
    fn windows<'a>(
        &'a self,
        purpose: Purpose,
        sweep_range: SweepRange,
        reached: &'a Progress,
    ) -> impl Stream<Item = Range<u64>> + 'a {
        stream::unfold(sweep_range.from, move |at| async move {
            let due = if at < sweep_range.end {
                self.next_due(purpose, at..sweep_range.end, sweep_range.step)?
            } else {
                return None;
            };
            // With members that answer at once, a sweep would otherwise never let requests run.
            yield_now().await;
            if !self.is_window_due(purpose, reached).await {
                return None;
            }
            let member_bytes = reached.throttle.borrow_mut().start(self.core.clock.now(), self.sweeps.speed.get());
            let step = sweep_range.step_of(member_bytes, self.core.info.block_bytes);
            let end = ((due.start / step + 1) * step).min(due.end);
            Some((due.start..end, end))
        })
    }

    /// Waits until the throttle allows the next window; false when the sweep has to end instead.
    async fn is_window_due(&self, purpose: Purpose, reached: &Progress) -> bool {
        loop {
            if self.is_interrupted(purpose) {
                // Also if what interrupts it is over before the windows under way have ended.
                reached.is_cut.set(!mutant!("sweep-cut-and-complete"));
                return false;
            }
            if !reached.is_clear() || self.has_nothing_left(purpose) {
                return false;
            }
            let (seen, now) = (reached.ended.seen(), self.core.clock.now());
            let wait = reached.throttle.borrow_mut().wait(now, self.core.gate.load(), &mut self.core.gate.served());
            reached.note_held();
            let Some(wait) = wait else { return true };
            let (sleep, ended) =
                (pin!(self.core.clock.sleep_until(now + wait)), pin!(reached.ended.changed_since(seen)));
            select(sleep, ended).await;
        }
    }

    /// Whether the members that the sweep was for have left: those to recover, or all copies but one that could differ. A
    /// slow sweep ends then, as md's does, and not at its next window.
    fn has_nothing_left(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Recovery => self.targets_of_sweep().is_empty(),
            Purpose::Resync => {
                let slots = self.core.roster.slots.borrow();
                let mut present = slots.iter().flatten();
                let first = present.next().map(|device| device.superblock.borrow().level);
                first == Some(Level::Raid1) && present.next().is_none()
            }
            Purpose::Check | Purpose::Repair | Purpose::Learn => false,
        }
    }

    /// Processes one window, and tells the throttle when it has ended.
    async fn visit_timed(
        &self,
        purpose: Purpose,
        range: &Range<u64>,
        reached: &Progress,
    ) -> Result<Option<Tally>, ArrayError> {
        let outcome = self.visit(purpose, range).await;
        let mut throttle = reached.throttle.borrow_mut();
        throttle.end(self.core.clock.now());
        if throttle.takes_turns() {
            reached.ended.raise();
        }
        outcome
    }

    /// The throttle of a new sweep. Users wait for a resync or a recovery, but not for a scrub.
    fn throttle(&self, purpose: Purpose, sweep_range: SweepRange) -> Throttle {
        let (now, load) = (self.core.clock.now(), self.core.gate.load());
        match purpose {
            Purpose::Resync | Purpose::Recovery => {
                let in_flight_bytes = self.sweeps.transfers.get().in_flight_bytes;
                Throttle::in_turns(now, load, sweep_range.member_bytes, in_flight_bytes)
            }
            Purpose::Check | Purpose::Repair | Purpose::Learn => {
                Throttle::at_minimum(now, load, sweep_range.member_bytes)
            }
        }
    }

    fn time_requests(&self) -> Timed<'_> {
        let clock = self.core.clock.clone();
        self.core.gate.time_requests(Box::new(move || clock.now().nanos))
    }

    /// Processes one window; `None` when the array is stopping, or has become read-only.
    async fn visit(&self, purpose: Purpose, range: &Range<u64>) -> Result<Option<Tally>, ArrayError> {
        let Some(_inside) = self.core.gate.enter_background_to_write() else { return Ok(None) };
        match purpose {
            Purpose::Resync => self.resync_window(range).await.map(Some),
            Purpose::Recovery => self.recover_window(range).await.map(Some),
            Purpose::Check | Purpose::Repair => self.scrub_window(range).await.map(Some),
            Purpose::Learn => Ok(Some(self.learn_window(range).await)),
        }
    }

    /// Records that all windows in a range, and all before it, are done.
    fn advance(&self, purpose: Purpose, range: Range<u64>) {
        match purpose {
            Purpose::Resync => self.resynced_to(range.end),
            Purpose::Recovery => self.recovered_in(range),
            Purpose::Check | Purpose::Repair => self.scrubbed_to(range.end),
            Purpose::Learn => self.sweeps.learning.learned_to(range.end),
        }
    }

    pub(super) fn is_interrupted(&self, purpose: Purpose) -> bool {
        let is_scrub = matches!(purpose, Purpose::Check | Purpose::Repair);
        self.core.gate.is_closed()
            || self.are_sweeps_held()
            || (is_scrub && self.is_scrub_interrupted())
            || (purpose == Purpose::Learn && self.is_learning_interrupted())
    }

    fn is_checkpoint_due(&self, sweep_range: SweepRange, (position, moment): (u64, Moment), now_at: u64) -> bool {
        let in_flight_bytes = self.sweeps.transfers.get().in_flight_bytes;
        let far = now_at - position >= ((sweep_range.end - sweep_range.from) / CHECKPOINTS).max(in_flight_bytes);
        far || (now_at > position && self.core.clock.now().since(moment) >= CHECKPOINT_INTERVAL)
    }

    /// A window's length where positions are component bytes: whole chunks, or a part of a chunk that is
    /// longer.
    pub(super) fn component_step(&self) -> u64 {
        let SweepTransfers { window_bytes, in_flight_bytes } = self.sweeps.transfers.get();
        let window = self.window_bytes();
        match self.core.chunk_bytes() {
            0 => window,
            chunk if chunk <= window => window / chunk * chunk,
            _ if window_bytes.is_some() => window,
            chunk => chunk.min(in_flight_bytes),
        }
    }

    /// Bytes of each member in a window, about: the configured transfer, or the longest that any member gains
    /// by.
    pub(crate) fn window_bytes(&self) -> u64 {
        if let Some(bytes) = self.sweeps.transfers.get().window_bytes {
            return bytes;
        }
        self.core.window_bytes()
    }

    /// The error for component bytes that the members cannot give.
    pub(super) fn component_error(&self, range: &Range<u64>, error: Option<&MemberError>) -> ArrayError {
        let cause = error.map(|error| format!(": {error}")).unwrap_or_default();
        let Range { start, end } = range;
        let reason =
            format!("bytes {start} to {end} of the components cannot be read from the remaining members{cause}");
        ArrayError::new(ArrayErrorKind::Io, reason)
    }
}
