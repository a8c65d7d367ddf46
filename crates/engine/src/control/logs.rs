//! Decides what may be done with arrays whose unfinished writes are in a log of md's that this engine does
//! not replay: a write journal, or the partial parity log of RAID-5. Reads and writes nothing.
//!
//! * A journal that is present holds data and parity that the members may lack: refused. When the journal is
//!   lost, the members' superblocks call the array clean even after a power loss. mdadm refuses such an array
//!   without `--force`, and starts it read-only with it. So does this engine.
//! * A dirty and degraded array with a partial parity log can be repaired by that log alone: refused, even
//!   with `force`.
//!
//! Facts: measured on the kernel and mdadm; `super_1_sync` in `drivers/md/md.c` (`MD_JOURNAL_CLEAN`),
//! `Assemble.c` of mdadm.

use crate::control::offer::AssembleOptions;
use crate::seam::error::Refusal;

/// Checks whether an array with a write journal may be used. `journal` is the member that calls itself the
/// journal, if one was given.
pub(crate) fn check_journal(name: &str, journal: Option<&str>, options: &AssembleOptions) -> Result<(), Refusal> {
    let refuse = |member: &str, reason: &str, advice: &str| {
        Err(Refusal::new(reason).of(member).field("superblock.feature_map").advice(advice))
    };
    if let Some(journal) = journal {
        return refuse(
            journal,
            "the array's write journal, which may hold data that the members lack, and which this engine does not replay",
            "assemble the array with md, which replays the journal (mdadm --assemble), and remove the journal there: mdadm \
             --fail and --remove it, then echo resync >/sys/block/mdX/md/consistency_policy",
        );
    }
    if !options.read_only {
        return refuse(
            name,
            "the array has a write journal, which is not given: without it the array can only be read",
            "`mdspace read --force`, or serve it with --read-only --force",
        );
    }
    if !options.force {
        return refuse(
            name,
            "the array has a write journal, which is not given: writes that it alone holds are missing, and no superblock \
             says whether there are any",
            "if the journal is there, let md replay it (mdadm --assemble); if it is lost, --force reads the array without",
        );
    }
    Ok(())
}

/// The warning for an array that is read without its journal.
pub(crate) const JOURNAL_WARNING: &str = "the write journal is not given: writes that it alone held are lost, the last \
    ones may be there in part, and the array is read-only";

/// The refusal of a dirty and degraded array with a partial parity log.
pub(crate) fn needs_its_ppl() -> Refusal {
    Refusal::new(
        "the array is dirty and degraded, and what the missing member held is right only once the partial parity log was \
         replayed, which this engine does not do; --force would give wrong data",
    )
    .field("superblock.feature_map")
    .advice(
        "give a current member for each slot; or let md replay the log, on copies of the members: mdadm --assemble --run, \
         without --force, which passes over the log",
    )
}
