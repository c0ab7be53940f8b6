//! Randomly generated devices; no constant of a policy was tuned for them.
//!
//! ```text
//!   drawn-SEED-N ──► keyed random numbers ──► a network, in three of four cases                a cache of 16M to 1G
//!                                         └─► a mechanical disk, in one of four
//! ```
//! Each figure of a device is drawn uniformly on a log scale. The latency of a network is 0.05 to 300 ms, with a 99th
//! percentile of 1.5 to 30 times the latency. A network allows 1 to 128 concurrent requests. One connection has 5 to 2,000 MB/s. All
//! connections share a link of 20 to 5,000 MB/s that is at least as fast as one connection. Half of the networks also limit the request
//! rate, to 100 to 10,000 requests per second. A mechanical disk has 3,600 to 15,000 revolutions per minute, 30 to 300 MB/s at its outer
//! edge, and a queue depth of 1 to 32.
//!
//! Example: `drawn-1-0` is the first device of seed 1. The same name gives the same device in every run and on every
//! machine.
//! Source: general knowledge; the ranges are those that users report for stores, exports and disks.

use foreread_sim::device::hdd::{HddModel, Seek, TrackRates};
use foreread_sim::device::net::NetModel;
use foreread_sim::device::presets::{self, Model, Preset};
use foreread_sim::device::throttle::Throttle;
use foreread_sim::rng::{Rng, mix};

/// Prefix of the names of drawn devices.
const PREFIX: &str = "drawn-";
const MB_PER_S: f64 = 1e6;
const MS: f64 = 1e6;

pub fn name(seed: u64, n: u64) -> String {
    format!("{PREFIX}{seed}-{n}")
}

/// Returns the randomly generated device with this name, and its cache size in bytes; `None` if the name is not that of a generated device.
pub fn find(name: &str) -> Option<(Preset, u64)> {
    let (seed, n) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
    let (seed, n) = (number(seed)?, number(n)?);
    let mut rng = Rng::new(mix(mix(seed) ^ n));
    let mut draw = |least: f64, most: f64| (least.ln() + (most / least).ln() * rng.unit()).exp();
    let cache = 1
        << draw(16.0 * f64::from(1 << 20), 1024.0 * f64::from(1 << 20))
            .log2()
            .round() as u32;
    let is_disk = draw(1.0, 16.0) < 2.0;
    let preset = if is_disk {
        disk(&mut draw)
    } else {
        network(&mut draw)
    };
    Some((preset, cache))
}

fn network(draw: &mut impl FnMut(f64, f64) -> f64) -> Preset {
    let rtt_ns = draw(0.05, 300.0) * MS;
    let tail = draw(1.5, 30.0);
    let connection = draw(5.0, 2_000.0);
    let link = draw(connection.max(20.0), 5_000.0);
    let connections = draw(1.0, 128.0).round() as u32;
    let is_limited = draw(1.0, 4.0) < 2.0;
    let requests_per_s = draw(100.0, 10_000.0) as u64;
    // Request limits are those of the engine for similar storage: NBD and RBD below one or two milliseconds, objects
    // above.
    let like = if rtt_ns < 2.0 * MS {
        "rbd"
    } else {
        "object-near"
    };
    let like = presets::find(like).expect("a preset of ours");
    Preset {
        name: "drawn",
        connections,
        throttle: is_limited.then_some(Throttle {
            requests_per_s,
            request_bytes: u64::MAX,
            burst_requests: requests_per_s / 2,
        }),
        model: Model::Net(NetModel {
            rtt_ns: rtt_ns as u64,
            rtt_p99_ns: Some((rtt_ns * tail) as u64),
            connection_bytes_per_s: (connection * MB_PER_S) as u64,
            link_bytes_per_s: (link * MB_PER_S) as u64,
            connections,
            whole_answers: false,
        }),
        ..*like
    }
}

fn disk(draw: &mut impl FnMut(f64, f64) -> f64) -> Preset {
    let like = presets::find("hdd-7200").expect("a preset of ours");
    let Model::Hdd(model) = like.model else {
        unreachable!("a disk with an arm")
    };
    let slower = draw(0.5, 2.0);
    let outer = draw(30.0, 300.0) * MB_PER_S;
    let queue_depth = draw(1.0, 32.0).round() as u32;
    Preset {
        name: "drawn",
        connections: queue_depth,
        model: Model::Hdd(HddModel {
            rpm: draw(3_600.0, 15_000.0) as u32,
            seek: Seek {
                settle_ns: (model.seek.settle_ns as f64 * slower) as u64,
                root_ns: (model.seek.root_ns as f64 * slower) as u64,
                full_ns: (model.seek.full_ns as f64 * slower) as u64,
                ..model.seek
            },
            bytes_per_s: TrackRates {
                outer: outer as u64,
                inner: (outer / 2.0) as u64,
            },
            queue_depth,
            ..model
        }),
        ..*like
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_device_and_the_ranges_are_reached() {
        let all: Vec<(Preset, u64)> = (0..400).filter_map(|n| find(&name(7, n))).collect();
        let shown = |name| format!("{:?}", find(name));
        assert_eq!(shown("drawn-7-3"), shown("drawn-7-3"));
        assert_ne!(shown("drawn-7-3"), shown("drawn-8-3"));
        let nets = all.iter().filter_map(|(preset, _)| match preset.model {
            Model::Net(net) => Some(net),
            _ => None,
        });
        let nets: Vec<NetModel> = nets.collect();
        assert!((270..330).contains(&nets.len()), "three of four");
        let limited = all.iter().filter(|(preset, _)| preset.throttle.is_some());
        assert!((100..200).contains(&limited.count()), "half of them");
        for net in &nets {
            let tail = net.rtt_p99_ns.expect("drawn") as f64 / net.rtt_ns as f64;
            assert!((50_000..=300_000_000).contains(&net.rtt_ns) && (1.49..=30.1).contains(&tail));
            assert!((1..=128).contains(&net.connections));
            let link = net.link_bytes_per_s;
            assert!(link >= net.connection_bytes_per_s);
            assert!((20_000_000..=5_000_000_000).contains(&link));
        }
        let slow = nets.iter().filter(|net| net.rtt_ns > 100_000_000).count();
        let fast = nets.iter().filter(|net| net.rtt_ns < 200_000).count();
        assert!(slow > 20 && fast > 20, "{slow} slow, {fast} fast");
        let caches: Vec<u64> = all.iter().map(|(_, cache)| *cache).collect();
        assert!(caches.iter().all(|cache| cache.is_power_of_two()));
        let ends = [caches.iter().min(), caches.iter().max()];
        assert_eq!(ends, [Some(&(16 << 20)), Some(&(1 << 30))]);
        for numbers in ["", "1", "x-1", "1-x", "1-2-3", "+1-2"] {
            assert!(find(&format!("drawn-{numbers}")).is_none(), "{numbers}");
        }
        assert!(find("rbd").is_none());
    }
}
