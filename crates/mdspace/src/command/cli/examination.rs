//! What `examine` and `detect` print about one member, in the words of its JSON fields.

use crate::command::text::output::columns;
use crate::command::text::size::Size;
use crate::command::text::wording::utc;
use engine::examined::{
    BadBlocksExamined, Behind, BitmapExamined, Differs, Examination, JournalExamined, ParityLogExamined,
    ReshapeExamined, StripeLogExamined,
};

/// The metadata of a member.
pub(crate) fn examination(member: &Examination) -> String {
    let chunk = if member.chunk_bytes > 0 { format!(", chunk {}", Size(member.chunk_bytes)) } else { String::new() };
    let uuid = member.device_uuid.as_deref().unwrap_or("none");
    let features = if member.features.is_empty() { "none".to_owned() } else { member.features.join(", ") };
    let mut rows = vec![
        ("array", format!("{} \"{}\"", member.array_uuid, member.array_name.escape_default())),
        ("level", format!("{}, {} slots, layout {}{chunk}", member.level, member.raid_disks, member.layout)),
        ("metadata", format!("{} at byte {}, features: {features}", member.metadata, member.superblock_at)),
        ("role", format!("{}, device number {}, of {}", role(member), member.device_number, member.array_state)),
        ("state", format!("{}, events {}", member.state, member.events)),
        ("device", format!("{uuid}, {}", Size(member.member_bytes))),
        ("data", format!("from byte {}, {}", member.data_at, Size(member.data_bytes))),
        ("bitmap", bitmap(member)),
        ("bad blocks", bad_blocks(member)),
        ("created", utc(member.created)),
        ("updated", utc(member.updated)),
    ];
    if let Some(log) = &member.stripe_log {
        rows.push(("stripe log", stripe_log(log)));
    }
    if let Some(log) = &member.parity_log {
        rows.push(("partial parity log", parity_log(log)));
    }
    if let Some(held) = &member.journal {
        rows.push(("write journal", journal(held)));
    }
    if member.logical_block_bytes > 0 {
        rows.push(("blocks", format!("logical blocks of {} bytes", member.logical_block_bytes)));
    }
    if let Some(reshape) = &member.reshape {
        rows.push(("reshape", reshape_text(reshape)));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(key, value)| vec![format!("  {key}"), value]).collect();
    format!("{}\n{}", member.name, columns(&rows))
}

/// The member's role in its superblock, and its flags.
pub(super) fn role(member: &Examination) -> String {
    let mut text = match member.role.strip_prefix("active ") {
        Some(slot) => format!("member in slot {slot}"),
        None => member.role.clone(),
    };
    let hints = [
        (member.write_mostly, ", write-mostly"),
        (member.failfast, ", failfast"),
        (member.disk_error, ", with a NAS maker's flag \"disk error\""),
    ];
    text.extend(hints.iter().filter(|(is_set, _)| *is_set).map(|(_, hint)| *hint));
    text
}

fn bitmap(member: &Examination) -> String {
    match (member.bitmap_at, &member.bitmap) {
        (None, _) => "none".to_owned(),
        (Some(at), None) => format!("at byte {at}, cannot be read"),
        (Some(at), Some(bitmap)) => {
            let BitmapExamined { set, bits, chunk_bytes, events, unwritten, .. } = bitmap;
            let unwritten = unwritten.map_or(String::new(), |count| format!("{count} never written (lockless), "));
            let chunk = Size(*chunk_bytes);
            format!("at byte {at}, {bits} bits (chunks), {set} dirty, {unwritten}{chunk} chunk, events {events}")
        }
    }
}

fn bad_blocks(member: &Examination) -> String {
    match (member.bad_blocks_at, &member.bad_blocks) {
        (None, _) => "no log".to_owned(),
        (Some(at), None) => format!("log at byte {at}, cannot be read"),
        (Some(at), Some(BadBlocksExamined { ranges: 0, .. })) => format!("none; log at byte {at}"),
        (Some(at), Some(bad)) => format!("{} places, {} bytes; log at byte {at}", bad.ranges, bad.bytes),
    }
}

fn stripe_log(log: &StripeLogExamined) -> String {
    let mut text = format!("at byte {}", log.at);
    if let Some(contents) = &log.contents {
        text += &format!(", {}, epoch {}, tail {}", Size(contents.bytes), contents.epoch, contents.tail);
        text += &match (contents.records, contents.entries) {
            (Some(records), Some(entries)) => format!(", {records} records of {entries} writes"),
            _ => ", records cannot be read".to_owned(),
        };
        if !contents.parity_built {
            text += ", parity not built yet";
        }
    }
    match &log.void {
        Some(reason) => text + &format!("; void: {reason}"),
        None => text + "; it counts",
    }
}

fn parity_log(log: &ParityLogExamined) -> String {
    let headers = if log.multiple { "several headers" } else { "one header" };
    let contents = match &log.contents {
        Some(contents) => format!("the newest has number {}, writes {}", contents.generation, contents.entries),
        None => log.defect.clone().unwrap_or_default(),
    };
    format!("at byte {}, {}, {headers}; {contents}", log.at, Size(log.bytes))
}

fn journal(journal: &JournalExamined) -> String {
    let contents = match &journal.contents {
        Some(contents) => format!(
            "{}{} used, meta blocks {}, data blocks {}, rows of parity {}; next sequence {}",
            if contents.whole { "" } else { "more than " },
            Size(contents.used_bytes),
            contents.meta_blocks,
            contents.data_blocks,
            contents.parity_rows,
            contents.sequence
        ),
        None => journal.defect.clone().unwrap_or_default(),
    };
    let tail = journal.tail.map_or("out of it".to_owned(), |tail| format!("at byte {tail} of it"));
    format!("{} at byte {}, tail {tail}; {contents}", Size(journal.bytes), journal.at)
}

fn reshape_text(reshape: &ReshapeExamined) -> String {
    let ReshapeExamined { position_bytes, backwards, new_level, delta_disks, new_layout, new_chunk_bytes } = reshape;
    let direction = if *backwards { "backwards, at" } else { "at" };
    let (at, chunk) = (Size(*position_bytes), Size(*new_chunk_bytes));
    format!("{direction} {at} of the array; to {new_level}, {delta_disks:+} slots, layout {new_layout}, chunk {chunk}")
}

/// A line about a member with fewer events than others.
pub(super) fn behind(member: &Behind) -> String {
    let differs = match &member.differs {
        None => "no bitmap says what differs".to_owned(),
        Some(Differs { by, bytes: 0, .. }) => format!("by the bitmap of {by} nothing differs"),
        Some(Differs { by, bytes, ranges, ranges_omitted }) => {
            let count = ranges.len() + ranges_omitted;
            let first = ranges.first().map_or(0, |first| first.at);
            format!("by the bitmap of {by} at most {} differ, in {count} ranges from byte {first} on", Size(*bytes))
        }
    };
    format!("  behind: {}: by {}; {differs}\n", member.name, member.distance())
}
