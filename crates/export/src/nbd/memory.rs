//! What the clients of a server hold of its memory for their payloads, in all.
//!
//! Each client has a share that nobody else can take, so it is served whatever the others hold. What goes past the share
//! comes from what all have in common, first come, first served; so a long request is not passed by short ones for ever.
//! A place for the longest of requests is kept for those longer than a share, so that clients which do not take their
//! short answers hold up no long request either. Whoever does not take its long answers does hold up the long requests
//! of others, and nothing else.
//!
//! It only counts, never allocates, and never knows what the bytes are for.

use super::wire::PAYLOAD_BYTES_MAX;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What a server's clients may hold.
#[derive(Debug)]
pub struct Memory {
    share_bytes: u64,
    common: Pot,
    long: Pot,
    accounts: Cell<u64>,
}

impl Memory {
    /// At most `total_bytes` for at most `clients` at a time: a quarter is their shares, and one of the longest requests has
    /// its place.
    ///
    /// # Panics
    /// When there are no clients, or is no room for the longest request beside the shares.
    pub fn new(total_bytes: u64, clients: usize) -> Self {
        let share_bytes = total_bytes / 4 / clients as u64;
        let long_bytes = PAYLOAD_BYTES_MAX.into();
        let common_bytes = (total_bytes - clients as u64 * share_bytes).checked_sub(long_bytes);
        let common = Pot::new(common_bytes.expect("there is room for the longest request"));
        Self { share_bytes, common, long: Pot::new(long_bytes), accounts: Cell::new(0) }
    }

    /// Opens the account of a further client.
    pub(crate) fn account(self: &Rc<Self>) -> Account {
        let number = self.accounts.replace(self.accounts.get() + 1);
        Account { memory: self.clone(), number, share_left_bytes: Cell::new(self.share_bytes) }
    }
}

/// Bytes that anyone may take, in the order asked.
#[derive(Debug)]
struct Pot {
    left_bytes: Cell<u64>,
    /// Numbers of the accounts that wait.
    queue: RefCell<VecDeque<(u64, Waker)>>,
}

impl Pot {
    fn new(bytes: u64) -> Self {
        Self { left_bytes: Cell::new(bytes), queue: RefCell::default() }
    }

    /// Takes `bytes`, or stands in the queue until [`Pot::leave`].
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

/// Where bytes were taken from, and belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The client's share.
    Share,
    /// What all have in common.
    Common,
    /// The place for long requests.
    Long,
}

/// One client's side of a [`Memory`]. It waits for one request at a time.
pub(crate) struct Account {
    memory: Rc<Memory>,
    number: u64,
    share_left_bytes: Cell<u64>,
}

impl Account {
    /// Takes `bytes` where they are first to be had. The caller is woken when others put back; that it polls
    /// again after [`Account::put_back`] of its own is its own affair.
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

    /// Gives back what [`Account::poll_take`] gave.
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
