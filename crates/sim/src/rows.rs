//! Rows: the sectors that depend on each other.
//!
//! At parity levels a row is the same sector of each chunk of a stripe: data, P and Q. With copies it is one sector of
//! the array and all its copies. Whatever the engine does, sectors of different rows are independent. Rows follow from
//! [`format::geometry`] alone, which is verified against the real driver.

use format::geometry::{Copies, Geometry, Parity, Role};
use format::units::{ArrayByte, ComponentByte, Slot};
use std::ops::Range;

/// The unit that drives write whole or not at all, and of rows.
pub const SECTOR_BYTES: usize = 512;

const _: () = assert!(Role::PARITIES.len() == 2, "a row has places for P and Q alone");

/// A row.
#[derive(Debug)]
pub struct Row {
    /// The row's sectors of the array; at parity levels in the order of data chunks.
    pub data: Vec<Datum>,
    /// The slot of P, at [`Row::component`].
    pub p: Option<Slot>,
    /// The slot of Q, at [`Row::component`].
    pub q: Option<Slot>,
    /// For each of `data`, its exponent of two in the syndrome.
    pub exponents: Vec<u8>,
    /// The position on each member, at parity levels.
    pub component: ComponentByte,
    /// The row's byte in the space of resync offsets and bitmaps.
    pub covered: u64,
}

/// A sector of the array and its copies.
#[derive(Debug)]
pub struct Datum {
    /// The sector's number in the array.
    pub sector: usize,
    /// The slots and positions that hold it.
    pub copies: Copies,
}

impl Row {
    /// Whether a part of the row is on `slot` within a range of component bytes.
    pub fn touches(&self, slot: Slot, range: &Range<u64>) -> bool {
        let parities = [self.p, self.q].into_iter().flatten();
        parities.map(|place| (place, self.component)).any(|place| hits(place, slot, range))
            || self.data.iter().any(|datum| datum.touches(slot, range))
    }
}

impl Datum {
    /// Whether a copy is on `slot` within a range of component bytes.
    pub(crate) fn touches(&self, slot: Slot, range: &Range<u64>) -> bool {
        self.copies.iter().any(|&place| hits(place, slot, range))
    }
}

fn hits((place, at): (Slot, ComponentByte), slot: Slot, range: &Range<u64>) -> bool {
    place == slot && at.0 < range.end && range.start < at.0 + SECTOR_BYTES as u64
}

/// All rows of an array.
pub fn rows(geometry: &Geometry) -> Vec<Row> {
    let sector = SECTOR_BYTES as u64;
    match geometry {
        Geometry::Mapping(mapping) => (0..mapping.array_bytes() / sector)
            .map(|number| Row {
                data: vec![Datum {
                    sector: number as usize,
                    copies: mapping.piece_at(ArrayByte(number * sector)).copies,
                }],
                p: None,
                q: None,
                exponents: Vec::new(),
                component: ComponentByte(0),
                covered: number * sector,
            })
            .collect(),
        Geometry::Parity(parity) => (0..parity.stripes() * parity.chunk_bytes() / sector)
            .map(|number| parity_row(parity, number * sector))
            .collect(),
    }
}

fn parity_row(parity: &Parity, at: u64) -> Row {
    let stripe = parity.stripe(at / parity.chunk_bytes());
    let within = at % parity.chunk_bytes();
    let component = ComponentByte(at);
    let datum = |index: u16| {
        let array = stripe.number() * parity.stripe_bytes() + u64::from(index) * parity.chunk_bytes() + within;
        let slot = stripe.slot_of(Role::Data(index)).expect("each data chunk has a slot");
        Datum { sector: array as usize / SECTOR_BYTES, copies: Copies::from_iter([(slot, component)]) }
    };
    let q = stripe.slot_of(Role::Q);
    let exponents = q.iter().flat_map(|_| (0..parity.data_chunks()).map(|index| stripe.q_exponent(index)));
    Row {
        data: (0..parity.data_chunks()).map(datum).collect(),
        p: stripe.slot_of(Role::P),
        q,
        exponents: exponents.collect(),
        component,
        covered: at,
    }
}
