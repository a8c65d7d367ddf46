//! mdadm's backup of the part of an array that a reshape in place writes over: which bytes it has, and whether it
//! belongs to the reshape that a superblock describes.
//!
//! The backup is in the file of `--backup-file`, or at the end of members that a growing array was given. It may be the
//! only copy of its bytes. Nothing here reads a file or a member. Numbers are little endian and count sectors.
//!
//! | Byte | Field | |
//! |---|---|---|
//! | 0 | `magic` | `md_backup_data-1`, or `-2` where the second part counts, too |
//! | 16 | `set_uuid` | of the array |
//! | 32 | `mtime` | seconds since 1970 |
//! | 40 | `devstart` | where the data of the first part begins, on the file or member |
//! | 48, 56 | `arraystart`, `length` | the first part |
//! | 64 | `sb_csum` | of the 64 bytes before |
//! | 72 | `devstart2` | where the data of the second part begins, from `devstart` on |
//! | 80, 88 | `arraystart2`, `length2` | the second part |
//! | 96 | `sb_csum2` | of the 96 bytes before |
//!
//! The checksums take the first byte of the header each time. So they are the same for every header, and prove nothing
//! about the other bytes. The rules below, which are mdadm's, do not rest on them.
//!
//! Facts: `struct mdp_backup_super`, `bsb_csum`, `grow_backup`, `child_monitor` and `Grow_restart` in mdadm's `Grow.c`.

use crate::Defect;
use crate::superblock::{Reshape, Superblock};
use crate::units::{MemberByte, SECTOR_BYTES, Sectors};
use std::ops::Range;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 512;

/// From the header to the data, and from a member's end to the header.
pub const HEADER_DISTANCE: u64 = 8 * SECTOR_BYTES;

const MAGIC: &[u8; 15] = b"md_backup_data-";

/// How long before the superblock's last update mdadm may have written a backup, in seconds.
const OLDER_MAX: u64 = 2 * 60 * 60;

/// How long after it.
const NEWER_MAX: u64 = 10 * 60;

/// The header of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The array that it is of.
    pub set_uuid: [u8; 16],
    /// When mdadm wrote it, in seconds since 1970.
    pub written: u64,
    /// Where its data begins, on the file or member.
    pub data_at: MemberByte,
    /// Ranges of the array that it has, none empty: at most two.
    pub saved: Vec<Saved>,
    /// Bytes of the header that count.
    header: Box<[u8]>,
}

/// Bytes of the array that a backup has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Which.
    pub range: Range<u64>,
    /// Where the first of them is, on the file or member.
    pub at: MemberByte,
}

