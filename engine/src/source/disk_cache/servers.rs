//! What processes learned of the servers that they read from: latency and rate, one small text file for each server.
//!
//! ```text
//!   DIR/foreread-cache-1/servers/<hash of the name>
//!     foreread-server 1                          version of the format; what begins otherwise is left alone
//!     name http://127.0.0.1:9000/bucket          scheme, endpoint and bucket, or host; whose credentials makes no difference
//!     written 1795757400                         seconds since 1970
//!     latency_ns 30123456 12.5                   a figure and its weight when it was written
//!     rate 200000000 16
//!     single_rate 150000000 16                   of one fetch
//! ```
//! A weight is halved each day. What a process measured has a weight of 16 and is averaged with what is there by their weights; where one is more than
//! twice the other, the server has changed and the new one counts alone. A figure of a weight below one is not used, one that no process has
//! written for 30 days is removed, and of 256 servers and more the oldest. The last of several processes that write at once has the file, after it has read
//! what was there.
//!
//! Never: believes a figure because a file has it. One of another form or name, too long, or with a figure that no server has is ignored as a
//! whole; a prior of the meter is overruled by three requests anyway.

use super::folder::{CacheFolder, inside, now_seconds};
use super::piece::VersionHash;
use foreread_core::storage::SourceFigures;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt::Write;
use std::ops::RangeInclusive;

/// The folder of the files.
const FOLDER: &str = "servers";
const FIRST_LINE: &str = "foreread-server 1";
/// Bytes of a file at most.
const MAX_BYTES: usize = 4096;
/// Weight of what one process measured, and of all together.
const WEIGHT: f64 = 16.0;
const MAX_WEIGHT: f64 = 64.0;
/// A figure that has less is not used.
const MIN_WEIGHT: f64 = 1.0;
const DAY_S: u64 = 86_400;
/// What was written so long ago is removed.
const KEPT_S: u64 = 30 * DAY_S;
/// Files at most, and entries of the folder that are looked at.
const MAX_SERVERS: usize = 256;
const MAX_ENTRIES: usize = 4096;
/// What a server may have: a microsecond to a minute, a kilobyte to a terabyte a second.
const LATENCIES_NS: RangeInclusive<u64> = 1_000..=60_000_000_000;
const RATES: RangeInclusive<u64> = 1_000..=1_000_000_000_000;

/// A figure and how much it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WeighedFigure {
    value: u64,
    weight: f64,
}

impl WeighedFigure {
    /// One day later it counts half.
    fn aged(self, seconds: u64) -> WeighedFigure {
        let days = seconds as f64 / DAY_S as f64;
        WeighedFigure {
            weight: self.weight * 0.5_f64.powf(days),
            ..self
        }
    }

    /// With what a process has measured; 0 is nothing.
    fn merged(self, measured: u64) -> WeighedFigure {
        if measured == 0 {
            return self;
        }
        let is_other = self.value / 2 > measured || self.value < measured / 2;
        if self.weight < MIN_WEIGHT || is_other {
            return WeighedFigure {
                value: measured,
                weight: WEIGHT,
            };
        }
        let weight = self.weight + WEIGHT;
        let sum = self.value as f64 * self.weight + measured as f64 * WEIGHT;
        WeighedFigure {
            value: (sum / weight) as u64,
            weight: weight.min(MAX_WEIGHT),
        }
    }

    fn used(self) -> u64 {
        if self.weight < MIN_WEIGHT {
            0
        } else {
            self.value
        }
    }
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq)]
struct ServerFile {
    name: String,
    written_s: u64,
    latency_ns: WeighedFigure,
    rate: WeighedFigure,
    single_rate: WeighedFigure,
}

