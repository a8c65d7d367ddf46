//! A volume group: its physical and logical volumes.

use super::text::{Section, Value, parse};
use std::collections::BTreeSet;

const SECTOR_BYTES: u64 = 512;

/// The most segments of a logical volume, and volumes of a group.
const COUNT_MAX: usize = 100_000;

/// A volume group, as its newest metadata describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The number of its last change.
    pub sequence: u64,
    /// The ids of its physical volumes, without dashes.
    pub physical: Vec<PhysicalPlace>,
    /// Its logical volumes, in the order of the text. Hidden parts of others are not among them.
    pub logical: Vec<LogicalVolume>,
    /// The hidden parts of others.
    pub hidden: Vec<LogicalVolume>,
}

/// A physical volume of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalPlace {
    /// Its name in segments: `pv0`.
    pub key: String,
    /// Its id, without dashes.
    pub id: String,
    /// Where its first extent begins, in bytes.
    pub data_at: u64,
}

/// A logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalVolume {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What it is made of.
    pub content: Content,
    /// Whether a write to it changes nothing else: it is no origin of a snapshot, and LVM allows writes.
    pub is_writable: bool,
}

/// What a logical volume is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Segments on physical volumes, ascending and without gaps.
    Striped(Vec<Segment>),
    /// Blocks of a thin pool.
    Thin {
        /// The pool.
        pool: String,
        /// The device's number in the pool.
        device: u32,
    },
    /// A thin pool, by the names of its parts.
    Pool {
        /// The volume with the map.
        metadata: String,
        /// The volume with the blocks.
        data: String,
        /// Bytes in a block.
        block_bytes: u64,
        /// The number of the last change.
        transaction: u64,
    },
    /// Images of a RAID, each with the name of the volume that says how current it is. RAID-0 has none.
    Raid {
        /// Bytes in a chunk, for RAID-0.
        chunk_bytes: u64,
        /// The names: of the metadata's volume, and of the image.
        images: Vec<(Option<String>, String)>,
    },
    /// Copies without superblocks; the first is the one that others are made from.
    Mirror(Vec<String>),
    /// Segments of a type that is not read.
    Other(String),
}

/// A range of a logical volume, striped over one or more physical volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its first byte in the logical volume.
    pub at: u64,
    /// Its length.
    pub bytes: u64,
    /// Bytes in a stripe's unit; the whole segment if there is one stripe.
    pub unit_bytes: u64,
    /// Where the stripes are.
    pub stripes: Vec<Stripe>,
}

/// A stripe of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripe {
    /// The index of the physical volume in [`Group::physical`].
    pub physical: usize,
    /// Its first byte there.
    pub at: u64,
}

impl Group {
    /// Decodes the metadata's text.
    ///
    /// # Errors
    /// What is wrong.
    pub fn decode(text: &str) -> Result<Self, String> {
        let whole = parse(text)?;
        let (name, group) = whole.sections().next().ok_or("its metadata name no volume group")?;
        let extent = group.number("extent_size").and_then(|sectors| sectors.checked_mul(SECTOR_BYTES));
        let extent = extent.filter(|bytes| *bytes > 0).ok_or("its metadata have no extent_size")?;
        let none = Section::default();
        let physical: Option<Vec<_>> = sections(group, "physical_volumes", &none).map(physical_volume).collect();
        let physical = physical.ok_or("its metadata have a physical volume without id or pe_start")?;
        let named = |keys: &'static [&str]| -> Vec<&str> {
            sections(group, "logical_volumes", &none).flat_map(|(_, volume)| named_by(volume, keys)).collect()
        };
        let (origins, stores) = (named(&["origin", "external_origin"]), named(&["cow_store", "merging_store"]));
        let merged: Vec<&str> = sections(group, "logical_volumes", &none).flat_map(merged).collect();
        let (mut logical, mut hidden) = (Vec::new(), Vec::new());
        for (name, volume) in sections(group, "logical_volumes", &none) {
            let decoded = segments(volume, extent, &physical);
            let (bytes, content) = decoded.unwrap_or_else(|| (0, Content::Other("unknown".to_owned())));
            // A store holds only what differs from the origin, in an order of its own.
            let content = match (stores.contains(&name), merged.contains(&name)) {
                (true, _) => Content::Other("snapshot".to_owned()),
                (_, true) => Content::Other("snapshot-merge".to_owned()),
                _ => content,
            };
            let is_writable = has_flag(volume, "WRITE") && !origins.contains(&name);
            let volumes = if has_flag(volume, "VISIBLE") { &mut logical } else { &mut hidden };
            volumes.push(LogicalVolume { name: name.to_owned(), bytes, content, is_writable });
        }
        Ok(Self { name: name.to_owned(), sequence: group.number("seqno").unwrap_or(0), physical, logical, hidden })
    }

    /// The volume with this name, also a hidden one.
    pub fn volume(&self, name: &str) -> Option<&LogicalVolume> {
        self.logical.iter().chain(&self.hidden).find(|volume| volume.name == name)
    }
}

