//! `/metrics`: the status and the measures as OpenMetrics, which Prometheus reads.
//!
//! Each reply is made from two snapshots; this file counts nothing itself. What an array does not have, and what has not
//! happened to it, has no series: an idle array has few. Names follow Prometheus's conventions ("Metric and label naming"
//! and "Writing exporters" of its documents). docs/metrics.md lists the names, and a test compares the list.

use crate::command::server::exports::ExportStatus;
use crate::command::server::saved_scrub::LastScrub;
use crate::command::server::smart::Smart;
use engine::ScrubReport;
use engine::status::{MemberStatus, Status};
use export::measure::{Done, Latencies, Measures, MemberMeasures, Metered};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;

/// Upper bounds of the buckets of durations, in seconds.
const BOUNDS: [f64; 17] =
    [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, f64::INFINITY];

/// States of members, as in the status. A slot without a member counts as `missing`. `journal` is told where there is one.
const STATES: [&str; 6] = ["in_sync", "recovering", "replacement", "spare", "journal", "faulty"];

/// Kinds of operations that every array has.
const USUAL: [&str; 2] = ["read", "write"];

/// What a reply is made from.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) measures: Measures,
    pub(crate) exports: Vec<ExportStatus>,
    /// The backend of input and output.
    pub(crate) io: &'static str,
    /// The last complete scrub.
    pub(crate) last_scrub: Option<LastScrub>,
    /// The scrub under way, or the last one since the server started.
    pub(crate) scrub: Option<ScrubReport>,
    /// What smartd noted of members' drives, by the members' names.
    pub(crate) smarts: Vec<(String, Smart)>,
}

impl Snapshot {
    /// The text of a reply.
    pub(crate) fn text(self) -> String {
        let status = &self.status;
        let labels = [("array".into(), status.name.clone().into()), ("uuid".into(), status.uuid.clone().into())];
        let mut registry = Registry::with_prefix_and_labels("mdspace", labels.into_iter());
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }
}

/// Writes one family after another.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn family<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metrics: impl IntoIterator<Item = (L, M)>,
    ) -> Result<(), Error> {
        let mut metrics = metrics.into_iter().peekable();
        let Some((_, first)) = metrics.peek() else { return Ok(()) };
        let mut encoder = self.0.encode_descriptor(name, help, unit, first.metric_type())?;
        metrics.try_for_each(|(labels, metric)| metric.encode(encoder.encode_family(&labels)?))
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> Result<(), Error> {
        self.optional(name, help, unit, Some(value))
    }

    /// A gauge of what not every array has.
    fn optional(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: Option<f64>) -> Result<(), Error> {
        self.family(name, help, unit, value.map(|value| (NO_LABELS, Gauge::new(value))))
    }

    /// Words that describe something, as labels of a series that is always 1.
    fn info<const N: usize>(&mut self, name: &str, help: &str, words: [(&'static str, &str); N]) -> Result<(), Error> {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Info)?;
        Info::new(words).encode(encoder)
    }
}

/// Durations in the buckets for Prometheus.
struct Durations<'a>(&'a Done);

impl EncodeMetric for Durations<'_> {
    fn encode(&self, mut encoder: prometheus_client::encoding::MetricEncoder<'_>) -> Result<(), Error> {
        let buckets = folded(&self.0.latencies);
        encoder.encode_histogram::<NoLabelSet>(self.0.nanos as f64 / 1e9, self.0.count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// For each bound, the number of durations above the bound before it and up to it. A bucket of `latencies` that reaches
/// over a bound counts above that bound.
fn folded(latencies: &Latencies) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> = BOUNDS.iter().map(|bound| (*bound, 0)).collect();
    for &(nanos, count) in &latencies.0 {
        let place = BOUNDS.iter().position(|bound| nanos as f64 / 1e9 <= *bound).expect("the last is infinite");
        buckets[place].1 += count;
    }
    buckets
}

type Counter = ConstCounter<u64>;
type Gauge = ConstGauge<f64>;

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let writer = &mut Writer(encoder);
        self.server(writer)?;
        self.array(writer)?;
        self.memory(writer)?;
        self.sweep(writer)?;
        self.scrub(writer)?;
        self.requests(writer)?;
        self.members(writer)?;
        self.faults(writer)?;
        smart(&self.smarts, writer)?;
        self.transfers(writer)
    }
}

impl Snapshot {
    fn server(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let version = ("version", env!("CARGO_PKG_VERSION"));
        let words = [version, ("io", self.io), ("parity", self.status.kernel)];
        writer.info("build", "The server, how it reads and writes, and its parity kernel", words)?;
        let clients = self.exports.iter().map(|export| {
            let labels = [("export", export.kind), ("address", &*export.address)];
            (labels, Gauge::new(export.clients as f64))
        });
        writer.family("clients", "Clients that are connected", None, clients)
    }

