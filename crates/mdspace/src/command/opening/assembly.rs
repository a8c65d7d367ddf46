//! From arguments to an assembled array, with notes about its members on standard error.
//!
//! A file that this user may not read could be a member. So it is never counted as something else: a write would make
//! it stale.

use crate::command::opening::arguments::{AssembleArguments, MemberArguments};
use crate::command::opening::by_hand;
use crate::command::opening::members::{ArrayChoice, ArrayUuid, expand, expand_with_directories};
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use crate::command::text::progress::Progress;
use crate::machine::{Array, Machine, Purpose};
use crate::names::name_of;
use crate::whole_disks::{Disk, members_on};
use engine::inspect::find_superblock;
use engine::status::level_name;
use engine::{BitmapPolicy, Candidate, Offer, Refusal};
use format::Defect;
use format::superblock::Superblock;
use io::{AnyMember, OpenError};
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Resyncs the array if an unclean stop may have left parity or copies inconsistent. If a member is missing for that, a
/// note says so and the resync remains due; the data can be used meanwhile.
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
        tell!("note: resync: {error}");
    }
}

/// The files that arguments select.
pub(crate) struct Found {
    /// Paths of the array's members.
    pub(crate) own: Vec<PathBuf>,
    /// Files that this user may not read, and partitions whose superblock is damaged: they could be members.
    pub(crate) unknown: Vec<OpenError>,
}

impl Found {
    /// The members of one array.
    pub(crate) fn of(own: Vec<PathBuf>) -> Self {
        Self { own, unknown: Vec::new() }
    }

    /// Prints a note for each file that cannot be read.
    pub(crate) fn note_unknown(&self) {
        for error in &self.unknown {
            tell!("note: {}: passed over: {}", name_of(error.path()), error.reason());
        }
    }

    /// Refuses to write to an array that lacks a member while an unreadable file may be that member: the write would
    /// make it stale.
    fn suffices_for(&self, array: &Array) -> Result<(), Failure> {
        let (missing, Some(first)) = (array.status().missing.len(), self.unknown.first()) else { return Ok(()) };
        if missing == 0 {
            return Ok(());
        }
        let reason = format!("{}; it may be one of the {missing} missing members", first.reason());
        Err(Failure::refused(format!("{}: {reason}", name_of(first.path())))
            .advise("make it readable, or name the other members by their paths to continue without it"))
    }
}

/// A line about an array, with its members.
fn description((superblock, members): &(Superblock, Vec<String>)) -> String {
    let name = String::from_utf8_lossy(superblock.set_name.as_bytes()).escape_default().to_string();
    let level = level_name(superblock.level);
    format!("\n  --uuid {} \"{name}\" ({level}): {}", ArrayUuid(superblock.set_uuid), members.join(" "))
}

/// Refuses several arrays on disks, with their uuids and members.
fn check_one_array(arrays: &[(Superblock, Vec<String>)], advice: &str) -> Result<(), Failure> {
    if arrays.len() < 2 {
        return Ok(());
    }
    let described: String = arrays.iter().map(description).collect();
    let reason = format!("on these disks are members of {} arrays:{described}", arrays.len());
    Err(Failure::refused(reason).advise(advice))
}

/// The partitions of disks that may be members, but cannot be used.
pub(crate) fn unknown_on(disks: &[Disk]) -> Vec<OpenError> {
    let unknown = |(path, defect): (&Path, &Defect)| OpenError::System {
        path: path.to_owned(),
        action: "use its superblock",
        source: std::io::Error::other(format!("{}: {}", defect.field, defect.reason)),
    };
    disks.iter().flat_map(Disk::damaged).map(unknown).collect()
}

/// Prints what is odd about the tables of disks.
pub(crate) fn note_disks(disks: &[Disk]) {
    for note in disks.iter().flat_map(Disk::notes) {
        tell!("note: {note}");
    }
}

