//! `detect`: everything on some disks, as a tree: partitions, arrays, what is inside of each, and the next command.
//!
//! [`crate::detect()`] finds all but containers. It only reads, also members in use, and takes no lock.

mod containers;
mod next;
mod search;
mod text;

use crate::command::cli::arguments::DetectArguments;
use crate::command::opening::container;
use crate::command::opening::members::expand_with_directories;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json, tell};
use crate::detect::{ArrayFound, Detected, DiskFound, Next, Unusable, VolumeGroup, look_at};
use crate::machine::{Arena, Machine};
use crate::names::name_of;
use containers::ContainerFound;
pub(super) use next::find;
use parity::Kernel;
use serde::Serialize;
use std::path::PathBuf;

/// The findings. Their fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Report {
    disks: Vec<DiskFound>,
    arrays: Vec<ArrayFound>,
    volume_groups: Vec<VolumeGroup>,
    containers: Vec<ContainerFound>,
    unusable: Vec<Unusable>,
    /// Where superblocks are lost.
    next: Vec<Next>,
}

/// Runs `mdspace detect`.
pub(crate) fn run(arguments: &DetectArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    if arguments.search {
        return search::run(arguments);
    }
    let paths = expand_with_directories(&arguments.disks)?;
    let machine = Machine::start(kernel, Arena::Medium)?.with_maps(arguments.maps.read()?);
    machine.maps.check_used(&paths)?;
    let report = machine.run(detect(&machine, &paths));
    if arguments.json {
        print_json(&report)?
    } else {
        print(&text::of(&report))?
    }
    report.verdict()
}

async fn detect(machine: &Machine, paths: &[PathBuf]) -> Report {
    let (mut of_containers, mut unusable) = (Vec::new(), Vec::new());
    for path in paths {
        match container::look(path) {
            Some(Ok(disk)) => of_containers.push(disk),
            Some(Err(reason)) => unusable.push(Unusable { name: name_of(path), reason }),
            None => {}
        }
    }
    let mut found = look_at(machine, paths).await;
    for note in &found.notes {
        tell!("note: {note}");
    }
    unusable.append(&mut found.unusable);
    let Detected { disks, mut arrays, mut volume_groups, .. } = found;
    let mut containers = containers::look(machine, of_containers).await;
    next::add(&mut arrays, &mut volume_groups, &machine.maps);
    next::add_of_containers(&mut containers, &machine.maps);
    let next = next::of_lost(&disks, &machine.maps);
    Report { disks, arrays, volume_groups, containers, unusable, next }
}

impl Report {
    /// The result for the exit status, as of `examine`.
    fn verdict<'a>(&'a self) -> Result<(), Failure> {
        if !self.unusable.is_empty() {
            let reasons: Vec<&str> = self.unusable.iter().map(|disk| &*disk.reason).collect();
            return Err(Failure::refused(reasons.join("\n  and: ")).advise("name disks, their images, or members"));
        }
        let of_array = |array: &'a ArrayFound| {
            let reason = format!("array {}: {}", array.uuid, array.refusal.as_deref()?);
            Some((reason, array.advice.as_deref()))
        };
        let volumes = self.containers.iter().flat_map(|container| &container.volumes);
        let mut of_volumes = volumes.filter_map(|volume| Some((volume.refusal.clone()?, volume.advice.as_deref())));
        match self.arrays.iter().find_map(of_array).or_else(|| of_volumes.next()) {
            None => Ok(()),
            Some((reason, None)) => Err(Failure::unwell(reason)),
            Some((reason, Some(advice))) => Err(Failure::unwell(reason).advise(advice)),
        }
    }
}
