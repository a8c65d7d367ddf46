//! E9: the rebuild of a large QLC drive (a vendor's paper, July 2025).
//!
//! RAID-5 of ten drives of 61.44 TB. Without requests md takes 53 h 40, which is 318 MB/s, and the vendor's own RAID 5 h 22,
//! 3180 MB/s. Beside a load that the summary does not describe md rebuilds at 10.5 MB/s, and the vendor's at 316.
//!
//! md's rows are a model ([`super::md_sync`]).

use super::beside::{Bench, Load, Sweeper, measure};
use super::md_sync::{Rules, STEP_BYTES};
use crate::drive::models;
use crate::host::HostTime;
use crate::report::{Figure, Report, Table};
use std::time::Duration;

/// What md's thread takes for [`STEP_BYTES`] of each member. Fixed by 318 MB/s.
const STEP_NANOS: u64 = STEP_BYTES * 1000 / 318;

/// md with the floor that 10.5 MB/s suggests, and no ceiling.
const MD: Rules = Rules {
    speed_min: 10_240 << 10,
    speed_max: 10_000_000 << 10,
    cache_bytes: 8 << 20,
    step_nanos: STEP_NANOS,
    ..Rules::DEFAULT
};

/// What md's thread takes for a small write of a request, as in E1.
const WRITE_NANOS: u64 = 41_000;

fn bench(host: HostTime) -> Bench {
    Bench {
        model: models::e9_qlc(),
        slots: 10,
        chunk_bytes: 128 << 10,
        is_recovery: true,
        host,
        warm_up: Duration::from_millis(1200),
        measured: Duration::from_millis(400),
    }
}

fn loads() -> [(Load, Option<[f64; 2]>); 3] {
    let writes = |name, depth| Load { reads_of_3: 0, ..Load::random(name, depth) };
    [
        (writes("no requests", 0), Some([318.0, 3180.0])),
        (writes("4 KiB random writes, 32 under way", 32), None),
        (writes("4 KiB random writes, 256 under way", 256), Some([10.5, 316.0])),
    ]
}

/// The sweep's speed, and what the requests keep of their rate, in %.
fn of(host: HostTime, load: &Load, sweeper: Sweeper) -> [Option<f64>; 2] {
    let bench = bench(host);
    let round = |value: f64| Some((value * 10.0).round() / 10.0);
    let (served, swept) = measure(&bench, load, sweeper);
    if load.depth == 0 {
        return [round(swept), None];
    }
    let (alone, _) = measure(&bench, load, Sweeper::None);
    [round(swept), round(served.per_second / alone.per_second * 100.0)]
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let bench = bench(HostTime::ENGINE);
    let row = |(load, published): (Load, Option<[f64; 2]>)| {
        let md = of(HostTime { request_nanos: WRITE_NANOS, ..HostTime::NONE }, &load, Sweeper::Md(MD));
        let default = of(HostTime::ENGINE, &load, Sweeper::Engine);
        let [md_published, vendor] = published.map_or([None; 2], |published| published.map(Some));
        let numbers = vec![md_published, md[0], md[1], vendor, default[0], default[1]];
        (load.name.to_owned(), numbers)
    };
    let columns = ["beside", "md, published", "model", "kept %", "vendor's, published", "default", "kept %"];
    Report {
        experiment: "e9",
        title: "the rebuild of a large drive under load",
        setup: format!(
            "RAID-5 over {} drives ({}), one of them replaced, chunk 128 KiB",
            bench.slots, bench.model.name
        ),
        figures: Vec::<Figure>::new(),
        traces: Vec::new(),
        tables: vec![Table {
            title: "The rebuild, MB/s, and what requests keep of their rate".to_owned(),
            columns: columns.map(str::to_owned).into(),
            rows: loads().map(row).into(),
        }],
    }
}
