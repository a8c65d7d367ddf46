//! The write journal of an array that is only read: it is taken from the candidates, replayed into the members, and what it
//! has of data alone is written once the array can reconstruct the rest of its rows.
//!
//! The members' writes stay in memory ([`crate::control::offer::AssembleOptions::replay`]). How a journal is read:
//! [`crate::metadata::journal`].

use crate::base::buffer::Pool;
use crate::control::election::Offered;
use crate::control::inspect::Found;
use crate::control::logs::Log;
use crate::control::state::Control;
use crate::data::parity::compute_all;
use crate::metadata::journal::{self, Journal};
use crate::metadata::partial_parity::Slots;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::geometry::{Geometry, Parity};
use format::journal::BLOCK_BYTES;
use format::superblock::{DeviceRole, Superblock};
use format::units::Slot;
use std::collections::BTreeMap;

/// Rows of which the journal has data alone, by their component byte.
pub(super) type DataOnly = BTreeMap<u64, BTreeMap<Slot, Vec<u8>>>;

/// The candidates without the journal, and the journal.
pub(super) fn take_journal<M>(mut offered: Vec<Offered<M>>) -> (Vec<Offered<M>>, Option<Journal<M>>) {
    let is_journal = |offered: &Offered<M>| offered.found.superblock.own_role() == DeviceRole::Journal;
    let Some(index) = offered.iter().position(is_journal).filter(|_| offered.len() > 1) else { return (offered, None) };
    let Offered { name, member, found: Found { superblock, .. } } = offered.remove(index);
    (offered, Some(Journal { name, member, superblock }))
}

/// Refuses a journal that is not this array's, that was left behind, or that left all the members behind. In the last case
/// a replay would mix two ages of the array.
pub(super) fn check_current<M>(journal: &Journal<M>, freshest: &Superblock) -> Result<(), Refusal> {
    let own = &journal.superblock;
    let refuse = |reason: String, field: &str| Err(Refusal::new(reason).of(&journal.name).field(field));
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
    Ok(())
}

/// Replays the journal into the members.
pub(super) async fn replay<M: Member>(
    journal: &Journal<M>,
    geometry: &Geometry,
    slots: &Slots<M>,
    pool: &Pool,
) -> Result<(Log, DataOnly), Refusal> {
    let Geometry::Parity(parity) = geometry else {
        let reason = "a write journal, but the level has no parity";
        return Err(Refusal::new(reason).of(&journal.name).field("superblock.level"));
    };
    let replayed = journal.replay(parity, slots, pool).await.map_err(|refusal| {
        refusal
            .or_advice("leave the journal out to read the array without it, with --force: the last writes may be lost")
    })?;
    let rows = replayed.whole + replayed.data_only.len() as u64;
    Ok((Log::Journal { rows }, replayed.data_only))
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Writes rows of which the journal has data alone, with new parity.
    pub(super) async fn write_data_only(&self, rows: DataOnly) -> Result<(), Refusal> {
        let (Geometry::Parity(parity), false) = (self.core.geometry(), rows.is_empty()) else { return Ok(()) };
        for (row, data) in rows {
            self.write_row(parity, row, &data).await?;
        }
        self.core.update_whole();
        self.data.drop_caches();
        Ok(())
    }

    /// Writes one row. Where the rest of the row cannot be read, its parity is not known, and nothing is reconstructed from
    /// the old one.
    async fn write_row(&self, parity: &Parity, row: u64, data: &BTreeMap<Slot, Vec<u8>>) -> Result<(), Refusal> {
        let stripe = parity.stripe(row / parity.chunk_bytes());
        let slots: Vec<Slot> = stripe.slots().collect();
        let (data_slots, parity_slots) = slots.split_at(usize::from(stripe.data_chunks()));
        let first = stripe.number() * parity.stripe_bytes() + row % parity.chunk_bytes();
        let mut parities = vec![vec![0; BLOCK_BYTES]; parity_slots.len()];
        match self.whole_row(first, parity.chunk_bytes(), data_slots, data).await {
            Some(chunks) => {
                let known: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
                compute_all(self.core.info.kernel, &stripe, parities.iter_mut().map(Vec::as_mut_slice), &known);
            }
            None => {
                let rows = row..row + BLOCK_BYTES as u64;
                let devices = parity_slots.iter().filter_map(|slot| self.core.device(*slot));
                devices.for_each(|device| device.bad.shut(&rows));
                parities.clear();
            }
        }
        let new = parity_slots.iter().copied().zip(&parities).chain(data.iter().map(|(slot, bytes)| (*slot, bytes)));
        for (slot, bytes) in new {
            if let Some(device) = self.core.device(slot) {
                journal::write(&device, row, bytes, &self.core.pool).await?;
            }
        }
        Ok(())
    }

    /// The data of a row whose first block is at array byte `first`: the journal's, and the rest from the array. `None` if
    /// any of that cannot be read.
    async fn whole_row(
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
