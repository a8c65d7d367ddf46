//! Images of EnCase and libewf: EWF-E01, in one file or in several segments.
//!
//! An image is a chain of sections in each segment. Tables in them say where the disk's chunks are, most of which are
//! compressed. Everything has a checksum of its own, and everything is checked as it is read. A chunk with a wrong one is an
//! error, and so is what the tool that made the image could not read: nothing of that is zeros. The list of these sectors
//! is at the end. So an image that is cut off, or lacks a segment, is refused. It never writes, and keeps of a table only
//! where it is.
//!
//! Not read: EWF2 (Ex01), files instead of a disk (L01), and SMART's variant (S01). Hashes of the whole are not
//! compared, as only a read of all could.
//!
//! Facts: "Expert Witness Compression Format specification" of libewf, and images that its tools make.

use crate::bytes::{le16, le32, le64};
use crate::source::{Source, read_up_to};
use flate2::{Decompress, FlushDecompress, Status};
use std::collections::BTreeMap;
use std::ops::Range;

/// The first bytes of a segment.
pub const MAGIC: &[u8; 8] = b"EVF\x09\x0d\x0a\xff\0";

/// The segments that names allow: E01 to ZZZ.
pub const SEGMENTS_MAX: u16 = 99 + 22 * 26 * 26;

const HEAD_BYTES: u64 = 13;
const SECTION_BYTES: u64 = 76;
const VOLUME_BYTES: u64 = 1052;
const TABLE_HEAD_BYTES: u64 = 24;
const ERRORS_HEAD_BYTES: u64 = 520;
const CHECKSUM_BYTES: u64 = 4;

/// Bytes of a chunk, and entries of a table and of a list of errors, at most: more is not an image of any tool.
const CHUNK_BYTES_MAX: u64 = 16 << 20;
const ENTRIES_MAX: u64 = 1 << 22;
/// Sections of all segments, at most.
const SECTIONS_MAX: usize = 1 << 22;
/// The bit of an entry that says that its chunk is compressed.
const COMPRESSED: u32 = 1 << 31;

/// The number of a segment, by its first bytes; `None` if these are of no segment.
pub fn segment_number(head: &[u8]) -> Option<u16> {
    (head.starts_with(MAGIC) && head.len() >= HEAD_BYTES as usize).then(|| le16(head, 9))
}

/// The ending of the name of a segment: `E01` to `E99`, then `EAA` to `EZZ`, `FAA` and so on.
pub fn segment_ending(number: u16) -> Option<String> {
    if number == 0 || number > SEGMENTS_MAX {
        return None;
    }
    let Some(past) = number.checked_sub(100) else { return Some(format!("E{number:02}")) };
    let letter = |number: u16| char::from(b'A' + (number % 26) as u8);
    let first = char::from(b'E' + (past / 676) as u8);
    Some(format!("{first}{}{}", letter(past / 26), letter(past)))
}

/// An image, as its sections describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    bytes: u64,
    sector_bytes: u64,
    chunk_bytes: u64,
    /// By their first chunk.
    tables: BTreeMap<u64, Table>,
    /// Sectors that could not be read when the image was made.
    unread: Vec<Range<u64>>,
}

/// A table of chunks, with its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    segment: usize,
    count: u64,
    /// What the entries are counted from.
    base: u64,
    /// Where the entries begin, in the table and in its copy.
    entries_at: Vec<u64>,
    /// The end of the last chunk.
    end: u64,
}

/// The entries of one table: the bytes of each chunk in its segment, and whether it is compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    first: u64,
    segment: usize,
    chunks: Vec<(Range<u64>, bool)>,
}

/// A section's kind, the bytes of its content, and where the next one begins.
struct Section {
    kind: [u8; 16],
    at: u64,
    content: Range<u64>,
    next: u64,
}

impl Section {
    fn is(&self, kind: &[u8]) -> bool {
        self.kind.strip_prefix(kind).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
    }
}

/// What a pass over the sections gathers.
#[derive(Default)]
struct Gathered {
    volume: Option<(u64, u64, u64)>,
    tables: BTreeMap<u64, Table>,
    /// Chunks of the tables before.
    chunks: u64,
    /// The end of the last section with chunks.
    sectors_end: Option<u64>,
    /// Whether the last table's copy can still follow: the first chunk of that table.
    table: Option<u64>,
    /// Whether a table was lost whose copy may follow.
    is_table_lost: bool,
    unread: Vec<Range<u64>>,
    sections: usize,
}

