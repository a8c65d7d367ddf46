//! What an entry of a partial parity log repairs: the parity of some rows of one stripe.
//!
//! The new parity is the XOR of the chunks that the write changed, as they are now, and the entry's partial parity. It
//! agrees with the stripe's data, whichever of the changed chunks had reached their members. Nothing here computes it.
//!
//! The kernel's driver logs a write to neighbouring chunks of one stripe, with the same rows of each. Its replay also
//! takes entries of other shapes, which only other implementations write; those are refused here.
//!
//! Facts: `ppl_recover_entry` and `ppl_log_stripe` in `drivers/md/raid5-ppl.c`.

use super::{Entry, checksum};
use crate::Defect;
use crate::geometry::{Parity, Role, Stripe};
use crate::units::{SECTOR_BYTES, Slot};
use std::ops::Range;

/// The rows of a stripe that an entry's write touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The stripe.
    pub stripe: Stripe,
    /// Its data chunks that the write changed.
    pub changed: Range<u16>,
    /// Component bytes, the same on each member.
    pub rows: Range<u64>,
}

impl Repair {
    /// The slot of the stripe's parity.
    ///
    /// # Panics
    /// Never: each stripe has a parity.
    pub fn parity_slot(&self) -> Slot {
        self.stripe.slot_of(Role::P).expect("each stripe has a parity")
    }

    /// The slots of the changed chunks.
    pub fn changed_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.changed.clone().map(|index| self.stripe.slot_of(Role::Data(index)).expect("a data chunk of this stripe"))
    }
}

impl Entry {
    /// The entry of a write, of which a replay repairs `repair`. `partial` is the parity of the chunks that the write
    /// leaves as they are; empty if it changes all of them.
    pub fn of(parity: &Parity, repair: &Repair, partial: &[u8]) -> Self {
        let Repair { stripe, changed, rows } = repair;
        let within = rows.start - stripe.component().0;
        let at = stripe.number() * parity.stripe_bytes() + u64::from(changed.start) * parity.chunk_bytes() + within;
        Self {
            data_sector: at / SECTOR_BYTES,
            partial_parity_bytes: partial.len() as u32,
            data_bytes: ((rows.end - rows.start) * changed.len() as u64) as u32,
            parity_slot: repair.parity_slot().0.into(),
            checksum: checksum(partial),
        }
    }

    /// What a replay of this entry repairs in an array of level 5.
    ///
    /// # Errors
    /// When the write does not lie within one stripe, or its parity is elsewhere.
    pub fn repair(&self, parity: &Parity) -> Result<Repair, Defect> {
        let wrong = |field: &'static str, reason: String| Err(Defect::new(field, reason));
        let (chunk, partial, data) =
            (parity.chunk_bytes(), u64::from(self.partial_parity_bytes), u64::from(self.data_bytes));
        if data == 0 || !data.is_multiple_of(SECTOR_BYTES) || !partial.is_multiple_of(SECTOR_BYTES) {
            return wrong("ppl.data_size", format!("{data} bytes with {partial} of partial parity, not whole sectors"));
        }
        // A write of all data chunks needs no partial parity.
        let chunks = data.checked_div(partial).unwrap_or_else(|| parity.data_chunks().into());
        let Some(rows) = (data.is_multiple_of(chunks.max(1)) && chunks > 0).then(|| data / chunks) else {
            return wrong("ppl.data_size", format!("{data} bytes are not the same rows of {chunks} chunks"));
        };
        if partial != 0 && rows != partial {
            return wrong("ppl.pp_size", format!("{partial} bytes of partial parity for {rows} of each chunk"));
        }
        let at = self.data_sector.checked_mul(SECTOR_BYTES).filter(|at| *at < parity.array_bytes());
        let Some(at) = at else {
            return wrong("ppl.data_sector", format!("{}, beyond the array", self.data_sector));
        };
        let (first, within) = (at % parity.stripe_bytes() / chunk, at % chunk);
        if first + chunks > parity.data_chunks().into() || within + rows > chunk {
            let reason =
                format!("{rows} bytes of {chunks} chunks from sector {} are not of one stripe", self.data_sector);
            return wrong("ppl.data_sector", reason);
        }
        let stripe = parity.stripe(at / parity.stripe_bytes());
        let start = stripe.component().0 + within;
        let repair = Repair { stripe, changed: first as u16..(first + chunks) as u16, rows: start..start + rows };
        if u32::from(repair.parity_slot().0) != self.parity_slot {
            let reason = format!("{}, but the stripe's parity is in slot {}", self.parity_slot, repair.parity_slot());
            return wrong("ppl.parity_disk", reason);
        }
        Ok(repair)
    }
}
