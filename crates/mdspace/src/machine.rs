//! The thread on which an array runs: its executor and memory, and how it opens members.
//!
//! Members that may be written to are locked exclusively, members that are only read are locked shared, and members of
//! which only metadata is read are not locked. A refusal from this file has changed nothing.

#[cfg(feature = "command")]
use crate::blocking::BlockingPool;
use crate::drive::{Drive, Drives};
use crate::maps::{Mapped, Maps, has_holes, without};
use crate::medium::Medium;
use crate::names::name_of;
#[cfg(feature = "command")]
use crate::names::path_of;
use crate::overlay::{self, Layer, OverlayDirectory};
use crate::place;
use crate::write_buffer;
use engine::inspect::may_replay;
use engine::{AssembleOptions, BitmapPolicy, Candidate, JournalPlan, Offer, Pool, Refusal};
use format::overlay::Holes;
use futures_util::future::join3;
use io::{AnyMember, Backend, Choice, Executor, FileMember, Lock, OpenError, OpenOptions, Overlay, RealClock};
use parity::Kernel;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// An array of files and block devices.
pub(crate) type Array = engine::Array<AnyMember, RealClock>;

/// How much memory is registered for transfers. It is pinned at the start, which takes some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "command"), expect(dead_code, reason = "the command has more uses"))]
pub(crate) enum Arena {
    /// For reading metadata: nothing is registered.
    Small,
    /// For a few transfers at a time.
    Medium,
    /// For many clients.
    Large,
    /// For measurements, which must never wait for memory.
    Huge,
}

impl Arena {
    fn bytes(self) -> usize {
        match self {
            Self::Small => 1 << 20,
            Self::Medium => 16 << 20,
            Self::Large => 64 << 20,
            Self::Huge => 256 << 20,
        }
    }
}

/// Minimal time that a file system has to open a file. It includes the wait for the lock of a process that has just
/// ended.
#[cfg(feature = "command")]
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without writes after which the array is marked clean: md's `safe_mode_delay`.
const SAFE_MODE_DELAY: Duration = Duration::from_millis(200);

/// Time that the kernel has to release the locked memory of a process that has ended, and the interval between
/// attempts.
const LOCKED_MEMORY_TIMEOUT: Duration = Duration::from_secs(2);
const LOCKED_MEMORY_INTERVAL: Duration = Duration::from_millis(10);

/// The backend that the command line asks for. The library never sets it.
static BACKEND: OnceLock<Choice> = OnceLock::new();

/// Sets the backend of every executor of this process; the first call counts.
#[cfg(feature = "command")]
pub(crate) fn choose_backend(choice: Choice) {
    let _ = BACKEND.set(choice);
}

/// Background work of an open array, until the array is stopped: the clean mark while it is idle, clearing of bitmap
/// bits, spares that take over, and sweeps that are due.
pub(crate) async fn run_background(array: &Array) {
    join3(array.mark_clean_when_idle(SAFE_MODE_DELAY), array.clear_bitmap_lazily(), array.keep_whole()).await;
}

/// EMFILE and ENFILE of errno(3): too many open files, in the process or in the system.
const TOO_MANY: i32 = 24;
const TOO_MANY_OF_ALL: i32 = 23;

/// The length of a bitmap file is a multiple of this.
const BITMAP_BLOCK_BYTES: u64 = 4096;

/// A thread's executor, memory and clock.
pub(crate) struct Machine {
    executor: Executor,
    /// Memory for transfers.
    pub(crate) pool: Pool,
    /// The clock.
    pub(crate) clock: RealClock,
    /// The parity kernel, if the user chose one.
    pub(crate) kernel: Option<&'static Kernel>,
    /// The maps of members that are images of failing disks.
    pub(crate) maps: Maps,
    /// Which writes are answered from memory that outlives the process, if any.
    #[cfg(feature = "command")]
    pub(crate) write_back: std::cell::Cell<Option<engine::WriteBack>>,
    /// Takes all writes to members, if there is one.
    overlay: Option<Arc<OverlayDirectory>>,
    /// Whether writes to members stay in memory.
    is_rehearsal: bool,
    /// Threads for work that may wait for a file system.
    #[cfg(feature = "command")]
    pub(crate) blocking: BlockingPool,
    /// The drives of members that were opened.
    pub(crate) drives: Drives,
}

/// What a member is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// As part of an array that may be written to.
    Write,
    /// As part of an array that is only read.
    Read,
    /// For its metadata, even while another process uses it.
    Look,
}

