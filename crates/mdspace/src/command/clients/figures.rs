//! Measures as users read them: rates over an interval, times, and load.

use crate::command::text::size::Size;
use export::measure::{Done, Measures, Metered};

/// A member that has a transfer under way for this percentage of the time has no more to give.
const BUSY: f64 = 90.0;

/// A member is slower than the others if they are busy for less than this part of its time.
const BEHIND: f64 = 0.8;

/// How members limit a sweep.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Pace {
    /// One of them does: busy for so many percent of the time, and the others at most for so many.
    Member { name: String, busy: f64, others: f64 },
    /// All of them are about as busy.
    AllMembers,
}

/// Measures of an interval, or since the server's start.
pub(crate) struct Figures {
    measures: Measures,
    /// The interval's length; `None` for sums since the start.
    seconds: Option<f64>,
}

impl Figures {
    /// Sums since the server's start.
    pub(crate) fn sums(measures: Measures) -> Self {
        Self { measures, seconds: None }
    }

    /// Rates since the server's start.
    pub(crate) fn averages(measures: Measures) -> Self {
        Self { seconds: Some(seconds(&measures)), measures }
    }

    /// Rates between two snapshots.
    pub(crate) fn between(earlier: &Measures, later: &Measures) -> Self {
        let measures = later.since(earlier);
        Self { seconds: Some(seconds(&measures)), measures }
    }

    /// The measures of the member `name`.
    pub(crate) fn member(&self, name: &str) -> Option<&Metered> {
        self.measures.members.iter().find(|member| member.name == name).map(|member| &member.metered)
    }

    /// All members, by name.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Metered)> {
        self.measures.members.iter().map(|member| (&*member.name, &member.metered))
    }

    /// The measures of requests.
    pub(crate) fn requests(&self) -> &Metered {
        &self.measures.requests
    }

    /// `count` per second; without an interval, `count`.
    pub(crate) fn rate(&self, count: u64) -> f64 {
        count as f64 / self.seconds.unwrap_or(1.0)
    }

    /// Bytes, or bytes per second.
    pub(crate) fn bytes(&self, bytes: u64) -> String {
        let size = Size(self.rate(bytes) as u64);
        if self.seconds.is_some() { format!("{size}/s") } else { size.to_string() }
    }

    /// Mean number under way: the sum of all latencies, divided by the time.
    pub(crate) fn queue(&self, metered: &Metered) -> f64 {
        let nanos: u64 = metered.kinds().iter().map(|(_, done)| done.nanos).sum();
        nanos as f64 / self.measures.nanos.max(1) as f64
    }

    /// Percentage of the time with at least one transfer under way.
    pub(crate) fn utilization(&self, metered: &Metered) -> f64 {
        (metered.busy_nanos as f64 * 100.0 / self.measures.nanos.max(1) as f64).min(100.0)
    }

    /// What the members show about a sweep that waits for nothing else; `None` without an interval.
    pub(crate) fn pace(&self) -> Option<Pace> {
        self.seconds?;
        let mut busy: Vec<_> = self.members().map(|(name, metered)| (self.utilization(metered), name)).collect();
        busy.sort_by(|a, b| b.0.total_cmp(&a.0));
        match busy[..] {
            [(first, name), (second, _), ..] if first >= BUSY && second < first * BEHIND => {
                Some(Pace::Member { name: name.to_owned(), busy: first, others: second })
            }
            [(first, _), ..] if first >= BUSY => Some(Pace::AllMembers),
            _ => None,
        }
    }

    /// A line for each kind of request that occurred.
    pub(crate) fn requests_text(&self) -> String {
        let requests = self.requests();
        let unit = if self.seconds.is_some() { "/s" } else { "" };
        let line = |(name, done): (&str, &Done)| {
            let count = self.rate(done.count);
            let bytes = if name == "flush" { String::new() } else { format!(", {}", self.bytes(done.bytes)) };
            let errors = if done.errors > 0 { format!(", {} failed", done.errors) } else { String::new() };
            let times = times_text(done);
            let digits = usize::from(self.seconds.is_some() && count < 10.0);
            format!("  requests: {name:7} {count:.digits$}{unit}{bytes}{times}{errors}\n")
        };
        let kinds = requests.kinds();
        let mut text: String = kinds.into_iter().filter(|(_, done)| done.count > 0).map(line).collect();
        if requests.in_flight > 0 {
            text += &format!("  requests: under way {}, {:.1} on average\n", requests.in_flight, self.queue(requests));
        }
        text
    }
}

