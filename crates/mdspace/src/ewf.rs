//! EWF images (E01) as disks: the files of an image, read while the caller waits.
//!
//! `disk::ewf` decodes them. This file finds the segments beside the first one, by its name, keeps the chunk and the table
//! that were read last, and is a member of an array, which reads and never writes. A chunk that cannot be used is a read
//! error of its bytes, as a bad sector is: the array works them out from the other members.

use crate::place::{DiskFile, at_once};
use disk::Source;
use disk::ewf::{Entries, Image, SEGMENTS_MAX, segment_ending, segment_number};
use engine::{Block, Buffer, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::units::{MemberByte, SECTOR_BYTES};
use std::cell::RefCell;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// The disk in an image, or a part of it.
pub(crate) struct EwfDisk {
    segments: Vec<DiskFile>,
    image: Image,
    part: Range<u64>,
    recent: RefCell<Recent>,
}

/// What was read last.
#[derive(Default)]
struct Recent {
    entries: Option<Arc<Entries>>,
    chunk: Option<(u64, Arc<Vec<u8>>)>,
}

/// Bytes that tell the number of a segment.
const HEAD_BYTES: usize = 13;

impl EwfDisk {
    /// Opens the image whose first segment is at `path`, with the segments beside it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let first = DiskFile::raw(path)?;
        let head = at_once(first.read(0, HEAD_BYTES.min(first.bytes() as usize))).map_err(Error::other)?;
        match segment_number(&head) {
            Some(1) => {}
            Some(number) => {
                let reason = format!("it is segment {number} of an EWF image: name the first segment, and no other");
                return Err(Error::new(ErrorKind::InvalidInput, reason));
            }
            None => {
                return Err(Error::new(
                    ErrorKind::InvalidData,
                    "it is an EWF image that is cut off in its first bytes",
                ));
            }
        }
        let mut segments = vec![first];
        let others = (2..=SEGMENTS_MAX).map_while(|number| beside(path, number)).take_while(|other| other.is_file());
        for other in others {
            let named = |error: Error| Error::new(error.kind(), format!("{}: {error}", other.display()));
            segments.push(DiskFile::raw(&other).map_err(named)?);
        }
        let image = at_once(Image::open(&segments)).map_err(|reason| {
            let text = format!(
                "it is an EWF image that is damaged or not whole ({reason}), and only its end tells which sectors could \
                 not be read when it was made: copy it again with all of its segments"
            );
            Error::new(ErrorKind::InvalidData, text)
        })?;
        let part = 0..image.bytes();
        Ok(Self { segments, image, part, recent: RefCell::default() })
    }

    /// The length of the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// Makes only the bytes of `part` that the disk has the member.
    pub(crate) fn narrow(&mut self, part: Range<u64>) -> Result<()> {
        if !part.start.is_multiple_of(SECTOR_BYTES) || part.start >= self.bytes() {
            let reason = format!("byte {} is inside a sector, or past the end", part.start);
            return Err(Error::new(ErrorKind::InvalidInput, reason));
        }
        self.part = part.start..part.end.min(self.bytes());
        Ok(())
    }

    /// Fills `into` from byte `at` of the disk on.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], at: u64) -> Result<()> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.bytes());
        let end = end.ok_or_else(|| Error::new(ErrorKind::UnexpectedEof, "past the end of the disk in the image"))?;
        self.image.refuse_unread(&(at..end)).map_err(Error::other)?;
        let mut position = at;
        while position < end {
            let number = self.image.chunk_of(position);
            let range = self.image.range_of(number);
            let chunk = self.chunk(number).map_err(Error::other)?;
            let stop = range.end.min(end);
            let from = &chunk[(position - range.start) as usize..(stop - range.start) as usize];
            into[(position - at) as usize..(stop - at) as usize].copy_from_slice(from);
            position = stop;
        }
        Ok(())
    }

    fn chunk(&self, number: u64) -> std::result::Result<Arc<Vec<u8>>, String> {
        let mut recent = self.recent.borrow_mut();
        if let Some((_, chunk)) = recent.chunk.as_ref().filter(|(own, _)| *own == number) {
            return Ok(Arc::clone(chunk));
        }
        let entries = match recent.entries.take().filter(|entries| entries.has(number)) {
            Some(entries) => entries,
            None => Arc::new(at_once(self.image.entries(&self.segments, number))?),
        };
        recent.entries = Some(Arc::clone(&entries));
        let chunk = Arc::new(at_once(self.image.chunk(&self.segments, &entries, number))?);
        recent.chunk = Some((number, Arc::clone(&chunk)));
        Ok(chunk)
    }

    /// Makes it a member.
    pub(crate) fn into_member(self) -> EwfMember {
        let bytes = (self.part.end - self.part.start) / SECTOR_BYTES * SECTOR_BYTES;
        let limits = Limits {
            bytes,
            logical_block_bytes: SECTOR_BYTES as u32,
            physical_block_bytes: SECTOR_BYTES as u32,
            optimal_bytes: 0,
            longest_bytes: 0,
            synchronous: false,
            discards: false,
            discards_to_zeros: false,
            volatile_cache: false,
        };
        EwfMember { disk: self, limits }
    }
}