/// The user's decisions about an array that cannot be assembled without them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Consent {
    /// As [`AssembleOptions::force`].
    pub(crate) force: bool,
    /// As [`AssembleOptions::raid0_layout`].
    pub(crate) raid0_layout: Option<u32>,
    /// As [`AssembleOptions::ignore_bad_blocks`].
    pub(crate) ignore_bad_blocks: bool,
    /// As [`AssembleOptions::partial`].
    pub(crate) partial: bool,
    /// As [`AssembleOptions::journal`].
    pub(crate) journal: JournalPlan,
}

impl Machine {
    /// Creates the executor of this thread.
    pub(crate) fn start(kernel: Option<&'static Kernel>, arena: Arena) -> Result<Self, Refusal> {
        let pool = Pool::new(arena.bytes());
        let backend = BACKEND.get().copied().unwrap_or_default();
        // What makes many transfers cheap would cost a few more than it saves.
        let register = arena != Arena::Small;
        let options = io::Options { backend, register, ..io::Options::new(pool.clone()) };
        let executor = executor(&options, arena).map_err(|error| not_started(backend, &error))?;
        Ok(Self {
            executor,
            pool,
            clock: RealClock::new(),
            kernel,
            maps: Maps::default(),
            overlay: None,
            is_rehearsal: false,
            #[cfg(feature = "command")]
            write_back: std::cell::Cell::new(None),
            #[cfg(feature = "command")]
            blocking: BlockingPool::default(),
            drives: Drives::default(),
        })
    }

    /// Opens members from now on as these maps say.
    pub(crate) fn with_maps(self, maps: Maps) -> Self {
        Self { maps, ..self }
    }

    /// The same, with all writes to members kept in the directory `overlay`, if one is given.
    pub(crate) fn over(mut self, overlay: Option<&Path>) -> Result<Self, Refusal> {
        self.overlay = overlay.map(OverlayDirectory::at).transpose()?.map(Arc::new);
        Ok(self)
    }

    /// The same, with all writes to members kept in memory, and gone with it.
    #[cfg(feature = "command")]
    pub(crate) fn rehearsing(self) -> Self {
        Self { is_rehearsal: true, ..self }
    }

    /// Whether writes to members stay in memory.
    pub(crate) fn is_rehearsal(&self) -> bool {
        self.is_rehearsal
    }

    /// The directory of the overlay.
    #[cfg(feature = "command")]
    pub(crate) fn overlay_directory(&self) -> Option<&Path> {
        self.overlay.as_deref().map(OverlayDirectory::path)
    }

