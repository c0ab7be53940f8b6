//! The table `[throttle]` of a model file: a limit of requests for each second in front of any kind of model.
//!
//! ```text
//!   [throttle]
//!   requests_per_s = 3000
//!   request_bytes = 262144     a read of 1 MiB counts as four; left out: a read of any length is one
//!   burst_requests = 1
//! ```

use crate::device::throttle::Throttle;
use serde::{Deserialize, Serialize};

/// [`Throttle`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThrottleFile {
    /// Requests for each second.
    pub requests_per_s: u64,
    /// A longer command counts as several requests; left out where the length does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// Requests that may come at once.
    pub burst_requests: u64,
}

impl ThrottleFile {
    pub(super) fn of(throttle: Throttle) -> ThrottleFile {
        let Throttle {
            requests_per_s,
            request_bytes,
            burst_requests,
        } = throttle;
        let request_bytes = Some(request_bytes).filter(|bytes| *bytes < u64::MAX);
        ThrottleFile {
            requests_per_s,
            request_bytes,
            burst_requests,
        }
    }

    pub(super) fn model(&self) -> Throttle {
        let request_bytes = self.request_bytes.unwrap_or(u64::MAX);
        Throttle {
            requests_per_s: self.requests_per_s,
            request_bytes,
            burst_requests: self.burst_requests,
        }
    }
}
