//! Bytes of an array, or of something inside of it.
//!
//! A tree: ranges and logical volumes map their bytes to those of other nodes. It caches nothing. Only a tree of plain
//! ranges over writable arrays takes writes: any other mapping shares bytes with others, or has copies to keep.

use crate::machine::Array;
use disk::Source;
use disk::lvm::LogicalVolume;
use disk::lvm::thin::ThinMap;
use engine::{ArrayError, ArrayErrorKind, Block, Buffer, Durability, Limits, Member, Pool};
use format::units::MemberByte;
use futures_util::future::{LocalBoxFuture, try_join_all};
use io::{AnyMember, Layer, LayerMember, LayerRead};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// Readable bytes. Clones share them.
#[derive(Clone)]
pub(crate) enum Bytes {
    /// A whole array.
    Array(Rc<Running>),
    /// A disk or partition that is in no array.
    Plain(AnyMember, Pool),
    /// Parts of others.
    Mapped(Rc<Mapped>),
}

/// A running array.
pub(crate) struct Running {
    pub(crate) array: Array,
    /// What its members, and what says which they are, are inside of; empty if the members are files or devices.
    pub(crate) below: Vec<Bytes>,
}

/// Bytes that are others' bytes at other places.
pub(crate) struct Mapped {
    bytes: u64,
    map: Map,
    /// `None`: it was not found.
    sources: Vec<Option<Bytes>>,
    is_read_only: bool,
}

/// Where the bytes are.
pub(crate) enum Map {
    /// In the first source, from this byte on.
    Range(u64),
    /// In the physical volumes of a group.
    Volume(LogicalVolume),
    /// In the data of a thin pool, which is the first source; its metadata are the second.
    Thin(ThinMap),
}

/// A part of a transfer that lies in one piece.
struct Piece {
    /// `None`: nowhere, it is zeros.
    source: Option<usize>,
    at: u64,
    /// Its range in the transfer.
    range: Range<usize>,
}

fn failed(reason: impl Into<String>) -> ArrayError {
    ArrayError { kind: ArrayErrorKind::Io, reason: reason.into() }
}

impl Bytes {
    /// All bytes of an array whose members are files or devices.
    pub(crate) fn of(array: &Array) -> Self {
        Self::Array(Rc::new(Running { array: array.clone(), below: Vec::new() }))
    }

