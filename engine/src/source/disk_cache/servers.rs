//! What processes learned of the servers that they read from: latency, rate and how far runs of reads went, one small text file for each server.
//!
//! ```text
//!   DIR/foreread-cache-1/servers/<hash of the name>
//!     foreread-server 1                          version of the format; what begins otherwise is left alone
//!     name http://127.0.0.1:9000/bucket          scheme, endpoint and bucket, or host; whose credentials makes no difference
//!     written 1795757400                         seconds since 1970
//!     latency_ns 30123456 12.5                   a figure and its weight when it was written
//!     rate 200000000 16
//!     single_rate 150000000 16                   of one fetch
//!     run start 8 250 16.000                     of the runs from the start of a file that reached 128 KiB (octave 8 of 512 bytes) 250 of 1,000 ended before 256 KiB
//! ```
//! A weight is halved each day. What a process measured has a weight of 16 and is averaged with what is there by their weights; where one is more than
//! twice the other, the server has changed and the new one counts alone. The runs of a process weigh as many as reached that length, at most 16. A figure of a weight below one is not used, one that no process has
//! written for 30 days is removed, and of 256 servers and more the oldest. The last of several processes that write at once has the file, after it has read
//! what was there.
//!
//! Never: believes a figure because a file has it. One of another form or name, too long, or with a figure that no server has is ignored as a
//! whole; a prior of the meter is overruled by three requests anyway.

use super::folder::{CacheFolder, inside, now_seconds};
use super::piece::VersionHash;
use foreread_core::storage::{Measurements, RunEnds, RunKind, SourceFigures};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::ops::RangeInclusive;

