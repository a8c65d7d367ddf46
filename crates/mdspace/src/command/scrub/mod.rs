//! `scrub`: checks and repairs, of an array that is served and of one that is not.
//!
//! Either way the same engine does it and the same report comes of it; here it is
//! asked for, shown while it goes on, and printed. It ends with status 1 when
//! anything was found, healed or not.

mod kept;
mod show;

pub(crate) use kept::Kept;

use crate::command::arguments::{AssembleArguments, MemberArguments, RepairChoice, ScrubArguments};
use crate::command::assembly::resync;
use crate::command::control::client;
use crate::command::failure::Failure;
use crate::command::output::{print, print_json};
use crate::command::serve::{json, refused};
use crate::machine::{Arena, Array, Machine, Purpose};
use engine::{BitmapPolicy, Refusal, ScrubAction, ScrubReport, ScrubRequest, ScrubState, SweepStatus, SweepTransfers};
use export::control::{ApiError, Client, ScrubCommand};
use futures_util::future::{Either, join, select};
use parity::Kernel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use show::{Shown, text};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

/// Time between two looks at a served array's scrub.
const LOOK: Duration = Duration::from_millis(200);

/// Runs `mdspace scrub`.
pub(crate) fn run(arguments: &ScrubArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    match arguments.members.is_empty() {
        true => online(arguments),
        false => offline(arguments, kernel),
    }
}

fn action(arguments: &ScrubArguments) -> ScrubAction {
    match arguments.repair {
        None => ScrubAction::Check,
        Some(RepairChoice::Decided) => ScrubAction::Repair,
        Some(RepairChoice::Parity) => ScrubAction::RepairParity,
    }
}

/// The bytes of an array of `array_bytes` that were asked for.
fn range(offset: Option<u64>, length: Option<u64>, array_bytes: u64) -> Option<std::ops::Range<u64>> {
    let start = offset.unwrap_or(0);
    let end = length.map_or(array_bytes, |length| start.saturating_add(length));
    (offset.is_some() || length.is_some()).then_some(start..end)
}

/// Prints what came of it, and says whether all was well.
fn finish(report: &ScrubReport, as_json: bool) -> Result<(), Failure> {
    if as_json {
        print_json(report)?;
    } else {
        print(&text(report))?;
    }
    let counts = &report.found.counts;
    if let Some(reason) = &report.failure {
        return Err(Failure::unwell(format!("the scrub could not be finished: {reason}")));
    }
    if counts.found() == 0 {
        return Ok(());
    }
    let failure = Failure::unwell(format!("{} rows were found wrong, {} are left so", counts.found(), counts.left()));
    Err(match (report.action, counts.left()) {
        (_, 0) => failure,
        (ScrubAction::Check, _) if counts.decided > 0 => {
            failure.advise("`mdspace scrub --repair` heals what is decided")
        }
        _ => failure.advise("`mdspace scrub --repair=parity` takes md's choice where nothing is decided"),
    })
}

/// Of an array that nobody serves.
fn offline(arguments: &ScrubArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let machine = Machine::start(kernel, Arena::Large)?;
    let members = MemberArguments { members: arguments.members.clone(), uuid: arguments.uuid, name: None };
    let assemble = AssembleArguments::of(&members, arguments.bitmap.clone());
    machine.run(async {
        let terminated = io::signal::terminated().map_err(|error| Failure::refused(format!("signals: {error}")))?;
        let paths = machine.find(&members).await?.own;
        let asked = if arguments.resume { Some(Kept::resumed(&machine, &paths).await?) } else { None };
        let action = asked.as_ref().map_or(action(arguments), |report: &ScrubReport| report.action);
        let array = assemble_for(&machine, &assemble, &paths, action).await?;
        let kept = Kept::of(&array)?;
        let begun = begin(&array, asked, arguments).await;
        if begun.is_ok() {
            let work = join(scrub(&array, terminated, arguments.json), kept.keep(&array));
            array.in_time(work).await;
        }
        let stopped = array.stop().await;
        begun?;
        let report = array.scrub_report().expect("it was begun");
        if report.found.counts.learned > 0 && array.status().read_only {
            tracing::warn!("the members may not be written to: the checksums that were learned are not kept");
        }
        finish(&report, arguments.json)?;
        stopped?;
        if report.state.is_over() {
            return Ok(());
        }
        Err(Failure::unwell("interrupted").advise("`mdspace scrub --resume` with the same members goes on from there"))
    })
}

/// Opens for writing what is to be healed, and what a check may learn checksums of.
async fn assemble_for(
    machine: &Machine,
    members: &AssembleArguments,
    paths: &[PathBuf],
    action: ScrubAction,
) -> Result<Array, Failure> {
    let assemble = async |purpose| machine.assemble(members, purpose, BitmapPolicy::default()).await;
    if action != ScrubAction::Check {
        return assemble(Purpose::Write).await;
    }
    if may_learn(machine, paths).await
        && let Ok(array) = assemble(Purpose::Write).await
    {
        return Ok(array);
    }
    assemble(Purpose::Read).await
}

/// Whether a check would learn: members have checksums, and no resync is due, which a check does not begin.
async fn may_learn(machine: &Machine, paths: &[PathBuf]) -> bool {
    let Ok(members) = machine.open_all(paths, Purpose::Look) else { return false };
    let array = machine.assemble_candidates(members, false, Purpose::Look).await;
    array.is_ok_and(|array| {
        let status = array.status();
        status.checksums.is_some() && status.in_agreement
    })
}

