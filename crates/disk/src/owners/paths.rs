//! Paths of inodes, by reading directories from the root on: what ext and XFS share. Each reads a directory in its own way.

use super::{FileId, Owners};
use std::collections::{BTreeSet, HashSet, VecDeque};

/// A name in a directory.
pub(super) struct Entry {
    pub(super) inode: u64,
    /// [`DIRECTORY`], [`UNSAID`], or another kind of file.
    pub(super) kind: u8,
    pub(super) name: String,
}

/// The kind of a directory.
const DIRECTORY: u8 = 2;
/// The file system does not say the kind here: it may be a directory.
pub(super) const UNSAID: u8 = 0;

/// Adds a path of each file in `wanted`. `entries` gives the names in a directory, and whether they are all.
pub(super) async fn add(
    root: u64,
    mut wanted: BTreeSet<FileId>,
    owners: &mut Owners,
    mut entries: impl AsyncFnMut(u64) -> (Vec<Entry>, bool),
) {
    let id = |inode| FileId { tree: 0, inode };
    if wanted.remove(&id(root)) {
        owners.paths.insert(id(root), "/".to_owned());
    }
    let (mut due, mut seen) = (VecDeque::from([(root, String::new())]), HashSet::from([root]));
    let mut unread = 0_u64;
    while !wanted.is_empty() {
        let Some((directory, path)) = due.pop_front() else { break };
        let (entries, is_whole) = entries(directory).await;
        unread += u64::from(!is_whole);
        for Entry { inode, kind, name } in entries {
            let path = format!("{path}/{name}");
            if matches!(kind, UNSAID | DIRECTORY) && seen.insert(inode) {
                due.push_back((inode, path.clone()));
            }
            if wanted.remove(&id(inode)) {
                owners.paths.insert(id(inode), path);
            }
        }
    }
    if unread > 0 && !wanted.is_empty() {
        owners.notes.push(format!("{unread} directories cannot be read in whole, so some files have no name here"));
    }
}
