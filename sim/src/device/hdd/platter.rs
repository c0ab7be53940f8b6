//! The layout of bytes on a rotating disk, the seek times of its arm, and the times at which bytes pass under the head.
//!
//! All results are computed from positions and from the angle of the platter at time 0 (the phase). This module has no clock, no
//! queue and no buffer.
//!
//! ```text
//!   byte 0                                             capacity      zones of equal size, outer to inner, each
//!   ├────────────┬────────────┬────────────┬─── ... ───┤             with its own rate: the platter turns
//!   │ zone 0     │ zone 1     │ zone 2     │           │             at one speed, an inner track is shorter
//!   └────────────┴────────────┴────────────┴───────────┘
//!    fast                                        slow
//!
//!   pass(p)   the time the head needs to read from byte 0 to p without a break
//!   angle(p)  pass(p) + phase, modulo one turn: tracks are skewed so that reading on never loses a turn
//!   wait      the time from a moment until an angle is under the head
//! ```

use serde::{Deserialize, Serialize};

/// Number of zones. Chosen: a step from one zone to the next is about 5 %, and a lookup is still fast.
const ZONES: u64 = 16;
/// Internal unit of time: 1024 ticks are a picosecond, so that `bytes * ps_per_kib` is an exact number of ticks.
const TICKS_PER_NS: u64 = 1024 * 1000;
const PS_PER_S: u128 = 1_000_000_000_000;

/// The rate in bytes per second at which data passes under the head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrackRates {
    /// At the outer edge, where offset 0 is.
    pub outer: u64,
    /// At the inner edge; not above `outer`.
    pub inner: u64,
}

/// The time that the arm needs for a movement (seek), as a function of the distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seek {
    /// Time of any movement, in nanoseconds: the head settles.
    pub settle_ns: u64,
    /// `k` of `settle + k * sqrt(x)`, in nanoseconds, where `x` is the distance as a fraction of the capacity.
    pub root_ns: u64,
    /// From this `x` on, the arm moves at full speed and the time is linear; 1 if it never does.
    pub linear_from: f64,
    /// Time of a movement across the whole disk, in nanoseconds; used if `linear_from` is below 1.
    pub full_ns: u64,
}

impl Seek {
    /// Returns the time of a seek over a fraction `x` of the disk's capacity.
    pub fn ns(&self, x: f64) -> u64 {
        let near = |x: f64| self.settle_ns as f64 + self.root_ns as f64 * x.sqrt();
        let knee = self.linear_from;
        let ns = if x <= knee {
            near(x)
        } else {
            let share = ((x - knee) / (1.0 - knee)).min(1.0);
            near(knee) + (self.full_ns as f64 - near(knee)) * share
        };
        ns.round() as u64
    }
}

#[derive(Debug)]
pub struct Platter {
    capacity_bytes: u64,
    zone_bytes: u64,
    zones: Vec<Zone>,
    turn: u64,
    phase: u64,
    seek: Seek,
}

#[derive(Debug)]
struct Zone {
    /// `pass` of its first byte, in ticks.
    pass: u128,
    ps_per_kib: u64,
    track_bytes: u64,
}

impl Platter {
    /// Creates a platter with `capacity_bytes` bytes and `rpm` revolutions per minute. The transfer rate changes linearly from the
    /// outer to the inner edge; `phase` determines the platter's angle at time 0.
    pub fn new(
        capacity_bytes: u64,
        rpm: u32,
        bytes_per_s: TrackRates,
        seek: Seek,
        phase: u64,
    ) -> Platter {
        let TrackRates { outer, inner } = bytes_per_s;
        let zone_bytes = capacity_bytes.div_ceil(ZONES).max(1);
        let turn = 60 * PS_PER_S as u64 * 1024 / u64::from(rpm);
        let mut pass = 0;
        let zone = |n: u64| {
            let rate = outer - (outer - inner) * n / (ZONES - 1);
            let ps_per_kib = (PS_PER_S * 1024).div_ceil(u128::from(rate)) as u64;
            let zone = Zone {
                pass,
                ps_per_kib,
                track_bytes: turn / ps_per_kib,
            };
            pass += u128::from(zone_bytes) * u128::from(ps_per_kib);
            zone
        };
        let zones = (0..ZONES).map(zone).collect();
        Platter {
            capacity_bytes,
            zone_bytes,
            zones,
            turn,
            phase: phase % turn,
            seek,
        }
    }

    fn zone(&self, at: u64) -> (u64, &Zone) {
        let n = (at / self.zone_bytes).min(ZONES - 1);
        (n * self.zone_bytes, &self.zones[n as usize])
    }

    fn pass(&self, at: u64) -> u128 {
        let (from, zone) = self.zone(at);
        zone.pass + u128::from(at - from) * u128::from(zone.ps_per_kib)
    }

    /// Returns the time in nanoseconds to read from `start` to `end`, rounded up.
    pub fn transfer_ns(&self, start: u64, end: u64) -> u64 {
        (self.pass(end) - self.pass(start)).div_ceil(u128::from(TICKS_PER_NS)) as u64
    }