/// What ends a segment.
enum End {
    /// The next one follows.
    Next,
    /// It is the last.
    Done,
}

impl Image {
    /// Reads the sections of all segments, in order.
    ///
    /// # Errors
    /// What is wrong, if the disk's length is unknown, or the sections do not lead to the image's end. Only then it is
    /// known which sectors could not be read when the image was made.
    pub async fn open<S: Source>(segments: &[S]) -> Result<Self, String> {
        let mut gathered = Gathered::default();
        let mut is_done = false;
        for (index, segment) in segments.iter().enumerate() {
            let end = gathered.segment(index, segment).await;
            let end = end.map_err(|reason| format!("segment {}: {reason}", index + 1))?;
            if matches!(end, End::Done) {
                is_done = true;
                break;
            }
        }
        if !is_done {
            return Err(format!("segment {} is missing", segments.len() + 1));
        }
        let (sectors, sector_bytes, chunk_bytes) = gathered.volume.ok_or("it does not describe its disk")?;
        let bytes = sectors.checked_mul(sector_bytes).ok_or("its disk is longer than any disk")?;
        let Gathered { tables, unread, .. } = gathered;
        Ok(Self { bytes, sector_bytes, chunk_bytes, tables, unread })
    }

    /// The length of the disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of a sector.
    pub fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }

    /// The chunk that has this byte.
    pub fn chunk_of(&self, at: u64) -> u64 {
        at / self.chunk_bytes
    }

    /// The bytes of the disk that a chunk has.
    pub fn range_of(&self, chunk: u64) -> Range<u64> {
        let start = chunk.saturating_mul(self.chunk_bytes).min(self.bytes);
        start..start.saturating_add(self.chunk_bytes).min(self.bytes)
    }

    /// Checks that the tool that made the image could read these bytes.
    ///
    /// # Errors
    /// The sectors that it could not read.
    pub fn refuse_unread(&self, bytes: &Range<u64>) -> Result<(), String> {
        let (first, end) = (bytes.start / self.sector_bytes, bytes.end.div_ceil(self.sector_bytes));
        match self.unread.iter().find(|lost| lost.start < end && first < lost.end) {
            Some(Range { start, end }) => {
                Err(format!("sectors {start} to {} could not be read when the image was made", end - 1))
            }
            None => Ok(()),
        }
    }

    /// Reads the entries of the table that has `chunk`.
    ///
    /// # Errors
    /// Why it has none that can be used.
    pub async fn entries<S: Source>(&self, segments: &[S], chunk: u64) -> Result<Entries, String> {
        let table = self.tables.range(..=chunk).next_back();
        let Some((first, table)) = table.filter(|(first, table)| chunk - **first < table.count) else {
            return Err(format!("chunk {chunk} is in none of its tables"));
        };
        let mut reason = String::new();
        for at in &table.entries_at {
            match table.entries(&segments[table.segment], *at).await {
                Ok(chunks) => return Ok(Entries { first: *first, segment: table.segment, chunks }),
                Err(own) => reason = own,
            }
        }
        Err(format!("segment {}: {reason}", table.segment + 1))
    }

    /// Reads one chunk of the disk.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn chunk<S: Source>(&self, segments: &[S], entries: &Entries, chunk: u64) -> Result<Vec<u8>, String> {
        let own = chunk.checked_sub(entries.first).and_then(|index| entries.chunks.get(index as usize));
        let (place, is_compressed) = own.ok_or("these are the entries of another table")?;
        let Range { start, end } = self.range_of(chunk);
        let length = (end - start) as usize;
        let named = |reason: String| format!("segment {}, chunk {chunk}: {reason}", entries.segment + 1);
        let stored = read_up_to(&segments[entries.segment], place.start, (place.end - place.start) as usize).await;
        let stored = stored.map_err(named)?;
        if stored.len() as u64 != place.end - place.start {
            return Err(named("it is cut off".to_owned()));
        }
        match is_compressed {
            true => inflated(&stored, length).map_err(named),
            false => checked(&stored, length).map_err(named),
        }
    }
}

