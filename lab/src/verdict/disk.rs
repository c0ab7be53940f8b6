//! Computes which readahead a disk should have. A formula gives the costs and the gain of each possible readahead size; short sequential
//! reads check the result.
//!
//! ```text
//!   fault    latency + size / bandwidth                  a fault of a mapping reads the whole window around it
//!   rate     ((1 / bandwidth)^1.5 + (latency / size / 2)^1.5)^(-1/1.5)  one sequential reader: two windows are in flight
//! ```
//! The kernel requests the next window when the reader reaches the first page of the window that is still in flight. A device that serves
//! these two windows one after the other is only as fast as with one window in flight. Therefore the readahead size is chosen by the rate
//! with one window in flight, which every device reaches. The gain of this size is computed with the rate for two windows in flight.
//!
//! The exponent 1.5 describes how much the reads of two windows overlap. The exponent 1.5 is between two limits: an exponent of 1 means no
//! overlap, and 2 fits the largest overlap that was observed. For read_ahead_kb of 128, 256, 512, 1024, 2048 and 8192, Linux 6.18 with ext4
//! on a disk of 0.08 ms and 2.4 GB/s delivered 1080, 1346, 2141, 2336, 2348 and 2438 MB/s. The formula with 1.5 gives 1220, 1750, 2130,
//! 2320, 2390 and 2440 MB/s.
//!
//! The advice is the smallest setting with which one, four and sixteen readers are within 5 % of their best rate. A
//! smaller value is advised if sixteen streams would need more than a quarter of memory, or if a large part of the
//! reads are page faults. Before a value is advised, sequential reads are measured with windows of 128 KiB, 512 KiB, 2 MiB and the current
//! size, as [`crate::glance`] describes. The advice is then the smallest window for which no larger window is more than 15 % faster for a
//! program that copies from the page cache at 8000 MB/s. If other programs disturb the measurement, there is no advice. A device that does
//! not rotate never gets a value above 2 MiB.

use super::kept::KeptMeasurement;
use super::{Confidence, Standing, Step, Verdict, to_set};
use crate::glance::{CheckedRate, DiskMeter, Meter, Unmeasured, latency_and_rate, rates};
use foreread_os::host::Host;
use foreread_os::host::devices::Device;
use foreread_report::number::{size_in_words as size, three};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Sizes that are tried: 128 KiB to 64 MiB.
const SIZES: std::ops::RangeInclusive<u32> = 17..=26;
const READERS: [u32; 3] = [1, 4, 16];
/// A reader has to reach this part of its best rate.
const NEAR: f64 = 0.95;
/// How the wait for a window and its transfer overlap.
const OVERLAP: f64 = 1.5;
/// Windows of a sequential reader that the kernel has in flight.
const WINDOWS: f64 = 2.0;
/// The largest advice for a device that does not rotate. If such a device has a larger value, it is suspicious.
const MAX_STILL_BYTES: u64 = 2 << 20;
const MAX_TURNING_BYTES: u64 = 16 << 20;
const MIN_BYTES: u64 = 128 << 10;
/// Time of the first read of a rotating device in a sequential stream: the head does not move.
const IN_ORDER_US: f64 = 100.0;
/// Minimum latency of a rotating disk in microseconds. On average, a random read on a rotating disk waits for half a rotation (4 ms at 7200
/// rpm) and a seek, so no such disk has a lower latency.
pub const MIN_TURNING_US: f64 = 1000.0;

/// The latency and the bandwidth of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StorageCosts {
    /// Latency of a random read of 4 KiB, in microseconds.
    pub latency_us: f64,
    /// Rate of large reads, several at once, in 10^6 bytes a second.
    pub mb_per_s: f64,
    /// True if measured on this machine; false if taken from the class of the device.
    pub is_measured: bool,
    /// True if the device rotates: then each change between readers costs a seek.
    pub turns: bool,
    /// Seconds since it was measured; 0 if now.
    pub age_s: u64,
}

