//! One cell of the interop matrix: the shape of an array, its creator, and the number of members left out of a write.
//!
//! A cell's name is all that is needed to run it again. Sizes are small, but large enough for several stripes with
//! every chunk size and for a tail shorter than a chunk.

use crate::matrix::random::Random;

/// The creator of the array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// mdadm and the kernel's driver, in a guest.
    Kernel,
    /// The command `mdspace create`.
    Here,
}

impl Origin {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Origin::Kernel => "kernel",
            Origin::Here => "here",
        }
    }

    /// As in "made here".
    pub(crate) fn made(self) -> &'static str {
        match self {
            Origin::Kernel => "by the kernel",
            Origin::Here => "here",
        }
    }
}

/// RAID levels, in the order of lists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    Linear,
    Raid0,
    Raid1,
    Raid4,
    Raid5,
    Raid6,
    Raid10,
}

impl Level {
    /// The argument of `--level`, for both commands.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "0",
            Level::Raid1 => "1",
            Level::Raid4 => "4",
            Level::Raid5 => "5",
            Level::Raid6 => "6",
            Level::Raid10 => "10",
        }
    }

    fn has_redundancy(self) -> bool {
        !matches!(self, Level::Linear | Level::Raid0)
    }
}

/// Levels and layouts, with the least and the most members in fixed cells.
pub(crate) struct Shape {
    pub(crate) level: Level,
    /// The argument of `--layout`, for both commands.
    pub(crate) layout: Option<&'static str>,
    pub(crate) members: (usize, usize),
    /// The number of members that may be missing, whichever they are, with the least number of members.
    redundancy: usize,
}

const fn shape(level: Level, layout: Option<&'static str>, members: (usize, usize), redundancy: usize) -> Shape {
    Shape { level, layout, members, redundancy }
}

/// Every level with every layout.
pub(crate) const SHAPES: &[Shape] = &[
    shape(Level::Linear, None, (2, 4), 0),
    shape(Level::Raid0, None, (2, 5), 0),
    shape(Level::Raid0, Some("original"), (2, 4), 0),
    shape(Level::Raid0, Some("alternate"), (2, 4), 0),
    shape(Level::Raid1, None, (2, 4), 1),
    shape(Level::Raid4, None, (3, 5), 1),
    shape(Level::Raid5, Some("left-asymmetric"), (3, 6), 1),
    shape(Level::Raid5, Some("right-asymmetric"), (3, 6), 1),
    shape(Level::Raid5, Some("left-symmetric"), (3, 6), 1),
    shape(Level::Raid5, Some("right-symmetric"), (3, 6), 1),
    shape(Level::Raid5, Some("parity-first"), (3, 6), 1),
    shape(Level::Raid5, Some("parity-last"), (3, 6), 1),
    shape(Level::Raid6, Some("left-asymmetric"), (4, 7), 2),
    shape(Level::Raid6, Some("right-asymmetric"), (4, 7), 2),
    shape(Level::Raid6, Some("left-symmetric"), (4, 7), 2),
    shape(Level::Raid6, Some("right-symmetric"), (4, 7), 2),
    shape(Level::Raid6, Some("parity-first"), (4, 7), 2),
    shape(Level::Raid6, Some("parity-last"), (4, 7), 2),
    shape(Level::Raid6, Some("ddf-zero-restart"), (4, 7), 2),
    shape(Level::Raid6, Some("ddf-N-restart"), (4, 7), 2),
    shape(Level::Raid6, Some("ddf-N-continue"), (4, 7), 2),
    shape(Level::Raid6, Some("left-asymmetric-6"), (4, 7), 2),
    shape(Level::Raid6, Some("right-asymmetric-6"), (4, 7), 2),
    shape(Level::Raid6, Some("left-symmetric-6"), (4, 7), 2),
    shape(Level::Raid6, Some("right-symmetric-6"), (4, 7), 2),
    shape(Level::Raid6, Some("parity-first-6"), (4, 7), 2),
    shape(Level::Raid10, Some("n2"), (2, 5), 1),
    shape(Level::Raid10, Some("n3"), (3, 5), 2),
    shape(Level::Raid10, Some("f2"), (2, 5), 1),
    shape(Level::Raid10, Some("f3"), (3, 5), 2),
    shape(Level::Raid10, Some("o2"), (2, 5), 1),
    shape(Level::Raid10, Some("o3"), (3, 5), 2),
];

