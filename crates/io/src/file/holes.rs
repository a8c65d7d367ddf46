//! The holes of a file: ranges without data, which read as zeros. Nothing here reads or changes data. Source: lseek(2),
//! `SEEK_DATA` and `SEEK_HOLE`.

use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Maximum number of holes returned; the rest of a more fragmented file is not searched.
const HOLES_MAX: usize = 4096;

/// The holes of a regular file as byte ranges, ascending, at most `HOLES_MAX`. Empty for anything else, for a file that
/// cannot be opened for reading, and where the file system does not report holes.
pub fn holes(path: &Path) -> Vec<Range<u64>> {
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let Some(file) = is_file.then(|| File::open(path).ok()).flatten() else { return Vec::new() };
    let mut holes = Vec::new();
    let mut at = 0;
    while holes.len() < HOLES_MAX {
        let Ok(start) = seek(&file, SeekFrom::Hole(at)) else { break };
        // Behind the last data a hole extends to the end, and no data follows it.
        let end = seek(&file, SeekFrom::Data(start)).or_else(|_| seek(&file, SeekFrom::End(0)));
        match end {
            Ok(end) if end > start => holes.push(start..end),
            _ => break,
        }
        at = holes.last().map_or(start, |hole| hole.end);
    }
    holes
}

/// Whether a regular file holds any data, even zeros. `true` where the file system does not tell.
pub fn has_data(file: &File) -> bool {
    !matches!(seek(file, SeekFrom::Data(0)), Err(rustix::io::Errno::NXIO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_found_between_data_and_behind_it() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("image");
        let file = File::create_new(&path).expect("it is new");
        assert!(!has_data(&file));
        file.set_len(3 << 20).expect("it can be long");
        assert!(!has_data(&file));
        assert_eq!(holes(&path), std::iter::once(0..3 << 20).collect::<Vec<_>>());
        file.write_all_at(&[7; 65_536], 1 << 20).expect("it can be written");
        assert!(has_data(&file));
        assert_eq!(holes(&path), [0..1 << 20, (1 << 20) + 65_536..3 << 20]);
        assert_eq!(holes(place.path()), []);
        assert_eq!(holes(&path.join("none")), []);
    }
}
