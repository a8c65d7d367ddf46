//! `scrub`: of a served array through its server, or in this process if the array is not served.
//!
//! The engine's code and the report are the same in both cases.

use crate::command::clients::arguments::ScrubArguments;
use crate::command::clients::scrub::{Shown, action_of, finish, online};
use crate::command::locate::{Asked, locate};
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
    match arguments.members.is_empty() && arguments.geometry.is_none() {
        true if arguments.maps.is_any() => {
            Err(Failure::refused("--map: it belongs to a member, and none is given").advise("name the members, too"))
        }
        true => online(arguments, kernel),
        false => offline(arguments, kernel),
    }
}

/// Scrubs an array that is not served.
fn offline(arguments: &ScrubArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let machine = Machine::start(kernel, Arena::Large)?;
    let machine = machine.with_maps(arguments.maps.read()?).over(arguments.overlay.as_deref())?;
    let members = MemberArguments { members: arguments.members.clone(), uuid: arguments.uuid, name: None };
    let assemble = AssembleArguments::of(&members, arguments.bitmap.clone()).by_hand(arguments.geometry.clone());
    machine.run(async {
        let terminated = io::signal::terminated().map_err(|error| Failure::refused(format!("signals: {error}")))?;
        let asked = match arguments.resume {
            true => Some(SavedScrub::resumed(&machine, &machine.find(&members).await?.own).await?),
            false => None,
        };
        let action = asked.as_ref().map_or(action_of(arguments), |report: &ScrubReport| report.action);
        // A check writes nothing, so it opens its members for reading only.
        let purpose = if action == ScrubAction::Check { Purpose::Read } else { Purpose::Write };
        let array = machine.assemble(&assemble, purpose, BitmapPolicy::default()).await?;
        let saved = SavedScrub::of(&array, &machine)?;
        begin(&array, asked, arguments)?;
        // From here on members may change, so the array is stopped also after errors.
        let resynced = make_agree(&array).await;
        if resynced.is_ok() {
            let work = join(scrub(&array, terminated, arguments.json), saved.keep(&array));
            array.in_time(work).await;
        }
        let stopped = array.stop().await;
        resynced?;
        let report = array.scrub_report().expect("it was begun");
        let located = match arguments.files {
            true => Some(locate(&machine, &assemble, None, &Asked::findings(&report)).await?),
            false => None,
        };
        finish(&report, located.as_ref(), arguments.json)?;
        stopped?;
        if report.state.is_over() {
            return Ok(());
        }
        Err(Failure::unwell("interrupted")
            .advise("`mdspace scrub --resume` with the same members continues from there"))
    })
}

/// Resyncs an array that was not stopped cleanly, which a scrub requires.
async fn make_agree(array: &Array) -> Result<(), Failure> {
    resync(array).await;
    match array.status().in_agreement {
        true => Ok(()),
        false => Err(Failure::unwell(
            "the array was not stopped cleanly, and its resync, which must come first, could not be completed",
        )),
    }
}

/// Begins the scrub, or refuses it. Nothing is read or written yet.
fn begin(array: &Array, asked: Option<ScrubReport>, arguments: &ScrubArguments) -> Result<(), Failure> {
    let SweepTransfers { window_bytes, in_flight_bytes } = array.sweep_transfers();
    array.set_sweep_transfers(SweepTransfers {
        window_bytes: arguments.window.map(|size| size.0).or(window_bytes),
        in_flight_bytes: arguments.in_flight.map_or(in_flight_bytes, |size| size.0),
    })?;
    match asked {
        Some(report) => {
            array.restore_scrub(report)?;
            // --resume also continues a paused scrub.
            drop(array.pause_scrub(false));
        }
        None => {
            let range = range(arguments.offset.map(|size| size.0), arguments.length.map(|size| size.0), array.bytes());
            array.begin_scrub(&ScrubRequest { action: action_of(arguments), range })?;
        }
    }
    Ok(())
}

/// Runs the scrub to its end or to an interruption. Then it stops the array, which also ends [`SavedScrub::keep`].
async fn scrub(array: &Array, terminated: impl Future<Output = std::io::Result<io::signal::Signal>>, as_json: bool) {
    let shown = std::cell::RefCell::new(Shown::start(as_json)); // dropped, and its bar cleared, before the report
    let progress = |_: u64, _: u64| {
        if let Some(sweep) = array.status().sweep {
            shown.borrow_mut().show(&sweep);
        }
    };
    {
        let work = pin!(array.scrub(&progress));
        match select(work, pin!(terminated)).await {
            Either::Left((done, _)) => drop(done), // the report contains a failure
            Either::Right((_, work)) => {
                drop(array.pause_scrub(true));
                drop(work.await);
                // Not left paused: the next server of the array continues it.
                drop(array.pause_scrub(false));
            }
        }
    }
    drop(array.stop().await); // the next call of `stop` returns the same result
}
