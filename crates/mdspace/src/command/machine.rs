//! The thread that does the work: its executor and memory, and how members
//! come to it.
//!
//! Members are held exclusively when they may be written to, shared when they
//! are only read, and not at all when they are merely looked at.

use crate::command::arguments::{AssembleArguments, MemberArguments};
use crate::command::failure::Failure;
use crate::command::members::{ArrayUuid, expand, expand_with_directories};
use crate::command::progress::Progress;
use engine::inspect::find_superblock;
use engine::{AssembleOptions, BitmapPolicy, Candidate, Offer, Pool};
use io::{AnyMember, Executor, FileMember, Lock, OpenOptions, RealClock};
use parity::Kernel;
use std::cell::RefCell;
use std::io::Read;
use std::path::{Path, PathBuf};

/// An array of members that exist.
pub(crate) type Array = engine::Array<AnyMember, RealClock>;

/// How much memory is registered for transfers. It is pinned at the start, which takes its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arena {
    /// To look at metadata.
    Small,
    /// For transfers one after another.
    Middling,
    /// For many clients.
    Large,
    /// For measurements, in which no side may ever find it full.
    Huge,
}

impl Arena {
    fn bytes(self) -> usize {
        match self {
            Self::Small => 1 << 20,
            Self::Middling => 16 << 20,
            Self::Large => 64 << 20,
            Self::Huge => 256 << 20,
        }
    }
}

/// Brings parity and copies into agreement, where an unclean stop may have left them without. What cannot be
/// done now, for want of a member, is noted and stays for later: the data can be used meanwhile.
pub(crate) async fn resync(array: &Array) {
    if array.status().in_agreement || array.is_read_only() {
        return;
    }
    let shown = RefCell::new(None);
    let progress = |done: u64, total: u64| {
        let mut shown = shown.borrow_mut();
        let (bar, before) = shown.get_or_insert_with(|| (Progress::start("resync", Some(total)), 0));
        bar.advance(done - *before);
        *before = done;
    };
    if let Err(error) = array.resync(&progress).await {
        eprintln!("note: resync: {error}");
    }
}

/// Unit of a bitmap file's length.
const BITMAP_BLOCK_BYTES: u64 = 4096;

/// One thread's executor and what goes with it.
pub(crate) struct Machine {
    executor: Executor,
    /// Where buffers come from.
    pub(crate) pool: Pool,
    /// The time.
    pub(crate) clock: RealClock,
    /// The parity kernel that was asked for.
    pub(crate) kernel: Option<&'static Kernel>,
}

/// What is going to happen to members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They may be written to.
    Write,
    /// They are only read, as parts of an array.
    Read,
    /// They are looked at, whoever uses them.
    Look,
}

impl Machine {
    /// Makes this thread's.
    pub(crate) fn start(kernel: Option<&'static Kernel>, arena: Arena) -> Result<Self, Failure> {
        let pool = Pool::new(arena.bytes());
        let executor = Executor::new(&io::Options::new(pool.clone())).map_err(|error| {
            Failure::refused(format!("io_uring: {error}")).advise(
                "Linux 5.11 or later is needed; see `sysctl kernel.io_uring_disabled`, and a container's limits",
            )
        })?;
        Ok(Self { executor, pool, clock: RealClock::new(), kernel })
    }

