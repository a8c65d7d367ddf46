//! The sweep: one window that moves over all stripes of an array, whatever for.
//!
//! A sweep has a [`Purpose`]. The purpose says which positions it goes over
//! and what is done to a window of them; everything else is common: a number of
//! bytes under way on each member, long transfers, a speed that yields to
//! requests, a checkpoint in md's own fields of the superblocks, so that
//! md or this engine goes on from there, and a progress that `status` shows.
//!
//! Positions are md's: component bytes for a recovery, and for a resync of
//! parity or of RAID-1; array bytes for a resync of RAID-10.
//!
//! Invariants:
//! * A window keeps writes off its stripes from its first read to its last
//!   write; so requests and the sweep never see each other halfway.
//! * Windows end in order, and a position is believed to be done only when
//!   all before it are.
//! * A window that was begun is driven to its end, whatever becomes of others.
//!
//! Facts: md(4), `drivers/md/md.c` (`md_do_sync`, `md_check_recovery`).

mod check;
mod copies;
mod doubt;
mod findings;
mod keeper;
mod learn;
mod recovery;
mod repair;
mod resync;
mod runs;
mod scrub;
mod served;
mod stripes;
mod throttle;
mod transfers;
mod yielding;

pub use doubt::DoubtfulZeros;
pub use findings::{
    ArrayPart, FINDINGS_LISTED_MAX, Finding, FindingVerdict, Findings, MemberCount, MemberPart, Outcome, ScrubAction,
    ScrubCounts, ScrubReport, ScrubState,
};
pub use resync::Resynced;
pub use scrub::ScrubRequest;
pub(crate) use served::Served;
pub(crate) use throttle::Load;
pub use throttle::SyncSpeed;
pub use transfers::SweepTransfers;

use crate::array::Inner;
use crate::changes::LOG_TARGET;
use crate::clock::{Clock, Moment};
use crate::device::Device;
use crate::error::{ArrayError, ArrayErrorKind};
use crate::gate::Gate;
use crate::member::{Member, MemberError};
use crate::signal::Signal;
use format::geometry::Geometry;
use format::units::Slot;
use futures_util::future::{join, select};
use futures_util::{Stream, StreamExt, stream};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::{AddAssign, Range};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use throttle::{HeldBy, Throttle};

/// Time between checkpoints, at the most.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);

/// Checkpoints in a sweep that is quicker than that: md's.
const CHECKPOINTS: u64 = 16;

/// Time over which a sweep's rate is measured, at the least.
const RATE_INTERVAL: Duration = Duration::from_secs(3);

/// What a sweep is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Copies and parity are brought into agreement after an unclean stop.
    Resync,
    /// Members that are not current yet get what they should hold.
    Recovery,
    /// Everything is read and compared.
    Check,
    /// The same, and what is wrong is made right.
    Repair,
    /// Checksums that are unknown are learned, where the members agree.
    Learn,
}

impl Purpose {
    /// md's word in `sync_action`.
    fn action(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Recovery => "recover",
            Self::Check => "check",
            Self::Repair => "repair",
            Self::Learn => "learn",
        }
    }

    /// In a word.
    fn name(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            _ => self.action(),
        }
    }
}

/// A line of the log, as [`Inner::tell_begun`].
fn tell_over(purpose: Purpose, ending: Ending, failure: Option<&ArrayError>) {
    let name = purpose.name();
    match (purpose, failure, ending) {
        (Purpose::Check | Purpose::Repair, ..) => {}
        (_, Some(error), _) => tracing::warn!(target: LOG_TARGET, "{name} cannot go on: {}", error.reason),
        (_, None, Ending::Complete) => tracing::info!(target: LOG_TARGET, "{name} is complete"),
        (_, None, Ending::Interrupted) => tracing::info!(target: LOG_TARGET, "{name} stands still, and goes on later"),
    }
}

/// The positions that a sweep goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Course {
    /// Where what was asked for begins.
    start: u64,
    /// What is before this was done by an earlier one.
    from: u64,
    end: u64,
    /// Windows end at multiples of this.
    step: u64,
    /// What a window is on each member, about.
    member_bytes: u64,
}