    fn array(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let status = &self.status;
        let words = [
            ("level", status.level),
            ("layout", status.layout.as_deref().unwrap_or_default()),
            ("metadata", &*status.metadata),
            ("consistency_policy", status.consistency_policy),
        ];
        writer.info("array", "What kind of array it is, and what makes it consistent after a crash", words)?;
        writer.gauge("array_size", "What the array offers", Some(&Unit::Bytes), status.array_bytes as f64)?;
        writer.gauge("array_slots", "Slots for members", None, f64::from(status.raid_disks))?;
        writer.gauge("array_in_sync", "Slots whose member is current", None, f64::from(status.in_sync))?;
        let help = "Current members that may fail, whichever they are, without loss of data";
        writer.gauge("array_may_fail", help, None, f64::from(status.may_fail))?;
        writer.gauge("array_broken", "1 when the array takes no writes", None, is(status.broken.is_some()))?;
        writer.gauge("array_read_only", "1 when the array is served read-only", None, is(status.read_only))?;
        writer.gauge("array_in_agreement", "1 when parity and copies agree", None, is(status.in_agreement))?;
        writer.gauge("array_events", "Changes of metadata", None, status.events as f64)?;
        let created = status.created as f64;
        writer.gauge("array_created_timestamp", "When the array was created", Some(&Unit::Seconds), created)?;
        let bitmap = status.bitmap.as_ref();
        let chunks = bitmap.map(|bitmap| bitmap.bits as f64);
        writer.optional("bitmap_chunks", "Chunks that the write-intent bitmap covers", None, chunks)?;
        let dirty = bitmap.map(|bitmap| bitmap.set as f64);
        writer.optional("bitmap_dirty_chunks", "Chunks whose bit is set", None, dirty)
    }

    fn memory(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let cache = &self.status.cache;
        writer.gauge("cache_size", "Old contents that are kept", Some(&Unit::Bytes), cache.bytes as f64)?;
        let help = "Writes that wait for more of their stripes";
        writer.gauge("waiting", help, Some(&Unit::Bytes), cache.waiting_bytes as f64)?;
        let checksums = self.status.checksums.as_ref();
        let unknown = checksums.map(|checksums| checksums.unknown_bytes as f64);
        let help = "Members' bytes that no checksum is known of: they are not verified";
        writer.optional("checksums_unknown", help, Some(&Unit::Bytes), unknown)?;
        let uncounted = checksums.map(|checksums| checksums.uncounted_bytes as f64);
        let help = "Members' bytes of which it was not looked at yet whether a checksum is known";
        writer.optional("checksums_uncounted", help, Some(&Unit::Bytes), uncounted)?;
        let wrong = checksums.map(|checksums| (NO_LABELS, Counter::new(checksums.wrong)));
        writer.family("checksums_wrong_blocks", "Blocks that were wrong by their checksums", None, wrong)
    }

    fn sweep(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let status = &self.status;
        let action = [([("action", status.sync_action)], Gauge::new(1.0))];
        writer.family("sync_action", "1 for what is swept, by md's names", None, action)?;
        let failed = is(status.sweep_failure.is_some());
        writer.gauge("sweep_failed", "1 when the last sweep could not be finished", None, failed)?;
        let sweep = status.sweep.as_ref();
        let done = sweep.map(|sweep| sweep.percent / 100.0);
        let ratio = Unit::Other("ratio".to_owned());
        writer.optional("sweep_done", "How much of the sweep under way is done", Some(&ratio), done)?;
        let speed = sweep.map(|sweep| sweep.bytes_per_second as f64);
        let help = "Bytes of each member that the sweep under way moves in a second";
        writer.optional("sweep_speed_bytes_per_second", help, None, speed)?;
        let left = sweep.and_then(|sweep| sweep.seconds_left).map(|seconds| seconds as f64);
        writer.optional("sweep_remaining", "Time that the sweep needs at this speed", Some(&Unit::Seconds), left)?;
        let held = sweep.and_then(|sweep| sweep.held_by.as_deref()).map(|by| ([("by", by)], Gauge::new(1.0)));
        writer.family("sweep_held", "1 for what keeps the sweep from running faster", None, held)
    }

