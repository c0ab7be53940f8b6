//! Reads the settings of this machine and this user: the policy, object stores, the disk cache.
//!
//! ```text
//!   command line ──► FOREREAD_POLICY ──► $XDG_CONFIG_HOME/foreread/config.toml ──► /etc/foreread.toml ──► default
//!                    (policy only)       ($HOME/.config if it is not set)
//! ```
//! If several of the places above set a key, the leftmost of them wins. A missing file is no error; if a file cannot be read or parsed, the
//! error names the file and the line. Example with all keys (docs/policies.md explains them):
//!
//! ```text
//!   policy = "linux-6.18"        # without --policy; default auto
//!   stores = "profile=dev"       # settings of object stores, as in FOREREAD_OBJECT
//!   disk-cache = "/var/cache/foreread,size=50G"    # as --disk-cache of serve and mount
//! ```

use crate::fail::Fail;
use foreread::OpenError;
#[cfg(feature = "object")]
use foreread::source::disk_cache::{self, DiskCache};
#[cfg(feature = "object")]
use foreread::source::object::{self, ObjectSettings};
#[cfg(feature = "object")]
use foreread::source::{Defaults, SourceOpenError};
use foreread_core::policy::{PolicyDraft, SpecError};
#[cfg(feature = "lab")]
use foreread_lab::compare::Site;
use foreread_os::failure::Failure;
use foreread_os::open::read_small_text;
use foreread_report::names;
use serde::Deserialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The environment variable that sets the policy.
const VARIABLE: &str = "FOREREAD_POLICY";
/// The file for all users.
const SYSTEM: &str = "/etc/foreread.toml";
/// The file of a user, below the user's configuration folder.
const OF_USER: &str = "foreread/config.toml";
/// The policy that is used if no policy is set.
pub const POLICY: &str = foreread_core::policy::DEFAULT;
/// Maximum size of a settings file; a longer file is refused.
const MAX_BYTES: u64 = 64 << 10;

/// The settings of this machine and this user, each with its origin.
#[derive(Debug, Default)]
pub struct Config {
    policy: Option<Set<String>>,
    #[cfg_attr(
        not(feature = "object"),
        allow(dead_code, reason = "only objects use it")
    )]
    stores: Option<Set<String>>,
    #[cfg_attr(
        not(feature = "object"),
        allow(dead_code, reason = "only objects are cached on disk")
    )]
    disk_cache: Option<Set<String>>,
}

/// A setting and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set<T> {
    pub value: T,
    /// `--policy`, `FOREREAD_POLICY`, `/etc/foreread.toml line 2` or `default`.
    pub from: String,
}

impl<T> Set<T> {
    fn new(value: T, from: impl Into<String>) -> Set<T> {
        let from = from.into();
        Set { value, from }
    }
}

/// The TOML form of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policy: Option<Spanned<String>>,
    stores: Option<Spanned<String>>,
    #[serde(rename = "disk-cache")]
    disk_cache: Option<Spanned<String>>,
}

/// Reads the settings for this process.
pub fn load() -> Result<Config, Fail> {
    Config::read(&|name| std::env::var_os(name), Path::new(SYSTEM))
}

/// Reads the settings of object stores. The settings of object stores are read only when a store is opened, because other commands do not
/// need them.
#[cfg(feature = "object")]
pub fn stores() -> Result<String, String> {
    let config = load().map_err(|fail| fail.line())?;
    Ok(config.stores.map(|set| set.value).unwrap_or_default())
}

impl Config {
    fn read(var: &dyn Fn(&str) -> Option<OsString>, system: &Path) -> Result<Config, Fail> {
        let mut config = Config::default();
        if let Some(text) = var(VARIABLE).filter(|text| !text.is_empty()) {
            let text = text.to_string_lossy().into_owned();
            config.policy = Some(policy(text, VARIABLE.to_string())?);
        }
        #[cfg(feature = "object")]
        // An empty value switches off the disk cache of the settings files.
        if let Some(text) = var(disk_cache::VARIABLE) {
            config.disk_cache = Some(Set::new(
                text.to_string_lossy().into_owned(),
                disk_cache::VARIABLE,
            ));
        }
        for path in user_file(var).into_iter().chain([system.to_path_buf()]) {
            if let Some(text) = contents(&path)? {
                config.under(&Text {
                    path: &path,
                    text: &text,
                })?;
            }
        }
        Ok(config)
    }

