//! What the laboratory found: figures beside the published ones.

use super::member::Traced;
use serde::Serialize;
use std::fmt::Write;

/// One experiment's outcome. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// `e2`
    pub experiment: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Drives, array and workload.
    pub setup: String,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// Member transfers, where the experiment shows them.
    pub traces: Vec<Trace>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What was asked of the array.
    pub workload: String,
    /// How the array was set.
    pub setting: String,
    /// `IOPS`, `MB/s`, ...
    pub unit: &'static str,
    /// What was published for it.
    pub published: Option<f64>,
    /// What the model gives.
    pub measured: f64,
}

/// Member transfers, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// Of what.
    pub title: String,
    /// The transfers, in the order in which they were done.
    pub transfers: Vec<Traced>,
}

impl Report {
    /// For a person.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n{}\n\n", self.experiment.to_uppercase(), self.title, self.setup);
        let heading = ["", "", "published", "here", ""].map(str::to_owned);
        let mut rows = vec![heading];
        let mut last = "";
        for figure in &self.figures {
            let workload = if figure.workload == last { String::new() } else { figure.workload.clone() };
            last = &figure.workload;
            let published = figure.published.map_or(String::new(), number);
            rows.push([workload, figure.setting.clone(), published, number(figure.measured), figure.unit.to_owned()]);
        }
        table(&mut text, &rows, &[false, false, true, true, false]);
        for trace in &self.traces {
            let _ = write!(text, "\n{}\n\n", trace.title); // writing to a string cannot fail
            let heading = ["time", "process", "device", "", "sector", "bytes", "ms"].map(str::to_owned);
            let rows: Vec<_> = std::iter::once(heading).chain(trace.transfers.iter().map(traced)).collect();
            table(&mut text, &rows, &[true, false, false, false, true, true, true]);
        }
        text
    }
}

fn traced(transfer: &Traced) -> [String; 7] {
    [
        format!("{:.6}", transfer.seconds),
        transfer.process.to_owned(),
        transfer.device.clone(),
        transfer.operation.to_string(),
        transfer.sector.to_string(),
        transfer.bytes.to_string(),
        format!("{:.3}", transfer.latency_ms),
    ]
}

/// Four digits, or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value == value.round() => format!("{value:.0}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Columns as wide as their widest cell, two spaces apart; `to_the_right` for numbers.
fn table<const N: usize>(text: &mut String, rows: &[[String; N]], to_the_right: &[bool; N]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).zip(to_the_right).map(|((cell, width), right)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
}
