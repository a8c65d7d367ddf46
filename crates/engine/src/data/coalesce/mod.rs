//! Coalescing: how writes to parity levels become full stripes without a hint from the caller.
//!
//! A write is cut at the edges of stripes. Whole stripes are written as they are. A part of a stripe needs the *rows* that
//! it touches, 4 KiB of every chunk, because their parity changes; a write of a stream needs the whole stripe. The part
//! joins a *stripe write* that locks these rows, if it still accepts writes. Or it joins one whose data it continues and
//! which waits for no lock; that one then locks the rows as well. So writes wait for each other only where they change
//! one parity, or where they are a stream. A stripe write is closed, and its data written, as soon as one of these holds:
//!
//! * Its stripe is full, or everything that can come is there.
//! * No write in it belongs to a stream that can bring more (see [`streams`]). An isolated write waits only for
//!   writes of the same instant.
//! * All that its stream has under way waits, and nothing has come for `STREAM_WAIT` ([`carry_out`]).
//! * The stream has passed it or turned out not to be one, or a write of no stream has joined.
//! * Too much is waiting, a flush was requested, the array is stopped, or another request wants the stripe.
//!
//! Invariants:
//!
//! * A write is answered when all its parts are on the members; with [`writeback`], when the array holds them in
//!   memory.
//! * A stripe write requests its rows' lock when it is made or widened. It is closed before any other task requests any
//!   of that lock. So overlapping writes are carried out in the order requested. Within a stripe write, the later write
//!   covers the earlier one.
//! * Dropping one caller takes nothing from the others: the task is shared (see [`stripe_write`]).
//! * Neighbouring full stripes are written together if their locks are held anyway. No task waits for a lock while it
//!   holds another that was requested later. So there is no deadlock.

mod carry_out;
pub(crate) mod coalescer;
mod dirty_set;
mod front;
mod join;
mod streams;
mod stripe_write;
mod writeback;

pub use dirty_set::WriteBack;
