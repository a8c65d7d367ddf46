//! The geometry text: an array described by hand, as `--geometry` takes it and `detect --search` prints it.
//!
//! `level=5,layout=ls,chunk=64K,offset=1M,order=a.img,missing,c.img`: fields with commas between them. What follows
//! `order=` without the name of a field is the list of members, by slot. The text is only read here; the members are
//! not looked at. Levels and layouts have mdadm's names.

use crate::command::text::level::{layout_word, level_name, parse_layout, parse_level};
use crate::command::text::size::{Size, exact};
use format::geometry::{Geometry, Level, Shape, default_layout};
use format::units::SECTOR_BYTES;
use std::fmt;
use std::str::FromStr;

/// The word for a slot without a member.
pub(crate) const MISSING: &str = "missing";

/// An array as a user describes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GeometryText {
    /// The level.
    pub(crate) level: Level,
    /// The layout's number, if it was stated.
    pub(crate) layout: Option<u32>,
    /// Bytes in a chunk; 0 for a level without chunks.
    pub(crate) chunk_bytes: u64,
    /// Where data begins: one position for all members, or one for each slot.
    pub(crate) offsets: Vec<u64>,
    /// Bytes that the array uses of each member, if stated.
    pub(crate) size: Option<u64>,
    /// The members by slot, `None` for a missing one; if stated.
    pub(crate) order: Option<Vec<Option<String>>>,
}

/// The names of the fields, as they are listed for users.
const FIELDS: [&str; 6] = ["level", "layout", "chunk", "offset", "size", "order"];

const OFFSET_NOT_STATED: &str = "offset: is not stated: where data begins on each member, such as 1M; 0 with metadata 0.90 or \
                                 1.0, and without any";

/// The fields of a text, in its order; a list has its commas.
fn split(text: &str) -> Result<Vec<(&str, String)>, String> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for item in text.split(',') {
        let named = item.split_once('=').filter(|(name, _)| FIELDS.contains(name));
        if let Some((name, value)) = named {
            if fields.iter().any(|(other, _)| *other == name) {
                return Err(format!("{name}: stated twice"));
            }
            fields.push((name, value.to_owned()));
        } else if let Some(("order", list)) = fields.last_mut() {
            list.push(',');
            list.push_str(item);
        } else {
            let fields = FIELDS.join(", ");
            return Err(format!("`{item}` is no field; write NAME=VALUE, with the names {fields}"));
        }
    }
    Ok(fields)
}

impl FromStr for GeometryText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields = split(text)?;
        let field = |name: &str| fields.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str());
        let of = |name: &'static str| move |error: String| format!("{name}: {error}");
        let level = field("level").ok_or("level: is not stated; write level=5, for example")?;
        let level = parse_level(level).map_err(of("level"))?;
        let layout = field("layout").map(|name| parse_layout(level, name)).transpose().map_err(of("layout"))?;
        let chunk_bytes = chunk(level, field("chunk")).map_err(of("chunk"))?;
        let offsets = field("offset").map(offsets).transpose().map_err(of("offset"))?;
        let size = field("size").map(size).transpose().map_err(of("size"))?;
        let order = field("order").map(order).transpose().map_err(of("order"))?;
        // A field that is stated wrongly is named before the offset that is not stated.
        let offsets = offsets.ok_or(OFFSET_NOT_STATED)?;
        let geometry = Self { level, layout, chunk_bytes, offsets, size, order };
        geometry.check_shape()?;
        Ok(geometry)
    }
}

fn size(text: &str) -> Result<u64, String> {
    let Size(bytes) = text.parse()?;
    match bytes.is_multiple_of(SECTOR_BYTES) {
        true => Ok(bytes),
        false => Err(format!("{bytes} bytes are not whole 512-byte sectors")),
    }
}

fn chunk(level: Level, text: Option<&str>) -> Result<u64, String> {
    match text {
        None if level.has_chunks() => Err(format!("is not stated, and {} has chunks", level_name(level))),
        None => Ok(0),
        Some(_) if level == Level::Raid1 => Err("RAID-1 has no chunks".to_owned()),
        Some(text) => match size(text)? {
            0 if level.has_chunks() => Err(format!("0, but {} has chunks", level_name(level))),
            bytes => Ok(bytes),
        },
    }
}

