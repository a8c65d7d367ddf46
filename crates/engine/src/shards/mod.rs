//! Shards: one array by several threads. A stripe belongs to one shard, and a shard is one thread with its own members, pool,
//! cache and executor; a request that stays with its shard meets no lock of another's.
//!
//! The first shard is the [`Array`] itself. It alone writes superblocks and bitmaps, sweeps, heals, and changes what the
//! array is. Further shards are arrays with a data plane alone, over handles of their own of the same members; they ask
//! the first for what there is one of ([`seam`]), by letters that others carry ([`Post`]): this knows no thread.
//!
//! Invariants:
//! * A further shard works under a licence, which the first gives while nothing is amiss ([`first`]): every member there and
//!   current, everything in agreement, no checksums, nobody being replaced. Otherwise the first carries out all requests: all else
//!   that an array does knows one shard only.
//! * Before a licence is given, whoever gives it has nothing under way or in memory of others' stripes. When it is given back
//!   (letter `Returned`), nothing is under way any more, and nothing of it is kept.
//! * A member that fails a write is recorded by the first before the write is answered, as everywhere. Others
//!   learn of it when their licence is taken back; until then what they write reaches one member more than counts.
//! * Marks are made by the first before data is written, and given back when no write needs them.
//!
//! Requests may come to any shard, which sends each part to its owner. Between requests that are under way at the
//! same time there is no order.

mod first;
mod further;
mod letters;
pub(crate) mod seam;

pub use letters::{Letter, Post, Shareable};

use crate::array::{Array, Durability};
use crate::base::buffer::{Block, Buffer, Pool};
use crate::base::join::join_all;
use crate::data::mirror::join_parts;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::observe::Observer;
use first::First;
use format::geometry::Geometry;
use further::Further;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, TryStreamExt};
use letters::{Answer, Content, Facts, Request, Zeroing};
use std::ops::Range;
use std::rc::Rc;

/// Parts of a long request that are under way at a time.
const PARTS_MAX: usize = 32;

/// How an array is divided, for those who make further shards.
#[derive(Debug, Clone)]
pub struct Division {
    shards: u16,
    /// Array bytes that belong to one shard, in turn: whole stripes.
    run_bytes: u64,
    facts: Facts,
}

impl Division {
    /// Of `array` among `shards`, in runs of whole stripes, `run_bytes` at the least.
    ///
    /// # Panics
    /// When there is no shard, or a run would be empty.
    pub fn new<M: Shareable, C: Clock>(array: &Array<M, C>, shards: u16, run_bytes: u64) -> Self {
        assert!(shards > 0 && run_bytes > 0, "{shards} shards, runs of {run_bytes} bytes");
        let unit = match array.0.geometry() {
            Geometry::Parity(parity) => parity.stripe_bytes(),
            Geometry::Mapping(_) => array.block_bytes().max(4096),
        };
        Self { shards, run_bytes: run_bytes.next_multiple_of(unit), facts: first::facts(array) }
    }

    fn owner(&self, at: u64) -> u16 {
        (at / self.run_bytes % u64::from(self.shards)) as u16
    }

    /// The first part of a range that is not empty, up to the end of its run.
    fn part(&self, range: &Range<u64>) -> Range<u64> {
        range.start..range.end.min((range.start / self.run_bytes + 1) * self.run_bytes)
    }

    fn parts(&self, mut range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        std::iter::from_fn(move || {
            let part = (!range.is_empty()).then(|| self.part(&range))?;
            range.start = part.end;
            Some(part)
        })
    }
}

/// What a further shard is set up with; each of them for itself.
#[derive(Debug, Clone)]
pub struct ShardOptions {
    /// As [`crate::AssembleOptions::kernel`].
    pub kernel: Option<&'static parity::Kernel>,
    /// As [`crate::AssembleOptions::cache_bytes`].
    pub cache_bytes: Option<usize>,
    /// As [`crate::AssembleOptions::gather_bytes`].
    pub gather_bytes: u64,
    /// As [`crate::AssembleOptions::read_ahead_bytes`].
    pub read_ahead_bytes: usize,
    /// Whether writes are answered from memory ([`Array::write_back`]).
    pub writeback: bool,
}

