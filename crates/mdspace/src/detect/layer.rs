//! What a disk, partition, array or logical volume holds, in words and as JSON.

use disk::content::{Content, Kind, Volume, look};
use disk::table::{Partition, find};
use disk::{Section, Source, lvm};
use engine::status::uuid_text;
use serde::Serialize;

/// What is inside of something.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Layer {
    /// `md`, `md_damaged`, `ext`, `xfs`, `btrfs`, `lvm`, `luks`, `swap`, `zfs`, `partitions`, `other`, `unknown`,
    /// `empty` or `unreadable`.
    pub kind: &'static str,
    /// The same in words.
    pub what: String,
    /// Its label; of a member, the array's name; of a physical volume, the volume group.
    pub label: Option<String>,
    /// Its UUID; of a member, the array's.
    pub uuid: Option<String>,
    /// Its length, by itself.
    pub bytes: Option<u64>,
    /// What is wrong with it.
    pub note: Option<String>,
    /// Its partitions.
    pub inside: Vec<Inner>,
}

/// A partition or logical volume.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Inner {
    /// Its name, or its number in a partition table.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What it holds.
    pub content: Layer,
}

impl Layer {
    fn new(kind: &'static str, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), label: None, uuid: None, bytes: None, note: None, inside: Vec::new() }
    }

    /// For something that cannot be looked at.
    pub(crate) fn unreadable(reason: impl Into<String>) -> Self {
        Self { note: Some(reason.into()), ..Self::new("unreadable", "unknown contents") }
    }

    /// What is in `source`, with its partitions and the name of its volume group.
    pub(crate) async fn of<S: Source>(source: &S) -> Self {
        let mut layer = Self::shallow(source).await;
        match layer.kind {
            "partitions" => layer.add_partitions(source).await,
            "lvm" => match lvm::read(source).await.map(|volume| (volume.id, volume.group)) {
                Some((id, Ok(group))) => {
                    layer.label = Some(group.name);
                    layer.uuid = Some(id);
                }
                Some((_, Err(reason))) => layer.note = Some(reason.to_string()),
                None => layer.note = Some("its label is damaged".to_owned()),
            },
            _ => {}
        }
        layer
    }

    /// The same, without what is inside.
    pub(crate) async fn shallow<S: Source>(source: &S) -> Self {
        match look(source).await {
            Err(reason) => Self::unreadable(reason),
            Ok(Content::Empty) => Self::new("empty", "nothing known, and zeros at the start"),
            Ok(Content::Unknown) => Self::new("unknown", "data of an unknown kind"),
            Ok(Content::Damaged(defect)) => Self {
                note: Some(format!("{}: {}", defect.field, defect.reason)),
                ..Self::new("md_damaged", "a superblock of md that cannot be used")
            },
            Ok(Content::Member(superblock)) => Self {
                label: Some(String::from_utf8_lossy(superblock.set_name.as_bytes()).into_owned())
                    .filter(|name| !name.is_empty()),
                uuid: Some(uuid_text(&superblock.set_uuid)),
                ..Self::new("md", "a member of an md array")
            },
            Ok(Content::Volume(Volume { kind, what, label, uuid, bytes })) => {
                Self { label, uuid, bytes, ..Self::new(name_of(kind), what) }
            }
        }
    }

    async fn add_partitions<S: Source>(&mut self, source: &S) {
        match find(source).await {
            Ok(Some(table)) => {
                self.note = (!table.notes.is_empty()).then(|| table.notes.join("; "));
                for Partition { number, at, bytes, .. } in table.partitions {
                    let content = Self::shallow(&Section::new(source, at, bytes)).await;
                    self.inside.push(Inner { name: number.to_string(), bytes, content });
                }
            }
            Ok(None) => self.note = Some("it cannot be used".to_owned()),
            Err(reason) => self.note = Some(reason),
        }
    }
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Ext => "ext",
        Kind::Xfs => "xfs",
        Kind::Btrfs => "btrfs",
        Kind::Lvm => "lvm",
        Kind::Luks => "luks",
        Kind::Swap => "swap",
        Kind::Zfs => "zfs",
        Kind::Table => "partitions",
        Kind::Other => "other",
    }
}
