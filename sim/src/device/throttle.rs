//! A limit on the request rate in front of any device, as for a cloud volume or a store that throttles its clients.
//!
//! The limit is a token bucket. A command takes one token for each `request_bytes` bytes of its length, rounded up. If there are
//! too few tokens, commands wait in FIFO order. A command is passed to the device as soon as there are enough tokens for it. The
//! bucket holds `burst_requests` tokens and is full at the start.
//!
//! ```text
//!   command ──► waiting (FIFO) ──token──► device          tokens: requests_per_s added, at most burst_requests held
//! ```
//! Example: the limit is 3,000 requests per second of up to 256 KiB each, without a burst. With this limit, a read of 4 KiB may start every
//! 333 us. After a read of 1 MiB, which takes four tokens, the next read waits 1.33 ms.
//!
//! Servers that reply "slow down" instead of delaying requests are not modelled, because the simulator has no failures.

use super::{Arrival, Command, Device};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The table `[throttle]` of a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// Tokens added to the bucket per second, from 1 to 10^9.
    pub requests_per_s: u64,
    /// A command takes a token for each of these bytes, not 0. Files omit it if the length does not count.
    #[serde(default = "any_length", skip_serializing_if = "is_any_length")]
    pub request_bytes: u64,
    /// Maximum number of tokens in the bucket, not 0.
    pub burst_requests: u64,
}

fn any_length() -> u64 {
    u64::MAX
}

fn is_any_length(bytes: &u64) -> bool {
    *bytes == any_length()
}

pub struct ThrottledDevice {
    inner: Box<dyn Device>,
    waiting: VecDeque<Command>,
    interval_ns: u64,
    request_bytes: u64,
    /// How far `full_ns` may be ahead of the clock for a command to pass: a burst less one request.
    burst_ns: u64,
    /// When the bucket will be full again if no more commands come.
    full_ns: u64,
}

impl ThrottledDevice {
    pub fn new(inner: Box<dyn Device>, throttle: Throttle) -> ThrottledDevice {
        let interval_ns = 1_000_000_000 / throttle.requests_per_s;
        let burst_ns = (throttle.burst_requests - 1).saturating_mul(interval_ns);
        let request_bytes = throttle.request_bytes;
        ThrottledDevice {
            inner,
            waiting: VecDeque::new(),
            interval_ns,
            request_bytes,
            burst_ns,
            full_ns: 0,
        }
    }

    /// Passes on the commands whose tokens are available now.
    fn release(&mut self, now_ns: u64) {
        while self.full_ns <= now_ns.saturating_add(self.burst_ns) {
            let Some(command) = self.waiting.pop_front() else {
                return;
            };
            let tokens = command.len.div_ceil(self.request_bytes).max(1);
            self.full_ns = self
                .full_ns
                .max(now_ns)
                .saturating_add(self.interval_ns.saturating_mul(tokens));
            self.inner.submit(now_ns, command);
        }
    }
}

impl Device for ThrottledDevice {
    fn submit(&mut self, now_ns: u64, command: Command) {
        self.waiting.push_back(command);
        self.release(now_ns);
    }

    fn next_time(&self) -> Option<u64> {
        let token = (!self.waiting.is_empty()).then(|| self.full_ns.saturating_sub(self.burst_ns));
        [token, self.inner.next_time()].into_iter().flatten().min()
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some(at) = self.next_time().filter(|at| *at <= now_ns) {
            self.inner.advance(at, out);
            self.release(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ends_of;
    use crate::device::net::{Net, NetModel};

    const US: u64 = 1000;

    /// The end times of commands of `kib` KiB, all submitted at 0, in microseconds and without the time of the device
    /// itself.
    fn ends(throttle: Throttle, kib: &[u64]) -> Vec<u64> {
        let model = NetModel {
            rtt_ns: 1_000_000_000,
            rtt_p99_ns: None,
            connection_bytes_per_s: 1_000_000_000_000_000,
            link_bytes_per_s: 1_000_000_000_000_000,
            connections: 64,
            whole_answers: true,
        };
        let mut device = ThrottledDevice::new(Box::new(Net::new(model, 0)), throttle);
        let commands: Vec<_> = kib.iter().map(|kib| (0, 0, kib << 10)).collect();
        let ends = ends_of(&mut device, 0, &commands);
        ends.iter().map(|at| (at - model.rtt_ns) / US).collect()
    }

    /// The example in the header, and a bucket of two tokens.
    #[test]
    fn a_command_waits_for_its_tokens() {
        let volume = Throttle {
            requests_per_s: 3000,
            request_bytes: 256 << 10,
            burst_requests: 1,
        };
        assert_eq!(ends(volume, &[4, 4, 4]), [0, 333, 666]);
        assert_eq!(ends(volume, &[4, 1024, 4]), [0, 333, 1666]);
        assert_eq!(ends(volume, &[0, 256, 257, 4]), [0, 333, 666, 1333]);
        let mut burst = volume;
        burst.burst_requests = 2;
        assert_eq!(ends(burst, &[4, 4, 4]), [0, 0, 333]);
    }
}
