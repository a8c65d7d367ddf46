//! The laboratory: published measurements of software RAID, repeated by this engine on modelled drives in virtual time.
//!
//! The engine is the one that serves users; only members and clock are simulated. What the published tests varied is
//! varied here through the engine's own settings. The drives are [`drive::models`]. The figures are exact: they are the
//! same in every run and on every machine.
//!
//! An experiment is a file with a function that makes a [`Report`], and a line in [`EXPERIMENTS`].
#![forbid(unsafe_code)]

mod contents;
pub mod drive;
mod experiments;
mod host;
mod member;
mod report;
mod rig;
pub mod rot;
mod workload;

pub use experiments::rot::measure as measure_rot;
pub use member::{LabMember, Traced};
pub use report::{Figure, Report, Rows, Table, Trace, number};

use experiments::{checksums, e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, logs, sweep};

/// An experiment that `mdspace lab` offers.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The name on the command line, for example `e2`.
    pub name: &'static str,
    /// Runs the experiment.
    pub run: fn() -> Report,
}

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { name: "e1", run: e1::run },
    Experiment { name: "e2", run: e2::run },
    Experiment { name: "e3", run: e3::run },
    Experiment { name: "e4", run: e4::run },
    Experiment { name: "e5", run: e5::run },
    Experiment { name: "e6", run: e6::run },
    Experiment { name: "e7", run: e7::run },
    Experiment { name: "e8", run: e8::run },
    Experiment { name: "e9", run: e9::run },
    Experiment { name: "e10", run: e10::run },
    Experiment { name: "checksums", run: checksums::run },
    Experiment { name: "logs", run: logs::run },
    Experiment { name: "rot", run: experiments::rot::run },
    Experiment { name: "sweep", run: sweep::run },
];