impl Backup {
    /// Decodes the header in `bytes`. `None` if none begins there.
    ///
    /// # Errors
    /// When a checksum is wrong, or a position lies beyond any array or member.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Defect> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let second = match (bytes.starts_with(MAGIC), bytes[MAGIC.len()]) {
            (true, b'1') => false,
            (true, b'2') => true,
            _ => return Ok(None),
        };
        check_sum("backup.sb_csum", bytes, 64)?;
        if second {
            check_sum("backup.sb_csum2", bytes, 96)?;
        }
        let data_at = position("backup.devstart", number(bytes, 40))?;
        let second_at = |defect| data_at.checked_add(position("backup.devstart2", number(bytes, 72))?).ok_or(defect);
        let mut saved = Vec::new();
        if let Some(range) = range("backup.arraystart", number(bytes, 48), number(bytes, 56))? {
            saved.push(Saved { range, at: MemberByte(data_at) });
        }
        if second && let Some(range) = range("backup.arraystart2", number(bytes, 80), number(bytes, 88))? {
            let at = second_at(Defect::new("backup.devstart2", "beyond any member"))?;
            saved.push(Saved { range, at: MemberByte(at) });
        }
        Ok(Some(Self {
            set_uuid: bytes[16..32].try_into().expect("sixteen bytes"),
            written: number(bytes, 32),
            data_at: MemberByte(data_at),
            saved,
            header: bytes[..if second { 100 } else { 68 }].into(),
        }))
    }

    /// Where the header is a second time: before the data. The same bytes must be there.
    pub fn second_header_at(&self) -> Option<MemberByte> {
        self.data_at.0.checked_sub(HEADER_DISTANCE).map(MemberByte)
    }

    /// Whether `bytes` are this header.
    pub fn is_header(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.header)
    }

    /// The bytes of the backup that `reshape` may be writing over: from its position on, without a gap. Bytes that the
    /// position calls reshaped are on the members, and newer there if they were written since.
    ///
    /// `of` is the freshest superblock. With `any_time`, the backup may be of another time than that.
    ///
    /// # Errors
    /// When mdadm would not restore the backup: it is of another array or time, or its bytes are not at the position.
    pub fn unmoved(&self, of: &Superblock, reshape: &Reshape, any_time: bool) -> Result<Vec<Saved>, Defect> {
        if self.set_uuid != of.set_uuid {
            return Err(Defect::new("backup.set_uuid", "of another array"));
        }
        let updated = of.updated.seconds;
        if !any_time && (updated > self.written.saturating_add(OLDER_MAX) || updated + NEWER_MAX < self.written) {
            let reason = format!(
                "written at {}, but the superblock at {updated} (seconds since 1970): mdadm takes at most 2 hours less, or \
                 10 minutes more",
                self.written
            );
            return Err(Defect::new("backup.mtime", reason));
        }
        let Some(position) = reshape.position.checked_bytes() else {
            return Err(Defect::new("superblock.reshape_position", "beyond any array"));
        };
        if self.saved.is_empty() {
            return Err(Defect::new("backup.length", "0: it holds no bytes of the array"));
        }
        if !self.saved.iter().any(|saved| (saved.range.start..=saved.range.end).contains(&position)) {
            let ranges: Vec<_> =
                self.saved.iter().map(|Saved { range, .. }| format!("{} to {}", range.start, range.end)).collect();
            let reason = format!("it has bytes {}, but the reshape is at byte {position}", ranges.join(" and "));
            return Err(Defect::new("backup.arraystart", reason));
        }
        Ok(chain(&self.saved, position, reshape.backwards))
    }
}

/// The parts that follow each other from `position` on, or lead to it.
fn chain(saved: &[Saved], mut position: u64, backwards: bool) -> Vec<Saved> {
    let mut chain = Vec::new();
    let follows = |Saved { range, .. }: &&Saved, position| match backwards {
        false => range.start <= position && position < range.end,
        true => range.start < position && position <= range.end,
    };
    while let Some(Saved { range, at }) = saved.iter().find(|saved| follows(saved, position)) {
        let part = if backwards { range.start..position } else { position..range.end };
        position = if backwards { part.start } else { part.end };
        chain.push(Saved { at: MemberByte(at.0 + (part.start - range.start)), range: part });
    }
    chain
}

fn number(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("within the header"))
}

/// A position on the file or member, in bytes.
fn position(field: &'static str, sectors: u64) -> Result<u64, Defect> {
    let bytes = Sectors(sectors).checked_bytes().filter(|bytes| *bytes < 1 << 62);
    bytes.ok_or_else(|| Defect::new(field, format!("sector {sectors}, beyond any member")))
}

/// A range of the array, in bytes; `None` if it is empty.
fn range(field: &'static str, start: u64, length: u64) -> Result<Option<Range<u64>>, Defect> {
    let end = start.checked_add(length).and_then(|end| Sectors(end).checked_bytes()).filter(|end| *end < 1 << 62);
    match end {
        Some(end) if length > 0 => Ok(Some(Sectors(start).bytes()..end)),
        Some(_) => Ok(None),
        None => Err(Defect::new(field, format!("{length} sectors from sector {start} on, beyond any array"))),
    }
}

