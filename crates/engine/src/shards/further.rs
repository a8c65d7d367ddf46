//! A further shard: an array with a data plane alone, made anew with each licence and gone when that is given back.

use super::letters::{Answer, Content, Facts, Letter, Licence, Post, Report, Request, Seat, Shareable};
use super::seam::{Seam, gone};
use super::{ShardOptions, perform};
use crate::array::{Array, Inner, Writers};
use crate::base::buffer::Pool;
use crate::base::notify::Signal;
use crate::base::versioned::Growing;
use crate::control::assemble::cache_bytes;
use crate::data::cache::StripeCache;
use crate::data::coalesce::Gathering;
use crate::data::read_ahead::ReadAhead;
use crate::device::timeout::Surroundings;
use crate::device::{Device, DeviceState};
use crate::metadata::superblocks::Record;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::observe::Observer;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join4};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(super) struct Further<M: Shareable, C: Clock> {
    pub(super) number: u16,
    pub(super) post: Rc<dyn Post<M::Handle>>,
    pub(super) pool: Pool,
    pub(super) facts: Cell<Facts>,
    clock: C,
    options: ShardOptions,
    observer: RefCell<Option<Rc<dyn Observer>>>,
    /// While there is a licence.
    array: RefCell<Option<Array<M, C>>>,
}

impl<M: Shareable, C: Clock + Clone> Further<M, C> {
    pub(super) fn new(
        number: u16,
        facts: Facts,
        options: ShardOptions,
        pool: Pool,
        clock: C,
        post: Rc<dyn Post<M::Handle>>,
    ) -> Self {
        Self {
            number,
            post,
            pool,
            clock,
            options,
            facts: Cell::new(facts),
            observer: RefCell::default(),
            array: RefCell::default(),
        }
    }

    /// Has `observer` told of this shard's transfers, from the next licence on too.
    pub(super) fn observe(&self, observer: Option<Rc<dyn Observer>>) {
        if let Some(array) = self.array() {
            array.observe(observer.clone());
        }
        self.observer.replace(observer);
    }

    /// The array of the licence, if there is one.
    pub(super) fn array(&self) -> Option<Array<M, C>> {
        self.array.borrow().clone()
    }

    fn report(&self, report: Report) {
        self.post.send(0, Letter(Content::Report(self.number, report)));
    }

    /// Goes to work; what goes on beside the requests is the work that this gives.
    pub(super) fn begin(self: &Rc<Self>, licence: Licence<M::Handle>) -> LocalBoxFuture<'static, ()> {
        let array = self.array_of(licence);
        array.observe(self.observer.borrow().clone());
        self.array.replace(Some(array.clone()));
        let is_writeback = self.options.writeback;
        async move {
            let inner = &*array.0;
            let seam = inner.seam.as_ref().expect("a further shard has a seam");
            let keep = async {
                if is_writeback {
                    array.write_back().await;
                }
            };
            join4(inner.give_up_in_time(), inner.keep_seam(seam), inner.report_unread(seam), keep).await;
        }
        .boxed_local()
    }

    /// From here on requests go to the first shard. The work that this gives ends those that are under way, and tells so.
    pub(super) fn end(self: &Rc<Self>) -> LocalBoxFuture<'static, ()> {
        let array = self.array.take();
        let shard = self.clone();
        async move {
            if let Some(array) = array {
                let drained = array.0.watched(array.0.drain()).await;
                let seam = array.0.seam.as_ref().expect("a further shard has a seam");
                array.0.report_what_is_unread(seam);
                array.0.report_what_moved(seam);
                let debts = array.0.debts();
                if !debts.is_empty() {
                    shard.report(Report::Owed(debts, array.0.gathering.is_kept_owed()));
                }
                let lost = array.0.gathering.lost();
                if !lost.is_empty() {
                    shard.report(Report::Lost(lost));
                }
                let broken = array.0.broken.borrow_mut().take();
                let failed = drained.err().filter(|error| error.kind != ArrayErrorKind::NoSpace);
                if let Some(reason) = broken.or(failed.map(|error| error.reason)) {
                    shard.report(Report::Broke(reason));
                }
            }
            shard.report(Report::Returned);
        }
        .boxed_local()
    }

    /// Carries out a request for stripes of this shard: here or, without a licence, at the first.
    pub(super) async fn carry_out(&self, mut request: Request) -> Result<Vec<u8>, ArrayError> {
        loop {
            if let Some(array) = self.array() {
                match perform(&array, &mut request).await {
                    Err(error) if error.kind == ArrayErrorKind::Stopped => {}
                    done => return done,
                }
            }
            match self.forward(request).await? {
                Answer::Done(done) => return done,
                Answer::Yours(again) => request = again,
            }
        }
    }

    async fn forward(&self, request: Request) -> Result<Answer, ArrayError> {
        let (answer, answered) = oneshot::channel();
        self.post.send(0, Letter(Content::Forwarded(request, answer)));
        answered.await.map_err(|oneshot::Canceled| gone())
    }

    fn array_of(&self, licence: Licence<M::Handle>) -> Array<M, C> {
        let Licence { geometry, seats, block_bytes, stripe_size, unit_bytes, patience } = licence;
        let surroundings = Surroundings::new(self.pool.clone());
        surroundings.set_patience(patience);
        let device = |Seat { name, superblock, handle }: Seat<M::Handle>| {
            let (member, surroundings) = (M::open(handle), surroundings.clone());
            let state = DeviceState::InSync;
            Some(Rc::new(Device::new(name, member, superblock, Box::default(), state, Vec::new(), surroundings)))
        };
        let slots: Vec<_> = seats.into_iter().map(device).collect();
        let limits = slots.iter().flatten().map(|device| device.member.limits());
        let cache_bytes = cache_bytes(&geometry, self.options.cache_bytes, limits);
        let optimal_bytes =
            slots.iter().flatten().map(|device| device.member.limits().optimal_bytes).max().unwrap_or(0);
        let (number, post) = (self.number, self.post.clone());
        let tell = move |report| post.send(0, Letter(Content::Report(number, report)));
        Array(Rc::new(Inner {
            gathering: Gathering::new(&geometry, optimal_bytes.into(), self.options.gather_bytes),
            read_ahead: ReadAhead::new(&geometry, self.options.read_ahead_bytes),
            geometries: Growing::new(geometry),
            kernel: self.options.kernel.unwrap_or_else(parity::Kernel::best),
            pool: self.pool.clone(),
            clock: self.clock.clone(),
            read_only: false,
            block_bytes,
            verify: Cell::default(),
            stripe_size: Cell::new(stripe_size),
            cache: RefCell::new(StripeCache::new(cache_bytes)),
            slots: RefCell::new(slots),
            places: Default::default(),
            others: RefCell::default(),
            left_out: Vec::new(),
            forced_members: Vec::new(),
            warnings: Vec::new(),
            whole: Cell::new(true),
            agreed: Cell::new(true),
            agreed_below: Cell::new(u64::MAX),
            broken: RefCell::default(),
            record: RefCell::new(Record::of_shard()),
            marked_dirty: Signal::default(),
            intent: RefCell::default(),
            locks: Default::default(),
            metadata: Default::default(),
            gate: Default::default(),
            sweeps: Default::default(),
            observer: Default::default(),
            healing: Default::default(),
            surroundings,
            forced: false,
            writers: Writers::default(),
            licences: Default::default(),
            seam: Some(Seam::new(unit_bytes, Box::new(tell))),
        }))
    }
}