impl Entries {
    /// Whether they have an entry for this chunk.
    pub fn has(&self, chunk: u64) -> bool {
        chunk.checked_sub(self.first).is_some_and(|index| index < self.chunks.len() as u64)
    }
}

impl Table {
    async fn entries<S: Source>(&self, segment: &S, at: u64) -> Result<Vec<(Range<u64>, bool)>, String> {
        let length = (4 * self.count + CHECKSUM_BYTES) as usize;
        let bytes = read_up_to(segment, at, length).await?;
        if bytes.len() != length {
            return Err("a table is cut off".to_owned());
        }
        let words = sound(&bytes).ok_or("a table has a wrong checksum")?;
        let place = |word: u32| self.base.checked_add(u64::from(word & !COMPRESSED));
        let words: Vec<u32> = words.chunks_exact(4).map(|word| le32(word, 0)).collect();
        let mut chunks = Vec::with_capacity(words.len());
        for (index, word) in words.iter().enumerate() {
            let end = words.get(index + 1).map_or(Some(self.end), |next| place(*next));
            match (place(*word), end) {
                (Some(start), Some(end)) if start < end && end - start <= 2 * CHUNK_BYTES_MAX => {
                    chunks.push((start..end, word & COMPRESSED != 0));
                }
                // Some tools go on past 2 GiB without the bit, so that it says nothing any more.
                _ => return Err("a table has chunks that do not follow each other".to_owned()),
            }
        }
        Ok(chunks)
    }
}

impl Gathered {
    /// Reads the sections of a segment.
    async fn segment<S: Source>(&mut self, index: usize, segment: &S) -> Result<End, String> {
        let head = read_up_to(segment, 0, HEAD_BYTES as usize).await?;
        match segment_number(&head) {
            Some(number) if usize::from(number) == index + 1 => {}
            Some(number) => return Err(format!("it is segment {number}")),
            None => return Err("it does not begin as a segment does".to_owned()),
        }
        let mut at = HEAD_BYTES;
        self.sectors_end = None;
        loop {
            self.sections += 1;
            if self.sections > SECTIONS_MAX {
                return Err(format!("it has more than {SECTIONS_MAX} sections"));
            }
            let section = section(segment, at).await?;
            if section.is(b"next") || section.is(b"done") {
                self.refuse_lost_table()?;
                return Ok(if section.is(b"done") { End::Done } else { End::Next });
            }
            self.section(index, segment, &section).await?;
            if section.next <= at {
                return Err(format!("the section at byte {at} is followed by one at byte {}", section.next));
            }
            at = section.next;
        }
    }

    async fn section<S: Source>(&mut self, index: usize, segment: &S, section: &Section) -> Result<(), String> {
        if section.is(b"volume") || section.is(b"disk") || section.is(b"data") {
            let volume = volume(segment, section).await?;
            if *self.volume.get_or_insert(volume) != volume {
                return Err("it belongs to another image than the first".to_owned());
            }
        } else if section.is(b"sectors") {
            self.refuse_lost_table()?;
            self.sectors_end = Some(section.content.end);
        } else if section.is(b"table") {
            self.refuse_lost_table()?;
            self.table = None;
            match table(segment, section, self.sectors_end).await {
                Ok(table) => self.add(Table { segment: index, ..table })?,
                Err(_) => self.is_table_lost = true,
            }
        } else if section.is(b"table2") {
            self.copy(index, segment, section).await?;
        } else if section.is(b"error2") {
            let sectors = unread(segment, section).await;
            let named = |reason| format!("its list of sectors that could not be read: {reason}");
            self.unread.extend(sectors.map_err(named)?);
        }
        Ok(())
    }

    fn add(&mut self, table: Table) -> Result<(), String> {
        let first = self.chunks;
        self.chunks = first.checked_add(table.count).ok_or("its tables have too many chunks")?;
        self.table = (table.count > 0).then_some(first);
        if table.count > 0 {
            self.tables.insert(first, table);
        }
        Ok(())
    }

