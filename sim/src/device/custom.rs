//! Reads device models from files: `--on model:FILE.toml`.
//!
//! A file in the format [`SCHEMA`] has the figures of a device and their source. Each preset is such a file, which `foreread list models
//! --toml NAME` prints; `foreread probe -o` writes one for measured storage. [`ModelFile`] defines the format: the names of keys include
//! units, unknown keys are errors, and every number has an allowed range.
//!
//! ```text
//!   FILE.toml ──parse──► ModelFile ──preset──► Preset ──► any use of model:NAME
//!   probe ──────────────────┘ ──to_toml──► FILE.toml
//! ```
//!
//! A file is refused if it is not regular (a FIFO would block), larger than [`MAX_FILE_BYTES`], or not completely
//! valid.

use super::array::ArrayModel;
use super::disk::DiskModel;
use super::hdd::HddModel;
use super::lanes::LanesModel;
use super::net::NetModel;
use super::presets::{self, Model, Preset};
use super::ssd::SsdModel;
use super::throttle::Throttle;
use foreread_core::policy::SpecError;
use foreread_core::storage::{LOCAL_FETCH_BYTES, MAX_FETCH_BYTES};
use foreread_core::units::MAX_OFFSET;
use foreread_os::failure::{Failure, without_numbers};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The name and version of the format of model files.
pub const SCHEMA: &str = "foreread.model/1";
/// Maximum size of a model file in bytes: a hundred times the size of the file that `foreread probe` writes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// A model name with this suffix is a file.
const SUFFIX: &str = ".toml";

/// Why no device model could be found or loaded.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FindError {
    /// A name that no preset has.
    #[error("{0}")]
    Name(SpecError),
    /// The file does not contain a valid model.
    #[error("{0}")]
    File(#[from] Failure),
}

/// Loaded files. Each is read only once, so that a name has the same figures in the whole process, and the memory
/// leaked for presets is bounded by the number of names.
static READ: LazyLock<Mutex<HashMap<String, &'static Preset>>> = LazyLock::new(Mutex::default);

/// Returns the model called `name`: a preset, or the model in a file if the name ends in `.toml`.
pub fn find(name: &str) -> Result<&'static Preset, FindError> {
    if !name.ends_with(SUFFIX) {
        return presets::find(name).map_err(FindError::Name);
    }
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(preset) = read.get(name) {
        return Ok(preset);
    }
    let preset = load(Path::new(name))?.preset(name);
    read.insert(name.to_string(), preset);
    Ok(preset)
}

/// Returns true if this is a small regular file that describes a device model, and if its name has the ending of model files.
pub fn is_model_file(path: &Path) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .ends_with(SUFFIX.as_bytes())
        && load(path).is_ok()
}

pub fn load(path: &Path) -> Result<ModelFile, Failure> {
    let refuse = |why: String, remedy: &str| bad(path.display(), why, remedy);
    let text = foreread_os::open::read_small_text(path, MAX_FILE_BYTES).map_err(|error| {
        let is_another = [
            ErrorKind::InvalidInput,
            ErrorKind::FileTooLarge,
            ErrorKind::InvalidData,
        ];
        let other = is_another.contains(&error.kind());
        refuse(
            without_numbers(&error.to_string()),
            if other {
                "name a file that 'foreread probe -o' wrote"
            } else {
                "check the path"
            },
        )
    })?;
    parse(&text, &path.display().to_string())
}

/// Parses the text of a model file; errors show `place` as the name of the file.
pub fn parse(text: &str, place: &str) -> Result<ModelFile, Failure> {
    let file: ModelFile = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        let written = text.lines().nth(line).unwrap_or("").trim();
        let written = if written.is_empty() {
            String::new()
        } else {
            format!(" '{}'", shorten(written))
        };
        bad(
            format!("{place}: line {}{written}", line + 1),
            shorten(&error.message().replace('\n', ", ")),
            "correct that line; 'foreread list models --toml NAME' prints a valid file",
        )
    })?;
    file.check().map_err(|(key, why)| {
        bad(
            format!("{place}: {key}"),
            why,
            "correct that key; 'foreread list models --toml NAME' prints a valid file",
        )
    })?;
    Ok(file)
}

