//! `mdspace trace`: a line for each transfer of a member, in the form of block-layer tracers, with the reason for the
//! transfer.

use crate::command::clients::arguments::TraceArguments;
use crate::command::clients::control::client;
use crate::command::text::failure::Failure;
use crate::command::text::output::{is_read, print, tell};
use export::measure::{Traced, Traces};
use serde::Deserialize;
use std::time::Duration;

/// Time between two requests if the server had no new transfers.
const PAUSE: Duration = Duration::from_millis(100);

const HEADING: &str = "TIME(s)       PROCESS   DEVICE                   T    SECTOR         BYTES     LAT(ms)  WHY\n";

/// Runs `mdspace trace`.
pub(crate) fn run(arguments: &TraceArguments) -> Result<(), Failure> {
    let client = client(&arguments.array.wanted())?;
    let mut left = arguments.count;
    let mut route = "/v1/trace".to_owned();
    if !arguments.json {
        print(HEADING)?;
    }
    while left != Some(0) && is_read() {
        let body = client.get(&route)?;
        let Traces { next, lost, mut transfers } = Traces::deserialize(&body)
            .map_err(|error| Failure::unwell(format!("the server's reply is not a trace: {error}")))?;
        if lost > 0 {
            tell!("note: {lost} transfers were overwritten before they could be fetched");
        }
        if let Some(left) = &mut left {
            transfers.truncate((*left).try_into().unwrap_or(usize::MAX));
            *left -= transfers.len() as u64;
        }
        let line = |transfer: &Traced| if arguments.json { json_line(transfer) } else { line(transfer) };
        print(&transfers.iter().map(line).collect::<String>())?;
        route = format!("/v1/trace?from={next}");
        if transfers.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn json_line(transfer: &Traced) -> String {
    serde_json::to_string(transfer).expect("our own types have string keys") + "\n"
}

fn line(transfer: &Traced) -> String {
    let Traced { seconds, process, device, operation, sector, bytes, latency_ms, why, failed } = transfer;
    let failed = if *failed { "  failed" } else { "" };
    format!(
        "{seconds:<13.6} {process:<9} {device:<24} {operation:<4} {sector:<14} {bytes:<9} {latency_ms:>7.3}  {why}{failed}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_headings() {
        let transfer = Traced {
            seconds: 12.5,
            process: "mdspace".to_owned(),
            device: "a.img".to_owned(),
            operation: 'W',
            sector: 2056,
            bytes: 4096,
            latency_ms: 0.034,
            why: "parity".to_owned(),
            failed: false,
        };
        let line = line(&transfer);
        for (heading, value) in [
            ("PROCESS", "mdspace "),
            ("DEVICE", "a.img "),
            ("T ", "W "),
            ("SECTOR", "2056 "),
            ("BYTES", "4096 "),
            ("WHY", "parity\n"),
        ] {
            let at = HEADING.find(heading).expect("it is a heading");
            assert!(line[at..].starts_with(value), "{heading}: {line}");
        }
        assert!(line.contains("  0.034  "), "{line}");
    }
}
