//! `/metrics`: the status and the measures as OpenMetrics, which Prometheus reads.
//!
//! Each reply is made from two snapshots; this file counts nothing itself. docs/control.md lists the names, and a test
//! compares the list.

use engine::status::{MemberStatus, Status};
use export::measure::{Done, Latencies, Measures, MemberMeasures, Metered};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;

/// Upper bounds of the buckets of durations, in seconds.
const BOUNDS: [f64; 17] =
    [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, f64::INFINITY];

/// The snapshots.
#[derive(Debug)]
struct Snapshot {
    status: Status,
    measures: Measures,
}

/// The text of a reply.
pub(crate) fn text(status: Status, measures: Measures) -> String {
    let labels = [("array".into(), status.name.clone().into()), ("uuid".into(), status.uuid.clone().into())];
    let mut registry = Registry::with_prefix_and_labels("mdspace", labels.into_iter());
    registry.register_collector(Box::new(Snapshot { status, measures }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string cannot fail");
    text
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
        let encoder = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
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
        self.array(writer)?;
        self.requests(writer)?;
        self.members(writer)
    }
}

impl Snapshot {
    fn array(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let status = &self.status;
        let is = |is: bool| if is { 1.0 } else { 0.0 };
        writer.gauge("array_size", "What the array offers", Some(&Unit::Bytes), status.array_bytes as f64)?;
        writer.gauge("array_slots", "Slots for members", None, f64::from(status.raid_disks))?;
        writer.gauge("array_in_sync", "Slots whose member is current", None, f64::from(status.in_sync))?;
        writer.gauge("array_broken", "1 when the array takes no writes", None, is(status.broken.is_some()))?;
        writer.gauge("array_in_agreement", "1 when parity and copies agree", None, is(status.in_agreement))?;
        writer.gauge("array_events", "Changes of metadata", None, status.events as f64)?;
        if let Some(checksums) = &status.checksums {
            let help = "Members' bytes that no checksum is known of: they are not verified";
            writer.gauge("checksums_unknown", help, Some(&Unit::Bytes), checksums.unknown_bytes as f64)?;
            let help = "Members' bytes of which it was not looked at yet whether a checksum is known";
            writer.gauge("checksums_uncounted", help, Some(&Unit::Bytes), checksums.uncounted_bytes as f64)?;
            writer.gauge("checksums_wrong", "Reads that found a block wrong", None, checksums.wrong as f64)?;
        }
        let total = status.sweep.as_ref().map_or(0.0, |sweep| sweep.percent / 100.0);
        writer.gauge("sweep_done", "How much of the sweep under way is done", Some(&Unit::Ratios), total)?;
        let sweeping = |action: &'static str| ([("action", action)], Gauge::new(is(status.sync_action == action)));
        let actions = ["idle", "frozen", "resync", "recover", "check", "repair", "reshape", "learn"];
        writer.family("sync_action", "1 for what is swept", None, actions.map(sweeping))?;
        writer.gauge("cache_size", "Old contents that are kept", Some(&Unit::Bytes), status.cache.bytes as f64)?;
        let waiting = status.cache.waiting_bytes as f64;
        writer.gauge("waiting", "Writes that wait for more of their stripes", Some(&Unit::Bytes), waiting)?;
        let set = status.bitmap.as_ref().map(|bitmap| (NO_LABELS, Gauge::new(bitmap.set as f64)));
        writer.family("bitmap_set", "Bits of the write-intent bitmap that are set", None, set)
    }

    fn requests(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let requests = &self.measures.requests;
        let kinds = || requests.kinds().into_iter().map(|(kind, done)| ([("operation", kind)], done));
        let bytes = kinds().map(|(labels, done)| (labels, Counter::new(done.bytes)));
        writer.family("request", "Bytes that requests moved", Some(&Unit::Bytes), bytes)?;
        let errors = kinds().map(|(labels, done)| (labels, Counter::new(done.errors)));
        writer.family("request_errors", "Requests that failed", None, errors)?;
        let durations = kinds().map(|(labels, done)| (labels, Durations(done)));
        writer.family("request_duration", "How long requests took", Some(&Unit::Seconds), durations)?;
        writer.gauge("requests_in_flight", "Requests under way", None, f64::from(requests.in_flight))
    }

    fn members(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let states = ["in_sync", "recovering", "spare", "faulty"];
        let state = self.status.members.iter().flat_map(|member| {
            let is = |state: &'static str| f64::from(u8::from(member.state == state));
            states.map(|state| ([("member", &*member.name), ("state", state)], Gauge::new(is(state))))
        });
        writer.family("member_state", "1 for the state that a member is in", None, state)?;
        let measured = &self.measures.members;
        let kinds = || measured.iter().flat_map(|MemberMeasures { name, metered }| kinds_of(name, metered));
        let bytes = kinds().map(|(labels, done)| (labels, Counter::new(done.bytes)));
        writer.family("member", "Bytes that members moved", Some(&Unit::Bytes), bytes)?;
        let errors = kinds().map(|(labels, done)| (labels, Counter::new(done.errors)));
        writer.family("member_errors", "Transfers that failed", None, errors)?;
        let of_each = |value: fn(&MemberStatus) -> u64| {
            let members = self.status.members.iter();
            members.map(move |member| ([("member", &*member.name)], value(member)))
        };
        let corrupt = of_each(|member| member.corrupt_blocks).map(|(labels, value)| (labels, Counter::new(value)));
        writer.family("member_corrupt_blocks", "Blocks wrong by their checksums", None, corrupt)?;
        let healed = of_each(|member| member.healed_bytes).map(|(labels, value)| (labels, Counter::new(value)));
        writer.family("member_healed", "Bytes that healing wrote anew", Some(&Unit::Bytes), healed)?;
        let to_heal = of_each(|member| member.to_heal_bytes).map(|(labels, value)| (labels, Gauge::new(value as f64)));
        writer.family("member_to_heal", "Bytes that healing has not come to", Some(&Unit::Bytes), to_heal)?;
        let durations = kinds().map(|(labels, done)| (labels, Durations(done)));
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

fn kinds_of<'a>(name: &'a str, metered: &'a Metered) -> impl Iterator<Item = ([(&'static str, &'a str); 2], &'a Done)> {
    metered.kinds().into_iter().map(move |(kind, done)| ([("member", name), ("operation", kind)], done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_once_and_never_below_what_they_were() {
        let latencies = Latencies(vec![(9_000, 3), (10_000, 1), (10_001, 2), (400_000_000, 1), (90_000_000_000, 5)]);
        let buckets = folded(&latencies);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), latencies.count());
        let at = |bound: f64| buckets.iter().find(|(b, _)| *b == bound).expect("a bound").1;
        assert_eq!((at(1e-5), at(2e-5), at(0.5), at(f64::INFINITY)), (4, 2, 1, 5));
    }
}