impl ServerFile {
    /// Nothing where any of it is not as it is written here.
    fn parse(text: &str, now_s: u64) -> Option<ServerFile> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let name = lines.next()?.strip_prefix("name ")?.to_string();
        if name.is_empty() || name.chars().any(char::is_control) {
            return None;
        }
        let written_s = lines.next()?.strip_prefix("written ").and_then(number)?;
        // A clock may be a day off.
        if written_s > now_s.saturating_add(DAY_S) {
            return None;
        }
        let mut file = ServerFile {
            name,
            written_s,
            ..ServerFile::default()
        };
        for line in lines {
            let mut words = line.split(' ');
            let (key, value, weight) = (words.next()?, words.next()?, words.next()?);
            let (place, allowed) = match key {
                "latency_ns" => (&mut file.latency_ns, LATENCIES_NS),
                "rate" => (&mut file.rate, RATES),
                "single_rate" => (&mut file.single_rate, RATES),
                _ => return None,
            };
            let value = number(value).filter(|value| allowed.contains(value))?;
            let weight: f64 = weight.parse().ok()?;
            if words.next().is_some() || place.weight > 0.0 || !(0.0..=MAX_WEIGHT).contains(&weight)
            {
                return None;
            }
            *place = WeighedFigure { value, weight };
        }
        Some(file)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{FIRST_LINE}\nname {}\nwritten {}\n",
            self.name, self.written_s
        );
        for (key, figure) in [
            ("latency_ns", self.latency_ns),
            ("rate", self.rate),
            ("single_rate", self.single_rate),
        ] {
            if figure.value > 0 {
                let _ = writeln!(text, "{key} {} {:.3}", figure.value, figure.weight);
            }
        }
        text
    }

    fn aged(self, now_s: u64) -> ServerFile {
        let age = now_s.saturating_sub(self.written_s);
        ServerFile {
            latency_ns: self.latency_ns.aged(age),
            rate: self.rate.aged(age),
            single_rate: self.single_rate.aged(age),
            ..self
        }
    }

    /// With what a process has measured, as of now.
    fn merged(self, measured: SourceFigures, now_s: u64) -> ServerFile {
        let within = |value: u64, allowed: RangeInclusive<u64>| {
            if allowed.contains(&value) { value } else { 0 }
        };
        let was = self.aged(now_s);
        ServerFile {
            latency_ns: was
                .latency_ns
                .merged(within(measured.latency_ns, LATENCIES_NS)),
            rate: was.rate.merged(within(measured.rate, RATES)),
            single_rate: was.single_rate.merged(within(measured.single_rate, RATES)),
            written_s: now_s,
            ..was
        }
    }

    fn used(&self) -> SourceFigures {
        SourceFigures {
            latency_ns: self.latency_ns.used(),
            rate: self.rate.used(),
            single_rate: self.single_rate.used(),
        }
    }
}

/// A whole number in digits alone.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// What a cache knows of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSummary {
    /// Scheme, endpoint and bucket, or host.
    pub name: String,
    /// Latency and rate that a process begins with; 0 where that is too old.
    pub figures: SourceFigures,
    /// When it was written last, in seconds since 1970.
    pub written_s: u64,
}

/// The path of the file of a server.
fn path(name: &str) -> String {
    inside(FOLDER, &VersionHash::of(name, "").name())
}

fn read(folder: &CacheFolder, path: &str, now_s: u64) -> Option<ServerFile> {
    let text = folder.small_text(path, MAX_BYTES).ok()?;
    ServerFile::parse(&text, now_s)
}

/// What is known of a server; nothing where no figure is fresh enough, or its file is not right.
pub fn known(folder: &CacheFolder, name: &str) -> Option<SourceFigures> {
    let now_s = now_seconds();
    let file = read(folder, &path(name), now_s).filter(|file| file.name == name)?;
    let figures = file.aged(now_s).used();
    (figures.latency_ns > 0).then_some(figures)
}

/// Keeps what a process has measured of a server.
///
/// # Errors
/// It cannot be written.
pub fn learn(folder: &CacheFolder, name: &str, measured: SourceFigures) -> Result<(), Errno> {
    if name.len() > MAX_BYTES / 2 || name.chars().any(char::is_control) {
        return Ok(());
    }
    let (path, now_s) = (path(name), now_seconds());
    let known = read(folder, &path, now_s).filter(|file| file.name == name);
    let is_new = known.is_none();
    let known = known.unwrap_or_else(|| ServerFile {
        name: name.to_string(),
        written_s: now_s,
        ..ServerFile::default()
    });
    let file = known.merged(measured, now_s);
    if file.latency_ns.value == 0 {
        return Ok(());
    }
    folder.make_own(FOLDER)?;
    if is_new {
        clean(folder, now_s);
    }
    folder.replace(FOLDER, &path, file.text().as_bytes())
}

/// Removes the files of servers that no process has asked for long, those beyond the limit, and what writers left.
fn clean(folder: &CacheFolder, now_s: u64) {
    let mut kept = Vec::new();
    for path in paths(folder) {
        let Ok(used) = folder.use_of(&path) else {
            continue;
        };
        let written_s = u64::try_from(used.at_ns / 1_000_000_000).unwrap_or(0);
        if now_s.saturating_sub(written_s) > KEPT_S {
            let _ = folder.remove(&path);
        } else {
            kept.push((written_s, path));
        }
    }
    kept.sort_unstable();
    let over = (kept.len() + 1).saturating_sub(MAX_SERVERS);
    for (_, path) in kept.drain(..over) {
        let _ = folder.remove(&path);
    }
}

