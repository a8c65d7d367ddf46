//! `mdspace mdstat`: the served arrays in the lines of /proc/mdstat.
//!
//! [`text`] is pure. Facts: `md_seq_show`, `status_resync` and `md_bitmap_status` in `drivers/md`, the levels' `status`
//! functions there, and the driver's output (tests/kernel/detail.sh).

use super::arrays::{Member, Status, all};
use super::incremental::{Waiting, waiting};
use crate::command::text::failure::Failure;
use crate::command::text::output::print;
use format::geometry::Level;
use std::path::Path;

/// Counters of bitmap chunks in a page of the driver's memory: 2 bytes each in 4 KiB.
const COUNTERS_IN_PAGE: u64 = 2048;
const PAGE_KIB: u64 = 4;

/// Runs `mdspace mdstat`.
pub(crate) fn run() -> Result<(), Failure> {
    let arrays = all();
    // What cannot be told of the arrays that wait for members is left out.
    let waiting = waiting(&arrays).unwrap_or_default();
    let waiting: String = waiting.iter().map(Waiting::text).collect();
    print(&text(arrays.iter().map(|array| (array.number, &array.status)), &waiting))
}

/// The whole text, with the arrays of the highest numbers first, as the driver lists the newest first.
/// Those that are not served yet, `waiting`, are the last.
fn text<'a>(arrays: impl Iterator<Item = (u32, &'a Status)>, waiting: &str) -> String {
    let mut arrays: Vec<(u32, &Status)> = arrays.collect();
    arrays.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
    let mut text = "Personalities : [linear] [raid0] [raid1] [raid10] [raid6] [raid5] [raid4] \n".to_owned();
    text.extend(arrays.iter().map(|(number, status)| array_text(*number, status)));
    text + waiting + "unused devices: <none>\n"
}

fn array_text(number: u32, status: &Status) -> String {
    let read_only = if status.read_only { " (read-only)" } else { "" };
    let mut text = format!("md{number} : active{read_only} {}", status.level);
    let mut members: Vec<&Member> = status.members.iter().collect();
    members.sort_unstable_by_key(|member| std::cmp::Reverse(member.device_number));
    text.extend(members.iter().map(|member| member_text(member)));
    text += &format!("\n      {} blocks", status.array_bytes >> 10);
    if status.metadata != "0.90" {
        text += &format!(" super {}", status.metadata);
    }
    text += &level_text(status);
    text += "\n      ";
    if !matches!(status.level(), Level::Linear | Level::Raid0)
        && let Some(sweep) = sweep_text(status)
    {
        text += &format!("{sweep}\n      ");
    }
    text + &bitmap_text(status) + "\n"
}

fn member_text(member: &Member) -> String {
    let name = Path::new(&member.name).file_name().map_or("".into(), |name| name.to_string_lossy());
    let mark = match &*member.state {
        "faulty" => "(F)",
        "spare" => "(S)",
        "journal" => "(J)",
        "replacement" => "(R)",
        _ => "",
    };
    let flag = if member.write_mostly { "(W)" } else { "" };
    format!(" {name}[{}]{flag}{mark}", member.device_number)
}

/// What the level adds: its layout, and its slots.
fn level_text(status: &Status) -> String {
    let chunk = status.chunk_bytes >> 10;
    let slots = format!("[{}/{}] [{}]", status.raid_disks, status.in_sync, slots(status));
    match status.level() {
        Level::Linear => format!(" {chunk}k rounding"),
        Level::Raid0 => format!(" {chunk}k chunks"),
        Level::Raid1 => format!(" {slots}"),
        Level::Raid10 => {
            let near = status.copies("near").map(|count| format!(" {count} near-copies"));
            let far = status.copies("far").map(|count| format!(" {count} far-copies"));
            let offset = status.copies("offset").map(|count| format!(" {count} offset-copies"));
            let copies: String = [near, far, offset].into_iter().flatten().collect();
            format!(" {chunk}K chunks{copies} {slots}")
        }
        level => {
            let (level, algorithm) = (format!("{level:?}").to_lowercase().replace("raid", ""), status.layout_code());
            format!(" level {level}, {chunk}k chunk, algorithm {algorithm} {slots}")
        }
    }
}

fn slots(status: &Status) -> String {
    let is_up = |slot| status.members.iter().any(|member| member.slot == Some(slot) && member.state == "in_sync");
    (0..status.raid_disks).map(|slot| if is_up(slot) { 'U' } else { '_' }).collect()
}

/// The line of a sweep; of a resync that waits, its word.
fn sweep_text(status: &Status) -> Option<String> {
    let Some(sweep) = &status.sweep else {
        return (!status.in_agreement).then(|| "\tresync=PENDING".to_owned());
    };
    let action = match &*sweep.action {
        "recover" => "recovery",
        "check" => "check",
        "resync" | "repair" => "resync",
        _ => return None, // of checksums, which the driver has not
    };
    let (done, total) = (sweep.done_bytes.min(sweep.total_bytes), sweep.total_bytes.max(1));
    let per_mille = (u128::from(done) * 1000 / u128::from(total)) as usize;
    let (full, empty) = (per_mille / 50, 20 - per_mille / 50);
    let bar = format!("[{}>{}]", "=".repeat(full), ".".repeat(empty));
    let rate = sweep.bytes_per_second;
    let tenths = (total - done).checked_div(rate).unwrap_or(0) / 6;
    let label = format!("{action} ={:3}.{}%", per_mille / 10, per_mille % 10);
    let range = format!("({}/{})", done >> 10, total >> 10);
    Some(format!("{bar}  {label} {range} finish={}.{}min speed={}K/sec", tenths / 10, tenths % 10, rate >> 10))
}

