//! Creation of an array, for the library and for `mdspace create`.
//!
//! If the array cannot be created, its new members are removed again, so that a refusal changes nothing.

use crate::error::Error;
use crate::machine::{Arena, Array, Machine, Purpose, random, refuse_duplicates};
use crate::made_files::MadeFiles;
use crate::names::name_of;
use crate::place::exists;
use engine::create::{Contents, Newcomer, Newcomers, Recipe, create_announced};
use engine::inspect::what_it_holds;
use engine::status::{Status, level_name};
use engine::{Candidate, Refusal};
use format::geometry::{Level, parse_layout};
use format::placement::BitmapChoice;
use io::AnyMember;
use std::path::{Path, PathBuf};

/// Creates an array of files or block devices.
///
/// The defaults are mdadm's: metadata 1.2, chunks of 512 KiB, the level's usual layout, no bitmap. The command `mdspace
/// create` can do more: spares, missing members, other metadata.
///
/// # Example
/// ```
/// # let place = tempfile::tempdir()?;
/// # let members = ["a.img", "b.img", "c.img"].map(|name| place.path().join(name));
/// use mdspace::{Create, Level};
///
/// let status = Create::new(Level::Raid5).chunk_bytes(64 << 10).member_bytes(16 << 20).create(&members)?;
/// assert_eq!(status.state, "clean");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Create {
    level: Level,
    layout: Option<String>,
    chunk_bytes: Option<u64>,
    name: String,
    member_bytes: Option<u64>,
    bitmap: bool,
    integrity: bool,
    overwrite: bool,
}

impl Create {
    /// An array of this level.
    pub fn new(level: Level) -> Self {
        Self {
            level,
            layout: None,
            chunk_bytes: None,
            name: String::new(),
            member_bytes: None,
            bitmap: false,
            integrity: false,
            overwrite: false,
        }
    }

    /// The layout, by mdadm's name: `left-symmetric`, `n2`.
    pub fn layout(mut self, name: impl Into<String>) -> Self {
        self.layout = Some(name.into());
        self
    }

    /// Bytes in a chunk; of a linear array those to a multiple of which each member is cut.
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// The array's name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Creates each member that does not exist, as a sparse file of `bytes`.
    pub fn member_bytes(mut self, bytes: u64) -> Self {
        self.member_bytes = Some(bytes);
        self
    }

    /// Whether its members have a write-intent bitmap, so that after an unclean stop only recently written ranges are
    /// resynced.
    pub fn bitmap(mut self, bitmap: bool) -> Self {
        self.bitmap = bitmap;
        self
    }

    /// Whether it keeps checksums of all blocks, which md does not know: a corrupt block is then a read error, not
    /// wrong data.
    pub fn integrity(mut self, integrity: bool) -> Self {
        self.integrity = integrity;
        self
    }

    /// Whether to overwrite members that belong to an array, or hold other data: a file system, a partition table, or a
    /// beginning that is not zeros. Their data is lost.
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Creates the array of these members, in the order of its slots, and leaves it clean. If not all members are new
    /// files, parity or copies are computed, which writes to all members. Returns the final status.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) with nothing changed, and all new files removed;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when a member failed during a write ([`Error::changed`] says what was
    /// changed), or when the resync could not be completed: the next opening for writing continues it.
    ///
    /// # Panics
    /// When the thread for the creation cannot be started.
    pub fn create<P: AsRef<Path>>(&self, members: impl IntoIterator<Item = P>) -> Result<Status, Error> {
        let slots: Vec<_> = members.into_iter().map(|member| Some(member.as_ref().to_owned())).collect();
        // A thread can have only one executor, and the caller's thread may have one.
        let made = std::thread::scope(|scope| scope.spawn(|| self.make(&slots)).join());
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn make(&self, slots: &[Option<PathBuf>]) -> Result<Status, Error> {
        let paths: Vec<_> = slots.iter().flatten().cloned().collect();
        refuse_duplicates(&paths)?;
        let recipe = self.recipe()?;
        let machine = Machine::start(None, Arena::Medium)?;
        machine.run(async {
            let devices = Devices { slots, spares: &[], journal: None };
            let (array, made) = create(&machine, recipe, devices, self.member_bytes, &Unwatched).await?;
            made.keep();
            let resynced = array.resync(&|_, _| {}).await;
            let stopped = array.stop().await;
            resynced.and(stopped)?;
            Ok(array.status())
        })
    }

    fn recipe(&self) -> Result<Recipe, Refusal> {
        let level = level_name(self.level);
        let default = default_recipe(self.level)?;
        let layout = |name: &String| {
            let unknown = || Refusal::new(format!("{level} has no layout {name:?}")).field("layout");
            parse_layout(self.level, name).ok_or_else(unknown)
        };
        if self.chunk_bytes.is_some() && !self.level.has_chunks() && self.level != Level::Linear {
            return Err(Refusal::new(format!("{level} has no chunks")).field("chunk"));
        }
        Ok(Recipe {
            layout: self.layout.as_ref().map_or(Ok(default.layout), layout)?,
            chunk_bytes: self.chunk_bytes.unwrap_or(default.chunk_bytes),
            name: self.name.clone(),
            bitmap: if self.bitmap { BitmapChoice::DefaultChunk } else { BitmapChoice::None },
            integrity: self.integrity,
            overwrite: self.overwrite,
            ..default
        })
    }
}

/// The recipe for `level` with all defaults and a random uuid.
pub(crate) fn default_recipe(level: Level) -> Result<Recipe, Refusal> {
    Ok(Recipe::new(level, random()?))
}

/// The paths of a new array's members.
#[derive(Clone, Copy)]
pub(crate) struct Devices<'a> {
    /// By slot, `None` for a missing member.
    pub(crate) slots: &'a [Option<PathBuf>],
    pub(crate) spares: &'a [PathBuf],
    /// The device of the write journal.
    pub(crate) journal: Option<&'a PathBuf>,
}

