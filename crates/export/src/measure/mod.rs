//! What a served array and its members do, in figures: requests, the members' transfers with their reasons,
//! and a trace of them. Pure: times are given.

mod gauges;
mod histogram;
mod meter;
mod trace;

pub use gauges::{Gauges, Measured};
pub use histogram::{Histogram, Latencies};
pub use meter::{Done, Kind, Meter, Metered, Reason};
pub use trace::{Trace, Traced, Traces};

use serde::{Deserialize, Serialize};

/// Everything that was measured until a moment. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// When it was taken, in nanoseconds since the server's start.
    pub nanos: u64,
    /// Requests to the array, through any way in.
    pub requests: Metered,
    /// Transfers of the members, in the order in which they came.
    pub members: Vec<MemberMeasures>,
}

/// What one member has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberMeasures {
    /// Its name, as the status has it; or that of the file with the write-intent bitmap.
    pub name: String,
    /// What it did.
    #[serde(flatten)]
    pub metered: Metered,
}

impl Measures {
    /// What was counted since an earlier snapshot of the same server; `nanos` is the time between. Members that
    /// have left since are not in it.
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
