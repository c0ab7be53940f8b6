//! Checks the ranges of a model file and reports the first invalid key. It rejects numbers that the simulator cannot
//! handle (zero times, zero rates, overflowing sums).

use super::SCHEMA;
use super::file::{ArrayFile, HddFile, ModelFile};
use crate::device::disk::Slope;
use crate::device::lanes::LanesModel;
use crate::device::net::NetModel;
use crate::device::ssd::SsdModel;
use crate::device::throttle::Throttle;
use foreread_core::storage::MAX_FETCH_BYTES;
use foreread_core::units::MAX_OFFSET;

pub const MAX_TEXT: usize = 500;
pub const MAX_ROWS: usize = 64;
/// Longest single time: an hour, in nanoseconds.
const MAX_NS: u64 = 3_600_000_000_000;
/// Slowest and fastest rate, in bytes a second.
const RATES: (u64, u64) = (1000, 1_000_000_000_000);
/// The same, in picoseconds for a KiB; 0 where bytes cost nothing.
const PS_PER_KIB: (u64, u64) = (0, 1_024_000_000_000);
/// Most commands at once, lanes, connections, segments.
const MAX_AT_ONCE: u64 = 1 << 16;
/// Most dies, and channels, of a drive.
const MAX_DIES: u64 = 1024;
/// Slowest reader: a millisecond for a KiB.
const MAX_HOST_NS: u64 = 1_000_000;

/// The key, and what is wrong with it.
type Refusal = (String, String);

fn range(key: &str, value: u64, (low, high): (u64, u64)) -> Result<(), Refusal> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err((
        key.to_string(),
        format!("{value} is not between {low} and {high}"),
    ))
}

fn refuse<T>(key: &str, why: &str) -> Result<T, Refusal> {
    Err((key.to_string(), why.to_string()))
}

/// The name of a table in the file.
struct InTable(&'static str);

impl InTable {
    fn range(&self, key: &str, value: u64, allowed: (u64, u64)) -> Result<&InTable, Refusal> {
        range(&format!("{}.{key}", self.0), value, allowed).map(|()| self)
    }
}

const TIME: (u64, u64) = (0, MAX_NS);

impl ModelFile {
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.schema != SCHEMA {
            return refuse("schema", &format!("this version reads only {SCHEMA}"));
        }
        let date = self.date.as_ref().map(|d| ("date", d));
        let texts = [
            ("summary", &self.summary),
            ("origin", &self.origin),
            ("fit_error", &self.fit_error),
            ("host_origin", &self.host_origin),
        ];
        let source = self.fit.as_ref().map(|f| ("fit.source", &f.source));
        for (key, text) in texts.into_iter().chain(date).chain(source) {
            if text.chars().count() > MAX_TEXT || text.chars().any(char::is_control) {
                return refuse(
                    key,
                    &format!("it is not one line of at most {MAX_TEXT} characters"),
                );
            }
        }
        range("capacity_bytes", self.capacity_bytes, (1, MAX_OFFSET))?;
        range(
            "commands_at_once",
            u64::from(self.commands_at_once),
            (1, MAX_AT_ONCE),
        )?;
        range(
            "max_fetch_bytes",
            self.max_fetch_bytes.unwrap_or(MAX_FETCH_BYTES),
            (4096, 1 << 30),
        )?;
        range("host_ns_per_kib", self.host_ns_per_kib, (0, MAX_HOST_NS))?;
        self.one_kind()?;
        if let Some(disk) = &self.disk {
            range("disk.command_ns", disk.command_ns, TIME)?;
            max_transfer("disk", disk.max_transfer_bytes)?;
            slopes("disk.slopes", &disk.slopes)?;
        }
        self.lanes.as_ref().map_or(Ok(()), lanes)?;
        self.hdd.as_ref().map_or(Ok(()), hdd)?;
        self.array.as_ref().map_or(Ok(()), array)?;
        self.ssd.as_ref().map_or(Ok(()), ssd)?;
        self.net.as_ref().map_or(Ok(()), net)?;
        self.throttle.as_ref().map_or(Ok(()), throttle)?;
        self.errors()
    }

    fn one_kind(&self) -> Result<(), Refusal> {
        let there = [
            self.disk.is_some(),
            self.lanes.is_some(),
            self.hdd.is_some(),
            self.array.is_some(),
            self.ssd.is_some(),
            self.net.is_some(),
        ];
        match there.iter().filter(|t| **t).count() {
            1 => Ok(()),
            _ => refuse(
                "figures",
                "there must be one table of [disk], [lanes], [hdd], [array], [ssd] and [net]",
            ),
        }
    }

    fn errors(&self) -> Result<(), Refusal> {
        if let Some(fit) = &self.fit
            && ![fit.worst_error, fit.median_error]
                .iter()
                .all(|e| e.is_finite())
        {
            return refuse("fit", "an error is not a number");
        }
        Ok(())
    }
}

fn throttle(file: &Throttle) -> Result<(), Refusal> {
    let any = file.request_bytes == u64::MAX;
    let bytes = if any { MAX_OFFSET } else { file.request_bytes };
    InTable("throttle")
        .range("requests_per_s", file.requests_per_s, (1, 1_000_000_000))?
        .range("request_bytes", bytes, (512, MAX_OFFSET))?
        .range("burst_requests", file.burst_requests, (1, 1 << 32))?;
    Ok(())
}

