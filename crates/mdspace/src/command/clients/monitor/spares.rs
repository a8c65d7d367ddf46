//! Which spare is moved: from an array that is whole to one of the same group that lacks a member. Pure.
//!
//! Facts: mdadm(8), "spare-group" in MONITOR MODE; mdadm's `Monitor.c` (`try_spare_migration`).

use crate::command::clients::served::ArrayView;
use std::collections::BTreeSet;

/// A spare that is to go from one array to another, by their places in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The spare, as the giver's status calls it.
    pub(super) spare: &'a str,
}

/// A spare and the UUID of an array that has refused it.
pub(super) type Refused = BTreeSet<(String, String)>;

/// Whether the array lacks a member and has nothing that could take its place.
fn is_in_need(array: &ArrayView) -> bool {
    let helps = |state: &str| matches!(state, "spare" | "recovering" | "replacement");
    let is_helped = array.members.iter().any(|member| helps(&member.state));
    array.in_sync < array.raid_disks && takes_members(array) && !is_helped
}

/// Whether the array is whole, so that it can give a spare away.
fn can_give(array: &ArrayView) -> bool {
    array.in_sync == array.raid_disks && takes_members(array)
}

fn takes_members(array: &ArrayView) -> bool {
    array.broken.is_none() && !array.read_only && array.sync_action != "frozen"
}

/// The first move that a group of arrays needs; `None` stands for one that is not served.
pub(super) fn wanted<'a>(group: &[Option<&'a ArrayView>], refused: &Refused) -> Option<Wanted<'a>> {
    let all = || group.iter().enumerate().filter_map(|(place, array)| array.map(|array| (place, array)));
    for (to, needy) in all().filter(|(_, array)| is_in_need(array)) {
        for (from, giver) in all().filter(|(_, array)| can_give(array)) {
            let spares = giver.members.iter().filter(|member| member.state == "spare");
            let is_new = |name: &str| !refused.contains(&(name.to_owned(), needy.uuid.clone()));
            if let Some(spare) = spares.map(|member| &*member.name).find(|name| is_new(name)) {
                return Some(Wanted { from, to, spare });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    /// `members`: a letter for the state of each.
    fn array(uuid: &str, raid_disks: u16, members: &str) -> ArrayView {
        let states = [('u', "in_sync"), ('s', "spare"), ('r', "recovering"), ('f', "faulty"), ('x', "replacement")];
        let state = |letter| states.iter().find(|(of, _)| *of == letter).expect("a state").1;
        let listed = members
            .chars()
            .enumerate()
            .map(|(number, letter)| json!({"name": format!("{uuid}{number}"), "state": state(letter)}));
        let in_sync = members.chars().filter(|letter| *letter == 'u').count();
        let array = ArrayView::deserialize(json!({
            "uuid": uuid, "name": uuid, "level": "raid5", "array_bytes": 1, "raid_disks": raid_disks,
            "in_sync": in_sync, "state": "clean", "broken": null, "read_only": false, "in_agreement": true,
            "sync_action": "idle", "sweep": null, "sweep_failure": null, "members": listed.collect::<Vec<_>>(),
            "served": {"pid": 1},
        }));
        array.expect("a status")
    }

    #[test]
    fn a_spare_goes_from_an_array_that_is_whole_to_one_that_lacks_a_member() {
        // Arrays of three slots, and the move, as FROM>TO: the spare's name.
        for (arrays, expected) in [
            (["uuus", "uu"], "0>1: 03"),
            (["uuus", "uuf"], "0>1: 03"),
            (["uu", "uuus"], "1>0: 13"),
            (["uuuss", "uu"], "0>1: 03"),
            (["uuu", "uu"], ""),
            (["uuus", "uuu"], ""),
            (["uuus", "uur"], ""),
            (["uuus", "uus"], ""),
            (["uuux", "uu"], ""),
            (["uus", "uu"], ""), // its own slot comes first
            (["uurs", "uu"], ""),
            (["uuff", "uu"], ""),
        ] {
            let arrays: Vec<ArrayView> =
                arrays.iter().enumerate().map(|(number, members)| array(&number.to_string(), 3, members)).collect();
            let group: Vec<Option<&ArrayView>> = arrays.iter().map(Some).collect();
            let found = wanted(&group, &Refused::new());
            let told = found.map_or(String::new(), |found| format!("{}>{}: {}", found.from, found.to, found.spare));
            assert_eq!(told, expected, "{arrays:?}");
        }
    }

    #[test]
    fn an_array_that_is_not_served_broken_read_only_or_frozen_neither_gives_nor_gets() {
        let (giver, needy) = (|| array("0", 3, "uuus"), || array("1", 3, "uu"));
        let moves =
            |giver: &ArrayView, needy: &ArrayView| wanted(&[Some(giver), Some(needy)], &Refused::new()).is_some();
        assert!(moves(&giver(), &needy()));
        assert_eq!(wanted(&[None, Some(&needy())], &Refused::new()), None);
        assert_eq!(wanted(&[Some(&giver()), None], &Refused::new()), None);
        let spoil: [fn(&mut ArrayView); 3] = [
            |array| array.broken = Some("two members".to_owned()),
            |array| array.read_only = true,
            |array| array.sync_action = "frozen".to_owned(),
        ];
        for spoil in spoil {
            let (mut spoilt_giver, mut spoilt_needy) = (giver(), needy());
            spoil(&mut spoilt_giver);
            spoil(&mut spoilt_needy);
            assert!(!moves(&spoilt_giver, &needy()) && !moves(&giver(), &spoilt_needy));
        }
    }

    #[test]
    fn a_spare_that_was_refused_is_not_tried_again_and_another_one_is() {
        let (giver, needy) = (array("0", 3, "uuuss"), array("1", 3, "uu"));
        let group = [Some(&giver), Some(&needy)];
        let mut refused = Refused::new();
        for expected in [Some("03"), Some("04"), None] {
            let found = wanted(&group, &refused).map(|found| found.spare);
            assert_eq!(found, expected);
            refused.extend(found.map(|name| (name.to_owned(), "1".to_owned())));
        }
    }
}
