//! Reads and writes of the parity levels: 4, 5, 6.
//!
//! Each stripe's part of a request is planned by [`crate::planner`] and carried
//! out here from top to bottom: reads, arithmetic, writes. A member that fails
//! a read is planned around; one that fails a write leaves the array before
//! the write is answered.

use crate::array::{Inner, Locked};
use crate::buffer::{Block, Buffer};
use crate::clock::Clock;
use crate::device::Device;
use crate::error::ArrayError;
use crate::mapped::join_parts;
use crate::member::{Member, MemberError};
use crate::patchwork::Patch;
use crate::planner::{Code, Health, Plan, Span, Symbols, Transfer, Way, plan_read, plan_write};
use crate::syndrome::{Known, compute, solve};
use format::geometry::{Parity, Role, Stripe};
use format::units::ComponentByte;
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// The part of a request that falls on one stripe.
struct Share {
    stripe: Stripe,
    spans: SmallVec<[Span; 4]>,
    bytes: usize,
}

/// Cuts an array range, not empty, at the stripes' edges.
fn shares(parity: &Parity, at: u64, bytes: u64) -> impl Iterator<Item = Share> + '_ {
    let (chunk, width) = (parity.chunk_bytes(), parity.stripe_bytes());
    let end = at + bytes;
    (at / width..end.div_ceil(width)).map(move |number| {
        let start = at.max(number * width) - number * width;
        let stop = end.min((number + 1) * width) - number * width;
        let span = |data: u64| Span {
            data: data as u16,
            within: (start.max(data * chunk) - data * chunk) as u32
                ..(stop.min((data + 1) * chunk) - data * chunk) as u32,
        };
        Share {
            stripe: parity.stripe(number),
            spans: (start / chunk..stop.div_ceil(chunk)).map(span).collect(),
            bytes: (stop - start) as usize,
        }
    })
}

fn code(parity: &Parity) -> Code {
    Code { data: parity.data_chunks(), parities: parity.parities() }
}

fn length(range: &Range<u32>) -> usize {
    (range.end - range.start) as usize
}

impl<M: Member, C: Clock> Inner<M, C> {
    pub(crate) async fn read_striped(
        &self,
        parity: &Parity,
        at: u64,
        mut into: Buffer,
        locked: Locked,
    ) -> Result<Buffer, ArrayError> {
        let mut shares = shares(parity, at, into.len() as u64);
        let first = shares.next().expect("the range is not empty");
        if first.bytes == into.len() {
            return self.read_share(parity, first, into, locked).await;
        }
        let head = into.split_to(first.bytes);
        let parts = std::iter::once((first, head)).chain(shares.map(|share| {
            let part = into.split_to(share.bytes);
            (share, part)
        }));
        let reads: Vec<_> = parts.map(|(share, part)| self.read_share(parity, share, part, locked)).collect();
        join_parts(join_all(reads).await)
    }

    fn device_of(&self, stripe: &Stripe, role: Role) -> Option<Rc<Device<M>>> {
        self.device(stripe.slot_of(role)?)
    }

    /// What the members can give of a stripe now; `failed` is what has just
    /// been tried in vain.
    fn health(&self, parity: &Parity, stripe: &Stripe, failed: Symbols) -> Health {
        let start = stripe.component().0;
        let range = start..start + parity.chunk_bytes();
        let mut health = Health {
            unreadable: failed,
            absent: Symbols::EMPTY,
            parity_trusted: self.is_agreed((stripe.number() + 1) * parity.stripe_bytes()),
        };
        if self.whole.get() {
            return health;
        }
        for (index, device) in self.slots.borrow().iter().enumerate() {
            let role = stripe.role_of(format::units::Slot(index as u16));
            let active = device.as_ref().filter(|device| device.is_active());
            if active.is_none() {
                health.absent = health.absent.with(role);
            }
            if !active.is_some_and(|device| device.is_readable(range.clone())) {
                health.unreadable = health.unreadable.with(role);
            }
        }
        health
    }

