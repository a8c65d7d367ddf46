//! Arguments of the commands that measure.

use crate::command::opening::cache_mode::CacheMode;
use crate::command::text::level::parse_level;
use crate::command::text::size::Size;
use clap::Args;
use format::geometry::Level;
use std::path::PathBuf;

/// `bench`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace bench                                    eight members in memory: the engine alone
  mdspace bench --count --level 5                  what members do for each write
  mdspace bench --level 6 --member /mnt/scratch    files in a directory, removed afterwards
  mdspace bench --member /dev/loop0 --member /dev/loop1 --member /dev/loop2    OVERWRITTEN

Beside each figure stands its limit, measured in the same run: the same bytes moved between the same \
buffers and members without RAID.")]
pub(crate) struct BenchArguments {
    /// RAID levels, measured one after another
    #[arg(long, short, value_parser = parse_level, value_delimiter = ',', default_value = "0,5,6")]
    pub(crate) level: Vec<Level>,

    /// Number of members; with block devices, their number
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) members: u16,

    /// Bytes in a chunk
    #[arg(long, short, value_name = "SIZE", default_value = "64K")]
    pub(crate) chunk: Size,

    /// The members: `memory`, a directory for files, or block devices (several times)
    #[arg(long, value_name = "memory|DIR|DEVICE", default_value = "memory")]
    pub(crate) member: Vec<PathBuf>,

    /// Bytes of each member in memory or in a directory
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub(crate) size: Size,

    /// Requests under way at a time
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) depth: usize,

    /// Keep checksums, at levels that can have them
    #[arg(long)]
    pub(crate) integrity: bool,

    /// Keep a bitmap, or a log: `ppl` at level 5, `log` and `journal` at levels 4, 5 and 6
    #[arg(long, value_enum, value_name = "POLICY", default_value = "resync")]
    pub(crate) consistency_policy: BenchPolicy,

    /// Count the members' transfers for several kinds of writes, exactly, instead of measuring time
    #[arg(long)]
    pub(crate) count: bool,

    /// When a counted write is answered
    #[arg(long, value_enum, default_value_t, requires = "count")]
    pub(crate) cache: CacheMode,

    /// Measure only workloads with these words in their name
    #[arg(long, value_name = "WORDS", conflicts_with = "count")]
    pub(crate) only: Option<String>,

    /// Seconds for each measurement
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub(crate) seconds: f64,

    /// Also write a page with tables and plots to this file (self-contained HTML)
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Consistency policies that `bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchPolicy {
    /// Neither bitmap nor log
    Resync,
    /// A write-intent bitmap on every member
    Bitmap,
    /// A partial parity log on every member
    Ppl,
    /// A stripe log on every member
    Log,
    /// A write journal on one device more: the last --member. Only requests to the whole array are measured
    Journal,
}

/// `lab`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace lab                                      all experiments, beside the published figures
  mdspace lab e2 --json
  mdspace lab all --report lab.html

The engine runs unchanged; the drives are models fitted to the published figures (docs/lab.md). No device \
of this machine is used or measured: the figures are the same on every machine and in every run.")]
pub(crate) struct LabArguments {
    /// The experiments: all, or names from docs/lab.md
    #[arg(value_name = "NAME", default_value = "all", value_parser = lab_names())]
    pub(crate) experiments: Vec<String>,

    /// Also write a page with tables and plots to this file (self-contained HTML)
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// The names of the experiments, and `all`.
fn lab_names() -> clap::builder::PossibleValuesParser {
    std::iter::once("all").chain(lab::EXPERIMENTS.iter().map(|experiment| experiment.name)).into()
}
