//! Where a further shard's array differs from the first's: what there is one of is asked for by letter.
//!
//! A mark is held for a whole unit of the bitmap, like one long write to it, and given back when nothing was written there
//! for a while. One that is asked for counts as in use, so it is never given back before its answer is here; and
//! who asks again does so behind what was said before, as letters keep their order.

use super::letters::{Failure, Moved, Report, Unread};
use crate::array::Inner;
use crate::device::Device;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// How long nothing is written to a unit before its mark is given back, at the least.
const PERIOD: Duration = Duration::from_millis(50);

/// How often a shard without marks tells what its members did.
const COUNTING: Duration = Duration::from_secs(1);

type Asked = Shared<LocalBoxFuture<'static, Result<(), ArrayError>>>;

pub(crate) struct Seam {
    unit_bytes: u64,
    units: RefCell<BTreeMap<u64, Unit>>,
    tell: Box<dyn Fn(Report)>,
}

struct Unit {
    writes: u32,
    /// Written to since the last look.
    is_fresh: bool,
    /// Until the mark is there.
    asked: Option<Asked>,
}

impl Seam {
    pub(super) fn new(unit_bytes: u64, tell: Box<dyn Fn(Report)>) -> Rc<Self> {
        Rc::new(Self { unit_bytes, units: RefCell::default(), tell })
    }

    /// Notes a write to `covered`, a range of what the bitmap covers; gives its units, for [`Seam::end`].
    pub(crate) fn begin(&self, covered: &Range<u64>) -> Range<u64> {
        let units = covered.start / self.unit_bytes..covered.end.div_ceil(self.unit_bytes);
        let mut table = self.units.borrow_mut();
        for number in units.clone() {
            let unit = table.entry(number).or_insert_with(|| Unit {
                writes: 0,
                is_fresh: true,
                asked: Some(self.ask(number)),
            });
            unit.writes += 1;
            unit.is_fresh = true;
        }
        units
    }

    fn ask(&self, unit: u64) -> Asked {
        let (answer, answered) = oneshot::channel();
        self.tell(Report::Mark(unit, answer));
        async move { answered.await.unwrap_or_else(|oneshot::Canceled| Err(gone())) }.boxed_local().shared()
    }

    pub(crate) fn are_marked(&self, units: &Range<u64>) -> bool {
        let table = self.units.borrow();
        units.clone().all(|number| table.get(&number).is_some_and(|unit| unit.asked.is_none()))
    }

    /// Waits until the marks are on stable storage.
    pub(crate) async fn marked(&self, units: &Range<u64>) -> Result<(), ArrayError> {
        for number in units.clone() {
            let asked = self.units.borrow().get(&number).and_then(|unit| unit.asked.clone());
            let Some(asked) = asked else { continue };
            let result = asked.await;
            if let Some(unit) = self.units.borrow_mut().get_mut(&number).filter(|_| result.is_ok()) {
                unit.asked = None;
            }
            result?;
        }
        Ok(())
    }

    /// The write is over.
    pub(crate) fn end(&self, units: Range<u64>) {
        let mut table = self.units.borrow_mut();
        for number in units {
            table.get_mut(&number).expect("a unit that is written to is in the table").writes -= 1;
        }
    }

    /// Gives back marks of units that were not written to since the last call.
    fn give_back_idle(&self) {
        let mut idle = Vec::new();
        self.units.borrow_mut().retain(|&number, unit| {
            let is_answered = unit.asked.as_ref().is_none_or(|asked| asked.peek().is_some());
            let is_idle = unit.writes == 0 && is_answered && !unit.is_fresh;
            unit.is_fresh = false;
            if is_idle {
                idle.push(number);
            }
            !is_idle
        });
        if !idle.is_empty() {
            self.tell(Report::Unmarked(idle));
        }
    }

    /// The array takes no more writes.
    pub(crate) fn broke(&self, reason: String) {
        self.tell(Report::Broke(reason));
    }

    fn tell(&self, report: Report) {
        (self.tell)(report);
    }
}

impl<M: Member, C: Clock> Inner<M, C> {
    /// Gives idle marks back, and tells what members did, until the licence is given back.
    pub(super) async fn keep_seam(&self, seam: &Seam) {
        loop {
            let period = if seam.units.borrow().is_empty() { COUNTING } else { PERIOD };
            if self.gate.closes_before(self.clock.sleep_until(self.clock.now() + period)).await {
                return;
            }
            seam.give_back_idle();
            self.report_what_moved(seam);
        }
    }

    pub(super) fn report_what_moved(&self, seam: &Seam) {
        let slots = self.slots.borrow();
        let moved = slots.iter().flatten().filter_map(|device| {
            let counts = device.counters.take();
            let device_number = device.superblock.borrow().device_number.0;
            (counts != [0; 5]).then_some(Moved { device_number, counts })
        });
        let moved: Vec<_> = moved.collect();
        if !moved.is_empty() {
            seam.tell(Report::Moved(moved));
        }
    }

    /// Tells of what could not be read, until the licence is given back.
    pub(super) async fn report_unread(&self, seam: &Seam) {
        while !self.gate.is_closed() {
            let seen = self.surroundings.hurt.seen();
            self.report_what_is_unread(seam);
            self.surroundings.hurt.changed_since(seen).await;
        }
    }

    pub(super) fn report_what_is_unread(&self, seam: &Seam) {
        for device in self.slots.borrow().iter().flatten() {
            while let Some(range) = { device.unread.borrow_mut().take_first() } {
                let device_number = device.superblock.borrow().device_number.0;
                seam.tell(Report::Unread(Unread { device_number, range, is_away: device.is_away.get() }));
            }
        }
    }

    /// As [`Inner::record_failure`]. From here on the member is not read: it may lack what was written.
    pub(crate) async fn report_failure(
        &self,
        seam: &Seam,
        device: &Device<M>,
        error: &MemberError,
    ) -> Result<(), ArrayError> {
        if self.is_owed(device, error) {
            seam.tell(Report::NoRoom);
            return Err(ArrayError::new(ArrayErrorKind::NoSpace, format!("{}: no room: {error}", device.name)));
        }
        device.is_silent.set(true);
        self.whole.set(false);
        let (answer, recorded) = oneshot::channel();
        let device_number = device.superblock.borrow().device_number.0;
        seam.tell(Report::Failed(Failure::new(device_number, error), answer));
        let recorded = recorded.await.unwrap_or_else(|oneshot::Canceled| Err(gone()));
        if let Err(error) = &recorded {
            self.broken.borrow_mut().get_or_insert_with(|| error.reason.clone());
        }
        recorded
    }
}

/// The first shard is no more.
pub(super) fn gone() -> ArrayError {
    ArrayError::new(ArrayErrorKind::Stopped, "the array is stopped")
}
