//! From arguments to an array: which members are meant, and what is said about them.
//!
//! What may not be looked at is never taken for something else: it could be a member, which would be left behind.

use crate::command::arguments::{AssembleArguments, MemberArguments, Raid0Layout};
use crate::command::failure::Failure;
use crate::command::members::{ArrayUuid, expand, expand_with_directories};
use crate::command::output::tell;
use crate::command::progress::Progress;
use crate::machine::{Array, Consent, Machine, Purpose};
use engine::inspect::find_superblock;
use engine::{BitmapPolicy, Candidate, Offer};
use io::{AnyMember, OpenError};
use std::cell::RefCell;
use std::path::PathBuf;

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
        tell!("note: resync: {error}");
    }
}

/// What arguments lead to.
pub(crate) struct Found {
    /// The paths that are meant.
    pub(crate) own: Vec<PathBuf>,
    /// Those that may be meant, if they could be looked at.
    unknown: Vec<OpenError>,
}

impl Found {
    /// Says what could not be looked at.
    pub(crate) fn note_unknown(&self) {
        for error in &self.unknown {
            tell!("note: {}: passed over: {}", error.path().display(), error.reason());
        }
    }

    /// Refuses to write to an array that lacks a member, while one is passed over that may be it: it would be left behind.
    fn suffices_for(&self, array: &Array) -> Result<(), Failure> {
        let (missing, Some(first)) = (array.status().missing.len(), self.unknown.first()) else { return Ok(()) };
        if missing == 0 {
            return Ok(());
        }
        let reason = format!("{}; it may be one of the {missing} members that are missing", first.reason());
        Err(Failure::refused(format!("{}: {reason}", first.path().display()))
            .advise("see to it that you may open it, or name the members by their paths to go on without"))
    }
}

impl Machine {
    /// The paths that `arguments` name; of those, with `--uuid`, the array's own.
    pub(crate) async fn find(&self, arguments: &MemberArguments) -> Result<Found, Failure> {
        let mut found = Found { own: Vec::new(), unknown: Vec::new() };
        let Some(uuid) = arguments.uuid else {
            return expand(&arguments.members).map(|own| Found { own, ..found });
        };
        for path in expand_with_directories(&arguments.members)? {
            match self.try_open(&path, Purpose::Look) {
                Ok(candidate) if self.belongs_to(uuid, &candidate).await => found.own.push(path),
                Err(error) if error.is_permission_denied() => found.unknown.push(error),
                Ok(_) | Err(_) => {}
            }
        }
        if found.own.is_empty() {
            found.note_unknown();
            return Err(Failure::refused(format!("no member of array {uuid} is there"))
                .advise("`mdspace examine` prints which array a member belongs to"));
        }
        Ok(found)
    }

    async fn belongs_to(&self, uuid: ArrayUuid, Candidate { name, member }: &Candidate<AnyMember>) -> bool {
        let found = find_superblock(name, member, &self.pool).await;
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
        let found = self.find(&members).await?;
        found.note_unknown();
        let members = self.open_all(&found.own, purpose)?;
        let file = bitmap_file.as_deref().filter(|_| purpose == Purpose::Write);
        let bitmap = file.map(|path| self.open_bitmap(path)).transpose()?;
        let raid0_layout = arguments.raid0_layout.map(Raid0Layout::number);
        let consent = Consent { force: arguments.force, raid0_layout };
        let array = self.assemble_offer(Offer { members, bitmap }, consent, purpose, policy).await?;
        for left_out in array.status().left_out {
            tell!("note: {}: not used: {}", left_out.name, left_out.reason);
        }
        if purpose == Purpose::Write {
            found.suffices_for(&array)?;
        }
        Ok(array)
    }
}
