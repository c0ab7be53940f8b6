//! Settings for objects: time limits, retries, request sizes, and the environment variables from which stores take credentials.
//!
//! This module never reads the environment after a source was opened, and never prints the value of a variable.
//!
//! ```text
//!   request ──► first byte ──► piece ──► piece ──► ... ──► end
//!           first_byte     stall     stall                    each restarts with every byte that arrives
//!   └───────────────── total + length at slowest ──────────────┘ with all retries and pauses
//! ```

use crate::source::Defaults;
use crate::sync::lock;
use foreread_core::units::parse_size;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// The environment variable with the settings of sources that are opened by name.
pub const VARIABLE: &str = "FOREREAD_OBJECT";
/// Prefixes of the environment variables that foreread reads for stores: those of the tools of Amazon, Google, Azure and Hugging
/// Face, and of the home folder.
pub const VARIABLES: &[&str] = &[
    "AWS_",
    "GOOGLE_",
    "CLOUDSDK_",
    "GCE_METADATA_",
    "STORAGE_EMULATOR_HOST",
    "AZURE_",
    "IDENTITY_",
    "HF_",
    "HUGGING_FACE_HUB_TOKEN",
    "HOME",
    "XDG_CACHE_HOME",
];
/// The form that the value of [`VARIABLE`] must have.
pub const NOTATION: &str = "first-byte=SECONDS,stall=SECONDS,total=SECONDS,retries=N,requests=N,part=SIZE,\
     profile=NAME,region=NAME,endpoint-url=URL,no-sign-request,requester-pays,ca-file=PATH";

/// The names of all settings.
fn keys() -> Vec<&'static str> {
    let key = |pair: &'static str| pair.split('=').next().unwrap_or_default();
    NOTATION.split(',').map(key).collect()
}

/// The program's settings, in [`NOTATION`].
static PROGRAM: Mutex<String> = Mutex::new(String::new());
/// The program's defaults.
static BELOW: OnceLock<fn() -> Result<String, String>> = OnceLock::new();

/// Sets the settings, in [`NOTATION`], for sources that are opened by name from now on. These settings override [`VARIABLE`], and
/// replace those of an earlier call.
///
/// # Errors
/// Returns one line that states the problem if the text is invalid; the settings then stay unchanged.
///
/// ```
/// use foreread::source::object::configure;
///
/// configure("profile=dev,region=eu-central-1").expect("a notation");
/// let unknown = configure("speed=1").expect_err("no setting");
/// assert!(unknown.starts_with("unknown key `speed`; the keys are first-byte, stall,"), "{unknown}");
/// # configure("").expect("nothing");
/// ```
pub fn configure(text: &str) -> Result<(), String> {
    ObjectSettings::default().with(text)?;
    *lock(&PROGRAM) = text.to_string();
    Ok(())
}

/// Like [`configure`], for settings that [`VARIABLE`] overrides, such as those of a configuration file. `read` is called when a
/// source is opened by name; if it fails, opening the source fails. Only the first call of this function has an effect.
pub fn configure_by(read: fn() -> Result<String, String>) {
    let _ = BELOW.set(read);
}

/// Settings of an [`super::Object`]; each has a default.
#[derive(Clone)]
pub struct ObjectSettings {
    /// Time limit from the request to the first byte of its body. Default 10 s.
    pub first_byte: Duration,
    /// Time limit from one byte to the next. Default 10 s.
    pub stall: Duration,
    /// Time limit for a read with all its retries, in addition to the time that its length takes at `slowest_bytes_per_second`:
    /// a large read that makes progress is healthy. Default 60 s.
    pub total: Duration,
    /// A slower transfer counts as stuck. Default 16 KiB/s.
    pub slowest_bytes_per_second: u64,
    /// Maximum retries for the first request of an object, and for a listing. Each later part of a read gets twice as many, which take 8 to
    /// 16 s with the default pauses: a server may be started again meanwhile. Default 4.
    pub retries: u32,
    /// Pause before the first retry. Each next pause is twice as long, up to 5 s; a random part of up to half of it is skipped.
    /// Default 100 ms.
    pub pause: Duration,
    /// Number of concurrent requests, from 1 to 256. Default: that of [`Defaults::OBJECT`], which allows more short ones.
    pub requests: u32,
    /// Maximum size of a fetch of a reader, which is one request; at least 64 KiB.
    pub part_bytes: u64,
    /// The profile of the AWS tools (`--profile`). Default: that of the variables, or `default`.
    pub profile: Option<String>,
    /// The region of S3 (`--region`). Default: that of the variables or of the profile, or us-east-1.
    pub region: Option<String>,
    /// URL of an S3-compatible server (`--endpoint-url`); other stores have variables. Default: that of the variables, or
    /// Amazon.
    pub endpoint_url: Option<String>,
    /// Requests carry no credentials (`--no-sign-request`). Default false.
    pub no_sign_request: bool,
    /// The reader pays for requests and bytes (`--requester-pays`, S3). Default false.
    pub requester_pays: bool,
    /// PEM file of certificates to trust in addition to the system's (`--ca-file`). Default: that of `AWS_CA_BUNDLE`.
    pub ca_file: Option<PathBuf>,
    /// Names and values of the variables that stores use, such as `AWS_*` ([`VARIABLES`]). Default: those of the environment.
    pub variables: Vec<(String, String)>,
    /// The key among the variables was passed by the caller as the arguments `key` and `secret`; errors then name these
    /// arguments. Default false.
    pub key_is_argument: bool,
}

