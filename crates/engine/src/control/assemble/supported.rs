//! What assembly refuses for a field of the freshest superblock: features that this engine does not have, or only reads.
//!
//! Pure. [`super::shape`] refuses members that do not fit the array.

use crate::control::election::Offered;
use crate::control::logs;
use crate::control::offer::AssembleOptions;
use crate::seam::error::Refusal;
use format::superblock::{DeviceRole, Superblock};

/// More changes than any member ever sees; leaves room to count on.
const EVENTS_MAX: u64 = u64::MAX / 2;

/// Refuses features that this engine does not support, or only reads.
pub(super) fn check_supported(
    name: &str,
    superblock: &Superblock,
    journal: Option<&str>,
    options: &AssembleOptions,
) -> Result<(), Refusal> {
    let refuse = |field: &str, what: &str, advice: &str| Err(Refusal::new(what).of(name).field(field).advice(advice));
    if superblock.events > EVENTS_MAX {
        return refuse("superblock.events", "beyond any count of real changes", "make the array anew");
    }
    if superblock.bitmap.is_some() && !superblock.level.is_redundant() {
        return refuse("superblock.feature_map", "a bitmap at a level without redundancy", "md refuses it as well");
    }
    if superblock.reshape.is_some() {
        return refuse(
            "superblock.reshape_position",
            "a reshape is under way",
            "read it with `mdspace read` or `mdspace serve --read-only`; to write, end the reshape first: `mdspace grow \
             --continue` if it is to more members, or mdadm --assemble",
        );
    }
    if superblock.journal {
        logs::check_journal(name, journal, options)?;
    }
    if superblock.clustered && !options.read_only {
        return refuse(
            "superblock.feature_map",
            "the array belongs to a cluster",
            "stop it on all nodes and make it local: mdadm --grow --bitmap=none; or serve it --read-only",
        );
    }
    // Its uuid is in that order, too, and an old one's bits.
    if superblock.other_byte_order && superblock.bitmap.is_some() && !options.read_only {
        return refuse(
            "superblock.md_magic",
            "the other byte order, with a bitmap: a big-endian machine made the array",
            "`mdspace update --byteorder` changes that, without the bitmap; or serve it --read-only",
        );
    }
    if !superblock.disk_errors.is_empty() && !options.read_only {
        return refuse(
            "superblock.dev_roles",
            "a NAS has set the flag \"disk error\" of a member, and the kernel's md refuses such a member",
            "copy what it holds with `mdspace read`, or serve it --read-only",
        );
    }
    if superblock.has_unknown_padding() && !options.read_only {
        return refuse(
            "superblock.pad",
            "fields that this engine does not know are set",
            "serve it --read-only; a newer kernel may have made it",
        );
    }
    Ok(())
}

/// The candidate that calls itself the write journal.
pub(super) fn journal_of<M>(offered: &[Offered<M>]) -> Option<&str> {
    let journal = offered.iter().find(|offered| offered.found.superblock.own_role() == DeviceRole::Journal);
    journal.map(|journal| &*journal.name)
}