/// One shard of an array, and a way in to all of it. Clones share it.
pub struct Shard<M: Shareable, C: Clock>(Rc<Own<M, C>>);

impl<M: Shareable, C: Clock> Clone for Shard<M, C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Own<M: Shareable, C: Clock> {
    number: u16,
    division: Division,
    post: Rc<dyn Post<M::Handle>>,
    role: Role<M, C>,
}

enum Role<M: Shareable, C: Clock> {
    First(Rc<First<M, C>>),
    Further(Rc<Further<M, C>>),
}

impl<M: Shareable, C: Clock + Clone> Shard<M, C> {
    /// The first shard of `array`. Whoever serves it runs [`Shard::give_licences`] beside the requests.
    pub fn first(array: Array<M, C>, division: Division, post: Rc<dyn Post<M::Handle>>) -> Self {
        let role = Role::First(Rc::new(First::new(array, division.shards, post.clone())));
        Self(Rc::new(Own { number: 0, division, post, role }))
    }

    /// The shard of this number, from 1 on, with its own pool and clock.
    pub fn further(
        number: u16,
        division: Division,
        options: ShardOptions,
        pool: Pool,
        clock: C,
        post: Rc<dyn Post<M::Handle>>,
    ) -> Self {
        let role = Role::Further(Rc::new(Further::new(number, division.facts, options, pool, clock, post.clone())));
        Self(Rc::new(Own { number, division, post, role }))
    }

    /// Has the further shards work whenever they may, until the array is stopped. They have to be there, and get their
    /// letters, until this ends. A further shard has nothing to do here.
    pub async fn give_licences(&self) {
        if let Role::First(first) = &self.0.role {
            first.run().await;
        }
    }

