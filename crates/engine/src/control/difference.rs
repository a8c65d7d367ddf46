//! Compares the superblocks of two members: what must be equal on all members of an array.
//!
//! It is pure. Facts: `super_1_validate` in `drivers/md/md.c`.

use format::superblock::Superblock;

/// The first field that must be equal on all members, and differs between these two.
pub(crate) fn difference(own: &Superblock, other: &Superblock) -> Option<&'static str> {
    let same = [
        ("superblock.ctime", own.created == other.created),
        ("superblock.level", own.level == other.level),
        ("superblock.layout", own.layout == other.layout),
        ("superblock.chunksize", own.chunk == other.chunk),
        ("superblock.raid_disks", own.raid_disks == other.raid_disks),
        ("superblock.size", own.component == other.component),
        ("superblock.version", own.version == other.version),
    ];
    same.iter().find(|(_, same)| !same).map(|(field, _)| *field)
}
