//! What the laboratory found: figures beside the published ones.

use crate::member::Traced;
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
    /// Figures that have columns of their own.
    pub tables: Vec<Table>,
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

/// Figures in columns: a name for each row, then numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The columns' names, that of the names first.
    pub columns: Vec<String>,
    /// A row's name, and its numbers; nothing where there is none.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// Cells of text, as a person sees them.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<'a> {
    /// What they show, if that has to be said.
    pub title: Option<&'a str>,
    /// The columns' names, then what is in them.
    pub rows: Vec<Vec<String>>,
    /// From this column on there are numbers.
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
    /// All that it has to say, as tables.
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

    /// For a person.
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

/// Four digits, or all before the point.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if value == value.round() => format!("{value:.0}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Columns as wide as their widest cell, two spaces apart; `to_the_right` for numbers.
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