    /// A member to which the overlay cannot be committed, if there is one among `paths`.
    #[cfg(feature = "command")]
    pub(crate) fn only_read_under_overlay<'a>(&self, paths: &'a [PathBuf]) -> Option<&'a PathBuf> {
        let overlay = self.overlay.as_ref()?;
        paths.iter().find(|path| overlay.is_only_read(path))
    }

    /// Whether writes to members are kept in an overlay.
    pub(crate) fn has_overlay(&self) -> bool {
        self.overlay.is_some()
    }

    /// The backend in use; if the system refused io_uring, why.
    #[cfg(feature = "command")]
    pub(crate) fn backend(&self) -> (Backend, Option<String>) {
        (self.executor.backend(), self.executor.io_uring_refusal().map(ToString::to_string))
    }

    /// Runs `work` to completion.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.executor.block_on(work)
    }

    /// Opens a member.
    pub(crate) fn open(&self, path: &Path, purpose: Purpose) -> Result<Candidate<AnyMember>, Refusal> {
        self.try_open(path, purpose).map_err(|error| not_opened(&error))
    }

    /// Opens a member, for callers that examine the error.
    pub(crate) fn try_open(&self, path: &Path, purpose: Purpose) -> Result<Candidate<AnyMember>, OpenError> {
        let mapped = self.maps.of_member(path, None)?;
        Ok(self.admit(open_place(path, purpose, mapped, self.overlay.as_deref())?, path))
    }

    /// Binds a member to this thread's executor, and keeps what is known of its drive.
    fn admit(&self, opened: Opened, path: &Path) -> Candidate<AnyMember> {
        self.drives.keep(name_of(path), opened.drive.clone());
        let Candidate { name, member } = opened.candidate(path);
        Candidate { name, member: if self.is_rehearsal() { Overlay::in_memory(member).into() } else { member } }
    }

    /// As [`Machine::try_open`], on another thread, because the file system may hang while this thread serves requests.
    /// It gives up after `timeout` (the timeout of a member's operation) or [`OPEN_TIMEOUT`], whichever is longer.
    ///
    /// # Errors
    /// The outer error means that it gave up.
    #[cfg(feature = "command")]
    pub(crate) async fn open_in_background(
        &self,
        path: &Path,
        purpose: Purpose,
        timeout: Option<Duration>,
    ) -> Result<Result<Candidate<AnyMember>, OpenError>, Refusal> {
        let (name, owned) = (name_of(path), path.to_owned());
        let overlay = self.overlay.clone();
        let mapped = match self.maps.of_member(path, None) {
            Ok(mapped) => mapped,
            Err(error) => return Ok(Err(error)),
        };
        let open = move || open_place(&owned, purpose, mapped, overlay.as_deref());
        let limit = timeout.unwrap_or_default().max(OPEN_TIMEOUT);
        let opened = self.blocking.run(&self.clock, limit, open).await;
        let opened = opened.map_err(|refusal| refusal.of(name))?;
        Ok(opened.map(|opened| self.admit(opened, path)))
    }

    /// Opens a part of a member, or of the part of a file that the member is, as part of an array that is only read.
    #[cfg(feature = "command")]
    pub(crate) fn open_data(
        &self,
        path: &Path,
        data: io::Part,
        purpose: Purpose,
    ) -> Result<Candidate<AnyMember>, Refusal> {
        let opened = || {
            let mapped = self.maps.of_member(path, Some(data))?;
            let medium = Medium::open(path, Some(data), purpose)?;
            let holes = mapped.map(|mapped| mapped.holes(path, medium.bytes())).transpose()?.flatten();
            Ok(Opened::new(path, medium, holes, None).candidate(path))
        };
        opened().map_err(|error| not_opened(&error))
    }

    /// Opens all members.
    pub(crate) fn open_all(&self, paths: &[PathBuf], purpose: Purpose) -> Result<Vec<Candidate<AnyMember>>, Refusal> {
        if !self.has_overlay() {
            self.maps.refuse_writing(purpose)?;
        }
        paths.iter().map(|path| self.open(path, purpose)).collect()
    }

    /// Assembles an array of open members.
    pub(crate) async fn assemble_candidates(
        &self,
        candidates: Vec<Candidate<AnyMember>>,
        force: bool,
        purpose: Purpose,
    ) -> Result<Array, Refusal> {
        let offer = Offer::of(candidates);
        self.assemble_offer(offer, Consent { force, ..Consent::default() }, purpose, BitmapPolicy::default()).await
    }

    /// Assembles an array of open members, and a bitmap file if there is one.
    pub(crate) async fn assemble_offer(
        &self,
        offer: Offer<AnyMember>,
        consent: Consent,
        purpose: Purpose,
        bitmap: BitmapPolicy,
    ) -> Result<Array, Refusal> {
        let read_only = purpose != Purpose::Write;
        let offer = if read_only { self.over_logs(offer).await } else { offer };
        let offer = self.beside_write_buffer(offer, purpose, consent.force);
        let Consent { force, raid0_layout, ignore_bad_blocks, partial, journal } = consent;
        let options = AssembleOptions {
            force,
            raid0_layout,
            ignore_bad_blocks,
            partial,
            journal,
            read_only,
            replay: read_only,
            bitmap,
            kernel: self.kernel,
            ..Default::default()
        };
        if read_only {
            return Array::assemble_to_read(offer, options, self.pool.clone(), self.clock.clone()).await;
        }
        let has_holes = offer.members.iter().any(|candidate| has_holes(&candidate.member));
        let array = Array::assemble_offer(offer, options, self.pool.clone(), self.clock.clone()).await?;
        if has_holes {
            // A hole says nothing of the rest of an image, however many there are.
            array.set_read_errors_max(u32::MAX);
        }
        Ok(array)
    }

    /// Has what a killed server answered be found.
    fn beside_write_buffer(&self, offer: Offer<AnyMember>, purpose: Purpose, force: bool) -> Offer<AnyMember> {
        if self.is_rehearsal() {
            // A rehearsal would take it from the array that it is of.
            return offer;
        }
        if self.has_overlay() && purpose != Purpose::Look {
            // Its writes would be the overlay's and the members'.
            let advice = "serve the array once without the overlay, which writes them";
            return without_answered_writes(offer, advice, write_buffer::copy_opened_by(force));
        }
        #[cfg(feature = "command")]
        let answers = self.write_back.get();
        #[cfg(not(feature = "command"))]
        let answers = None;
        let found = write_buffer::finder(member_names(&offer), write_buffer::Use { purpose, answers, force });
        Offer { write_buffer: Some(found), ..offer }
    }

    /// Puts memory over the members of an array that has a log. Assembly replays the log into it.
    async fn over_logs(&self, offer: Offer<AnyMember>) -> Offer<AnyMember> {
        let mut has_log = false;
        for Candidate { name, member } in &offer.members {
            has_log |= may_replay(name, member, &self.pool).await;
        }
        if !has_log {
            return offer;
        }
        let over = |Candidate { name, member }| Candidate { name, member: Overlay::in_memory(member).into() };
        Offer { members: offer.members.into_iter().map(over).collect(), ..offer }
    }

    /// Checks whether assembly for writing would succeed. It writes nothing and takes no lock.
    #[cfg(feature = "command")]
    pub(crate) async fn check_writable(&self, members: Vec<String>) -> Result<(), Refusal> {
        let paths: Vec<PathBuf> = members.iter().map(|name| path_of(name)).collect();
        let offer = self.over_logs(Offer::of(self.open_all(&paths, Purpose::Look)?)).await;
        Array::assemble_offer(offer, AssembleOptions::default(), self.pool.clone(), self.clock.clone()).await.map(drop)
    }

    /// Opens the file of a write-intent bitmap. mdadm ends such a file with its last bit. The engine reads and writes
    /// whole blocks, so its first write to the last block lengthens the file, which md and mdadm accept.
    pub(crate) fn open_bitmap(&self, path: &Path) -> Result<Candidate<AnyMember>, Refusal> {
        let name = name_of(path);
        if self.has_overlay() {
            return Err(
                Refusal::new("an overlay does not cover the file of a bitmap, which would be written to").of(name)
            );
        }
        let options = OpenOptions { whole_bytes: BITMAP_BLOCK_BYTES, ..OpenOptions::default() };
        let file = FileMember::open(path, &options).map_err(|error| not_opened(&error))?;
        let mut magic = [0; 4];
        let is_read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok();
        if !is_read || magic != *b"bitm" {
            return Err(Refusal::new("there is no write-intent bitmap")
                .of(name)
                .field("bitmap.magic")
                .advice("`mdspace create --bitmap` and `mdspace set bitmap=/FILE` make a new one"));
        }
        Ok(Candidate { name, member: file.into() })
    }

    /// Opens mdadm's backup file of a reshape, which is only read. The engine says whether it counts.
    pub(crate) fn open_backup(&self, path: &Path) -> Result<Candidate<AnyMember>, Refusal> {
        let options = OpenOptions { read_only: true, lock: Lock::Shared, ..OpenOptions::default() };
        let file = FileMember::open(path, &options).map_err(|error| not_opened(&error))?;
        Ok(Candidate { name: name_of(path), member: file.into() })
    }
}

