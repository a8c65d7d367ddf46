//! The write journal of an array: it is taken from the candidates and replayed into the members. What it has of data alone
//! is written once the array can reconstruct the rest of its rows. Of an array that is only read, the members' writes stay
//! in memory ([`crate::control::offer::AssembleOptions::replay`]).
//!
//! Rows of data alone first get their parity in the journal: from then on a replay writes them as a whole. Otherwise a loss
//! of power could leave a row in part, whose rest can no more be reconstructed.
//!
//! How a journal is read, and used afterwards: [`crate::metadata::journal`].

use crate::base::buffer::{Block, Pool};
use crate::control::election::Offered;
use crate::control::inspect::Found;
use crate::control::logs::Log;
use crate::control::offer::AssembleOptions;
use crate::control::state::Control;
use crate::data::parity::compute_all;
use crate::device::context::DeviceContext;
use crate::device::{Device, DeviceState};
use crate::metadata::journal::log::{JournalLog, rows_bytes};
use crate::metadata::journal::replay::{DataOnly, Journal, Replayed, others_suffice, write};
use crate::metadata::replay::Slots;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::geometry::{Geometry, Parity};
use format::journal::BLOCK_BYTES;
use format::superblock::{DeviceRole, Superblock};
use format::units::{DeviceNumber, Slot};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Rows of data alone that get their parity together: one meta block lists it.
const ROWS_TOGETHER: usize = 128;

/// The candidates without the journal, and the journal.
pub(super) fn take_journal<M: Member>(
    mut offered: Vec<Offered<M>>,
    context: &Rc<DeviceContext>,
) -> (Vec<Offered<M>>, Option<Journal<M>>) {
    let is_journal = |offered: &Offered<M>| offered.found.superblock.own_role() == DeviceRole::Journal;
    let Some(index) = offered.iter().position(is_journal).filter(|_| offered.len() > 1) else { return (offered, None) };
    let Offered { name, member, found: Found { superblock, place } } = offered.remove(index);
    let device = Device::new(name, member, superblock, place, DeviceState::Journal, Vec::new(), context.clone());
    (offered, Some(Journal { device: Rc::new(device) }))
}

/// Refuses a journal that is not this array's, that was left behind, or that left all the members behind. In the last case
/// a replay would mix two ages of the array.
pub(super) fn check_current<M>(journal: &Journal<M>, freshest: &Superblock) -> Result<(), Refusal> {
    let own = journal.device.superblock.borrow();
    let refuse = |reason: String, field: &str| Err(Refusal::new(reason).of(&journal.device.name).field(field));
    if own.set_uuid != freshest.set_uuid {
        return refuse("belongs to another array than the members".to_owned(), "superblock.set_uuid");
    }
    if freshest.events.saturating_sub(own.events) > 1 {
        let reason = format!("a stale journal: its events are {}, the array's {}", own.events, freshest.events);
        return refuse(reason, "superblock.events");
    }
    if own.events.saturating_sub(freshest.events) > 1 {
        let reason =
            format!("the members are stale: their events are {}, the journal's {}", freshest.events, own.events);
        return refuse(reason, "superblock.events").map_err(|refusal| {
            refusal.advice("give the members as they are now; without the journal, --force reads those as they were")
        });
    }
    let DeviceNumber(number) = own.device_number;
    if freshest.roles.get(usize::from(number)) != Some(&DeviceRole::Journal) {
        let reason = format!("the members do not call device {number} their journal: it has failed, or was replaced");
        return refuse(reason, "superblock.dev_roles");
    }
    Ok(())
}

/// A journal that was replayed, and what is left to do.
pub(super) struct Replay<M> {
    journal: Journal<M>,
    replayed: Replayed,
}

impl<M> Replay<M> {
    pub(super) fn log(&self) -> Log {
        Log::Journal { rows: self.replayed.whole + self.replayed.data_only.len() as u64 }
    }
}

/// Replays the journal into the members.
pub(super) async fn replay<M: Member>(
    journal: Journal<M>,
    geometry: &Geometry,
    slots: &Slots<M>,
    options: &AssembleOptions,
    pool: &Pool,
) -> Result<Replay<M>, Refusal> {
    let Geometry::Parity(parity) = geometry else {
        let reason = "a write journal, but the level has no parity";
        return Err(Refusal::new(reason).of(&journal.device.name).field("superblock.level"));
    };
    if !options.read_only {
        let usable = rows_bytes(&journal.device.superblock.borrow(), parity);
        usable.map_err(|refusal| refusal.of(&journal.device.name).advice("serve it --read-only"))?;
    }
    let replayed = journal.replay(parity, slots, pool).await.map_err(|refusal| {
        refusal
            .or_advice("leave the journal out to read the array without it, with --force: the last writes may be lost")
    })?;
    Ok(Replay { journal, replayed })
}

