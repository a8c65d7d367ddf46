//! What is inside of several arrays, by name: partitions, logical volumes, and arrays.

use crate::layers::group::MISSING;
use crate::layers::{Bytes, FoundGroup, Physical, Running, groups};
use crate::machine::{Consent, Machine, Purpose};
use disk::content::superblock;
use disk::table::{self, Partition, Table};
use engine::status::uuid_text;
use engine::{BitmapPolicy, Candidate, Offer};
use format::superblock::Superblock;
use futures_util::FutureExt;
use std::rc::Rc;

/// The deepest nesting that is looked into. People have two levels.
const DEPTH_MAX: usize = 4;

/// An array inside of others.
struct Nested {
    uuid: String,
    name: String,
    /// Its bytes, or why it cannot be assembled.
    bytes: Result<Bytes, String>,
}

/// Everything that is inside of some arrays.
#[derive(Default)]
pub(crate) struct Layers {
    physical: Vec<Physical>,
    /// Partition tables, with what they are in.
    tables: Vec<(Bytes, Table)>,
    nested: Vec<Nested>,
    /// What cannot be used, and why.
    unusable: Vec<String>,
}

/// A member of an array inside, with a name of its own.
pub(crate) struct InnerMember {
    pub(crate) name: String,
    pub(crate) superblock: Box<Superblock>,
    pub(crate) bytes: Bytes,
}

impl Layers {
    /// Looks into `devices`, each with its owner: an array's UUID, or a name.
    pub(crate) async fn of(machine: &Machine, devices: Vec<(String, Bytes)>, consent: Consent) -> Self {
        let mut layers = Self::default();
        layers.add(machine, devices, consent, DEPTH_MAX).await;
        layers
    }

    /// The physical volumes of LVM.
    #[cfg(feature = "command")]
    pub(super) fn physical(&self) -> &[Physical] {
        &self.physical
    }

    /// The partition tables, with what they are in.
    #[cfg(feature = "command")]
    pub(super) fn tables(&self) -> &[(Bytes, Table)] {
        &self.tables
    }

    /// The names and UUIDs of arrays inside.
    #[cfg(feature = "command")]
    pub(crate) fn nested(&self) -> impl Iterator<Item = (&str, &str)> {
        self.nested.iter().map(|array| (&*array.name, &*array.uuid))
    }

    async fn add(&mut self, machine: &Machine, devices: Vec<(String, Bytes)>, consent: Consent, depth: usize) {
        let mut members = Vec::new();
        for (owner, bytes) in devices {
            members.extend(members_in(&owner, &bytes).await);
            match Physical::of(owner.clone(), bytes.clone()).await {
                Some(Ok(physical)) => self.physical.push(physical),
                Some(Err(reason)) => self.unusable.push(format!("an LVM physical volume: {reason}")),
                None => {
                    let table = table::find(&bytes).await.ok().flatten();
                    self.tables.extend(table.map(|table| (bytes, table)));
                }
            }
        }
        let nested = nested(machine, members, consent).await;
        let devices = nested.iter().filter_map(|array| Some((array.uuid.clone(), array.bytes.clone().ok()?)));
        let devices: Vec<_> = devices.collect();
        self.nested.extend(nested);
        if depth > 0 && !devices.is_empty() {
            self.add(machine, devices, consent, depth - 1).boxed_local().await;
        }
    }

    /// What `name` names: the number of a partition, `GROUP/VOLUME`, or the name or UUID of an array inside.
    ///
    /// # Errors
    /// Why there is no such thing, and what there is.
    pub(crate) async fn find(&self, machine: &Machine, name: &str, force: bool) -> Result<Bytes, String> {
        let groups = groups(&self.physical);
        let volumes = groups.iter().flat_map(|group| group.group.logical.iter().map(move |volume| (group, volume)));
        let volumes: Vec<_> = volumes.filter(|(group, volume)| group.full_name(volume) == name).collect();
        let is_called = |array: &&Nested| {
            let short = array.name.split_once(':').map_or(&*array.name, |(_, short)| short);
            name == array.uuid || !name.is_empty() && (name == array.name || name == short)
        };
        let nested: Vec<_> = self.nested.iter().filter(is_called).collect();
        let partitions = self.tables.iter().filter_map(|(bytes, table)| {
            let is_it = |partition: &&Partition| partition.number.to_string() == name;
            Some((bytes, table.partitions.iter().find(is_it)?))
        });
        let partitions: Vec<_> = partitions.collect();
        match (&volumes[..], &nested[..], &partitions[..]) {
            ([], [], []) => Err(self.what_there_is()),
            ([(group, volume)], [], []) => {
                let bytes = group.open(machine, volume, force).await?;
                match (bytes.is_incomplete(), bytes.is_cut_off()) {
                    (true, _) => Err(MISSING.to_owned()),
                    (_, true) => Err("it reaches past the array's end: LVM's metadata are of another array".to_owned()),
                    _ => Ok(bytes),
                }
            }
            ([], [one], []) => one.bytes.clone(),
            ([], [], [(bytes, partition)]) => whole(bytes, partition),
            (_, [], []) => {
                Err("several volume groups have this name: choose one by --name, --uuid, or its members".to_owned())
            }
            ([], _, []) => Err("several arrays inside have this name: give a UUID".to_owned()),
            ([], [], _) => Err("several arrays have such a partition: choose one by --name or --uuid".to_owned()),
            _ => Err(
                "an array inside has this name, and so has something else: give the array's UUID, or read the other \
                      by --offset and --length"
                    .to_owned(),
            ),
        }
    }

