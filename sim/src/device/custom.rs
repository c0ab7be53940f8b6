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

mod file;

pub(super) use file::leaked;
pub use file::{FitFile, ModelFile};

use super::presets::{self, Preset};
use foreread_core::policy::SpecError;
use foreread_os::failure::Failure;
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
            said(&error),
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

/// Maximum length of a quote from an untrusted file.
const SHOWN: usize = 120;

fn shorten(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        text.to_string()
    } else {
        text.chars().take(SHOWN).collect::<String>() + " ..."
    }
}

/// The system's error text without the error number.
fn said(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
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
            "{}\n[disk]\ncommand_ns = 1\nslopes = [{{ from_bytes = 0, ps_per_kib = 1 }}]\n",
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
