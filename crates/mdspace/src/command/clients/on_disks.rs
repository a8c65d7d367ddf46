//! Arrays on disks that no server of this user serves.
//!
//! It only reads, also members in use, and takes no lock. An array is tried by the rules of `serve --read-only`, without
//! starting it.

use crate::command::clients::served::{Answer, ArrayView, OnDisks, Served};
use crate::command::opening::mdadm_conf::{Config, block_devices};
use crate::command::opening::members::expand_with_directories;
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use crate::machine::{Arena, Machine, Purpose};
use crate::names::name_of;
use crate::whole_disks::members_on;
use engine::examined::Examination;
use engine::inspect::find_superblock;
use engine::{Candidate, Member};
use io::AnyMember;
use serde::Deserialize;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;

/// The arrays on `disks`, or on all, that are not among `served`.
pub(super) fn find(disks: &[OsString], served: &[Served]) -> Result<Vec<Served>, Failure> {
    let machine = Machine::start(None, Arena::Small)?;
    let paths = expand_with_directories(&places(disks))?;
    let is_served = |uuid: &str| served.iter().any(|one| one.array().is_some_and(|array| array.uuid == uuid));
    machine.run(async {
        let mut found: Vec<(Examination, Vec<Candidate<AnyMember>>)> = Vec::new();
        let mut closed = Vec::new();
        for path in members_on(paths).0 {
            let Ok(candidate) = machine.open(&path, Purpose::Look) else {
                closed.push(path);
                continue;
            };
            let Candidate { name, member } = &candidate;
            let Ok(superblock) = find_superblock(name, member, &machine.pool).await else { continue };
            let examination = Examination::of(name, member.limits().bytes, &superblock);
            match found.iter_mut().find(|(first, _)| first.array_uuid == examination.array_uuid) {
                Some((_, candidates)) => candidates.push(candidate),
                None if is_served(&examination.array_uuid) => {}
                None => found.push((examination, vec![candidate])),
            }
        }
        if let [first, others @ ..] = &closed[..] {
            let others = if others.is_empty() { String::new() } else { format!(" and {} others", others.len()) };
            tell!("note: {}{others} cannot be opened: arrays there are not listed", name_of(first));
        }
        let mut arrays = Vec::new();
        for (first, candidates) in found {
            arrays.push(tried(&machine, first, candidates).await);
        }
        Ok(arrays)
    })
}

/// Where to look.
fn places(disks: &[OsString]) -> Vec<OsString> {
    if !disks.is_empty() {
        return disks.to_vec();
    }
    Config::read(None).map_or_else(|_| block_devices(), |config| config.all_places())
}

async fn tried(machine: &Machine, first: Examination, candidates: Vec<Candidate<AnyMember>>) -> Served {
    let members = candidates.iter().map(|candidate| candidate.name.clone()).collect();
    let tried = machine.assemble_candidates(candidates, false, Purpose::Look).await;
    let array = tried.map_err(|refusal| Failure::from(refusal).reason()).and_then(|array| {
        let mut status = json!(array.status());
        status["served"] = json!({ "pid": 0 }); // there is no server
        status["read_only"] = false.into(); // it was only opened so
        ArrayView::deserialize(&status).map_err(|error| error.to_string())
    });
    let found = OnDisks { uuid: first.array_uuid, name: first.array_name, members, array };
    Served { socket: PathBuf::new(), answer: Answer::NotServed(Box::new(found)) }
}