    /// `bytes` bytes of these from `at` on, or fewer if they end before.
    pub(crate) fn part(&self, at: u64, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes().saturating_sub(at));
        let sources = vec![Some(self.clone())];
        Self::Mapped(Rc::new(Mapped { bytes, map: Map::Range(at), sources, is_read_only: false }))
    }

    /// The logical volume over the physical volumes of its group.
    pub(crate) fn logical(volume: LogicalVolume, sources: Vec<Option<Self>>) -> Self {
        let (bytes, is_read_only) = (volume.bytes, !volume.is_writable);
        Self::Mapped(Rc::new(Mapped { bytes, map: Map::Volume(volume), sources, is_read_only }))
    }

    /// The thin volume of `bytes` bytes over the data of its pool, whose metadata the map is from.
    pub(crate) fn thin(bytes: u64, map: ThinMap, data: Self, metadata: Self) -> Self {
        let sources = vec![Some(data), Some(metadata)];
        Self::Mapped(Rc::new(Mapped { bytes, map: Map::Thin(map), sources, is_read_only: true }))
    }

    /// A member of an array inside.
    pub(crate) fn member(&self) -> AnyMember {
        LayerMember::new(self.clone(), self.pool()).into()
    }

    /// The arrays of files or devices that it lies on, each once.
    pub(crate) fn arrays(&self) -> Vec<Array> {
        let mut arrays = Vec::new();
        self.add_arrays(&mut arrays);
        arrays
    }

    fn add_arrays(&self, arrays: &mut Vec<Array>) {
        match self {
            Self::Plain(..) => {}
            Self::Mapped(mapped) => mapped.used().for_each(|source| source.add_arrays(arrays)),
            Self::Array(running) if !running.below.is_empty() => {
                running.below.iter().for_each(|below| below.add_arrays(arrays));
            }
            Self::Array(running) => {
                let uuid = running.array.status().uuid;
                if !arrays.iter().any(|array| array.status().uuid == uuid) {
                    arrays.push(running.array.clone());
                }
            }
        }
    }

    /// Whether a part of it was not found.
    pub(crate) fn is_incomplete(&self) -> bool {
        match self {
            Self::Mapped(mapped) => {
                mapped.map.used().any(|index| mapped.sources[index].is_none()) || mapped.used().any(Self::is_incomplete)
            }
            Self::Array(_) | Self::Plain(..) => false,
        }
    }

    /// Whether it reaches past the end of what it lies on.
    pub(crate) fn is_cut_off(&self) -> bool {
        let Self::Mapped(mapped) = self else { return false };
        let reach = |index: usize| match &mapped.map {
            Map::Range(at) => at.saturating_add(mapped.bytes),
            Map::Volume(volume) => volume.reach(index),
            Map::Thin(map) if index == 0 => map.reach(),
            Map::Thin(_) => 0,
        };
        let is_past = |(index, source): (usize, &Option<Self>)| {
            source.as_ref().is_some_and(|source| reach(index) > source.bytes())
        };
        mapped.sources.iter().enumerate().any(is_past) || mapped.used().any(Self::is_cut_off)
    }

    fn pool(&self) -> &Pool {
        match self {
            Self::Array(running) => running.array.pool(),
            Self::Plain(_, pool) => pool,
            Self::Mapped(mapped) => mapped.used().next().expect("what is mapped lies on something").pool(),
        }
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Array(running) => running.array.bytes(),
            Self::Plain(member, _) => member.limits().bytes,
            Self::Mapped(mapped) => mapped.bytes,
        }
    }

    /// Whether it takes no writes.
    pub(crate) fn is_read_only(&self) -> bool {
        match self {
            Self::Array(running) => running.array.is_read_only(),
            Self::Plain(..) => true,
            Self::Mapped(mapped) => mapped.is_read_only || mapped.used().any(Self::is_read_only),
        }
    }

    /// Fills `into` from byte `at` on.
    ///
    /// # Errors
    /// As an array's read; also when the bytes lie on something that was not found.
    pub(crate) fn read(&self, at: u64, into: Buffer) -> LocalBoxFuture<'_, Result<Buffer, ArrayError>> {
        match self {
            Self::Array(running) => Box::pin(running.array.read(at, into)),
            Self::Plain(member, pool) => Box::pin(read_plain(member, pool, at, into)),
            Self::Mapped(mapped) => Box::pin(mapped.read(at, into)),
        }
    }

    /// Writes `from` at byte `at`.
    pub(crate) fn write(
        &self,
        at: u64,
        from: Block,
        durability: Durability,
    ) -> LocalBoxFuture<'_, Result<(), ArrayError>> {
        let length = from.len() as u64;
        self.change(at, length, move |array, at, range| {
            let part = from.slice(range.start as usize..range.end as usize);
            Box::pin(array.write(at, part, durability))
        })
    }

    /// Zeroes the range; with `may_discard` its space may be given back.
    #[cfg(feature = "command")]
    pub(crate) fn write_zeroes(
        &self,
        at: u64,
        bytes: u64,
        may_discard: bool,
        durability: Durability,
    ) -> LocalBoxFuture<'_, Result<(), ArrayError>> {
        self.change(at, bytes, move |array, at, range| {
            let bytes = range.end - range.start;
            match may_discard {
                true => Box::pin(array.punch_hole(at, bytes, durability)),
                false => Box::pin(array.write_zeroes(at, bytes, durability)),
            }
        })
    }

    /// Discards the range.
    pub(crate) fn discard(&self, at: u64, bytes: u64) -> LocalBoxFuture<'_, Result<(), ArrayError>> {
        self.change(at, bytes, |array, at, range| Box::pin(array.discard(at, range.end - range.start)))
    }

    /// Brings completed writes to stable storage.
    pub(crate) fn flush(&self) -> LocalBoxFuture<'_, Result<(), ArrayError>> {
        Box::pin(async move {
            for array in self.arrays() {
                array.flush().await?;
            }
            Ok(())
        })
    }

    /// Calls `change` for each part of the range: with its array, its place there, and its range in the request.
    fn change<'a>(
        &'a self,
        at: u64,
        bytes: u64,
        change: impl Fn(&'a Array, u64, Range<u64>) -> LocalBoxFuture<'a, Result<(), ArrayError>> + 'a,
    ) -> LocalBoxFuture<'a, Result<(), ArrayError>> {
        Box::pin(async move {
            if self.is_read_only() {
                return Err(ArrayError { kind: ArrayErrorKind::ReadOnly, reason: "it is only read".to_owned() });
            }
            let mut changes = Vec::new();
            self.parts(at, 0..bytes, &mut |array, at, range| changes.push(change(array, at, range)))?;
            try_join_all(changes).await.map(drop)
        })
    }

    /// Calls `each` for the parts of `range` of a request, which begins at `at`.
    fn parts<'a>(
        &'a self,
        at: u64,
        range: Range<u64>,
        each: &mut dyn FnMut(&'a Array, u64, Range<u64>),
    ) -> Result<(), ArrayError> {
        match self {
            Self::Array(running) => each(&running.array, at, range),
            Self::Plain(..) => return Err(failed("it is only read")),
            Self::Mapped(mapped) => {
                let mut next = range.start;
                while next < range.end {
                    let (source, at, run) = mapped.locate(at + (next - range.start))?;
                    let end = range.end.min(next.saturating_add(run));
                    let source = source.ok_or_else(|| failed("it is only read"))?;
                    mapped.source(source)?.parts(at, next..end, each)?;
                    next = end;
                }
            }
        }
        Ok(())
    }
}