impl Course {
    /// Positions in a window of fewer bytes on each member: what a block is of them at the least.
    fn step_of(&self, member_bytes: u64, block_bytes: u64) -> u64 {
        match self.member_bytes / member_bytes.max(1) {
            0 | 1 => self.step,
            parts => (self.step / parts / block_bytes * block_bytes).max(block_bytes.min(self.step)),
        }
    }
}

/// A member that is being recovered, or a successor.
pub(crate) struct Target<M> {
    pub(crate) slot: Slot,
    pub(crate) device: Rc<Device<M>>,
}

impl<M> Clone for Target<M> {
    fn clone(&self) -> Self {
        Self { slot: self.slot, device: self.device.clone() }
    }
}

/// What was done, in bytes of positions, and what a scrub found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Tally {
    compared: u64,
    mended: u64,
    found: Findings,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.compared += other.compared;
        self.mended += other.mended;
    }
}

/// How a sweep ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It went over everything.
    Complete,
    /// The array is being stopped, or sweeps are frozen.
    Interrupted,
}

/// How far a sweep has come, and what it met.
struct Way {
    position: Cell<u64>,
    /// All windows that were begun have ended, and none will be.
    is_over: Cell<bool>,
    /// Raised when either changes.
    moved: Signal,
    /// Nothing is begun after this; what is under way ends.
    failure: RefCell<Option<ArrayError>>,
    throttle: RefCell<Throttle>,
    /// Raised when a window ends.
    ended: Signal,
}

impl Way {
    fn from(position: u64, throttle: Throttle) -> Self {
        Self {
            position: Cell::new(position),
            is_over: Cell::new(false),
            moved: Signal::default(),
            failure: RefCell::default(),
            throttle: RefCell::new(throttle),
            ended: Signal::default(),
        }
    }

    fn is_clear(&self) -> bool {
        self.failure.borrow().is_none()
    }

    fn block(&self, error: ArrayError) {
        self.failure.borrow_mut().get_or_insert(error);
    }
}

/// What an array knows of its sweeps.
#[derive(Default)]
pub(crate) struct Sweeps {
    speed: Cell<SyncSpeed>,
    transfers: Cell<SweepTransfers>,
    /// Nothing is swept until it is let go again.
    frozen: Cell<bool>,
    under_way: Cell<Option<UnderWay>>,
    /// Why the last one could not be finished.
    failure: RefCell<Option<String>>,
    /// Raised when there may be something new to do.
    pub(crate) changed: Signal,
    /// The check or repair that is under way, or the last one.
    scrub: RefCell<Option<scrub::Scrub>>,
    /// Raised when it begins, goes on, stands still or ends.
    pub(crate) scrub_changed: Signal,
    learning: learn::Learning,
}

/// A sweep in progress.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    purpose: Purpose,
    start: u64,
    position: u64,
    end: u64,
    /// Position and time at which the rate is measured from, and the next such point.
    since: (u64, Moment),
    mark: (u64, Moment),
    held_by: Option<HeldBy>,
}

/// A sweep as its user sees it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SweepStatus {
    /// `resync`, `recover`, `check` or `repair`, as md's `sync_action`; or `learn`, of checksums.
    pub action: String,
    /// Bytes of each member (of the array for a resync of RAID-10) that are done; of a scrub, of its range.
    pub done_bytes: u64,
    /// Of how many.
    pub total_bytes: u64,
    /// The same as a percentage.
    pub percent: f64,
    /// Its rate in the last seconds.
    pub bytes_per_second: u64,
    /// Time left at that rate.
    pub seconds_left: Option<u64>,
    /// A scrub that stands still until it is told to go on.
    pub paused: bool,
    /// What keeps it from going faster: `requests`, to which it yields, or `sync-speed-max`; nothing, where the members do.
    #[serde(default)]
    pub held_by: Option<String>,
}

impl Sweeps {
    /// A sweep as its user sees it at `now`.
    pub(crate) fn status(&self, now: Moment) -> Option<SweepStatus> {
        let UnderWay { purpose, start, position, end, since, held_by, .. } = self.under_way.get()?;
        let (done, total) = (position - start, end - start);
        let seconds = now.since(since.1).as_secs_f64();
        let rate = if seconds > 0.0 { (position - since.0) as f64 / seconds } else { 0.0 };
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
        match self.under_way.get() {
            Some(sweep) => sweep.purpose.action(),
            None if self.frozen.get() => "frozen",
            None => "idle",
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.get().is_none()
    }

    /// Why the last sweep could not be finished, as long as none has been since.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    fn note_held(&self, held_by: Option<HeldBy>) {
        self.under_way.set(self.under_way.get().map(|sweep| UnderWay { held_by, ..sweep }));
    }

