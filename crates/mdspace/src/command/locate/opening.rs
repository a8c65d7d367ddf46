//! Opens what the bytes count in, for a look, with everything else on the same disks that may have a part of it.

use crate::command::opening::arguments::AssembleArguments;
use crate::command::opening::assembly::note_disks;
use crate::command::opening::members::{ArrayChoice, expand};
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use crate::inside::Sorted;
use crate::layers::{Bytes, Layers, Running};
use crate::machine::{Array, Consent, Machine, Purpose};
use engine::inspect::find_superblock;
use engine::status::Status;
use engine::{BitmapPolicy, Candidate, Refusal};
use std::path::PathBuf;
use std::rc::Rc;

/// What is opened.
pub(super) struct Opened {
    pub(super) subject: Subject,
    /// What is inside of all arrays that were found.
    pub(super) layers: Layers,
    /// Whether reading takes what only `--force` takes.
    pub(super) force: bool,
    pub(super) notes: Vec<String>,
}

/// What the bytes count in.
pub(super) enum Subject {
    /// An array, with its UUID.
    Array(Rc<Running>, String),
    /// What `--inner` names.
    Inner(Bytes, String),
}

impl Opened {
    /// The length of what the bytes count in.
    pub(super) fn bytes(&self) -> u64 {
        match &self.subject {
            Subject::Array(running, _) => running.array.bytes(),
            Subject::Inner(bytes, _) => bytes.bytes(),
        }
    }
}

/// An array for a look, and what reading it takes.
struct Looked {
    array: Array,
    consent: Consent,
    note: Option<String>,
}

/// Opens the array of `assemble`, or what `inner` names on these disks.
pub(super) async fn open(
    machine: &Machine,
    assemble: &AssembleArguments,
    inner: Option<&str>,
) -> Result<Opened, Failure> {
    let consent = assemble.consent();
    if assemble.geometry().is_some() {
        let array = machine.assemble(assemble, Purpose::Look, BitmapPolicy::default()).await?;
        return of(machine, vec![(array, true)], Vec::new(), inner, consent, Vec::new()).await;
    }
    if let Some(target) = machine.open_container(assemble, None, Purpose::Look).await? {
        let arrays = target.arrays.into_iter().map(|array| (array, true)).collect();
        return of(machine, arrays, Vec::new(), inner, consent, Vec::new()).await;
    }
    let (members, _) = assemble.resolve()?;
    let choice = members.choice();
    let Sorted { arrays, plain, disks } = machine.sort(expand(&members.members)?).await?;
    note_disks(&disks);
    let is_only = arrays.len() == 1;
    let (mut found, mut notes, mut force) = (Vec::new(), Vec::new(), consent);
    for own in &arrays {
        let is_chosen = is_of(machine, own, choice.as_ref()).await;
        match look(machine, own, consent).await {
            Ok(Looked { array, consent, note }) => {
                force.force |= consent.force;
                notes.extend(note);
                found.push((array, is_chosen));
            }
            Err(refusal) if is_chosen && (choice.is_some() || is_only) => return Err(refusal.into()),
            Err(refusal) => notes.push(format!("an array that is not looked into: {refusal}")),
        }
    }
    of(machine, found, plain, inner, force, notes).await
}

/// Whether members are of the array that the user chose.
async fn is_of(machine: &Machine, own: &[PathBuf], choice: Option<&ArrayChoice>) -> bool {
    let (Some(choice), Some(first)) = (choice, own.first()) else { return true };
    let Ok(Candidate { name, member }) = machine.open(first, Purpose::Look) else { return false };
    find_superblock(&name, &member, &machine.pool).await.is_ok_and(|found| choice.is_of(&found.superblock))
}

/// Assembles an array for a look. What is damaged is what people ask about: so `--force` and `--partial` are taken if
/// nothing less is enough, and a note says so.
async fn look(machine: &Machine, own: &[PathBuf], consent: Consent) -> Result<Looked, Refusal> {
    let refusal = match machine.assemble_for_a_look(own, consent).await {
        Ok(array) => return Ok(Looked { array, consent, note: None }),
        Err(refusal) => refusal,
    };
    let more = [Consent { force: true, ..consent }, Consent { force: true, partial: true, ..consent }];
    for consent in more {
        if let Ok(array) = machine.assemble_for_a_look(own, consent).await {
            let how = if consent.partial { "--force and --partial" } else { "--force" };
            let note = format!("{refusal}; looked at as by {how}: names may be old or missing");
            return Ok(Looked { array, consent, note: Some(note) });
        }
    }
    Err(refusal)
}

/// Puts together what the bytes count in. The flag says which arrays it may be.
async fn of(
    machine: &Machine,
    arrays: Vec<(Array, bool)>,
    plain: Vec<PathBuf>,
    inner: Option<&str>,
    consent: Consent,
    notes: Vec<String>,
) -> Result<Opened, Failure> {
    let running = |(array, is_chosen)| (Rc::new(Running { array, below: Vec::new() }), is_chosen);
    let arrays: Vec<(Rc<Running>, bool)> = arrays.into_iter().map(running).collect();
    let uuid = |running: &Rc<Running>| running.array.status().uuid;
    for (running, _) in &arrays {
        note(&running.array.status());
    }
    let mut devices: Vec<_> = arrays.iter().map(|(one, _)| (uuid(one), Bytes::Array(one.clone()))).collect();
    for path in plain {
        let Candidate { name, member } = machine.open(&path, Purpose::Look)?;
        devices.push((name, Bytes::Plain(member, machine.pool.clone())));
    }
    let layers = Layers::of(machine, devices, consent).await;
    let subject = match inner {
        Some(inner) => {
            let found = layers.find(machine, inner, consent.force).await.map_err(|reason| {
                Failure::refused(format!("--inner {inner}: {reason}"))
                    .advise("`mdspace detect` prints what is inside of each array")
            });
            Subject::Inner(found?, inner.to_owned())
        }
        None => {
            let mut chosen: Vec<&Rc<Running>> = arrays.iter().filter(|one| one.1).map(|(running, _)| running).collect();
            match (chosen.pop(), chosen.is_empty()) {
                (Some(one), true) => Subject::Array(one.clone(), uuid(one)),
                (None, _) => {
                    return Err(Failure::refused("none of these disks has a member of that array")
                        .advise("`mdspace detect` prints the arrays on disks"));
                }
                (Some(_), false) => return Err(several(&arrays)),
            }
        }
    };
    Ok(Opened { subject, layers, force: consent.force, notes })
}

/// Prints what is odd about an array.
fn note(status: &Status) {
    for left_out in &status.left_out {
        tell!("note: {}: not used: {}", left_out.name, left_out.reason);
    }
    for warning in &status.warnings {
        tell!("warning: {warning}");
    }
}

fn several(arrays: &[(Rc<Running>, bool)]) -> Failure {
    let line = |(running, _): &(Rc<Running>, bool)| {
        let Status { uuid, name, members, .. } = running.array.status();
        let members: Vec<String> = members.into_iter().map(|member| member.name).collect();
        format!("\n  --uuid {uuid} \"{}\": {}", name.escape_default(), members.join(" "))
    };
    let lines: String = arrays.iter().map(line).collect();
    Failure::refused(format!("these disks have members of {} arrays:{lines}", arrays.len()))
        .advise("say in which of them the bytes count: --uuid, --name, or --inner for something inside")
}
