//! `scrub` of a served array: requests it, shows its progress and prints its report.
//!
//! The exit status is 1 if the scrub found anything, repaired or not.

mod show;

pub(crate) use show::Shown;

use crate::command::clients::arguments::{RepairChoice, ScrubArguments};
use crate::command::clients::control::answering;
use crate::command::clients::files;
use crate::command::locate::{self, Asked, Located};
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json, tell};
use control::{Client, ClientError, ScrubCommand};
use engine::{ScrubAction, ScrubReport, ScrubState, SweepStatus};
use parity::Kernel;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use show::text;
use std::time::Duration;

/// Time between two requests for the progress of a scrub.
const LOOK: Duration = Duration::from_millis(200);

/// The action that `arguments` choose.
pub(crate) fn action_of(arguments: &ScrubArguments) -> ScrubAction {
    match arguments.repair {
        None => ScrubAction::Check,
        Some(RepairChoice::Decided) => ScrubAction::Repair,
        Some(RepairChoice::Parity) => ScrubAction::RepairParity,
    }
}

/// A report with the files that its findings hit. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct WithFiles<'a> {
    #[serde(flatten)]
    report: &'a ScrubReport,
    located: &'a Located,
}

/// Prints the report, and the files that it hits. The result is a failure if the scrub found anything.
pub(crate) fn finish(report: &ScrubReport, located: Option<&Located>, as_json: bool) -> Result<(), Failure> {
    match (as_json, located) {
        (true, None) => print_json(report)?,
        (true, Some(located)) => print_json(&WithFiles { report, located })?,
        (false, None) => print(&text(report))?,
        (false, Some(located)) => print(&format!("{}{}", text(report), locate::text(located)))?,
    }
    let counts = &report.found.counts;
    if let Some(reason) = &report.failure {
        return Err(Failure::unwell(format!("the scrub could not be finished: {reason}")));
    }
    if counts.found() == 0 {
        return Ok(());
    }
    let failure =
        Failure::unwell(format!("{} rows were found wrong, {} are left wrong", counts.found(), counts.left()));
    Err(match advice(report) {
        Some(advice) => failure.advise(advice),
        None => failure,
    })
}

/// What to do about the rows that a scrub left wrong. `--repair=parity` keeps wrong data if the data is wrong, and no
/// later scrub finds it. So the advice names it only where neither checksums nor a majority nor P and Q decide, and
/// after all other repairs.
fn advice(report: &ScrubReport) -> Option<String> {
    let counts = &report.found.counts;
    if report.action == ScrubAction::Check && counts.decided > 0 {
        return Some("`mdspace scrub --repair` rewrites the blocks known to be wrong, and nothing else".to_owned());
    }
    if counts.failed > 0 {
        return Some("`mdspace status` shows the members that failed the writes".to_owned());
    }
    if counts.lost > 0 {
        return Some("restore the array's lost bytes, which the report lists, from a backup".to_owned());
    }
    let is_open = counts.undecidable > counts.rewritten && report.action != ScrubAction::RepairParity;
    is_open.then(|| {
        let does = match report.found.findings.iter().any(|finding| finding.stripe.is_some()) {
            true => "computes parity from the data as it is",
            false => "writes the first copy over the others",
        };
        format!(
            "redundancy does not show which member is wrong: first compare the listed bytes of the array with a backup; \
             `mdspace scrub --repair=parity` {does}, right or wrong, and no later scrub finds the error"
        )
    })
}

/// The server's reply about a scrub (docs/json.md).
#[derive(Deserialize)]
struct ScrubReply {
    /// The scrub's request and findings; `None` if there was no scrub.
    scrub: Option<ScrubReport>,
    /// The progress of the running sweep.
    sweep: Option<SweepStatus>,
}

/// Runs `mdspace scrub` for a served array.
pub(crate) fn online(arguments: &ScrubArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let client = answering(&arguments.control.wanted())?;
    let command = match action_of(arguments) {
        _ if arguments.pause => ScrubCommand::Pause,
        _ if arguments.resume => ScrubCommand::Resume,
        _ if arguments.cancel => ScrubCommand::Cancel,
        ScrubAction::Check => ScrubCommand::Check,
        ScrubAction::Repair => ScrubCommand::Repair,
        ScrubAction::RepairParity => ScrubCommand::RepairParity,
    };
    let (offset, length) = (arguments.offset.map(|size| size.0), arguments.length.map(|size| size.0));
    let request = control::ScrubRequest { action: command, offset, length };
    let reply = reply(&client.post("/v1/scrub", &json!(request))?)?;
    let ends_here = matches!(command, ScrubCommand::Pause | ScrubCommand::Cancel);
    let report = if ends_here || arguments.no_wait { reply.scrub } else { wait(&client, arguments.json)? };
    let report = report.ok_or_else(|| Failure::unwell("the server knows of no scrub"))?;
    if report.state.is_over() && !ends_here {
        let located = match arguments.files {
            true => Some(files::served(&client, None, &Asked::findings(&report), kernel)?),
            false => None,
        };
        return finish(&report, located.as_ref(), arguments.json);
    }
    if arguments.json { print_json(&report) } else { print(&text(&report)) }
}

/// Shows the progress of a served array's scrub until it ends or is paused.
fn wait(client: &Client, as_json: bool) -> Result<Option<ScrubReport>, Failure> {
    let mut shown = Shown::start(as_json);
    let mut percent = 0.0;
    let mut is_silent = false;
    loop {
        let body = match client.get("/v1/scrub") {
            // It may go on, and the scrub with it.
            Err(error @ ClientError::Silent { .. }) => {
                if !std::mem::replace(&mut is_silent, true) {
                    tell!("note: {error}; waiting");
                }
                continue;
            }
            Err(error) => return Err(ended(error, percent)),
            Ok(body) => body,
        };
        is_silent = false;
        let ScrubReply { scrub, sweep } = reply(&body)?;
        if scrub.as_ref().is_none_or(|report| report.state.is_over() || report.state == ScrubState::Paused) {
            return Ok(scrub);
        }
        if let Some(sweep) = sweep {
            percent = sweep.percent;
            shown.show(&sweep);
        }
        std::thread::sleep(LOOK);
    }
}

/// Why a scrub that had begun is no longer heard of.
fn ended(error: ClientError, percent: f64) -> Failure {
    let is_stopping = matches!(&error, ClientError::Api(error) if error.status == 503);
    match error {
        ClientError::Connect { .. } | ClientError::Protocol { .. } => {}
        ClientError::Api(_) if is_stopping => {}
        error => return error.into(),
    }
    Failure::unwell(format!("the server ended while the scrub was at {percent:.0} %"))
        .advise("serve the array again: the scrub goes on where it was last saved")
}

fn reply(body: &Value) -> Result<ScrubReply, Failure> {
    ScrubReply::deserialize(body)
        .map_err(|error| Failure::unwell(format!("the server's reply is not about a scrub: {error}")))
}