fn offsets(text: &str) -> Result<Vec<u64>, String> {
    text.split(':').map(size).collect()
}

fn order(text: &str) -> Result<Vec<Option<String>>, String> {
    let mut members = Vec::new();
    for word in text.split(',') {
        match word {
            "" => return Err("a member has no name".to_owned()),
            MISSING => members.push(None),
            _ if members.iter().flatten().any(|other| other == word) => return Err(format!("{word} is there twice")),
            _ => members.push(Some(word.to_owned())),
        }
    }
    Ok(members)
}

impl GeometryText {
    /// The layout's number: the stated one, or mdadm's default.
    pub(crate) fn layout_number(&self) -> u32 {
        self.layout.unwrap_or(default_layout(self.level))
    }

    /// Where data begins on the member in `slot`.
    pub(crate) fn offset(&self, slot: usize) -> u64 {
        self.offsets[if self.offsets.len() == 1 { 0 } else { slot }]
    }

    /// Checks what can be known without members, if their number is.
    fn check_shape(&self) -> Result<(), String> {
        if self.level == Level::Raid10 && self.layout_number() >> 8 & 0xff > 1 && self.size.is_none() {
            let reason = "size: is not stated; in far and offset layouts it decides where the copies are";
            return Err(format!("{reason}: write the bytes that the array uses of each member"));
        }
        let Some(order) = &self.order else { return Ok(()) };
        self.check_slots(&order.iter().map(Option::is_some).collect::<Vec<_>>())
    }

    /// Checks the shape for slots with or without a member.
    ///
    /// # Errors
    /// The field that does not fit, and why.
    pub(crate) fn check_slots(&self, present: &[bool]) -> Result<(), String> {
        if self.offsets.len() > 1 && self.offsets.len() != present.len() {
            let (offsets, slots) = (self.offsets.len(), present.len());
            return Err(format!("offset: {offsets} positions for {slots} slots; state one, or one for each slot"));
        }
        // A size that fits every chunk stands for one that is not known yet.
        let size = self.size.unwrap_or(1 << 40);
        let slots = u16::try_from(present.len()).map_err(|_| "order: too many members")?;
        let geometry = self.geometry(&vec![size; present.len()], slots)?;
        let missing = present.iter().filter(|present| !**present).count();
        if geometry.survives(&|slot| !present[slot.index()]) {
            return Ok(());
        }
        let of = format!("{} of {} members", level_name(self.level), present.len());
        Err(match self.level.is_redundant() {
            true => format!("order: {missing} are missing, which is too many for {of}"),
            false => format!("order: {of} has no redundancy, so that none may be missing"),
        })
    }

    /// The geometry of members with these bytes of data.
    ///
    /// # Errors
    /// The field that does not fit, and why.
    pub(crate) fn geometry(&self, data_bytes: &[u64], slots: u16) -> Result<Geometry, String> {
        let shape = Shape {
            level: self.level,
            layout: self.layout_number(),
            chunk_bytes: self.chunk_bytes,
            slots,
            component_bytes: data_bytes.iter().copied().min().unwrap_or(0),
            member_bytes: if self.level.has_component() { Vec::new() } else { data_bytes.to_vec() },
        };
        Geometry::new(&shape).map_err(|defect| {
            let field = match defect.field {
                "superblock.chunksize" => "chunk",
                "superblock.layout" => "layout",
                "superblock.raid_disks" => "order",
                "superblock.size" | "superblock.data_size" => "size",
                _ => "level",
            };
            format!("{field}: {}", defect.reason)
        })
    }

