//! Profiles of the AWS tools: `~/.aws/config` and `~/.aws/credentials`, read as the AWS CLI (botocore) reads them.
//!
//! ```text
//!   config       [default]  [profile dev]  [sso-session corp]  [services local]     key = value, key: value
//!   credentials  [default]  [dev]                                                   wins if both have a key
//!   s3 =                            a line indented deeper than its key is part of the value;
//!     endpoint_url = http://h       if the value is empty, each is a separate key: s3.endpoint_url
//! ```
//! Example: if `[profile dev]` in `config` has a region and `[dev]` in `credentials` has an access key, the profile `dev` has both.
//! Source: AWS SDKs and Tools reference guide, shared config and credentials files; Python's configparser, which botocore uses.

use super::web;
use crate::source::object::refusal::Unfit;
use crate::source::object::settings::{ObjectSettings, is_yes};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The keys and values of one section of a configuration file.
pub type Section = BTreeMap<String, String>;

/// All profiles.
#[derive(Debug, Default)]
pub struct Profiles {
    pub profiles: BTreeMap<String, Section>,
    pub sso_sessions: BTreeMap<String, Section>,
    services: BTreeMap<String, Section>,
}

/// The keys of the profile in use, and the `services` section that it refers to.
#[derive(Debug, Default)]
pub struct ProfileInUse {
    keys: Section,
    services: Section,
}

/// Returns the name of the profile in use, and whether an option or a variable selects it.
pub fn name_of(settings: &ObjectSettings) -> (&str, bool) {
    let asked = settings.profile.as_deref();
    let asked = asked
        .or(settings.variable("AWS_PROFILE"))
        .or(settings.variable("AWS_DEFAULT_PROFILE"));
    (asked.unwrap_or("default"), asked.is_some())
}