impl Machine {
    /// The paths in `arguments`; with `--uuid` or `--name` only the members of that array. A disk with partitions
    /// stands for the members on it.
    pub(crate) async fn find(&self, arguments: &MemberArguments) -> Result<Found, Failure> {
        let mut found = Found { own: Vec::new(), unknown: Vec::new() };
        let Some(choice) = arguments.choice() else {
            let words = expand(&arguments.members)?;
            self.maps.check_used(&words)?;
            let (own, disks) = members_on(words);
            self.check_disks(&disks, &own).await?;
            return Ok(Found { own, unknown: unknown_on(&disks) });
        };
        let words = expand_with_directories(&arguments.members)?;
        self.maps.check_used(&words)?;
        let (paths, disks) = members_on(words);
        note_disks(&disks);
        found.unknown = unknown_on(&disks);
        for path in paths {
            match self.try_open(&path, Purpose::Look) {
                Ok(candidate) if self.belongs_to(&choice, &candidate).await => found.own.push(path),
                Err(error) if error.is_permission_denied() => found.unknown.push(error),
                Ok(_) | Err(_) => {}
            }
        }
        if found.own.is_empty() {
            found.note_unknown();
            return Err(Failure::refused(format!("found no member of array {choice}"))
                .advise("`mdspace examine` prints which array a member belongs to"));
        }
        Ok(found)
    }

    /// The members that `words` name, for a command that changes the superblocks of one array. A disk with partitions
    /// stands for the members on it. An array that has the uuid `new` already is the same one, half changed.
    pub(crate) async fn members_to_change(
        &self,
        words: &[OsString],
        new: Option<[u8; 16]>,
    ) -> Result<Vec<PathBuf>, Failure> {
        let (own, disks) = members_on(expand(words)?);
        let may_be_member = "it may be a member; name the partitions to change";
        if let Some((disk, defect)) = disks.iter().find_map(|disk| Some((disk, disk.own.as_ref()?))) {
            return Err(Refusal::defect(&name_of(&disk.path), defect.clone()).advice(may_be_member).into());
        }
        if let Some(refusal) = disks.iter().find_map(Disk::without_members) {
            return Err(refusal.into());
        }
        if let Some((path, defect)) = disks.iter().flat_map(Disk::damaged).next() {
            return Err(Refusal::defect(&name_of(path), defect.clone()).advice(may_be_member).into());
        }
        if !disks.is_empty() {
            let mut arrays = self.arrays_of(&own).await;
            arrays.retain(|(superblock, _)| Some(superblock.set_uuid) != new);
            check_one_array(&arrays, "name the partitions of one of them (disk:3), as listed here")?;
            note_disks(&disks);
        }
        Ok(own)
    }

    async fn belongs_to(&self, choice: &ArrayChoice, Candidate { name, member }: &Candidate<AnyMember>) -> bool {
        let found = find_superblock(name, member, &self.pool).await;
        found.is_ok_and(|found| choice.is_of(&found.superblock))
    }

    /// Checks that each disk has a member, and that members on disks are of one array.
    async fn check_disks(&self, disks: &[Disk], own: &[PathBuf]) -> Result<(), Failure> {
        if let Some(refusal) = disks.iter().find_map(Disk::without_members) {
            return Err(refusal.into());
        }
        if disks.is_empty() {
            return Ok(());
        }
        let advice =
            "add the --uuid of the one that you mean, or name its partitions (disk:3); `mdspace detect` prints both";
        check_one_array(&self.arrays_of(own).await, advice)?;
        note_disks(disks);
        Ok(())
    }

    /// The arrays that `paths` belong to, each with a superblock and its members' names.
    async fn arrays_of(&self, paths: &[PathBuf]) -> Vec<(Superblock, Vec<String>)> {
        let mut arrays: Vec<(Superblock, Vec<String>)> = Vec::new();
        for path in paths {
            let Ok(Candidate { name, member }) = self.try_open(path, Purpose::Look) else { continue };
            let Ok(found) = find_superblock(&name, &member, &self.pool).await else { continue };
            match arrays.iter_mut().find(|(superblock, _)| superblock.set_uuid == found.superblock.set_uuid) {
                Some((_, members)) => members.push(name),
                None => arrays.push((found.superblock, vec![name])),
            }
        }
        arrays
    }

    /// The failure for `paths` that belong to several arrays: it lists the arrays and says how to choose one. `None` if
    /// they belong to one array.
    async fn several_arrays(&self, paths: &[PathBuf], refusal: &Refusal) -> Option<Failure> {
        let arrays = self.arrays_of(paths).await;
        let (first, others) = arrays.split_first()?;
        if others.is_empty() {
            return None;
        }
        let described: String = arrays.iter().map(description).collect();
        let odd = refusal.member.as_deref().unwrap_or("one of the members");
        let count = arrays.len();
        let reason = format!(
            "{odd}: superblock.set_uuid: belongs to another array; these are members of {count} arrays:{described}"
        );
        let uuid = ArrayUuid(first.0.set_uuid);
        Some(
            Failure::refused(reason)
                .advise(format!("choose one: --uuid {uuid}, or --name; `mdspace examine` shows them all")),
        )
    }