impl Map {
    fn used(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match self {
            Self::Range(_) => Box::new(std::iter::once(0)),
            Self::Thin(_) => Box::new(0..2),
            Self::Volume(volume) => Box::new(volume.used()),
        }
    }
}

impl Mapped {
    /// The sources that it lies on, as far as they were found.
    fn used(&self) -> impl Iterator<Item = &Bytes> {
        self.map.used().filter_map(|index| self.sources[index].as_ref())
    }

    pub(super) fn source(&self, index: usize) -> Result<&Bytes, ArrayError> {
        self.sources[index].as_ref().ok_or_else(|| failed("its physical volume is missing"))
    }

    /// The source of byte `at` (`None`: it is a zero), the place there, and how many bytes follow in one piece.
    pub(super) fn locate(&self, at: u64) -> Result<(Option<usize>, u64, u64), ArrayError> {
        let found = match &self.map {
            Map::Range(start) => Some((Some(0), start + at, self.bytes.saturating_sub(at))),
            Map::Volume(volume) => volume.locate(at).map(|(index, at, run)| (Some(index), at, run)),
            Map::Thin(map) => {
                let (place, run) = map.locate(at);
                Some((place.map(|_| 0), place.unwrap_or(0), run))
            }
        };
        found.filter(|(_, _, run)| *run > 0).ok_or_else(|| failed(format!("byte {at} is in no segment")))
    }

    async fn read(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < into.len() {
            let (source, place, run) = self.locate(at + done as u64)?;
            let end = into.len().min(done.saturating_add(usize::try_from(run).unwrap_or(usize::MAX)));
            pieces.push(Piece { source, at: place, range: done..end });
            done = end;
        }
        if let [Piece { source: Some(source), at, .. }] = pieces[..] {
            return self.source(source)?.read(at, into).await;
        }
        let reads = pieces.iter().map(async |Piece { source, at, range }| {
            let Some(source) = source else { return Ok(None) };
            let source = self.source(*source)?;
            source.read(*at, source.pool().take(range.len())).await.map(Some)
        });
        for (read, piece) in try_join_all(reads).await?.iter().zip(&pieces) {
            let part = &mut into[piece.range.clone()];
            match read {
                Some(read) => part.copy_from_slice(read),
                None => part.fill(0),
            }
        }
        Ok(into)
    }
}

/// Reads a member at any position.
async fn read_plain(member: &AnyMember, pool: &Pool, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
    let Limits { bytes, logical_block_bytes, .. } = *member.limits();
    let unit = u64::from(logical_block_bytes);
    let end = at.saturating_add(into.len() as u64);
    if end > bytes {
        return Err(failed(format!("bytes {at} and on lie past the end")));
    }
    let (start, length) = (at / unit * unit, into.len());
    let whole = pool.take((end.next_multiple_of(unit) - start) as usize);
    let (read, whole) = member.read(MemberByte(start), whole).await;
    read.map_err(|error| failed(error.to_string()))?;
    into.copy_from_slice(&whole[(at - start) as usize..][..length]);
    Ok(into)
}

impl Source for Bytes {
    fn bytes(&self) -> u64 {
        self.bytes()
    }

    async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        let read = self.read(at, self.pool().take(length)).await;
        read.map(|buffer| buffer.to_vec()).map_err(|error| error.reason)
    }
}

impl Layer for Bytes {
    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn read(&self, at: u64, into: Buffer) -> LayerRead<'_> {
        Box::pin(async move { self.read(at, into).await.map_err(|error| error.reason) })
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
