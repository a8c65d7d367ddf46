//! Doing something again and again, at regular intervals: `list --watch`, `status --watch`, `iostat`, `top`, `monitor`.
//! And the times that commands take as arguments.

use std::time::{Duration, Instant};

/// Comes to its next element when the time for it has come; the first at once.
pub(crate) struct Intervals {
    /// None: there is only one element.
    length: Option<Duration>,
    left: Option<u64>,
    due: Instant,
}

impl Intervals {
    /// Elements `length` seconds apart, `count` of them or without end; only one without a length.
    pub(crate) fn new(length: Option<f64>, count: Option<u64>) -> Self {
        let left = if length.is_some() { count } else { Some(1) };
        Self { length: length.map(Duration::from_secs_f64), left, due: Instant::now() }
    }
}

impl Iterator for Intervals {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let now = Instant::now();
        std::thread::sleep(self.due.saturating_duration_since(now));
        self.due = self.due.max(now) + self.length.unwrap_or_default();
        Some(())
    }
}

/// Seconds between two looks, as it is given on the command line.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds, such as 1 or 0.5".to_owned())?;
    if (0.01..=1e6).contains(&seconds) { Ok(seconds) } else { Err("expected 0.01 to 1000000 seconds".to_owned()) }
}

/// A time after which a command gives up; 0 is at once.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds, such as 60 or 0.5".to_owned())?;
    let is_possible = (0.0..=1e9).contains(&seconds);
    if is_possible { Ok(Duration::from_secs_f64(seconds)) } else { Err("expected 0 to 1000000000 seconds".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_were_asked_for_and_one_without_an_interval() {
        assert_eq!(Intervals::new(None, None).count(), 1);
        assert_eq!(Intervals::new(None, Some(5)).count(), 1);
        let begun = Instant::now();
        assert_eq!(Intervals::new(Some(0.01), Some(4)).count(), 4);
        assert!(begun.elapsed() >= Duration::from_millis(30), "they are apart");
    }

    #[test]
    fn seconds_are_positive_and_finite() {
        for (text, expected) in
            [("1", Some(1.0)), ("0.5", Some(0.5)), ("0", None), ("-1", None), ("inf", None), ("x", None)]
        {
            assert_eq!(parse_seconds(text).ok(), expected, "{text}");
        }
        assert_eq!(parse_timeout("0"), Ok(Duration::ZERO));
        assert_eq!(parse_timeout("1.5"), Ok(Duration::from_millis(1500)));
        for text in ["-1", "inf", "NaN", "1e10", "x"] {
            parse_timeout(text).expect_err(text);
        }
    }
}
