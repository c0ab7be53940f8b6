//! Passes the keys of a request's Kubernetes Secret to the process that mounts the volume: each key in a file or in an environment
//! variable.
//!
//! ```text
//!   AWS_ACCESS_KEY_ID, key_id, ... ──► STATE/NAME/aws, 0600         AWS_SHARED_CREDENTIALS_FILE names it
//!   HF_TOKEN, token                ──► STATE/NAME/hf, 0600          HF_TOKEN_PATH names it
//!   key.json                       ──► STATE/NAME/key.json, 0600    GOOGLE_APPLICATION_CREDENTIALS names it
//!   AWS_REGION, AZURE_STORAGE_KEY, ... ──► the same                 in the environment of `foreread mount`
//! ```
//! If a store refuses the old keys, the process reads the key file again, but its environment cannot change. Therefore a running mount
//! picks up changed keys if they are in a file, but not if they are in its environment.
//!
//! A key whose name is not in the table above is refused, so that a Secret cannot set PATH or LD_PRELOAD of a process on the node.
//!
//! Values never appear in messages, logs, arguments or `Debug` output.

use crate::refusal::invalid;
use crate::stores::store_of;
use std::collections::HashMap;
use tonic::Status;

/// The variables that a Secret may set by a key of the same name (docs/stores.md, "Credentials"), except [`KEY_FILE`], and by other keys,
/// which come from other drivers: mountpoint-s3-csi-driver, csi-s3 and blob-csi-driver.
const NAMES: [(&str, &[&str]); 15] = [
    ("AWS_ACCESS_KEY_ID", &["key_id", "accessKeyID"]),
    ("AWS_SECRET_ACCESS_KEY", &["access_key", "secretAccessKey"]),
    ("AWS_SESSION_TOKEN", &["session_token"]),
    ("AWS_REGION", &["region"]),
    ("AWS_ENDPOINT_URL", &["endpoint"]),
    ("AZURE_STORAGE_ACCOUNT", &["azurestorageaccountname"]),
    ("AZURE_STORAGE_KEY", &["azurestorageaccountkey"]),
    ("AZURE_STORAGE_SAS_TOKEN", &["azurestorageaccountsastoken"]),
    ("AZURE_STORAGE_CONNECTION_STRING", &[]),
    ("AZURE_CLIENT_ID", &[]),
    ("AZURE_CLIENT_SECRET", &[]),
    ("AZURE_TENANT_ID", &[]),
    ("HF_TOKEN", &["token"]),
    (KEY_FILE, &["key.json", "service-account.json"]),
    (
        KEY_FILE,
        &["credentials.json", "GOOGLE_APPLICATION_CREDENTIALS_JSON"],
    ),
];

/// Passed as a file: the variable contains its path.
const KEY_FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Prefix of the names that Kubernetes itself adds to secrets and parameters; values with such names are ignored.
pub const OF_KUBERNETES: &str = "csi.storage.k8s.io/";
/// Maximum bytes of all values. A Secret has at most a mebibyte, and keys a few kilobytes.
const MAX_BYTES: usize = 64 << 10;

/// Environment variables that contain credentials. If a volume has its own credentials, the mounting process does not
/// inherit these variables from the plugin.
pub const CREDENTIALS: [&str; 36] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    KEY_FILE,
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_TENANT_ID",
    "IDENTITY_ENDPOINT",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_HOME",
    "XDG_CACHE_HOME",
    "AWS_DEFAULT_PROFILE",
    "GOOGLE_BEARER_TOKEN",
    "CLOUDSDK_CONFIG",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_CONFIG_DIR",
    "IDENTITY_HEADER",
];

/// The keys and values of a request's Kubernetes Secret. This type does not implement `Debug`, so that the values are never printed.
#[derive(Default)]
pub struct SecretKeys {
    values: Vec<(&'static str, String)>,
    /// The key of a service account.
    key_file: Option<String>,
}

/// The keys for the process that mounts a volume, as files and environment variables. This type does not implement `Debug`, so that the
/// keys are never printed.
pub struct KeyDelivery {
    pub variables: Vec<(&'static str, String)>,
    pub files: Vec<KeyFile>,
}

/// A file of keys: its name, the variable that contains its path, and its content.
pub struct KeyFile {
    pub name: &'static str,
    pub variable: &'static str,
    pub content: String,
}

/// The name of the only profile in the file of S3 keys.
const PROFILE: &str = "foreread";
/// The variables of S3 keys, and their names in a profile.
const OF_PROFILE: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "aws_access_key_id"),
    ("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key"),
    ("AWS_SESSION_TOKEN", "aws_session_token"),
];
const AWS: &str = "aws";
const HF: &str = "hf";
const GOOGLE: &str = "key.json";

