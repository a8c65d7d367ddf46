//! The thread that does the work: its executor and memory, and how members
//! come to it.
//!
//! Members are held exclusively when they may be written to, shared when they
//! are only read, and not at all when they are merely looked at. What is
//! refused here is refused with nothing changed.

#[cfg(feature = "command")]
use crate::elsewhere::Elsewhere;
use crate::names::name_of;
#[cfg(feature = "command")]
use crate::names::path_of;
use engine::{AssembleOptions, BitmapPolicy, Candidate, Offer, Pool, Refusal};
use futures_util::future::join3;
#[cfg(feature = "command")]
use io::OpenFile;
use io::{AnyMember, Executor, FileMember, Lock, OpenError, OpenOptions, RealClock};
use parity::Kernel;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An array of members that exist.
pub(crate) type Array = engine::Array<AnyMember, RealClock>;

/// How much memory is registered for transfers. It is pinned at the start, which takes its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "command"), expect(dead_code, reason = "the command has more uses"))]
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

/// How long a file system may take to open a file, at the least: the lock of a process that has just ended is waited for too.
#[cfg(feature = "command")]
pub(crate) const OPEN_PATIENCE: Duration = Duration::from_secs(10);

/// How long nothing is written before the array is marked clean: md's `safe_mode_delay`.
const SAFE_MODE_DELAY: Duration = Duration::from_millis(200);

/// How long the kernel may take to give back the locked memory of a process that has ended, and how often is looked.
const GIVEN_BACK_PATIENCE: Duration = Duration::from_secs(2);
const GIVEN_BACK_INTERVAL: Duration = Duration::from_millis(10);

/// What goes on beside the requests of an array that is open, until it is stopped: it is marked clean whenever it is idle,
/// bits of the bitmap are cleared, spares take over, and what is due is swept.
pub(crate) async fn keep_up(array: &Array) {
    join3(array.mark_clean_when_idle(SAFE_MODE_DELAY), array.clear_bitmap_lazily(), array.keep_whole()).await;
}

/// EMFILE and ENFILE of errno(3): too many files are open, of the process or of the system.
const TOO_MANY: i32 = 24;
const TOO_MANY_OF_ALL: i32 = 23;

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
    /// What waits for file systems.
    #[cfg(feature = "command")]
    pub(crate) elsewhere: Elsewhere,
}

/// What is going to happen to members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "command"), expect(dead_code, reason = "the command has more uses"))]
pub(crate) enum Purpose {
    /// They may be written to.
    Write,
    /// They are only read, as parts of an array.
    Read,
    /// They are looked at, whoever uses them.
    Look,
}

/// What its user has decided of an array that does not say so itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Consent {
    /// As [`AssembleOptions::force`].
    pub(crate) force: bool,
    /// As [`AssembleOptions::raid0_layout`].
    pub(crate) raid0_layout: Option<u32>,
    /// As [`AssembleOptions::ignore_bad_blocks`].
    pub(crate) ignore_bad_blocks: bool,
}