/// The costs and gains of one value of `read_ahead_kb`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeCosts {
    pub readahead_bytes: u64,
    /// Time of a random page fault in a mapping, in milliseconds.
    pub fault_ms: f64,
    /// Rates of one, four and sixteen sequential readers, in 10^6 bytes a second together.
    pub in_order_mb_per_s: [f64; 3],
    /// Memory that sixteen streams need for readahead: a window in use and one in flight each.
    pub streams_bytes: u64,
}

/// The limits of the readahead setting besides the cost of a read, such as memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettingLimits {
    /// The largest request of the device.
    pub request_bytes: Option<u64>,
    /// Memory of the machine, or of the control group that limits its programs.
    pub memory_bytes: u64,
}

impl SettingLimits {
    /// Returns the largest readahead that is ever advised for a device with these costs.
    pub fn most_bytes(&self, costs: &StorageCosts) -> u64 {
        let most = match costs.turns {
            // The kernel's rule since 6.17, which was measured on rotating disks.
            true => self
                .request_bytes
                .unwrap_or(MIN_BYTES)
                .saturating_mul(2)
                .clamp(512 << 10, MAX_TURNING_BYTES),
            false => MAX_STILL_BYTES,
        };
        let of_memory = self.memory_bytes / 4 / (2 * 16);
        let mut bytes = most;
        while bytes > MIN_BYTES && bytes > of_memory {
            bytes /= 2;
        }
        bytes.max(MIN_BYTES)
    }
}

impl StorageCosts {
    /// Computes the costs and gains of a readahead of `bytes`.
    pub fn at(&self, bytes: u64) -> SizeCosts {
        SizeCosts {
            readahead_bytes: bytes,
            fault_ms: (self.latency_us + window(bytes) / self.mb_per_s) / 1e3,
            in_order_mb_per_s: self.rates(bytes, WINDOWS),
            streams_bytes: bytes.saturating_mul(2 * 16),
        }
    }

    /// Rates of one, four and sixteen sequential readers, each with this many windows in flight.
    fn rates(&self, bytes: u64, windows: f64) -> [f64; 3] {
        READERS.map(|readers| {
            let wait_us = if self.turns && readers == 1 {
                IN_ORDER_US
            } else {
                self.latency_us
            };
            // Bytes in a microsecond are MB/s.
            let (transfer, wait) = (1.0 / self.mb_per_s, wait_us / window(bytes) / windows);
            let one = (transfer.powf(OVERLAP) + wait.powf(OVERLAP)).powf(-1.0 / OVERLAP);
            if self.turns {
                one
            } else {
                (one * f64::from(readers)).min(self.mb_per_s)
            }
        })
    }

    /// Returns the smallest readahead with which sequential readers are within 5 % of their best rate, but not more than `limits` allow.
    pub fn best(&self, limits: &SettingLimits) -> SizeCosts {
        let all: Vec<(u64, [f64; 3])> = SIZES
            .map(|bits| (1 << bits, self.rates(1 << bits, 1.0)))
            .collect();
        let most =
            [0, 1, 2].map(|n: usize| all.iter().map(|(_, rates)| rates[n]).fold(0.0, f64::max));
        let is_near = |(_, rates): &&(u64, [f64; 3])| {
            let mut pairs = rates.iter().zip(most);
            pairs.all(|(rate, most)| *rate >= NEAR * most)
        };
        let near = all
            .iter()
            .find(is_near)
            .map_or(u64::MAX, |(bytes, _)| *bytes);
        self.at(near.min(limits.most_bytes(self)))
    }

    /// Returns whether a readahead of `bytes` makes page faults too expensive and is more than sequential readers need (`best`).
    pub fn is_too_large(&self, bytes: u64, best: &SizeCosts) -> bool {
        let large = if self.turns {
            MAX_TURNING_BYTES
        } else {
            MAX_STILL_BYTES
        };
        bytes > large && bytes > best.readahead_bytes
    }