/// Values are secrets, so this shows none.
impl std::fmt::Debug for ObjectSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectSettings").finish_non_exhaustive()
    }
}

impl Default for ObjectSettings {
    fn default() -> ObjectSettings {
        ObjectSettings {
            first_byte: Duration::from_secs(10),
            stall: Duration::from_secs(10),
            total: Duration::from_secs(60),
            slowest_bytes_per_second: 16 << 10,
            retries: 4,
            pause: Duration::from_millis(100),
            requests: Defaults::OBJECT.requests,
            part_bytes: Defaults::OBJECT.max_fetch_bytes,
            profile: None,
            region: None,
            endpoint_url: None,
            no_sign_request: false,
            requester_pays: false,
            ca_file: None,
            variables: variables(),
            key_is_argument: false,
        }
    }
}

fn variables() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os()
        .filter_map(text)
        .filter(|(name, _)| VARIABLES.iter().any(|start| name.starts_with(start)))
        .collect()
}

impl ObjectSettings {
    /// Returns the defaults, overridden first by the program's defaults ([`configure_by`]), then by [`VARIABLE`], then by the
    /// program's settings ([`configure`]).
    ///
    /// # Errors
    /// Returns one line with the invalid value.
    pub fn from_environment() -> Result<ObjectSettings, String> {
        let below = BELOW.get().map_or(Ok(String::new()), |read| read())?;
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let of_program = lock(&PROGRAM);
        let settings = ObjectSettings::default().with(&below)?;
        settings.with(&text)?.with(&of_program)
    }

    /// Returns these settings, overridden by a text of the form [`NOTATION`].
    ///
    /// # Errors
    /// Returns one line that states the problem.
    pub fn with(mut self, text: &str) -> Result<ObjectSettings, String> {
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = match (pair, pair.split_once('=')) {
                (_, Some(pair)) => pair,
                ("no-sign-request" | "requester-pays", None) => (pair, "true"),
                (_, None) => return Err(format!("`{pair}` has no value")),
            };
            let text = || {
                let text = Some(value.to_string()).filter(|text| !text.is_empty());
                text.map(Some).ok_or_else(|| format!("{key} is empty"))
            };
            let flag = || {
                let flag = value.parse();
                flag.map_err(|_| format!("{key} must be true or false, not `{value}`"))
            };
            let size = || {
                let number = parse_size(value).ok();
                let number = number.filter(|n| (64 << 10..=1 << 30).contains(n));
                number.ok_or_else(|| format!("{key} must be a size from 64K to 1G, not `{value}`"))
            };
            let number = |least: u64, most: u64| {
                let number = value.parse().ok().filter(|n| (least..=most).contains(n));
                number.ok_or_else(|| {
                    format!("{key} must be a whole number from {least} to {most}, not `{value}`")
                })
            };
            match key {
                "first-byte" => self.first_byte = Duration::from_secs(number(1, 86_400)?),
                "stall" => self.stall = Duration::from_secs(number(1, 86_400)?),
                "total" => self.total = Duration::from_secs(number(1, 86_400)?),
                "retries" => self.retries = number(0, 100)? as u32,
                "requests" => self.requests = number(1, 256)? as u32,
                "part" => self.part_bytes = size()?,
                "profile" => self.profile = text()?,
                "region" => self.region = text()?,
                "endpoint-url" => self.endpoint_url = text()?,
                "ca-file" => self.ca_file = text()?.map(|path| self.expand(&path)),
                "no-sign-request" => self.no_sign_request = flag()?,
                "requester-pays" => self.requester_pays = flag()?,
                _ => {
                    return Err(format!(
                        "unknown key `{key}`; the keys are {}",
                        keys().join(", ")
                    ));
                }
            }
        }
        Ok(self)
    }

    /// Returns the defaults for reading objects with these settings; the maximum size of a fetch is the size of one part (`part_bytes`).
    pub fn defaults(&self) -> Defaults {
        let is_set = self.requests != Defaults::OBJECT.requests;
        let defaults = if is_set {
            Defaults::OBJECT.with_requests(self.requests)
        } else {
            Defaults::OBJECT
        };
        Defaults {
            max_fetch_bytes: self.part_bytes,
            ..defaults
        }
    }

    /// Returns the total time limit for a read of `bytes` bytes.
    pub fn total_for(&self, bytes: u64) -> Duration {
        self.total
            + Duration::from_millis(
                bytes.saturating_mul(1000) / self.slowest_bytes_per_second.max(1),
            )
    }

    /// Returns the value of an environment variable, unless it is empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self
            .variables
            .iter()
            .find(|(own, value)| own == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the user's home folder, if an environment variable names it.
    pub fn home(&self) -> Option<PathBuf> {
        self.variable("HOME").map(PathBuf::from)
    }

    /// Expands a path that may begin with `~/`.
    pub fn expand(&self, path: &str) -> PathBuf {
        let below = path.strip_prefix("~/").zip(self.home());
        below.map_or_else(|| PathBuf::from(path), |(rest, home)| home.join(rest))
    }

    /// Returns the certificate file that S3 clients trust in addition to the system's certificates.
    pub fn ca_bundle(&self) -> Option<PathBuf> {
        let named = self.variable("AWS_CA_BUNDLE");
        let named = named.map(|path| self.expand(path));
        self.ca_file.clone().or(named)
    }

    /// Returns true if an environment variable has a value that means yes, such as `1` or `true`.
    pub fn is_on(&self, name: &str) -> bool {
        self.variable(name).is_some_and(is_yes)
    }
}

