//! Maps of rescued images: which bytes a program got that copied a failing disk.
//!
//! It reads and writes GNU ddrescue's mapfile, which HDDSuperClone exports too, and reads HDDSuperClone's own log. What
//! a map does not call finished is a hole, and so is what it does not mention. A map that contradicts itself is
//! refused: its image would give zeros for data. Memory and time are bounded by the length of the text.
//!
//! Facts: the chapter "Mapfile structure" of GNU ddrescue's manual (1.27), and the files that HDDSuperClone 2.3 writes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// What became of a range of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It was not read yet.
    NonTried,
    /// A read failed there, and the edges of the failure are unknown.
    NonTrimmed,
    /// A read failed there, and its sectors were not read one by one.
    NonScraped,
    /// A bad sector.
    Bad,
    /// It is in the image.
    Finished,
}

impl Status {
    const ALL: [Self; 5] = [Self::NonTried, Self::NonTrimmed, Self::NonScraped, Self::Bad, Self::Finished];

    /// ddrescue's character.
    fn letter(self) -> char {
        match self {
            Self::NonTried => '?',
            Self::NonTrimmed => '*',
            Self::NonScraped => '/',
            Self::Bad => '-',
            Self::Finished => '+',
        }
    }

    fn of_letter(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| word.chars().eq([status.letter()]))
    }

    /// HDDSuperClone's number. Bit 7 marks a bad head; with it nothing counts as finished.
    fn of_number(number: u64) -> Self {
        match number & 0xff {
            0x7f => Self::Finished,
            number => match number & 0x70 {
                0x10 | 0x20 => Self::NonTrimmed,
                0x30 => Self::NonScraped,
                0x40 => Self::Bad,
                _ => Self::NonTried,
            },
        }
    }
}

/// A range and its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The range, in bytes of the disk and its image.
    pub range: Range<u64>,
    /// What became of it.
    pub status: Status,
}

/// Why a text is no usable map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapDefect {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for MapDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for MapDefect {}

/// A map: regions that do not overlap. Neighbours differ in status. A map of an array without a member has a region for
/// each chunk, so a change takes no longer in a long map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RescueMap {
    /// By their beginning: the end, and the status.
    regions: BTreeMap<u64, (u64, Status)>,
}

impl RescueMap {
    /// A map of `bytes` bytes that were not tried.
    pub fn untried(bytes: u64) -> Self {
        let mut map = Self::default();
        map.mark(0..bytes, Status::NonTried);
        map
    }

