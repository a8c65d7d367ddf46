//! The write journal as an object: its device, its batches, and where it stands. It writes blocks of the journal, and decides
//! nothing about the array.

use crate::base::buffer::{Block, Pool};
use crate::core::authority::Logging;
use crate::device::Device;
use crate::metadata::batches::{Batches, Turns};
use crate::metadata::journal::layout::Unit;
use crate::metadata::journal::replay::{Journal, Replayed};
use crate::metadata::journal::ring::Live;
use crate::seam::error::Refusal;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::geometry::Parity;
use format::journal::{BLOCK_BYTES, META_ROOM, Payload, Ring};
use format::superblock::Superblock;
use format::units::Sectors;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// The journal's state in memory.
pub(crate) struct JournalLog<M> {
    pub(super) device: Rc<Device<M>>,
    pub(super) set_uuid: [u8; 16],
    pub(super) batches: Batches,
    pub(super) turns: Turns,
    pub(super) live: RefCell<Live>,
    /// Rows that a write may have at most in one batch, in bytes.
    rows_bytes: u32,
}

/// The most of a stripe's rows that are logged at a time, in bytes: a quarter of the journal takes them, each with a meta
/// block of its own if it must be.
///
/// # Errors
/// When the journal is too short, or its meta blocks are for the array's members.
pub(crate) fn rows_bytes(superblock: &Superblock, parity: &Parity) -> Result<u32, Refusal> {
    let refuse = |field: &str, reason: String| Err(Refusal::new(reason).field(field));
    let slots = usize::from(parity.slots());
    if Payload::row_bytes(slots, parity.parities().into()) > META_ROOM {
        return refuse("superblock.raid_disks", format!("{slots} members, more than a journal's meta block can name"));
    }
    let blocks = Ring::of(superblock).blocks();
    let rows = blocks / 4 / (slots as u64 + 1);
    if rows == 0 {
        let least = 4 * (slots as u64 + 1);
        return refuse(
            "superblock.data_size",
            format!("a journal of {blocks} blocks, and {slots} members need {least}"),
        );
    }
    Ok((rows * BLOCK_BYTES as u64).min(parity.chunk_bytes()) as u32)
}

impl<M: Member> JournalLog<M> {
    /// The log as a replay found it.
    ///
    /// # Errors
    /// When this engine cannot write to such a journal.
    pub(crate) fn found(journal: &Journal<M>, replayed: &Replayed, parity: &Parity) -> Result<Self, Refusal> {
        let ring = Ring::of(&journal.device.superblock.borrow());
        let live = Live::found(ring, journal.tail(), replayed.blocks, replayed.sequence);
        Self::with(&journal.device, live, parity)
    }

    /// The log of a device that holds nothing but an empty meta block of this number, at its begin.
    ///
    /// # Errors
    /// When this engine cannot write to such a journal.
    pub(super) fn new(device: &Rc<Device<M>>, sequence: u64, parity: &Parity) -> Result<Self, Refusal> {
        let ring = Ring::of(&device.superblock.borrow());
        Self::with(device, Live::found(ring, Sectors(0), 1, sequence.wrapping_add(1)), parity)
    }

    fn with(device: &Rc<Device<M>>, live: Live, parity: &Parity) -> Result<Self, Refusal> {
        let superblock = device.superblock.borrow();
        let rows_bytes = rows_bytes(&superblock, parity).map_err(|refusal| refusal.of(&device.name))?;
        Ok(Self {
            set_uuid: superblock.set_uuid,
            batches: Batches::default(),
            turns: Turns::default(),
            live: RefCell::new(live),
            rows_bytes,
            device: device.clone(),
        })
    }

    pub(crate) fn logging(&self) -> Logging {
        Logging::Contents { rows_bytes: self.rows_bytes }
    }

    /// Writes blocks one after the other.
    async fn put(&self, at: Sectors, mut blocks: Vec<Block>) -> Result<(), MemberError> {
        let ring = self.live.borrow().ring();
        let rest = blocks.split_off(blocks.len().min(ring.to_the_end(at) as usize));
        for (at, blocks) in [(at, blocks), (Sectors(0), rest)] {
            if !blocks.is_empty() {
                self.device.write(ring.place(at), blocks.into(), Why::Log).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn put_flushed(&self, at: Sectors, blocks: Vec<Block>) -> Result<(), MemberError> {
        self.put(at, blocks).await?;
        mutant!("journal-entry-unflushed" => Ok(()), else self.device.flush(Why::Log).await)
    }

    /// Appends the parities of rows of which the log has data alone, each by its component byte. From then on a replay
    /// writes these rows as a whole.
    ///
    /// The block behind them is overwritten first. An older meta block there could have the next sequence number.
    pub(crate) async fn complete_rows(&self, rows: &[(u64, Vec<Block>)], pool: &Pool) -> Result<(), Refusal> {
        let mut unit = Unit::default();
        for (row, parities) in rows {
            unit.add_parities(Sectors::from_bytes_down(*row), parities.clone(), &self.set_uuid);
        }
        let blocks = unit.len();
        let (spot, ring) = {
            let mut live = self.live.borrow_mut();
            if !live.has_room(blocks) {
                let reason = "it has no room for the parity of what it holds, which md always leaves";
                return Err(Refusal::new(reason).of(&self.device.name).field("journal"));
            }
            (live.put(Weak::new(), blocks, 1), live.ring())
        };
        let (meta, mut listed) = unit.encode(spot, &self.set_uuid, pool);
        listed.push(pool.zeroed(BLOCK_BYTES).freeze());
        let written = async {
            self.put_flushed(ring.after(spot.at, 1), listed).await?;
            self.put_flushed(spot.at, vec![meta]).await
        };
        written.await.map_err(|error: MemberError| Refusal::member_error(&self.device.name, &error))
    }
}
