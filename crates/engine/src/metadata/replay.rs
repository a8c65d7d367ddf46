//! What the replays of a partial parity log and of a stripe log share: reading and writing the chunks of a stripe.
//!
//! After a replay, parity agrees with the data wherever an entry was, also where a member could not be read: a chunk that
//! is here and cannot be read is written what parity gives for it. Otherwise it might read again later, with other bytes
//! than parity has. Where that is impossible, the replay is *unsettled*, and its log cannot be used.
//!
//! Nothing here knows the form of a log. It writes members before any request; of an array that is only read, their writes
//! stay in memory.
//!
//! md fails a member that a replay cannot read, and does not start the array (`ppl_recover_entry` in
//! `drivers/md/raid5-ppl.c`).

use crate::base::buffer::Pool;
use crate::device::Device;
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::integrity::BLOCK_BYTES;
use format::units::ComponentByte;
use std::ops::Range;
use std::rc::Rc;

/// The most bytes of a chunk that are repaired at a time.
const PIECE_BYTES: u64 = 256 << 10;

/// The members of an array's slots.
pub(crate) type Slots<M> = [Option<Rc<Device<M>>>];

/// What a replay did.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// Entries whose parity was written.
    pub(crate) entries: u64,
    /// Logs and entries that were torn.
    pub(crate) torn: u64,
    /// Bytes of missing chunks that may have been under way, so that parity may give anything.
    pub(crate) unknown_bytes: u64,
    /// The first place where data and parity may still disagree.
    unsettled: Option<Refusal>,
}

impl Replayed {
    /// The rows of this member cannot be read, and cannot be written from parity: why.
    pub(super) fn leave_unsettled<M>(&mut self, device: &Device<M>, rows: &Range<u64>, reason: &str) {
        let text = format!("{} bytes at byte {} of its data {reason}", rows.end - rows.start, rows.start);
        self.unsettled.get_or_insert_with(|| Refusal::new(text).of(&device.name));
    }

    /// Has the members keep what was written.
    ///
    /// # Errors
    /// When one fails that, or the replay is unsettled.
    pub(super) async fn end<M: Member>(self, slots: &Slots<M>) -> Result<Self, Refusal> {
        for device in slots.iter().flatten() {
            let flushed = Member::flush(&device.member).await;
            flushed.map_err(|error| Refusal::member_error(&device.name, &error))?;
        }
        match self.unsettled {
            Some(refusal) if !mutant!("unsettled-replay-believed") => Err(refusal),
            _ => Ok(self),
        }
    }
}

/// A part of a stripe's chunk.
pub(super) enum Chunk<'a, M> {
    Read(Vec<u8>),
    /// The member is missing, or known to hold nothing there that counts.
    Absent,
    /// The member is here, and cannot be read.
    Unreadable(&'a Rc<Device<M>>),
}

impl<M> Chunk<'_, M> {
    /// The bytes, if they were read.
    pub(super) fn bytes(self) -> Option<Vec<u8>> {
        if let Self::Read(bytes) = self { Some(bytes) } else { None }
    }
}

/// The chunks that a write changed, in some rows.
pub(super) struct Chunks<'a, M> {
    /// Those that were read, by the caller's key.
    pub(super) known: Vec<(u16, Vec<u8>)>,
    pub(super) absent: Vec<u16>,
    pub(super) unreadable: Vec<(u16, &'a Rc<Device<M>>)>,
}

impl<'a, M: Member> Chunks<'a, M> {
    /// Reads the rows of these chunks.
    async fn read(
        chunks: impl Iterator<Item = (u16, Option<&'a Rc<Device<M>>>)>,
        rows: &Range<u64>,
        pool: &Pool,
    ) -> Self {
        let mut all = Self { known: Vec::new(), absent: Vec::new(), unreadable: Vec::new() };
        for (key, device) in chunks {
            match read_chunk(device, rows, pool).await {
                Chunk::Read(bytes) => all.known.push((key, bytes)),
                Chunk::Absent => all.absent.push(key),
                Chunk::Unreadable(device) => all.unreadable.push((key, device)),
            }
        }
        all
    }

    /// How many of them have no bytes.
    pub(super) fn lost(&self) -> usize {
        self.absent.len() + self.unreadable.len()
    }
}

/// How a log's entry makes parity and data agree.
pub(super) trait Settle<M: Member> {
    fn slots(&self) -> &Slots<M>;