/// Brings the array into a state to be scrubbed, and begins.
async fn begin(array: &Array, asked: Option<ScrubReport>, arguments: &ScrubArguments) -> Result<(), Failure> {
    let SweepTransfers { window_bytes, in_flight_bytes } = array.sweep_transfers();
    array.set_sweep_transfers(SweepTransfers {
        window_bytes: arguments.window.map(|size| size.0).or(window_bytes),
        in_flight_bytes: arguments.in_flight.map_or(in_flight_bytes, |size| size.0),
    })?;
    resync(array).await;
    if !array.status().in_agreement {
        let reason = "the array was not stopped cleanly, and copies and parity may differ until a resync";
        return Err(Failure::refused(reason).advise("`mdspace serve` and `mdspace scrub --repair` resync it first"));
    }
    match asked {
        Some(report) => {
            array.restore_scrub(report)?;
            // One that was paused goes on as well: it was asked to.
            drop(array.pause_scrub(false));
        }
        None => {
            let range = range(arguments.offset.map(|size| size.0), arguments.length.map(|size| size.0), array.bytes());
            array.begin_scrub(&ScrubRequest { action: action(arguments), range })?;
        }
    }
    Ok(())
}

/// Drives it to its end, or until somebody interrupts; then the array is stopped, so that whoever keeps the report ends.
async fn scrub(array: &Array, terminated: impl Future<Output = std::io::Result<io::signal::Signal>>, as_json: bool) {
    let shown = std::cell::RefCell::new(Shown::start(as_json)); // off the terminal before the report is on it
    let progress = |_: u64, _: u64| {
        if let Some(sweep) = array.status().sweep {
            shown.borrow_mut().show(&sweep);
        }
    };
    {
        let work = pin!(array.scrub(&progress));
        match select(work, pin!(terminated)).await {
            Either::Left((done, _)) => drop(done), // a failure is in the report
            Either::Right((_, work)) => {
                drop(array.pause_scrub(true));
                drop(work.await);
                // Not paused for good: the next one who serves the array goes on with it.
                drop(array.pause_scrub(false));
            }
        }
    }
    drop(array.stop().await); // told once more to whoever asks again
}

/// The answer to a question about a scrub. Its fields are a stable interface (docs/json.md).
#[derive(Serialize, Deserialize)]
struct Answer {
    /// What was asked for and found; none: there was none.
    scrub: Option<ScrubReport>,
    /// How far the sweep under way is.
    sweep: Option<SweepStatus>,
}

/// Of a served array.
fn online(arguments: &ScrubArguments) -> Result<(), Failure> {
    let client = client(&arguments.control)?;
    let command = match action(arguments) {
        _ if arguments.pause => ScrubCommand::Pause,
        _ if arguments.resume => ScrubCommand::Resume,
        _ if arguments.cancel => ScrubCommand::Cancel,
        ScrubAction::Check => ScrubCommand::Check,
        ScrubAction::Repair => ScrubCommand::Repair,
        ScrubAction::RepairParity => ScrubCommand::RepairParity,
    };
    let (offset, length) = (arguments.offset.map(|size| size.0), arguments.length.map(|size| size.0));
    let request = export::control::ScrubRequest { action: command, offset, length };
    let answer = answer(&client.post("/v1/scrub", &json(&request))?)?;
    let ends_here = matches!(command, ScrubCommand::Pause | ScrubCommand::Cancel);
    let report = if ends_here || arguments.no_wait { answer.scrub } else { wait(&client, arguments.json)? };
    let report = report.ok_or_else(|| Failure::unwell("the server knows of no scrub"))?;
    if report.state.is_over() && !ends_here {
        return finish(&report, arguments.json);
    }
    if arguments.json { print_json(&report) } else { print(&text(&report)) }
}

/// Shows how a served array's scrub goes on, until it ends or stands still.
fn wait(client: &Client, as_json: bool) -> Result<Option<ScrubReport>, Failure> {
    let mut shown = Shown::start(as_json);
    loop {
        let Answer { scrub, sweep } = answer(&client.get("/v1/scrub")?)?;
        if scrub.as_ref().is_none_or(|report| report.state.is_over() || report.state == ScrubState::Paused) {
            return Ok(scrub);
        }
        if let Some(sweep) = sweep {
            shown.show(&sweep);
        }
        std::thread::sleep(LOOK);
    }
}

fn answer(body: &Value) -> Result<Answer, Failure> {
    Answer::deserialize(body)
        .map_err(|error| Failure::unwell(format!("the server's answer is not of a scrub: {error}")))
}

/// Answers what a served array's scrub has found.
pub(crate) fn served_report(array: &Array) -> Result<Value, ApiError> {
    Ok(json(&Answer { scrub: array.scrub_report(), sweep: array.status().sweep }))
}

/// Does what a control client asks of a served array's scrub.
pub(crate) async fn command(array: &Array, request: &export::control::ScrubRequest) -> Result<Value, ApiError> {
    let begin = |action| {
        let range = range(request.offset, request.length, array.bytes());
        array.begin_scrub(&ScrubRequest { action, range })
    };
    let done: Result<(), Refusal> = match request.action {
        ScrubCommand::Check => begin(ScrubAction::Check),
        ScrubCommand::Repair => begin(ScrubAction::Repair),
        ScrubCommand::RepairParity => begin(ScrubAction::RepairParity),
        ScrubCommand::Pause => array.pause_scrub(true),
        ScrubCommand::Resume => array.pause_scrub(false),
        ScrubCommand::Cancel => array.cancel_scrub(),
    };
    done.map_err(|refusal| refused(409, refusal))?;
    if matches!(request.action, ScrubCommand::Pause | ScrubCommand::Cancel) {
        array.scrub_at_rest().await;
    }
    served_report(array)
}