impl<'a> Devices<'a> {
    pub(crate) fn all(self) -> impl Iterator<Item = &'a PathBuf> {
        self.slots.iter().flatten().chain(self.spares).chain(self.journal)
    }
}

/// Receives reports about a creation.
pub(crate) trait Watcher {
    /// Announces what will be overwritten, before it is.
    fn announce(&self, what: &str);
    /// Reports the bytes zeroed so far, and their total.
    fn progress(&self, done: u64, total: u64);
}

/// Ignores all reports.
struct Unwatched;

impl Watcher for Unwatched {
    fn announce(&self, _: &str) {}
    fn progress(&self, _: u64, _: u64) {}
}

/// Creates the array that `recipe` describes. Members that do not exist become sparse
/// files of `member_bytes`. The array is running and may need a resync. The caller must keep the files.
pub(crate) async fn create(
    machine: &Machine,
    mut recipe: Recipe,
    devices: Devices<'_>,
    member_bytes: Option<u64>,
    watcher: &dyn Watcher,
) -> Result<(Array, MadeFiles), Refusal> {
    let mut made = MadeFiles::default();
    for path in devices.all() {
        if machine.has_overlay() && !exists(path) {
            let refusal = Refusal::new("no such file or device, and with --overlay none is made").of(name_of(path));
            return Err(refusal);
        }
        made.make_if_absent(path, member_bytes)?;
    }
    let are_all_new = are_all_new(&made, devices);
    if are_all_new {
        recipe.contents = Contents::Zeros;
    }
    let open = |path: &PathBuf| -> Result<Newcomer<AnyMember>, Refusal> {
        Ok(Newcomer { candidate: machine.open(path, Purpose::Write)?, device_uuid: random()? })
    };
    let slots = devices.slots.iter().map(|slot| slot.as_ref().map(open).transpose()).collect::<Result<Vec<_>, _>>()?;
    let spares = devices.spares.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let journal = devices.journal.map(open).transpose()?;
    let recipe = recipe.settled(&Newcomers { slots: &slots, spares: &spares, journal: journal.as_ref() });
    let losses = if are_all_new {
        Vec::new()
    } else {
        losses(machine, &recipe, slots.iter().flatten().chain(&spares).chain(&journal)).await
    };
    // A rehearsal fills no members: their bytes would be memory.
    let contents = if machine.is_rehearsal() { Contents::Consistent } else { recipe.contents };
    let written = Recipe { contents, ..recipe };
    let created = async {
        let progress = |done, total| watcher.progress(done, total);
        let begin = || losses.iter().for_each(|loss| watcher.announce(loss));
        let newcomers = Newcomers { slots: &slots, spares: &spares, journal: journal.as_ref() };
        create_announced(&written, newcomers, &machine.pool, &machine.clock, &progress, &begin).await?;
        let candidates =
            slots.into_iter().flatten().chain(spares).chain(journal).map(|newcomer| newcomer.candidate).collect();
        let array = machine.assemble_candidates(candidates, true, Purpose::Write).await;
        array.map_err(|refusal| refusal.after("the array was created, and cannot be assembled"))
    };
    match created.await {
        Ok(array) => Ok((array, made)),
        // Dropping `made` removes everything that was changed.
        Err(refusal) if are_all_new => Err(Refusal { changed: None, advice: None, ..refusal }),
        Err(refusal) => Err(refusal),
    }
}

/// Data that existing members will lose.
async fn losses<'a>(
    machine: &Machine,
    recipe: &Recipe,
    newcomers: impl Iterator<Item = &'a Newcomer<AnyMember>> + Clone,
) -> Vec<String> {
    let mut losses = Vec::new();
    if recipe.overwrite {
        for Newcomer { candidate: Candidate { name, member }, .. } in newcomers.clone() {
            if let Some(what) = what_it_holds(name, member, &machine.pool).await {
                losses.push(format!("{name}: holds {what}, which --force overwrites"));
            }
        }
    }
    let first = newcomers.map(|newcomer| &newcomer.candidate.name).next();
    match (recipe.level, first) {
        _ if recipe.contents != Contents::Unknown => {}
        _ if matches!(recipe.bitmap, BitmapChoice::Lockless(_)) => {
            losses.push("what the members hold counts as never written: it may be lost with any of them".into());
        }
        _ if recipe.fills_with_zeros() => {
            losses.push("the members in slots are overwritten with zeros, so that parity is right".into());
        }
        (Level::Raid4 | Level::Raid5 | Level::Raid6, _) => {
            losses.push("parity is computed over a part of each member in a slot".into());
        }
        (Level::Raid1, Some(first)) => {
            losses.push(format!("the data of {first} is copied over the other members in slots"));
        }
        (Level::Raid10, _) => losses.push("the first copy of each chunk is copied over the others".into()),
        (Level::Raid1, None) | (Level::Linear | Level::Raid0, _) => {}
    }
    losses
}

/// Whether all members are new files, so that removing them undoes the creation.
pub(crate) fn are_all_new(made: &MadeFiles, devices: Devices<'_>) -> bool {
    made.count() == devices.all().count()
}
