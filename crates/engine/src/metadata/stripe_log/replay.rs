//! Finds the stripe logs of an array's members, and replays them after a loss of power. Afterwards parity agrees with the
//! data in each row that a write to a part of a stripe had touched, so that it can be trusted also where members are
//! missing.
//!
//! It writes parity to the members, before any request. Of an array that is only read, the caller gives members whose
//! writes stay in memory. It never writes a log or a superblock, and data only where a member cannot be read
//! ([`crate::metadata::replay`]). A replay that is cut short is repeated from its
//! begin: each entry gives the same parity again.
//!
//! Each member's entries stand for themselves: the newest entry of a row says what that member's parity is. Only where a
//! changed chunk is missing, Q follows from P.

use crate::base::buffer::Pool;
use crate::base::range_set::Ranges;
use crate::device::Device;
use crate::metadata::replay::{Chunks, Replayed, Settle, Slots, read_chunk, rewrite, write_chunk};
use crate::metadata::stripe_log::found::{check_current, of_member, read, records_of};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};
use format::stripe_log::{Entry, Header, PAGE_BYTES, Place, checksum};
use format::units::{MemberByte, Slot};
use parity::{Kernel, gf};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

/// The logs of an array.
pub(crate) enum Found {
    /// The array keeps none.
    None,
    /// The array keeps one, and it does not count: why.
    Void(Refusal, u64),
    /// They count.
    Good(Logs),
}

/// Logs that count.
pub(crate) struct Logs {
    /// The newest epoch.
    epoch: u64,
    of_slots: Vec<Option<(Header, Place)>>,
}

impl Found {
    /// The greatest epoch on any member; `None` if the array keeps no log.
    pub(crate) fn epoch(&self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Void(_, epoch) => Some(*epoch),
            Self::Good(logs) => Some(logs.epoch),
        }
    }
}

impl Logs {
    /// Whether parity was built everywhere.
    pub(crate) fn is_built(&self) -> bool {
        self.current().all(|(_, header, _)| header.is_built)
    }

    /// The members whose logs are of the newest epoch. The others have no entry that counts: a replay came between.
    fn current(&self) -> impl Iterator<Item = (Slot, &Header, &Place)> {
        let logs = self.of_slots.iter().zip(0..).filter_map(|(log, slot)| Some((Slot(slot), log.as_ref()?)));
        logs.map(|(slot, (header, place))| (slot, header, place)).filter(|(_, header, _)| header.epoch == self.epoch)
    }
}

/// Looks for the logs of the members in an array's slots.
pub(crate) async fn find<M: Member>(slots: &Slots<M>, pool: &Pool) -> Found {
    let mut of_slots = Vec::new();
    let (mut void, mut epoch) = (None, None);
    for device in slots {
        let Some(device) = device else {
            of_slots.push(None);
            continue;
        };
        let superblock = device.superblock.borrow().clone();
        match of_member(&device.member, &device.name, &superblock, pool).await {
            Ok(Some((header, place))) => {
                epoch = epoch.max(Some(header.epoch));
                let counts = check_current(&device.name, &superblock, &header, &place);
                void = void.or(counts.err());
                of_slots.push(Some((header, place)));
            }
            Ok(None) => {
                void.get_or_insert_with(|| missing(device));
                of_slots.push(None);
            }
            Err(refusal) => {
                void.get_or_insert(refusal);
                of_slots.push(None);
            }
        }
    }
    match (epoch, void) {
        (None, _) => Found::None,
        (Some(epoch), Some(void)) => Found::Void(void, epoch),
        (Some(epoch), None) => Found::Good(Logs { epoch, of_slots }),
    }
}

fn missing<M>(device: &Device<M>) -> Refusal {
    Refusal::new("it has no stripe log, but other members have one").of(&device.name).field("stripe_log")
}

/// An entry on one member.
#[derive(Clone)]
struct Logged {
    slot: Slot,
    role: Role,
    stripe: Stripe,
    sequence: u64,
    entry: Entry,
    partial_at: MemberByte,
}

/// Part of a row range, as the newest entry of one parity says.
struct Job {
    partial: (Slot, MemberByte),
}

/// The parities of the same rows by the same entry.
#[derive(Default)]
struct Jobs {
    p: Option<Job>,
    q: Option<Job>,
}

