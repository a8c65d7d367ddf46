//! The first shard: the array itself, which gives licences and takes them back, and keeps for the others what there is one of.

use super::letters::{Answer, Content, Facts, Letter, Licence, Moved, Post, Report, Request, Seat, Shareable, Unread};
use super::perform;
use crate::array::{Array, Inner};
use crate::device::Device;
use crate::metadata::bitmap::Intended;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::Geometry;
use format::units::Slot;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(super) struct First<M: Shareable, C: Clock> {
    pub(super) array: Array<M, C>,
    post: Rc<dyn Post<M::Handle>>,
    shards: u16,
    /// Licences are being taken back.
    is_revoking: Cell<bool>,
    /// Some member has no handle for others.
    is_unshareable: Cell<bool>,
    /// Requests for others' stripes that are carried out here, and how many ever were.
    foreign: Cell<usize>,
    foreign_begun: Cell<u64>,
    /// By shard and unit.
    marks: RefCell<Marks<M, C>>,
    told: Cell<Facts>,
}

type Marks<M, C> = BTreeMap<(u16, u64), Rc<Mark<M, C>>>;

/// A unit that a further shard writes to: as long as a write is under way the array is not marked clean, nor the bits cleared.
struct Mark<M: Member, C: Clock> {
    intended: Intended<M>,
    array: Array<M, C>,
}

impl<M: Member, C: Clock> Drop for Mark<M, C> {
    fn drop(&mut self) {
        self.array.0.writers.leave();
    }
}

/// Counts a request while it lives.
struct Foreign<'a, M: Shareable, C: Clock>(&'a First<M, C>);

impl<M: Shareable, C: Clock> Drop for Foreign<'_, M, C> {
    fn drop(&mut self) {
        self.0.foreign.set(self.0.foreign.get() - 1);
        self.0.array.0.licences.changed.raise();
    }
}

impl<M: Shareable, C: Clock> First<M, C> {
    pub(super) fn new(array: Array<M, C>, shards: u16, post: Rc<dyn Post<M::Handle>>) -> Self {
        let told = Cell::new(facts(&array));
        Self {
            array,
            post,
            shards,
            told,
            is_revoking: Cell::new(false),
            is_unshareable: Cell::new(false),
            foreign: Cell::new(0),
            foreign_begun: Cell::new(0),
            marks: RefCell::default(),
        }
    }

    /// Whether further shards may work on the array as it is.
    fn is_fit(&self) -> bool {
        let inner = &*self.array.0;
        inner.licences.are_welcome() && inner.is_plain() && !self.is_unshareable.get()
    }

    /// Gives licences and takes them back, until the array is stopped.
    pub(super) async fn run(&self) {
        let licences = &self.array.0.licences;
        loop {
            let seen = licences.changed.seen();
            self.tell_facts();
            match (licences.are_held(), self.is_fit()) {
                (false, true) if self.foreign.get() == 0 => self.give().await,
                (true, false) if !self.is_revoking.replace(true) => self.send_to_all(|| Content::Revocation),
                (false, _) if self.array.0.gate.is_closed() => return,
                _ => {}
            }
            licences.changed.changed_since(seen).await;
        }
    }

    fn send_to_all(&self, content: impl Fn() -> Content<M::Handle>) {
        (1..self.shards).for_each(|shard| self.post.send(shard, Letter(content())));
    }

    fn tell_facts(&self) {
        let facts = facts(&self.array);
        if self.told.replace(facts) != facts {
            self.send_to_all(|| Content::Facts(facts));
        }
    }

    /// Gives licences, unless something changes meanwhile. What this shard has in memory of others' stripes would be stale when
    /// they are its own again.
    async fn give(&self) {
        let inner = &*self.array.0;
        let before = self.foreign_begun.get();
        let written_out = inner.write_out_all().await;
        // What came meanwhile may have been answered from memory.
        if written_out.is_err() || !self.is_fit() || self.foreign_begun.get() > before {
            return;
        }
        let licences: Option<Vec<_>> = (1..self.shards).map(|_| inner.licence().map(Box::new)).collect();
        let Some(licences) = licences else {
            tracing::warn!("a member cannot be shared among threads: the first does all the work");
            return self.is_unshareable.set(true);
        };
        inner.cache.borrow_mut().clear();
        inner.read_ahead.clear();
        self.is_revoking.set(false);
        for (shard, licence) in (1..self.shards).zip(licences) {
            self.post.send(shard, Letter(Content::Licence(licence)));
        }
        inner.licences.give(self.shards - 1);
    }

    /// Carries out a request of a shard without a licence; held back while licences are about to be given, so that
    /// there is an end to such requests.
    pub(super) async fn carry_out(self: Rc<Self>, mut request: Request, answer: oneshot::Sender<Answer>) {
        let licences = &self.array.0.licences;
        loop {
            let seen = licences.changed.seen();
            if licences.are_held() && !self.is_revoking.get() {
                // A sender that has gone does not need its answer.
                drop(answer.send(Answer::Yours(request)));
                return;
            }
            if !licences.are_held() && !self.is_fit() {
                break;
            }
            licences.changed.changed_since(seen).await;
        }
        self.foreign.set(self.foreign.get() + 1);
        self.foreign_begun.set(self.foreign_begun.get() + 1);
        let _foreign = Foreign(&self);
        let done = perform(&self.array, &mut request).await;
        drop(answer.send(Answer::Done(done)));
    }

