//! What shards say to each other. Letters hold no memory of any pool and nothing that is bound to a thread, but for the
//! members' handles, if these are: so they travel between threads as well as through virtual time.

use crate::array::Durability;
use crate::control::owed::Debt;
use crate::plan::stripe_size::StripeSize;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::geometry::Geometry;
use format::superblock::Superblock;
use format::units::MemberByte;
use futures_channel::oneshot;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// A member of which further shards can have handles of their own.
pub trait Shareable: Member + Sized {
    /// What another shard makes its own member of.
    type Handle: 'static;

    /// A handle of the same member; `None` when there cannot be one.
    fn share(&self) -> Option<Self::Handle>;

    /// The member of a handle.
    fn open(handle: Self::Handle) -> Self;
}

/// Each shard has a member of its own; those of one have several owners.
impl<M: Shareable> Shareable for Rc<M> {
    type Handle = M::Handle;

    fn share(&self) -> Option<M::Handle> {
        (**self).share()
    }

    fn open(handle: M::Handle) -> Self {
        Self::new(M::open(handle))
    }
}

/// Carries letters.
pub trait Post<H> {
    /// Has `letter` handed to the shard `to` ([`crate::Shard::deliver`]), behind all that this shard has sent it before.
    fn send(&self, to: u16, letter: Letter<H>);
}

/// From one shard to another.
pub struct Letter<H>(pub(super) Content<H>);

pub(super) enum Content<H> {
    /// A request for stripes of the shard that gets this.
    Request(Request, oneshot::Sender<Answer>),
    /// To the first shard: a request for stripes of the sender, who has no licence.
    Forwarded(Request, oneshot::Sender<Answer>),
    /// To the first shard, from the further shard of this number.
    Report(u16, Report),
    /// From the first shard: what the array looks like from outside now.
    Facts(Facts),
    /// From the first shard: go to work.
    Licence(Box<Licence<H>>),
    /// From the first shard: no longer.
    Revocation,
}

/// What became of a request.
pub(super) enum Answer {
    /// With what was read, on the paper of the request: of what is written too it goes back to where it came from, as memory that
    /// one thread frees for another is fought for.
    Done(Result<Vec<u8>, ArrayError>),
    /// The sender has been given a licence meanwhile.
    Yours(Request),
}

/// What is asked of an array.
#[derive(Debug)]
pub(super) enum Request {
    Read {
        at: u64,
        bytes: u64,
        /// Empty, with room for what is read.
        paper: Vec<u8>,
    },
    Write {
        at: u64,
        data: Vec<u8>,
        durability: Durability,
    },
    /// What was answered from memory goes to the members.
    WriteOut,
    Flush,
    Zero {
        range: Range<u64>,
        zeroing: Zeroing,
        durability: Durability,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zeroing {
    Write,
    Punch,
    Discard,
}

/// From a further shard to the first, which alone writes superblocks and bitmaps.
pub(crate) enum Report {
    /// It is about to write to a unit of what the bitmap covers.
    Mark(u64, oneshot::Sender<Result<(), ArrayError>>),
    /// It writes to these units no more, until it says so again.
    Unmarked(Vec<u64>),
    /// A member failed a write or a flush.
    Failed(Failure, oneshot::Sender<Result<(), ArrayError>>),
    /// A member could not be read.
    Unread(Unread),
    /// What members did since the last such letter.
    Moved(Vec<Moved>),
    /// Array bytes that were answered from memory and could not be written.
    Lost(Vec<Range<u64>>),
    /// A member had no room for what was written: it owes that, until [`Report::Owed`].
    NoRoom,
    /// What members owe, as the licence is given back; and whether that was answered from memory.
    Owed(Vec<Debt>, bool),
    /// A write was abandoned, or what was answered is lost.
    Broke(String),
    /// The licence is given back, nothing is under way, and nothing is marked.
    Returned,
}

/// A member's error, without what is bound to a thread.
pub(crate) struct Failure {
    pub(crate) device_number: u16,
    kind: MemberErrorKind,
    operation: Operation,
    at: MemberByte,
    bytes: u64,
    reason: String,
}

impl Failure {
    pub(crate) fn new(device_number: u16, error: &MemberError) -> Self {
        let MemberFault { kind, operation, at, bytes, source } = &**error;
        Self { device_number, kind: *kind, operation: *operation, at: *at, bytes: *bytes, reason: source.to_string() }
    }

    pub(super) fn error(self) -> MemberError {
        let Self { kind, operation, at, bytes, reason, .. } = self;
        MemberFault { kind, operation, at, bytes, source: Rc::new(std::io::Error::other(reason)) }.into()
    }
}

/// What a member did.
pub(crate) struct Moved {
    pub(crate) device_number: u16,
    pub(crate) counts: [u64; 5],
}

/// Where a member could not be read, in bytes of its component.
pub(crate) struct Unread {
    pub(crate) device_number: u16,
    pub(crate) range: Range<u64>,
    /// Not for a fault of the medium.
    pub(crate) is_away: bool,
}

/// The array from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) bytes: u64,
    pub(super) preferred_bytes: u64,
    pub(super) logical_block_bytes: Option<u32>,
    pub(super) is_read_only: bool,
}

/// What a further shard works by: the array as it is while nothing is amiss.
pub(super) struct Licence<H> {
    pub(super) geometry: Geometry,
    /// By slot.
    pub(super) seats: Vec<Seat<H>>,
    pub(super) block_bytes: u64,
    pub(super) stripe_size: StripeSize,
    /// Length of a unit of what the bitmap covers, for [`Report::Mark`].
    pub(super) unit_bytes: u64,
    pub(super) patience: Option<Duration>,
}

pub(super) struct Seat<H> {
    pub(super) name: String,
    pub(super) superblock: Superblock,
    pub(super) handle: H,
}
