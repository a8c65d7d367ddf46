//! The superblock 1.0 that takes over from a superblock 0.90, with the data where it is.
//!
//! It never writes. Both lie behind the data: 0.90 at least 64 KiB before the member's end, 1.0 at most 12 KiB before it,
//! so neither is in the other's place. The new one counts as created a second later, and the later of two counts.
//!
//! Facts: mdadm's `super1.c` (`super1_make_v0`) and `super0.c` (`update_super0`, "metadata"): the fields, and that a bitmap
//! or an unclean array is refused. Here events, flags of the member and failed devices are kept, too; mdadm drops them.

use super::{Rest, Resync, SetName, Superblock, Timestamp, Version, area, v1};
use crate::Defect;
use crate::units::Sectors;

impl Superblock {
    /// The superblock 1.0 that takes over from this one, of a member of `member_bytes`.
    ///
    /// # Errors
    /// When this one is not of version 0.90, or says what the other would lose or has no room for.
    pub fn as_1_0(&self, device_uuid: [u8; 16], member_bytes: u64) -> Result<Self, Defect> {
        let refuse = |field, reason: &str| Err(Defect::new(field, reason.to_owned()));
        let Rest::V0(rest) = &self.rest else {
            return refuse("superblock.major_version", "only metadata 0.90 becomes 1.0");
        };
        if self.other_byte_order {
            return refuse("superblock.md_magic", "it is of the other byte order");
        }
        if self.bitmap.is_some() {
            return refuse("superblock.state", "the array has a bitmap, which 1.0 keeps elsewhere");
        }
        if self.reshape.is_some() {
            return refuse("superblock.reshape_position", "a reshape is under way");
        }
        if self.resync != Resync::Clean {
            return refuse("superblock.state", "the array is not clean");
        }
        let Some(at) = Version::V1_0.place(member_bytes) else {
            return refuse("superblock.super_offset", "the member is too short for metadata 1.0");
        };
        let converted = Self {
            version: Version::V1_0,
            set_uuid: with_words_reversed(self.set_uuid),
            set_name: SetName::new(&rest.preferred_minor().to_string())?,
            created: Timestamp { seconds: self.created.seconds + 1, micros: 0 },
            super_offset: Sectors::from_bytes_down(at.0),
            data_size: self.data_size_as_1_0(),
            device_uuid: Some(device_uuid),
            rest: Rest::V1(Box::new(v1::Rest::empty())),
            ..self.clone()
        };
        area::check(&converted, member_bytes)?;
        Ok(converted)
    }

    /// Whether `later`, of metadata 1.0, is of the array that this one's array has become, by [`Self::as_1_0`] or by mdadm.
    pub fn became(&self, later: &Self) -> bool {
        let shape = |superblock: &Self| {
            let Self { level, layout, chunk, raid_disks, component, .. } = superblock;
            (*level, *layout, *chunk, *raid_disks, *component)
        };
        (self.version, later.version) == (Version::V0_90, Version::V1_0)
            && later.set_uuid == with_words_reversed(self.set_uuid)
            && later.created.seconds == self.created.seconds + 1
            && shape(self) == shape(later)
    }

    /// Whether this superblock is a remainder that `later` has taken over from, and nothing of the array has come to lie
    /// in its place since.
    pub fn is_left_by(&self, later: &Self) -> bool {
        self.became(later)
            && later.data_offset == Sectors(0)
            && later.data_size == self.data_size_as_1_0()
            && later.bitmap.is_none()
            && later.bad_blocks.is_none()
            && later.ppl.is_none()
            && later.reshape.is_none()
    }

    /// The data area of [`Self::as_1_0`]: of levels with a component no more than that, as mdadm writes it.
    fn data_size_as_1_0(&self) -> Sectors {
        if self.level.has_component() { self.component } else { self.data_size }
    }
}

/// 0.90 keeps a uuid as four numbers of its machine, 1.0 as bytes. mdadm prints both alike.
fn with_words_reversed(mut uuid: [u8; 16]) -> [u8; 16] {
    let (words, _) = uuid.as_chunks_mut::<4>();
    words.iter_mut().for_each(|word| word.reverse());
    uuid
}
