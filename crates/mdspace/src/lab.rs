//! `lab`: published measurements, made again on modelled drives in virtual time.
//!
//! The experiments are [`sim::lab`]'s; here they are chosen and printed. They
//! touch nothing on this machine.

use crate::arguments::LabArguments;
use crate::failure::Failure;
use crate::output::{print, print_json};
use sim::lab::{EXPERIMENTS, Report};

/// Runs `mdspace lab`.
pub(crate) fn run(arguments: &LabArguments) -> Result<(), Failure> {
    let is_wanted = |name: &str| arguments.experiments.iter().any(|wanted| wanted == name || wanted == "all");
    let wanted = EXPERIMENTS.iter().filter(|experiment| is_wanted(experiment.name));
    if arguments.json {
        let reports: Vec<Report> = wanted.map(|experiment| (experiment.run)()).collect();
        return print_json(&reports);
    }
    for (index, experiment) in wanted.enumerate() {
        let text = (experiment.run)().text();
        print(&if index == 0 { text } else { format!("\n{text}") })?;
    }
    Ok(())
}