    /// Reads a map.
    ///
    /// # Errors
    /// The first line that is no line of a map, or that contradicts those before it.
    pub fn decode(text: &[u8]) -> Result<Self, MapDefect> {
        let mut reader = Reader::default();
        for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
            reader.line(line).map_err(|reason| MapDefect { line: number, reason })?;
        }
        match reader.units {
            Some(_) => Ok(reader.map),
            None => Err(MapDefect { line: 1, reason: "no line has a position and a status".to_owned() }),
        }
    }

    /// The map as a file for ddrescue and its tools, with these lines as comments.
    pub fn encode(&self, comments: &[String]) -> String {
        let unfinished = self.regions().find(|region| region.status != Status::Finished);
        let (at, status) =
            unfinished.map_or((self.end(), Status::Finished), |region| (region.range.start, region.status));
        let mut text: String = comments.iter().map(|comment| format!("# {}\n", comment.escape_default())).collect();
        text += "# current_pos  current_status  current_pass\n";
        text += &format!("0x{at:08X}     {}               1\n", status.letter());
        text += "#      pos        size  status\n";
        for Region { range, status } in self.regions() {
            text += &format!("0x{:08X}  0x{:08X}  {}\n", range.start, range.end - range.start, status.letter());
        }
        text
    }

    /// The regions, ascending.
    pub fn regions(&self) -> impl DoubleEndedIterator<Item = Region> + '_ {
        self.regions.iter().map(|(&start, &(end, status))| Region { range: start..end, status })
    }

    /// The regions that end behind `from`, ascending.
    fn regions_behind(&self, from: u64) -> impl Iterator<Item = Region> + '_ {
        let before = self.regions.range(..=from).next_back();
        let first = before.map_or(from, |(&start, _)| start);
        let found = self.regions.range(first..).map(|(&start, &(end, status))| Region { range: start..end, status });
        found.filter(move |region| region.range.end > from)
    }

    /// The byte behind the last region.
    pub fn end(&self) -> u64 {
        self.regions().next_back().map_or(0, |region| region.range.end)
    }

    /// The byte behind the last finished region.
    pub fn finished_end(&self) -> u64 {
        let finished = self.regions().rev().find(|region| region.status == Status::Finished);
        finished.map_or(0, |region| region.range.end)
    }

    /// The parts of `range` that are not finished, ascending, each as long as can be.
    pub fn holes(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut reached = range.start;
        let finished = self.regions_behind(range.start).filter(|region| region.status == Status::Finished);
        for Region { range: finished, .. } in finished.take_while(|region| region.range.start < range.end) {
            if reached < finished.start {
                holes.push(reached..finished.start);
            }
            reached = finished.end;
        }
        if reached < range.end {
            holes.push(reached..range.end);
        }
        holes
    }

    /// The first range at or behind `from` that has this status.
    pub fn next(&self, status: Status, from: u64) -> Option<Range<u64>> {
        let found = self.regions_behind(from).find(|region| region.status == status)?;
        Some(found.range.start.max(from)..found.range.end)
    }

    /// Gives `range` a status, in place of what its parts had.
    pub fn mark(&mut self, range: Range<u64>, status: Status) {
        if range.is_empty() {
            return;
        }
        // Neighbours that touch the range are taken out too, so that those of the same status merge with it.
        let touched: Vec<Region> = self
            .regions_behind(range.start.saturating_sub(1))
            .take_while(|region| region.range.start <= range.end)
            .collect();
        let mut whole = range.clone();
        for Region { range: old, status: was } in touched {
            self.regions.remove(&old.start);
            if was == status {
                whole = whole.start.min(old.start)..whole.end.max(old.end);
                continue;
            }
            for rest in [old.start..old.end.min(range.start), old.start.max(range.end)..old.end] {
                if !rest.is_empty() {
                    self.regions.insert(rest.start, (rest.end, was));
                }
            }
        }
        self.regions.insert(whole.start, (whole.end, status));
    }
}

/// In which units the lines of a file count, and how they name a status.
#[derive(Debug, Clone, Copy)]
enum Units {
    /// Bytes and characters.
    Ddrescue,
    /// Sectors of this many bytes, and numbers.
    Hddsuperclone(u64),
}

/// A map that is being read.
#[derive(Default)]
struct Reader {
    map: RescueMap,
    /// Known from the first line that is no comment, the status line.
    units: Option<Units>,
    /// What HDDSuperClone's log says of its sectors.
    sector_bytes: Option<u64>,
}

/// The longest line: positions, a status, and HDDSuperClone's numbers.
const LINE_BYTES_MAX: usize = 4096;