    fn begin(&self, purpose: Purpose, course: Course, now: Moment) -> Sweeping<'_> {
        let point = (course.from, now);
        let Course { start, from: position, end, .. } = course;
        self.under_way.set(Some(UnderWay { purpose, start, position, end, since: point, mark: point, held_by: None }));
        Sweeping(self)
    }
}

/// A sweep is under way while this lives.
struct Sweeping<'a>(&'a Sweeps);

impl Sweeping<'_> {
    fn advance(&self, position: u64, now: Moment) {
        let Some(mut sweep) = self.0.under_way.get() else { return };
        sweep.position = position;
        if now.since(sweep.mark.1) >= RATE_INTERVAL {
            sweep.since = std::mem::replace(&mut sweep.mark, (position, now));
        }
        self.0.under_way.set(Some(sweep));
    }
}

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(None);
        self.0.scrub_changed.raise(); // who keeps the scrub's report waits for all sweeps, when the array is stopped
    }
}

/// Requests are timed while this lives.
struct Timed<'a>(&'a Gate);

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.0.time_requests(None);
    }
}

/// Gives up the turn once; whatever else can go on does so before.
async fn others_first() {
    let mut is_over = false;
    poll_fn(|context| {
        if is_over {
            return Poll::Ready(());
        }
        is_over = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<M: Member, C: Clock> Inner<M, C> {
    /// One sweep, from where the last one of its kind got to. `progress` is
    /// told positions done and the last one.
    async fn sweep(&self, purpose: Purpose, progress: &dyn Fn(u64, u64)) -> Result<(Ending, Tally), ArrayError> {
        let _alone = self.licences.alone().await;
        let course = self.course(purpose);
        self.sweeps.failure.take();
        let sweeping = self.sweeps.begin(purpose, course, self.clock.now());
        self.tell_begun(purpose, course);
        let _timed = self.time_requests();
        let way = Way::from(course.from, self.throttle(course));
        let told = |position| {
            sweeping.advance(position, self.clock.now());
            progress(position, course.end);
        };
        let (swept, ()) =
            join(self.visit_all(purpose, course, &way, &told), self.keep_checkpoints(purpose, course, &way)).await;
        let (ending, tally) = swept;
        let failure = way.failure.take();
        tell_over(purpose, ending, failure.as_ref());
        match failure {
            Some(error) => Err(error),
            None if ending == Ending::Complete && !self.is_interrupted(purpose) => {
                self.advance(purpose, way.position.get()..course.end);
                Ok((Ending::Complete, tally))
            }
            None => Ok((Ending::Interrupted, tally)),
        }
    }

    /// A line of the log; scrubs have their own, as they begin and end more often than a person wants to know.
    fn tell_begun(&self, purpose: Purpose, course: Course) {
        let Course { start, from, end, .. } = course;
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

    /// Visits all windows, some at a time. `told` is each position at which all before it are done.
    async fn visit_all(&self, purpose: Purpose, course: Course, way: &Way, told: &dyn Fn(u64)) -> (Ending, Tally) {
        let in_flight_bytes = self.sweeps.transfers.get().in_flight_bytes;
        let depth = (in_flight_bytes / course.member_bytes).max(1) as usize;
        let windows = self.windows(purpose, course, way);
        let mut done =
            pin!(windows.map(async |range| (range.end, self.visit_timed(purpose, &range, way).await)).buffered(depth));
        let mut tally = Tally::default();
        let mut ending = Ending::Complete;
        while let Some((end, outcome)) = done.next().await {
            match outcome {
                Ok(Some(more)) if ending == Ending::Complete && way.is_clear() => {
                    self.note_findings(more.found);
                    tally += Tally { found: Findings::default(), ..more };
                    self.advance(purpose, way.position.replace(end)..end);
                    way.moved.raise();
                    told(end);
                }
                Ok(Some(more)) => self.note_findings(more.found), // behind one that is not done
                Ok(None) => ending = Ending::Interrupted,
                Err(error) => way.block(error),
            }
        }
        way.is_over.set(true);
        way.moved.raise();
        (ending, tally)
    }

    /// Keeps how far a sweep has come, now and then, until it is over. Windows go on meanwhile: a flush waits for what
    /// its member was asked before, so that they would all have ended. Of a scrub its user keeps how far it is.
    async fn keep_checkpoints(&self, purpose: Purpose, course: Course, way: &Way) {
        if matches!(purpose, Purpose::Check | Purpose::Repair | Purpose::Learn) {
            return;
        }
        let mut last = (course.from, self.clock.now());
        while !way.is_over.get() {
            if way.is_clear() && self.is_checkpoint_due(course, last, way.position.get()) {
                last = (way.position.get(), self.clock.now());
                self.checkpoint().await.unwrap_or_else(|error| way.block(error));
            } else {
                way.moved.changed_since(way.moved.seen()).await;
            }
        }
    }

    fn course(&self, purpose: Purpose) -> Course {
        match purpose {
            Purpose::Resync => self.resync_course(),
            Purpose::Recovery => self.recovery_course(),
            Purpose::Check | Purpose::Repair => self.scrub_course(),
            Purpose::Learn => self.learning_course(),
        }
    }

    /// The first part of a range of positions in which there is something to
    /// do, in whole blocks, of which a bit may stand for less; it may be cut after `most` bytes.
    fn next_due(&self, purpose: Purpose, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        let due = match purpose {
            Purpose::Resync => self.next_to_resync(range.clone(), most),
            Purpose::Recovery => self.next_to_recover(range.clone(), most),
            Purpose::Check | Purpose::Repair => Some(range.clone()),
            Purpose::Learn => self.next_to_learn(range.clone(), most),
        }?;
        let (start, end) =
            (due.start / self.block_bytes * self.block_bytes, due.end.next_multiple_of(self.block_bytes));
        Some(start.max(range.start)..end.min(range.end))
    }

    /// Ranges of positions to visit, each when the time for it has come; ends
    /// early when the array is stopped or a window failed.
    fn windows<'a>(&'a self, purpose: Purpose, course: Course, way: &'a Way) -> impl Stream<Item = Range<u64>> + 'a {
        stream::unfold(course.from, move |at| async move {
            let due = if at < course.end { self.next_due(purpose, at..course.end, course.step)? } else { return None };
            // Members that answer at once would let a sweep have the thread, and never be told that requests came.
            others_first().await;
            loop {
                if self.is_interrupted(purpose) || !way.is_clear() {
                    return None;
                }
                let (seen, now) = (way.ended.seen(), self.clock.now());
                let wait = way.throttle.borrow_mut().wait(now, self.gate.load(), &mut self.gate.served());
                self.sweeps.note_held(way.throttle.borrow().held_by());
                let Some(wait) = wait else { break };
                let (sleep, ended) = (pin!(self.clock.sleep_until(now + wait)), pin!(way.ended.changed_since(seen)));
                select(sleep, ended).await;
            }
            let member_bytes = way.throttle.borrow_mut().start(self.clock.now(), self.sweeps.speed.get());
            let step = course.step_of(member_bytes, self.block_bytes);
            let end = ((due.start / step + 1) * step).min(due.end);
            Some((due.start..end, end))
        })
    }

    /// A window that was begun, until it has ended.
    async fn visit_timed(&self, purpose: Purpose, range: &Range<u64>, way: &Way) -> Result<Option<Tally>, ArrayError> {
        let outcome = self.visit(purpose, range).await;
        way.throttle.borrow_mut().end(self.clock.now());
        way.ended.raise();
        outcome
    }

    fn throttle(&self, course: Course) -> Throttle {
        let in_flight_bytes = self.sweeps.transfers.get().in_flight_bytes;
        Throttle::new(self.clock.now(), self.gate.load(), course.member_bytes, in_flight_bytes)
    }

    /// Requests are timed while this lives.
    fn time_requests(&self) -> impl Drop + '_ {
        let clock = self.clock.clone();
        self.gate.time_requests(Some(Rc::new(move || clock.now())));
        Timed(&self.gate)
    }

    /// Does what the sweep is for to one window; `None`: the array is being stopped.
    async fn visit(&self, purpose: Purpose, range: &Range<u64>) -> Result<Option<Tally>, ArrayError> {
        let Some(_inside) = self.gate.enter_unseen() else { return Ok(None) };
        match purpose {
            Purpose::Resync => self.resync_window(range).await.map(Some),
            Purpose::Recovery => self.recover_window(range).await.map(Some),
            Purpose::Check | Purpose::Repair => self.scrub_window(range).await.map(Some),
            Purpose::Learn => Ok(Some(self.learn_window(range).await)),
        }
    }

    /// All windows in a range of positions are done, and all before it.
    fn advance(&self, purpose: Purpose, range: Range<u64>) {
        match purpose {
            Purpose::Resync => self.resynced_to(range.end),
            Purpose::Recovery => self.recovered_in(range),
            Purpose::Check | Purpose::Repair => self.scrubbed_to(range.end),
            Purpose::Learn => self.sweeps.learning.learned_to(range.end),
        }
    }

    fn is_interrupted(&self, purpose: Purpose) -> bool {
        let is_scrub = matches!(purpose, Purpose::Check | Purpose::Repair);
        self.gate.is_closed()
            || self.sweeps.frozen.get()
            || (is_scrub && self.is_scrub_interrupted())
            || (purpose == Purpose::Learn && self.is_learning_interrupted())
    }

    fn is_checkpoint_due(&self, course: Course, (position, moment): (u64, Moment), now_at: u64) -> bool {
        let in_flight_bytes = self.sweeps.transfers.get().in_flight_bytes;
        let far = now_at - position >= ((course.end - course.from) / CHECKPOINTS).max(in_flight_bytes);
        far || (now_at > position && self.clock.now().since(moment) >= CHECKPOINT_INTERVAL)
    }

    /// A window's length at a level where positions are component bytes:
    /// whole chunks, or parts of one that is larger.
    fn component_step(&self) -> u64 {
        let SweepTransfers { window_bytes, in_flight_bytes } = self.sweeps.transfers.get();
        let window = self.window_bytes();
        match self.chunk_bytes() {
            0 => window,
            chunk if chunk <= window => window / chunk * chunk,
            _ if window_bytes.is_some() => window,
            chunk => chunk.min(in_flight_bytes),
        }
    }

    /// Bytes of each member in a window, about: one transfer, as its user wants it, or as long as any of them gains by.
    fn window_bytes(&self) -> u64 {
        if let Some(bytes) = self.sweeps.transfers.get().window_bytes {
            return bytes;
        }
        let devices = self.devices();
        let longest = devices.iter().map(|device| device.member.limits().window_bytes()).max();
        longest.expect("a running array has a member")
    }

    /// Keeps writes off the stripes of a range of components.
    pub(crate) async fn lock_stripes(
        &self,
        parity: &format::geometry::Parity,
        range: &Range<u64>,
    ) -> crate::locks::RangeGuard<'_> {
        let chunk = parity.chunk_bytes();
        let stripes = range.start / chunk..range.end.div_ceil(chunk);
        self.gathering.close_within(&stripes);
        self.locks.exclusive(stripes).await
    }

    /// Says which bytes of the components cannot be had.
    fn component_error(&self, range: &Range<u64>, error: Option<&MemberError>) -> ArrayError {
        let cause = error.map(|error| format!(": {error}")).unwrap_or_default();
        let Range { start, end } = range;
        let reason = format!("bytes {start} to {end} of the components cannot be had from the members left{cause}");
        ArrayError::new(ArrayErrorKind::Io, reason)
    }

    /// Bytes of the components that are in use.
    fn component_bytes(&self) -> u64 {
        (0..self.geometry().slots()).map(|slot| self.geometry().used_bytes(Slot(slot))).max().unwrap_or(0)
    }

    fn chunk_bytes(&self) -> u64 {
        match self.geometry() {
            Geometry::Parity(parity) => parity.chunk_bytes(),
            Geometry::Mapping(mapping) => mapping.chunk_bytes(),
        }
    }
}
