//! `lab`: published measurements, repeated on modelled drives in virtual time.
//!
//! [`lab`] has the experiments. This file selects and prints them. They use no device of this machine.

use crate::command::measure::arguments::LabArguments;
use crate::command::measure::html::{Bar, Page};
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json};
use crate::command::text::progress::Steps;
use lab::{EXPERIMENTS, Figure, Report, number};

/// Runs `mdspace lab`.
pub(crate) fn run(arguments: &LabArguments) -> Result<(), Failure> {
    let is_wanted = |name: &str| arguments.experiments.iter().any(|wanted| wanted == name || wanted == "all");
    let wanted: Vec<_> = EXPERIMENTS.iter().filter(|experiment| is_wanted(experiment.name)).collect();
    let mut reports: Vec<Report> = Vec::new();
    let mut steps = Steps::start("lab", wanted.len());
    for (index, experiment) in wanted.into_iter().enumerate() {
        steps.begin(experiment.name);
        let report = (experiment.run)();
        if !arguments.json {
            let text = report.text();
            steps.aside(|| print(&if index == 0 { text } else { format!("\n{text}") }))?;
        }
        reports.push(report);
    }
    drop(steps);
    if arguments.json {
        print_json(&reports)?;
    }
    arguments.report.as_deref().map_or(Ok(()), |path| page(&reports).write(path))
}

/// The reports as a page with plots.
fn page(reports: &[Report]) -> Page {
    let mut page = Page::new(
        "mdspace lab",
        "Published measurements of software RAID, repeated with this engine on modelled drives in virtual time: the \
         figures are the same on every machine. docs/lab.md describes the models.",
    );
    for report in reports {
        page.section(&format!("{}: {}", report.experiment.to_uppercase(), report.title), &report.setup);
        for same in report.figures.chunk_by(|a, b| a.workload == b.workload && a.unit == b.unit) {
            plot(&mut page, same);
        }
        for rows in report.rows() {
            if let Some(title) = rows.title {
                page.caption(title);
            }
            page.table(&rows.rows, rows.words);
        }
    }
    page
}

/// Plots the settings of a workload beside each other, if it has more than one.
fn plot(page: &mut Page, figures: &[Figure]) {
    let [first, _, ..] = figures else { return };
    let bar = |figure: &Figure| Bar {
        label: figure.setting.clone(),
        here: (figure.measured, number(figure.measured)),
        there: figure.published.map(|published| (published, number(published))),
    };
    let title = format!("{}, {}", first.workload, first.unit);
    page.bars(&title, "published", &figures.iter().map(bar).collect::<Vec<_>>());
}
