//! What users type as values and what they read: sizes, levels, failures, progress, standard output and error.
//!
//! It knows no member, no server and no command.

pub(crate) mod failure;
pub(crate) mod geometry;
pub(crate) mod journal;
pub(crate) mod level;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod screen;
pub(crate) mod size;
pub(crate) mod wording;