impl SecretKeys {
    /// The names of all files that may contain keys.
    pub const FILES: [&str; 3] = [AWS, HF, GOOGLE];

    /// Converts the secrets to files and environment variables for the process that mounts.
    pub fn delivered(&self) -> KeyDelivery {
        let mut files = Vec::new();
        let mut file = |name, variable, content| {
            files.push(KeyFile {
                name,
                variable,
                content,
            });
        };
        let mut variables = self.values.clone();
        // Keys of other S3 servers may contain any character, but a profile can only contain words.
        let is_word = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"#;\"'".contains(&byte))
        };
        let of_s3 = OF_PROFILE.map(|(name, _)| self.value(name));
        if self.has_credentials_of("s3") && of_s3.into_iter().flatten().all(is_word) {
            let lines = OF_PROFILE.iter().zip(of_s3);
            let lines = lines.filter_map(|((_, key), value)| Some(format!("{key} = {}\n", value?)));
            let content = format!("[{PROFILE}]\n{}", lines.collect::<String>());
            variables.retain(|(name, _)| OF_PROFILE.iter().all(|(known, _)| known != name));
            variables.push(("AWS_PROFILE", PROFILE.to_string()));
            file(AWS, "AWS_SHARED_CREDENTIALS_FILE", content);
        }
        if let Some(token) = self.value("HF_TOKEN") {
            variables.retain(|(name, _)| *name != "HF_TOKEN");
            file(HF, "HF_TOKEN_PATH", token.to_string());
        }
        if let Some(content) = self.key_file.clone() {
            file(GOOGLE, KEY_FILE, content);
        }
        KeyDelivery { variables, files }
    }

    pub fn checked(secrets: &HashMap<String, String>) -> Result<SecretKeys, Status> {
        let mut keys = SecretKeys::default();
        let mut given: Vec<_> = secrets.iter().collect();
        given.retain(|(name, _)| !name.starts_with(OF_KUBERNETES));
        given.sort();
        if given.iter().map(|(_, value)| value.len()).sum::<usize>() > MAX_BYTES {
            let what = "the secrets are larger than 64 KiB";
            return Err(invalid(what, "use a Secret that has only keys of a store"));
        }
        for (name, value) in given {
            let is_it = |(variable, others): &&(&str, &[&str])| {
                others.contains(&name.as_str()) || *variable == name && *variable != KEY_FILE
            };
            let Some((variable, _)) = NAMES.iter().find(is_it) else {
                let what = format!("the Secret has the unknown key '{name}'");
                return Err(invalid(&what, REMEDY));
            };
            let twice = || invalid(&format!("the Secret has {variable} twice"), "remove one");
            if *variable == KEY_FILE {
                checked_key_file(name, value)?;
                if keys.key_file.replace(value.clone()).is_some() {
                    return Err(twice());
                }
                continue;
            }
            if value.trim().is_empty() || value.trim().contains(char::is_control) {
                let what = format!("the key '{name}' of the Secret is empty or not one line");
                let remedy = "write only its value (kubectl create secret)";
                return Err(invalid(&what, remedy));
            }
            if keys.value(variable).is_some() {
                return Err(twice());
            }
            // A trailing line break comes from the file from which the Secret was created.
            keys.values.push((variable, value.trim().to_string()));
        }
        Ok(keys)
    }

    fn value(&self, variable: &str) -> Option<&str> {
        let found = self.values.iter().find(|(name, _)| *name == variable);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the address of the server (endpoint) that the secrets contain.
    pub fn endpoint(&self) -> Option<&str> {
        self.value("AWS_ENDPOINT_URL")
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.key_file.is_none()
    }

    /// Returns whether these secrets contain the first credentials in this scheme's search order, so that no other place is searched.
    pub fn has_credentials_of(&self, scheme: &str) -> bool {
        let has = |variable: &&str| match *variable {
            KEY_FILE => self.key_file.is_some(),
            variable => self.value(variable).is_some(),
        };
        let sets = store_of(scheme).map_or(&[][..], |store| store.keys);
        sets.iter().any(|variables| variables.iter().all(has))
    }
}

/// The server from which a service account gets its tokens.
const TOKEN_SERVER: &str = "https://oauth2.googleapis.com/token";