/// Returns true if a value means yes, such as `1` or `true`.
pub fn is_yes(value: &str) -> bool {
    let yes = ["1", "true", "on", "yes", "y"];
    yes.iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Settings with these environment variables alone.
    pub fn of_variables(variables: &[(&str, &str)]) -> ObjectSettings {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        ObjectSettings {
            variables: variables.iter().map(own).collect(),
            ..ObjectSettings::default()
        }
    }

    #[test]
    fn a_text_sets_only_named_values() {
        let plain = ObjectSettings::default();
        let set = ObjectSettings::default()
            .with("first-byte=1,stall=2,total=3,retries=0,requests=256,part=65536")
            .expect("so");
        let seconds = [set.first_byte, set.stall, set.total].map(|d| d.as_secs());
        assert_eq!(
            (seconds, set.retries, set.requests, set.part_bytes),
            ([1, 2, 3], 0, 256, 65536)
        );
        let part = ObjectSettings::default().with("part=16M").expect("so");
        assert_eq!(part.part_bytes, 16 << 20);
        let one = ObjectSettings::default().with("stall=5").expect("so");
        assert_eq!(
            (one.first_byte, one.stall.as_secs(), one.retries),
            (plain.first_byte, 5, plain.retries)
        );
        for row in REFUSED.lines() {
            let (text, why) = row.trim_start().split_once(" = ").expect(row);
            assert_eq!(ObjectSettings::default().with(text).expect_err(text), why);
        }
    }

    const REFUSED: &str = "\
        stall = `stall` has no value
        stall=0 = stall must be a whole number from 1 to 86400, not `0`
        requests=257 = requests must be a whole number from 1 to 256, not `257`
        part=65535 = part must be a size from 64K to 1G, not `65535`
        part=16X = part must be a size from 64K to 1G, not `16X`
        profile= = profile is empty
        no-sign-request=1 = no-sign-request must be true or false, not `1`
        speed=1 = unknown key `speed`; the keys are first-byte, stall, total, retries, requests, part, profile, region, \
            endpoint-url, no-sign-request, requester-pays, ca-file";

    #[test]
    fn a_text_names_the_account_and_the_server() {
        let text = "profile=dev,region=eu-1,endpoint-url=https://h/?,no-sign-request,requester-pays=true,ca-file=/c.pem";
        let set = ObjectSettings::default().with(text).expect("so");
        assert_eq!(
            (set.profile.as_deref(), set.region.as_deref()),
            (Some("dev"), Some("eu-1"))
        );
        assert_eq!(set.endpoint_url.as_deref(), Some("https://h/?"));
        assert_eq!((set.no_sign_request, set.requester_pays), (true, true));
        assert_eq!(set.ca_bundle(), Some("/c.pem".into()));
    }

    #[test]
    fn the_total_grows_with_the_length_and_never_overflows() {
        let settings = ObjectSettings::default();
        assert_eq!(settings.total_for(0), Duration::from_secs(60));
        assert_eq!(settings.total_for(1 << 20), Duration::from_secs(60 + 64));
        assert!(settings.total_for(u64::MAX) > Duration::from_secs(1 << 20));
    }
}
