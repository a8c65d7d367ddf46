//! Levels 4, 5 and 6: stripes of data, P and Q.
//!
//! Stripe `n` is chunk `n` of every member. A layout determines the roles of the members in it:
//!
//! * P is fixed, or rotates with the stripe number: down from the last member (*left*) or up from the first (*right*).
//! * Q follows P, precedes it, or is fixed on the last member; in the last case P rotates over the others.
//! * Data is in ascending order of slots (*asymmetric*), or starts after the parities and wraps around (*symmetric*).
//!
//! Drawn for RAID-5 of 3 members, a row for each stripe:
//!
//! ```text
//! left-asymmetric  right-asymmetric  left-symmetric  right-symmetric
//!   0 1 P            P 0 1             0 1 P            P 0 1
//!   2 P 3            2 P 3             3 P 2            3 P 2
//!   P 4 5            4 5 P             P 4 5            4 5 P
//! ```
//!
//! Q is the sum of 2^e times each data chunk. md counts e over the data members from the one after Q's, wrapping
//! around. The DDF layouts use e = slot, as if P and Q were members with data of zeros.
//!
//! Nothing here computes parity. Source: `drivers/md/raid5.{c,h}`, md(4).

use super::divisor::Divisor;
use super::{Level, Role, Shape, check_array, check_chunk_of_pages, check_component, check_slots, unknown_layout};
use crate::defect::Defect;
use crate::units::{ArrayByte, ComponentByte, Slot};
use std::ops::Range;

const _: () = assert!(Role::PARITIES.len() == 2, "a layout places P and Q alone");

/// The position of P.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PositionOfP {
    /// On the first member.
    First,
    /// After the data.
    Last,
    /// On the last member of the ring in stripe 0, then one lower with each stripe.
    Left,
    /// The same as `Left`, one stripe ahead.
    LeftAhead,
    /// On the first member in stripe 0, then one higher with each stripe.
    Right,
}

/// The position of Q, in levels with Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PositionOfQ {
    /// On the member after P's.
    AfterP,
    /// On the member before P's.
    BeforeP,
    /// On the last member; P rotates over the others.
    LastMember,
}

/// The order of data on the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// By slot.
    Asymmetric,
    /// From the member after the parities on, wrapping around.
    Symmetric,
}

/// How data chunks get their exponents in Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syndrome {
    /// Data members, counted from Q on.
    Md,
    /// The slot number.
    Ddf,
}

/// One layout of RAID-5 or RAID-6.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// md's number.
    pub(super) number: u32,
    /// mdadm's name.
    pub(super) name: &'static str,
    p: PositionOfP,
    q: Option<PositionOfQ>,
    order: Order,
    syndrome: Syndrome,
}

const fn raid5(number: u32, name: &'static str, p: PositionOfP, order: Order) -> Layout {
    Layout { number, name, p, q: None, order, syndrome: Syndrome::Md }
}

const fn raid6(
    number: u32,
    name: &'static str,
    p: PositionOfP,
    q: PositionOfQ,
    order: Order,
    syndrome: Syndrome,
) -> Layout {
    Layout { number, name, p, q: Some(q), order, syndrome }
}

/// The layouts of RAID-5.
pub(super) static RAID5_LAYOUTS: [Layout; 6] = {
    use Order::*;
    use PositionOfP::*;
    [
        raid5(0, "left-asymmetric", Left, Asymmetric),
        raid5(1, "right-asymmetric", Right, Asymmetric),
        raid5(2, "left-symmetric", Left, Symmetric),
        raid5(3, "right-symmetric", Right, Symmetric),
        raid5(4, "parity-first", First, Asymmetric),
        raid5(5, "parity-last", Last, Asymmetric),
    ]
};

