//! The arrays that members form, assembled for reading, and what is inside of them.

use crate::command::cli::detect::layer::Layer;
use crate::command::cli::detect::next::Next;
use crate::command::text::failure::Failure;
use crate::machine::{Array, Machine, Purpose};
use disk::Source;
use engine::examined::Examination;
use engine::inspect::find_superblock;
use engine::{Candidate, Refusal};
use io::AnyMember;
use serde::Serialize;
use std::path::PathBuf;

/// An array of the members that were found.
#[derive(Serialize)]
pub(crate) struct ArrayFound {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) level: &'static str,
    pub(crate) slots: u16,
    /// `clean`, `active`, with `, degraded`; none if it cannot be assembled.
    pub(crate) state: Option<String>,
    pub(crate) bytes: Option<u64>,
    /// Every member that was found, also those that are not used.
    pub(crate) members: Vec<MemberFound>,
    /// Slots without a member.
    pub(crate) missing: Vec<u16>,
    /// Why it cannot be assembled.
    pub(crate) refusal: Option<String>,
    /// Advice about the refusal.
    pub(crate) advice: Option<String>,
    /// What it holds.
    pub(crate) content: Option<Layer>,
    /// Commands that come next.
    pub(crate) next: Vec<Next>,
}

/// A member of an array.
#[derive(Serialize)]
pub(crate) struct MemberFound {
    pub(crate) name: String,
    /// Its role by its own superblock: `active 2`, `spare`.
    pub(crate) role: String,
    pub(crate) events: u64,
    /// Seconds since 1970.
    pub(crate) updated: u64,
    /// Why it is not used: it is stale, or of another half.
    pub(crate) left_out: Option<String>,
}

impl ArrayFound {
    /// Whether its content is of this kind.
    pub(crate) fn holds(&self, kind: &str) -> bool {
        self.content.as_ref().is_some_and(|content| content.kind == kind)
    }
}

/// An array, and the running engine if it can be assembled.
pub(crate) struct Assembled {
    pub(crate) found: ArrayFound,
    pub(crate) array: Option<ArraySource>,
}

/// The bytes of an array.
pub(crate) struct ArraySource(Array);

impl ArraySource {
    /// The bytes of a running array.
    pub(crate) fn of(array: &Array) -> Self {
        Self(array.clone())
    }
}

impl Source for ArraySource {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        let read = self.0.read(at, self.0.pool().take(length)).await;
        read.map(|buffer| buffer.to_vec()).map_err(|error| error.reason)
    }
}

/// Groups `members` by array, and assembles each.
pub(crate) async fn assemble(machine: &Machine, members: &[PathBuf]) -> Vec<Assembled> {
    let mut arrays: Vec<(ArrayFound, Vec<Candidate<AnyMember>>)> = Vec::new();
    for path in members {
        // A member that vanished since it was looked at is left out.
        let Ok(candidate) = machine.open(path, Purpose::Look) else { continue };
        let Ok(member) = examine(machine, &candidate).await else { continue };
        let found = member_of(&member);
        match arrays.iter_mut().find(|(array, _)| array.uuid == member.array_uuid) {
            Some((array, candidates)) => {
                array.members.push(found);
                candidates.push(candidate);
            }
            None => arrays.push((array_of(member, found), vec![candidate])),
        }
    }
    let mut assembled = Vec::new();
    for (array, candidates) in arrays {
        assembled.push(try_array(machine, array, candidates).await);
    }
    assembled
}

async fn examine(machine: &Machine, candidate: &Candidate<AnyMember>) -> Result<Examination, Refusal> {
    use engine::Member;
    let Candidate { name, member } = candidate;
    let found = find_superblock(name, member, &machine.pool).await?;
    Ok(Examination::of(name, member.limits().bytes, &found))
}

fn member_of(member: &Examination) -> MemberFound {
    let Examination { name, role, events, updated, .. } = member;
    MemberFound { name: name.clone(), role: role.clone(), events: *events, updated: *updated, left_out: None }
}

fn array_of(member: Examination, first: MemberFound) -> ArrayFound {
    ArrayFound {
        uuid: member.array_uuid,
        name: member.array_name,
        level: member.level,
        slots: member.raid_disks,
        state: None,
        bytes: None,
        members: vec![first],
        missing: Vec::new(),
        refusal: None,
        advice: None,
        content: None,
        next: Vec::new(),
    }
}

async fn try_array(machine: &Machine, mut found: ArrayFound, candidates: Vec<Candidate<AnyMember>>) -> Assembled {
    let array = match machine.assemble_candidates(candidates, false, Purpose::Look).await {
        Ok(array) => array,
        Err(refusal) => {
            let failure = Failure::from(refusal);
            found.advice = failure.advice();
            found.refusal = Some(failure.reason());
            return Assembled { found, array: None };
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
    let array = ArraySource(array);
    found.content = Some(Layer::of(&array).await);
    Assembled { found, array: Some(array) }
}