/// The path of another segment of the image at `path`; `None` if its name does not end as that of a first segment.
fn beside(path: &Path, number: u16) -> Option<PathBuf> {
    let ending = segment_ending(number)?;
    match path.extension()?.to_str()? {
        "E01" => Some(path.with_extension(ending)),
        "e01" => Some(path.with_extension(ending.to_ascii_lowercase())),
        _ => None,
    }
}

/// The disk in an image, or a part of it, as a member that is only read.
pub(crate) struct EwfMember {
    disk: EwfDisk,
    limits: Limits,
}

impl std::fmt::Debug for EwfMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EwfMember").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl EwfMember {
    fn fill(&self, at: MemberByte, into: &mut [u8]) -> std::result::Result<(), MemberError> {
        let (operation, bytes) = (Operation::Read, into.len() as u64);
        let range = io::range_within(&self.limits, operation, at, bytes)?;
        let read = self.disk.read_exact_at(into, self.disk.part.start + range.start);
        read.map_err(|source| {
            MemberFault { kind: MemberErrorKind::Io, operation, at, bytes, source: Rc::new(source) }.into()
        })
    }

    /// What a change gets: nothing opens an image for writing.
    fn refused(operation: Operation, at: MemberByte, bytes: u64) -> MemberError {
        let source = Rc::new(Error::new(ErrorKind::PermissionDenied, "an EWF image is only read"));
        MemberFault { kind: MemberErrorKind::Gone, operation, at, bytes, source }.into()
    }
}

impl Member for EwfMember {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    async fn read(&self, at: MemberByte, mut into: Buffer) -> (std::result::Result<(), MemberError>, Buffer) {
        (self.fill(at, &mut into), into)
    }

    async fn read_vectored(
        &self,
        at: MemberByte,
        mut into: Vec<Buffer>,
    ) -> (std::result::Result<(), MemberError>, Vec<Buffer>) {
        let mut position = at.0;
        let mut read = Ok(());
        for part in &mut into {
            read = read.and_then(|()| self.fill(MemberByte(position), part));
            position += part.len() as u64;
        }
        (read, into)
    }

    async fn write(&self, at: MemberByte, from: Block) -> std::result::Result<(), MemberError> {
        Err(Self::refused(Operation::Write, at, from.len() as u64))
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> std::result::Result<(), MemberError> {
        Err(Self::refused(Operation::Write, at, from.iter().map(|part| part.len() as u64).sum()))
    }

    async fn flush(&self) -> std::result::Result<(), MemberError> {
        Ok(())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> std::result::Result<(), MemberError> {
        Err(Self::refused(Operation::Discard, at, bytes))
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> std::result::Result<(), MemberError> {
        Err(Self::refused(Operation::WriteZeroes, at, bytes))
    }
}
