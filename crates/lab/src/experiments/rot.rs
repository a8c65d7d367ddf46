//! Silent corruption of every kind, checked and repaired: the cases of [`crate::rot`], as tables.

use crate::report::{Report, Table};
use crate::rot::{Kind, SHAPES, SURE_SHAPES, Shape, Tally, run as corrupt};

/// Cases of each kind for each shape in the published table.
const CASES: u64 = 40;

const COLUMNS: [&str; 11] = [
    "",
    "cases",
    "wrong blocks",
    "named",
    "named, lost",
    "undecidable",
    "missed",
    "healed",
    "healthy named",
    "healthy changed",
    "made worse",
];

fn row(shape: &Shape, kind: Kind, tally: &Tally) -> (String, Vec<Option<f64>>) {
    let Tally { cases, wrong, named, lost, undecidable, missed, accused, healed, damaged, botched, .. } = *tally;
    let numbers = [cases, wrong, named, lost, undecidable, missed, healed, accused, damaged, botched];
    (format!("{}: {}", shape.name, kind.name()), numbers.iter().map(|count| Some(*count as f64)).collect())
}

fn table(title: &str, shapes: &[Shape], cases: u64) -> Table {
    let rows = shapes.iter().flat_map(|shape| Kind::ALL.map(|kind| row(shape, kind, &corrupt(shape, kind, 0, cases))));
    Table { title: title.to_owned(), columns: COLUMNS.map(str::to_owned).into(), rows: rows.collect() }
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    measure(CASES)
}

/// Runs the experiment with this many cases of each kind for each shape.
pub fn measure(cases: u64) -> Report {
    Report {
        experiment: "rot",
        title: "silent corruption: what a check said, and what a repair did; blocks of 4 KiB",
        setup: format!(
            "{} KiB of each member, written twice; then something changes unseen",
            Shape::COMPONENT_BYTES >> 10
        ),
        figures: Vec::new(),
        traces: Vec::new(),
        tables: vec![table("With checksums", &SURE_SHAPES, cases), table("Without checksums", &SHAPES, cases)],
    }
}
