//! The laboratory: published measurements of software RAID, made again with
//! this engine on modelled drives in virtual time.
//!
//! The engine is the one that serves users, unchanged: only members and clock
//! are others. What the published tests varied is varied here by the engine's
//! own settings; the drives are [`crate::drive::models`]. All is exact: the
//! same figures each time, on any machine.
//!
//! An experiment is a file with a function that makes a [`Report`], and a line in [`EXPERIMENTS`].

mod beside;
mod checksums;
mod contents;
mod e1;
mod e2;
mod e3;
mod e4;
mod e5;
mod member;
mod report;
mod rig;
mod rot;
mod sweep;
mod workload;

pub use member::{LabMember, Traced};
pub use report::{Figure, Report, Rows, Table, Trace, number};
pub use rot::measure as measure_rot;

/// A measurement that can be made.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// `e2`
    pub name: &'static str,
    /// Makes it.
    pub run: fn() -> Report,
}

/// All of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { name: "e1", run: e1::run },
    Experiment { name: "e2", run: e2::run },
    Experiment { name: "e3", run: e3::run },
    Experiment { name: "e4", run: e4::run },
    Experiment { name: "e5", run: e5::run },
    Experiment { name: "checksums", run: checksums::run },
    Experiment { name: "rot", run: rot::run },
    Experiment { name: "sweep", run: sweep::run },
];
