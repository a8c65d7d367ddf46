//! Which sectors stand for each other: rows.
//!
//! For parity levels a row is the same sector of each chunk of a stripe: data, P
//! and Q; for copies it is one sector of the array and all places that hold it.
//! Sectors of different rows never depend on each other, whatever the engine
//! does. From [`format::geometry`] alone, which the real driver has confirmed.

use format::geometry::{Copies, Geometry, Parity, Role};
use format::units::{ArrayByte, ComponentByte, Slot};

/// The unit in which drives write or do not, and rows are counted.
pub const SECTOR_BYTES: usize = 512;

/// Sectors that stand for each other.
#[derive(Debug)]
pub struct Row {
    /// The array's sectors in it; for parity levels by data chunk.
    pub data: Vec<Datum>,
    /// Where the parity is, at [`Row::component`].
    pub p: Option<Slot>,
    /// Where the syndrome is, at [`Row::component`].
    pub q: Option<Slot>,
    /// Of each of `data`, the power of two that it has in the syndrome.
    pub exponents: Vec<u8>,
    /// Position on each member, for parity levels.
    pub component: ComponentByte,
    /// Its byte in the space that resync offsets and bitmaps count in.
    pub covered: u64,
}

/// A sector of the array and where it is.
#[derive(Debug)]
pub struct Datum {
    /// Its number in the array.
    pub sector: usize,
    /// Where it is.
    pub copies: Copies,
}

impl Row {
    /// Whether any of it is on `slot` within a range of component bytes.
    pub fn touches(&self, slot: Slot, range: &std::ops::Range<u64>) -> bool {
        let hits = |place: Slot, at: ComponentByte| {
            place == slot && at.0 < range.end && range.start < at.0 + SECTOR_BYTES as u64
        };
        let parities = [self.p, self.q].into_iter().flatten();
        parities.map(|place| (place, self.component)).any(|(place, at)| hits(place, at))
            || self.data.iter().any(|datum| datum.copies.iter().any(|&(place, at)| hits(place, at)))
    }
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
        let slot = stripe.slot_of(Role::Data(index)).expect("each data chunk is somewhere");
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