/// Mean and 99th percentile of the times.
fn times_text(done: &Done) -> String {
    let Some(mean) = done.mean_nanos() else { return String::new() };
    let tail = done.latencies.quantile(0.99).map_or(String::new(), |nanos| format!(", 99 % in {}", time(nanos)));
    format!(", mean {}{tail}", time(mean))
}

fn seconds(measures: &Measures) -> f64 {
    measures.nanos.max(1) as f64 / 1e9
}

/// A time with a suitable unit, to three digits.
pub(crate) fn time(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000_000 => (nanos as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// A time in milliseconds, as iostat prints it; `-` if nothing was measured.
pub(crate) fn milliseconds(nanos: Option<u64>) -> String {
    nanos.map_or("-".to_owned(), |nanos| format!("{:.3}", nanos as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use export::measure::{Kind, MemberMeasures, Meter};

    #[test]
    fn times_have_three_digits() {
        for (nanos, text) in [
            (0, "0.00 us"),
            (1_234, "1.23 us"),
            (56_789, "56.8 us"),
            (999_400, "999 us"),
            (1_000_000, "1.00 ms"),
            (45_600_000, "45.6 ms"),
            (7_890_000_000, "7.89 s"),
        ] {
            assert_eq!(time(nanos), text);
        }
        assert_eq!(milliseconds(Some(1_234_567)), "1.235");
        assert_eq!(milliseconds(None), "-");
    }

    #[test]
    fn the_member_that_a_sweep_waits_for_is_named_only_if_the_others_wait_for_it() {
        let busy = |percent: u64| {
            let meter = Meter::default();
            meter.begin(0);
            meter.end(Kind::Read, 4096, 0, percent * 10_000_000, true);
            meter.snapshot(1_000_000_000)
        };
        let slow = |others| Some(Pace::Member { name: "m1".to_owned(), busy: 95.0, others });
        for (percents, expected) in [
            (&[60, 95, 50][..], slow(60.0)),
            (&[90, 95, 93], Some(Pace::AllMembers)),
            (&[60, 70, 10], None),
            (&[95], Some(Pace::AllMembers)),
            (&[], None),
        ] {
            let members = percents.iter().enumerate();
            let members =
                members.map(|(at, percent)| MemberMeasures { name: format!("m{at}"), metered: busy(*percent) });
            let measures = Measures { nanos: 1_000_000_000, requests: busy(0), members: members.collect() };
            assert_eq!(Figures::averages(measures.clone()).pace(), expected, "{percents:?}");
            assert_eq!(Figures::sums(measures).pace(), None, "sums since the start tell nothing of now");
        }
    }

    #[test]
    fn rates_are_of_the_interval_and_sums_of_all() {
        let meter = Meter::default();
        let measures = |nanos| Measures {
            nanos,
            requests: meter.snapshot(nanos),
            members: vec![MemberMeasures { name: "a".to_owned(), metered: meter.snapshot(nanos) }],
        };
        meter.begin(0);
        meter.end(Kind::Read, 4096, 0, 500_000_000, true);
        let earlier = measures(1_000_000_000);
        meter.begin(1_000_000_000);
        meter.end(Kind::Read, 8192, 1_000_000_000, 2_000_000_000, true);
        let later = measures(3_000_000_000);
        let between = Figures::between(&earlier, &later);
        let member = between.member("a").expect("it was measured");
        assert_eq!((between.rate(member.read.count), between.queue(member)), (0.5, 0.5));
        assert_eq!(between.utilization(member), 50.0);
        assert_eq!(between.bytes(member.read.bytes), "4 KiB/s");
        assert_eq!(between.requests_text(), "  requests: read    0.5/s, 4 KiB/s, mean 1.00 s, 99 % in 1.01 s\n");
        let sums = Figures::sums(later);
        assert_eq!(sums.bytes(sums.requests().read.bytes), "12 KiB");
        assert!(
            sums.requests_text().starts_with("  requests: read    2, 12 KiB, mean 750 ms"),
            "{}",
            sums.requests_text()
        );
    }
}