/// The layouts of RAID-6. 16-20 are RAID-5's 0-4 with Q on a member of its own.
pub(super) static RAID6_LAYOUTS: [Layout; 14] = {
    use Order::*;
    use PositionOfP::*;
    use PositionOfQ::*;
    use Syndrome::*;
    [
        raid6(0, "left-asymmetric", Left, AfterP, Asymmetric, Md),
        raid6(1, "right-asymmetric", Right, AfterP, Asymmetric, Md),
        raid6(2, "left-symmetric", Left, AfterP, Symmetric, Md),
        raid6(3, "right-symmetric", Right, AfterP, Symmetric, Md),
        raid6(4, "parity-first", First, AfterP, Asymmetric, Md),
        raid6(5, "parity-last", Last, AfterP, Asymmetric, Md),
        raid6(8, "ddf-zero-restart", Right, AfterP, Asymmetric, Ddf),
        raid6(9, "ddf-N-restart", LeftAhead, AfterP, Asymmetric, Ddf),
        raid6(10, "ddf-N-continue", Left, BeforeP, Symmetric, Ddf),
        raid6(16, "left-asymmetric-6", Left, LastMember, Asymmetric, Md),
        raid6(17, "right-asymmetric-6", Right, LastMember, Asymmetric, Md),
        raid6(18, "left-symmetric-6", Left, LastMember, Symmetric, Md),
        raid6(19, "right-symmetric-6", Right, LastMember, Symmetric, Md),
        raid6(20, "parity-first-6", First, LastMember, Asymmetric, Md),
    ]
};

/// Powers of 2 in GF(2^8) repeat after 255, so more data chunks would share exponents.
const EXPONENTS: u16 = 255;

/// The geometry of levels 4, 5 and 6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parity {
    level: Level,
    layout: &'static Layout,
    slots: u16,
    parities: u16,
    chunk_shift: u32,
    stripes: u64,
    /// Data chunks in a stripe.
    data_chunks: Divisor,
    /// The number of slots over which P rotates.
    ring: Divisor,
}

impl Parity {
    /// Checks a shape of one of these levels.
    pub(super) fn new(shape: &Shape) -> Result<Self, Defect> {
        let layout = match shape.level {
            // md puts P last, whatever the layout field.
            Level::Raid4 => &RAID5_LAYOUTS[5],
            Level::Raid5 => find_layout(&RAID5_LAYOUTS, shape.layout, "0 to 5")?,
            Level::Raid6 => find_layout(&RAID6_LAYOUTS, shape.layout, "0 to 5, 8 to 10, 16 to 20")?,
            Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid10 => {
                unreachable!("{:?} has no parity", shape.level)
            }
        };
        let parities = parities(layout.q);
        check_slots(shape.slots, 2 * parities)?;
        if layout.q.is_some() {
            let most = if layout.syndrome == Syndrome::Ddf { EXPONENTS } else { EXPONENTS + 2 };
            if shape.slots > most {
                let reason = format!("{}, but this layout's Q can tell at most {most} apart", shape.slots);
                return Err(Defect::new("superblock.raid_disks", reason));
            }
        }
        let chunk_shift = check_chunk_of_pages(shape.chunk_bytes)?;
        check_component(shape.component_bytes, shape.chunk_bytes)?;
        let stripes = shape.component_bytes >> chunk_shift;
        let data_chunks = u64::from(shape.slots - parities);
        let ring = u64::from(shape.slots - u16::from(layout.q == Some(PositionOfQ::LastMember)));
        let parity = Self {
            level: shape.level,
            layout,
            slots: shape.slots,
            parities,
            chunk_shift,
            stripes,
            data_chunks: Divisor::new(data_chunks, stripes.saturating_mul(data_chunks)),
            ring: Divisor::new(ring, stripes),
        };
        check_array("superblock.size", u128::from(parity.stripes) * u128::from(parity.stripe_bytes()))?;
        Ok(parity)
    }

    /// The size of the array, in bytes.
    pub fn array_bytes(&self) -> u64 {
        self.stripes * self.stripe_bytes()
    }

    /// The number of slots.
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// The level: 4, 5 or 6.
    pub fn level(&self) -> Level {
        self.level
    }

