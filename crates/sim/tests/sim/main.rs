//! The engine in a world that does not exist: one program, so that the engine is compiled for it once.

mod boundaries;
mod checks;
mod checksums;
mod creation;
mod forced;
mod gathering;
mod grow;
mod halves;
mod healing;
mod histories;
mod in_place;
mod intent;
mod learning;
mod live_growth;
mod no_space;
mod observe;
mod reads;
mod recovery;
mod replace;
mod rot;
mod scrub;
mod stripes;
mod zeros;
