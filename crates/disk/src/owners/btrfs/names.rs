//! Paths of inodes of Btrfs, from the inode up to the top subvolume.

use super::super::FileId;
use super::name_at;
use super::trees::{Item, Key, Trees};
use crate::bytes::le64;
use crate::source::Source;

const INODE_REF: u8 = 12;
const INODE_EXTREF: u8 = 13;
const ROOT_BACKREF: u8 = 144;

/// The directory at the top of a subvolume, and the top subvolume.
const TOP: u64 = 256;
const TOP_TREE: u64 = 5;

/// The deepest path that is followed: longer ones are a loop.
const DEPTH_MAX: usize = 1000;

/// A path of a file; `None` if it has no name.
pub(super) async fn of<S: Source + ?Sized>(trees: &mut Trees<'_, S>, file: FileId) -> Result<Option<String>, String> {
    let FileId { mut tree, mut inode } = file;
    let mut names: Vec<String> = Vec::new();
    for _ in 0..DEPTH_MAX {
        let above = match (tree, inode) {
            (TOP_TREE, TOP) => {
                names.reverse();
                return Ok(Some(format!("/{}", names.join("/"))));
            }
            (_, TOP) => above_subvolume(trees, tree).await?,
            _ => above_inode(trees, tree, inode).await?.map(|(inode, name)| (tree, inode, name)),
        };
        let Some((tree_above, inode_above, name)) = above else { return Ok(None) };
        names.push(name);
        (tree, inode) = (tree_above, inode_above);
    }
    Err("its directories lead to each other".to_owned())
}

/// A directory that an inode is in, and its name there.
async fn above_inode<S: Source + ?Sized>(
    trees: &mut Trees<'_, S>,
    tree: u64,
    inode: u64,
) -> Result<Option<(u64, String)>, String> {
    let root = trees.root(tree).await?.ok_or_else(|| format!("subvolume {tree} is missing"))?;
    let from = Key { object: inode, kind: INODE_REF, offset: 0 };
    let to = Key { object: inode, kind: INODE_EXTREF, offset: u64::MAX };
    let (items, is_whole) = trees.items(root, from, to).await;
    let named = items.iter().find_map(|Item { key, data }| match key.kind {
        INODE_REF => Some((key.offset, name_at(data, 8)?)),
        _ => Some((le64(data, 0), name_at(data, 16)?)),
    });
    match (named, is_whole) {
        (None, false) => Err(format!("the tree of subvolume {tree} cannot be read in whole")),
        (named, _) => Ok(named),
    }
}

/// The subvolume and directory that a subvolume is in, and its name there.
async fn above_subvolume<S: Source + ?Sized>(
    trees: &mut Trees<'_, S>,
    tree: u64,
) -> Result<Option<(u64, u64, String)>, String> {
    let root = trees.root_of_roots();
    let key = |offset| Key { object: tree, kind: ROOT_BACKREF, offset };
    let (items, is_whole) = trees.items(root, key(0), key(u64::MAX)).await;
    let named = items.iter().find_map(|Item { key, data }| Some((key.offset, le64(data, 0), name_at(data, 16)?)));
    match (named, is_whole) {
        (None, false) => Err("the tree of roots cannot be read in whole".to_owned()),
        (named, _) => Ok(named),
    }
}