fn bad(place: impl std::fmt::Display, why: String, remedy: &str) -> Failure {
    Failure::input("bad model file", place, remedy).because(why)
}

/// Maximum length of a quote from an untrusted file. The longest list of keys has 190 characters.
const SHOWN: usize = 240;

/// Cuts a long text after a word.
fn shorten(text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(SHOWN) else {
        return text.to_string();
    };
    let word = text[..end].rfind(' ').unwrap_or(end);
    format!("{} ...", &text[..word])
}

// The keys of a model file, their ranges, and the conversion to a preset.

/// A model file. A model file has exactly one of the tables `disk`, `lanes`, `hdd`, `array`, `ssd` and `net`, and optionally
/// `throttle`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    pub schema: String,
    /// A one-line description.
    pub summary: String,
    /// The source of the figures.
    pub origin: String,
    /// Day of the measurement, if there was one: `2026-11-30`.
    pub date: Option<String>,
    /// Whether the figures were fitted to measurements.
    pub calibrated: bool,
    pub fit_error: String,
    pub capacity_bytes: u64,
    /// Recommended number of concurrent commands.
    pub commands_at_once: u32,
    /// Recommended maximum size of a fetch in bytes. The default is 4 MiB, or 1 MiB for `lanes`.
    pub max_fetch_bytes: Option<u64>,
    /// Host CPU time for each KiB that a reader receives, in nanoseconds.
    pub host_ns_per_kib: u64,
    pub host_origin: String,
    pub disk: Option<DiskModel>,
    pub lanes: Option<LanesModel>,
    pub hdd: Option<HddModel>,
    pub array: Option<ArrayModel>,
    pub ssd: Option<SsdModel>,
    pub net: Option<NetModel>,
    pub throttle: Option<Throttle>,
    /// The quality of the fit, for information only.
    pub fit: Option<FitFile>,
}

/// How a model was fitted to measurements. The errors of a fit are fractions: 0.1 is 10 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitFile {
    pub source: String,
    pub worst_error: f64,
    pub median_error: f64,
}

const HEAD: &str = "\
# A device model for 'foreread compare --on model:FILE.toml'. The keys name their units: times are nanoseconds
# (ps: picoseconds), rates are bytes per second. Unknown keys are refused.
";

impl ModelFile {
    /// The figures of each table that the file has.
    fn models(&self) -> Vec<Model> {
        let capacity_bytes = self.capacity_bytes;
        let hdd = self.hdd.map(|hdd| HddModel {
            capacity_bytes,
            ..hdd
        });
        let all = [
            self.disk.map(Model::Disk),
            self.lanes.map(Model::Lanes),
            hdd.map(Model::Hdd),
            self.array.map(Model::Array),
            self.ssd.map(Model::Ssd),
            self.net.map(Model::Net),
        ];
        all.into_iter().flatten().collect()
    }

    pub fn to_toml(&self) -> String {
        let text =
            toml::to_string(self).expect("a struct of numbers and strings can always be written");
        format!("{HEAD}{text}")
    }

    /// Returns the preset that a checked file describes. The memory of the preset is never freed, so it lives as long as the
    /// process.
    ///
    /// # Panics
    /// Panics if the file has no device table; [`parse`] refuses such files.
    pub fn preset(&self, name: &str) -> &'static Preset {
        let text = |text: &str| &*Box::leak(text.to_string().into_boxed_str());
        let model = self.models().first().copied();
        let model = model.expect("a checked file has a table of figures");
        Box::leak(Box::new(Preset {
            name: text(name),
            summary: text(&self.summary),
            origin: text(&self.origin),
            calibrated: self.calibrated,
            fit_error: text(&self.fit_error),
            capacity_bytes: self.capacity_bytes,
            host_ns_per_kib: self.host_ns_per_kib,
            host_origin: text(&self.host_origin),
            connections: self.commands_at_once,
            max_fetch_bytes: self.max_fetch_bytes.unwrap_or(usual_fetch(&model)),
            throttle: self.throttle,
            model,
        }))
    }
}