    /// The copy of the table before, or what is left of it.
    async fn copy<S: Source>(&mut self, index: usize, segment: &S, section: &Section) -> Result<(), String> {
        let copy = table(segment, section, self.sectors_end).await;
        let before = self.table.take().and_then(|first| self.tables.get_mut(&first));
        match (copy, before) {
            (Ok(copy), Some(table))
                if table.segment == index && table.count == copy.count && table.base == copy.base =>
            {
                table.entries_at.extend(copy.entries_at);
            }
            (Ok(copy), None) if self.is_table_lost => {
                self.is_table_lost = false;
                self.add(Table { segment: index, ..copy })?;
                self.table = None;
            }
            _ => {}
        }
        self.refuse_lost_table()
    }

    /// Without a table, the numbers of all chunks behind it are unknown.
    fn refuse_lost_table(&self) -> Result<(), String> {
        if self.is_table_lost { Err("a table and its copy are damaged".to_owned()) } else { Ok(()) }
    }
}

/// The content of `bytes` in front of a checksum, if that is right.
fn sound(bytes: &[u8]) -> Option<&[u8]> {
    let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES as usize)?)?;
    (adler2::adler32_slice(content) == le32(sum, 0)).then_some(content)
}

/// Reads `length` bytes that end with a checksum.
async fn sound_at<S: Source>(segment: &S, at: u64, length: u64, what: &str) -> Result<Vec<u8>, String> {
    let bytes = read_up_to(segment, at, length as usize).await?;
    if (bytes.len() as u64) < length {
        return Err(format!("{what} at byte {at} is cut off"));
    }
    match sound(&bytes) {
        Some(content) => Ok(content.to_vec()),
        None => Err(format!("{what} at byte {at} has a wrong checksum")),
    }
}

async fn section<S: Source>(segment: &S, at: u64) -> Result<Section, String> {
    let bytes = sound_at(segment, at, SECTION_BYTES, "the section").await?;
    let (next, length) = (le64(&bytes, 16), le64(&bytes, 24));
    // Some tools leave the length out.
    let end = if length == 0 { next } else { at.saturating_add(length) };
    let content = at + SECTION_BYTES..end.max(at + SECTION_BYTES);
    Ok(Section { kind: crate::bytes::array(&bytes, 0), at, content, next })
}

/// Sectors of the disk, bytes of a sector and of a chunk.
async fn volume<S: Source>(segment: &S, section: &Section) -> Result<(u64, u64, u64), String> {
    if section.content.end - section.content.start < VOLUME_BYTES {
        return Err("it is an image of SMART's variant of EWF (S01)".to_owned());
    }
    let bytes = sound_at(segment, section.content.start, VOLUME_BYTES, "the description of the disk").await?;
    let (sectors_in_chunk, sector, sectors) =
        (u64::from(le32(&bytes, 8)), u64::from(le32(&bytes, 12)), le64(&bytes, 16));
    let chunk = sectors_in_chunk * sector;
    let is_possible =
        sector >= 512 && sector.is_power_of_two() && (1..=CHUNK_BYTES_MAX).contains(&chunk) && sectors > 0;
    match is_possible {
        true => Ok((sectors, sector, chunk)),
        false => Err(format!("it describes {sectors} sectors of {sector} bytes in chunks of {sectors_in_chunk}")),
    }
}

/// A table, without its entries. Without a section of chunks before, the chunks are in its own.
async fn table<S: Source>(segment: &S, section: &Section, sectors_end: Option<u64>) -> Result<Table, String> {
    let bytes = sound_at(segment, section.content.start, TABLE_HEAD_BYTES, "the table").await?;
    let (count, base) = (u64::from(le32(&bytes, 0)), le64(&bytes, 8));
    if count > ENTRIES_MAX {
        return Err(format!("the table at byte {} has {count} entries", section.at));
    }
    let entries_at = vec![section.content.start + TABLE_HEAD_BYTES];
    Ok(Table { segment: 0, count, base, entries_at, end: sectors_end.unwrap_or(section.content.end) })
}

/// The sectors that the tool could not read.
async fn unread<S: Source>(segment: &S, section: &Section) -> Result<Vec<Range<u64>>, String> {
    let at = section.content.start;
    let head = sound_at(segment, at, ERRORS_HEAD_BYTES, "the list").await?;
    let count = u64::from(le32(&head, 0));
    if count > ENTRIES_MAX {
        return Err(format!("the list at byte {at} has {count} entries"));
    }
    let list = sound_at(segment, at + ERRORS_HEAD_BYTES, 8 * count + CHECKSUM_BYTES, "the list").await?;
    let range = |entry: &[u8]| u64::from(le32(entry, 0))..u64::from(le32(entry, 0)) + u64::from(le32(entry, 4));
    Ok(list.chunks_exact(8).map(range).collect())
}