/// The sectors that disks have.
const SECTORS: Range<u64> = 512..(64 << 10) + 1;

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let is_comment = |at: usize| line[at] == b'#' && (at == 0 || line[at - 1].is_ascii_whitespace());
        let comment = (0..line.len()).find(|&at| is_comment(at));
        let (words, comment) = line.split_at(comment.unwrap_or(line.len()));
        if self.units.is_none() && words.is_empty() {
            self.comment(comment)?;
        }
        if words.len() > LINE_BYTES_MAX {
            return Err(format!("longer than {LINE_BYTES_MAX} bytes"));
        }
        let words = std::str::from_utf8(words).map_err(|_| "neither a comment nor text".to_owned())?;
        let words: Vec<&str> = words.split_ascii_whitespace().collect();
        match (self.units, &words[..]) {
            (_, []) => Ok(()),
            (None, words) => self.status_line(words),
            (Some(units), [at, bytes, status, rest @ ..]) => {
                let region = region(units, at, bytes, status)?;
                if matches!(units, Units::Ddrescue) && !rest.is_empty() {
                    return Err(format!("{} words where a position, a size and a status are expected", words.len()));
                }
                self.region(region)
            }
            (Some(_), words) => {
                Err(format!("{} words where a position, a size and a status are expected", words.len()))
            }
        }
    }

    /// Takes what HDDSuperClone says in its comments.
    fn comment(&mut self, comment: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(comment);
        let words: Vec<&str> = text.trim_start_matches('#').split_ascii_whitespace().collect();
        match words[..] {
            ["sectorsize", bytes] => self.sector_bytes = Some(number(bytes)?),
            ["inputoffset" | "outputoffset", offset] if number(offset)? > 0 => {
                return Err(format!("{}: an image that does not begin where its disk does", words.join(" ")));
            }
            _ => {}
        }
        Ok(())
    }

    /// The first line says where the program was, and by its status in which format the file is.
    fn status_line(&mut self, words: &[&str]) -> Result<(), String> {
        let [at, status, pass @ ..] = words else {
            return Err("one word where a position and a status are expected: this is no map".to_owned());
        };
        number(at)?;
        if Status::of_letter(status).is_some() || matches!(*status, "F" | "G") {
            if !matches!(pass, [] | [_]) || !pass.iter().all(|pass| pass.bytes().all(|byte| byte.is_ascii_digit())) {
                return Err(format!("{}: no number of a pass", pass.join(" ")));
            }
            self.units = Some(Units::Ddrescue);
            return Ok(());
        }
        number(status).map_err(|_| format!("{status}: no status of ddrescue or HDDSuperClone"))?;
        let sector = self.sector_bytes.filter(|bytes| bytes.is_power_of_two() && SECTORS.contains(bytes));
        let is_region = matches!(pass, [letter] if Status::of_letter(letter).is_some());
        let sector = sector.ok_or(match is_region {
            true => "a region where ddrescue's line with its position and status is expected: the file's start is gone",
            false => "a log of HDDSuperClone without a comment \"sectorsize\" of a disk",
        })?;
        self.units = Some(Units::Hddsuperclone(sector));
        Ok(())
    }

    fn region(&mut self, region: Region) -> Result<(), String> {
        let end = self.map.end();
        if region.range.start < end && !region.range.is_empty() {
            let Range { start, end: to } = region.range;
            return Err(format!("the region {start:#x}..{to:#x} begins before {end:#x}, where the one before it ends"));
        }
        self.map.mark(region.range, region.status);
        Ok(())
    }
}

fn region(units: Units, at: &str, bytes: &str, status: &str) -> Result<Region, String> {
    let (unit, status) = match units {
        Units::Ddrescue => (1, Status::of_letter(status).ok_or_else(|| format!("{status}: no status of ddrescue"))?),
        Units::Hddsuperclone(sector) => (sector, Status::of_number(number(status)?)),
    };
    let bytes_of = |text| number(text)?.checked_mul(unit).ok_or_else(|| format!("{text}: beyond any disk"));
    let start = bytes_of(at)?;
    // As in ddrescue, positions are signed.
    let end = start.checked_add(bytes_of(bytes)?).filter(|&end| end <= i64::MAX as u64);
    Ok(Region { range: start..end.ok_or_else(|| format!("{at} and {bytes}: beyond any disk"))?, status })
}

/// A number in decimal, in hexadecimal with `0x`, or in octal with `0`, as in C.
fn number(text: &str) -> Result<u64, String> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // `from_str_radix` would take a sign.
    let number = digits.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| u64::from_str_radix(digits, radix));
    number.and_then(Result::ok).ok_or_else(|| format!("{}: no number", text.escape_debug()))
}