    /// Adds the settings of a file that no earlier layer has set.
    fn under(&mut self, file: &Text<'_>) -> Result<(), Fail> {
        let File {
            policy: name,
            stores,
            disk_cache,
        } = file.parse()?;
        #[cfg(feature = "object")]
        if let Some(text) = &stores {
            let settings = ObjectSettings::default().with(text.get_ref());
            settings.map_err(|why| file.refused(text, &format!("is refused: {why}"), "stores"))?;
        }
        let set = |text: Spanned<String>| {
            let from = file.line(&text);
            Set::new(text.into_inner(), from)
        };
        self.stores = self.stores.take().or(stores.map(set));
        self.disk_cache = self.disk_cache.take().or(disk_cache.map(set));
        if let Some(name) = name {
            let set = policy(name.get_ref().clone(), file.line(&name))?;
            self.policy.get_or_insert(set);
        }
        Ok(())
    }

    /// Returns the policy given on the command line or, if none is given, the policy from the settings.
    pub fn policy(&self, asked: Option<&str>) -> Set<String> {
        match (asked, &self.policy) {
            (Some(text), _) => Set::new(text.to_string(), "--policy"),
            (None, Some(set)) => set.clone(),
            (None, None) => Set::new(POLICY.to_string(), "default"),
        }
    }

    /// Returns the disk cache given on the command line or, if none is given, the disk cache from the settings. If the option or setting is
    /// empty, there is no disk cache.
    #[cfg(feature = "object")]
    #[cfg_attr(
        not(any(feature = "mount", feature = "serve")),
        allow(dead_code, reason = "servers alone take it")
    )]
    pub fn disk_cache(&self, asked: Option<&str>) -> Result<Option<DiskCache>, Fail> {
        self.opened(asked, DiskCache::named)
    }

    /// Like [`Config::disk_cache`], but for a server, which starts without a disk cache if the cache cannot be used at the start.
    #[cfg(feature = "object")]
    pub fn server_cache(&self, asked: Option<&str>) -> Result<Option<DiskCache>, Fail> {
        self.opened(asked, DiskCache::if_usable)
    }

    #[cfg(feature = "object")]
    fn opened(
        &self,
        asked: Option<&str>,
        open: fn(&str) -> Result<Option<DiskCache>, SourceOpenError>,
    ) -> Result<Option<DiskCache>, Fail> {
        let asked = asked.map(|text| Set::new(text.to_string(), "--disk-cache"));
        let set = asked.or_else(|| self.disk_cache.clone());
        let Some(set) = set.filter(|set| !set.value.is_empty()) else {
            return Ok(None);
        };
        open(&set.value).map_err(|error| {
            Failure::from(OpenError::Source(error))
                .within(&set.from)
                .into()
        })
    }

    /// Returns the settings for a comparison, which uses the policies of the command line or, if there are none, the usual policies and the
    /// policy from the settings.
    #[cfg(feature = "lab")]
    pub fn site(&self, names_policies: bool) -> Site {
        let set = self.policy.as_ref().filter(|_| !names_policies);
        let policy = set.and_then(|set| draft(&set.value).ok());
        let notes = set.map(|set| {
            format!(
                "{} is the policy set for this machine ({})",
                set.value, set.from
            )
        });
        Site {
            policy,
            notes: notes.into_iter().collect(),
        }
    }
}

/// What a server takes from the settings.
#[cfg_attr(
    not(any(feature = "mount", feature = "serve")),
    allow(dead_code, reason = "only servers call these functions")
)]
impl Config {
    /// Returns the policy that a server runs, with `--max-overfetch` applied.
    pub fn serving(
        &self,
        asked: Option<&str>,
        max_overfetch: Option<&str>,
    ) -> Result<Set<String>, Fail> {
        let set = self.policy(asked);
        serves(&set)?;
        let Some(ratio) = max_overfetch else {
            return Ok(set);
        };
        let draft = self::draft(&set.value);
        let bounded = draft.and_then(|draft| draft.with_setting("max-overfetch", ratio));
        let value = bounded
            .map_err(|error| names::refused("policy", &error, "foreread list policies"))?
            .to_string();
        if value == set.value {
            return Err(Fail::input(
                "cannot bound",
                format!(
                    "--max-overfetch {ratio} with the policy {value} ({})",
                    set.from
                ),
                "--max-overfetch works only with auto, and not with max-overfetch in the policy; remove one of them",
            ));
        }
        Ok(Set::new(value, format!("{}, --max-overfetch", set.from)))
    }