/// A compressed chunk: its stream ends with a checksum of what comes out.
fn inflated(stored: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let mut chunk = vec![0; length];
    let mut stream = Decompress::new(true);
    let status = stream.decompress(stored, &mut chunk, FlushDecompress::Finish);
    match status {
        Ok(Status::StreamEnd) if stream.total_out() == length as u64 => Ok(chunk),
        _ => Err("it is damaged: its compressed data or their checksum is wrong".to_owned()),
    }
}

/// A chunk that is not compressed, with its checksum behind.
fn checked(stored: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let own = stored.get(..length + CHECKSUM_BYTES as usize);
    let content = own.and_then(sound).ok_or("it is damaged: its checksum is wrong")?;
    Ok(content.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::ZlibEncoder;
    use futures_util::FutureExt;
    use std::io::Write;

    const CHUNK: usize = 4096;

    fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = adler2::adler32_slice(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// A section at `at`; `next` is behind it, or it itself if it is the last.
    fn section(kind: &str, at: usize, content: &[u8], is_last: bool) -> Vec<u8> {
        let length = SECTION_BYTES as usize + content.len();
        let next = if is_last { at } else { at + length } as u64;
        let mut head = kind.as_bytes().to_vec();
        head.resize(16, 0);
        head.extend([next.to_le_bytes(), (length as u64).to_le_bytes()].concat());
        head.resize(72, 0);
        [summed(head), content.to_vec()].concat()
    }

    fn volume(sectors: u64) -> Vec<u8> {
        let mut volume = vec![1, 0, 0, 0, 0, 0, 0, 0];
        volume.extend([8_u32.to_le_bytes(), 512_u32.to_le_bytes()].concat());
        volume.extend(sectors.to_le_bytes());
        volume.resize(VOLUME_BYTES as usize - 4, 0);
        summed(volume)
    }

    fn data() -> Vec<u8> {
        (0..3 * CHUNK + 512).map(|at| (at / 7 + at % 251) as u8).collect()
    }

    /// An image in one segment: the second chunk is compressed, and sector 20 was not read.
    fn image() -> Vec<u8> {
        let (mut chunks, mut entries) = (Vec::new(), Vec::new());
        let mut file = [&MAGIC[..], &[1, 1, 0, 0, 0]].concat();
        let data = data();
        file.extend(section("volume", file.len(), &volume(data.len() as u64 / 512), false));
        let base = file.len() + SECTION_BYTES as usize;
        for (number, chunk) in data.chunks(CHUNK).enumerate() {
            let flag = if number == 1 { COMPRESSED } else { 0 };
            entries.extend(((chunks.len() as u32) | flag).to_le_bytes());
            if number == 1 {
                let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(chunk).expect("memory");
                chunks.extend(encoder.finish().expect("memory"));
            } else {
                chunks.extend(summed(chunk.to_vec()));
            }
        }
        file.extend(section("sectors", file.len(), &chunks, false));
        let mut head = 4_u32.to_le_bytes().to_vec();
        head.resize(8, 0);
        head.extend((base as u64).to_le_bytes());
        head.resize(20, 0);
        let table = [summed(head), summed(entries)].concat();
        file.extend(section("table", file.len(), &table, false));
        file.extend(section("table2", file.len(), &table, false));
        let mut errors = 1_u32.to_le_bytes().to_vec();
        errors.resize(ERRORS_HEAD_BYTES as usize - 4, 0);
        let list = [20_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat();
        file.extend(section("error2", file.len(), &[summed(errors), summed(list)].concat(), false));
        file.extend(section("done", file.len(), &[], true));
        file
    }

    /// What each chunk reads; `None` if the image does not open.
    fn read(file: &[u8]) -> Option<Vec<Result<Vec<u8>, String>>> {
        let segments = [crate::source::Section::new(file, 0, u64::MAX)];
        let image = Image::open(&segments).now_or_never().expect("memory answers at once").ok()?;
        let chunk = |number| {
            image.refuse_unread(&image.range_of(number))?;
            let entries = image.entries(&segments, number).now_or_never().expect("memory answers at once")?;
            image.chunk(&segments, &entries, number).now_or_never().expect("memory answers at once")
        };
        Some((0..image.bytes().div_ceil(CHUNK as u64).min(9)).map(chunk).collect())
    }

    #[test]
    fn a_sound_image_reads_its_chunks_and_not_what_was_not_read() {
        let (image, data) = (image(), data());
        let read = read(&image).expect("it is sound");
        assert_eq!(read.len(), 4);
        for (number, (read, chunk)) in read.iter().zip(data.chunks(CHUNK)).enumerate() {
            match number {
                2 => assert_eq!(*read, Err("sectors 20 to 20 could not be read when the image was made".to_owned())),
                _ => assert_eq!(read.as_deref(), Ok(chunk)),
            }
        }
    }

    #[test]
    fn no_changed_bit_and_no_cut_gives_other_bytes() {
        let (image, data) = (image(), data());
        let check = |file: &[u8], case: &str| {
            for (read, chunk) in read(file).unwrap_or_default().iter().zip(data.chunks(CHUNK)) {
                assert!(read.as_ref().is_ok_and(|read| read == chunk) || read.is_err(), "{case}");
            }
            assert!(read(file).is_none_or(|read| read[2].is_err()), "{case}: sector 20");
        };
        for at in 0..image.len() {
            let mut changed = image.clone();
            changed[at] ^= 1 << (at % 8);
            check(&changed, &format!("byte {at}"));
        }
        for length in (0..image.len()).step_by(41) {
            check(&image[..length], &format!("cut at {length}"));
        }
    }

    #[test]
    fn either_copy_of_a_table_is_enough() {
        let image = image();
        let places: Vec<usize> = (0..image.len()).filter(|at| image[*at..].starts_with(b"table")).collect();
        assert_eq!(places.len(), 2);
        // In its head, and in its entries.
        for past in [SECTION_BYTES as usize + 1, (SECTION_BYTES + TABLE_HEAD_BYTES) as usize + 1] {
            let mut damaged = image.clone();
            damaged[places[0] + past] ^= 1;
            assert_eq!(read(&damaged), read(&image), "the first, at {past}");
            let mut both = damaged.clone();
            both[places[1] + past] ^= 1;
            assert!(read(&both).is_none_or(|chunks| chunks.iter().all(Result::is_err)), "both, at {past}");
            damaged[places[0] + past] ^= 1;
            damaged[places[1] + past] ^= 1;
            assert_eq!(read(&damaged), read(&image), "the second, at {past}");
        }
    }

    #[test]
    fn hostile_sections_end() {
        let head = [&MAGIC[..], &[1, 1, 0, 0, 0]].concat();
        let at = head.len();
        let whole = section("volume", at, &volume(u64::MAX), false);
        assert_eq!(read(&[head.clone(), whole].concat()), None, "longer than any disk");
        let own = section("sectors", at, &[], true);
        assert_eq!(read(&[head.clone(), own].concat()), None, "a section that follows itself");
        let mut table = u32::MAX.to_le_bytes().to_vec();
        table.resize(20, 0);
        let volume = section("volume", at, &volume(8), false);
        let table = section("table", at + volume.len(), &summed(table), false);
        let done = section("done", at + volume.len() + table.len(), &[], true);
        assert_eq!(read(&[head, volume, table, done].concat()), None, "four thousand million entries");
    }

    #[test]
    fn segments_are_named_as_the_tools_do() {
        let named = |number| segment_ending(number).unwrap_or_default();
        assert_eq!([1, 99, 100, 101, 126, 775, 776].map(named), ["E01", "E99", "EAA", "EAB", "EBA", "EZZ", "FAA"]);
        assert_eq!([named(SEGMENTS_MAX), named(0), named(SEGMENTS_MAX + 1)], ["ZZZ", "", ""]);
        assert_eq!(segment_number(&[&MAGIC[..], &[1, 7, 0, 0, 0]].concat()), Some(7));
        assert_eq!(segment_number(MAGIC), None);
    }
}
