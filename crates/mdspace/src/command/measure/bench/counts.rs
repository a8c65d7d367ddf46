//! The members' transfers for writes of several kinds, counted where the engine issues them: exact, and free of noise.
//!
//! Each workload ends with a flush and has an array of its own, so that none profits from another's cache. Linear
//! workloads end where a stripe and a request end together, so that no partial stripe remains, for which the engine
//! would have to read.

use super::{candidates, options};
use crate::command::text::failure::Failure;
use crate::machine::{Array, Machine};
use engine::{AssembleOptions, Block, CACHE_BYTES, Durability, WriteBack};
use format::geometry::Geometry;
use futures_util::{StreamExt, TryStreamExt, stream};
use io::AnyMember;
use serde::Serialize;

/// Approximate number of bytes that a linear workload writes.
const LINEAR_BYTES: u64 = 64 << 20;

/// Requests of a random workload.
const RANDOM_REQUESTS: u64 = 4096;

/// The longest request.
pub(super) const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A count. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Serialize)]
pub(super) struct Count {
    /// `linear` or `random`.
    pub(super) order: &'static str,
    /// Bytes of each request.
    pub(super) request_bytes: u64,
    /// Requests under way at a time.
    pub(super) depth: usize,
    /// Number of requests.
    pub(super) requests: u64,
    /// Total of all members.
    pub(super) reads: u64,
    /// Their bytes.
    pub(super) read_bytes: u64,
    /// Total of all members.
    pub(super) writes: u64,
    /// Their bytes.
    pub(super) written_bytes: u64,
    /// Bytes of data and parity that full stripes would write.
    pub(super) least_written_bytes: u64,
}

/// The workloads, all of writes. The queue of the first linear ones holds at least a stripe of ten members with 64 KiB
/// chunks; that of the others is short.
const WORKLOADS: [(&str, u64, usize); 11] = [
    ("linear", 4 << 10, 128),
    ("linear", 16 << 10, 32),
    ("linear", 64 << 10, 16),
    ("linear", 448 << 10, 4),
    ("linear", 1000 << 10, 4),
    ("linear", 1 << 20, 4),
    ("linear", 4 << 10, 1),
    ("linear", 64 << 10, 1),
    ("linear", 64 << 10, 4),
    ("linear", 1 << 20, 1),
    ("random", 4 << 10, 32),
];

/// Counts every workload on the array of `members`.
pub(super) async fn count_all(
    machine: &Machine,
    members: &[AnyMember],
    geometry: &Geometry,
    template: &Block,
    answers: Option<WriteBack>,
) -> Result<Vec<Count>, Failure> {
    let mut counts = Vec::with_capacity(WORKLOADS.len());
    for (order, request_bytes, depth) in WORKLOADS {
        let places = places(order, request_bytes, geometry);
        if places.is_empty() {
            continue; // the array is too small
        }
        let array =
            Array::assemble(candidates(members), of_drives(machine), machine.pool.clone(), machine.clock.clone())
                .await?;
        let cache = answers.map(|answers| {
            let array = array.clone();
            io::spawn(async move { array.write_back(answers).await })
        });
        io::yield_now().await; // from now on such writes are answered from memory
        let requests = places.len() as u64;
        let piece = template.slice(0..request_bytes as usize);
        stream::iter(places.into_iter().map(|at| array.write(at, piece.clone(), Durability::Ordinary)))
            .buffer_unordered(depth)
            .try_collect::<()>()
            .await?;
        array.flush().await?;
        let members = array.status().members;
        array.stop().await?;
        if let Some(cache) = cache {
            cache.await;
        }
        counts.push(Count {
            order,
            request_bytes,
            depth,
            requests,
            reads: members.iter().map(|member| member.reads).sum(),
            read_bytes: members.iter().map(|member| member.read_bytes).sum(),
            writes: members.iter().map(|member| member.writes).sum(),
            written_bytes: members.iter().map(|member| member.written_bytes).sum(),
            least_written_bytes: least_written(geometry, requests * request_bytes),
        });
    }
    Ok(counts)
}

/// Options under which memory members get the transfers that drives would get.
fn of_drives(machine: &Machine) -> AssembleOptions {
    AssembleOptions { cache_bytes: Some(CACHE_BYTES), ..options(machine) }
}

/// Positions of the requests.
fn places(order: &str, request_bytes: u64, geometry: &Geometry) -> Vec<u64> {
    let room = geometry.array_bytes().min(LINEAR_BYTES);
    if order == "linear" {
        let both = least_common_multiple(request_bytes, full_stripe(geometry));
        return (0..(room / both * both) / request_bytes).map(|number| number * request_bytes).collect();
    }
    let mut random = super::workload::Xorshift::default();
    let places = geometry.array_bytes() / request_bytes;
    (0..RANDOM_REQUESTS).map(|_| random.next() % places * request_bytes).collect()
}

/// Bytes of data in a stripe; a sector for levels without parity.
fn full_stripe(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Parity(parity) => parity.stripe_bytes(),
        Geometry::Mapping(_) => 512,
    }
}

fn least_written(geometry: &Geometry, bytes: u64) -> u64 {
    match geometry {
        Geometry::Parity(parity) => {
            let (data, all) = (u64::from(parity.data_chunks()), u64::from(parity.slots()));
            bytes * all / data
        }
        Geometry::Mapping(mapping) => bytes * u64::from(mapping.copies()),
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut greater, mut rest) = (a, b);
    while rest != 0 {
        (greater, rest) = (rest, greater % rest);
    }
    a / greater * b
}

impl Count {
    /// A row of the table: transfers per request, and bytes per byte written.
    pub(super) fn row(&self) -> Vec<String> {
        let (requests, bytes) = (self.requests as f64, (self.requests * self.request_bytes) as f64);
        vec![
            format!("write {} KiB {}, {} under way", self.request_bytes >> 10, self.order, self.depth),
            format!("{:.3}", self.reads as f64 / requests),
            format!("{:.3}", self.read_bytes as f64 / bytes),
            format!("{:.3}", self.writes as f64 / requests),
            format!("{:.3}", self.written_bytes as f64 / bytes),
            format!("{:.3}", self.least_written_bytes as f64 / bytes),
        ]
    }

    /// The headings of [`Count::row`].
    pub(super) fn heading() -> Vec<String> {
        ["", "reads/request", "bytes/byte", "writes/request", "bytes/byte", "full stripes"].map(str::to_owned).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_workload_ends_where_a_stripe_and_a_request_end() {
        for (request, stripe, together) in
            [(4, 448, 448), (448, 448, 448), (1000, 448, 56_000), (1024, 448, 7168), (1000, 512, 64_000)]
        {
            assert_eq!(least_common_multiple(request, stripe), together, "{request} and {stripe}");
        }
    }
}
