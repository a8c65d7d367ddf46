//! Finds the stripe logs of an array's members, and replays them after a loss of power. Afterwards parity agrees with the
//! data in each row that a write to a part of a stripe had touched, so that it can be trusted also where members are
//! missing.
//!
//! It writes parity to the members, before any request. Of an array that is only read, the caller gives members whose
//! writes stay in memory. It never writes data, a log or a superblock. A replay that is cut short is repeated from its
//! begin: each entry gives the same parity again.
//!
//! Each member's entries stand for themselves: the newest entry of a row says what that member's parity is. Only where a
//! changed chunk is missing, Q follows from P.

use crate::base::buffer::Pool;
use crate::base::range_set::Ranges;
use crate::device::Device;
use crate::metadata::partial_parity::{Replayed, Slots, chunk};
use crate::metadata::stripe_log::found::{check_current, of_member, read, records_of};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};
use format::integrity::BLOCK_BYTES;
use format::stripe_log::{Entry, Header, PAGE_BYTES, Place, checksum};
use format::units::{ComponentByte, MemberByte, Slot};
use parity::{Kernel, gf};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

/// The most bytes of a chunk that are repaired at a time.
const PIECE_BYTES: u64 = 256 << 10;

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
/// When a log cannot be read, or is damaged: parity may then be wrong where it says.
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
        let repair = Repair { entry, stripe, jobs, kernel, slots, pool };
        for at in (*start..*end).step_by(PIECE_BYTES as usize) {
            repair.carry_out(*start, at..(at + PIECE_BYTES).min(*end), &mut replayed).await?;
        }
        replayed.entries += 1;
    }
    for device in slots.iter().flatten() {
        let flushed = Member::flush(&device.member).await;
        flushed.map_err(|error| Refusal::member_error(&device.name, &error))?;
    }
    Ok(replayed)
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
    kernel: &'a Kernel,
    slots: &'a Slots<M>,
    pool: &'a Pool,
}

impl<M: Member> Repair<'_, M> {
    fn weight(&self, role: Role, index: u16) -> u8 {
        match role {
            Role::Q => gf::pow2(self.stripe.q_exponent(index)),
            Role::P | Role::Data(_) => 1,
        }
    }

    fn device(&self, role: Role) -> Option<&Rc<Device<M>>> {
        self.slots[self.stripe.slot_of(role)?.index()].as_ref()
    }

    /// Writes the parities of `rows`. `start` is where the jobs' partial parity begins.
    async fn carry_out(&self, start: u64, rows: Range<u64>, replayed: &mut Replayed) -> Result<(), Refusal> {
        let mut known: Vec<(u16, Vec<u8>)> = Vec::new();
        let mut lost = Vec::new();
        for index in self.entry.changed.iter() {
            match chunk(self.device(Role::Data(index)), &rows, self.pool).await {
                Some(bytes) => known.push((index, bytes)),
                None => lost.push(index),
            }
        }
        if let [lost] = lost[..]
            && let (Some(p), Some(_)) = (&self.jobs.p, &self.jobs.q)
            && let Some(own) = chunk(self.device(Role::P), &rows, self.pool).await
        {
            // P stays, and says what the lost chunk is; Q is to say the same.
            let mut solved = self.sum(p, Role::P, start, &rows, &known).await?;
            self.kernel.combine_assign(&mut solved, &[(1, &own)]);
            known.push((lost, solved));
            return self.write(&self.jobs.q, Role::Q, start, &rows, &known).await;
        }
        if !lost.is_empty() {
            if self.entry.changed.iter().count() > 1 {
                replayed.unknown_bytes += rows.end - rows.start;
            }
            return Ok(());
        }
        self.write(&self.jobs.p, Role::P, start, &rows, &known).await?;
        self.write(&self.jobs.q, Role::Q, start, &rows, &known).await
    }

    /// The parity of the rows: the partial parity, and the changed chunks.
    async fn sum(
        &self,
        job: &Job,
        role: Role,
        start: u64,
        rows: &Range<u64>,
        chunks: &[(u16, Vec<u8>)],
    ) -> Result<Vec<u8>, Refusal> {
        let (slot, at) = job.partial;
        let device = self.slots[slot.index()].as_ref().expect("its log was read");
        let at = MemberByte(at.0 + (rows.start - start));
        let mut sum = read(&device.member, &device.name, at, rows.end - rows.start, self.pool).await?;
        for (index, bytes) in chunks {
            self.kernel.combine_assign(&mut sum, &[(self.weight(role, *index), bytes)]);
        }
        Ok(sum)
    }

    async fn write(
        &self,
        job: &Option<Job>,
        role: Role,
        start: u64,
        rows: &Range<u64>,
        chunks: &[(u16, Vec<u8>)],
    ) -> Result<(), Refusal> {
        let (Some(job), Some(device)) = (job, self.device(role)) else { return Ok(()) };
        let sum = self.sum(job, role, start, rows, chunks).await?;
        // Through the layers: the member may have checksums, and they may know the parity that is replaced.
        let unit = match device.checksums.get() {
            Some(_) => BLOCK_BYTES,
            None => device.member.limits().logical_block_bytes.into(),
        };
        let (first, end) = (rows.start / unit * unit, rows.end.next_multiple_of(unit));
        let image = match (first, end) == (rows.start, rows.end) {
            true => sum,
            false => {
                let at = device.absolute(ComponentByte(first));
                let mut around = read(&device.member, &device.name, at, end - first, self.pool).await?;
                around[(rows.start - first) as usize..][..sum.len()].copy_from_slice(&sum);
                around
            }
        };
        let written = device.write_one(ComponentByte(first), self.pool.copy_of(&image), Why::Parity).await;
        written.map_err(|error| Refusal::member_error(&device.name, &error))
    }
}