    /// What a further shard tells is so when this returns; what it asks for is done by the work that this gives.
    pub(super) fn hear(self: &Rc<Self>, from: u16, report: Report) -> Option<LocalBoxFuture<'static, ()>> {
        let inner = &*self.array.0;
        match report {
            Report::Mark(unit, answer) => {
                let (array, mark) = (self.array.clone(), self.note(from, unit));
                return Some(async move { drop(answer.send(array.0.make_mark(&mark.intended).await)) }.boxed_local());
            }
            Report::Failed(failure, answer) => {
                let array = self.array.clone();
                let device = inner.members().into_iter().find(|device| has_number(device, failure.device_number));
                return Some(
                    async move {
                        let recorded = match device {
                            Some(device) => array.0.record_failure(&device, &failure.error()).await,
                            None => Ok(()),
                        };
                        drop(answer.send(recorded));
                    }
                    .boxed_local(),
                );
            }
            Report::Unmarked(units) => {
                let mut marks = self.marks.borrow_mut();
                units.into_iter().for_each(|unit| drop(marks.remove(&(from, unit))));
            }
            Report::Unread(Unread { device_number, range, is_away }) => {
                let device = inner.members().into_iter().find(|device| has_number(device, device_number));
                if let Some(device) = device {
                    device.is_away.set(is_away);
                    device.unread.borrow_mut().add(range);
                    inner.surroundings.hurt.raise();
                }
            }
            Report::Moved(moved) => {
                for Moved { device_number, counts } in moved {
                    let device = inner.members().into_iter().find(|device| has_number(device, device_number));
                    device.iter().for_each(|device| device.counters.add(counts));
                }
            }
            Report::NoRoom => {
                inner.surroundings.is_owing.set(true);
                inner.surroundings.owing.raise();
                inner.licences.changed.raise();
            }
            Report::Owed(debts, is_kept) => {
                inner.take_over(debts);
                if is_kept {
                    inner.gathering.set_kept_owed();
                }
            }
            Report::Lost(ranges) => inner.gathering.add_lost(ranges),
            Report::Broke(reason) => inner.give_out(|| reason),
            Report::Returned => {
                self.marks.borrow_mut().retain(|(shard, _), _| *shard != from);
                inner.licences.returned();
                if !inner.licences.are_held() && inner.surroundings.is_owing.replace(false) {
                    inner.surroundings.owing.raise();
                }
            }
        }
        None
    }

    fn note(&self, from: u16, unit: u64) -> Rc<Mark<M, C>> {
        let inner = &*self.array.0;
        let mark = || {
            inner.writers.enter();
            let (unit_bytes, end) = inner.units_of_marks();
            let covered = unit * unit_bytes..(unit + 1).saturating_mul(unit_bytes).min(end);
            Rc::new(Mark { intended: inner.note_covered(covered), array: self.array.clone() })
        };
        self.marks.borrow_mut().entry((from, unit)).or_insert_with(mark).clone()
    }
}

fn has_number<M>(device: &Device<M>, number: u16) -> bool {
    device.superblock.borrow().device_number.0 == number
}

pub(super) fn facts<M: Member, C: Clock>(array: &Array<M, C>) -> Facts {
    Facts {
        bytes: array.bytes(),
        preferred_bytes: array.preferred_bytes(),
        logical_block_bytes: array.logical_block_bytes(),
        is_read_only: array.is_read_only(),
    }
}

impl<M: Member, C: Clock> Inner<M, C> {
    /// Nothing is amiss, and nothing is kept that has one place for all stripes.
    fn is_plain(&self) -> bool {
        self.whole.get()
            && self.agreed.get()
            && !self.read_only
            && !self.gate.is_closed()
            && self.broken.borrow().is_none()
            && self.successors().is_empty()
            && !self.has_checksums()
            && !self.owes_any()
    }

    /// Length of a unit that a mark is for, and of all that marks cover, in the bitmap's bytes.
    fn units_of_marks(&self) -> (u64, u64) {
        let covers = match self.geometry() {
            Geometry::Parity(_) => self.geometry().used_bytes(Slot(0)),
            Geometry::Mapping(_) => self.geometry().array_bytes(),
        };
        (self.intent().map_or(covers, |intent| intent.chunk_bytes()), covers)
    }
}

impl<M: Shareable, C: Clock> Inner<M, C> {
    /// What a further shard is to work by; `None` when some member cannot be shared.
    fn licence(&self) -> Option<Licence<M::Handle>> {
        let seat = |device: &Option<Rc<Device<M>>>| {
            let device = device.as_ref()?;
            let superblock = device.superblock.borrow().clone();
            Some(Seat { name: device.name.clone(), superblock, handle: device.member.member().share()? })
        };
        Some(Licence {
            geometry: self.geometry().clone(),
            seats: self.slots.borrow().iter().map(seat).collect::<Option<_>>()?,
            block_bytes: self.block_bytes,
            stripe_size: self.stripe_size.get(),
            unit_bytes: self.units_of_marks().0,
            patience: self.surroundings.patience(),
        })
    }

    /// The array is marked dirty and the bits are set, on stable storage, when this returns.
    async fn make_mark(&self, intended: &Intended<M>) -> Result<(), ArrayError> {
        self.check_unbroken()?;
        self.mark_dirty().await?;
        self.record_intent(intended).await
    }
}
