//! `scrub`: of a served array through its server, or here of one that is not served.
//!
//! The engine's code and the report are the same either way.

use crate::command::clients::arguments::ScrubArguments;
use crate::command::clients::scrub::{Shown, action_of, finish, online};
use crate::command::opening::arguments::{AssembleArguments, MemberArguments};
use crate::command::opening::assembly::resync;
use crate::command::server::saved_scrub::SavedScrub;
use crate::command::server::scrub::range;
use crate::command::text::failure::Failure;
use crate::machine::{Arena, Array, Machine, Purpose};
use engine::{BitmapPolicy, ScrubAction, ScrubReport, ScrubRequest, SweepTransfers};
use futures_util::future::{Either, join, select};
use parity::Kernel;
use std::pin::pin;

/// Runs `mdspace scrub`.
pub(crate) fn run(arguments: &ScrubArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    match arguments.members.is_empty() {
        true => online(arguments),
        false => offline(arguments, kernel),
    }
}

/// Of an array that nobody serves.
fn offline(arguments: &ScrubArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let machine = Machine::start(kernel, Arena::Large)?;
    let members = MemberArguments { members: arguments.members.clone(), uuid: arguments.uuid, name: None };
    let assemble = AssembleArguments::of(&members, arguments.bitmap.clone());
    machine.run(async {
        let terminated = io::signal::terminated().map_err(|error| Failure::refused(format!("signals: {error}")))?;
        let paths = machine.find(&members).await?.own;
        let asked = if arguments.resume { Some(SavedScrub::resumed(&machine, &paths).await?) } else { None };
        let action = asked.as_ref().map_or(action_of(arguments), |report: &ScrubReport| report.action);
        // A check writes nothing, so its members are not even opened for writing.
        let purpose = if action == ScrubAction::Check { Purpose::Read } else { Purpose::Write };
        let array = machine.assemble(&assemble, purpose, BitmapPolicy::default()).await?;
        let saved = SavedScrub::of(&array)?;
        begin(&array, asked, arguments)?;
        // From here on members may change, and the array is stopped whatever comes.
        let resynced = make_agree(&array).await;
        if resynced.is_ok() {
            let work = join(scrub(&array, terminated, arguments.json), saved.keep(&array));
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
            array.begin_scrub(&ScrubRequest { action: action_of(arguments), range })?;
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