    fn scrub(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let last = self.last_scrub.as_ref();
        let ended = last.map(|last| last.ended as f64);
        let help = "When the last scrub of the whole array was complete";
        writer.optional("scrub_last_end_timestamp", help, Some(&Unit::Seconds), ended)?;
        let found = last.map(|last| last.found as f64);
        writer.optional("scrub_last_mismatches", "Rows of 4 KiB that it found wrong", None, found)?;
        let left = last.map(|last| last.left as f64);
        writer.optional("scrub_last_uncorrected", "Rows that it left wrong", None, left)?;
        let found = self.scrub.as_ref().map(|scrub| scrub.found.counts.found() as f64);
        let help = "Rows found wrong by the scrub under way, or by the last one since the start of the server";
        writer.optional("scrub_mismatches", help, None, found)
    }

    fn requests(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let requests = &self.measures.requests;
        let kinds = || used(requests).map(|(kind, done)| ([("operation", kind)], done));
        let bytes = kinds().filter(moves_bytes).map(|(labels, done)| (labels, Counter::new(done.bytes)));
        writer.family("request", "Bytes that requests moved", Some(&Unit::Bytes), bytes)?;
        let errors = kinds().map(|(labels, done)| (labels, Counter::new(done.errors)));
        writer.family("request_errors", "Requests that failed", None, errors)?;
        let durations = kinds().filter(|(_, done)| has_happened(done)).map(|(labels, done)| (labels, Durations(done)));
        writer.family("request_duration", "How long requests took", Some(&Unit::Seconds), durations)?;
        writer.gauge("requests_in_flight", "Requests under way", None, f64::from(requests.in_flight))
    }

    fn members(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let Status { members, missing, .. } = &self.status;
        let count = |state: &str| members.iter().filter(|member| member.state == state).count();
        let counts = STATES.map(|state| (state, count(state))).into_iter().chain([("missing", missing.len())]);
        let counts = counts.filter(|(state, count)| *state != "journal" || *count > 0);
        let counts = counts.map(|(state, count)| ([("state", state)], Gauge::new(count as f64)));
        writer.family("members", "Members in each state, and slots without one", None, counts)?;
        let states =
            members.iter().map(|member| ([("member", &*member.name), ("state", member.state)], Gauge::new(1.0)));
        writer.family("member_state", "1 for the state that a member is in", None, states)
    }

    /// What is wrong with members.
    fn faults(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let of_each = |value: fn(&MemberStatus) -> u64| {
            let members = self.status.members.iter();
            members.map(move |member| ([("member", &*member.name)], value(member)))
        };
        let count =
            |value: fn(&MemberStatus) -> u64| of_each(value).map(|(labels, value)| (labels, Counter::new(value)));
        let gauge =
            |value: fn(&MemberStatus) -> u64| of_each(value).map(|(labels, value)| (labels, Gauge::new(value as f64)));
        let corrupt = count(|member| member.corrupt_blocks).filter(|_| self.status.checksums.is_some());
        writer.family("member_corrupt_blocks", "Blocks wrong by their checksums", None, corrupt)?;
        let corrected = count(|member| member.corrected_sectors.into());
        let help = "Sectors that could not be read and were corrected, since the member was added";
        writer.family("member_corrected_sectors", help, None, corrected)?;
        let healed = count(|member| member.healed_bytes);
        writer.family("member_healed", "Bytes that read repair wrote anew", Some(&Unit::Bytes), healed)?;
        let to_heal = gauge(|member| member.to_heal_bytes);
        writer.family("member_to_heal", "Bytes that read repair has not come to", Some(&Unit::Bytes), to_heal)?;
        let bad = gauge(|member| member.bad_bytes);
        writer.family("member_bad", "Bytes in the member's log of bad blocks", Some(&Unit::Bytes), bad)?;
        let owed = gauge(|member| member.owed_bytes);
        writer.family("member_owed", "Bytes that the member has no room for", Some(&Unit::Bytes), owed)
    }