    /// Runs `work` to its end.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.executor.block_on(work)
    }

    /// Opens one member.
    pub(crate) fn open(&self, path: &Path, purpose: Purpose) -> Result<Candidate<AnyMember>, Failure> {
        let (read_only, lock) = match purpose {
            Purpose::Write => (false, Lock::Exclusive),
            Purpose::Read => (true, Lock::Shared),
            Purpose::Look => (true, Lock::None),
        };
        let member = FileMember::open(path, &OpenOptions { read_only, lock, ..OpenOptions::default() })?;
        Ok(Candidate { name: path.display().to_string(), member: member.into() })
    }

    /// The paths that `arguments` name; of those, with `--uuid`, the array's own.
    pub(crate) async fn find(&self, arguments: &MemberArguments) -> Result<Vec<PathBuf>, Failure> {
        let Some(uuid) = arguments.uuid else { return expand(&arguments.members) };
        let mut own = Vec::new();
        for path in expand_with_directories(&arguments.members)? {
            if self.belongs_to(uuid, &path).await {
                own.push(path);
            }
        }
        if own.is_empty() {
            return Err(Failure::refused(format!("no member of array {uuid} is there"))
                .advise("`mdspace examine` prints which array a member belongs to"));
        }
        Ok(own)
    }

    async fn belongs_to(&self, uuid: ArrayUuid, path: &Path) -> bool {
        let Ok(Candidate { name, member }) = self.open(path, Purpose::Look) else { return false };
        let found = find_superblock(&name, &member, &self.pool).await;
        found.is_ok_and(|found| found.superblock.set_uuid == uuid.0)
    }

    /// Assembles the array that `arguments` name.
    pub(crate) async fn assemble(
        &self,
        arguments: &AssembleArguments,
        purpose: Purpose,
        policy: BitmapPolicy,
    ) -> Result<Array, Failure> {
        let (members, bitmap_file) = arguments.resolve()?;
        let paths = self.find(&members).await?;
        let members = paths.iter().map(|path| self.open(path, purpose)).collect::<Result<Vec<_>, _>>()?;
        let file = bitmap_file.as_deref().filter(|_| purpose == Purpose::Write);
        let bitmap = file.map(|path| self.open_bitmap(path)).transpose()?;
        let array = self.assemble_offer(Offer { members, bitmap }, arguments.force, purpose, policy).await?;
        for left_out in array.status().left_out {
            eprintln!("note: {}: not used: {}", left_out.name, left_out.reason);
        }
        Ok(array)
    }

    /// Assembles the array on `paths`.
    pub(crate) async fn assemble_paths(
        &self,
        paths: &[PathBuf],
        force: bool,
        purpose: Purpose,
    ) -> Result<Array, Failure> {
        let candidates = paths.iter().map(|path| self.open(path, purpose)).collect::<Result<Vec<_>, _>>()?;
        self.assemble_candidates(candidates, force, purpose).await
    }

    /// Assembles the array on members that are open.
    pub(crate) async fn assemble_candidates(
        &self,
        candidates: Vec<Candidate<AnyMember>>,
        force: bool,
        purpose: Purpose,
    ) -> Result<Array, Failure> {
        let offer = Offer { members: candidates, bitmap: None };
        self.assemble_offer(offer, force, purpose, BitmapPolicy::default()).await
    }

    async fn assemble_offer(
        &self,
        offer: Offer<AnyMember>,
        force: bool,
        purpose: Purpose,
        bitmap: BitmapPolicy,
    ) -> Result<Array, Failure> {
        let read_only = purpose != Purpose::Write;
        let options = AssembleOptions { force, read_only, bitmap, kernel: self.kernel, ..AssembleOptions::default() };
        Ok(Array::assemble_offer(offer, options, self.pool.clone(), self.clock.clone()).await?)
    }

    /// Opens the file of a write-intent bitmap. mdadm ends one with its last bit; here it is written in whole blocks,
    /// so it is lengthened, which nobody minds.
    fn open_bitmap(&self, path: &Path) -> Result<Candidate<AnyMember>, Failure> {
        let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", path.display()));
        let mut file = std::fs::File::options().read(true).write(true).open(path).map_err(failed)?;
        let mut magic = [0; 4];
        let is_bitmap = file.read_exact(&mut magic).is_ok() && magic == *b"bitm";
        if !is_bitmap {
            return Err(Failure::refused(format!("{}: bitmap.magic: there is no write-intent bitmap", path.display()))
                .advise("a new one is made by `mdspace create --bitmap` and `mdspace set bitmap=/FILE`"));
        }
        let status = file.metadata().map_err(failed)?;
        let whole_blocks = status.len().next_multiple_of(BITMAP_BLOCK_BYTES);
        if status.is_file() && status.len() != whole_blocks {
            file.set_len(whole_blocks).map_err(failed)?;
        }
        self.open(path, Purpose::Write)
    }
}
