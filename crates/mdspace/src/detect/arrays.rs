//! The arrays that members form, assembled for reading, and what is inside of them.

use crate::detect::layer::Layer;
use crate::detect::{Next, examine};
use crate::layers::{Bytes, Running};
use crate::machine::{Machine, Purpose};
use crate::maps::{HIDDEN, Maps};
use engine::examined::{Behind, Examination};
use engine::{Candidate, Refusal};
use io::AnyMember;
use serde::Serialize;
use std::rc::Rc;

/// An array of the members that were found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ArrayFound {
    /// Its UUID, as mdadm prints it.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// `raid5`
    pub level: &'static str,
    /// Number of slots.
    pub slots: u16,
    /// `clean`, `active`, with `, degraded`; none if it cannot be assembled.
    pub state: Option<String>,
    /// Its length.
    pub bytes: Option<u64>,
    /// The arrays that its members are inside of, by UUID; none if they are files or devices.
    pub inside_of: Vec<String>,
    /// Every member that was found, also those that are not used.
    pub members: Vec<MemberFound>,
    /// Slots without a member.
    pub missing: Vec<u16>,
    /// Members with fewer events than others: by how many, and what differs by the bitmap.
    pub behind: Vec<Behind>,
    /// What may be wrong: a log that was replayed, a reshape under way.
    pub warnings: Vec<String>,
    /// Why it cannot be assembled.
    pub refusal: Option<String>,
    /// Advice about the refusal.
    pub advice: Option<String>,
    /// What it holds.
    pub content: Option<Layer>,
    /// Commands that come next, by the command alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Vec<Next>>,
}

/// A member of an array.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct MemberFound {
    /// Its name, to give where a member is expected.
    pub name: String,
    /// Its role by its own superblock: `active 2`, `spare`.
    pub role: String,
    /// md's event count: changes of the metadata.
    pub events: u64,
    /// Seconds since 1970.
    pub updated: u64,
    /// Why it is not used: it is stale, or of another half.
    pub left_out: Option<String>,
}

/// An array, and the running engine if it can be assembled.
pub(crate) struct Assembled {
    pub(crate) found: ArrayFound,
    pub(crate) bytes: Option<Bytes>,
}

/// A member, and where it is.
pub(crate) struct Offered {
    pub(crate) candidate: Candidate<AnyMember>,
    /// If it is inside of an array: the UUID of that array, and its bytes.
    pub(crate) inside_of: Option<(String, Bytes)>,
}

/// Groups `members` by array, and assembles each.
pub(crate) async fn assemble(machine: &Machine, members: Vec<Offered>) -> Vec<Assembled> {
    let mut arrays: Vec<(ArrayFound, Vec<Offered>)> = Vec::new();
    let mut examinations = Vec::new();
    for offered in members {
        // A member that vanished since it was looked at is left out.
        let Candidate { name, member } = &offered.candidate;
        let Ok(member) = examine(machine, name, member).await else { continue };
        let found = member_of(&member);
        match arrays.iter_mut().find(|(array, _)| array.uuid == member.array_uuid) {
            Some((array, members)) => {
                array.members.push(found);
                members.push(offered);
            }
            None => arrays.push((array_of(&member, found), vec![offered])),
        }
        examinations.push(member);
    }
    let mut assembled = Vec::new();
    for (mut array, members) in arrays {
        let own: Vec<&Examination> = examinations.iter().filter(|member| member.array_uuid == array.uuid).collect();
        array.behind = Behind::among(&own);
        assembled.push(try_array(machine, array, members).await);
    }
    assembled
}

fn member_of(member: &Examination) -> MemberFound {
    let Examination { name, role, events, updated, .. } = member;
    MemberFound { name: name.clone(), role: role.clone(), events: *events, updated: *updated, left_out: None }
}

fn array_of(member: &Examination, first: MemberFound) -> ArrayFound {
    ArrayFound {
        uuid: member.array_uuid.clone(),
        name: member.array_name.clone(),
        level: member.level,
        slots: member.raid_disks,
        state: None,
        bytes: None,
        inside_of: Vec::new(),
        members: vec![first],
        missing: Vec::new(),
        behind: Vec::new(),
        warnings: Vec::new(),
        refusal: None,
        advice: None,
        content: None,
        next: None,
    }
}

async fn try_array(machine: &Machine, mut found: ArrayFound, members: Vec<Offered>) -> Assembled {
    let (mut candidates, mut below) = (Vec::new(), Vec::new());
    for Offered { candidate, inside_of } in members {
        candidates.push(candidate);
        if let Some((uuid, bytes)) = inside_of {
            if !found.inside_of.contains(&uuid) {
                found.inside_of.push(uuid);
            }
            below.push(bytes);
        }
    }
    let array = match machine.assemble_candidates(candidates, false, Purpose::Look).await {
        Ok(array) => array,
        Err(refusal) => {
            let hidden = Maps::hide(&refusal).then(|| HIDDEN.to_owned());
            let reason = refusal.reason_and_changes();
            let Refusal { member, field, advice, .. } = refusal;
            found.advice = advice.or(hidden);
            found.refusal = Some(member.into_iter().chain(field).chain([reason]).collect::<Vec<_>>().join(": "));
            return Assembled { found, bytes: None };
        }
    };
    let status = array.status();
    for left_out in status.left_out {
        if let Some(member) = found.members.iter_mut().find(|member| member.name == left_out.name) {
            member.left_out = Some(left_out.reason);
        }
    }
    // The freshest superblock counts, and the first member may be a stale one.
    (found.level, found.slots, found.name) = (status.level, status.raid_disks, status.name);
    (found.state, found.bytes, found.missing) = (Some(status.state), Some(status.array_bytes), status.missing);
    found.warnings = status.warnings;
    let bytes = Bytes::Array(Rc::new(Running { array, below }));
    found.content = Some(Layer::of(&bytes).await);
    Assembled { found, bytes: Some(bytes) }
}