    /// Returns the costs as text, such as `measured: 0.2 ms, 1200 MB/s`, or `measured 12 min ago: ...` if another command has measured
    /// them.
    pub fn in_words(&self) -> String {
        let word = match (self.is_measured, self.age_s / 60) {
            (false, _) => "assumed".to_string(),
            (true, 0) => "measured".to_string(),
            (true, minutes) => format!("measured {minutes} min ago"),
        };
        format!(
            "{word}: {} ms, {} MB/s",
            three(self.latency_us / 1e3),
            three(self.mb_per_s)
        )
    }
}

/// The window of a fault has at least a page.
fn window(bytes: u64) -> f64 {
    bytes.max(4096) as f64
}

/// Window sizes that are tried by sequential reads: far enough apart that noise does not change their order.
const CHECKED: [u64; 4] = [MIN_BYTES, 512 << 10, MAX_STILL_BYTES, 8 << 20];
/// The rate at which a program copies from the page cache, in 10^6 bytes a second: a reader waits for the storage and then copies. `dd`
/// with blocks of 64 KiB read 96 MiB of cached file at 8200 to 9300 MB/s.
const COPY_MB_PER_S: f64 = 8000.0;
/// The smallest gain that justifies a larger value than another, or to change a value that does no harm. Twelve measurements of an idle
/// disk gave 1.20 to 1.47 for 512 KiB beside 128 KiB.
const MIN_GAIN: f64 = 1.15;

impl CheckedRate {
    /// The rate of a program that copies what the storage has delivered.
    fn with_copy(&self) -> f64 {
        1.0 / (1.0 / self.mb_per_s + 1.0 / COPY_MB_PER_S)
    }
}

/// The measurements of a disk, and its current readahead.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskLook {
    pub has_bytes: Option<u64>,
    pub costs: StorageCosts,
    pub limits: SettingLimits,
    /// Rates by window size; empty if nothing was read sequentially.
    pub checked: Vec<CheckedRate>,
}

/// The rating of a disk's current readahead, and the best value.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskFinding {
    pub standing: Standing,
    /// What is wrong, if anything.
    pub harm: Option<String>,
    pub has: Option<SizeCosts>,
    /// The value by the disk's own figures; the verdict keeps the present value if that is fine.
    pub best: SizeCosts,
}

impl DiskLook {
    /// Returns what was measured on a file's disk in the last half hour, or else measures the disk by reading the file, for at most three
    /// seconds. Returns `None` if the file is not on a disk or is too small.
    /// Returns an error if the file cannot be read, or if the machine is too busy.
    pub fn of(path: &Path, device: Option<&Device>) -> Result<Option<DiskLook>, Unmeasured> {
        let named = device.and_then(|device| Some((device, device.name.as_deref()?)));
        let Some((device, name)) = named else {
            return Ok(None);
        };
        let limits = SettingLimits {
            request_bytes: device.max_request,
            memory_bytes: Host::here().memory_bytes(),
        };
        let may_turn = device.rotates == Some(true);
        match DiskLook::kept(name, device.read_ahead, limits) {
            Some(look) => Ok(Some(look)),
            None => DiskLook::measured(path, name, device.read_ahead, may_turn, limits),
        }
    }

    /// Like [`DiskLook::of`], but always measures, and the caller passes the disk's name and properties. If `may_turn` is true, the device is rotational
    /// according to the kernel. A disturbed measurement is not kept for other commands.
    /// Returns an error if the device cannot be read, or if the machine is too busy.
    pub fn measured(
        path: &Path,
        disk: &str,
        has_bytes: Option<u64>,
        may_turn: bool,
        limits: SettingLimits,
    ) -> Result<Option<DiskLook>, Unmeasured> {
        let Some(mut meter) = DiskMeter::open(path, disk)? else {
            return Ok(None);
        };
        let look = DiskLook::by(&mut meter, has_bytes, may_turn, limits)?;
        let kept = KeptMeasurement {
            has_bytes,
            costs: look.costs,
            checked: look.checked.clone(),
        };
        kept.keep(disk);
        Ok(Some(look))
    }