/// The same, refused if a killed server had answered writes that the members may lack. `copy` is the advice if members are
/// a copy, and such writes wait for others of the same uuid; without it they are known to be one.
pub(crate) fn without_answered_writes(
    offer: Offer<AnyMember>,
    advice: &'static str,
    copy: Option<&'static str>,
) -> Offer<AnyMember> {
    Offer { write_buffer: Some(write_buffer::refusing_any(member_names(&offer), advice, copy)), ..offer }
}

fn member_names(offer: &Offer<AnyMember>) -> Vec<String> {
    offer.members.iter().map(|candidate| candidate.name.clone()).collect()
}

/// A member that is open and locked, but not bound to an executor yet.
struct Opened {
    medium: Medium,
    /// What it lacks, by its map.
    holes: Option<Holes>,
    layer: Option<Layer>,
    drive: Option<Drive>,
}

impl Opened {
    fn new(path: &Path, medium: Medium, holes: Option<Holes>, layer: Option<Layer>) -> Self {
        Self { medium, holes, layer, drive: Drive::of(&place::file_of(path)) }
    }

    /// Binds it to the current thread's executor: the writes of its overlay are over its holes.
    fn candidate(self, path: &Path) -> Candidate<AnyMember> {
        let Self { medium, holes, layer, .. } = self;
        let below = without(holes, medium.into_member());
        let member = match layer {
            None => below,
            Some(layer) => layer.over(below).into(),
        };
        Candidate { name: name_of(path), member }
    }
}

/// Opens a member. With an overlay it is only read, and the overlay's files are opened for `purpose`. What it lacks is
/// said by its map, or by the overlay, which was made with a map.
fn open_place(
    path: &Path,
    purpose: Purpose,
    mapped: Option<Mapped>,
    overlay: Option<&OverlayDirectory>,
) -> Result<Opened, OpenError> {
    let below = match (overlay, purpose) {
        (Some(_), Purpose::Write) => Purpose::Read,
        _ => purpose,
    };
    let medium = Medium::open(path, None, below)?;
    let holes = mapped.map(|mapped| mapped.holes(path, medium.bytes())).transpose()?.flatten();
    let Some(overlay) = overlay else { return Ok(Opened::new(path, medium, holes, None)) };
    let layer = overlay.layer(path, purpose, holes.as_ref())?;
    let holes = layer.as_ref().map_or(holes, |layer| layer.holes.clone());
    Ok(Opened::new(path, medium, holes, layer))
}