impl Profiles {
    /// Reads the profiles of both files. A file that does not exist is treated as empty.
    pub fn read(settings: &ObjectSettings) -> Result<Profiles, Unfit> {
        let mut all = Profiles::default();
        let config = file(settings, "AWS_CONFIG_FILE", "config")?;
        for (section, keys) in sections(&config) {
            let (kind, name) = section
                .split_once(char::is_whitespace)
                .unwrap_or(("", &section));
            let name = name.trim().trim_matches(['"', '\'']).to_string();
            let sections = match kind {
                "profile" => &mut all.profiles,
                "" if name == "default" => &mut all.profiles,
                "sso-session" => &mut all.sso_sessions,
                "services" => &mut all.services,
                _ => continue,
            };
            sections.entry(name).or_default().extend(keys);
        }
        let credentials = file(settings, "AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        for (section, keys) in sections(&credentials) {
            all.profiles.entry(section).or_default().extend(keys);
        }
        Ok(all)
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

impl ProfileInUse {
    /// Reads the profile that is in use; the result is empty if the files cannot be read.
    pub fn of(settings: &ObjectSettings) -> ProfileInUse {
        let mut all = Profiles::read(settings).unwrap_or_default();
        let keys = all.profiles.remove(name_of(settings).0).unwrap_or_default();
        let services = keys.get("services");
        let services = services.and_then(|name| all.services.remove(name));
        ProfileInUse {
            services: services.unwrap_or_default(),
            keys,
        }
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let value = self.keys.get(key).filter(|value| !value.is_empty());
        value.map(String::as_str)
    }

    /// Returns true if a setting is on: the environment variable decides, or the profile if the variable is not set.
    pub fn is_on(&self, settings: &ObjectSettings, variable: &str, key: &str) -> bool {
        let value = settings.variable(variable).or(self.get(key));
        value.is_some_and(is_yes)
    }

    /// Returns the configured endpoint of a service (`S3`, `STS`, `SSO` or `SSO_OIDC`). An endpoint that is configured for all
    /// services is used only for S3: the other services receive tokens, which must not be sent to it.
    pub fn endpoint(&self, settings: &ObjectSettings, service: &str) -> Option<String> {
        let ignored = (
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
            "ignore_configured_endpoint_urls",
        );
        if self.is_on(settings, ignored.0, ignored.1) {
            return None;
        }
        let is_s3 = service == "S3";
        let variable = settings.variable(&format!("AWS_ENDPOINT_URL_{service}"));
        let of_all = || settings.variable("AWS_ENDPOINT_URL").filter(|_| is_s3);
        let key = format!("{}.endpoint_url", service.to_ascii_lowercase());
        let of_service = || self.services.get(&key).map(String::as_str);
        let of_profile = || self.get("endpoint_url").filter(|_| is_s3);
        let endpoint = variable.or_else(of_all).or_else(of_service);
        endpoint.or_else(of_profile).map(str::to_string)
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
        "check the file; public objects need no credentials (--no-sign-request)",
    )
}

/// Sections with their keys. If a key is repeated, the last one counts.
fn sections(text: &str) -> Vec<(String, Section)> {
    let mut all: Vec<(String, Section)> = Vec::new();
    let (mut key, mut indent) = (None::<String>, 0);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let plain = line.trim();
        if plain.is_empty() || plain.starts_with(['#', ';']) {
            continue;
        }
        let own_indent = line.len() - line.trim_start().len();
        if let (Some(key), Some((_, keys))) = (&key, all.last_mut())
            && own_indent > indent
        {
            go_on(keys, key, plain);
            continue;
        }
        indent = own_indent;
        let header = plain
            .strip_prefix('[')
            .and_then(|name| name.rsplit_once(']'));
        if let Some((name, _)) = header {
            all.push((name.trim().to_string(), Section::new()));
            key = None;
        } else if let (Some(at), Some((_, keys))) = (plain.find(['=', ':']), all.last_mut()) {
            let name = plain[..at].trim().to_ascii_lowercase();
            keys.insert(name.clone(), value(&name, &plain[at + 1..]));
            key = Some(name);
        }
    }
    all
}

/// Adds a line to the value of `key`.
fn go_on(keys: &mut Section, key: &str, line: &str) {
    match keys.get_mut(key).filter(|value| !value.is_empty()) {
        Some(value) => {
            value.push('\n');
            value.push_str(line);
        }
        None => {
            if let Some((nested, text)) = line.split_once('=') {
                let nested = format!("{key}.{}", nested.trim());
                keys.insert(nested, value(key, text));
            }
        }
    }
}

/// A comment begins after a blank; in a command, these characters are kept.
fn value(key: &str, text: &str) -> String {
    let ends = [" #", " ;"].into_iter().filter_map(|mark| text.find(mark));
    let end = ends.min().filter(|_| key != "credential_process");
    text[..end.unwrap_or(text.len())].trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::object::settings::tests::of_variables;

    fn settings(config: &str, credentials: &str) -> (tempfile::TempDir, ObjectSettings) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(".aws").join(name);
        std::fs::create_dir(folder.path().join(".aws")).expect("made");
        std::fs::write(path("config"), config).expect("written");
        std::fs::write(path("credentials"), credentials).expect("written");
        let settings = of_variables(&[("HOME", &folder.path().display().to_string())]);
        (folder, settings)
    }

    #[test]
    fn both_files_make_a_profile() {
        let config = "[default]\nregion = eu-1 # near\n\n[profile dev]\nregion=us-2\ns3 =\n  max = 3\n\
                      role_arn = arn:x\n[sso-session corp]\nsso_region = eu-3\n[services x]\ny = z\n[plain]\na=b\n";
        let credentials = "; keys\n[dev]\naws_access_key_id = A\nREGION = eu-9\n";
        let (_folder, settings) = settings(config, credentials);
        let all = Profiles::read(&settings).expect("read");
        let key = |profile: &str, key: &str| all.profiles.get(profile)?.get(key).cloned();
        assert_eq!(key("default", "region").as_deref(), Some("eu-1"));
        assert_eq!(key("dev", "region").as_deref(), Some("eu-9"));
        assert_eq!(key("dev", "aws_access_key_id").as_deref(), Some("A"));
        assert_eq!((key("dev", "max"), key("x", "y")), (None, None));
        let session = all
            .sso_sessions
            .get("corp")
            .and_then(|keys| keys.get("sso_region"));
        assert_eq!(session.map(String::as_str), Some("eu-3"));
        assert_eq!(
            (all.names().as_str(), all.profiles.get("plain")),
            ("default, dev", None)
        );
        assert_eq!(name_of(&settings), ("default", false));
    }