    fn by(
        meter: &mut impl Meter,
        has_bytes: Option<u64>,
        may_turn: bool,
        limits: SettingLimits,
    ) -> Result<DiskLook, Unmeasured> {
        let (latency_us, mb_per_s) = latency_and_rate(meter)?;
        let costs = StorageCosts {
            latency_us,
            mb_per_s,
            is_measured: true,
            turns: may_turn && latency_us >= MIN_TURNING_US,
            age_s: 0,
        };
        let mut look = DiskLook {
            has_bytes,
            costs,
            limits,
            checked: Vec::new(),
        };
        if look.find().standing != Standing::Fine {
            let most = limits.most_bytes(&costs);
            let sizes = CHECKED.into_iter().filter(|bytes| *bytes <= most);
            let mut sizes: Vec<u64> = sizes.chain(has_bytes).collect();
            sizes.sort_unstable();
            sizes.dedup();
            look.checked = rates(meter, &sizes)?;
        }
        match meter.is_machine_busy() {
            true => Err(Unmeasured::Busy),
            false => Ok(look),
        }
    }

    /// Returns the measurements of this disk that a command made in the last half hour. Returns `None` if there are no such measurements,
    /// or if the disk's readahead has changed since then.
    pub fn kept(disk: &str, has_bytes: Option<u64>, limits: SettingLimits) -> Option<DiskLook> {
        let kept = KeptMeasurement::find(disk, has_bytes)?;
        Some(DiskLook {
            has_bytes,
            costs: kept.costs,
            limits,
            checked: kept.checked,
        })
    }

    /// The value by the disk's own figures: the smallest that no larger one clearly beats.
    fn best(&self) -> SizeCosts {
        let most = self.limits.most_bytes(&self.costs);
        let is_advisable = |rate: &&CheckedRate| (MIN_BYTES..=most).contains(&rate.readahead_bytes);
        let sizes = Vec::from_iter(self.checked.iter().filter(is_advisable));
        let is_beaten = |n: usize| {
            let mut larger = sizes[n + 1..].iter();
            larger.any(|larger| larger.with_copy() >= MIN_GAIN * sizes[n].with_copy())
        };
        match (0..sizes.len()).find(|n| !is_beaten(*n)) {
            Some(n) => self.read(self.costs.at(sizes[n].readahead_bytes)),
            None => self.costs.best(&self.limits),
        }
    }

    /// For one sequential reader, uses the rate that was measured, if there is one. So short a read may be served from a burst, so large
    /// reads at random limit it, unless the smallest window is faster already: a head does not move, or what is below reads ahead.
    fn read(&self, size: SizeCosts) -> SizeCosts {
        let mut checked = self.checked.iter();
        let rate = checked.find(|rate| rate.readahead_bytes == size.readahead_bytes);
        let [one, four, sixteen] = size.in_order_mb_per_s;
        let random = self.costs.mb_per_s;
        let smallest = self.checked.first();
        let is_above = smallest.is_some_and(|rate| rate.with_copy() > random);
        let most = match self.costs.turns || is_above {
            true => f64::INFINITY,
            false => random,
        };
        let one = rate.map_or(one, |rate| rate.with_copy().min(most));
        SizeCosts {
            in_order_mb_per_s: [one, four.max(one), sixteen.max(one)],
            ..size
        }
    }

    /// Rates the disk's current readahead.
    pub fn find(&self) -> DiskFinding {
        let has = self.has_bytes.map(|bytes| self.read(self.costs.at(bytes)));
        let best = self.best();
        let found = |standing, harm| DiskFinding {
            standing,
            harm,
            has,
            best,
        };
        let Some(now) = has else {
            return found(Standing::Fine, None);
        };
        let bytes = now.readahead_bytes;
        let harm = match bytes {
            0 => Some("each sequential read waits for the storage".to_string()),
            _ if self.costs.is_too_large(bytes, &best) => {
                Some(format!("random page faults read {} each", size(bytes)))
            }
            _ if now.streams_bytes > self.limits.memory_bytes / 2 => Some(format!(
                "sixteen sequential readers take {} of memory",
                size(now.streams_bytes)
            )),
            _ => None,
        };
        if harm.is_some() {
            return found(Standing::Suspicious, harm);
        }
        let [one, four] = ratios(&now, &best);
        if one.max(four) < MIN_GAIN || best.readahead_bytes <= bytes {
            return found(Standing::Fine, None);
        }
        let advised = size(best.readahead_bytes);
        // The step names the factor of one reader (`change`).
        let harm = match one >= four {
            true => format!("a sequential reader is faster with {advised}"),
            false => format!(
                "with {advised}, four sequential readers would be {}x as fast",
                three(four)
            ),
        };
        found(Standing::Gain, Some(harm))
    }

