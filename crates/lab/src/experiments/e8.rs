//! E8: reads beside a resync of disks (linux-raid, March 2025).
//!
//! md takes an array for idle if its members moved little besides the resync. Short reads move little, so the resync did
//! not yield to them. The change looks at the array's own requests.
//!
//! The mail has ten disks and a resync of 180 MB/s. The level is not in it; here it is RAID-5. Both of md's columns are
//! models ([`super::md_sync`]).

use super::beside::{Bench, Load, Sweeper, measure};
use super::md_sync::{Idle, Rules};
use crate::drive::models;
use crate::host::HostTime;
use crate::report::{Report, Table};
use std::time::Duration;

const SLOTS: u16 = 10;

/// md's stripe cache, as far as it has grown. Fixed by 17.5 KiB/s.
const CACHE_BYTES: u64 = 8 << 20;

/// What md has in flight of each member whatever else goes on, since the change. Fixed by 100 to 150 MB/s.
const LIMIT_BYTES: u64 = 6 << 20;

const BEFORE: Rules = Rules { cache_bytes: CACHE_BYTES, ..Rules::DEFAULT };
const AFTER: Rules = Rules { idle: Idle::ByRequests, limit_bytes: LIMIT_BYTES, ..BEFORE };

/// A load, and what was published of it: KiB/s before the change and after it.
fn loads() -> [(Load, [f64; 2]); 3] {
    let linear = |name, depth| Load { is_linear: true, reads_of_3: 3, ..Load::random(name, depth) };
    [
        (linear("4 KiB linear, 1 under way", 1), [1894.0, 19_558.0]),
        (linear("4 KiB linear, 32 under way", 32), [10_015.0, 69_939.0]),
        (Load { reads_of_3: 3, ..Load::random("4 KiB random, 1 under way", 1) }, [17.5, 63.5]),
    ]
}

/// The default takes seconds to learn what requests bear; the others do not.
fn bench(sweeper: Sweeper) -> Bench {
    let (warm_up, measured) = if matches!(sweeper, Sweeper::Engine) { (15, 5) } else { (2, 5) };
    Bench {
        model: models::e8_disk(),
        slots: SLOTS,
        chunk_bytes: 512 << 10,
        is_recovery: false,
        host: HostTime::ENGINE,
        warm_up: Duration::from_secs(warm_up),
        measured: Duration::from_secs(measured),
    }
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let row = |(load, [before, after]): (Load, [f64; 2])| {
        let of = |sweeper| {
            let (served, swept) = measure(&bench(sweeper), &load, sweeper);
            [served.per_second * 4.0, swept].map(|value| Some((value * 10.0).round() / 10.0))
        };
        let [alone, _] = of(Sweeper::None);
        let (md_before, md_after, default) = (of(Sweeper::Md(BEFORE)), of(Sweeper::Md(AFTER)), of(Sweeper::Engine));
        let published = [Some(before), Some(after)];
        let numbers = [&[alone, published[0]], &md_before[..], &[published[1]], &md_after, &default].concat();
        (load.name.to_owned(), numbers)
    };
    let columns = [
        "reads",
        "alone",
        "before, published",
        "model",
        "MB/s",
        "changed, published",
        "model",
        "MB/s",
        "default",
        "MB/s",
    ];
    Report {
        experiment: "e8",
        title: "reads beside a resync",
        setup: format!("RAID-5 over {} drives ({}), chunk 512 KiB", SLOTS, models::e8_disk().name),
        figures: Vec::new(),
        traces: Vec::new(),
        tables: vec![Table {
            title: "Reads beside a resync, KiB/s, and the resync's speed in MB/s of each member".to_owned(),
            columns: columns.map(str::to_owned).into(),
            rows: loads().map(row).into(),
        }],
    }
}