    /// mdadm's name of the layout; level 4 has none.
    pub fn layout_name(&self) -> Option<&'static str> {
        (self.level != Level::Raid4).then_some(self.layout.name)
    }

    /// Bytes in a chunk: a power of two, at least 4096.
    #[inline]
    pub fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// Data chunks in a stripe, at least 1.
    #[inline]
    pub fn data_chunks(&self) -> u16 {
        self.slots - self.parities
    }

    /// Parity chunks in a stripe: 1 (P) or 2 (P and Q).
    #[inline]
    pub fn parities(&self) -> u16 {
        self.parities
    }

    /// Stripes in the array, at least 1.
    #[inline]
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Array bytes in a stripe.
    #[inline]
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.data_chunks()) << self.chunk_shift
    }

    /// Its parities.
    #[inline]
    pub fn parity_roles(&self) -> impl Iterator<Item = Role> + Clone + use<> {
        Role::parities(self.parities)
    }

    /// The roles of a stripe: data in order, then the parities.
    pub fn roles(&self) -> impl Iterator<Item = Role> + Clone + use<> {
        Role::all(self.data_chunks(), self.parities)
    }

    /// The stripes that a range of component bytes touches.
    pub fn stripes_at(&self, component: &Range<u64>) -> Range<u64> {
        component.start >> self.chunk_shift..component.end.div_ceil(self.chunk_bytes())
    }

    /// The component bytes of these stripes.
    #[inline]
    pub fn component_of(&self, stripes: &Range<u64>) -> Range<u64> {
        stripes.start << self.chunk_shift..stripes.end << self.chunk_shift
    }

    /// The parts of a range of component bytes, each within one stripe.
    pub fn parts(&self, component: &Range<u64>) -> impl Iterator<Item = (Stripe, Range<u64>)> + '_ {
        let (start, end, chunk) = (component.start, component.end, self.chunk_bytes());
        self.stripes_at(component)
            .map(move |number| (self.stripe(number), start.max(number * chunk)..end.min((number + 1) * chunk)))
    }

    /// The stripes that a range of array bytes touches.
    pub fn stripes_of(&self, array: &Range<u64>) -> Range<u64> {
        array.start / self.stripe_bytes()..array.end.div_ceil(self.stripe_bytes())
    }

    /// Whether the data survives this many missing slots.
    pub fn survives(&self, missing: u16) -> bool {
        missing <= self.parities
    }

    /// How many more slots may go.
    pub fn may_fail(&self, missing: u16) -> u16 {
        self.parities.saturating_sub(missing)
    }

    /// The slot and position of the array byte `at`, and the number of bytes from there to the end of the chunk.
    ///
    /// # Panics
    /// When `at` is not within the array.
    #[inline]
    pub fn locate(&self, at: ArrayByte) -> (Slot, ComponentByte, u64) {
        let chunk = at.0 >> self.chunk_shift;
        let within = at.0 & (self.chunk_bytes() - 1);
        let (number, index) = self.data_chunks.divide(chunk);
        let stripe = self.stripe(number);
        let slot = Slot(stripe.data_slot(index as u16));
        (slot, ComponentByte(stripe.component + within), self.chunk_bytes() - within)
    }

    /// The roles in stripe `number`.
    ///
    /// # Panics
    /// When there is no such stripe.
    #[inline]
    pub fn stripe(&self, number: u64) -> Stripe {
        assert!(number < self.stripes, "stripe {number} of {}", self.stripes);
        let ring = self.ring.get() as u16;
        let turn = |number: u64| self.ring.divide(number).1 as u16;
        let p = match self.layout.p {
            PositionOfP::First => 0,
            PositionOfP::Last => self.data_chunks(),
            PositionOfP::Left => ring - 1 - turn(number),
            PositionOfP::LeftAhead => ring - 1 - turn(number + 1),
            PositionOfP::Right => turn(number),
        };
        let q = self.layout.q.map(|place| match place {
            PositionOfQ::AfterP => wrap(u32::from(p) + 1, ring),
            PositionOfQ::BeforeP => wrap(u32::from(p) + u32::from(ring) - 1, ring),
            PositionOfQ::LastMember => ring,
        });
        let data = match (self.layout.order, self.layout.q) {
            (Order::Asymmetric, _) => Data::BySlot,
            (Order::Symmetric, Some(PositionOfQ::AfterP)) => Data::Round { first: wrap(u32::from(p) + 2, ring), ring },
            (Order::Symmetric, _) => Data::Round { first: wrap(u32::from(p) + 1, ring), ring },
        };
        Stripe {
            number,
            component: number << self.chunk_shift,
            slots: self.slots,
            p,
            q,
            data,
            syndrome: self.layout.syndrome,
        }
    }
}

/// How many parities a level has, by the position of its Q.
#[inline]
fn parities<T>(q: Option<T>) -> u16 {
    1 + u16::from(q.is_some())
}

