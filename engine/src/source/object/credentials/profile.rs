//! Profiles of the AWS tools: `~/.aws/config` and `~/.aws/credentials`.
//!
//! ```text
//!   config       [default]  [profile dev]  [sso-session corp]     key = value, indented lines belong to the line above
//!   credentials  [default]  [dev]                                 wins where both have a key
//! ```
//! Example: `[profile dev]` in config has a region, and `[dev]` in credentials has keys: the profile dev has both.
//! Source: AWS SDKs and Tools reference guide, shared config and credentials files.

use super::web;
use crate::source::object::refusal::Unfit;
use crate::source::object::settings::ObjectSettings;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The keys and values of one section.
pub type Section = BTreeMap<String, String>;

/// All profiles.
#[derive(Debug, Default)]
pub struct Profiles {
    profiles: BTreeMap<String, Section>,
    sso_sessions: BTreeMap<String, Section>,
}

/// The name of the profile in use, and whether it was asked for.
pub fn name_of(settings: &ObjectSettings) -> (&str, bool) {
    let asked = settings.profile.as_deref();
    let asked = asked
        .or(settings.variable("AWS_PROFILE"))
        .or(settings.variable("AWS_DEFAULT_PROFILE"));
    (asked.unwrap_or("default"), asked.is_some())
}

impl Profiles {
    /// Those of both files; a file that is not there has none.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn read(settings: &ObjectSettings) -> Result<Profiles, Unfit> {
        let mut all = Profiles::default();
        let config = file(settings, "AWS_CONFIG_FILE", "config")?;
        for (section, keys) in sections(&config) {
            let (kind, name) = section
                .split_once(char::is_whitespace)
                .unwrap_or(("", &section));
            let name = name.trim().trim_matches(['"', '\'']).to_string();
            match kind {
                "profile" => all.profiles.entry(name).or_default().extend(keys),
                "" if name == "default" => all.profiles.entry(name).or_default().extend(keys),
                "sso-session" => all.sso_sessions.entry(name).or_default().extend(keys),
                _ => {}
            }
        }
        let credentials = file(settings, "AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        for (section, keys) in sections(&credentials) {
            all.profiles.entry(section).or_default().extend(keys);
        }
        Ok(all)
    }

    /// The profile of that name.
    pub fn get(&self, name: &str) -> Option<&Section> {
        self.profiles.get(name)
    }

    pub fn sso_session(&self, name: &str) -> Option<&Section> {
        self.sso_sessions.get(name)
    }

    /// The names of all, for a message.
    pub fn is_empty(&self) -> bool {
        self.profiles.is_empty()
    }

    pub fn names(&self) -> String {
        let names: Vec<&str> = self.profiles.keys().take(10).map(String::as_str).collect();
        if names.is_empty() {
            "none".to_string()
        } else {
            names.join(", ")
        }
    }
}

fn file(settings: &ObjectSettings, variable: &str, name: &str) -> Result<String, Unfit> {
    let named = settings
        .variable(variable)
        .map(|path| settings.expand(path));
    let path = named.or_else(|| Some(settings.home()?.join(".aws").join(name)));
    let Some(path) = path.filter(|path: &PathBuf| path.exists()) else {
        return Ok(String::new());
    };
    web::read_file(
        "the profiles in",
        &path,
        "check the file; public objects need none of it (--no-sign-request)",
    )
}

/// Sections with their keys. A key may come again, and the last counts.
fn sections(text: &str) -> Vec<(String, Section)> {
    let mut all: Vec<(String, Section)> = Vec::new();
    for line in text.lines() {
        // What is indented belongs to the key above: settings of one service.
        if line.starts_with([' ', '\t', '#', ';']) || line.trim().is_empty() {
            continue;
        }
        if let Some(name) = line.trim().strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default();
            all.push((name.trim().to_string(), Section::new()));
        } else if let (Some((key, value)), Some((_, keys))) = (line.split_once('='), all.last_mut())
        {
            // A comment begins behind a blank.
            let value = value.split(" #").next().unwrap_or_default();
            let value = value.split(" ;").next().unwrap_or_default();
            keys.insert(key.trim().to_ascii_lowercase(), value.trim().to_string());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_make_a_profile() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path(".aws")).expect("made");
        let config = "[default]\nregion = eu-1 # near\n\n[profile dev]\nregion=us-2\ns3 =\n  max = 3\n\
                      role_arn = arn:x\n[sso-session corp]\nsso_region = eu-3\n[services x]\ny = z\n[plain]\na=b\n";
        std::fs::write(path(".aws/config"), config).expect("written");
        let credentials = "; keys\n[dev]\naws_access_key_id = A\nREGION = eu-9\n";
        std::fs::write(path(".aws/credentials"), credentials).expect("written");
        let home = ("HOME".to_string(), folder.path().display().to_string());
        let settings = ObjectSettings {
            variables: vec![home],
            ..ObjectSettings::default()
        };
        let all = Profiles::read(&settings).expect("read");
        let key = |profile: &str, key: &str| all.get(profile)?.get(key).cloned();
        assert_eq!(key("default", "region").as_deref(), Some("eu-1"));
        assert_eq!(key("dev", "region").as_deref(), Some("eu-9"));
        assert_eq!(key("dev", "aws_access_key_id").as_deref(), Some("A"));
        assert_eq!((key("dev", "max"), key("x", "y")), (None, None));
        let session = all
            .sso_session("corp")
            .and_then(|keys| keys.get("sso_region"));
        assert_eq!(session.map(String::as_str), Some("eu-3"));
        assert_eq!(
            (all.names().as_str(), all.get("plain")),
            ("default, dev", None)
        );
        assert_eq!(name_of(&settings), ("default", false));
    }
}
