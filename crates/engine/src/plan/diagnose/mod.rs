//! Decides which blocks are wrong where redundant blocks do not agree: pure functions.
//!
//! Blocks are judged in *rows*: the same bytes of every chunk of a stripe, or the
//! same bytes of every copy. Each block is a [`BlockEvidence`]: its bytes, and
//! what else is known of it (a checksum, an unreadable sector). The rules are in
//! `stripe` and `copies`. Both blame a block only where one answer is left, and
//! assume that few wrong blocks are likelier than many:
//!
//! * Blocks known to be bad are wrong, and verified blocks are right. Where the
//!   verified blocks determine all others, they decide.
//! * Otherwise at most one more block than those known to be bad is wrong (of
//!   copies, a minority), and the evidence must single it out. If it does not, the
//!   row is undecidable. Nothing is guessed.
//!
//! This gives what RAID-6 allows without checksums. In a complete row one wrong
//! block of any member is found and named. With one member missing one equation
//! is left: it shows that a block is wrong, but not which. Two wrong blocks are
//! detected and undecidable, with one exception: their errors may look like the
//! error of a single other block. For that they must be in the same bytes, with a
//! ratio that equals that block's coefficient. One wrong byte meets this by chance
//! in one of 255 cases for each member; a block of random bytes practically never.
//! Two exchanged blocks always look like a wrong Q, and that is no accident. So
//! the exchange is tested for, and is undecidable.
//!
//! Source of the arithmetic: H. P. Anvin, "The mathematics of RAID-6", section 4.

mod copies;
mod evidence;
mod stripe;
#[cfg(test)]
mod tests;

pub use copies::{judge_copies, truth};
pub use evidence::{BlockEvidence, Evidence, Indices, Verdict};
pub use stripe::StripeRow;
