//! What bytes are, as text.

use super::{FileHit, Located, PlaceFound};

/// Places and files that are printed; JSON lists all.
const PRINTED_MAX: usize = 100;

/// The whole answer.
pub(crate) fn text(located: &Located) -> String {
    let mut text = String::new();
    for place in located.places.iter().take(PRINTED_MAX) {
        text += &format!("{}\n", line(place));
    }
    more(&mut text, located.places.len(), "places");
    if located.places.is_empty() {
        text += "no byte of the array is asked for\n";
    }
    if located.places.len() > 1 {
        for file in located.files.iter().take(PRINTED_MAX) {
            text += &format!("hit: {}: {} bytes\n", name(file), file.bytes);
        }
        more(&mut text, located.files.len(), "files");
        if located.files.is_empty() {
            text += "no file is hit\n";
        }
    }
    for note in &located.notes {
        text += &format!("note: {note}\n");
    }
    text
}

fn more(text: &mut String, count: usize, what: &str) {
    if count > PRINTED_MAX {
        *text += &format!("and {} more {what}, which --json lists\n", count - PRINTED_MAX);
    }
}

fn name(FileHit { volume, path, inode, subvolume, .. }: &FileHit) -> String {
    format!("{}{}", inside(volume.as_deref()), file(path.as_deref(), *inode, *subvolume))
}

fn inside(volume: Option<&str>) -> String {
    volume.map(|volume| format!("{volume}: ")).unwrap_or_default()
}

fn file(path: Option<&str>, inode: u64, subvolume: Option<u64>) -> String {
    let of = subvolume.map(|number| format!(" of subvolume {number}")).unwrap_or_default();
    match path {
        Some(path) => format!("{path} (inode {inode}{of})"),
        None => format!("inode {inode}{of}, whose name was not found"),
    }
}

fn line(place: &PlaceFound) -> String {
    let PlaceFound { at, bytes, volume, volume_at, kind, what, path, inode, subvolume, file_at } = place;
    let volume = volume.as_deref().map(|volume| format!("{volume} byte {volume_at}: ")).unwrap_or_default();
    let file = inode.map(|inode| file(path.as_deref(), inode, *subvolume)).unwrap_or_default();
    let what = what.as_deref().unwrap_or_default();
    let is = match *kind {
        "file" => {
            let from = file_at.map(|at| format!(" from byte {at} of it on")).unwrap_or_default();
            format!("{file}{from}{}", if what.is_empty() { String::new() } else { format!(", {what}") })
        }
        "directory" => format!("names in the directory {file}"),
        "map" | "attributes" => format!("{file}: {what}"),
        "journal" => "journal of the file system".to_owned(),
        "metadata" => format!("metadata of the file system: {what}"),
        "free" => "free space".to_owned(),
        "unknown" => format!("not known: {what}"),
        _ => what.to_owned(),
    };
    format!("byte {at}, {bytes} bytes: {volume}{is}")
}
