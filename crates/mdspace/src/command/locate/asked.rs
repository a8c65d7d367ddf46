//! The bytes that are asked for: a range, the findings of a scrub, or the unfinished parts of a map.

use crate::command::text::failure::Failure;
use crate::command::text::size::Size;
use crate::names::name_of;
use disk::map::RescueMap;
use engine::{ScrubReport, ScrubState};
use serde::Deserialize;
use serde_json::Value;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// The longest file of findings that is read.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Bytes of an array, or of something inside of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) ranges: Vec<Range<u64>>,
    /// What is asked for only in part.
    pub(crate) notes: Vec<String>,
    /// Where the ranges come from, for messages.
    from: String,
}

impl Asked {
    /// `length` bytes from `offset` on.
    pub(crate) fn range(offset: u64, length: u64) -> Result<Self, Failure> {
        let Some(end) = offset.checked_add(length).filter(|_| length > 0) else {
            return Err(Failure::refused("--length: no range").advise("give one byte or more"));
        };
        let range = offset..end;
        Ok(Self { ranges: vec![range], notes: Vec::new(), from: "--offset and --length".to_owned() })
    }

    /// What a file says: the findings of `scrub --json`, or the map of ddrescue or `read --map-out`. `-`: standard input.
    /// Positions in a map are those of the copy, which begins at byte `offset`.
    pub(crate) fn file(path: &Path, offset: u64) -> Result<Self, Failure> {
        let name = name_of(path);
        let refused = |reason: String| {
            Failure::refused(format!("{name}: {reason}")).advise(
                "give the output of `mdspace scrub --json`, or a map of ddrescue or of `mdspace read --map-out`",
            )
        };
        let mut text = Vec::new();
        let read = match path == Path::new("-") {
            true => std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut text),
            false => std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)),
        };
        read.map_err(|error| refused(error.to_string()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(refused(format!("longer than {} bytes", FILE_BYTES_MAX)));
        }
        if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
            let value: Value = serde_json::from_slice(&text).map_err(|error| refused(error.to_string()))?;
            let report = ScrubReport::deserialize(&value)
                .map_err(|error| refused(format!("not the findings of a scrub: {error}")))?;
            return Ok(Self { from: name, ..Self::findings(&report) });
        }
        let map = RescueMap::decode(&text).map_err(|defect| refused(format!("no map: {defect}")))?;
        let holes = map.holes(&(0..map.end()));
        let moved = |hole: Range<u64>| Some(hole.start.checked_add(offset)?..hole.end.checked_add(offset)?);
        let ranges: Option<Vec<_>> = holes.into_iter().map(moved).collect();
        let ranges = ranges.ok_or_else(|| refused("its ranges are too far from --offset".to_owned()))?;
        Ok(Self { ranges, notes: Vec::new(), from: name })
    }

    /// The findings of a scrub.
    pub(crate) fn findings(report: &ScrubReport) -> Self {
        let parts = report.found.findings.iter().flat_map(|finding| &finding.array);
        let ranges = parts.map(|part| part.at..part.at.saturating_add(part.bytes)).collect();
        let mut notes = Vec::new();
        let omitted = report.found.findings_omitted;
        if omitted > 0 {
            notes.push(format!("the scrub had {omitted} more findings than it lists"));
        }
        if report.state != ScrubState::Complete {
            notes.push("the scrub did not come to its end".to_owned());
        }
        Self { ranges, notes, from: "the scrub's findings".to_owned() }
    }

    /// The ranges in order and without overlap. They have to be within `bytes` bytes.
    pub(super) fn within(&self, bytes: u64) -> Result<Vec<Range<u64>>, Failure> {
        match self.ranges.iter().find(|range| range.end > bytes) {
            None => Ok(merged(self.ranges.clone())),
            Some(range) => {
                let reason = format!("{}: byte {} is past the end", self.from, range.end - 1);
                let advice = format!("there are {bytes} bytes ({}); the findings may be of another array", Size(bytes));
                Err(Failure::refused(reason).advise(advice))
            }
        }
    }
}

fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => merged.push(range),
        }
    }
    merged
}