/// One cell.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) origin: Origin,
    pub(crate) level: Level,
    pub(crate) layout: Option<&'static str>,
    /// KiB; `None` for RAID-1 and linear, which have no chunks. (The kernel's linear may round to some.)
    pub(crate) chunk_kib: Option<u64>,
    pub(crate) metadata: &'static str,
    pub(crate) members: usize,
    pub(crate) bitmap: bool,
    /// The number of members that are left out when `mdspace` writes.
    pub(crate) absent: usize,
    redundancy: usize,
}

impl Cell {
    /// A cell of `shape`, without the bitmap, chunk or missing members that its level cannot have.
    pub(crate) fn new(
        origin: Origin,
        shape: &Shape,
        chunk_kib: u64,
        metadata: &'static str,
        members: usize,
        bitmap: bool,
        absent: usize,
    ) -> Cell {
        let redundancy = if shape.level == Level::Raid1 { members - 1 } else { shape.redundancy };
        Cell {
            origin,
            level: shape.level,
            layout: shape.layout,
            chunk_kib: match (shape.level, origin) {
                (Level::Raid1, _) | (Level::Linear, Origin::Here) => None,
                _ => Some(chunk_kib),
            },
            metadata,
            members,
            bitmap: bitmap && shape.level.has_redundancy(),
            absent: absent.min(redundancy).min(2),
            redundancy,
        }
    }

    /// For example `kernel-6-ddf-N-restart-64K-1.2-7-bitmap-less2`.
    pub(crate) fn name(&self) -> String {
        let mut parts = vec![self.origin.name().to_owned(), self.level.name().to_owned()];
        parts.extend(self.layout.map(str::to_owned));
        parts.extend(self.chunk_kib.map(|kib| format!("{kib}K")));
        parts.extend([self.metadata.to_owned(), self.members.to_string()]);
        parts.extend(self.bitmap.then(|| "bitmap".to_owned()));
        parts.extend((self.absent > 0).then(|| format!("less{}", self.absent)));
        parts.join("-")
    }

    /// The random choices of the cell, the same in every run.
    pub(crate) fn random(&self) -> Random {
        Random::from_text(&self.name())
    }

    /// The number of members that may be missing, whichever they are.
    pub(crate) fn redundancy(&self) -> usize {
        self.redundancy
    }

    /// Whether the array is always unreadable with one more than [`Cell::redundancy`] members missing.
    ///
    /// RAID-10 may still be readable, if the members hold different chunks.
    pub(crate) fn one_more_is_fatal(&self) -> bool {
        self.level != Level::Raid10
    }

    /// Whether there are copies or parity that `check` can compare.
    pub(crate) fn can_be_checked(&self) -> bool {
        self.level.has_redundancy()
    }

    /// The length of each member's image: room for metadata, six or more chunks, and an odd tail.
    pub(crate) fn member_bytes(&self, member: usize) -> u64 {
        const KIB: u64 = 1024;
        const METADATA_ROOM: u64 = 1280 * KIB; // mdadm's data offset of 1 MiB, and the metadata at the end
        let data = (6 * self.chunk_kib.unwrap_or(64)).max(1024) * KIB + 20 * KIB;
        let zones = matches!(self.layout, Some("original" | "alternate")) || self.level == Level::Linear;
        let extra = if zones { data / 2 * (member as u64 % 3) } else { 0 };
        METADATA_ROOM + data + extra
    }

    /// The options of `mdadm --create` and `mdspace create`, which are the same, without the members.
    pub(crate) fn create_options(&self) -> Vec<String> {
        let mut options = vec![format!("--level={}", self.level.name()), format!("--metadata={}", self.metadata)];
        options.extend(self.layout.map(|layout| format!("--layout={layout}")));
        options.extend(self.chunk_kib.map(|kib| format!("--chunk={kib}K")));
        if self.level.has_redundancy() {
            options.push(format!("--bitmap={}", if self.bitmap { "internal" } else { "none" }));
            options.extend(self.bitmap.then(|| "--bitmap-chunk=64K".to_owned()));
            options.push("--assume-clean".to_owned()); // the images are zeros, which are consistent at every level
        }
        options
    }
}