    fn transfers(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let measured = &self.measures.members;
        let kinds = || measured.iter().flat_map(|MemberMeasures { name, metered }| kinds_of(name, metered));
        let bytes = kinds().filter(moves_bytes).map(|(labels, done)| (labels, Counter::new(done.bytes)));
        writer.family("member", "Bytes that members moved", Some(&Unit::Bytes), bytes)?;
        let errors = kinds().map(|(labels, done)| (labels, Counter::new(done.errors)));
        writer.family("member_errors", "Transfers that failed", None, errors)?;
        let durations = kinds().filter(|(_, done)| has_happened(done)).map(|(labels, done)| (labels, Durations(done)));
        writer.family("member_duration", "How long transfers took", Some(&Unit::Seconds), durations)?;
        let reasons = measured.iter().flat_map(|member| {
            let reasons = member.metered.reasons.iter();
            reasons.map(|(why, reason)| ([("member", &*member.name), ("why", &**why)], Counter::new(reason.transfers)))
        });
        writer.family("member_transfers", "Transfers by what they were made for", None, reasons)?;
        let of_all = |value: fn(&Metered) -> f64| {
            measured.iter().map(move |member| ([("member", &*member.name)], value(&member.metered)))
        };
        let busy = of_all(|metered| metered.busy_nanos as f64 / 1e9);
        let busy = busy.map(|(labels, seconds)| (labels, ConstCounter::<f64>::new(seconds)));
        writer.family("member_busy", "Time with any transfer under way", Some(&Unit::Seconds), busy)?;
        let in_flight = of_all(|metered| f64::from(metered.in_flight));
        let in_flight = in_flight.map(|(labels, value)| (labels, Gauge::new(value)));
        writer.family("member_in_flight", "Transfers under way", None, in_flight)
    }
}

const NO_LABELS: [(&str, &str); 0] = [];

fn is(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

fn has_happened(done: &Done) -> bool {
    done.count + done.errors > 0
}

/// The usual kinds of operations, and others once they have happened.
fn used(metered: &Metered) -> impl Iterator<Item = (&'static str, &Done)> {
    metered.kinds().into_iter().filter(|(kind, done)| USUAL.contains(kind) || has_happened(done))
}

/// A flush moves none.
fn moves_bytes<const N: usize>((labels, _): &([(&'static str, &str); N], &Done)) -> bool {
    labels[N - 1].1 != "flush"
}

/// What smartd noted of members' drives.
fn smart(smarts: &[(String, Smart)], writer: &mut Writer<'_>) -> Result<(), Error> {
    let failing = smarts.iter().map(|(name, smart)| ([("member", &**name)], Gauge::new(is(smart.failing))));
    writer.family("member_smart_failing", "1 when SMART calls the member's drive failing", None, failing)?;
    let sectors = smarts.iter().flat_map(|(name, smart)| {
        let kinds = [
            ("reallocated", smart.reallocated_sectors),
            ("pending", smart.pending_sectors),
            ("uncorrectable", smart.uncorrectable_sectors),
            ("media_error", smart.media_errors),
        ];
        let known = kinds.into_iter().filter_map(|(kind, count)| Some((kind, count?)));
        known.map(|(kind, count)| ([("member", &**name), ("kind", kind)], Gauge::new(count as f64)))
    });
    writer.family("member_smart_bad_sectors", "Sectors that SMART counts as bad, by kind", None, sectors)
}

fn kinds_of<'a>(name: &'a str, metered: &'a Metered) -> impl Iterator<Item = ([(&'static str, &'a str); 2], &'a Done)> {
    used(metered).map(move |(kind, done)| ([("member", name), ("operation", kind)], done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct OfDrives(Vec<(String, Smart)>);

    impl Collector for OfDrives {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
            smart(&self.0, &mut Writer(encoder))
        }
    }

    #[test]
    fn what_smartd_noted_of_drives_has_series_and_what_it_does_not_know_has_none() {
        let ata = Smart { failing: true, pending_sectors: Some(8), reallocated_sectors: Some(0), ..Smart::default() };
        let nvme = Smart { media_errors: Some(3), ..Smart::default() };
        let mut registry = Registry::with_prefix("mdspace");
        registry.register_collector(Box::new(OfDrives(vec![("/dev/sda1".into(), ata), ("/dev/nvme0n1".into(), nvme)])));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string");
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            r#"mdspace_member_smart_failing{member="/dev/sda1"} 1.0"#,
            r#"mdspace_member_smart_failing{member="/dev/nvme0n1"} 0.0"#,
            r#"mdspace_member_smart_bad_sectors{member="/dev/sda1",kind="reallocated"} 0.0"#,
            r#"mdspace_member_smart_bad_sectors{member="/dev/sda1",kind="pending"} 8.0"#,
            r#"mdspace_member_smart_bad_sectors{member="/dev/nvme0n1",kind="media_error"} 3.0"#,
        ];
        assert_eq!(series, expected);
    }

    #[test]
    fn durations_are_counted_once_and_never_below_what_they_were() {
        let latencies = Latencies(vec![(9_000, 3), (10_000, 1), (10_001, 2), (400_000_000, 1), (90_000_000_000, 5)]);
        let buckets = folded(&latencies);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), latencies.count());
        let at = |bound: f64| buckets.iter().find(|(b, _)| *b == bound).expect("a bound").1;
        assert_eq!((at(1e-5), at(2e-5), at(0.5), at(f64::INFINITY)), (4, 2, 1, 5));
    }
}
