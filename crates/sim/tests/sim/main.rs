//! The engine in a world that does not exist: one program, so that the engine is compiled for it once.

mod boundaries;
mod checksums;
mod creation;
mod forced;
mod gathering;
mod grow;
mod healing;
mod histories;
mod intent;
mod live_growth;
mod observe;
mod reads;
mod recovery;
mod replace;
mod scrub;
mod stripes;
mod zeros;
