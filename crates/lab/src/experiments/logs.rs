//! What a log against the write hole costs: writes without one, with md's partial parity log, and with the stripe log. Two of
//! the three drives have a volatile cache, so that a flush waits for the flash.

use crate::drive::{Model, models};
use crate::host::HostTime;
use crate::report::{Report, Table};
use crate::rig::{Log, Rig, Setup};
use crate::workload::{Extent, Order, Workload, run as write};
use format::geometry::Level;
use std::time::Duration;

const DRIVES: u16 = 8;

const CHUNK_BYTES: u64 = 512 << 10;

/// Large enough that random writes hardly ever meet rows that were just written.
const COMPONENT_BYTES: u64 = 64 << 30;

/// An array, and what the logs cost there.
struct Case {
    level: Level,
    name: &'static str,
    data_chunks: u64,
    model: Model,
}

fn cases() -> Vec<Case> {
    let levels = [(Level::Raid5, "RAID-5", 1), (Level::Raid6, "RAID-6", 2)];
    let models = [models::e5_nvme(), models::cached_nvme(), models::e7_ssd()];
    let of_level = |(level, name, parities)| {
        let data_chunks = u64::from(DRIVES) - parities;
        models.clone().map(|model| Case { level, name, data_chunks, model })
    };
    levels.into_iter().flat_map(of_level).collect()
}

/// Speed, and members' writes, without a log and with each; `None` if the level has no such log.
struct Costs([Option<Cost>; 3]);

struct Cost {
    megabytes_per_second: f64,
    per_second: f64,
    writes: f64,
}

impl Case {
    fn costs(&self, bytes: u64, order: Order) -> Costs {
        Costs([Log::None, Log::PartialParity, Log::Stripe].map(|log| {
            let is_possible = log != Log::PartialParity || self.level == Level::Raid5;
            is_possible.then(|| self.cost(log, bytes, order))
        }))
    }

    fn cost(&self, log: Log, bytes: u64, order: Order) -> Cost {
        let setup = Setup::new(self.model.clone(), DRIVES, self.level, CHUNK_BYTES, COMPONENT_BYTES);
        let rig = Rig::new(Setup { host: HostTime::ENGINE, log, ..setup });
        let extent = Extent::Time { warm_up: Duration::from_millis(100), measured: Duration::from_millis(400) };
        let load = Workload { bytes, order, jobs: 1, depth: 32, think: Duration::ZERO, within: u64::MAX, extent };
        let measured = write(&rig, &load);
        Cost {
            megabytes_per_second: measured.megabytes_per_second(),
            per_second: measured.requests_per_second(),
            writes: measured.drives.writes as f64 / measured.requests as f64,
        }
    }

    fn row(&self, numbers: Vec<Option<f64>>) -> (String, Vec<Option<f64>>) {
        (format!("{}, {}", self.name, self.model.name), numbers)
    }
}

impl Costs {
    /// Of each log; the first number is followed by its share of the one without a log.
    fn numbers<const N: usize>(&self, of: impl Fn(&Cost) -> [f64; N]) -> Vec<Option<f64>> {
        let [without, logs @ ..] = &self.0;
        let without = without.as_ref().map_or([0.0; N], &of);
        let mut numbers: Vec<Option<f64>> = without.iter().copied().map(Some).collect();
        for cost in logs {
            let own = cost.as_ref().map(&of);
            numbers.push(own.map(|own| own[0]));
            numbers.push(own.map(|own| own[0] / without[0] * 100.0));
            numbers.extend((1..N).map(|index| own.map(|own| own[index])));
        }
        numbers
    }
}

fn table(title: &str, columns: &[&str], rows: Vec<(String, Vec<Option<f64>>)>) -> Table {
    Table { title: title.to_owned(), columns: columns.iter().map(|name| (*name).to_owned()).collect(), rows }
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let cases = cases();
    let small = |case: &Case| case.row(case.costs(4096, Order::Random).numbers(|cost| [cost.per_second, cost.writes]));
    let large = |case: &Case| {
        let costs = case.costs(case.data_chunks * CHUNK_BYTES, Order::Linear);
        case.row(costs.numbers(|cost| [cost.megabytes_per_second]))
    };
    let small_columns = ["", "no log", "writes", "partial parity log", "%", "writes", "stripe log", "%", "writes"];
    let large_columns = ["", "no log", "partial parity log", "%", "stripe log", "%"];
    Report {
        experiment: "logs",
        title: "what a log against the write hole costs",
        setup: format!("{DRIVES} drives, chunk {} KiB, 32 requests under way", CHUNK_BYTES >> 10),
        figures: Vec::new(),
        traces: Vec::new(),
        tables: vec![
            table(
                "4 KiB random writes a second, per cent of those without a log, and members' writes for each",
                &small_columns,
                cases.iter().map(small).collect(),
            ),
            table("Full stripes, MB/s", &large_columns, cases.iter().map(large).collect()),
        ],
    }
}