    /// Takes a letter. What it changes is changed when this returns; the rest is for whoever calls to run as a task.
    pub fn deliver(&self, letter: Letter<M::Handle>) -> Option<LocalBoxFuture<'static, ()>> {
        match (letter.0, &self.0.role) {
            (Content::Request(request, answer), _) => {
                let shard = self.clone();
                let work = async move { drop(answer.send(Answer::Done(shard.carry_out(request).await))) };
                Some(work.boxed_local())
            }
            (Content::Forwarded(request, answer), Role::First(first)) => {
                Some(first.clone().carry_out(request, answer).boxed_local())
            }
            (Content::Report(from, report), Role::First(first)) => first.hear(from, report),
            (Content::Facts(facts), Role::Further(further)) => {
                further.facts.set(facts);
                None
            }
            (Content::Licence(licence), Role::Further(further)) => Some(further.begin(*licence)),
            (Content::Revocation, Role::Further(further)) => Some(further.end()),
            _ => unreachable!("a letter of one shard to another that has no such part"),
        }
    }

    /// As [`Array::observe`], of the transfers of this shard.
    pub fn observe(&self, observer: Option<Rc<dyn Observer>>) {
        match &self.0.role {
            Role::First(first) => first.array.observe(observer),
            Role::Further(further) => further.observe(observer),
        }
    }

    /// Whether an array byte is in a stripe of this shard.
    pub fn owns(&self, at: u64) -> bool {
        self.0.division.owner(at) == self.0.number
    }

    /// Whether this shard works on stripes of its own now.
    pub fn is_at_work(&self) -> bool {
        self.array().is_some()
    }

    fn facts(&self) -> Facts {
        match &self.0.role {
            Role::First(first) => first::facts(&first.array),
            Role::Further(further) => further.facts.get(),
        }
    }

    /// As [`Array::bytes`].
    pub fn bytes(&self) -> u64 {
        self.facts().bytes
    }

    /// As [`Array::preferred_bytes`].
    pub fn preferred_bytes(&self) -> u64 {
        self.facts().preferred_bytes
    }

    /// As [`Array::logical_block_bytes`].
    pub fn logical_block_bytes(&self) -> Option<u32> {
        self.facts().logical_block_bytes
    }

    /// As [`Array::is_read_only`].
    pub fn is_read_only(&self) -> bool {
        self.facts().is_read_only
    }

    /// The pool of this shard's thread.
    pub fn pool(&self) -> &Pool {
        match &self.0.role {
            Role::First(first) => first.array.pool(),
            Role::Further(further) => &further.pool,
        }
    }

    /// As [`Array::read`].
    ///
    /// # Errors
    /// As there.
    pub async fn read(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let range = at..at.saturating_add(into.len() as u64);
        if range.is_empty() || self.0.division.part(&range).end == range.end {
            return self.read_part(at, into).await;
        }
        self.check(&range)?;
        let parts = self.0.division.parts(range).map(|part| {
            let piece = into.split_to((part.end - part.start) as usize);
            self.read_part(part.start, piece)
        });
        let parts: Vec<_> = parts.collect();
        join_parts(Box::pin(join_all(parts)).await)
    }

    /// As [`Array::write`].
    ///
    /// # Errors
    /// As there.
    pub async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), ArrayError> {
        let range = at..at.saturating_add(from.len() as u64);
        if range.is_empty() || self.0.division.part(&range).end == range.end {
            return self.write_part(at, from, durability).await;
        }
        self.check(&range)?;
        let parts = self.0.division.parts(range).map(|part| {
            let piece = from.slice((part.start - at) as usize..(part.end - at) as usize);
            self.write_part(part.start, piece, durability)
        });
        let parts: Vec<_> = parts.collect();
        Box::pin(join_all(parts)).await.into_iter().collect()
    }

    /// As [`Array::flush`].
    ///
    /// # Errors
    /// As there.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        // Once what others answered from memory is written out, one flush of the members covers it all.
        let others = (0..self.0.division.shards).filter(|&shard| shard != self.0.number);
        let written = join_all(others.map(|shard| self.ask(shard, Request::WriteOut))).await;
        written.into_iter().try_for_each(|done| done.map(drop))?;
        self.carry_out(Request::Flush).await.map(drop)
    }

    /// As [`Array::write_zeroes`].
    ///
    /// # Errors
    /// As there.
    pub async fn write_zeroes(&self, at: u64, bytes: u64, durability: Durability) -> Result<(), ArrayError> {
        self.zero(at, bytes, Zeroing::Write, durability).await
    }

    /// As [`Array::punch_hole`].
    ///
    /// # Errors
    /// As there.
    pub async fn punch_hole(&self, at: u64, bytes: u64, durability: Durability) -> Result<(), ArrayError> {
        self.zero(at, bytes, Zeroing::Punch, durability).await
    }

    /// As [`Array::discard`].
    ///
    /// # Errors
    /// As there.
    pub async fn discard(&self, at: u64, bytes: u64) -> Result<(), ArrayError> {
        self.zero(at, bytes, Zeroing::Discard, Durability::Ordinary).await
    }

    async fn zero(&self, at: u64, bytes: u64, zeroing: Zeroing, durability: Durability) -> Result<(), ArrayError> {
        let range = at..at.saturating_add(bytes);
        self.check(&range)?;
        let zeroed = self.0.division.parts(range).map(|range| {
            let owner = self.0.division.owner(range.start);
            Ok(self.ask(owner, Request::Zero { range, zeroing, durability }).map(|done| done.map(drop)))
        });
        stream::iter(zeroed).try_buffer_unordered(PARTS_MAX).try_collect().await
    }

    /// Refuses what does not lie within the array as a whole, before a part of it is carried out.
    fn check(&self, range: &Range<u64>) -> Result<(), ArrayError> {
        let bytes = self.bytes();
        if range.end <= bytes {
            return Ok(());
        }
        let Range { start, end } = range;
        Err(ArrayError::new(ArrayErrorKind::OutOfRange, format!("bytes {start} to {end} of an array of {bytes}")))
    }

    /// Has a shard, perhaps this one, carry out a request for its own stripes.
    async fn ask(&self, shard: u16, request: Request) -> Result<Vec<u8>, ArrayError> {
        if shard == self.0.number {
            return self.carry_out(request).await;
        }
        let (answer, answered) = oneshot::channel();
        self.0.post.send(shard, Letter(Content::Request(request, answer)));
        match answered.await {
            Ok(Answer::Done(done)) => done,
            Ok(Answer::Yours(_)) => unreachable!("an owner carries out what is asked of it"),
            Err(oneshot::Canceled) => Err(seam::gone()),
        }
    }

    async fn carry_out(&self, mut request: Request) -> Result<Vec<u8>, ArrayError> {
        match &self.0.role {
            Role::First(first) => perform(&first.array, &mut request).await,
            Role::Further(further) => further.carry_out(request).await,
        }
    }

    /// This shard's array, if it may work on stripes of its own.
    fn array(&self) -> Option<Array<M, C>> {
        match &self.0.role {
            Role::First(first) => Some(first.array.clone()),
            Role::Further(further) => further.array(),
        }
    }

    /// A part of a run.
    async fn read_part(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let owner = self.0.division.owner(at);
        if let Some(array) = self.array().filter(|_| owner == self.0.number) {
            return array.read(at, into).await;
        }
        let request = Request::Read { at, bytes: into.len() as u64, paper: Vec::with_capacity(into.len()) };
        let data = Box::pin(self.ask(owner, request)).await?;
        into.copy_from_slice(&data);
        Ok(into)
    }

    /// A part of a run.
    async fn write_part(&self, at: u64, from: Block, durability: Durability) -> Result<(), ArrayError> {
        let owner = self.0.division.owner(at);
        if let Some(array) = self.array().filter(|_| owner == self.0.number) {
            return array.write(at, from, durability).await;
        }
        let request = Request::Write { at, data: from.to_vec(), durability };
        Box::pin(self.ask(owner, request)).await.map(drop)
    }
}