/// Replays the logs.
///
/// # Errors
/// When a log cannot be read or is damaged, or a member can neither be read nor written where it says: parity may then be
/// wrong there.
pub(crate) async fn replay<M: Member>(
    logs: &Logs,
    parity: &Parity,
    kernel: &Kernel,
    slots: &Slots<M>,
    pool: &Pool,
) -> Result<Replayed, Refusal> {
    let mut replayed = Replayed::default();
    let entries = entries(logs, parity, slots, pool, &mut replayed).await?;
    let mut by_rows: BTreeMap<(u64, u64, u64), (Entry, Stripe, Jobs)> = BTreeMap::new();
    for (found, rows) in newest(entries) {
        let key = (rows.start, rows.end, found.sequence);
        let (_, _, jobs) = by_rows.entry(key).or_insert_with(|| (found.entry.clone(), found.stripe, Jobs::default()));
        let skipped = rows.start - found.stripe.component().0 - u64::from(found.entry.rows.start);
        let job = Job { partial: (found.slot, MemberByte(found.partial_at.0 + skipped)) };
        match found.role {
            Role::Q => jobs.q = Some(job),
            Role::P | Role::Data(_) => jobs.p = Some(job),
        }
    }
    for ((start, end, _), (entry, stripe, jobs)) in &by_rows {
        let repair = Repair { entry, stripe, jobs, start: *start, kernel, slots, pool };
        repair.carry_out(*start..*end, &mut replayed).await?;
        replayed.entries += 1;
    }
    replayed.end(slots).await
}

/// The entries that count, in no order. Torn ones are counted in `replayed`.
async fn entries<M: Member>(
    logs: &Logs,
    parity: &Parity,
    slots: &Slots<M>,
    pool: &Pool,
    replayed: &mut Replayed,
) -> Result<Vec<Logged>, Refusal> {
    let mut records = Vec::new();
    for (slot, header, place) in logs.current() {
        let device = slots[slot.index()].as_ref().expect("its log was read");
        for record in records_of(&device.member, &device.name, header, place, pool).await? {
            records.push((slot, device, place, record));
        }
    }
    let tail = logs.current().map(|(_, header, _)| header.tail);
    let tail = tail.chain(records.iter().map(|(_, _, _, record)| record.tail)).max().unwrap_or(0);
    let last = records.iter().map(|(_, _, _, record)| record.sequence).max().unwrap_or(0);
    records.retain(|(_, _, _, record)| record.sequence >= tail);
    let mut entries = Vec::new();
    for (slot, device, place, record) in records {
        let mut offset = record.offset + PAGE_BYTES as u64;
        for entry in record.entries {
            let wrong = |defect| Refusal::defect(&device.name, defect);
            entry.check(parity.stripes(), parity.chunk_bytes(), parity.data_chunks()).map_err(wrong)?;
            let partial_at = place.in_ring(offset);
            offset += u64::from(entry.partial_bytes);
            let stripe = parity.stripe(entry.stripe);
            let role = stripe.role_of(slot);
            if !role.is_parity() {
                let reason = format!("the stripe's slot {slot} holds data");
                return Err(Refusal::new(reason).of(&device.name).field("stripe_log.stripe"));
            }
            let partial = read(&device.member, &device.name, partial_at, entry.partial_bytes.into(), pool).await?;
            if checksum(&partial) != entry.checksum && !mutant!("torn-record-believed") {
                if record.sequence != last {
                    let reason = "partial parity that does not have its checksum";
                    return Err(Refusal::new(reason).of(&device.name).field("stripe_log.checksum"));
                }
                replayed.torn += 1; // its write had not begun
                continue;
            }
            entries.push(Logged { slot, role, stripe, sequence: record.sequence, entry, partial_at });
        }
    }
    Ok(begun(entries, logs))
}

/// The entries without those of which the other parity's part is not in the log: their write had not begun, and an older
/// entry of the row says what the members may hold.
fn begun(entries: Vec<Logged>, logs: &Logs) -> Vec<Logged> {
    let key = |entry: &Logged, slot| (slot, entry.sequence, entry.stripe.number(), entry.entry.rows.start);
    let found: HashSet<_> = entries.iter().map(|entry| key(entry, entry.slot)).collect();
    let is_due =
        |slot, sequence| logs.current().any(|(current, header, _)| current == slot && header.first <= sequence);
    let is_whole = |entry: &Logged| {
        let mut others = entry.stripe.parity_roles().filter_map(|role| entry.stripe.slot_of(role));
        others.all(|slot| found.contains(&key(entry, slot)) || !is_due(slot, entry.sequence))
    };
    let whole: Vec<bool> = entries.iter().map(is_whole).collect();
    entries.into_iter().zip(whole).filter_map(|(entry, is_whole)| is_whole.then_some(entry)).collect()
}

/// The rows for which each entry is its member's newest one, in component bytes. Rows of entries without partial parity
/// are left out.
fn newest(mut entries: Vec<Logged>) -> Vec<(Logged, Range<u64>)> {
    entries.sort_by_key(|found| std::cmp::Reverse(found.sequence));
    if mutant!("oldest-entry-replayed") {
        entries.reverse();
    }
    let mut covered: BTreeMap<Slot, Ranges> = BTreeMap::new();
    let mut jobs = Vec::new();
    for found in entries {
        let covered = covered.entry(found.slot).or_default();
        let start = found.stripe.component().0;
        let rows = start + u64::from(found.entry.rows.start)..start + u64::from(found.entry.rows.end);
        let mut left = Ranges::of([rows.clone()]);
        covered.iter().for_each(|range| left.remove(range));
        covered.add(rows);
        if found.entry.partial_bytes == 0 && !mutant!("void-entry-passed") {
            continue;
        }
        jobs.extend(left.iter().map(|rows| (found.clone(), rows.clone())));
    }
    jobs
}