    /// Returns where the number of concurrent requests comes from, for the line that a server prints: `FOREREAD_OBJECT`, or
    /// `default for kind file`.
    pub fn requests_origin(&self, kind: &str) -> String {
        #[cfg(feature = "object")]
        if kind == Defaults::OBJECT.kind {
            let variable = std::env::var(object::VARIABLE).unwrap_or_default();
            let file = self.stores.as_ref();
            let file = file.map(|set| (set.value.as_str(), set.from.as_str()));
            let sets = |(text, _): &(&str, &str)| {
                text.split(',').any(|pair| pair.starts_with("requests="))
            };
            let variable = [(variable.as_str(), object::VARIABLE)].into_iter();
            if let Some((_, from)) = variable.chain(file).find(sets) {
                return from.to_string();
            }
        }
        format!("default for kind {kind}")
    }
}

/// A policy of this build. Simulation-only policies may be set too, for `compare` and `explain`.
#[cfg(feature = "lab")]
fn draft(text: &str) -> Result<PolicyDraft, SpecError> {
    foreread_history::parse(text)
}
#[cfg(not(feature = "lab"))]
fn draft(text: &str) -> Result<PolicyDraft, SpecError> {
    PolicyDraft::parse(text)
}

/// Parses the name of an existing policy. `serve` and `mount` check whether it can serve reads.
fn policy(text: String, from: String) -> Result<Set<String>, Fail> {
    match draft(&text) {
        Ok(_) => Ok(Set { value: text, from }),
        Err(error) => Err(names::refused("policy", &error, "foreread list policies")
            .within(&from)
            .into()),
    }
}

/// Refuses a simulation-only policy. The engine does so too, but without the origin of the setting.
fn serves(set: &Set<String>) -> Result<(), Fail> {
    match PolicyDraft::parse(&set.value) {
        Err(error @ SpecError::UnknownName { .. }) => {
            let refused = Failure::from(OpenError::Policy(error));
            Err(match set.from.as_str() {
                "--policy" => refused,
                place => refused.within(place),
            }
            .into())
        }
        _ => Ok(()),
    }
}

