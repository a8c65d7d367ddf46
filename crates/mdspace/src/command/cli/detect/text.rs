//! The findings as a tree, for people.

use super::Report;
use crate::command::cli::detect::containers::{ContainerFound, SlotFound};
use crate::command::cli::examination::behind;
use crate::command::text::output::columns;
use crate::command::text::size::Size;
use crate::command::text::wording::utc;
use crate::detect::Next;
use crate::detect::VolumeGroup;
use crate::detect::{ArrayFound, MemberFound};
use crate::detect::{DiskFound, PartitionFound};
use crate::detect::{Inner, Layer};

pub(super) fn of(report: &Report) -> String {
    let mut text: String = report.disks.iter().map(disk).collect();
    text += &next(&report.next);
    for array in &report.arrays {
        text += &format!("\n{}", of_array(array));
        let groups = report.volume_groups.iter().filter(|group| group.physical.first() == Some(&array.uuid));
        groups.for_each(|group| text += &of_group(group, "  "));
        text += &next(array.next.as_deref().unwrap_or_default());
    }
    text += &report.containers.iter().map(of_container).collect::<String>();
    let is_on_array =
        |group: &&VolumeGroup| report.arrays.iter().any(|array| group.physical.first() == Some(&array.uuid));
    for group in report.volume_groups.iter().filter(|group| !is_on_array(group)) {
        text += &format!("\n{}", of_group(group, ""));
    }
    text
}

fn disk(disk: &DiskFound) -> String {
    let size = Size(disk.bytes);
    let Some(table) = &disk.table else {
        let content = disk.content.as_ref().map(describe).unwrap_or_default();
        return format!("{}: {size}, {content}\n", disk.name);
    };
    let sectors = if table.sector_bytes == 512 { "" } else { " in sectors of 4096 bytes" };
    let mut text = format!("{}: {size}, {}{sectors}\n", disk.name, table.kind);
    table.notes.iter().for_each(|note| text += &format!("  note: {note}\n"));
    let rows: Vec<Vec<String>> = disk.partitions.iter().map(partition).collect();
    text + &columns(&rows)
}

fn partition(partition: &PartitionFound) -> Vec<String> {
    let PartitionFound { name, bytes, type_name, type_id, content, .. } = partition;
    let kind = type_name.map_or_else(|| format!("type {type_id}"), str::to_owned);
    let label = partition.label.as_ref().map(|label| format!(" \"{}\"", label.escape_default())).unwrap_or_default();
    vec![format!("  {name}"), Size(*bytes).to_string(), format!("{kind}{label}"), describe(content)]
}

/// What something holds, in one line.
fn describe(layer: &Layer) -> String {
    let mut text = layer.what.clone();
    if let (None, "md", Some(uuid)) = (&layer.label, layer.kind, &layer.uuid) {
        text += &format!(" {uuid}");
    }
    if let Some(label) = &layer.label {
        let of = if layer.kind == "lvm" { " of volume group" } else { "" };
        text += &format!("{of} \"{}\"", label.escape_default());
    }
    if let Some(bytes) = layer.bytes {
        text += &format!(", {}", Size(bytes));
    }
    if let Some(note) = &layer.note {
        text += &format!(" ({note})");
    }
    text
}

fn of_array(array: &ArrayFound) -> String {
    let ArrayFound { name, uuid, level, slots, .. } = array;
    let name = if name.is_empty() { String::new() } else { format!(" \"{}\"", name.escape_default()) };
    let mut text = format!("array{name} {uuid}: {level}, {slots} slots");
    if let (Some(state), Some(bytes)) = (&array.state, array.bytes) {
        text += &format!(", {}, {state}", Size(bytes));
    }
    text.push('\n');
    if !array.inside_of.is_empty() {
        text += &format!("  inside of {}\n", array.inside_of.join(", "));
    }
    let rows: Vec<Vec<String>> = array.members.iter().map(member).collect();
    text += &columns(&rows);
    text.extend(array.behind.iter().map(behind));
    for slot in &array.missing {
        text += &format!("  missing: slot {slot}\n");
    }
    for warning in &array.warnings {
        text += &format!("  warning: {warning}\n");
    }
    if let Some(refusal) = &array.refusal {
        text += &format!("  cannot be started: {refusal}\n");
    }
    if let Some(advice) = &array.advice {
        text += &format!("  needs: {advice}\n");
    }
    if let Some(content) = &array.content {
        text += &format!("  holds {}\n", describe(content));
        text += &inside(&content.inside, "    ");
    }
    text
}

fn member(member: &MemberFound) -> Vec<String> {
    let MemberFound { name, role, events, updated, left_out } = member;
    let use_ = left_out.as_ref().map(|reason| format!("not used: {reason}")).unwrap_or_default();
    vec![format!("  {name}"), role.clone(), format!("events {events}"), utc(*updated), use_]
}

fn inside(parts: &[Inner], indent: &str) -> String {
    let row =
        |part: &Inner| vec![format!("{indent}{}", part.name), Size(part.bytes).to_string(), describe(&part.content)];
    columns(&parts.iter().map(row).collect::<Vec<_>>())
}

fn of_container(container: &ContainerFound) -> String {
    let ContainerFound { kind, id, volumes, .. } = container;
    let mut text = String::new();
    for volume in volumes {
        let state = volume.state.as_ref().map(|state| format!(", {state}")).unwrap_or_default();
        let name = volume.name.escape_default();
        text +=
            &format!("\nvolume \"{name}\" of {kind} container {id}: {}, {}{state}\n", volume.level, Size(volume.bytes));
        let slot = |(index, slot): (usize, &SlotFound)| {
            let disk = slot.disk.clone().unwrap_or_else(|| "not here".to_owned());
            let state = if slot.current { "" } else { "not current" };
            vec![format!("  slot {index}"), disk, slot.id.clone().unwrap_or_default(), state.to_owned()]
        };
        text += &columns(&volume.slots.iter().enumerate().map(slot).collect::<Vec<_>>());
        text += &volume.refusal.as_ref().map(|refusal| format!("  cannot be read: {refusal}\n")).unwrap_or_default();
        text += &volume.advice.as_ref().map(|advice| format!("  needs: {advice}\n")).unwrap_or_default();
        if let Some(content) = &volume.content {
            text += &format!("  holds {}\n", describe(content));
            text += &inside(&content.inside, "    ");
        }
        text += &next(&volume.next);
    }
    text
}

fn of_group(group: &VolumeGroup, indent: &str) -> String {
    let missing = match group.missing {
        0 => String::new(),
        count => format!(", {count} of its physical volumes are missing"),
    };
    let places = group.physical.join(", ");
    let mut text = format!("{indent}volume group \"{}\" on {places}{missing}\n", group.name.escape_default());
    text += &inside(&group.volumes, &format!("{indent}  "));
    text + &next(group.next.as_deref().unwrap_or_default())
}

fn next(commands: &[Next]) -> String {
    commands.iter().map(|Next { what, command }| format!("  next: {command}\n        # {what}\n")).collect()
}