fn sections<'a>(
    group: &'a Section,
    name: &str,
    none: &'a Section,
) -> impl Iterator<Item = (&'a str, &'a Section)> + use<'a> {
    group.section(name).unwrap_or(none).sections().take(COUNT_MAX)
}

fn physical_volume((key, volume): (&str, &Section)) -> Option<PhysicalPlace> {
    let id = volume.text("id")?.replace('-', "");
    let data_at = volume.number("pe_start")?.checked_mul(SECTOR_BYTES)?;
    Some(PhysicalPlace { key: key.to_owned(), id, data_at })
}

fn has_flag(volume: &Section, name: &str) -> bool {
    let status = volume.list("status").unwrap_or_default();
    status.iter().any(|flag| matches!(flag, Value::Text(flag) if flag == name))
}

/// The volumes that the segments of this one name by one of `keys`.
fn named_by<'a>(volume: &'a Section, keys: &'static [&str]) -> impl Iterator<Item = &'a str> {
    let of = |segment: &'a Section| keys.iter().filter_map(|key| segment.text(key));
    volume.sections().flat_map(move |(_, segment)| of(segment))
}

/// The origins that a snapshot is being merged into: a part of their data is still in its store.
fn merged<'a>((_, volume): (&'a str, &'a Section)) -> impl Iterator<Item = &'a str> {
    let merging = volume.sections().filter(|(_, segment)| segment.text("merging_store").is_some());
    merging.filter_map(|(_, segment)| segment.text("origin"))
}

/// The length of a volume, and what it is made of. `None`: its segments make no sense.
fn segments(volume: &Section, extent: u64, physical: &[PhysicalPlace]) -> Option<(u64, Content)> {
    let mut bytes = 0_u64;
    let mut content = Content::Striped(Vec::new());
    let count = usize::try_from(volume.number("segment_count")?).ok()?.min(COUNT_MAX);
    for number in 1..=count {
        let section = volume.section(&format!("segment{number}"))?;
        let at = section.number("start_extent")?.checked_mul(extent)?;
        let length = section.number("extent_count")?.checked_mul(extent)?;
        if at != bytes {
            return None;
        }
        bytes = bytes.checked_add(length)?;
        let kind = section.text("type")?;
        match &mut content {
            Content::Striped(list) if kind == "striped" => match striped(section, at, length, extent, physical) {
                Some(segment) => list.push(segment),
                // As while pvmove runs: the segment lies on the volume that is being moved.
                None => content = Content::Other("striped over no physical volume".to_owned()),
            },
            Content::Striped(_) if count == 1 => content = special(kind, section),
            Content::Striped(_) => content = Content::Other(kind.to_owned()),
            _ => {}
        }
    }
    Some((bytes, content))
}

/// The only segment of a volume, if it is of a type other than striped.
fn special(kind: &str, section: &Section) -> Content {
    let content = match kind {
        "thin" => thin(section),
        "thin-pool" => pool(section),
        "mirror" => mirrored(section),
        _ if kind.starts_with("raid") => raid(section),
        _ => None,
    };
    content.unwrap_or_else(|| Content::Other(kind.to_owned()))
}

fn thin(section: &Section) -> Option<Content> {
    if section.text("external_origin").is_some() || section.text("merge").is_some() {
        return None;
    }
    let device = u32::try_from(section.number("device_id")?).ok()?;
    Some(Content::Thin { pool: section.text("thin_pool")?.to_owned(), device })
}

fn pool(section: &Section) -> Option<Content> {
    Some(Content::Pool {
        metadata: section.text("metadata")?.to_owned(),
        data: section.text("pool")?.to_owned(),
        block_bytes: section.number("chunk_size")?.checked_mul(SECTOR_BYTES)?,
        transaction: section.number("transaction_id")?,
    })
}