/// Creates an executor. If the user's locked memory is all in use, it retries: a process that has just ended may still
/// hold some. A short command takes threads instead, where it may.
fn executor(options: &io::Options, arena: Arena) -> std::io::Result<Executor> {
    let deadline = Instant::now() + LOCKED_MEMORY_TIMEOUT;
    loop {
        let made = Executor::new(options);
        let has_no_memory = match &made {
            Ok(executor) if arena == Arena::Large => executor.io_uring_refusal().map(std::io::Error::kind),
            Ok(_) => None,
            Err(error) => Some(error.kind()),
        } == Some(ErrorKind::OutOfMemory);
        if !has_no_memory || Instant::now() >= deadline {
            return made;
        }
        drop(made);
        std::thread::sleep(LOCKED_MEMORY_INTERVAL);
    }
}

/// The refusal when there is no executor, with advice.
fn not_started(backend: Choice, error: &std::io::Error) -> Refusal {
    let (name, otherwise) = match backend {
        Choice::Only(Backend::Threads) => (Backend::Threads, "check the system's limits on this process"),
        Choice::Only(Backend::IoUring) | Choice::Auto => (
            Backend::IoUring,
            "io_uring needs Linux 5.11 or later; check `sysctl kernel.io_uring_disabled` and a container's limits, or let \
             mdspace use threads (--io auto)",
        ),
    };
    let advice = match error.kind() {
        ErrorKind::OutOfMemory => {
            "raise the limit on locked memory (`ulimit -l`, LimitMEMLOCK= of a unit), end other programs that use it, or \
             let mdspace use threads (--io auto)"
        }
        _ if matches!(error.raw_os_error(), Some(TOO_MANY | TOO_MANY_OF_ALL)) => {
            "raise the limit on open files (`ulimit -n`, LimitNOFILE= of a unit), or end programs with many open files"
        }
        _ => otherwise,
    };
    Refusal::new(format!("{name}: {error}")).advice(advice)
}

/// The refusal for a member that cannot be opened, with advice.
pub(crate) fn not_opened(error: &OpenError) -> Refusal {
    let refusal = Refusal::new(error.reason()).of(name_of(error.path()));
    // For a device over the same bytes, the advice is that for the underlying error.
    let error = if let OpenError::Alias { source, .. } = error { &**source } else { error };
    match error {
        OpenError::Locked { .. } => {
            refusal.advice("stop the program that uses it; `mdspace status` finds your servers")
        }
        OpenError::Busy { .. } => refusal.advice("unmount it, or stop the array that holds it (mdadm --stop)"),
        OpenError::System { .. } if error.is_permission_denied() => refusal.advice(
            "`ls -lL` shows its owner; the owner or root can give you access: chmod, setfacl, or the disks' group",
        ),
        OpenError::System { .. } if error.is_without_locks() => refusal.advice(
            "its file system has no locks, without which two programs could use the member at once; mount it with local \
             locks (NFS: -o local_lock=flock), or copy the member to another file system",
        ),
        OpenError::System { action: crate::maps::ACTION, .. } => {
            refusal.advice("name the map that belongs to this image: --map IMAGE=MAPFILE")
        }
        OpenError::System { action: overlay::ACTION, .. } => {
            refusal.advice("`mdspace overlay show DIR` prints what it holds; discard or commit it, or name a new one")
        }
        OpenError::NotAMember { .. } | OpenError::Alias { .. } | OpenError::System { .. } => refusal,
    }
}

/// Refuses two paths of the same file.
pub(crate) fn refuse_duplicates(paths: &[PathBuf]) -> Result<(), Refusal> {
    let mut seen = std::collections::HashMap::new();
    for path in paths {
        let Ok(target) = place::identity(path) else { continue };
        if let Some(first) = seen.insert(target, path) {
            let reason = format!("the same member as {}, given before", name_of(first));
            return Err(Refusal::new(reason).of(name_of(path)).advice("name each member once"));
        }
    }
    Ok(())
}

/// Random bytes for a uuid.
pub(crate) fn random() -> Result<[u8; 16], Refusal> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Refusal::new(format!("random numbers: {error}")))?;
    Ok(bytes)
}