/// The line of the bitmap. The driver counts pages of counters in memory, which this program does not have: the pages
/// are those that its set bits would fill, at least one for any.
fn bitmap_text(status: &Status) -> String {
    let Some(bitmap) = &status.bitmap else { return String::new() };
    let pages = bitmap.bits.div_ceil(COUNTERS_IN_PAGE);
    let used = bitmap.set.div_ceil(COUNTERS_IN_PAGE);
    let chunk = match bitmap.chunk_bytes >> 10 {
        0 => format!("{}B", bitmap.chunk_bytes),
        kib => format!("{kib}KB"),
    };
    let file = bitmap.file.as_ref().map(|file| format!(", file: {file}")).unwrap_or_default();
    format!("bitmap: {used}/{pages} pages [{}KB], {chunk} chunk{file}\n", used * PAGE_KIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(changes: Value) -> Status {
        let mut status = json!({
            "uuid": "0:0:0:0", "name": "host:0", "metadata": "1.2", "level": "raid5", "layout": "left-symmetric",
            "chunk_bytes": 65536, "array_bytes": 29_360_128, "component_bytes": 14_680_064, "created": 0, "updated": 0,
            "raid_disks": 3, "in_sync": 3, "state": "clean", "broken": null, "read_only": false, "events": 1,
            "in_agreement": true, "consistency_policy": "resync", "sync_action": "idle", "sweep": null, "bitmap": null,
            "members": [
                {"name": "/dev/loop0", "slot": 0, "device_number": 0, "state": "in_sync"},
                {"name": "/dev/loop1", "slot": 1, "device_number": 1, "state": "in_sync"},
                {"name": "/dev/loop2", "slot": 2, "device_number": 3, "state": "in_sync"},
            ],
            "served": {"ways": []},
        });
        let changes = changes.as_object().expect("fields").clone();
        status.as_object_mut().expect("fields").extend(changes);
        serde_json::from_value(status).expect("a status")
    }

    /// The expected lines are the driver's, of arrays in these states.
    #[test]
    fn arrays_have_the_lines_of_the_driver() {
        let bitmap = json!({"set": 0, "bits": 14, "chunk_bytes": 1 << 20, "file": null});
        let recovering = json!([
            {"name": "/dev/loop0", "slot": 0, "device_number": 0, "state": "in_sync"},
            {"name": "/dev/loop1", "slot": null, "device_number": 1, "state": "faulty"},
            {"name": "/dev/loop3", "slot": 1, "device_number": 3, "state": "recovering"},
        ]);
        let sweep =
            json!({"action": "recover", "done_bytes": 4 << 20, "total_bytes": 32 << 20, "bytes_per_second": 1 << 20});
        for (changes, expected) in [
            (
                json!({}),
                "md0 : active raid5 loop2[3] loop1[1] loop0[0]\n      28672 blocks super 1.2 level 5, 64k chunk, \
                 algorithm 2 [3/3] [UUU]\n      \n",
            ),
            (
                json!({"bitmap": bitmap, "read_only": true}),
                "md0 : active (read-only) raid5 loop2[3] loop1[1] loop0[0]\n      28672 blocks super 1.2 level 5, 64k \
                 chunk, algorithm 2 [3/3] [UUU]\n      bitmap: 0/1 pages [0KB], 1024KB chunk\n\n",
            ),
            (
                json!({"level": "raid1", "layout": null, "raid_disks": 2, "in_sync": 1, "members": recovering,
                       "sweep": sweep, "metadata": "0.90"}),
                "md0 : active raid1 loop3[3] loop1[1](F) loop0[0]\n      28672 blocks [2/1] [U_]\n      \
                 [==>..................]  recovery = 12.5% (4096/32768) finish=0.4min speed=1024K/sec\n      \n",
            ),
            (
                json!({"level": "raid0", "layout": null}),
                "md0 : active raid0 loop2[3] loop1[1] loop0[0]\n      28672 blocks super 1.2 64k chunks\n      \n",
            ),
            (
                json!({"level": "raid10", "layout": "near=2", "in_agreement": false}),
                "md0 : active raid10 loop2[3] loop1[1] loop0[0]\n      28672 blocks super 1.2 64K chunks 2 near-copies \
                 [3/3] [UUU]\n      \tresync=PENDING\n      \n",
            ),
        ] {
            assert_eq!(array_text(0, &status(changes.clone())), expected, "{changes}");
        }
        let (one, two) = (status(json!({})), status(json!({})));
        let whole = text([(0, &one), (127, &two)].into_iter(), "");
        assert!(
            whole.starts_with("Personalities : [linear] ") && whole.ends_with("\n      \nunused devices: <none>\n")
        );
        assert!(whole.find("md127 :") < whole.find("md0 :"), "{whole}");
    }
}