/// The default maximum fetch of a file. Lanes model a device that the engine has probed.
fn usual_fetch(model: &Model) -> u64 {
    if matches!(model, Model::Lanes(_)) {
        LOCAL_FETCH_BYTES
    } else {
        MAX_FETCH_BYTES
    }
}

/// Reads the rows of a table. Their memory is never freed, as that of a preset.
pub fn leaked<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<&'static [T], D::Error> {
    Ok(Vec::deserialize(from)?.leak())
}

// Checks the ranges of a model file and reports the first invalid key. It rejects numbers that the simulator cannot
// handle (zero times, zero rates, overflowing sums).

pub const MAX_TEXT: usize = 500;
pub const MAX_ROWS: usize = 64;
/// Longest single time: an hour, in nanoseconds.
const MAX_NS: u64 = 3_600_000_000_000;
/// Slowest and fastest rate, in bytes per second.
const RATES: (u64, u64) = (1000, 1_000_000_000_000);
/// Range of times per KiB, in picoseconds; 0 if bytes cost nothing.
const PS_PER_KIB: (u64, u64) = (0, 1_024_000_000_000);
/// Maximum number of concurrent commands, lanes, connections and segments.
const MAX_AT_ONCE: u64 = 1 << 16;
/// Maximum number of dies per channel, and of channels.
const MAX_DIES: u64 = 1024;
/// Slowest reader: a millisecond per KiB.
const MAX_HOST_NS: u64 = 1_000_000;

/// The key, and the reason why it is invalid.
type Refusal = (String, String);

fn range(key: &str, value: impl Into<u64>, (low, high): (u64, u64)) -> Result<(), Refusal> {
    let value = value.into();
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
    fn range(
        &self,
        key: &str,
        value: impl Into<u64>,
        allowed: (u64, u64),
    ) -> Result<&InTable, Refusal> {
        range(&format!("{}.{key}", self.0), value, allowed).map(|()| self)
    }
}

const TIME: (u64, u64) = (0, MAX_NS);

impl ModelFile {
    fn check(&self) -> Result<(), Refusal> {
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
        range("commands_at_once", self.commands_at_once, (1, MAX_AT_ONCE))?;
        let fetch = self.max_fetch_bytes.unwrap_or(MAX_FETCH_BYTES);
        range("max_fetch_bytes", fetch, (4096, 1 << 30))?;
        range("host_ns_per_kib", self.host_ns_per_kib, (0, MAX_HOST_NS))?;
        let models = self.models();
        let [model] = &models[..] else {
            return refuse(
                "figures",
                "exactly one of the tables [disk], [lanes], [hdd], [array], [ssd] and [net] is required",
            );
        };
        match model {
            Model::Disk(figures) => disk(figures),
            Model::Lanes(figures) => lanes(figures),
            Model::Hdd(figures) => hdd(figures),
            Model::Array(figures) => array(figures),
            Model::Ssd(figures) => ssd(figures),
            Model::Net(figures) => net(figures),
        }?;
        self.throttle.as_ref().map_or(Ok(()), throttle)?;
        let fit = self.fit.as_ref();
        let errors = fit.map_or([0.0; 2], |fit| [fit.worst_error, fit.median_error]);
        match errors.iter().all(|error| error.is_finite()) {
            true => Ok(()),
            false => refuse("fit", "an error value is not finite"),
        }
    }
}