/// The folder of the files.
const FOLDER: &str = "servers";
const FIRST_LINE: &str = "foreread-server 1";
/// Bytes of a file at most.
const MAX_BYTES: usize = 16 << 10;
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
/// The part of runs that ended is in thousandths.
const PER_MILLE: u64 = 1_000;

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
        self.averaged(measured, WEIGHT)
    }

    fn averaged(self, measured: u64, its_weight: f64) -> WeighedFigure {
        let weight = self.weight + its_weight;
        let sum = self.value as f64 * self.weight + measured as f64 * its_weight;
        WeighedFigure {
            value: (sum / weight) as u64,
            weight: weight.min(MAX_WEIGHT),
        }
    }

    /// A value in this range and a weight; nothing else.
    fn parse<'a>(
        mut words: impl Iterator<Item = &'a str>,
        allowed: &RangeInclusive<u64>,
    ) -> Option<WeighedFigure> {
        let value = number(words.next()?).filter(|value| allowed.contains(value))?;
        let weight: f64 = words.next()?.parse().ok()?;
        let is_right = words.next().is_none() && (0.0..=MAX_WEIGHT).contains(&weight);
        is_right.then_some(WeighedFigure { value, weight })
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
    /// The part of the runs that ended, in thousandths, by kind and octave.
    runs: BTreeMap<(RunKind, u8), WeighedFigure>,
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
            let (place, allowed) = match words.next()? {
                "latency_ns" => (&mut file.latency_ns, LATENCIES_NS),
                "rate" => (&mut file.rate, RATES),
                "single_rate" => (&mut file.single_rate, RATES),
                "run" => {
                    let kind = words.next()?;
                    let (kind, _) = RunKind::ALL.iter().find(|(_, word)| *word == kind)?;
                    let octave = u8::try_from(number(words.next()?)?).ok()?;
                    if octave > RunEnds::MAX_OCTAVE {
                        return None;
                    }
                    (file.runs.entry((*kind, octave)).or_default(), 0..=PER_MILLE)
                }
                _ => return None,
            };
            if place.weight > 0.0 {
                return None;
            }
            *place = WeighedFigure::parse(words, &allowed)?;
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
        for (&(kind, octave), share) in &self.runs {
            let (_, kind) = RunKind::ALL[kind as usize];
            let _ = writeln!(
                text,
                "run {kind} {octave} {} {:.3}",
                share.value, share.weight
            );
        }
        text
    }

    fn aged(self, now_s: u64) -> ServerFile {
        let age = now_s.saturating_sub(self.written_s);
        ServerFile {
            latency_ns: self.latency_ns.aged(age),
            rate: self.rate.aged(age),
            single_rate: self.single_rate.aged(age),
            runs: (self.runs.into_iter())
                .map(|(at, share)| (at, share.aged(age)))
                .filter(|(_, share)| share.weight >= MIN_WEIGHT)
                .collect(),
            ..self
        }
    }

    /// With what a process has measured, as of now.
    fn merged(self, measured: &Measurements, now_s: u64) -> ServerFile {
        let within = |value: u64, allowed: RangeInclusive<u64>| {
            if allowed.contains(&value) { value } else { 0 }
        };
        let mut was = self.aged(now_s);
        for runs in (measured.runs.iter())
            .filter(|runs| runs.octave <= RunEnds::MAX_OCTAVE && runs.reached > 0)
        {
            let share =
                u64::from(runs.ended.min(runs.reached)) * PER_MILLE / u64::from(runs.reached);
            let place = was.runs.entry((runs.kind, runs.octave)).or_default();
            *place = place.averaged(share, f64::from(runs.reached).min(WEIGHT));
        }
        let figures = measured.figures;
        ServerFile {
            latency_ns: was
                .latency_ns
                .merged(within(figures.latency_ns, LATENCIES_NS)),
            rate: was.rate.merged(within(figures.rate, RATES)),
            single_rate: was.single_rate.merged(within(figures.single_rate, RATES)),
            written_s: now_s,
            ..was
        }
    }

    fn used(&self) -> Measurements {
        let runs = self
            .runs
            .iter()
            .filter(|(_, share)| share.weight >= MIN_WEIGHT);
        Measurements {
            figures: SourceFigures {
                latency_ns: self.latency_ns.used(),
                rate: self.rate.used(),
                single_rate: self.single_rate.used(),
            },
            runs: runs
                .map(|(&(kind, octave), share)| RunEnds {
                    kind,
                    octave,
                    reached: PER_MILLE as u32,
                    ended: share.value as u32,
                })
                .collect(),
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
pub fn known(folder: &CacheFolder, name: &str) -> Option<Measurements> {
    let now_s = now_seconds();
    let file = read(folder, &path(name), now_s).filter(|file| file.name == name)?;
    let measured = file.aged(now_s).used();
    (measured.figures.latency_ns > 0).then_some(measured)
}

/// Keeps what a process has measured of a server.
///
/// # Errors
/// It cannot be written.
pub fn learn(folder: &CacheFolder, name: &str, measured: &Measurements) -> Result<(), Errno> {
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
            figures: file.aged(now_s).used().figures,
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
            runs: BTreeMap::from([
                ((RunKind::Start, 8), share(250, 8.0)),
                ((RunKind::Elsewhere, 9), share(1000, 3.0)),
            ]),
        }
    }

    fn share(value: u64, weight: f64) -> WeighedFigure {
        WeighedFigure { value, weight }
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_counts_half_each_day() {
        let text = file().text();
        assert_eq!(
            text,
            "foreread-server 1\nname http://a/b\nwritten 1799827200\nlatency_ns 30000000 16.000\nrate 200000000 3.500\nrun start 8 250 8.000\nrun elsewhere 9 1000 3.000\n"
        );
        let read = ServerFile::parse(&text, NOW).expect("a file");
        assert_eq!(read, file());
        let aged = read.aged(NOW);
        assert_eq!((aged.latency_ns.weight, aged.rate.weight), (4.0, 0.875));
        let used = aged.used();
        let figures = used.figures;
        assert_eq!(
            (figures.latency_ns, figures.rate),
            (30_000_000, 0),
            "too old"
        );
        let runs = RunEnds {
            kind: RunKind::Start,
            octave: 8,
            reached: 1000,
            ended: 250,
        };
        assert_eq!(used.runs, [runs], "the others are too old");
    }

    #[test]
    fn what_is_measured_counts_by_weight_and_alone_where_it_is_other() {
        let of = |latency_ns| Measurements {
            figures: SourceFigures {
                latency_ns,
                ..SourceFigures::default()
            },
            runs: Vec::new(),
        };
        let near = file().merged(&of(40_000_000), NOW);
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
        let far = file().merged(&of(90_000_000), NOW).latency_ns;
        assert_eq!((far.value, far.weight), (90_000_000, 16.0));
        let absurd = file().merged(&of(u64::MAX), NOW).latency_ns;
        assert_eq!(absurd.value, 30_000_000);
    }

    #[test]
    fn runs_count_by_how_many_there_were() {
        let ends = |kind, octave, reached, ended| RunEnds {
            kind,
            octave,
            reached,
            ended,
        };
        let measured = Measurements {
            figures: SourceFigures::default(),
            runs: vec![
                ends(RunKind::Start, 8, 2, 2),
                ends(RunKind::Next, 0, 100, 50),
                ends(RunKind::Next, 1, 0, 0),
                ends(RunKind::Next, RunEnds::MAX_OCTAVE + 1, 9, 0),
            ],
        };
        let runs = file().merged(&measured, NOW).runs;
        assert_eq!(
            runs,
            BTreeMap::from([
                ((RunKind::Start, 8), share(625, 4.0)),
                ((RunKind::Next, 0), share(500, 16.0)),
            ])
        );
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
            format!("{right}run start 8 250 1\n"),
            format!("{right}run start 55 250 1\n"),
            format!("{right}run start 7 1001 1\n"),
            format!("{right}run other 7 250 1\n"),
            format!("{right}run start 7 250\n"),
            format!("{right}run start 7 250 1 1\n"),
            format!("{right}run start 300 250 1\n"),
        ] {
            assert_eq!(ServerFile::parse(&wrong, NOW), None, "{wrong}");
        }
    }
}
