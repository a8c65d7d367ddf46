//! The engine's tests in virtual time. They are one program, so that the engine is compiled for the simulated member
//! once.

mod boundaries;
mod checks;
mod checksums;
mod coalescing;
mod creation;
mod forced;
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
mod partial_parity;
mod reads;
mod recovery;
mod replace;
mod reshape;
mod rot;
mod scrub;
mod stripes;
mod zeros;