    /// Reads one stripe's share. Reconstruction needs data and parity of one
    /// moment, so it keeps writes off the stripe; a direct read need not.
    async fn read_share(
        &self,
        parity: &Parity,
        share: Share,
        mut into: Buffer,
        locked: Locked,
    ) -> Result<Buffer, ArrayError> {
        let number = share.stripe.number();
        let mut lock = None;
        let mut failed = Symbols::EMPTY;
        let mut last_error = None;
        loop {
            let health = self.health(parity, &share.stripe, failed);
            let is_locked = locked == Locked::Exclusively || lock.is_some();
            let known = if is_locked { self.known(&share.stripe, &share.spans, &[]) } else { Default::default() };
            let spans = self.read_in_units(&share.spans, health.unreadable);
            let Ok(plan) = plan_read(code(parity), &spans, &known, &health) else {
                return Err(self.io_error(number * parity.stripe_bytes(), share.bytes as u64, last_error.as_ref()));
            };
            let is_direct = plan.recalls.is_empty() && plan.columns.iter().all(|column| column.way == Way::Direct);
            if !is_direct && !is_locked {
                self.gathering.close_within(&(number..number + 1));
                lock = Some(self.locks.shared(number..number + 1).await);
                continue; // the array may have changed meanwhile
            }
            let (result, buffer) = match is_direct {
                true => self.read_directly(&share, into).await,
                false => self.read_and_solve(parity, &share, &plan, into).await,
            };
            into = buffer;
            match result {
                Ok(()) => return Ok(into),
                Err((role, error)) => {
                    failed = failed.with(role);
                    last_error = error.or(last_error);
                }
            }
        }
    }

    /// Each span straight into its place.
    async fn read_directly(&self, share: &Share, mut into: Buffer) -> (Result<(), Failed>, Buffer) {
        let reads = share.spans.iter().map(|span| {
            let part = into.split_to(length(&span.within));
            self.read_chunk(&share.stripe, Role::Data(span.data), span.within.start, part)
        });
        let reads: Vec<_> = reads.collect();
        let mut result = Ok(());
        let mut whole: Option<Buffer> = None;
        for (outcome, part) in join_all(reads).await {
            result = result.and(outcome);
            match &mut whole {
                Some(whole) => whole.join(part),
                None => whole = Some(part),
            }
        }
        (result, whole.unwrap_or(into))
    }

    async fn read_chunk(&self, stripe: &Stripe, role: Role, at: u32, into: Buffer) -> (Result<(), Failed>, Buffer) {
        let Some(device) = self.device_of(stripe, role) else { return (Err((role, None)), into) };
        let (result, into) = device.read(component(stripe, at), into).await;
        (result.map_err(|error| (role, Some(error))), into)
    }

    /// Reads what the plan says and works out the rest.
    async fn read_and_solve(
        &self,
        parity: &Parity,
        share: &Share,
        plan: &Plan,
        mut into: Buffer,
    ) -> (Result<(), Failed>, Buffer) {
        let old = match self.old_contents(&share.stripe, plan).await {
            Ok(old) => old,
            Err(failed) => return (Err(failed), into),
        };
        let known = Known { old: &old, new: &[] };
        let mut start = 0;
        for span in &share.spans {
            let target = &mut into[start..start + length(&span.within)];
            start += target.len();
            for column in &plan.columns {
                let range = column.within.start.max(span.within.start)..column.within.end.min(span.within.end);
                if range.start >= range.end {
                    continue;
                }
                let base = (range.start - span.within.start) as usize;
                let part = &mut target[base..base + length(&range)];
                let role = Role::Data(span.data);
                match &column.way {
                    Way::Solve { unknown } if unknown.contains(role) => {
                        solve(self.kernel, parity, &share.stripe, &known, column, role, range, part);
                    }
                    _ => part.copy_from_slice(known.old(role, &range).expect("the plan reads what is asked")),
                }
            }
        }
        self.learn(parity, &share.stripe, &share.spans, old.iter());
        (Ok(()), into)
    }

    /// Everything that a plan uses: from the cache, and from the members.
    async fn old_contents(&self, stripe: &Stripe, plan: &Plan) -> Result<Vec<(Transfer, Block)>, Failed> {
        let recalled = self.recall(stripe, &plan.recalls);
        let mut old = self.read_transfers(stripe, &plan.reads).await?;
        old.extend(recalled);
        Ok(old)
    }

    /// Carries out reads at once; says which chunk failed first.
    async fn read_transfers(&self, stripe: &Stripe, transfers: &[Transfer]) -> Result<Vec<(Transfer, Block)>, Failed> {
        let reads = transfers.iter().map(|transfer| {
            let into = self.pool.take(length(&transfer.within));
            self.read_chunk(stripe, transfer.role, transfer.within.start, into)
        });
        let results = join_all(reads).await;
        let pair = |(transfer, (result, buffer)): (&Transfer, (Result<(), Failed>, Buffer))| {
            result.map(|()| (transfer.clone(), buffer.freeze()))
        };
        transfers.iter().zip(results).map(pair).collect()
    }

