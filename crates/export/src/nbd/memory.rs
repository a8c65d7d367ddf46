//! The payload budget of a server: how much payload memory its clients may hold in total.
//!
//! Each client has a share of its own, so the server serves it whatever the other clients hold. A request above the
//! share takes from a common part in arrival order, so short requests cannot overtake a long one forever. A reserve of
//! one maximum payload serves requests longer than a share. So clients that do not read short answers cannot delay long
//! requests. A client that does not read its long answers delays the long requests of others, and nothing else.
//!
//! This module only counts. It never allocates, and never sees the bytes. The longest payload is from `doc/proto.md`.

use super::wire::PAYLOAD_BYTES_MAX;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The payload budget of a server's clients.
#[derive(Debug)]
pub struct Memory {
    share_bytes: u64,
    common: CommonPart,
    long: CommonPart,
    accounts: Cell<u64>,
}

impl Memory {
    /// At most `total_bytes` for at most `clients` at a time. A quarter of it is the shares, and one maximum payload is
    /// the reserve.
    ///
    /// # Panics
    /// When `clients` is 0, or the maximum payload does not fit beside the shares.
    pub fn new(total_bytes: u64, clients: usize) -> Self {
        let share_bytes = total_bytes / 4 / clients as u64;
        let long_bytes = PAYLOAD_BYTES_MAX.into();
        let common_bytes = (total_bytes - clients as u64 * share_bytes).checked_sub(long_bytes);
        let common = CommonPart::new(common_bytes.expect("the longest request fits"));
        Self { share_bytes, common, long: CommonPart::new(long_bytes), accounts: Cell::new(0) }
    }

    /// Opens the account of one more client.
    pub(crate) fn account(self: &Rc<Self>) -> Account {
        let number = self.accounts.replace(self.accounts.get() + 1);
        Account { memory: self.clone(), number, share_left_bytes: Cell::new(self.share_bytes) }
    }
}

/// Bytes for all clients, granted in request order.
#[derive(Debug)]
struct CommonPart {
    left_bytes: Cell<u64>,
    /// Ids and wakers of the waiting accounts.
    queue: RefCell<VecDeque<(u64, Waker)>>,
}

impl CommonPart {
    fn new(bytes: u64) -> Self {
        Self { left_bytes: Cell::new(bytes), queue: RefCell::default() }
    }

    /// Takes `bytes`. If they are not free, the account waits in the queue until [`CommonPart::leave`].
    fn take(&self, bytes: u64, account: u64, cx: &Context<'_>) -> bool {
        let mut queue = self.queue.borrow_mut();
        let place = queue.iter().position(|(waiting, _)| *waiting == account);
        let is_first = place.unwrap_or(queue.len()) == 0;
        let left = self.left_bytes.get().checked_sub(bytes).filter(|_| is_first);
        match (left, place) {
            (Some(left), _) => self.left_bytes.set(left),
            (None, Some(place)) => queue[place].1.clone_from(cx.waker()),
            (None, None) => queue.push_back((account, cx.waker().clone())),
        }
        left.is_some()
    }

    fn put_back(&self, bytes: u64) {
        self.left_bytes.set(self.left_bytes.get() + bytes);
        self.wake_first();
    }

    fn leave(&self, account: u64) {
        let mut queue = self.queue.borrow_mut();
        if let Some(place) = queue.iter().position(|(waiting, _)| *waiting == account) {
            queue.remove(place);
            drop(queue);
            self.wake_first();
        }
    }

    fn wake_first(&self) {
        if let Some((_, waker)) = self.queue.borrow().front() {
            waker.wake_by_ref();
        }
    }
}

/// The part of the budget that bytes were taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The client's share.
    Share,
    /// The common part.
    Common,
    /// The reserve for long requests.
    Long,
}

/// One client's account of a [`Memory`]. It waits for one request at a time.
pub(crate) struct Account {
    memory: Rc<Memory>,
    number: u64,
    share_left_bytes: Cell<u64>,
}

impl Account {
    /// Takes `bytes` from the first part that has them free. Other accounts wake the caller when they return bytes.
    /// After its own [`Account::put_back`], the caller itself must poll again.
    pub(crate) fn poll_take(&self, bytes: u64, cx: &Context<'_>) -> Poll<Source> {
        let Memory { share_bytes, common, long, .. } = &*self.memory;
        let source = if let Some(left) = self.share_left_bytes.get().checked_sub(bytes) {
            self.share_left_bytes.set(left);
            Source::Share
        } else if common.take(bytes, self.number, cx) {
            Source::Common
        } else if bytes > *share_bytes && long.take(bytes, self.number, cx) {
            Source::Long
        } else {
            return Poll::Pending;
        };
        self.leave_queues();
        Poll::Ready(source)
    }

    /// Returns the bytes of a [`Account::poll_take`].
    pub(crate) fn put_back(&self, bytes: u64, source: Source) {
        match source {
            Source::Share => self.share_left_bytes.set(self.share_left_bytes.get() + bytes),
            Source::Common => self.memory.common.put_back(bytes),
            Source::Long => self.memory.long.put_back(bytes),
        }
    }

    fn leave_queues(&self) {
        self.memory.common.leave(self.number);
        self.memory.long.leave(self.number);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.leave_queues();
    }
}