/// Carries out a request of another shard, or of another thread's. One that fails can be carried out again.
async fn perform<M: Shareable, C: Clock>(array: &Array<M, C>, request: &mut Request) -> Result<Vec<u8>, ArrayError> {
    match request {
        Request::Read { at, bytes, paper } => {
            let read = array.read(*at, array.pool().take(*bytes as usize)).await?;
            paper.extend_from_slice(&read);
            Ok(std::mem::take(paper))
        }
        Request::Write { at, data, durability } => {
            let from = array.pool().copy_of(data);
            array.write(*at, from, *durability).await.map(|()| std::mem::take(data))
        }
        Request::WriteOut => array.write_out().await.map(|()| Vec::new()),
        Request::Flush => array.flush().await.map(|()| Vec::new()),
        Request::Zero { range: Range { start, end }, zeroing, durability } => {
            let (at, bytes) = (*start, *end - *start);
            let zeroed = match zeroing {
                Zeroing::Write => array.write_zeroes(at, bytes, *durability).await,
                Zeroing::Punch => array.punch_hole(at, bytes, *durability).await,
                Zeroing::Discard => array.discard(at, bytes).await,
            };
            zeroed.map(|()| Vec::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_the_edges_of_runs_and_each_part_has_one_owner() {
        let facts = Facts { bytes: 1000, preferred_bytes: 0, logical_block_bytes: None, is_read_only: false };
        let division = Division { shards: 3, run_bytes: 100, facts };
        for (range, expected) in [
            (0..100, vec![(0..100, 0)]),
            (50..150, vec![(50..100, 0), (100..150, 1)]),
            (199..301, vec![(199..200, 1), (200..300, 2), (300..301, 0)]),
            (7..7, vec![]),
        ] {
            let parts: Vec<_> = division.parts(range).map(|part| (part.clone(), division.owner(part.start))).collect();
            assert_eq!(parts, expected);
        }
    }
}