    /// Each of these is what Python's configparser makes of it.
    #[test]
    fn keys_may_be_indented_and_values_go_on_further_in() {
        for (text, wanted) in [
            ("[a]\n    k = 1\n    l = 2\n", &[("k", "1"), ("l", "2")][..]),
            ("[a]\n\tk = 1\n\tl: 2\n", &[("k", "1"), ("l", "2")]),
            ("  [a]\n  k=1\n  l=2\n", &[("k", "1"), ("l", "2")]),
            (
                "[a]\r\nk: x=1\r\nl = y:2\r\n",
                &[("k", "x=1"), ("l", "y:2")],
            ),
            (
                "\u{feff}[a] # x\nK = 1\n\n  # no\n  ; no\nl = 2\n",
                &[("k", "1"), ("l", "2")],
            ),
            (
                "[a]\nk =\n  x = 1\n\n  y=2\nl = 3\n",
                &[("k", ""), ("k.x", "1"), ("k.y", "2"), ("l", "3")],
            ),
            (
                "[a]\n  k =\n    x = 1\n  l = 3\n",
                &[("k", ""), ("k.x", "1"), ("l", "3")],
            ),
            ("[a]\nk = 1\n  2\nl = 3\n", &[("k", "1\n2"), ("l", "3")]),
            (
                "[a]\ncredential_process = sh -c 'a ; b # c'\n",
                &[("credential_process", "sh -c 'a ; b # c'")],
            ),
        ] {
            let [(name, keys)] = &sections(text)[..] else {
                panic!("{text}")
            };
            let found: Vec<(&str, &str)> = keys
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            assert_eq!((name.as_str(), &found[..]), ("a", wanted), "{text}");
        }
    }

    /// The order of the AWS CLI.
    #[test]
    fn an_endpoint_is_that_of_the_service_before_that_of_all() {
        let config = "[profile dev]\nservices = my\nendpoint_url = http://all\nuse_fips_endpoint = true\n\
                      [services my]\ns3 =\n  endpoint_url = http://s3\nsso_oidc =\n  endpoint_url: no\n  endpoint_url = http://oidc\n";
        let (_folder, own) = settings(config, "");
        let set = |variables: &[(&str, &str)]| ObjectSettings {
            variables: [own.variables.clone(), of_variables(variables).variables].concat(),
            profile: Some("dev".to_string()),
            ..ObjectSettings::default()
        };
        let ask = |variables: &[(&str, &str)], service: &str| {
            let settings = set(variables);
            ProfileInUse::of(&settings).endpoint(&settings, service)
        };
        let some = |text: &str| Some(text.to_string());
        assert_eq!(ask(&[], "S3"), some("http://s3"));
        assert_eq!(ask(&[], "SSO_OIDC"), some("http://oidc"));
        assert_eq!(ask(&[], "STS"), None, "a token goes to its own service");
        let all = ("AWS_ENDPOINT_URL", "http://env");
        assert_eq!(ask(&[all], "S3"), some("http://env"));
        assert_eq!(ask(&[all], "STS"), None);
        let sts = ("AWS_ENDPOINT_URL_STS", "http://sts");
        assert_eq!(ask(&[all, sts], "STS"), some("http://sts"));
        let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
        assert_eq!(ask(&[all, ignored], "S3"), None);
        let no = set(&[("AWS_USE_FIPS_ENDPOINT", "false")]);
        let profile = ProfileInUse::of(&no);
        let is_on =
            |settings| profile.is_on(settings, "AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint");
        assert_eq!((is_on(&set(&[])), is_on(&no)), (true, false));
    }
}
