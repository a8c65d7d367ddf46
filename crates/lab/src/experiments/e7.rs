//! E7: linear writes that are cut at stripes (linux-raid, January 2026).
//!
//! The block layer cuts a long request into pieces that md takes. These were 1 MiB, which is no multiple of a stripe of 31
//! chunks, so pieces ended within stripes. The change cuts at stripes.
//!
//! md's columns are this engine without coalescing, given the pieces, behind a thread that takes as long as md's.

use crate::drive::models;
use crate::host::HostTime;
use crate::report::{Figure, Report};
use crate::rig::{Rig, Setup};
use engine::{AssembleOptions, Clock, Durability};
use format::geometry::Level;
use futures_util::future::join_all;

const DRIVES: u16 = 32;

const CHUNK_BYTES: u64 = 64 << 10;

const STRIPE_BYTES: u64 = (DRIVES as u64 - 1) * CHUNK_BYTES;

/// dd's request. dd has one in flight.
const REQUEST_BYTES: u64 = 100 << 20;

const REQUESTS: u64 = 4;

/// What md's thread takes for 4 KiB of a member. Fixed by 1.1 GB/s.
const PAGE_NANOS: u64 = 3_550;

/// md's thread, which takes every 4 KiB of a transfer.
const MD: HostTime =
    HostTime { read_nanos: PAGE_NANOS, write_nanos: PAGE_NANOS, unit_bytes: 4 << 10, ..HostTime::NONE };

/// How the array is written to.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// In pieces of this many bytes from the request's start.
    Pieces(u64),
    /// In pieces that end at stripes.
    Stripes,
    /// As dd makes the request.
    Default,
}

impl Way {
    /// The positions at which a request is cut.
    fn cuts(self, at: u64) -> Vec<u64> {
        let end = at + REQUEST_BYTES;
        let next = |from: u64| match self {
            Self::Pieces(bytes) => from + bytes,
            Self::Stripes => (from / STRIPE_BYTES + 1) * STRIPE_BYTES,
            Self::Default => end,
        };
        std::iter::successors(Some(at), |from| (*from < end).then(|| next(*from).min(end))).collect()
    }
}

/// MB/s, and the bytes that members read for each byte written.
fn measure(way: Way, host: HostTime) -> (f64, f64) {
    let mut options = AssembleOptions::default();
    if way != Way::Default {
        options.gather_bytes = 0;
    }
    let rig =
        Rig::new(Setup { host, options, ..Setup::new(models::e7_ssd(), DRIVES, Level::Raid5, CHUNK_BYTES, 4 << 30) });
    let (array, clock) = (&rig.array, rig.world.clock());
    let zeros = array.pool().zeroed(REQUEST_BYTES as usize).freeze();
    let before = rig.tally();
    let load = async {
        let begun = clock.now();
        for number in 0..REQUESTS {
            rig.host.request().await;
            let at = number * REQUEST_BYTES;
            let cuts = way.cuts(at);
            let writes = cuts.windows(2).map(|piece| {
                let data = zeros.slice((piece[0] - at) as usize..(piece[1] - at) as usize);
                array.write(piece[0], data, Durability::Ordinary)
            });
            for written in join_all(writes).await {
                written.expect("no member fails here");
            }
        }
        clock.now().since(begun).as_secs_f64()
    };
    let seconds = rig.world.run(load, || false).expect("the run is not stopped");
    let bytes = (REQUESTS * REQUEST_BYTES) as f64;
    (bytes / seconds / 1e6, rig.tally().since(&before).read_bytes as f64 / bytes)
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let ways = [
        ("md, pieces of 1 MiB", Way::Pieces(1 << 20), MD, Some(782.0)),
        ("md, pieces that end at stripes", Way::Stripes, MD, Some(1100.0)),
        ("default, behind md's thread", Way::Default, MD, None),
        ("default", Way::Default, HostTime::ENGINE, None),
    ];
    let figures = ways.into_iter().flat_map(|(setting, way, host, published)| {
        let (speed, read) = measure(way, host);
        let figure = |setting: String, unit, published, measured| Figure {
            workload: "dd, 100 MiB, direct".to_owned(),
            setting,
            unit,
            published,
            measured,
        };
        [
            figure(setting.to_owned(), "MB/s", published, speed),
            figure(format!("{setting}, read for each byte written"), "bytes", None, read),
        ]
    });
    Report {
        experiment: "e7",
        title: "linear writes that are cut at stripes",
        setup: format!("RAID-5 over {DRIVES} drives ({}), chunk 64 KiB, 1 request under way", models::e7_ssd().name),
        figures: figures.collect(),
        traces: Vec::new(),
        tables: Vec::new(),
    }
}
