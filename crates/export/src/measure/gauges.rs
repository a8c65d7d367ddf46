//! Gauges: the meters of a served array, at its requests and at its members. They never change a request or a transfer.
//! `docs/json.md` describes the figures.

use super::meter::{Kind, Meter};
use super::trace::Trace;
use super::{Measures, MemberMeasures};
use crate::volume::{Durability, Extent, Volume, VolumeError};
use engine::observe::{Observer, Transfer, TransferOutcome, Watch};
use engine::{Block, Buffer, Operation, Pool};
use io::Stamps;
use std::cell::RefCell;
use std::rc::Rc;

struct Common {
    stamps: Stamps,
    trace: Trace,
    requests: Meter,
}

struct MemberGauge {
    name: Rc<str>,
    meter: Meter,
    common: Rc<Common>,
}

/// Measures one array, on the thread of its executor. Clones share the meters.
#[derive(Clone)]
pub struct Gauges {
    common: Rc<Common>,
    members: Rc<RefCell<Vec<Rc<MemberGauge>>>>,
}

impl Gauges {
    /// Starts measuring.
    ///
    /// # Panics
    /// When the current thread has no executor.
    pub fn new() -> Self {
        let common = Common { stamps: Stamps::new(), trace: Trace::default(), requests: Meter::default() };
        Self { common: Rc::new(common), members: Rc::default() }
    }

    /// A snapshot of all meters.
    pub fn measures(&self) -> Measures {
        let nanos = self.common.stamps.exact();
        let members = self.members.borrow();
        let member = |gauge: &Rc<MemberGauge>| MemberMeasures {
            name: gauge.name.to_string(),
            metered: gauge.meter.snapshot(nanos),
        };
        Measures {
            nanos,
            requests: self.common.requests.snapshot(nanos),
            members: members.iter().map(member).collect(),
        }
    }

    /// Traced transfers of the members: see [`Trace::fetch`].
    pub fn traces(&self, from: Option<u64>) -> super::Traces {
        self.common.trace.fetch(from, self.common.stamps.exact())
    }
}

impl Default for Gauges {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Gauges {
    fn watch(&self, name: &str) -> Rc<dyn Watch> {
        let mut members = self.members.borrow_mut();
        if let Some(known) = members.iter().find(|gauge| &*gauge.name == name) {
            return known.clone(); // a member that returned
        }
        let gauge = MemberGauge { name: name.into(), meter: Meter::default(), common: self.common.clone() };
        members.push(Rc::new(gauge));
        members[members.len() - 1].clone()
    }
}

fn kind(operation: Operation) -> Kind {
    match operation {
        Operation::Read => Kind::Read,
        Operation::Write => Kind::Write,
        Operation::Flush => Kind::Flush,
        Operation::Discard | Operation::WriteZeroes => Kind::Discard,
    }
}

impl Watch for MemberGauge {
    fn begun(&self, transfer: &Transfer) -> u64 {
        let now = self.common.stamps.before(transfer.bytes);
        self.meter.begin(now);
        self.meter.reason(transfer.why, transfer.bytes);
        now
    }

    fn ended(&self, transfer: &Transfer, begun: u64, outcome: TransferOutcome) {
        let now = self.common.stamps.after(transfer.bytes);
        self.meter.end(kind(transfer.operation), transfer.bytes, begun, now, outcome == TransferOutcome::Done);
        if self.common.trace.is_wanted(now) {
            self.common.trace.add(&self.name, transfer, outcome, begun, now);
        }
    }
}

/// A volume whose requests are metered.
#[derive(Clone)]
pub struct Measured<V> {
    volume: V,
    common: Rc<Common>,
}

impl<V: Volume> Measured<V> {
    /// `volume`, with its requests metered by `gauges`.
    pub fn new(volume: V, gauges: &Gauges) -> Self {
        Self { volume, common: gauges.common.clone() }
    }

    fn begin(&self, kind: Kind, bytes: u64) -> Request<'_> {
        let begun = self.common.stamps.before(bytes);
        self.common.requests.begin(begun);
        Request { common: &self.common, kind, bytes, begun, is_done: false }
    }
}

/// One request in flight. Dropping it unfinished counts it as an error.
struct Request<'a> {
    common: &'a Common,
    kind: Kind,
    bytes: u64,
    begun: u64,
    is_done: bool,
}

impl Request<'_> {
    fn end<T>(mut self, result: Result<T, VolumeError>) -> Result<T, VolumeError> {
        self.is_done = result.is_ok();
        result
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let now = self.common.stamps.after(self.bytes);
        self.common.requests.end(self.kind, self.bytes, self.begun, now, self.is_done);
    }
}

impl<V: Volume> Volume for Measured<V> {
    fn bytes(&self) -> u64 {
        self.volume.bytes()
    }

    fn is_read_only(&self) -> bool {
        self.volume.is_read_only()
    }

    fn preferred_block_bytes(&self) -> u32 {
        self.volume.preferred_block_bytes()
    }

    fn logical_block_bytes(&self) -> Option<u32> {
        self.volume.logical_block_bytes()
    }

    fn pool(&self) -> &Pool {
        self.volume.pool()
    }

    async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, VolumeError> {
        let request = self.begin(Kind::Read, into.len() as u64);
        request.end(self.volume.read(at, into).await)
    }

    async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), VolumeError> {
        let request = self.begin(Kind::Write, from.len() as u64);
        request.end(self.volume.write(at, from, durability).await)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        let request = self.begin(Kind::Flush, 0);
        request.end(self.volume.flush().await)
    }

    async fn discard(&self, at: u64, bytes: u64) -> Result<(), VolumeError> {
        let request = self.begin(Kind::Discard, bytes);
        request.end(self.volume.discard(at, bytes).await)
    }

    async fn write_zeroes(
        &self,
        at: u64,
        bytes: u64,
        may_discard: bool,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let request = self.begin(Kind::Discard, bytes);
        request.end(self.volume.write_zeroes(at, bytes, may_discard, durability).await)
    }

    async fn allocation(&self, at: u64, bytes: u64) -> Result<Vec<Extent>, VolumeError> {
        self.volume.allocation(at, bytes).await
    }
}
