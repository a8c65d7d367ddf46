//! The lines of records.tsv: a kind, and fields separated by tabs. It never judges them.

/// The file, in the workspace.
pub(super) const PATH: &str = "xtask/src/policies/records.tsv";

/// All lines, in order.
pub(super) struct Records(Vec<String>);

impl Records {
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().map(str::to_owned).collect())
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Puts these lines in the place of all that begin with these fields.
    pub(super) fn replace(&mut self, fields: &str, lines: Vec<String>) {
        let is_one =
            |line: &str| line.strip_prefix(fields).is_some_and(|rest| rest.is_empty() || rest.starts_with('\t'));
        self.0.retain(|line| !is_one(line));
        self.0.extend(lines);
        self.0.sort();
    }

    /// The fields after `keys` of each line that begins with them.
    pub(super) fn of<'a>(&'a self, keys: &'a [&str]) -> impl Iterator<Item = Vec<&'a str>> {
        self.0.iter().filter_map(move |line| {
            let fields: Vec<&str> = line.split('\t').collect();
            Some(fields.strip_prefix(keys)?.to_vec())
        })
    }

    /// The numbers after `keys`, summed over all lines that begin with them; empty if none does.
    pub(super) fn sums(&self, keys: &[&str], skip: usize) -> Vec<u64> {
        let mut sums = Vec::new();
        for fields in self.of(keys) {
            let numbers = fields[skip..].iter().map(|field| field.parse().unwrap_or(0));
            for (place, number) in numbers.enumerate() {
                if place == sums.len() {
                    sums.push(0);
                }
                sums[place] += number;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_kind_are_replaced_and_found_by_what_they_begin_with() {
        let mut records = Records::parse("b\tx\t5\t1\na\ty\nb\tx\t6\t2\n");
        assert_eq!(records.sums(&["b", "x"], 1), [3]);
        assert_eq!(records.sums(&["b"], 1), [11, 3]);
        assert!(records.sums(&["c"], 0).is_empty());
        records.replace("b", vec!["b\tz\t7".into(), "b\tzz\t8".into()]);
        records.replace("b\tz", vec!["b\tz\t9".into()]);
        assert_eq!(records.text(), "a\ty\nb\tz\t9\nb\tzz\t8\n");
        assert_eq!(records.of(&["b", "z"]).collect::<Vec<_>>(), [["9"]]);
    }
}
