//! Reads ahead what streams of a degraded array are about to request.
//!
//! A read that is shorter than a stripe and meets a lost chunk needs the rest of the stripe for reconstruction. Its
//! stream will request that rest next. So a stripe with lost data is read whole, once, when a stream reaches it, and
//! then served piece by piece. Random reads do not read ahead.
//!
//! Nothing depends on this: without it there are only more reads. No stale byte is ever served:
//!
//! * A stripe is read ahead only while no task holds or wants its exclusive lock. Code that changes members calls
//!   [`stretches::ReadAhead::invalidate`] first, under that lock. This abandons reads that are under way and drops what is there.
//! * So what is there can be served without a lock: a write that is under way was not answered yet.
//!
//! A request that needs some of the stripe begins the reads. It drives them, or another request that waits does. When
//! no request waits any more, the reads are abandoned. None is left unpolled: its member would count it as
//! unanswered, and the checksum pages that it holds would stay held.
//!
//! Memory is bounded. A stripe that was served in full is dropped at once, otherwise the oldest makes room.

mod requests;
mod streams;
pub(crate) mod stretches;