fn max_transfer(table: &str, bytes: Option<u64>) -> Result<(), Refusal> {
    bytes.map_or(Ok(()), |bytes| {
        range(
            &format!("{table}.max_transfer_bytes"),
            bytes,
            (512, MAX_OFFSET),
        )
    })
}

fn slopes(key: &str, slopes: &[Slope]) -> Result<(), Refusal> {
    if slopes.is_empty() || slopes.len() > MAX_ROWS {
        return refuse(key, &format!("there must be 1 to {MAX_ROWS}"));
    }
    if slopes[0].from_bytes != 0 || !slopes.is_sorted_by(|a, b| a.from_bytes < b.from_bytes) {
        return refuse(key, "from_bytes must begin at 0 and rise");
    }
    slopes
        .iter()
        .try_for_each(|s| range(&format!("{key}.ps_per_kib"), s.ps_per_kib, PS_PER_KIB))
}

fn lanes(f: &LanesModel) -> Result<(), Refusal> {
    InTable("lanes")
        .range("lanes", u64::from(f.lanes), (1, MAX_AT_ONCE))?
        .range("latency_ns", f.latency_ns, TIME)?
        .range("ps_per_kib", f.ps_per_kib, PS_PER_KIB)?
        .range("link_ps_per_kib", f.link_ps_per_kib, PS_PER_KIB)?;
    Ok(())
}

fn hdd(f: &HddFile) -> Result<(), Refusal> {
    if !(0.0..=1.0).contains(&f.seek_linear_from) {
        return refuse("hdd.seek_linear_from", "it is not between 0 and 1");
    }
    InTable("hdd")
        .range("rpm", u64::from(f.rpm), (60, 100_000))?
        .range("command_ns", f.command_ns, TIME)?
        .range("settle_ns", f.settle_ns, TIME)?
        .range("seek_root_ns", f.seek_root_ns, TIME)?
        .range("seek_full_ns", f.seek_full_ns, TIME)?
        .range("inner_bytes_per_s", f.inner_bytes_per_s, RATES)?
        .range(
            "outer_bytes_per_s",
            f.outer_bytes_per_s,
            (f.inner_bytes_per_s, RATES.1),
        )?
        .range(
            "buffer_segments",
            u64::from(f.buffer_segments),
            (0, MAX_AT_ONCE),
        )?
        .range("buffer_segment_bytes", f.buffer_segment_bytes, (1, 1 << 40))?
        .range("buffer_hit_ns", f.buffer_hit_ns, TIME)?
        .range("interface_bytes_per_s", f.interface_bytes_per_s, RATES)?
        .range("queue_depth", u64::from(f.queue_depth), (1, MAX_AT_ONCE))?
        .range("patience_ns", f.patience_ns, TIME)?;
    Ok(())
}

fn array(f: &ArrayFile) -> Result<(), Refusal> {
    range("array.ps_per_kib", f.ps_per_kib, PS_PER_KIB)?;
    if f.overhead.is_empty() || f.overhead.len() > MAX_ROWS {
        return refuse(
            "array.overhead",
            &format!("there must be 1 to {MAX_ROWS} rows"),
        );
    }
    if f.overhead[0].from_readers != 1
        || !f
            .overhead
            .is_sorted_by(|a, b| a.from_readers < b.from_readers)
    {
        return refuse("array.overhead", "from_readers must begin at 1 and rise");
    }
    f.overhead
        .iter()
        .try_for_each(|row| range("array.overhead.ns", row.ns, TIME))
}

fn ssd(f: &SsdModel) -> Result<(), Refusal> {
    InTable("ssd")
        .range("channels", u64::from(f.channels), (1, MAX_DIES))?
        .range(
            "dies_per_channel",
            u64::from(f.dies_per_channel),
            (1, MAX_DIES),
        )?
        .range("flash_page_bytes", f.page_bytes, (512, 1 << 30))?
        .range("command_ns", f.command_ns, TIME)?
        .range("read_ns", f.read_ns, (1, MAX_NS))?
        .range("channel_bytes_per_s", f.channel_bytes_per_s, RATES)?
        .range("link_bytes_per_s", f.link_bytes_per_s, RATES)?
        .range("queue_depth", u64::from(f.queue_depth), (1, MAX_AT_ONCE))?;
    let Some(tail) = &f.tail else { return Ok(()) };
    InTable("ssd.tail")
        .range("read_p99_ns", tail.read_p99_ns, (f.read_ns, MAX_NS))?
        .range(
            "collisions_per_million",
            tail.collisions_per_million,
            (0, 1_000_000),
        )?
        .range("program_ns", tail.program_ns, TIME)?
        .range("erase_ns", tail.erase_ns, TIME)?;
    Ok(())
}

fn net(f: &NetModel) -> Result<(), Refusal> {
    // A tail is a multiple of its median, which then is not nothing.
    let least_ns = u64::from(f.rtt_p99_ns.is_some());
    InTable("net")
        .range("rtt_ns", f.rtt_ns, (least_ns, MAX_NS))?
        .range(
            "rtt_p99_ns",
            f.rtt_p99_ns.unwrap_or(f.rtt_ns),
            (f.rtt_ns, MAX_NS),
        )?
        .range("link_bytes_per_s", f.link_bytes_per_s, RATES)?
        .range(
            "connection_bytes_per_s",
            f.connection_bytes_per_s,
            (RATES.0, f.link_bytes_per_s),
        )?
        .range(
            "server_connections",
            u64::from(f.connections),
            (1, MAX_AT_ONCE),
        )?;
    Ok(())
}