    /// The bytes of data on each member, of which each has room for these: all that fits, in whole chunks.
    pub(crate) fn data_bytes(&self, room: &[u64]) -> Vec<u64> {
        let whole = |bytes: u64| match self.chunk_bytes {
            0 => bytes / SECTOR_BYTES * SECTOR_BYTES,
            chunk => bytes / chunk * chunk,
        };
        let smallest = room.iter().copied().min().unwrap_or(0);
        let bytes = |room: &u64| self.size.unwrap_or(whole(if self.level.has_component() { smallest } else { *room }));
        room.iter().map(bytes).collect()
    }
}

impl fmt::Display for GeometryText {
    /// The text that reads as this geometry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = level_name(self.level);
        write!(f, "level={}", level.strip_prefix("RAID-").unwrap_or(level))?;
        if let Some(word) = self.layout.and_then(|layout| layout_word(self.level, layout)) {
            write!(f, ",layout={word}")?;
        }
        if self.chunk_bytes > 0 {
            write!(f, ",chunk={}", exact(self.chunk_bytes))?;
        }
        let offsets: Vec<String> = self.offsets.iter().map(|bytes| exact(*bytes)).collect();
        write!(f, ",offset={}", offsets.join(":"))?;
        if let Some(size) = self.size {
            write!(f, ",size={}", exact(size))?;
        }
        let Some(order) = &self.order else { return Ok(()) };
        let words: Vec<&str> = order.iter().map(|member| member.as_deref().unwrap_or(MISSING)).collect();
        write!(f, ",order={}", words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    #[test]
    fn a_text_is_read_in_any_order_of_fields_and_printed_again() {
        for (text, printed) in [
            ("level=5,layout=ls,chunk=64K,offset=1M,order=a,missing,c", None),
            ("order=a,missing,c,offset=1M,chunk=64K,layout=ls,level=raid5", Some(0)),
            ("level=6,chunk=512K,offset=0,size=20M", None),
            ("level=1,offset=8K,order=x=1.img,missing", None),
            ("level=0,layout=alternate,chunk=12K,offset=0", None),
            ("level=10,layout=f2,chunk=64K,offset=2M,size=1G,order=a,b,c", None),
            ("level=10,layout=n3,chunk=64K,offset=2M", None),
            ("level=linear,offset=1M:1536K:2M,order=a,b,c", None),
            ("level=4,chunk=4K,offset=512", None),
            ("level=5,layout=parity-first,chunk=4K,offset=512", None),
            ("level=6,layout=ddf-N-continue,chunk=4K,offset=512", None),
        ] {
            let geometry: GeometryText = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let expected =
                if printed.is_some() { "level=5,layout=ls,chunk=64K,offset=1M,order=a,missing,c" } else { text };
            assert_eq!(geometry.to_string(), expected);
        }
    }

    /// One of these values for a field, or no such field.
    fn field(name: &'static str, values: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
        let value = prop_oneof![9 => prop::sample::select(values).prop_map(str::to_owned), 1 => ".{0,6}"];
        prop_oneof![1 => Just(None), 9 => value.prop_map(move |value| Some(format!("{name}={value}")))]
    }

    /// Texts whose fields are there or not, right or wrong, in any order.
    fn texts() -> impl Strategy<Value = String> {
        let fields = (
            field("level", &["0", "1", "4", "5", "raid5", "6", "10", "linear"]),
            prop_oneof![3 => Just(None), 1 => field("layout", &["ls", "ra", "parity-first", "n2", "f2", "o3"])],
            prop_oneof![1 => Just(None), 3 => field("chunk", &["4K", "64K", "512K", "96K", "0"])],
            field("offset", &["0", "512", "1M", "1M:2M:3M", "16777216T"]),
            prop_oneof![1 => Just(None), 1 => field("size", &["20M", "1G", "0", "18446744073709551615"])],
            prop_oneof![1 => Just(None), 1 => field("order", &["a,b,c", "a,missing,c", "x=1,b,c", "a", "missing"])],
        );
        let in_any_order = |(a, b, c, d, e, f)| Just([a, b, c, d, e, f].into_iter().flatten().collect()).prop_shuffle();
        fields.prop_flat_map(in_any_order).prop_map(|fields: Vec<String>| fields.join(","))
    }

    #[test]
    fn any_text_is_refused_or_printed_as_it_is_read() {
        let read = std::cell::Cell::new(0);
        let mut runner = TestRunner::new(ProptestConfig::with_cases(4096));
        let done = runner.run(&texts(), |text| {
            let Ok(geometry) = text.parse::<GeometryText>() else { return Ok(()) };
            read.set(read.get() + 1);
            let again = geometry.to_string().parse();
            prop_assert_eq!(again, Ok(geometry), "{}", text);
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("{error}"));
        assert!(read.get() > 400, "only {} of the texts can be read", read.get());
    }

    #[test]
    fn each_wrong_field_is_named_with_what_is_wrong() {
        for (text, reason) in [
            ("", "`` is no field; write NAME=VALUE, with the names level, layout"),
            ("raid5", "`raid5` is no field"),
            ("level=5,chunks=64K", "`chunks=64K` is no field"),
            ("level=5,level=6", "level: stated twice"),
            ("chunk=64K,offset=1M", "level: is not stated"),
            ("level=7,chunk=64K,offset=1M", "level: expected linear"),
            ("level=,chunk=64K,offset=1M", "level: expected linear"),
            ("level=5,layout=n2,chunk=64K,offset=1M", "layout: RAID-5 has no layout `n2`; choose"),
            ("level=5,layout=,chunk=64K,offset=1M", "layout: RAID-5 has no layout ``"),
            ("level=1,layout=ls,offset=1M", "layout: RAID-1 has no layout `ls`"),
            ("level=5,offset=1M", "chunk: is not stated"),
            ("level=1,chunk=64K,offset=1M", "chunk: RAID-1 has no chunks"),
            ("level=5,chunk=64Q,offset=1M", "chunk: `Q` is not a unit"),
            ("level=5,chunk=100,offset=1M", "chunk: 100 bytes are not whole"),
            ("level=5,chunk=0,offset=1M", "chunk: 0, but RAID-5 has chunks"),
            ("level=5,chunk=96K,offset=1M,order=a,b,c", "chunk: 98304 bytes, but"),
            ("level=5,chunk=4G,offset=1M,order=a,b,c", "chunk: 4294967296 bytes, but"),
            ("level=5,chunk=64K", "offset: is not stated: where data begins"),
            ("level=5,chunk=64K,size=x", "size: `x` is not a unit"),
            ("level=5,chunk=64K,order=a,a", "order: a is there twice"),
            ("level=5,chunk=64K,offset=", "offset: expected a size"),
            ("level=5,chunk=64K,offset=1000", "offset: 1000 bytes are not whole"),
            ("level=5,chunk=64K,offset=1M:,order=a,b,c", "offset: expected a size"),
            ("level=5,chunk=64K,offset=1M:2M,order=a,b,c", "offset: 2 positions for 3 slots"),
            ("level=5,chunk=64K,offset=1M,size=x", "size: `x` is not a unit"),
            ("level=5,chunk=64K,offset=1M,size=1", "size: 1 bytes are not whole"),
            ("level=5,chunk=64K,offset=1M,size=0,order=a,b,c", "size: 0 bytes on each member"),
            ("level=10,layout=f2,chunk=64K,offset=1M", "size: is not stated; in far"),
            ("level=10,layout=n9,chunk=64K,offset=1M,order=a,b,c", "layout: near=9, far=1 is 9 copies"),
            ("level=5,chunk=64K,offset=1M,order=", "order: a member has no name"),
            ("level=5,chunk=64K,offset=1M,order=a,,c", "order: a member has no name"),
            ("level=5,chunk=64K,offset=1M,order=a,b,a", "order: a is there twice"),
            ("level=6,chunk=64K,offset=1M,order=a", "order: 1, but"),
            ("level=5,chunk=64K,offset=1M,order=a,missing,missing", "order: 2 are missing, which is too many"),
            ("level=0,chunk=64K,offset=1M,order=a,missing", "order: RAID-0 of 2 members has no redundancy"),
            ("level=1,offset=1M,order=missing", "order: 1 are missing"),
        ] {
            let error = text.parse::<GeometryText>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
