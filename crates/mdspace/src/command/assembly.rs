//! From arguments to an array: which members are meant, and what is said about them.

use crate::command::arguments::{AssembleArguments, MemberArguments};
use crate::command::failure::Failure;
use crate::command::members::{ArrayUuid, expand, expand_with_directories};
use crate::command::progress::Progress;
use crate::machine::{Array, Machine, Purpose};
use engine::inspect::find_superblock;
use engine::{BitmapPolicy, Candidate, Offer};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Brings parity and copies into agreement, where an unclean stop may have left them without. What cannot be
/// done now, for want of a member, is noted and stays for later: the data can be used meanwhile.
pub(crate) async fn resync(array: &Array) {
    if array.status().in_agreement || array.is_read_only() {
        return;
    }
    let shown = RefCell::new(None);
    let progress = |done: u64, total: u64| {
        let mut shown = shown.borrow_mut();
        let (bar, before) = shown.get_or_insert_with(|| (Progress::start("resync", Some(total)), 0));
        bar.advance(done - *before);
        *before = done;
    };
    if let Err(error) = array.resync(&progress).await {
        eprintln!("note: resync: {error}");
    }
}

impl Machine {
    /// The paths that `arguments` name; of those, with `--uuid`, the array's own.
    pub(crate) async fn find(&self, arguments: &MemberArguments) -> Result<Vec<PathBuf>, Failure> {
        let Some(uuid) = arguments.uuid else { return expand(&arguments.members) };
        let mut own = Vec::new();
        for path in expand_with_directories(&arguments.members)? {
            if self.belongs_to(uuid, &path).await {
                own.push(path);
            }
        }
        if own.is_empty() {
            return Err(Failure::refused(format!("no member of array {uuid} is there"))
                .advise("`mdspace examine` prints which array a member belongs to"));
        }
        Ok(own)
    }

    async fn belongs_to(&self, uuid: ArrayUuid, path: &Path) -> bool {
        let Ok(Candidate { name, member }) = self.open(path, Purpose::Look) else { return false };
        let found = find_superblock(&name, &member, &self.pool).await;
        found.is_ok_and(|found| found.superblock.set_uuid == uuid.0)
    }

    /// Assembles the array that `arguments` name.
    pub(crate) async fn assemble(
        &self,
        arguments: &AssembleArguments,
        purpose: Purpose,
        policy: BitmapPolicy,
    ) -> Result<Array, Failure> {
        let (members, bitmap_file) = arguments.resolve()?;
        let members = self.open_all(&self.find(&members).await?, purpose)?;
        let file = bitmap_file.as_deref().filter(|_| purpose == Purpose::Write);
        let bitmap = file.map(|path| self.open_bitmap(path)).transpose()?;
        let array = self.assemble_offer(Offer { members, bitmap }, arguments.force, purpose, policy).await?;
        for left_out in array.status().left_out {
            eprintln!("note: {}: not used: {}", left_out.name, left_out.reason);
        }
        Ok(array)
    }
}