    /// Prints what the maps of these members say.
    pub(crate) fn note_maps(&self, paths: &[PathBuf]) {
        for path in paths {
            if let Some(note) = self.maps.note(path) {
                tell!("note: {}: {note}", name_of(path));
            }
        }
    }

    /// Assembles the array that `arguments` name.
    pub(crate) async fn assemble(
        &self,
        arguments: &AssembleArguments,
        purpose: Purpose,
        policy: BitmapPolicy,
    ) -> Result<Array, Failure> {
        if let Some((geometry, words)) = arguments.geometry() {
            if purpose == Purpose::Write {
                return Err(Failure::refused("--geometry: only for reading").advise(
                    "use it with `mdspace read`, `mdspace scrub`, or `mdspace serve --read-only`; \
                     `mdspace create --assume-clean --geometry` writes superblocks",
                ));
            }
            return by_hand::assemble(self, geometry, words).await;
        }
        let (members, _) = arguments.resolve()?;
        let found = self.find(&members).await?;
        self.assemble_found(arguments, &found, purpose, policy).await
    }

    /// Assembles the array of the members that were found.
    pub(crate) async fn assemble_found(
        &self,
        arguments: &AssembleArguments,
        found: &Found,
        purpose: Purpose,
        policy: BitmapPolicy,
    ) -> Result<Array, Failure> {
        let (_, bitmap_file) = arguments.resolve()?;
        found.note_unknown();
        let members = self.open_all(&found.own, purpose)?;
        self.note_maps(&found.own);
        let file = bitmap_file.as_deref().filter(|_| purpose == Purpose::Write);
        let bitmap = file.map(|path| self.open_bitmap(path)).transpose()?;
        let ignore_bad_blocks = arguments.ignore_bad_blocks;
        if ignore_bad_blocks && purpose == Purpose::Write {
            return Err(Failure::refused(
                "--ignore-bad-blocks: only for reading; a write would trust the blocks that the log lists",
            )
            .advise("use it with `mdspace read`, or with `mdspace serve --read-only`"));
        }
        if arguments.partial && purpose == Purpose::Write {
            return Err(Failure::refused(
                "--partial: only for reading; an array without enough members takes no writes",
            )
            .advise("use it with `mdspace read`, or with `mdspace serve --read-only`"));
        }
        if arguments.backup_file.is_some() && purpose == Purpose::Write {
            return Err(Failure::refused("--backup-file: only for reading; a reshape does not go on here")
                .advise("use it with `mdspace read`, or with `mdspace serve --read-only`"));
        }
        let backup = arguments.backup_file.as_deref().map(|path| self.open_backup(path)).transpose()?;
        let offer = Offer { bitmap, backup, ..Offer::of(members) };
        let array = match self.assemble_offer(offer, arguments.consent(), purpose, policy).await {
            Ok(array) => array,
            Err(refusal) if refusal.field.as_deref() == Some("superblock.set_uuid") => {
                return Err(self.several_arrays(&found.own, &refusal).await.unwrap_or_else(|| refusal.into()));
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let status = array.status();
        for left_out in status.left_out {
            tell!("note: {}: not used: {}", left_out.name, left_out.reason);
        }
        for member in status.members.iter().filter(|member| member.disk_error) {
            tell!("warning: {}: a NAS has set its flag \"disk error\": copy its data soon", member.name);
        }
        if ignore_bad_blocks {
            tell!("warning: bad-block logs are ignored: the blocks that they list may hold old data");
        }
        if let Some(path) = arguments.backup_file.as_deref().filter(|_| status.reshape.is_none()) {
            tell!("note: {}: not used: no reshape is under way", name_of(path));
        }
        for warning in status.warnings {
            tell!("warning: {warning}");
        }
        if purpose == Purpose::Write {
            found.suffices_for(&array)?;
            if let Some(directory) = self.overlay_directory() {
                tell!("note: every write goes to {}, and the members stay as they are", name_of(directory));
                if let Some(image) = self.only_read_under_overlay(&found.own) {
                    let image = name_of(image);
                    tell!(
                        "note: {image} is an image that is only read: the overlay can be kept or discarded, not committed"
                    );
                }
            }
        }
        Ok(array)
    }
}