fn find_layout(layouts: &'static [Layout], number: u32, acceptable: &str) -> Result<&'static Layout, Defect> {
    layouts.iter().find(|layout| layout.number == number).ok_or_else(|| unknown_layout(number, acceptable))
}

/// `slot` modulo `ring`, for a `slot` below twice `ring`. (Wider than a slot, because a sum of two may exceed it.)
#[inline]
fn wrap(slot: u32, ring: u16) -> u16 {
    let ring = u32::from(ring);
    debug_assert!(slot < 2 * ring);
    (if slot >= ring { slot - ring } else { slot }) as u16
}

/// The order of a stripe's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// In ascending order of slots.
    BySlot,
    /// From slot `first` on, modulo `ring`.
    Round { first: u16, ring: u16 },
}

/// The roles in one stripe. Small, and computed without an allocation.
///
/// Invariant: `role_of` and `slot_of` are inverse to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    number: u64,
    component: u64,
    slots: u16,
    p: u16,
    q: Option<u16>,
    data: Data,
    syndrome: Syndrome,
}

impl Stripe {
    /// The stripe's number in the array.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The position of its chunk, the same on each member.
    #[inline]
    pub fn component(&self) -> ComponentByte {
        ComponentByte(self.component)
    }

    /// The slot with this role. `None` for Q in a level without Q.
    ///
    /// # Panics
    /// When there is no such data chunk.
    #[inline]
    pub fn slot_of(&self, role: Role) -> Option<Slot> {
        match role {
            Role::P => Some(Slot(self.p)),
            Role::Q => self.q.map(Slot),
            Role::Data(index) => Some(Slot(self.data_slot(index))),
        }
    }

    /// Its parities.
    #[inline]
    pub fn parity_roles(&self) -> impl Iterator<Item = Role> + Clone + use<> {
        Role::parities(self.parities())
    }

    /// The slots of all its roles: data in order, then the parities.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let roles = Role::all(self.data_chunks(), self.parities());
        roles.map(|role| self.slot_of(role).expect("a role of this stripe"))
    }

    /// Its data chunks.
    #[inline]
    pub fn data_chunks(&self) -> u16 {
        self.slots - self.parities()
    }

    #[inline]
    fn parities(&self) -> u16 {
        parities(self.q)
    }

    #[inline]
    fn data_slot(&self, index: u16) -> u16 {
        let parities = self.parities();
        assert!(index < self.slots - parities, "data chunk {index} of {}", self.slots - parities);
        match self.data {
            Data::Round { first, ring } => wrap(u32::from(first) + u32::from(index), ring),
            Data::BySlot => {
                // Skips the parities, the lower one first. Without Q, P counts as both but is skipped once.
                let (low, high) = self.q.map_or((self.p, u16::MAX), |q| (self.p.min(q), self.p.max(q)));
                let slot = index + u16::from(index >= low);
                slot + u16::from(slot >= high)
            }
        }
    }

    /// The role of `slot`.
    ///
    /// # Panics
    /// When there is no such slot.
    #[inline]
    pub fn role_of(&self, slot: Slot) -> Role {
        let slot = slot.0;
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        if slot == self.p {
            return Role::P;
        }
        if Some(slot) == self.q {
            return Role::Q;
        }
        Role::Data(match self.data {
            Data::Round { first, ring } => wrap(u32::from(slot) + u32::from(ring - first), ring),
            Data::BySlot => slot - u16::from(slot > self.p) - self.q.map_or(0, |q| u16::from(slot > q)),
        })
    }

    /// The exponents of 2 of the data chunks, in order. Without Q, which alone uses them, any distinct numbers.
    pub fn exponents(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.data_chunks()).map(|index| match self.q {
            Some(_) => self.q_exponent(index),
            None => index as u8,
        })
    }

    /// The exponent of 2 by which data chunk `index` enters Q, below 255.
    ///
    /// # Panics
    /// When there is no such data chunk, or the level has no Q.
    #[inline]
    pub fn q_exponent(&self, index: u16) -> u8 {
        let q = self.q.expect("a level with Q");
        let slot = self.data_slot(index);
        let exponent = match self.syndrome {
            Syndrome::Ddf => slot,
            Syndrome::Md => {
                let after_q = |slot: u16| wrap(u32::from(slot) + u32::from(self.slots - 1 - q), self.slots);
                let (slot, p) = (after_q(slot), after_q(self.p));
                slot - u16::from(slot > p)
            }
        };
        u8::try_from(exponent).expect("Geometry::new limits the members of a level with Q")
    }
}