    /// Returns the verdict that follows from these measurements alone. (`doctor` also considers which program or file has set the
    /// readahead.)
    pub fn verdict(&self, device: Option<&Device>) -> Verdict {
        let DiskFinding {
            standing,
            harm,
            has,
            best,
        } = self.find();
        let name = device.and_then(|device| device.name.clone());
        let should = match standing {
            Standing::Fine => has.map_or(best, |has| has),
            _ => best,
        };
        let step = |has: SizeCosts| Step {
            why: change(&has, &best, &self.basis()),
            ..to_set(device, best.readahead_bytes)
        };
        Verdict {
            device: name.unwrap_or_default(),
            has_bytes: self.has_bytes,
            should_bytes: Some(should.readahead_bytes),
            standing,
            why: harm.unwrap_or_default(),
            confidence: self.confidence(),
            steps: has
                .filter(|_| standing != Standing::Fine)
                .map(step)
                .into_iter()
                .collect(),
        }
    }

    pub fn confidence(&self) -> Confidence {
        match self.checked.is_empty() {
            true => Confidence::Formula,
            false => Confidence::Measured,
        }
    }

    /// Describes in words how the figures were obtained.
    pub fn basis(&self) -> String {
        let costs = self.costs.in_words();
        match self.confidence() {
            Confidence::Measured => costs,
            _ => format!("by formula; {costs}"),
        }
    }
}

/// Returns the factors by which the throughput of one sequential reader, and of four sequential readers, changes with another readahead.
pub fn ratios(now: &SizeCosts, to: &SizeCosts) -> [f64; 2] {
    [0, 1].map(|n: usize| to.in_order_mb_per_s[n] / now.in_order_mb_per_s[n])
}

/// Rates that differ by less than this part count as equal.
const SAME: f64 = 0.05;