/// A row to be written: its component byte, the blocks of its data by slot, and its parities, unless they cannot be known.
struct WholeRow {
    row: u64,
    data: BTreeMap<Slot, Vec<u8>>,
    parities: Option<Vec<Block>>,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Writes rows of which the journal has data alone, with new parity. Returns the log as it is to be used from now on,
    /// unless the array is only read.
    pub(super) async fn finish_replay(&self, replay: Option<Replay<M>>) -> Result<Option<JournalLog<M>>, Refusal> {
        let (Geometry::Parity(parity), Some(replay)) = (self.core.geometry(), replay) else { return Ok(None) };
        let Replay { journal, replayed } = replay;
        let log = match self.core.info.read_only {
            true => None,
            false => Some(JournalLog::found(&journal, &replayed, parity)?),
        };
        let rows: Vec<_> = replayed.data_only.iter().collect();
        for together in rows.chunks(ROWS_TOGETHER) {
            let mut whole = Vec::new();
            for (row, places) in together {
                whole.push(self.whole_row(parity, &journal, **row, places).await?);
            }
            if let Some(log) = log.as_ref().filter(|_| !mutant!("journal-rows-not-completed")) {
                self.complete(log, &journal, &whole).await?;
            }
            for row in &whole {
                self.write_row(parity, row).await?;
            }
        }
        if !rows.is_empty() {
            self.core.update_whole();
            self.data.drop_caches();
        }
        Ok(log)
    }

    /// Has the rows' parities in the journal.
    async fn complete(&self, log: &JournalLog<M>, journal: &Journal<M>, rows: &[WholeRow]) -> Result<(), Refusal> {
        let known = rows.iter().map(|row| match &row.parities {
            Some(parities) => Ok((row.row, parities.clone())),
            None => Err(Refusal::new(format!(
                "it holds new data for byte {} of the members' data, and the rest of that row cannot be read, so that \
                 its parity is not known",
                row.row
            ))
            .of(&journal.device.name)
            .field("journal")
            .advice("give the missing members, or read the array with `mdspace read` or `mdspace serve --read-only`")),
        });
        log.complete_rows(&known.collect::<Result<Vec<_>, _>>()?, &self.core.pool).await
    }

    /// Reads a row's new data, and computes its parities. The rest of the row is read from the array.
    async fn whole_row(
        &self,
        parity: &Parity,
        journal: &Journal<M>,
        row: u64,
        places: &DataOnly,
    ) -> Result<WholeRow, Refusal> {
        let (mut data, blocks) = (BTreeMap::new(), journal.blocks(parity, &self.core.pool));
        for (slot, at) in places {
            data.insert(*slot, blocks.read(*at).await?);
        }
        let stripe = parity.stripe(row / parity.chunk_bytes());
        let slots: Vec<Slot> = stripe.slots().collect();
        let data_slots = &slots[..usize::from(stripe.data_chunks())];
        let first = stripe.number() * parity.stripe_bytes() + row % parity.chunk_bytes();
        let chunks = self.chunks_of_row(first, parity.chunk_bytes(), data_slots, &data).await;
        let parities = chunks.map(|chunks| {
            let mut parities: Vec<_> = stripe.parity_roles().map(|_| self.core.pool.take(BLOCK_BYTES)).collect();
            let known: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            compute_all(self.core.info.kernel, &stripe, parities.iter_mut().map(|block| &mut block[..]), &known);
            parities.into_iter().map(|block| block.freeze()).collect()
        });
        Ok(WholeRow { row, data, parities })
    }

    /// Writes one row. Where its parity is not known, nothing is reconstructed from the old one.
    async fn write_row(&self, parity: &Parity, row: &WholeRow) -> Result<(), Refusal> {
        let stripe = parity.stripe(row.row / parity.chunk_bytes());
        let parity_slots = stripe.parity_roles().filter_map(|role| stripe.slot_of(role));
        let new: Vec<(Slot, &[u8])> = match &row.parities {
            Some(parities) => parity_slots.zip(parities.iter().map(|block| &**block)).collect(),
            None => {
                let rows = row.row..row.row + BLOCK_BYTES as u64;
                let devices = parity_slots.filter_map(|slot| self.core.device(slot));
                devices.for_each(|device| device.bad.shut(&rows));
                Vec::new()
            }
        };
        let is_spread = row.parities.is_some() && others_suffice(parity, &self.core.roster.slots.borrow());
        for (slot, bytes) in new.into_iter().chain(row.data.iter().map(|(slot, bytes)| (*slot, &bytes[..]))) {
            if let Some(device) = self.core.device(slot) {
                write(&device, row.row, bytes, is_spread, &self.core.pool).await?;
            }
        }
        Ok(())
    }

    /// The data of a row whose first block is at array byte `first`: the journal's, and the rest from the array. `None` if
    /// any of that cannot be read.
    async fn chunks_of_row(
        &self,
        first: u64,
        chunk_bytes: u64,
        slots: &[Slot],
        data: &BTreeMap<Slot, Vec<u8>>,
    ) -> Option<Vec<Vec<u8>>> {
        let mut chunks = Vec::with_capacity(slots.len());
        for (slot, index) in slots.iter().zip(0..) {
            chunks.push(match data.get(slot) {
                Some(bytes) => bytes.clone(),
                None => {
                    let at = first + index * chunk_bytes;
                    self.data.read(at, self.core.pool.take(BLOCK_BYTES)).await.ok()?.to_vec()
                }
            });
        }
        Some(chunks)
    }
}