    /// Writes a part of one stripe, in whole blocks; the caller keeps others off the stripe.
    pub(crate) async fn write_part(&self, parity: &Parity, number: u64, patches: &[Patch]) -> Result<(), ArrayError> {
        let (share, new) = pieces(parity, number, patches);
        let is_whole = share.bytes as u64 == parity.stripe_bytes();
        let kept = if is_whole { Default::default() } else { self.rest_of_units(&share.spans) };
        let mut failed = Symbols::EMPTY;
        let mut last_error = None;
        loop {
            let health = self.health(parity, &share.stripe, failed);
            let known = if is_whole { Default::default() } else { self.known(&share.stripe, &share.spans, &kept) };
            let Ok(plan) = plan_write(code(parity), &share.spans, &kept, &known, &health) else {
                let at = share.stripe.number() * parity.stripe_bytes();
                return Err(self.io_error(at, share.bytes as u64, last_error.as_ref()));
            };
            match self.old_contents(&share.stripe, &plan).await {
                Ok(old) => return self.write_planned(parity, &share, &plan, &old, &new).await,
                Err((role, error)) => {
                    failed = failed.with(role);
                    last_error = error.or(last_error);
                }
            }
        }
    }

    async fn write_planned(
        &self,
        parity: &Parity,
        share: &Share,
        plan: &Plan,
        old: &[(Transfer, Block)],
        new: &[(Transfer, Block)],
    ) -> Result<(), ArrayError> {
        let known = Known { old, new };
        let parities = compute(self.kernel, &self.pool, parity, &share.stripe, &known, plan);
        let kept = kept_pieces(&known, plan);
        let blocks = |transfer: &Transfer| -> Vec<Block> {
            let (source, kept) = match transfer.role {
                Role::Data(_) => (new, &kept[..]),
                _ => (&parities[..], &[][..]),
            };
            let parts = source.iter().chain(kept).filter(|(part, _)| {
                part.role == transfer.role
                    && transfer.within.start <= part.within.start
                    && part.within.end <= transfer.within.end
            });
            let mut parts: SmallVec<[&(Transfer, Block); 4]> = parts.collect();
            parts.sort_by_key(|(part, _)| part.within.start);
            parts.into_iter().map(|(_, block)| block.clone()).collect()
        };
        let writes: Vec<_> = plan.writes.iter().map(|transfer| (transfer, blocks(transfer))).collect();
        self.write_transfers(&share.stripe, writes).await?;
        if (share.bytes as u64) < parity.stripe_bytes() {
            // Old parity does not count any more, whether or not there is new.
            let data = old.iter().filter(|(transfer, _)| matches!(transfer.role, Role::Data(_)));
            self.learn(parity, &share.stripe, &share.spans, data.chain(new).chain(&parities));
        }
        Ok(())
    }

    /// Writes to all chunks at once. A member that fails leaves the array. What
    /// the cache holds of them is forgotten first.
    async fn write_transfers(
        &self,
        stripe: &Stripe,
        transfers: Vec<(&Transfer, Vec<Block>)>,
    ) -> Result<(), ArrayError> {
        self.forget(stripe, transfers.iter().map(|(transfer, _)| *transfer));
        let writes = transfers.into_iter().filter_map(|(transfer, blocks)| {
            let device = self.device_of(stripe, transfer.role)?;
            let at = component(stripe, transfer.within.start);
            Some(async move {
                let result = device.write(at, blocks).await;
                (device, result)
            })
        });
        let writes: Vec<_> = writes.collect();
        for (device, result) in join_all(writes).await {
            if let Err(error) = result {
                self.record_failure(&device, &error).await?;
            }
        }
        Ok(())
    }
}

/// A chunk that could not be read, and the error if there was one.
type Failed = (Role, Option<MemberError>);

fn component(stripe: &Stripe, within: u32) -> ComponentByte {
    ComponentByte(stripe.component().0 + u64::from(within))
}

/// What is written back as it is, a block for each column.
fn kept_pieces(known: &Known<'_>, plan: &Plan) -> Vec<(Transfer, Block)> {
    let columns = plan.columns.iter().filter(|column| !column.kept.is_empty());
    let pieces = columns.flat_map(|column| column.kept.iter().map(move |role| (role, column.within.clone())));
    pieces
        .map(|(role, within)| {
            let block = known.old_block(role, &within).expect("what is kept is read");
            (Transfer { role, within }, block)
        })
        .collect()
}

/// What patches of one stripe ask for, and their data, a block for each span.
fn pieces(parity: &Parity, number: u64, patches: &[Patch]) -> (Share, Vec<(Transfer, Block)>) {
    let mut share = Share { stripe: parity.stripe(number), spans: SmallVec::new(), bytes: 0 };
    let mut new = Vec::with_capacity(patches.len());
    for patch in patches {
        let mut start = 0;
        for span in shares(parity, patch.at, patch.block.len() as u64).flat_map(|share| share.spans) {
            let end = start + length(&span.within);
            let transfer = Transfer { role: Role::Data(span.data), within: span.within.clone() };
            new.push((transfer, patch.block.slice(start..end)));
            share.spans.push(span);
            start = end;
        }
        share.bytes += start;
    }
    (share, new)
}