fn disk(f: &DiskModel) -> Result<(), Refusal> {
    let (rows, transfer) = (f.slopes.iter(), f.max_transfer_bytes.unwrap_or(MAX_OFFSET));
    let rows = rows.map(|s| (s.from_bytes, s.ps_per_kib));
    InTable("disk")
        .range("command_ns", f.command_ns, TIME)?
        .range("max_transfer_bytes", transfer, (512, MAX_OFFSET))?;
    let columns = ["from_bytes", "ps_per_kib"];
    table("disk.slopes", columns, rows, 0, PS_PER_KIB)
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

/// Checks a table whose first column starts at `first` and increases.
fn table(
    key: &str,
    [from, value]: [&str; 2],
    rows: impl Iterator<Item = (u64, u64)>,
    first: u64,
    allowed: (u64, u64),
) -> Result<(), Refusal> {
    let rows: Vec<(u64, u64)> = rows.collect();
    if rows.is_empty() || rows.len() > MAX_ROWS {
        return refuse(key, &format!("there must be 1 to {MAX_ROWS} rows"));
    }
    if rows[0].0 != first || !rows.is_sorted_by(|a, b| a.0 < b.0) {
        return refuse(key, &format!("{from} must start at {first} and increase"));
    }
    let mut values = rows.iter();
    values.try_for_each(|row| range(&format!("{key}.{value}"), row.1, allowed))
}

fn array(f: &ArrayModel) -> Result<(), Refusal> {
    range("array.ps_per_kib", f.ps_per_kib, PS_PER_KIB)?;
    let rows = f.overhead.iter().map(|o| (o.from_readers.into(), o.ns));
    table("array.overhead", ["from_readers", "ns"], rows, 1, TIME)
}

fn lanes(f: &LanesModel) -> Result<(), Refusal> {
    InTable("lanes")
        .range("lanes", f.lanes, (1, MAX_AT_ONCE))?
        .range("latency_ns", f.latency_ns, TIME)?
        .range("ps_per_kib", f.ps_per_kib, PS_PER_KIB)?
        .range("link_ps_per_kib", f.link_ps_per_kib, PS_PER_KIB)?;
    Ok(())
}

fn hdd(f: &HddModel) -> Result<(), Refusal> {
    if !(0.0..=1.0).contains(&f.seek.linear_from) {
        return refuse("hdd.seek.linear_from", "it is not between 0 and 1");
    }
    let (rates, buffer) = (f.bytes_per_s, f.buffer);
    let interface = buffer.interface_bytes_per_s;
    InTable("hdd")
        .range("rpm", f.rpm, (60, 100_000))?
        .range("command_ns", f.command_ns, TIME)?
        .range("queue_depth", f.queue_depth, (1, MAX_AT_ONCE))?
        .range("patience_ns", f.patience_ns, TIME)?
        .range("seek.settle_ns", f.seek.settle_ns, TIME)?
        .range("seek.root_ns", f.seek.root_ns, TIME)?
        .range("seek.full_ns", f.seek.full_ns, TIME)?
        .range("bytes_per_s.inner", rates.inner, RATES)?
        .range("bytes_per_s.outer", rates.outer, (rates.inner, RATES.1))?
        .range("buffer.segments", buffer.segments, (0, MAX_AT_ONCE))?
        .range("buffer.segment_bytes", buffer.segment_bytes, (1, 1 << 40))?
        .range("buffer.hit_ns", buffer.hit_ns, TIME)?
        .range("buffer.interface_bytes_per_s", interface, RATES)?;
    Ok(())
}

fn ssd(f: &SsdModel) -> Result<(), Refusal> {
    InTable("ssd")
        .range("channels", f.channels, (1, MAX_DIES))?
        .range("dies_per_channel", f.dies_per_channel, (1, MAX_DIES))?
        .range("flash_page_bytes", f.page_bytes, (512, 1 << 30))?
        .range("command_ns", f.command_ns, TIME)?
        .range("read_ns", f.read_ns, (1, MAX_NS))?
        .range("channel_bytes_per_s", f.channel_bytes_per_s, RATES)?
        .range("link_bytes_per_s", f.link_bytes_per_s, RATES)?
        .range("queue_depth", f.queue_depth, (1, MAX_AT_ONCE))?;
    let Some(tail) = &f.tail else { return Ok(()) };
    let collisions = tail.collisions_per_million;
    InTable("ssd.tail")
        .range("read_p99_ns", tail.read_p99_ns, (f.read_ns, MAX_NS))?
        .range("collisions_per_million", collisions, (0, 1_000_000))?
        .range("program_ns", tail.program_ns, TIME)?
        .range("erase_ns", tail.erase_ns, TIME)?;
    Ok(())
}

fn net(f: &NetModel) -> Result<(), Refusal> {
    // The tail is relative to the median, which therefore must not be 0.
    let least_ns = u64::from(f.rtt_p99_ns.is_some());
    let p99_ns = f.rtt_p99_ns.unwrap_or(f.rtt_ns);
    let connection = f.connection_bytes_per_s;
    let link = f.link_bytes_per_s;
    InTable("net")
        .range("rtt_ns", f.rtt_ns, (least_ns, MAX_NS))?
        .range("rtt_p99_ns", p99_ns, (f.rtt_ns, MAX_NS))?
        .range("link_bytes_per_s", link, RATES)?
        .range("connection_bytes_per_s", connection, (RATES.0, link))?
        .range("server_connections", f.connections, (1, MAX_AT_ONCE))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::presets::PRESETS;

    fn text_of(name: &str) -> &'static str {
        presets::text(name).expect("a preset")
    }

    /// The error for the model's text with `from` replaced by `to`.
    fn refused(name: &str, from: &str, to: &str) -> String {
        let text = text_of(name);
        assert!(text.contains(from), "{from} is not in\n{text}");
        let error = parse(&text.replacen(from, to, 1), "x.toml")
            .expect_err(to)
            .to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("bad model file: x.toml: "), "{error}");
        error
    }

    #[test]
    fn a_written_file_is_the_same_model() {
        for preset in PRESETS.iter() {
            let file = parse(text_of(preset.name), "x").expect("a valid file");
            let again = parse(&file.to_toml(), "x").expect("a valid file");
            assert_eq!(again, file, "{}", preset.name);
        }
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        let unknown = refused("rbd", "rtt_ns", "rtt_us");
        assert!(
            unknown.contains("rtt_us") && unknown.contains("unknown field"),
            "{unknown}"
        );
        assert!(refused("rbd", "summary", "sumary").contains("sumary"));
        assert!(refused("rbd", "foreread.model/1", "foreread.model/2").contains("schema"));
        assert!(refused("rbd", "rtt_ns = 690000", "rtt_ns = -1").contains("'rtt_ns = -1'"));
        assert!(refused("rbd", "rtt_ns = 690000", "rtt_ns = 1.5").contains("'rtt_ns = 1.5'"));
        assert!(
            refused("rbd", "rtt_ns = 690000", "rtt_ns = 99999999999999999999").contains("rtt_ns")
        );
        assert!(
            refused("rbd", "rtt_ns = 690000", "rtt_ns = 1\nrtt_ns = 1").contains("duplicate key")
        );
        assert!(refused("rbd", "rtt_ns = 690000", "").contains("missing field `rtt_ns`"));
        assert!(refused("rbd", "[net]", "[new]").contains("unknown field `new`"));
        let two = format!(
            "{}\n[array]\nps_per_kib = 1\noverhead = [{{ from_readers = 1, ns = 1 }}]\n",
            text_of("rbd")
        );
        assert!(
            parse(&two, "x")
                .expect_err("two kinds")
                .to_string()
                .contains("exactly one of the tables")
        );
        for text in [
            "",
            "\0",
            "[",
            "schema = 1",
            "=",
            &"[a.".repeat(10_000),
            "\u{feff}x",
            "[[disk]]",
        ] {
            let error = parse(text, "x").expect_err("refused").to_string();
            assert!(error.lines().count() == 1 && error.len() < 500, "{error}");
        }
    }

    #[test]
    fn every_number_has_a_range() {
        let rows = "
            rbd | rtt_ns = 690000 | rtt_ns = 3600000000001 | net.rtt_ns
            rbd | capacity_bytes = 107374182400 | capacity_bytes = 0 | capacity_bytes
            rbd | connection_bytes_per_s = 62500000 | connection_bytes_per_s = 62500001 | connection_bytes_per_s
            rbd | link_bytes_per_s = 62500000 | link_bytes_per_s = 999 | net.link_bytes_per_s
            rbd | commands_at_once = 16 | commands_at_once = 0 | commands_at_once
            object-near | max_fetch_bytes = 8388608 | max_fetch_bytes = 1 | max_fetch_bytes
            rbd | host_ns_per_kib = 0 | host_ns_per_kib = 1000001 | host_ns_per_kib
            nvme | rtt_p99_ns = 95000 | rtt_p99_ns = 59999 | net.rtt_p99_ns
            x25-m | from_bytes = 65536 | from_bytes = 262144 | disk.slopes
            x25-m | from_bytes = 0 | from_bytes = 1 | disk.slopes
            usb-2g | max_transfer_bytes = 122880 | max_transfer_bytes = 511 | disk.max_transfer_bytes
            eva | from_readers = 1 | from_readers = 2 | array.overhead
            ssd-sata | channels = 8 | channels = 0 | ssd.channels
            ssd-sata | queue_depth = 32 | queue_depth = 65537 | ssd.queue_depth
            ssd-sata | collisions_per_million = 1000 | collisions_per_million = 1000001 | collisions_per_million
            hdd-7200 | linear_from = 0.3 | linear_from = nan | hdd.seek.linear_from
            ebs-gp3 | requests_per_s = 3000 | requests_per_s = 0 | throttle.requests_per_s
            ebs-gp3 | request_bytes = 262144 | request_bytes = 511 | throttle.request_bytes
            nfs | burst_requests = 1 | burst_requests = 0 | throttle.burst_requests
            hdd-7200 | rpm = 7200 | rpm = 59 | hdd.rpm
            hdd-7200 | inner = 120000000 | inner = 250000001 | hdd.bytes_per_s.outer
        ";
        for row in rows.trim().lines() {
            let row: Vec<&str> = row.split(" | ").map(str::trim).collect();
            let [name, from, to, key] = row[..] else {
                panic!("{row:?}")
            };
            let error = refused(name, from, to);
            assert!(error.contains(key), "{name} {to}: {error}");
        }
        let long = format!("summary = \"{}\"", "x".repeat(501));
        let line = text_of("rbd")
            .lines()
            .find(|l| l.starts_with("summary"))
            .expect("a line")
            .to_string();
        assert!(refused("rbd", &line, &long).contains("summary"));
        assert!(refused("rbd", &line, "summary = \"a\\u001b[31m\"").contains("summary"));
    }

    #[test]
    fn files_that_are_not_models() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = |path: &Path| {
            find(path.to_str().expect("UTF-8"))
                .expect_err("refused")
                .to_string()
        };
        assert!(error(&dir.path().join("gone.toml")).contains("No such file"));
        let sub = dir.path().join("dir.toml");
        std::fs::create_dir(&sub).expect("a directory");
        assert!(error(&sub).contains("not a regular file"));
        let path = dir.path().join("long.toml");
        // A file of the maximum size is read, but is not a model; with one more byte it is not read.
        std::fs::write(&path, " ".repeat(MAX_FILE_BYTES as usize)).expect("written");
        assert!(error(&path).contains("missing field"));
        std::fs::write(&path, " ".repeat(MAX_FILE_BYTES as usize + 1)).expect("written");
        assert!(error(&path).contains("it has more than"));
        std::fs::write(&path, [0xff, 0xfe]).expect("written");
        assert!(error(&path).contains("UTF-8"));
        std::fs::write(&path, text_of("x25-m")).expect("written");
        let found = find(path.to_str().expect("UTF-8")).expect("a model");
        assert!(std::ptr::eq(
            found,
            find(path.to_str().expect("UTF-8")).expect("read once")
        ));
        assert!(matches!(find("rdb"), Err(FindError::Name(_))));
    }
}