/// Compares the checksum behind `length` bytes.
fn check_sum(field: &'static str, bytes: &[u8; HEADER_BYTES], length: usize) -> Result<(), Defect> {
    let stored = u32::from_le_bytes(*bytes[length..].first_chunk().expect("within the header"));
    let computed = sum(&bytes[..length]);
    match stored == computed {
        true => Ok(()),
        false => Err(Defect::new(field, format!("{stored:#010x}, but the header gives {computed:#010x}"))),
    }
}

/// mdadm's checksum: of the first byte, as often as there are bytes.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, _| (sum << 3).wrapping_add(bytes[0].into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header as mdadm writes it, of these fields, in sectors.
    fn header(kind: u8, first: (u64, u64), second: (u64, u64)) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &[kind]].concat();
        bytes.extend([7; 16]);
        for number in [1_000_000, 8, first.0, first.1] {
            bytes.extend(u64::to_le_bytes(number));
        }
        bytes.extend(sum(&bytes).to_le_bytes());
        bytes.extend([0; 4]);
        for number in [96, second.0, second.1] {
            bytes.extend(u64::to_le_bytes(number));
        }
        bytes.extend(if kind == b'2' { sum(&bytes) } else { 0 }.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }

    fn changed(at: usize, to: &[u8]) -> Vec<u8> {
        let mut bytes = header(b'2', (96, 96), (192, 96));
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    }

    fn parts(bytes: &[u8]) -> Vec<(u64, u64, u64)> {
        let backup = Backup::decode(bytes).expect("right").expect("there");
        backup.saved.iter().map(|one| (one.range.start / 512, one.range.end / 512, one.at.0 / 512)).collect()
    }

    #[test]
    fn a_header_says_which_bytes_the_backup_has_and_where() {
        assert_eq!(parts(&header(b'1', (96, 96), (192, 96))), [(96, 192, 8)], "the second part does not count");
        assert_eq!(parts(&header(b'2', (96, 96), (192, 96))), [(96, 192, 8), (192, 288, 104)]);
        assert_eq!(parts(&header(b'2', (0, 0), (192, 96))), [(192, 288, 104)], "the first was released");
        assert_eq!(parts(&header(b'2', (0, 0), (0, 0))), []);
        assert_eq!(Backup::decode(&[0; HEADER_BYTES]), Ok(None));
        assert_eq!(Backup::decode(&changed(0, b"M")), Ok(None));
        assert_eq!(Backup::decode(&changed(15, b"3")), Ok(None));
        assert_eq!(Backup::decode(&header(b'1', (0, 1), (0, 0))[..511]), Ok(None), "half a header");
    }

    #[test]
    fn a_wrong_field_is_named() {
        let huge = (1_u64 << 53).to_le_bytes();
        for (at, to, field) in [
            (64, &[0][..], "backup.sb_csum"),
            (96, &[0], "backup.sb_csum2"),
            (40, &huge, "backup.devstart"),
            (48, &huge, "backup.arraystart"),
            (56, &[0xff; 8], "backup.arraystart"),
            (72, &[0xff; 8], "backup.devstart2"),
            (80, &huge, "backup.arraystart2"),
        ] {
            assert_eq!(Backup::decode(&changed(at, to)).expect_err("wrong").field, field, "byte {at}");
        }
    }

    #[test]
    fn the_parts_from_the_position_on_follow_each_other() {
        let saved = |range: Range<u64>, at| Saved { range, at: MemberByte(at) };
        let both = [saved(300..400, 10), saved(200..300, 110)];
        for (position, backwards, expected) in [
            (200, false, vec![saved(200..300, 110), saved(300..400, 10)]),
            (250, false, vec![saved(250..300, 160), saved(300..400, 10)]),
            (300, false, vec![saved(300..400, 10)]),
            (400, false, vec![]),
            (400, true, vec![saved(300..400, 10), saved(200..300, 110)]),
            (250, true, vec![saved(200..250, 110)]),
            (200, true, vec![]),
        ] {
            assert_eq!(chain(&both, position, backwards), expected, "{position} {backwards}");
        }
        let apart = [saved(0..100, 0), saved(200..300, 100)];
        assert_eq!(chain(&apart, 50, false), [saved(50..100, 50)], "a gap ends it");
    }
}
