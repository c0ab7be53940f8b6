//! What a policy that sets itself came to in the run: its figures where it read farthest ahead.
//!
//! Example: `auto` on a store of 15 ms. Its largest distance was 64 MiB; the figures are those of the answer that set it.

use foreread_core::policy::Tuning;
use foreread_report::tuning;
use serde::{Deserialize, Serialize};

/// The figures, and a sentence of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoState {
    /// Latency of the source in nanoseconds; 0: not measured.
    pub latency_ns: u64,
    /// Its rate in bytes a second; 0: not measured.
    pub rate: u64,
    /// The largest distance in bytes.
    pub distance_bytes: u64,
    /// The limit of one stream at that time.
    pub max_distance_bytes: u64,
    /// Length of a request.
    pub request_bytes: u64,
    /// Streams at that time.
    pub streams: u64,
    /// Readahead wasted until then.
    pub wasted_bytes: u64,
    /// Readahead that might be wasted then.
    pub credit_bytes: u64,
    /// What limited the distance: the names of `foreread_core::policy::Limit`.
    pub limit: String,
    pub words: String,
}

impl From<Tuning> for AutoState {
    fn from(from: Tuning) -> AutoState {
        AutoState {
            latency_ns: from.latency_ns,
            rate: from.rate,
            distance_bytes: from.distance_bytes,
            max_distance_bytes: from.max_distance_bytes,
            request_bytes: from.request_bytes,
            streams: from.streams,
            wasted_bytes: from.wasted_bytes,
            credit_bytes: from.credit_bytes,
            limit: from.limit.name().to_string(),
            words: tuning::words(&from),
        }
    }
}
