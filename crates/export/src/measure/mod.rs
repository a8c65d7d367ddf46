//! Measurements of a served array and its members: requests, transfers by reason, and a trace of transfers. Pure: the
//! caller passes the time. Nothing here reads a clock. `docs/json.md` describes the figures.

mod gauges;
mod histogram;
mod meter;
mod trace;

pub use gauges::{Gauges, Measured};
pub use histogram::{Histogram, Latencies};
pub use meter::{Done, Kind, Meter, Metered, Reason};
pub use trace::{Trace, Traced, Traces};

use serde::{Deserialize, Serialize};

/// All measurements up to one moment. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// The time of the snapshot, in nanoseconds since the server's start.
    pub nanos: u64,
    /// Requests to the array, through every interface.
    pub requests: Metered,
    /// Transfers of the members, in the order in which the members joined.
    pub members: Vec<MemberMeasures>,
}

/// The measurements of one member.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberMeasures {
    /// Its name in the status, or the path of the bitmap file.
    pub name: String,
    /// Its transfers.
    #[serde(flatten)]
    pub metered: Metered,
}

impl Measures {
    /// The measurements since an earlier snapshot of the same server. `nanos` becomes the time between. Members that
    /// have left since are omitted.
    pub fn since(&self, earlier: &Self) -> Self {
        let members = self.members.iter().map(|member| {
            let before = earlier.members.iter().find(|before| before.name == member.name);
            let before = before.map(|before| before.metered.clone()).unwrap_or_default();
            MemberMeasures { name: member.name.clone(), metered: member.metered.since(&before) }
        });
        Self {
            nanos: self.nanos.saturating_sub(earlier.nanos),
            requests: self.requests.since(&earlier.requests),
            members: members.collect(),
        }
    }
}
