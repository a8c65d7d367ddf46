//! The figures of an experiment beside the published ones, as data and as tables of text.

use crate::member::Traced;
use serde::Serialize;
use std::fmt::Write;

/// The outcome of one experiment. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The experiment's name, for example `e2`.
    pub experiment: &'static str,
    /// The subject of the experiment.
    pub title: &'static str,
    /// Drives, array and workload.
    pub setup: String,
    /// Measured figures.
    pub figures: Vec<Figure>,
    /// Member transfers, where the experiment records them.
    pub traces: Vec<Trace>,
    /// Figures that need columns of their own.
    pub tables: Vec<Table>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The workload.
    pub workload: String,
    /// The settings of the array.
    pub setting: String,
    /// The unit, for example `IOPS` or `MB/s`.
    pub unit: &'static str,
    /// The published figure, if there is one.
    pub published: Option<f64>,
    /// The figure measured here.
    pub measured: f64,
}

/// A list of member transfers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// What was traced.
    pub title: String,
    /// The transfers, in the order of completion.
    pub transfers: Vec<Traced>,
}

/// Figures in columns: a name for each row, then numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// What the table shows.
    pub title: String,
    /// The names of the columns; the first column holds the names of the rows.
    pub columns: Vec<String>,
    /// The name of each row, and its numbers; `None` for an empty cell.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// A table as cells of text.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<'a> {
    /// The title, if the table needs one.
    pub title: Option<&'a str>,
    /// The heading, then the rows.
    pub rows: Vec<Vec<String>>,
    /// The first column that holds numbers.
    pub words: usize,
    to_the_right: Vec<bool>,
}

impl Table {
    fn rows(&self) -> Rows<'_> {
        let rows = self.rows.iter().map(|(name, numbers)| {
            let numbers = numbers.iter().map(|value| value.map_or(String::new(), number));
            std::iter::once(name.clone()).chain(numbers).collect()
        });
        let rows = std::iter::once(self.columns.clone()).chain(rows).collect();
        let to_the_right = (0..self.columns.len()).map(|column| column > 0).collect();
        Rows { title: Some(&self.title), rows, words: 1, to_the_right }
    }
}

impl Trace {
    fn rows(&self) -> Rows<'_> {
        let heading = ["time", "process", "device", "", "sector", "bytes", "ms"].map(str::to_owned).to_vec();
        let rows = std::iter::once(heading).chain(self.transfers.iter().map(traced)).collect();
        let to_the_right = vec![true, false, false, false, true, true, true];
        Rows { title: Some(&self.title), rows, words: 4, to_the_right }
    }
}

impl Report {
    /// The whole report as tables.
    pub fn rows(&self) -> Vec<Rows<'_>> {
        let figures = (!self.figures.is_empty()).then(|| self.figure_rows());
        figures
            .into_iter()
            .chain(self.tables.iter().map(Table::rows))
            .chain(self.traces.iter().map(Trace::rows))
            .collect()
    }

    fn figure_rows(&self) -> Rows<'_> {
        let mut rows = vec![["", "", "published", "here", ""].map(str::to_owned).to_vec()];
        let mut last = "";
        for figure in &self.figures {
            let workload = if figure.workload == last { String::new() } else { figure.workload.clone() };
            last = &figure.workload;
            let published = figure.published.map_or(String::new(), number);
            rows.push(vec![
                workload,
                figure.setting.clone(),
                published,
                number(figure.measured),
                figure.unit.to_owned(),
            ]);
        }
        Rows { title: None, rows, words: 2, to_the_right: vec![false, false, true, true, false] }
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n{}\n\n", self.experiment.to_uppercase(), self.title, self.setup);
        for Rows { title, rows, to_the_right, .. } in self.rows() {
            if let Some(title) = title {
                let _ = write!(text, "\n{title}\n\n"); // writing to a string cannot fail
            }
            table(&mut text, &rows, &to_the_right);
        }
        text
    }
}

fn traced(transfer: &Traced) -> Vec<String> {
    vec![
        format!("{:.6}", transfer.seconds),
        transfer.process.to_owned(),
        transfer.device.clone(),
        transfer.operation.to_string(),
        transfer.sector.to_string(),
        transfer.bytes.to_string(),
        format!("{:.3}", transfer.latency_ms),
    ]
}

/// Formats with four significant digits, or with all digits before the decimal point.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if value == value.round() => format!("{value:.0}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Appends a table with columns as wide as their widest cell, two spaces apart. `to_the_right` marks the columns that
/// are aligned to the right.
fn table(text: &mut String, rows: &[Vec<String>], to_the_right: &[bool]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..to_the_right.len()).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).zip(to_the_right).map(|((cell, width), right)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
}
