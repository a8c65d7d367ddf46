//! Members of metadata 0.90 that fail, are replaced and come back: a member that recovers is a spare in every superblock,
//! and takes the number of its slot in the end.

use super::{Life, RAID1, RAID5, RAID6, RAID10, Setup, Story, cut_everywhere, losable, lose_and_replace};
use format::superblock::{Counts, DeviceRole, Version, decode};
use format::units::Slot;

/// Metadata 0.90, in which a member that recovers is a spare, and then changes its number.
pub(super) const SETUPS: [Setup; 5] = [
    Setup { version: Version::V0_90, ..RAID1 },
    Setup { version: Version::V0_90, bitmap: true, lost: 1, ..RAID1 },
    Setup { version: Version::V0_90, bitmap: true, ..RAID5 },
    Setup { version: Version::V0_90, ..RAID6 },
    Setup { version: Version::V0_90, bitmap: true, ..RAID10 },
];

#[test]
fn power_may_go_at_any_write_of_a_replacement_in_metadata_0_90() {
    cut_everywhere(&SETUPS, Story::Replacement);
}

#[test]
fn power_may_go_at_any_write_of_a_re_add_in_metadata_0_90() {
    let setups: Vec<_> = SETUPS.into_iter().filter(|setup| setup.bitmap).collect();
    cut_everywhere(&setups, Story::Return);
}

/// In every superblock an active member's number is its slot, and all else is behind the slots: mdadm takes a number for
/// the slot when it asks whether members know each other.
#[test]
fn in_metadata_0_90_a_recovered_member_has_the_number_of_its_slot() {
    for (seed, setup) in SETUPS.into_iter().enumerate() {
        let life = Life::new(setup, seed as u64);
        let scene = async {
            let (members, blanks) = life.create().await;
            let array = life.serve(&members, false).await.expect("a whole array");
            life.fill(&array).await;
            lose_and_replace(&life, &array, &members, &blanks).await;
            array.stop().await.expect("stops clean");
            let lost = losable(&setup);
            let stayed = members.iter().enumerate().filter(|(slot, _)| !lost.contains(slot)).map(|(_, member)| member);
            for member in stayed.chain(&blanks) {
                let image = member.contents();
                let at = setup.version.place(image.len() as u64).expect("long enough");
                let found = decode(setup.version, at, &image[at.0 as usize..], image.len() as u64);
                let superblock = found.expect("sound").expect("a member");
                let slots = 0..setup.slots as u16;
                let active = slots.map(|slot| DeviceRole::Active(Slot(slot))).collect::<Vec<_>>();
                assert_eq!(superblock.roles[..setup.slots], active, "{setup:?}");
                let counts = Counts::of(&image[at.0 as usize..]).expect("0.90");
                assert_eq!((counts.total, counts.spare), (setup.slots as u32, 0), "{setup:?}");
                assert!(usize::from(superblock.device_number.0) < setup.slots, "{setup:?}");
            }
        };
        life.world.run(scene, || false).expect("not stopped");
    }
}