/// What a replay does for some rows.
struct Repair<'a, M> {
    entry: &'a Entry,
    stripe: &'a Stripe,
    jobs: &'a Jobs,
    /// Where the jobs' partial parity begins.
    start: u64,
    kernel: &'a Kernel,
    slots: &'a Slots<M>,
    pool: &'a Pool,
}

impl<'a, M: Member> Repair<'a, M> {
    fn weight(&self, role: Role, index: u16) -> u8 {
        match role {
            Role::Q => gf::pow2(self.stripe.q_exponent(index)),
            Role::P | Role::Data(_) => 1,
        }
    }

    fn device(&self, role: Role) -> Option<&'a Rc<Device<M>>> {
        self.slots[self.stripe.slot_of(role)?.index()].as_ref()
    }

    /// Each parity that this replay can make, and its device.
    fn parities(&self) -> impl Iterator<Item = (Role, &'a Job, &'a Rc<Device<M>>)> {
        let jobs = [(Role::P, &self.jobs.p), (Role::Q, &self.jobs.q)];
        jobs.into_iter().filter_map(|(role, job)| Some((role, job.as_ref()?, self.device(role)?)))
    }

    /// What the chunk `lost` is by the first parity that can be read, and which parity that is.
    async fn solve(
        &self,
        lost: u16,
        rows: &Range<u64>,
        known: &[(u16, Vec<u8>)],
    ) -> Result<Option<(Role, Vec<u8>)>, Refusal> {
        for (role, job, device) in self.parities() {
            let Some(own) = read_chunk(Some(device), rows, self.pool).await.bytes() else { continue };
            let mut sum = self.sum(job, role, rows, known).await?;
            self.kernel.combine_assign(&mut sum, &[(1, &own)]);
            let mut solved = vec![0; sum.len()];
            self.kernel.combine_assign(&mut solved, &[(gf::inv(self.weight(role, lost)), &sum)]);
            return Ok(Some((role, solved)));
        }
        Ok(None)
    }

    /// The parity of the rows: the partial parity, and the changed chunks.
    async fn sum(
        &self,
        job: &Job,
        role: Role,
        rows: &Range<u64>,
        chunks: &[(u16, Vec<u8>)],
    ) -> Result<Vec<u8>, Refusal> {
        let (slot, at) = job.partial;
        let device = self.slots[slot.index()].as_ref().expect("its log was read");
        let at = MemberByte(at.0 + (rows.start - self.start));
        let mut sum = read(&device.member, &device.name, at, rows.end - rows.start, self.pool).await?;
        for (index, bytes) in chunks {
            self.kernel.combine_assign(&mut sum, &[(self.weight(role, *index), bytes)]);
        }
        Ok(sum)
    }

    /// Writes the parities but `source`.
    async fn write(&self, rows: &Range<u64>, chunks: &[(u16, Vec<u8>)], source: Option<Role>) -> Result<(), Refusal> {
        for (role, job, device) in self.parities().filter(|(role, ..)| Some(*role) != source) {
            let sum = self.sum(job, role, rows, chunks).await?;
            write_chunk(device, rows, sum, Why::Parity, self.pool).await?;
        }
        Ok(())
    }
}

impl<M: Member> Settle<M> for Repair<'_, M> {
    fn slots(&self) -> &Slots<M> {
        self.slots
    }

    fn pool(&self) -> &Pool {
        self.pool
    }

    fn changed(&self) -> impl Iterator<Item = (u16, Option<&Rc<Device<M>>>)> {
        self.entry.changed.iter().map(|index| (index, self.device(Role::Data(index))))
    }

    async fn settle(
        &self,
        rows: &Range<u64>,
        mut chunks: Chunks<'_, M>,
        replayed: &mut Replayed,
    ) -> Result<(), Refusal> {
        if chunks.lost() == 0 {
            return self.write(rows, &chunks.known, None).await;
        }
        if self.entry.changed.iter().count() > 1 {
            replayed.unknown_bytes += rows.end - rows.start;
        }
        let lost = match (&chunks.absent[..], &chunks.unreadable[..]) {
            (&[lost], []) | ([], &[(lost, _)]) => lost,
            (_, []) => return Ok(()),
            (_, [(_, device), ..]) => {
                replayed.leave_unsettled(device, rows, "cannot be read, and parity lacks another chunk as well");
                return Ok(());
            }
        };
        match (self.solve(lost, rows, &chunks.known).await?, chunks.unreadable.first()) {
            (Some((source, solved)), unreadable) => {
                if let Some((_, device)) = unreadable {
                    rewrite(device, rows, solved.clone(), replayed, self.pool).await;
                }
                // This parity says what the chunk is; the other is to say the same.
                chunks.known.push((lost, solved));
                self.write(rows, &chunks.known, Some(source)).await
            }
            (None, Some((_, device))) => {
                replayed.leave_unsettled(device, rows, "cannot be read, and neither can their parity");
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }
}