/// The names in a list.
fn names(section: &Section, key: &str) -> Option<Vec<String>> {
    let name = |value: &Value| if let Value::Text(name) = value { Some(name.clone()) } else { None };
    section.list(key)?.iter().map(name).collect()
}

fn raid(section: &Section) -> Option<Content> {
    let chunk_bytes = section.number("stripe_size").unwrap_or(0).checked_mul(SECTOR_BYTES)?;
    if let Some(images) = names(section, "raid0_lvs") {
        let images = images.into_iter().map(|image| (None, image)).collect();
        return (chunk_bytes > 0).then_some(Content::Raid { chunk_bytes, images });
    }
    let names = names(section, "raids")?;
    let (pairs, rest) = names.as_chunks::<2>();
    let images = pairs.iter().map(|[metadata, image]| (Some(metadata.clone()), image.clone())).collect();
    (rest.is_empty() && !pairs.is_empty()).then_some(Content::Raid { chunk_bytes, images })
}

fn mirrored(section: &Section) -> Option<Content> {
    let (pairs, rest) = section.list("mirrors")?.as_chunks::<2>();
    let image = |pair: &[Value; 2]| match pair {
        [Value::Text(name), Value::Number(0)] => Some(name.clone()),
        _ => None,
    };
    let images: Vec<String> = pairs.iter().map(image).collect::<Option<_>>()?;
    (rest.is_empty() && !images.is_empty()).then_some(Content::Mirror(images))
}

fn striped(section: &Section, at: u64, bytes: u64, extent: u64, physical: &[PhysicalPlace]) -> Option<Segment> {
    let (pairs, rest) = section.list("stripes")?.as_chunks::<2>();
    let stripes: Option<Vec<Stripe>> = pairs.iter().map(|pair| stripe(pair, extent, physical)).collect();
    let stripes = stripes.filter(|stripes| rest.is_empty() && !stripes.is_empty())?;
    let unit_bytes = match stripes.len() {
        1 => bytes,
        _ => section.number("stripe_size")?.checked_mul(SECTOR_BYTES)?,
    };
    (unit_bytes > 0 || bytes == 0).then_some(Segment { at, bytes, unit_bytes, stripes })
}

fn stripe(pair: &[Value; 2], extent: u64, physical: &[PhysicalPlace]) -> Option<Stripe> {
    let [Value::Text(key), Value::Number(first)] = pair else { return None };
    let index = physical.iter().position(|place| place.key == *key)?;
    let at = physical[index].data_at.checked_add(first.checked_mul(extent)?)?;
    Some(Stripe { physical: index, at })
}

impl LogicalVolume {
    fn segments(&self) -> &[Segment] {
        if let Content::Striped(segments) = &self.content { segments } else { &[] }
    }

    fn stripes(&self) -> impl Iterator<Item = (&Segment, &Stripe)> {
        self.segments().iter().flat_map(|segment| segment.stripes.iter().map(move |stripe| (segment, stripe)))
    }

    /// The indices of the physical volumes that it lies on, each once.
    pub fn used(&self) -> impl Iterator<Item = usize> {
        self.stripes().map(|(_, stripe)| stripe.physical).collect::<BTreeSet<_>>().into_iter()
    }

    /// Where its last byte on a physical volume ends.
    pub fn reach(&self, physical: usize) -> u64 {
        let own = self.stripes().filter(|(_, stripe)| stripe.physical == physical);
        let end = |(segment, stripe): (&Segment, &Stripe)| {
            stripe.at.saturating_add(segment.bytes.div_ceil(segment.stripes.len() as u64))
        };
        own.map(end).max().unwrap_or(0)
    }

    /// Where byte `at` is: the physical volume's index, the position there, and how many bytes follow in one piece.
    /// `None`: past the end, or in a segment that is no stripe.
    pub fn locate(&self, at: u64) -> Option<(usize, u64, u64)> {
        let segments = self.segments();
        let index = segments.partition_point(|segment| segment.at <= at).checked_sub(1)?;
        let segment = &segments[index];
        let inside = at.checked_sub(segment.at).filter(|inside| *inside < segment.bytes)?;
        let count = segment.stripes.len() as u64;
        let (unit, skip) = (inside / segment.unit_bytes, inside % segment.unit_bytes);
        let stripe = &segment.stripes[(unit % count) as usize];
        let position = stripe.at.checked_add(unit / count * segment.unit_bytes)?.checked_add(skip)?;
        Some((stripe.physical, position, (segment.unit_bytes - skip).min(segment.bytes - inside)))
    }
}