/// The files of servers; what a writer left that is gone is removed.
fn paths(folder: &CacheFolder) -> Vec<String> {
    let (mut found, mut seen) = (Vec::new(), 0);
    let _ = folder.names(FOLDER, &mut |name: &OsStr| {
        seen += 1;
        let is_abandoned = folder.remove_abandoned(FOLDER, name);
        let hash = name.to_str().filter(|_| !is_abandoned);
        if let Some(hash) = hash.filter(|hash| VersionHash::of_name(hash).is_some()) {
            found.push(inside(FOLDER, hash));
        }
        seen < MAX_ENTRIES
    });
    found
}

/// All that is known, by name.
pub fn all(folder: &CacheFolder) -> Vec<ServerSummary> {
    let now_s = now_seconds();
    let summary = |at: String| {
        let file = read(folder, &at, now_s).filter(|file| path(&file.name) == at)?;
        Some(ServerSummary {
            name: file.name.clone(),
            written_s: file.written_s,
            figures: file.aged(now_s).used(),
        })
    };
    let mut all: Vec<_> = paths(folder).into_iter().filter_map(summary).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Removes all of it.
///
/// # Errors
/// A file cannot be removed.
pub fn remove_all(folder: &CacheFolder) -> Result<(), Errno> {
    for path in paths(folder) {
        match folder.remove(&path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    // What is left in it is not of a cache.
    let _ = folder.remove_version(FOLDER);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn file() -> ServerFile {
        ServerFile {
            name: "http://a/b".to_string(),
            written_s: NOW - 2 * DAY_S,
            latency_ns: WeighedFigure {
                value: 30_000_000,
                weight: 16.0,
            },
            rate: WeighedFigure {
                value: 200_000_000,
                weight: 3.5,
            },
            single_rate: WeighedFigure::default(),
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_counts_half_each_day() {
        let text = file().text();
        assert_eq!(
            text,
            "foreread-server 1\nname http://a/b\nwritten 1799827200\nlatency_ns 30000000 16.000\nrate 200000000 3.500\n"
        );
        let read = ServerFile::parse(&text, NOW).expect("a file");
        assert_eq!(read, file());
        let aged = read.aged(NOW);
        assert_eq!((aged.latency_ns.weight, aged.rate.weight), (4.0, 0.875));
        let used = aged.used();
        assert_eq!((used.latency_ns, used.rate), (30_000_000, 0), "too old");
    }

    #[test]
    fn what_is_measured_counts_by_weight_and_alone_where_it_is_other() {
        let of = |latency_ns| SourceFigures {
            latency_ns,
            ..SourceFigures::default()
        };
        let near = file().merged(of(40_000_000), NOW);
        assert_eq!(
            (near.latency_ns, near.rate, near.written_s),
            (
                WeighedFigure {
                    value: 38_000_000,
                    weight: 20.0
                },
                WeighedFigure {
                    value: 200_000_000,
                    weight: 0.875
                },
                NOW
            )
        );
        let far = file().merged(of(90_000_000), NOW).latency_ns;
        assert_eq!((far.value, far.weight), (90_000_000, 16.0));
        let absurd = file().merged(of(u64::MAX), NOW).latency_ns;
        assert_eq!(absurd.value, 30_000_000);
    }

    #[test]
    fn what_is_not_right_is_ignored_as_a_whole() {
        let right = file().text();
        for wrong in [
            String::new(),
            right.replace("server 1", "server 2"),
            right.trim_end().to_string(),
            right[..right.len() - 12].to_string(),
            right.replace("30000000 16.000", "0 16.000"),
            right.replace("30000000", "99999999999999"),
            right.replace("30000000", "+30000000"),
            right.replace("30000000", "99999999999999999999999"),
            right.replace("200000000", "1000000000001"),
            right.replace("16.000", "65"),
            right.replace("16.000", "NaN"),
            right.replace("16.000", "inf"),
            right.replace("16.000", "-1"),
            right.replace("16.000", "16.000 1"),
            right.replace("1799827200", "1800086401"),
            right.replace("rate", "other"),
            format!("{right}rate 1000 1\n"),
        ] {
            assert_eq!(ServerFile::parse(&wrong, NOW), None, "{wrong}");
        }
    }
}