/// Returns a sentence on what another readahead changes; `basis` says how the figures were obtained.
pub fn change(now: &SizeCosts, to: &SizeCosts, basis: &str) -> String {
    let [one, _] = ratios(now, to);
    let in_order = match one - 1.0 {
        change if change.abs() <= SAME => "is as fast".to_string(),
        change if change < 0.0 => format!("loses {} %", three(-change * 100.0)),
        _ => format!("would be {}x as fast", three(one)),
    };
    format!(
        "A random page fault then takes {} ms instead of {} ms; a sequential reader {in_order} ({basis}).",
        three(to.fault_ms),
        three(now.fault_ms)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glance::{Reads, Sample};
    use foreread_os::failure::Failure;
    use foreread_sim::rng::Rng;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const QUICK_DISK: StorageCosts = StorageCosts {
        latency_us: 200.0,
        mb_per_s: 1000.0,
        is_measured: true,
        turns: false,
        age_s: 0,
    };
    const LIMITS: SettingLimits = SettingLimits {
        request_bytes: Some(1 << 20),
        memory_bytes: 16 << 30,
    };

    #[test]
    fn the_smallest_value_within_its_part_of_the_best_is_advised() {
        let best = QUICK_DISK.best(&LIMITS);
        assert_eq!(best.readahead_bytes, 2 << 20);
        let smaller = QUICK_DISK.rates(best.readahead_bytes / 2, 1.0);
        assert!(smaller[0] < NEAR * QUICK_DISK.rates(64 << 20, 1.0)[0]);
        let near = StorageCosts {
            latency_us: 60.0,
            ..QUICK_DISK
        };
        assert_eq!(near.best(&LIMITS).readahead_bytes, 512 << 10);
    }

    /// `dd` from ext4 on a disk 5 ms away that brings 120 MB/s: 2 MiB is 2.7 times as fast as 128 KiB, and 4.9 times if
    /// one window is under way.
    #[test]
    fn the_gain_counts_two_windows_under_way() {
        let far = StorageCosts {
            latency_us: 5000.0,
            mb_per_s: 120.0,
            ..QUICK_DISK
        };
        let rate = |bytes| far.at(bytes).in_order_mb_per_s[0];
        let times = rate(2 << 20) / rate(128 << 10);
        assert!((2.4..2.9).contains(&times), "{times}");
    }

    fn look(checked: &[(u64, f64)]) -> DiskLook {
        let rate = |(kib, mb_per_s): &(u64, f64)| CheckedRate {
            readahead_bytes: kib << 10,
            mb_per_s: *mb_per_s,
        };
        DiskLook {
            has_bytes: Some(8 << 20),
            costs: QUICK_DISK,
            limits: LIMITS,
            checked: checked.iter().map(rate).collect(),
        }
    }

    /// Noise of a tenth does not change the value: a larger one has to be clearly faster.
    #[test]
    fn noise_does_not_move_the_advice() {
        let large = (8192, 970.0);
        let best = |checked: &[(u64, f64)]| look(checked).find().best.readahead_bytes >> 10;
        let near = [(512, 850.0), (1024, 960.0), (2048, 940.0), large];
        assert_eq!(best(&near), 512);
        // 128 KiB is clearly slower than 2 MiB, but not than 512 KiB, which is near 2 MiB.
        assert_eq!(best(&[(128, 870.0), (512, 1090.0), (2048, 1250.0)]), 512);
        // The copy from the page cache takes longer than what 2 MiB save.
        assert_eq!(best(&[(128, 1000.0), (512, 3000.0), (2048, 3500.0)]), 512);
        let slow = (512, 600.0);
        assert_eq!(best(&[slow, (1024, 900.0), (2048, 930.0), large]), 1024);
        assert_eq!(best(&[]), 2048, "by formula");
        let verdict = look(&[slow, (1024, 900.0), large]).verdict(None);
        assert_eq!(verdict.should_bytes, Some(1 << 20));
        assert_eq!(
            verdict.steps[0].text,
            "foreread doctor --fix DEVICE --to 1M"
        );
        let right = DiskLook {
            has_bytes: Some(512 << 10),
            ..look(&[])
        };
        let verdict = right.verdict(None);
        assert_eq!(
            (verdict.should_bytes, verdict.steps),
            (Some(512 << 10), Vec::new())
        );
    }

    /// A disk whose sequential reader is 1.4 times as fast with windows of 512 KiB as with 128 KiB, and no faster with larger ones. At
    /// each moment, other programs slow a sample by a factor, which the sample may or may not notice.
    struct MadeDisk<F>(Duration, F);

    impl<F: FnMut() -> (f64, bool)> Meter for MadeDisk<F> {
        fn elapsed(&self) -> Duration {
            self.0
        }

        fn span(&self) -> u64 {
            1 << 30
        }

        fn is_machine_busy(&self) -> bool {
            false
        }

        fn sample(&mut self, reads: Reads) -> Result<Sample, Failure> {
            let (slower, is_disturbed) = (self.1)();
            let (figure, ms) = match reads {
                Reads::Pages => (40.0 * slower, 5.0),
                Reads::Large => (780.0 / slower, 130.0),
                Reads::InOrder(bytes) if bytes == 128 << 10 => (560.0 / slower, 15.0),
                Reads::InOrder(_) => (784.0 / slower, 11.0),
            };
            self.0 += Duration::from_secs_f64(ms * slower / 1e3);
            Ok(Sample {
                figure,
                is_disturbed,
            })
        }
    }

    /// The values that 200 measurements advise, in KiB; zero if the machine is too busy. `chance` percent of the samples take up to three
    /// times as long; of these, `seen` percent are noticed.
    fn advised_beside(chance: u64, seen: u64) -> BTreeMap<u64, u32> {
        let mut rng = Rng::new(1);
        let mut found = BTreeMap::new();
        for _ in 0..200 {
            let others = || {
                let is_slow = rng.below(100) < chance;
                let slower = 1.0 + rng.below(200) as f64 / 100.0;
                match is_slow {
                    true => (slower, rng.below(100) < seen),
                    false => (1.0, false),
                }
            };
            let mut disk = MadeDisk(Duration::ZERO, others);
            let look = DiskLook::by(&mut disk, Some(8 << 20), false, LIMITS);
            assert!(disk.0 < Duration::from_secs(3), "{:?}", disk.0);
            let kib = match look {
                Ok(look) => look.find().best.readahead_bytes >> 10,
                Err(Unmeasured::Busy) => 0,
                Err(Unmeasured::Failed(failure)) => panic!("{failure}"),
            };
            *found.entry(kib).or_default() += 1;
        }
        found
    }

    #[test]
    fn what_other_programs_do_does_not_change_the_value() {
        assert_eq!(advised_beside(0, 0), BTreeMap::from([(512, 200)]));
        assert_eq!(advised_beside(10, 0), BTreeMap::from([(512, 200)]));
        assert_eq!(advised_beside(100, 100), BTreeMap::from([(0, 200)]));
        // If disturbed samples counted, one value in fourteen would be another one.
        let busy = advised_beside(60, 100);
        let is_right = busy.keys().all(|kib| [0, 512].contains(kib)) && busy[&512] > 100;
        assert!(is_right, "{busy:?}");
    }

    /// A loop device on the disk of a virtual machine, whose host reads ahead and caches. `dd` of 96 MiB takes 53 ms with 128 KiB, and 40 ms
    /// with 512 KiB.
    #[test]
    fn a_fast_disk_gains_too() {
        let costs = StorageCosts {
            latency_us: 52.0,
            mb_per_s: 650.0,
            ..QUICK_DISK
        };
        let fast = DiskLook {
            has_bytes: Some(128 << 10),
            costs,
            ..look(&[(128, 5070.0), (512, 8410.0), (2048, 6000.0)])
        };
        let found = fast.find();
        let [one, _] = ratios(&found.has.expect("a value"), &found.best);
        assert_eq!(found.standing, Standing::Gain);
        assert_eq!(found.best.readahead_bytes, 512 << 10);
        assert!((1.25..1.4).contains(&one), "{one}");
    }

    /// A disk 3 ms away saves 4 MB of its 214 MB/s for later, so 2 MiB reads 328 MB/s for a moment. `dd` takes 0.36 of its time.
    #[test]
    fn a_burst_is_no_rate_of_a_sequential_reader() {
        let far = DiskLook {
            has_bytes: Some(128 << 10),
            costs: StorageCosts {
                latency_us: 3300.0,
                mb_per_s: 214.0,
                ..QUICK_DISK
            },
            ..look(&[(128, 74.5), (512, 205.0), (2048, 328.5)])
        };
        let found = far.find();
        let [one, _] = ratios(&found.has.expect("a value"), &found.best);
        assert_eq!(found.best.in_order_mb_per_s, [214.0; 3]);
        assert!((2.8..2.9).contains(&one), "{one}");
    }

    #[test]
    fn small_memory_takes_a_smaller_one() {
        let small = SettingLimits {
            memory_bytes: 64 << 20,
            ..LIMITS
        };
        assert_eq!(QUICK_DISK.best(&small).readahead_bytes, 512 << 10);
    }

    #[test]
    fn a_value_above_the_limit_of_its_kind_is_too_large() {
        let best = QUICK_DISK.best(&LIMITS);
        assert!(
            !QUICK_DISK.is_too_large(2 << 20, &best) && QUICK_DISK.is_too_large(4 << 20, &best)
        );
        let turning = StorageCosts {
            latency_us: 12_000.0,
            mb_per_s: 180.0,
            turns: true,
            ..QUICK_DISK
        };
        let best = turning.best(&LIMITS);
        assert_eq!(best.readahead_bytes, 2 << 20);
        assert!(!turning.is_too_large(8 << 20, &best) && turning.is_too_large(64 << 20, &best));
    }
}
