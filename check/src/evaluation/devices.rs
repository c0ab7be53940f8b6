//! Devices of the evaluation: the preset models, and five more devices whose speed changes or is limited during the run.
//!
//! A setting that is right for a device may be wrong after the device has changed. An adaptive policy must therefore also be tested on
//! devices that change. The five devices are variants of one network model with a rate of 200 MB/s:
//!
//! ```text
//!   http-30ms   30 ms, 200 MB/s                            the store of the fsspec figures
//!   step        1 ms, and 100 ms once half of the bytes of the workload have been fetched
//!   collapse    15 ms and 200 MB/s, and 20 MB/s after half
//!   tail        15 ms in the median, 300 ms in the 99th percentile
//!   throttle    15 ms, and at most 100 requests per second, 50 at once: a further request waits
//! ```
//! Example: if a workload reads 128 MiB from `step`, requests for the first 64 MiB take 1 ms each, and all later requests take 100 ms each.
//! Stores that answer 503 instead of delaying requests are not modelled, because no request fails in the simulator. Source: the evaluation
//! plan of `auto`; the figures are chosen within the range that users of object stores report.

use foreread_core::policy::SpecError;
use foreread_sim::device::net::NetModel;
use foreread_sim::device::presets::{self, Model, Preset};
use foreread_sim::device::throttle::Throttle;
use foreread_sim::device::{Arrival, Command, Device};

/// The devices of the evaluation that are not preset models.
pub const NAMES: [&str; 5] = ["http-30ms", "step", "collapse", "tail", "throttle"];

/// `throttle`: a request counts as one, whatever its length.
const THROTTLE: Throttle = Throttle {
    requests_per_s: 100,
    request_bytes: u64::MAX,
    burst_requests: 50,
};
const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub struct DeviceChoice {
    /// Its figures; for a changing device, those before the change.
    pub preset: Preset,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Never,
    /// Another model after half of the bytes.
    Half(NetModel),
}

/// Returns the device with this name. Returns [`SpecError::UnknownName`] if there is no such device.
pub fn find(name: &str) -> Result<DeviceChoice, SpecError> {
    let net = |ms: u64, p99_ms: Option<u64>| NetModel {
        rtt_ns: ms * MS,
        rtt_p99_ns: p99_ms.map(|p99| p99 * MS),
        connection_bytes_per_s: 100_000_000,
        link_bytes_per_s: 200_000_000,
        connections: 32,
        whole_answers: false,
    };
    let with = |model: NetModel, change| {
        let preset = presets::find("object-near")?;
        Ok(DeviceChoice {
            preset: Preset {
                name: "evaluation",
                model: Model::Net(model),
                ..*preset
            },
            change,
        })
    };
    match name {
        "http-30ms" => with(
            NetModel {
                connection_bytes_per_s: 200_000_000,
                ..net(30, None)
            },
            Change::Never,
        ),
        "step" => with(net(1, None), Change::Half(net(100, None))),
        "collapse" => {
            let slow = NetModel {
                connection_bytes_per_s: 10_000_000,
                link_bytes_per_s: 20_000_000,
                ..net(15, None)
            };
            with(net(15, None), Change::Half(slow))
        }
        "tail" => with(net(15, Some(300)), Change::Never),
        "throttle" => {
            let chosen = with(net(15, None), Change::Never)?;
            Ok(DeviceChoice {
                preset: Preset {
                    throttle: Some(THROTTLE),
                    ..chosen.preset
                },
                ..chosen
            })
        }
        _ => Ok(DeviceChoice {
            preset: match super::drawn::find(name) {
                Some((preset, _)) => preset,
                None => *presets::find(name)?,
            },
            change: Change::Never,
        }),
    }
}

impl DeviceChoice {
    /// Creates the device, with no requests in flight. `bytes` is the number of bytes that the workload reads; the device changes its speed
    /// when reads of half of these bytes have been submitted to it.
    pub fn build(&self, seed: u64, bytes: u64) -> Box<dyn Device> {
        match self.change {
            Change::Never => self.preset.build(seed),
            Change::Half(model) => {
                let second = Preset {
                    model: Model::Net(model),
                    ..self.preset
                }
                .build(seed);
                Box::new(ChangingDevice {
                    first: self.preset.build(seed),
                    second,
                    left: bytes / 2,
                })
            }
        }
    }

    /// The preset, if the device neither changes nor is throttled; the oracle can only handle such devices.
    pub(crate) fn steady(&self) -> Option<&Preset> {
        (matches!(self.change, Change::Never) && self.preset.throttle.is_none())
            .then_some(&self.preset)
    }
}

/// Two devices; the second one takes over after this many bytes.
struct ChangingDevice {
    first: Box<dyn Device>,
    second: Box<dyn Device>,
    left: u64,
}

impl Device for ChangingDevice {
    fn submit(&mut self, now_ns: u64, command: Command) {
        let device = if self.left > 0 {
            &mut self.first
        } else {
            &mut self.second
        };
        self.left = self.left.saturating_sub(command.len);
        device.submit(now_ns, command);
    }

    fn next_time(&self) -> Option<u64> {
        [self.first.next_time(), self.second.next_time()]
            .into_iter()
            .flatten()
            .min()
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some(at) = self.next_time().filter(|at| *at <= now_ns) {
            self.first.advance(at, out);
            self.second.advance(at, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of so many commands ends that are all submitted at 0.
    fn times(name: &str, count: u64, total_bytes: u64) -> Vec<u64> {
        let mut device = find(name).expect("a device").build(1, total_bytes);
        (0..count).for_each(|id| device.submit(0, Command::new(id, 0, id << 20, 4096)));
        let (mut times, mut out) = (Vec::new(), Vec::new());
        while let Some(at) = device.next_time() {
            device.advance(at, &mut out);
            times.extend(out.drain(..).filter(|arrival| arrival.done).map(|_| at));
        }
        times
    }

    #[test]
    fn latency_steps_after_half_of_the_bytes() {
        let times = times("step", 8, 8 * 4096);
        let ms = Vec::from_iter(times.iter().map(|time| time / MS));
        assert_eq!(ms, [[1; 4], [100; 4]].concat(), "{times:?}");
    }

    /// 50 requests at once, and then one every 10 ms.
    #[test]
    fn a_throttle_lets_a_burst_through_and_then_its_rate() {
        let times = times("throttle", 60, 0);
        assert_eq!(times.len(), 60);
        assert!(times[50] < 40 * MS && times[59] >= 90 * MS, "{times:?}");
        let mut gaps = times[52..].windows(2).map(|w| w[1] - w[0]);
        let is_even = gaps.all(|gap| (9 * MS..=11 * MS).contains(&gap));
        assert!(is_even, "{times:?}");
    }

    #[test]
    fn every_name_is_a_device() {
        for name in NAMES.iter().chain(&super::super::cells::BASELINE_DEVICES) {
            assert!(find(name).is_ok(), "{name}");
        }
        assert!(find("step").expect("a device").steady().is_none());
        assert!(find("nvme").expect("a device").steady().is_some());
    }
}