/// The configuration file of a user. A relative $XDG_CONFIG_HOME is ignored (XDG Base Directory Specification).
fn user_file(var: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| {
        var(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder =
        absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    folder.map(|folder| folder.join(OF_USER))
}

/// The contents of a file; `None` if it does not exist, or if it is a link to `/dev/null`, a common way to disable a
/// configuration.
fn contents(path: &Path) -> Result<Option<String>, Fail> {
    if path
        .canonicalize()
        .is_ok_and(|whole| whole == Path::new("/dev/null"))
    {
        return Ok(None);
    }
    let refused = |error: std::io::Error| {
        Fail::input(
            "cannot read the configuration",
            format!("{} ({error})", path.display()),
            "fix or remove it",
        )
    };
    match read_small_text(path, MAX_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error)
            if [
                std::io::ErrorKind::NotFound,
                std::io::ErrorKind::NotADirectory,
            ]
            .contains(&error.kind()) =>
        {
            Ok(None)
        }
        Err(error) => Err(refused(error)),
    }
}

/// A file's text, for messages with line numbers.
struct Text<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Text<'_> {
    fn parse(&self) -> Result<File, Fail> {
        toml::from_str(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let what = error.message().replace('\n', " ");
            Fail::input(
                "bad configuration",
                format!("{}: {what}", self.line_at(at)),
                "docs/policies.md has the keys",
            )
        })
    }

    fn line_at(&self, byte: usize) -> String {
        let before = self.text.get(..byte).unwrap_or(self.text);
        format!(
            "{} line {}",
            self.path.display(),
            before.matches('\n').count() + 1
        )
    }

    fn line(&self, value: &Spanned<String>) -> String {
        self.line_at(value.span().start)
    }

    #[cfg(feature = "object")]
    fn refused(&self, value: &Spanned<String>, why: &str, key: &str) -> Fail {
        let place = format!("{}: {key} = '{}' {why}", self.line(value), value.get_ref());
        Fail::input("bad configuration", place, "docs/policies.md has the keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fail::input_line;

    /// The settings that result from a user's file, a system's file and the variable.
    fn config(
        user: Option<&str>,
        system: Option<&str>,
        variable: Option<&str>,
    ) -> Result<Config, Fail> {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join(OF_USER);
        std::fs::create_dir_all(place.parent().expect("a folder")).expect("made");
        let of_system = folder.path().join("system.toml");
        for (path, text) in [(&place, user), (&of_system, system)] {
            text.into_iter()
                .for_each(|text| std::fs::write(path, text).expect("written"));
        }
        let var = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some(folder.path().into()),
            VARIABLE => variable.map(OsString::from),
            _ => None,
        };
        Config::read(&var, &of_system)
    }

    fn ends(set: &Set<String>) -> (&str, &str) {
        (&set.value, set.from.rsplit('/').next().unwrap_or_default())
    }

    #[test]
    fn the_first_layer_with_a_value_wins() {
        let (user, system) = (
            "# mine\npolicy = \"rbd-plain\"\n",
            "policy = \"linux-3.12\"\n",
        );
        let all = config(Some(user), Some(system), Some("none")).expect("valid");
        assert_eq!(
            ends(&all.policy(Some("linux-2.6.31"))),
            ("linux-2.6.31", "--policy")
        );
        assert_eq!(ends(&all.policy(None)), ("none", "FOREREAD_POLICY"));
        let files = config(Some(user), Some(system), Some("")).expect("valid");
        assert_eq!(
            ends(&files.policy(None)),
            ("rbd-plain", "config.toml line 2")
        );
        let system = config(None, Some(system), None).expect("valid");
        assert_eq!(
            ends(&system.policy(None)),
            ("linux-3.12", "system.toml line 1")
        );
        let nothing = config(None, None, None).expect("valid");
        assert_eq!(ends(&nothing.policy(None)), (POLICY, "default"));
        assert!(nothing.site(false).notes.is_empty());
    }

    #[test]
    fn each_key_is_taken_from_the_first_file_that_has_it() {
        let user = "stores = \"requests=7\"\n";
        let system = "policy = \"none\"\nstores = \"requests=8\"\n";
        let config = config(Some(user), Some(system), None).expect("valid");
        assert_eq!(ends(&config.policy(None)), ("none", "system.toml line 1"));
        let stores = config.stores.as_ref().expect("they are set");
        assert_eq!(ends(stores), ("requests=7", "config.toml line 1"));
        assert_eq!(config.site(false).notes.len(), 1);
    }

    #[cfg(feature = "object")]
    #[test]
    fn an_empty_variable_switches_the_disk_cache_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let system = folder.path().join("system.toml");
        std::fs::write(&system, "disk-cache = \"/c\"\n").expect("written");
        for (value, held) in [(None, "/c"), (Some(""), ""), (Some("/d"), "/d")] {
            let var = |name: &str| {
                let value = value.filter(|_| name == disk_cache::VARIABLE);
                value.map(OsString::from)
            };
            let config = Config::read(&var, &system).expect("valid");
            let set = config.disk_cache.as_ref().map(|set| set.value.as_str());
            assert_eq!(set, Some(held));
        }
    }

    #[test]
    fn errors_have_their_line() {
        for (text, line, part) in [
            ("\npolicy = \"linux-6\"\n", 2, "nearest: linux-6.18"),
            (
                "policy = \"none\"\n\nmax = \"1M\"\n",
                3,
                "unknown field `max`",
            ),
            ("policy = 128\n", 1, "invalid type"),
            ("policy = \n", 1, ""),
        ] {
            let error = input_line(config(None, Some(text), None));
            let place = format!("system.toml line {line}: ");
            assert!(
                error.contains(&place) && error.contains(part),
                "{text}: {error}"
            );
        }
        let error = input_line(config(None, None, Some("linux-6:max=1")));
        assert!(
            error.starts_with("FOREREAD_POLICY: unknown policy"),
            "{error}"
        );
    }

    #[test]
    fn the_folder_of_a_user_is_absolute() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            user_file(&|name| match name {
                "XDG_CONFIG_HOME" => xdg.map(OsString::from),
                _ => home.map(OsString::from),
            })
        };
        assert_eq!(
            of(Some("/x"), Some("/h")),
            Some("/x/foreread/config.toml".into())
        );
        assert_eq!(
            of(Some("x"), Some("/h")),
            Some("/h/.config/foreread/config.toml".into())
        );
        assert_eq!((of(None, Some("")), of(None, None)), (None, None));
    }

    #[test]
    fn a_bound_on_waste_is_of_auto_alone() {
        let config = config(None, None, None).expect("valid");
        let set = config.serving(None, Some("1.1")).expect("auto takes it");
        assert_eq!(
            (set.value.as_str(), set.from.as_str()),
            ("auto:max-overfetch=1.1", "default, --max-overfetch")
        );
        for (policy, ratio, why) in [
            (Some("linux-6.18"), "1.1", "only with auto"),
            (Some("auto:max-overfetch=2"), "1.1", "only with auto"),
            (None, "0.5", "is not between 1 and 100"),
        ] {
            let refused = input_line(config.serving(policy, Some(ratio)));
            assert!(refused.contains(why), "{policy:?} {ratio}: {refused}");
        }
    }
}
