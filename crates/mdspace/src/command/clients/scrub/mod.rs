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
    Err(match advice(report) {
        Some(advice) => failure.advise(advice),
        None => failure,
    })
}

/// What to do about what a scrub left. Md's choice keeps wrong data where data is wrong, and nothing finds it afterwards:
/// so it is named only where no checksum, no majority and no syndrome can decide, and all that they can is healed.
fn advice(report: &ScrubReport) -> Option<String> {
    let counts = &report.found.counts;
    if report.action == ScrubAction::Check && counts.decided > 0 {
        return Some("`mdspace scrub --repair` heals what is decided, and nothing else".to_owned());
    }
    if counts.failed > 0 {
        return Some("`mdspace status` shows the members that did not take what was written".to_owned());
    }
    if counts.lost > 0 {
        return Some("restore from a backup what lies in the array's bytes that cannot be made good".to_owned());
    }
    let is_open = counts.undecidable > counts.rewritten && report.action != ScrubAction::RepairParity;
    is_open.then(|| {
        let does = match report.found.findings.iter().any(|finding| finding.stripe.is_some()) {
            true => "makes parity anew from the data as it is",
            false => "puts the first copy over the others",
        };
        format!(
            "nothing tells which member is wrong: compare the array's bytes that are listed with a backup first; \
             `mdspace scrub --repair=parity` {does}, right or wrong, and what is wrong then is never found again"
        )
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
        // A check writes nothing, so its members are not even opened for writing.
        let purpose = if action == ScrubAction::Check { Purpose::Read } else { Purpose::Write };
        let array = machine.assemble(&assemble, purpose, BitmapPolicy::default()).await?;
        let kept = Kept::of(&array)?;
        begin(&array, asked, arguments)?;
        // From here on members may change, and the array is stopped whatever comes.
        let resynced = make_agree(&array).await;
        if resynced.is_ok() {
            let work = join(scrub(&array, terminated, arguments.json), kept.keep(&array));
            array.in_time(work).await;
        }
        let stopped = array.stop().await;
        resynced?;
        let report = array.scrub_report().expect("it was begun");
        finish(&report, arguments.json)?;
        stopped?;
        if report.state.is_over() {
            return Ok(());
        }
        Err(Failure::unwell("interrupted").advise("`mdspace scrub --resume` with the same members goes on from there"))
    })
}

/// Brings an array that was not stopped cleanly into a state to be scrubbed.
async fn make_agree(array: &Array) -> Result<(), Failure> {
    resync(array).await;
    match array.status().in_agreement {
        true => Ok(()),
        false => Err(Failure::unwell("the array was not stopped cleanly, and the resync that comes first is not done")),
    }
}

/// Begins what is asked for, or refuses it. Nothing is read or written yet.
fn begin(array: &Array, asked: Option<ScrubReport>, arguments: &ScrubArguments) -> Result<(), Failure> {
    let SweepTransfers { window_bytes, in_flight_bytes } = array.sweep_transfers();
    array.set_sweep_transfers(SweepTransfers {
        window_bytes: arguments.window.map(|size| size.0).or(window_bytes),
        in_flight_bytes: arguments.in_flight.map_or(in_flight_bytes, |size| size.0),
    })?;
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
