//! What all devices of an array share: the buffer pool, the signals that devices raise, the observer and the timeout.
//!
//! Holds values; decides nothing.

use crate::base::buffer::Pool;
use crate::base::notify::Signal;
use crate::device::stripe_log::LogState;
use crate::device::timeout::TIMEOUT_DEFAULT;
use crate::device::write_buffer::BufferedWrites;
use crate::seam::observe::Observer;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The context that all devices of an array share.
pub(crate) struct DeviceContext {
    pub(crate) pool: Pool,
    /// Raised when there may be something for read repair to do.
    pub(crate) read_error_pending: Signal,
    /// Raised when a check's read of a member has timed out.
    pub(crate) unanswered: Signal,
    /// A write to a successor has failed.
    pub(crate) is_successor_lost: Cell<bool>,
    /// Raised when a member begins or ceases to owe data ([`crate::device::owed`]).
    pub(crate) owed_changed: Signal,
    /// Sees every transfer of every member.
    pub(crate) observer: RefCell<Option<Rc<dyn Observer>>>,
    /// Counts the ticks of [`crate::device::timeout`].
    pub(crate) tick: Cell<u64>,
    pub(crate) timeout: Cell<Option<Duration>>,
    /// The newest generation of the members' partial parity logs.
    pub(crate) log_generation: Cell<u64>,
    /// The stripe log, if the array keeps one.
    stripe_log: RefCell<Option<Rc<LogState>>>,
    /// The epoch of the last stripe log that the array kept.
    log_epoch: Cell<u64>,
    /// Holds the writes that are answered from memory, if the array was given memory for them.
    pub(crate) write_buffer: OnceCell<BufferedWrites>,
}

impl DeviceContext {
    pub(crate) fn new(pool: Pool) -> Rc<Self> {
        Rc::new(Self {
            pool,
            read_error_pending: Signal::default(),
            unanswered: Signal::default(),
            is_successor_lost: Cell::new(false),
            owed_changed: Signal::default(),
            observer: RefCell::default(),
            tick: Cell::new(0),
            timeout: Cell::new(Some(TIMEOUT_DEFAULT)),
            log_generation: Cell::new(0),
            stripe_log: RefCell::default(),
            log_epoch: Cell::new(0),
            write_buffer: OnceCell::new(),
        })
    }

    /// The generation of the next header of a partial parity log.
    pub(crate) fn next_log_generation(&self) -> u64 {
        self.log_generation.set(self.log_generation.get() + 1);
        self.log_generation.get()
    }

    /// The stripe log, if the array keeps one.
    pub(crate) fn stripe_log(&self) -> Option<Rc<LogState>> {
        self.stripe_log.borrow().clone()
    }

    /// From now on the array keeps this stripe log: each superblock written is announced in its headers.
    pub(crate) fn keep_stripe_log(&self, state: LogState) {
        self.log_epoch.set(state.epoch());
        self.stripe_log.replace(Some(Rc::new(state)));
    }

    /// The epoch of the last stripe log that the array kept; 0 if it kept none.
    pub(crate) fn log_epoch(&self) -> u64 {
        self.log_epoch.get()
    }

    /// From now on the array keeps no stripe log.
    pub(crate) fn end_stripe_log(&self) {
        self.stripe_log.take();
    }

    /// Sets the timeout of one operation; `None` or zero disables it.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.set(timeout.filter(|timeout| !timeout.is_zero()));
    }

    /// The timeout of one operation.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.get()
    }
}
