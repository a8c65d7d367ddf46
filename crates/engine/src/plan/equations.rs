//! The names that a stripe's chunks have in the code's equations ([`parity::Symbol`]), and back.
//!
//! Pure.

use format::geometry::{Role, Stripe};
use parity::Symbol;
use smallvec::SmallVec;

/// The names of one stripe's chunks.
pub(crate) struct Equations {
    /// The exponent of each data chunk, in order.
    exponents: SmallVec<[u8; 32]>,
}

impl Equations {
    pub(crate) fn of(stripe: &Stripe) -> Self {
        Self { exponents: stripe.exponents().collect() }
    }

    /// The exponent of each data chunk, in order.
    pub(crate) fn exponents(&self) -> &[u8] {
        &self.exponents
    }

    pub(crate) fn symbol(&self, role: Role) -> Symbol {
        match role {
            Role::Data(index) => Symbol::Data(self.exponents[usize::from(index)]),
            Role::P => Symbol::P,
            Role::Q => Symbol::Q,
        }
    }

    pub(crate) fn role(&self, symbol: Symbol) -> Role {
        match symbol {
            Symbol::P => Role::P,
            Symbol::Q => Role::Q,
            Symbol::Data(exponent) => {
                let index = self.exponents.iter().position(|&other| other == exponent);
                Role::Data(index.expect("recovery names chunks of this stripe") as u16)
            }
        }
    }
}

/// The name of a parity, by its place among [`Role::PARITIES`].
pub(crate) fn parity_symbol(place: usize) -> Symbol {
    match Role::PARITIES[place] {
        Role::P => Symbol::P,
        Role::Q => Symbol::Q,
        Role::Data(_) => unreachable!("data is no parity"),
    }
}