/// Accepts only service account keys. Other kinds of credentials name a file or an address of the machine, whose content is sent to a
/// server that they also name.
fn checked_key_file(name: &str, text: &str) -> Result<(), Status> {
    let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let is_account = json["type"] == "service_account";
    let asks_google = json.get("token_uri").is_none_or(|uri| uri == TOKEN_SERVER);
    if is_account && asks_google {
        return Ok(());
    }
    let what = format!("'{name}' of the Secret is not a key of a Google service account");
    let remedy = "create one ('gcloud iam service-accounts keys create'), or give the plugin's service account the role";
    Err(invalid(&what, remedy))
}

const REMEDY: &str = "its keys are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AZURE_STORAGE_ACCOUNT, \
    AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, HF_TOKEN, key.json, and others of docs/kubernetes.md";

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(all: &[(&str, &str)]) -> HashMap<String, String> {
        let all = all.iter();
        all.map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    const ACCOUNT: &str =
        "{\n\"type\": \"service_account\", \"token_uri\": \"https://oauth2.googleapis.com/token\"}";

    /// Refused: credentials that name a file of the node, or another server that would get a token.
    #[test]
    fn a_key_file_is_that_of_a_service_account() {
        let elsewhere = ACCOUNT.replace("oauth2.googleapis.com", "attacker.example");
        let external =
            r#"{"type": "external_account", "credential_source": {"file": "/etc/shadow"}}"#;
        for text in [elsewhere.as_str(), external, "{}", "", "[1]"] {
            let refused = SecretKeys::checked(&secrets(&[("key.json", text)]));
            let line = refused.err().expect("refused");
            let says = "not a key of a Google service account";
            assert!(line.message().contains(says), "{text}");
        }
    }

    #[test]
    fn names_of_other_drivers_mean_the_same() {
        let given = secrets(&[
            ("key_id", "k\n"),
            ("access_key", "s"),
            ("csi.storage.k8s.io/x", "y"),
        ]);
        let keys = SecretKeys::checked(&given).expect("good");
        assert_eq!(keys.value("AWS_ACCESS_KEY_ID"), Some("k"));
        assert!(keys.has_credentials_of("s3") && !keys.has_credentials_of("gs"));
        let keys = SecretKeys::checked(&secrets(&[("key.json", ACCOUNT)])).expect("good");
        assert!(keys.has_credentials_of("gs") && keys.values.is_empty() && !keys.is_empty());
    }

    #[test]
    fn keys_that_a_store_looks_for_again_are_in_files() {
        let delivered = |all: &[(&str, &str)]| {
            let keys = SecretKeys::checked(&secrets(all))
                .expect("good")
                .delivered();
            let names = keys.variables.iter().map(|(name, _)| *name);
            let files = keys.files.into_iter().map(|file| file.content);
            (names.collect::<Vec<_>>(), files.collect::<Vec<_>>())
        };
        let s3 = [("key_id", "k"), ("access_key", "s/+="), ("region", "r")];
        let profile = "[foreread]\naws_access_key_id = k\naws_secret_access_key = s/+=\n";
        let own = (vec!["AWS_REGION", "AWS_PROFILE"], vec![profile.to_string()]);
        assert_eq!(delivered(&s3), own);
        let token = (vec![], vec!["t".to_string()]);
        assert_eq!(delivered(&[("token", "t\n")]), token);
        for odd in ["a b", "a#b", "\u{e4}"] {
            let (names, files) = delivered(&[("key_id", "k"), ("access_key", odd)]);
            let is_plain = names.len() == 2 && files.is_empty();
            assert!(is_plain, "{odd} is no word of a profile");
        }
    }

    #[test]
    fn unknown_keys_are_refused_without_their_value() {
        let large = "HUSH".repeat(MAX_BYTES);
        for (name, value) in [
            ("LD_PRELOAD", "HUSH"),
            ("PATH", "HUSH"),
            ("bad\nname", "HUSH"),
            ("AWS_REGION", "HUSH\nHUSH"),
            ("HF_TOKEN", " "),
            ("key.json", large.as_str()),
        ] {
            let refused = SecretKeys::checked(&secrets(&[(name, value)]));
            let refused = refused.err().expect("refused");
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            let line = refused.message();
            assert!(!line.contains("HUSH") && !line.contains('\n'), "{line}");
        }
        let twice = secrets(&[("region", "a"), ("AWS_REGION", "b")]);
        assert!(SecretKeys::checked(&twice).is_err());
    }
}