    fn pool(&self) -> &Pool;

    /// The chunks that the entry's write changed, by the log's own key.
    fn changed(&self) -> impl Iterator<Item = (u16, Option<&Rc<Device<M>>>)>;

    /// Makes parity and data of these rows agree. `chunks` are the changed ones.
    async fn settle(&self, rows: &Range<u64>, chunks: Chunks<'_, M>, replayed: &mut Replayed) -> Result<(), Refusal>;

    /// Makes parity and data of all these rows agree, block by block where a member cannot be read.
    async fn carry_out(&self, rows: Range<u64>, replayed: &mut Replayed) -> Result<(), Refusal> {
        for piece in cut(rows, PIECE_BYTES) {
            let chunks = Chunks::read(self.changed(), &piece, self.pool()).await;
            if chunks.unreadable.is_empty() {
                self.settle(&piece, chunks, replayed).await?;
                continue;
            }
            let units = self.slots().iter().flatten().map(|device| device.member.limits().logical_block_bytes);
            for block in cut(piece, units.max().unwrap_or(1).into()) {
                let chunks = Chunks::read(self.changed(), &block, self.pool()).await;
                self.settle(&block, chunks, replayed).await?;
            }
        }
        Ok(())
    }
}

/// Cuts rows into parts of `unit` bytes.
fn cut(rows: Range<u64>, unit: u64) -> impl Iterator<Item = Range<u64>> {
    rows.clone().step_by(unit as usize).map(move |start| start..(start + unit).min(rows.end))
}

/// Reads the rows of a chunk.
pub(super) async fn read_chunk<'a, M: Member>(
    device: Option<&'a Rc<Device<M>>>,
    rows: &Range<u64>,
    pool: &Pool,
) -> Chunk<'a, M> {
    let Some(device) = device.filter(|device| device.is_readable(rows.clone())) else { return Chunk::Absent };
    let at = device.absolute(ComponentByte(rows.start));
    let read = read_bytes(&device.member, pool, at, rows.end - rows.start).await;
    read.map_or(Chunk::Unreadable(device), Chunk::Read)
}

/// Writes rows of a chunk. Through the layers: the member may have checksums, and they may know the bytes that are
/// replaced.
pub(super) async fn write_chunk<M: Member>(
    device: &Rc<Device<M>>,
    rows: &Range<u64>,
    bytes: Vec<u8>,
    why: Why,
    pool: &Pool,
) -> Result<(), Refusal> {
    let unit = match device.checksums.get() {
        Some(_) => BLOCK_BYTES,
        None => device.member.limits().logical_block_bytes.into(),
    };
    let (first, end) = (rows.start / unit * unit, rows.end.next_multiple_of(unit));
    let image = match (first, end) == (rows.start, rows.end) {
        true => bytes,
        false => {
            let around = read_bytes(&device.member, pool, device.absolute(ComponentByte(first)), end - first).await;
            let mut around = around.map_err(|reason| Refusal::new(reason).of(&device.name))?;
            around[(rows.start - first) as usize..][..bytes.len()].copy_from_slice(&bytes);
            around
        }
    };
    let written = device.write_one(ComponentByte(first), pool.copy_of(&image), why).await;
    written.map_err(|error| Refusal::member_error(&device.name, &error))
}

/// Writes what parity gives for rows that a member could not read, and reads them again.
pub(super) async fn rewrite<M: Member>(
    device: &Rc<Device<M>>,
    rows: &Range<u64>,
    bytes: Vec<u8>,
    replayed: &mut Replayed,
    pool: &Pool,
) {
    if mutant!("unreadable-chunk-left") {
        return;
    }
    let written = write_chunk(device, rows, bytes.clone(), Why::Data, pool).await;
    let reason = match written {
        Err(refusal) => format!("cannot be read, nor written what parity gives for them: {refusal}"),
        Ok(()) if read_chunk(Some(device), rows, pool).await.bytes().is_some_and(|read| read == bytes) => return,
        Ok(()) => "cannot be read, also after they were written what parity gives for them".to_owned(),
    };
    replayed.leave_unsettled(device, rows, &reason);
}