    fn what_there_is(&self) -> String {
        let groups = groups(&self.physical);
        let volumes = |group: &FoundGroup<'_>| {
            group.group.logical.iter().map(|volume| group.full_name(volume)).collect::<Vec<_>>()
        };
        let numbers = |(_, table): &(Bytes, Table)| {
            table.partitions.iter().map(|partition| partition.number.to_string()).collect::<Vec<_>>()
        };
        let listed = [
            ("logical volumes", groups.iter().flat_map(volumes).collect::<Vec<_>>()),
            ("partitions", self.tables.iter().flat_map(numbers).collect()),
            ("arrays", self.nested.iter().map(|array| format!("\"{}\"", array.name.escape_default())).collect()),
        ];
        let listed = listed.iter().filter(|(_, names)| !names.is_empty());
        let listed: Vec<String> = listed.map(|(what, names)| format!("the {what} {}", names.join(", "))).collect();
        match (&listed[..], &self.unusable[..]) {
            ([], []) if !self.physical.is_empty() => {
                "the array is a physical volume of LVM whose metadata are on others: name these too".to_owned()
            }
            ([], []) => "the array holds neither partitions nor volumes of LVM".to_owned(),
            ([], unusable) => unusable.join("; "),
            (listed, _) => format!("the array has {}", listed.join("; ")),
        }
    }
}

/// The bytes of a partition of `bytes`.
fn whole(bytes: &Bytes, Partition { at, bytes: length, .. }: &Partition) -> Result<Bytes, String> {
    match at.checked_add(*length).filter(|end| *end <= bytes.bytes()) {
        Some(_) => Ok(bytes.part(*at, *length)),
        None => Err(format!(
            "the partition's {length} bytes from byte {at} on reach past the array's {} bytes: the table is of a larger \
             array; read what there is by --offset and --length",
            bytes.bytes()
        )),
    }
}

/// The members of arrays in `bytes`, which belong to `owner`: all of it, or partitions.
pub(crate) async fn members_in(owner: &str, bytes: &Bytes) -> Vec<InnerMember> {
    if let Ok(Some(superblock)) = superblock(bytes).await {
        return vec![InnerMember { name: owner.to_owned(), superblock, bytes: bytes.clone() }];
    }
    let mut members = Vec::new();
    let Ok(Some(table)) = table::find(bytes).await else { return members };
    for Partition { number, at, bytes: length, .. } in table.partitions {
        let bytes = bytes.part(at, length);
        if let Ok(Some(superblock)) = superblock(&bytes).await {
            members.push(InnerMember { name: format!("{owner}/{number}"), superblock, bytes });
        }
    }
    members
}

/// Assembles the arrays that members inside form.
async fn nested(machine: &Machine, members: Vec<InnerMember>, consent: Consent) -> Vec<Nested> {
    let mut arrays: Vec<([u8; 16], Vec<InnerMember>)> = Vec::new();
    for member in members {
        let own = member.superblock.set_uuid;
        match arrays.iter_mut().find(|(uuid, _)| *uuid == own) {
            Some((_, members)) => members.push(member),
            None => arrays.push((own, vec![member])),
        }
    }
    let mut nested = Vec::new();
    for (uuid, members) in arrays {
        let candidate = |member: &InnerMember| Candidate { name: member.name.clone(), member: member.bytes.member() };
        let offer = Offer::of(members.iter().map(candidate).collect());
        let array = machine.assemble_offer(offer, consent, Purpose::Look, BitmapPolicy::default()).await;
        let name = String::from_utf8_lossy(members[0].superblock.set_name.as_bytes()).into_owned();
        let below = members.into_iter().map(|member| member.bytes).collect();
        let bytes = array.map(|array| Bytes::Array(Rc::new(Running { array, below })));
        nested.push(Nested { uuid: uuid_text(&uuid), name, bytes: bytes.map_err(|refusal| refusal.to_string()) });
    }
    nested
}