impl Machine {
    /// Makes this thread's.
    pub(crate) fn start(kernel: Option<&'static Kernel>, arena: Arena) -> Result<Self, Refusal> {
        let pool = Pool::new(arena.bytes());
        let executor = executor(&io::Options::new(pool.clone())).map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::OutOfMemory => {
                    "raise the limit on locked memory (`ulimit -l`, LimitMEMLOCK= of a unit), or end what else of yours uses it"
                }
                _ if matches!(error.raw_os_error(), Some(TOO_MANY | TOO_MANY_OF_ALL)) => {
                    "raise the limit on open files (`ulimit -n`, LimitNOFILE= of a unit), or end what else has them open"
                }
                _ => "Linux 5.11 or later is needed; see `sysctl kernel.io_uring_disabled`, and a container's limits",
            };
            Refusal::new(format!("io_uring: {error}")).advice(advice)
        })?;
        Ok(Self {
            executor,
            pool,
            clock: RealClock::new(),
            kernel,
            #[cfg(feature = "command")]
            elsewhere: Elsewhere::default(),
        })
    }

    /// Runs `work` to its end.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.executor.block_on(work)
    }

    /// Opens one member.
    pub(crate) fn open(&self, path: &Path, purpose: Purpose) -> Result<Candidate<AnyMember>, Refusal> {
        self.try_open(path, purpose).map_err(|error| not_opened(&error))
    }

    /// Opens one member, for who goes by the reason when that fails.
    pub(crate) fn try_open(&self, path: &Path, purpose: Purpose) -> Result<Candidate<AnyMember>, OpenError> {
        Ok(Candidate { name: name_of(path), member: FileMember::open(path, &options_for(purpose))?.into() })
    }

    /// As [`Machine::try_open`], while others are served: the file system may hang. Given up after `timeout`, what a
    /// member has for an operation, or [`OPEN_PATIENCE`] if that is longer.
    ///
    /// # Errors
    /// The outer one: it was given up.
    #[cfg(feature = "command")]
    pub(crate) async fn open_elsewhere(
        &self,
        path: &Path,
        purpose: Purpose,
        timeout: Option<Duration>,
    ) -> Result<Result<Candidate<AnyMember>, OpenError>, Refusal> {
        let (name, owned) = (name_of(path), path.to_owned());
        let open = move || OpenFile::open(&owned, &options_for(purpose));
        let patience = timeout.unwrap_or_default().max(OPEN_PATIENCE);
        let opened = self.elsewhere.run(&self.clock, patience, open).await;
        let opened = opened.map_err(|refusal| refusal.of(name.clone()))?;
        Ok(opened.map(|file| Candidate { name, member: file.into_member().into() }))
    }

    /// Opens all of them.
    pub(crate) fn open_all(&self, paths: &[PathBuf], purpose: Purpose) -> Result<Vec<Candidate<AnyMember>>, Refusal> {
        paths.iter().map(|path| self.open(path, purpose)).collect()
    }

    /// Assembles the array on members that are open.
    pub(crate) async fn assemble_candidates(
        &self,
        candidates: Vec<Candidate<AnyMember>>,
        force: bool,
        purpose: Purpose,
    ) -> Result<Array, Refusal> {
        let offer = Offer { members: candidates, bitmap: None };
        self.assemble_offer(offer, Consent { force, ..Consent::default() }, purpose, BitmapPolicy::default()).await
    }

    /// Assembles the array on what is offered.
    pub(crate) async fn assemble_offer(
        &self,
        offer: Offer<AnyMember>,
        consent: Consent,
        purpose: Purpose,
        bitmap: BitmapPolicy,
    ) -> Result<Array, Refusal> {
        let read_only = purpose != Purpose::Write;
        let Consent { force, raid0_layout, ignore_bad_blocks } = consent;
        let options = AssembleOptions {
            force,
            raid0_layout,
            ignore_bad_blocks,
            read_only,
            bitmap,
            kernel: self.kernel,
            ..Default::default()
        };
        Array::assemble_offer(offer, options, self.pool.clone(), self.clock.clone()).await
    }

    /// Whether the array on these members may be written to, as far as assembly can tell; nothing is written, and no lock is taken.
    #[cfg(feature = "command")]
    pub(crate) async fn check_writable(&self, members: Vec<String>) -> Result<(), Refusal> {
        let paths: Vec<PathBuf> = members.iter().map(|name| path_of(name)).collect();
        let offer = Offer { members: self.open_all(&paths, Purpose::Look)?, bitmap: None };
        Array::assemble_offer(offer, AssembleOptions::default(), self.pool.clone(), self.clock.clone()).await.map(drop)
    }

    /// Opens the file of a write-intent bitmap. mdadm ends one with its last bit; here it is read and written in whole
    /// blocks, so it is lengthened, which nobody minds, by the first write of its last one.
    pub(crate) fn open_bitmap(&self, path: &Path) -> Result<Candidate<AnyMember>, Refusal> {
        let name = name_of(path);
        let options = OpenOptions { whole_bytes: BITMAP_BLOCK_BYTES, ..OpenOptions::default() };
        let file = FileMember::open(path, &options).map_err(|error| not_opened(&error))?;
        let mut magic = [0; 4];
        let is_read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok();
        if !is_read || magic != *b"bitm" {
            return Err(Refusal::new("there is no write-intent bitmap")
                .of(name)
                .field("bitmap.magic")
                .advice("a new one is made by `mdspace create --bitmap` and `mdspace set bitmap=/FILE`"));
        }
        Ok(Candidate { name, member: file.into() })
    }
}

fn options_for(purpose: Purpose) -> OpenOptions {
    let (read_only, lock) = match purpose {
        Purpose::Write => (false, Lock::Exclusive),
        Purpose::Read => (true, Lock::Shared),
        Purpose::Look => (true, Lock::None),
    };
    OpenOptions { read_only, lock, ..OpenOptions::default() }
}

/// An executor; waited for while the user's locked memory is all in use, as that of a process that has ended may still be.
fn executor(options: &io::Options) -> std::io::Result<Executor> {
    let deadline = Instant::now() + GIVEN_BACK_PATIENCE;
    loop {
        match Executor::new(options) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory && Instant::now() < deadline => {
                std::thread::sleep(GIVEN_BACK_INTERVAL);
            }
            result => return result,
        }
    }
}

/// Says so with what to do about it.
pub(crate) fn not_opened(error: &OpenError) -> Refusal {
    let refusal = Refusal::new(error.reason()).of(name_of(error.path()));
    // What is to be done about another path of the same bytes is what is to be done about it.
    let error = if let OpenError::Alias { source, .. } = error { &**source } else { error };
    match error {
        OpenError::Locked { .. } => refusal.advice("stop whoever uses it; `mdspace status` finds a server of yours"),
        OpenError::Busy { .. } => refusal.advice("unmount it, or stop the array that holds it (mdadm --stop)"),
        OpenError::System { .. } if error.is_permission_denied() => refusal.advice(
            "`ls -lL` tells whose it is: the owner or root lets you in (chmod, setfacl, or the group of disks)",
        ),
        OpenError::NotAMember { .. } | OpenError::Alias { .. } | OpenError::System { .. } => refusal,
    }
}

/// Refuses a file that two of the paths lead to.
pub(crate) fn refuse_duplicates(paths: &[PathBuf]) -> Result<(), Refusal> {
    let mut seen = std::collections::HashMap::new();
    for path in paths {
        let Ok(target) = path.canonicalize() else { continue };
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