    /// Returns how many bytes pass the head in `ns` nanoseconds from `start` on, at the rate of that position.
    pub fn bytes_in(&self, start: u64, ns: u64) -> u64 {
        let bytes =
            u128::from(ns) * u128::from(TICKS_PER_NS) / u128::from(self.zone(start).1.ps_per_kib);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns the seek time from `from` to `to`; it is 0 within a track.
    pub fn seek_ns(&self, from: u64, to: u64) -> u64 {
        let distance = from.abs_diff(to);
        if distance < self.zone(to).1.track_bytes {
            return 0;
        }
        self.seek.ns(distance as f64 / self.capacity_bytes as f64)
    }

    /// Returns the angle of the platter when byte `at` passes the head, in ticks (fractions of a revolution).
    pub fn angle(&self, at: u64) -> u64 {
        ((self.pass(at) + u128::from(self.phase)) % u128::from(self.turn)) as u64
    }

    /// Returns the angle of the platter at the time `now_ns`.
    pub fn angle_at(&self, now_ns: u64) -> u64 {
        (u128::from(now_ns) * u128::from(TICKS_PER_NS) % u128::from(self.turn)) as u64
    }

    /// Returns how long the platter takes to turn to the angle `to`, starting `later_ns` nanoseconds (less than an hour) after it
    /// was at the angle `from`.
    pub fn wait_ns(&self, from: u64, later_ns: u64, to: u64) -> u64 {
        let there = (from + later_ns * TICKS_PER_NS) % self.turn;
        ((to + self.turn - there) % self.turn).div_ceil(TICKS_PER_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SEEK: Seek = Seek {
        settle_ns: MS,
        root_ns: 10 * MS,
        linear_from: 0.25,
        full_ns: 12 * MS,
    };

    /// 1.6 GB, 10 ms per revolution, 100 MB/s at the outer edge and 25 MB/s at the inner edge.
    fn platter(phase: u64) -> Platter {
        let (outer, inner) = (100_000_000, 25_000_000);
        let rates = TrackRates { outer, inner };
        Platter::new(1_600_000_000, 6_000, rates, SEEK, phase)
    }

    #[test]
    fn the_arm_accelerates_and_then_moves_evenly() {
        let times = [0.01, 0.16, 0.25, 0.5, 1.0, 1.5].map(|x| SEEK.ns(x) / MS);
        assert_eq!(times, [2, 5, 6, 8, 12, 12]);
        let mut curved = SEEK;
        (curved.linear_from, curved.full_ns) = (1.0, 0);
        assert_eq!(curved.ns(1.0), 11 * MS);
    }

    /// A track of the first zone is 1 MB; there is no seek within it.
    #[test]
    fn a_track_needs_no_move() {
        let platter = platter(0);
        assert_eq!(platter.seek_ns(5_000_000, 5_000_000), 0);
        for (at, ns) in [(999_000, 0), (16_000_000, 2 * MS)] {
            let there_and_back = (platter.seek_ns(0, at), platter.seek_ns(at, 0));
            assert_eq!(there_and_back, (ns, ns), "{at}");
        }
    }

    /// 16 zones of 100 MB; the rate falls by 5 MB/s from one to the next.
    #[test]
    fn outer_bytes_come_faster() {
        let platter = platter(0);
        assert_eq!(platter.transfer_ns(0, 1_000_000), 10 * MS);
        assert_eq!(platter.transfer_ns(1_599_000_000, 1_600_000_000), 40 * MS);
        let both = platter.transfer_ns(99_000_000, 100_000_000)
            + platter.transfer_ns(100_000_000, 101_000_000);
        assert!(both.abs_diff(10 * MS + 10_526_316) <= 1, "{both}");
        assert!(platter.transfer_ns(99_000_000, 101_000_000).abs_diff(both) <= 1);
        assert_eq!(platter.bytes_in(0, 10 * MS), 1_000_000);
    }

    fn wait_ns(platter: &Platter, now_ns: u64, at: u64) -> u64 {
        platter.wait_ns(platter.angle_at(now_ns), 0, platter.angle(at))
    }

    /// A position comes by once per revolution, and the next byte directly after it, even in the next track; the phase
    /// shifts all positions equally.
    #[test]
    fn every_place_comes_by_once_a_turn() {
        let platter = platter(0);
        assert_eq!(wait_ns(&platter, 0, 0), 0);
        assert_eq!(wait_ns(&platter, 1, 0), 10 * MS - 1);
        assert_eq!(wait_ns(&platter, 20 * MS, 0), 0);
        assert_eq!(wait_ns(&platter, 0, 500_000), 5 * MS);
        assert_eq!(wait_ns(&platter, 10 * MS, 1_000_000), 0);
        let before = platter.transfer_ns(0, 250_000_000) - 1;
        assert!(wait_ns(&platter, before, 250_000_000) <= 1);
        let (at, to) = (platter.angle_at(13 * MS), platter.angle(0));
        assert_eq!(platter.wait_ns(at, 31 * MS, to), 6 * MS);
        let quarter = 25 * MS / 10 * TICKS_PER_NS;
        let turned = self::platter(quarter);
        assert_eq!(wait_ns(&turned, 0, 0), 25 * MS / 10);
    }
}
