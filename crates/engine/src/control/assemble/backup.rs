//! Finds mdadm's backup of the bytes that a reshape in place writes over: in the file that the caller gave, or on the
//! members that a growing array got.
//!
//! It only reads. Which backup counts, and which bytes it has: [`format::backup`].
//!
//! Facts: `Grow_restart` and `reshape_prepare_fdlist` in mdadm's `Grow.c`.

use crate::base::buffer::Pool;
use crate::control::election::Offered;
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::{Candidate, Member};
use format::Defect;
use format::backup::{Backup, HEADER_BYTES, HEADER_DISTANCE, Saved};
use format::superblock::{DeviceRole, Reshape, Superblock};
use format::units::MemberByte;
use std::rc::Rc;

const ADVICE: &str = "give the file that `mdadm --grow --backup-file` named; --force takes one of another time";

/// A backup that counts.
pub(super) struct FoundBackup<M> {
    /// The file or member that it is on.
    pub(super) on: Rc<Candidate<M>>,
    /// The bytes that it has, from the reshape's position on.
    pub(super) saved: Vec<Saved>,
    /// No part of it begins before the position.
    pub(super) begins_there: bool,
}

/// What a backup has, wherever it is: as in [`FoundBackup`].
struct ReadBackup {
    saved: Vec<Saved>,
    begins_there: bool,
}

impl ReadBackup {
    fn on<M>(self, on: Candidate<M>) -> FoundBackup<M> {
        FoundBackup { on: Rc::new(on), saved: self.saved, begins_there: self.begins_there }
    }
}

/// The reshape that a backup must be of.
pub(super) struct Wanted<'a> {
    /// The freshest superblock.
    pub(super) of: &'a Superblock,
    pub(super) reshape: &'a Reshape,
    /// Take a backup of another time.
    pub(super) any_time: bool,
}

impl Wanted<'_> {
    /// The backup in `file`.
    ///
    /// # Errors
    /// When it does not count.
    pub(super) async fn in_file<M: Member>(&self, file: Candidate<M>, pool: &Pool) -> Result<FoundBackup<M>, Refusal> {
        match self.read(&file.member, MemberByte(0), pool).await {
            Ok(read) => Ok(read.on(file)),
            Err(defect) => Err(Refusal::defect(&file.name, defect).advice(ADVICE)),
        }
    }

    /// The first backup that counts on the members that a reshape to more members adds, or on spares.
    pub(super) async fn on_members<M: Member + Clone>(
        &self,
        offered: &[Offered<M>],
        pool: &Pool,
    ) -> Option<FoundBackup<M>> {
        let old_slots = i64::from(self.of.raid_disks) - i64::from(self.reshape.delta_disks);
        for Offered { name, member, found } in offered.iter().filter(|_| self.reshape.delta_disks > 0) {
            let own = &found.superblock;
            let is_new = match own.own_role() {
                DeviceRole::Active(slot) => i64::from(slot.0) >= old_slots,
                role => role == DeviceRole::Spare,
            };
            let end = own.data_offset.0.checked_add(own.component.0).and_then(|end| end.checked_mul(512));
            let Some(at) = end.and_then(|end| end.checked_sub(HEADER_DISTANCE)).filter(|_| is_new) else { continue };
            if let Ok(read) = self.read(member, MemberByte(at), pool).await {
                return Some(read.on(Candidate { name: name.clone(), member: member.clone() }));
            }
        }
        None
    }

    /// What the backup has whose header is at `at`.
    async fn read<M: Member>(&self, member: &M, at: MemberByte, pool: &Pool) -> Result<ReadBackup, Defect> {
        let header = async |field, at: MemberByte| {
            let bytes = read_bytes(member, pool, at, HEADER_BYTES as u64).await;
            bytes.map_err(|reason| Defect::new(field, reason))
        };
        let Some(backup) = Backup::decode(&header("backup.magic", at).await?)? else {
            return Err(Defect::new("backup.magic", "no backup of mdadm's begins here"));
        };
        let saved = backup.unmoved(self.of, self.reshape, self.any_time)?;
        let again = backup.second_header_at().ok_or_else(|| Defect::new("backup.devstart", "before the header"))?;
        if !backup.is_header(&header("backup.devstart", again).await?) {
            let reason = format!("the header is not repeated at byte {}, before the data", again.0);
            return Err(Defect::new("backup.devstart", reason));
        }
        let bytes = member.limits().bytes;
        match saved.iter().find(|saved| saved.at.0.saturating_add(saved.range.end - saved.range.start) > bytes) {
            None => {
                let begins = |saved: &Saved| saved.range.start < self.reshape.position.bytes();
                Ok(ReadBackup { saved, begins_there: !backup.saved.iter().any(begins) })
            }
            Some(Saved { range, at }) => {
                let reason =
                    format!("bytes {} to {} from byte {} on, but it ends at {bytes}", range.start, range.end, at.0);
                Err(Defect::new("backup.length", reason))
            }
        }
    }
}
