//! Validates a volume's attributes and mount options, and converts them to a source and options of `foreread mount`.
//!
//! ```text
//!   source: s3://models/      cache: 512Mi      diskCache: "true"      mountOptions: [region eu-central-1]
//!     └► foreread mount -d --allow-other --cache=536870912 --disk-cache=/DIR/NAME,size=10737418240,free=10% --region=eu-central-1 -- s3://models/ ...
//! ```
//! Any user who may create a pod chooses the attributes of its inline volumes. Therefore an inline volume must not use
//! a local folder or a disk cache, and must either have credentials in its own Secret or read public data.
//!
//! Unknown attributes are refused, and never passed on.

use crate::arguments::{Arguments, quantity};
use crate::refusal::{invalid, one_line};
use crate::secrets::{CREDENTIALS, OF_KUBERNETES, SecretKeys};
use crate::spec::VolumeCapability;
use crate::spec::volume_capability::AccessType;
use crate::spec::volume_capability::access_mode::Mode;
use crate::state::number;
use crate::stores::{allow_http, store_of};
use foreread_os::secrets;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use tonic::Status;

/// Maximum bytes of an identifier, which becomes the name of a folder.
const MAX_ID: usize = 1024;
/// Maximum bytes of an attribute, and of all mount options together.
const MAX_TEXT: usize = 4096;
const MAX_ATTRIBUTES: usize = 64;
/// Set for an inline volume, so that it does not get credentials of the machine.
const OF_NO_MACHINE: [(&str, &str); 2] = [
    ("AWS_EC2_METADATA_DISABLED", "true"),
    ("HOME", "/nonexistent"),
];

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Text,
    Flag,
    Size,
}

/// Attributes for which `foreread mount` has an option, and the notation of their values.
const SETTINGS: [(&str, Form); 10] = [
    ("cache", Form::Size),
    ("policy", Form::Text),
    ("maxOverfetch", Form::Text),
    ("hint", Form::Text),
    ("attrTtl", Form::Text),
    ("region", Form::Text),
    ("endpointUrl", Form::Text),
    ("requesterPays", Form::Flag),
    ("noSignRequest", Form::Flag),
    ("appending", Form::Flag),
];

/// The option of an attribute: `max-overfetch` of `maxOverfetch`.
fn option_of(attribute: &str) -> String {
    let mut option = String::new();
    for letter in attribute.chars() {
        if letter.is_ascii_uppercase() {
            option.push('-');
        }
        option.push(letter.to_ascii_lowercase());
    }
    option
}

/// Mount options that every volume already has.
const NOTHING_NEW: [&str; 8] = [
    "ro",
    "read-only",
    "allow-other",
    "nosuid",
    "nodev",
    "noatime",
    "relatime",
    "default-permissions",
];

pub struct VolumeRequest<'a> {
    pub id: &'a str,
    pub attributes: &'a HashMap<String, String>,
    pub capability: Option<&'a VolumeCapability>,
    pub is_inline: bool,
}

#[derive(Debug, PartialEq)]
pub struct VolumeSpec {
    pub source: String,
    /// Options of `foreread mount`, one word each.
    pub options: Vec<String>,
    /// Environment variables of its process, without secrets.
    pub variables: Vec<(&'static str, String)>,
    /// Environment variables of this process that are not passed on.
    pub withheld: Vec<&'static str>,
    /// The folder of its disk cache, which the caller must create.
    pub disk_cache: Option<PathBuf>,
}

/// Prefix of an inline volume's folder.
const INLINE: char = 'i';
/// Returns whether a state folder belongs to an inline volume.
pub fn is_inline_name(name: &str) -> bool {
    name.starts_with(INLINE)
}

/// Returns the name of a volume's files and metrics. The name begins with `v`, or `i` for an inline volume. Then come the letters, digits
/// and `-` of the volume's identifier, if they may be shown, and a hash of the whole identifier.
pub fn file_name(id: &str, is_inline: bool) -> String {
    let kind = if is_inline { INLINE } else { 'v' };
    let number = number(id);
    let shown = secrets::shown(id);
    let letters = shown
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-');
    let begin: String = letters.take(64).collect();
    format!("{kind}{begin}-{number:016x}")
}

pub fn checked_id(id: &str) -> Result<(), Status> {
    if id.is_empty() {
        let remedy = "name a volume (volumeHandle)";
        return Err(invalid("there is no volume_id", remedy));
    }
    if id.len() > MAX_ID || id.contains(char::is_control) {
        let what = "the volume_id is too long or has control characters";
        let remedy = "write a volumeHandle of at most 1024 letters";
        return Err(invalid(what, remedy));
    }
    Ok(())
}

/// Checks the requested capability and access mode of a volume.
pub fn checked_capability(
    capability: Option<&VolumeCapability>,
    is_inline: bool,
    arguments: &Arguments,
) -> Result<(), Status> {
    let Some(capability) = capability else {
        return Err(invalid("there is no volume_capability", "add one"));
    };
    if matches!(capability.access_type, Some(AccessType::Block(_))) {
        let what = "a volume of foreread cannot be a block device";
        return Err(invalid(what, "write volumeMode: Filesystem"));
    }
    let mode = capability
        .access_mode
        .map_or(Mode::Unknown, |mode| mode.mode());
    let reads = matches!(mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly);
    // The kubelet sets SINGLE_NODE_WRITER for every inline volume; a pod cannot choose another mode.
    if reads || is_inline || (arguments.any_access_mode && mode != Mode::Unknown) {
        return Ok(());
    }
    let what = format!(
        "volumes of foreread are read-only, and the access mode is {}",
        mode.as_str_name()
    );
    Err(invalid(&what, "write accessModes: [ReadOnlyMany]"))
}

impl VolumeSpec {
    pub fn checked(
        request: &VolumeRequest,
        keys: &SecretKeys,
        arguments: &Arguments,
    ) -> Result<VolumeSpec, Status> {
        let attributes = Attributes::checked(request)?;
        let source = attributes.source(request.is_inline, arguments)?;
        let mut volume = VolumeSpec {
            options: vec!["--allow-other".to_string()],
            variables: Vec::new(),
            withheld: Vec::new(),
            disk_cache: None,
            source,
        };
        let mut cache = None;
        // Any user that may create a pod chooses this size, and all volumes share the memory.
        let max_cache = if request.is_inline {
            arguments.cache
        } else {
            arguments.max_cache
        };
        for (name, form) in SETTINGS {
            let Some(value) = attributes.text(name) else {
                continue;
            };
            let option = option_of(name);
            match form {
                Form::Size => cache = Some(sized(name, value, max_cache)?),
                Form::Flag if is_on(name, value)? => volume.options.push(format!("--{option}")),
                Form::Flag => {}
                Form::Text => {
                    let is_url = name == "endpointUrl";
                    if secrets::has_some(value) || is_url && value.contains(['@', '?', '#']) {
                        let what = format!("{name} has credentials or a query");
                        let remedy = "credentials are keys of a Secret (nodeStageSecretRef)";
                        return Err(invalid(&what, remedy));
                    }
                    volume.options.push(format!("--{option}={value}"));
                }
            }
        }
        let cache = cache.unwrap_or(arguments.cache);
        volume.options.push(format!("--cache={cache}"));
        volume.add_disk_cache(request, &attributes, arguments)?;
        volume.add_variables(request, &attributes, keys, arguments)?;
        Ok(volume)
    }

    fn add_disk_cache(
        &mut self,
        request: &VolumeRequest,
        attributes: &Attributes,
        arguments: &Arguments,
    ) -> Result<(), Status> {
        let asked = attributes.text("diskCache");
        let is_asked = asked.map(|value| is_on("diskCache", value)).transpose()?;
        let size = attributes.text("diskCacheSize");
        if is_asked != Some(true) {
            let remedy = "write diskCache: \"true\"";
            return match size {
                Some(_) => Err(invalid("diskCacheSize needs a disk cache", remedy)),
                None => Ok(()),
            };
        }
        if request.is_inline {
            let remedy = "use a PersistentVolume, whose cache other pods find again";
            return Err(invalid("an inline volume has no disk cache", remedy));
        }
        let Some(folder) = &arguments.disk_cache else {
            let remedy = "remove diskCache, or set diskCache.enabled of the chart";
            return Err(invalid("there is no disk for caches on this node", remedy));
        };
        let bytes = match size {
            Some(size) => sized("diskCacheSize", size, arguments.max_disk_cache)?,
            None => arguments.disk_cache_size,
        };
        let folder = folder.join(file_name(request.id, false));
        let named = format!("--disk-cache={},size={bytes},free=10%", folder.display());
        self.options.push(named);
        self.disk_cache = Some(folder);
        Ok(())
    }

    fn add_variables(
        &mut self,
        request: &VolumeRequest,
        attributes: &Attributes,
        keys: &SecretKeys,
        arguments: &Arguments,
    ) -> Result<(), Status> {
        let allows_http = attributes.flag("allowHttp")?;
        let endpoints = [attributes.text("endpointUrl"), keys.endpoint()];
        let names_http = endpoints
            .into_iter()
            .flatten()
            .any(|url| !url.starts_with("https://"));
        if request.is_inline && (allows_http || names_http) && !arguments.inline_http {
            return Err(without_tls());
        }
        if allows_http {
            let allowed = allow_http().map(|name| (name, "true".to_string()));
            self.variables.extend(allowed);
        }
        let account = attributes.text("storageAccount");
        let account = account.map(|account| ("AZURE_STORAGE_ACCOUNT", account.to_string()));
        self.variables.extend(account);
        if request.is_inline || !keys.is_empty() {
            self.withheld.extend(CREDENTIALS);
        }
        // Removes the permissions that the plugin has for other volumes, because a TLS server may redirect to any server.
        if request.is_inline && !arguments.inline_http {
            self.withheld.extend(allow_http());
        }
        if keys.endpoint().is_some() {
            // This variable would override the one of the Secret.
            self.withheld.push("AWS_ENDPOINT_URL_S3");
        }
        if request.is_inline {
            let variables = OF_NO_MACHINE.map(|(name, value)| (name, value.to_string()));
            self.variables.extend(variables);
            let scheme = scheme(&self.source).unwrap_or_default();
            let is_public = !keys.has_credentials_of(&scheme.to_ascii_lowercase());
            let said = "--no-sign-request".to_string();
            if is_public && !self.options.contains(&said) {
                self.options.push(said);
            }
        }
        Ok(())
    }
}

/// The known attributes and mount options.
struct Attributes<'a> {
    given: HashMap<&'a str, &'a str>,
}

/// Attributes for which `foreread mount` has no option of the same name.
const OTHERS: [&str; 8] = [
    "source",
    "bucketName",
    "prefix",
    "storageAccount",
    "allowHttp",
    "diskCache",
    "diskCacheSize",
    "mountOptions",
];

impl<'a> Attributes<'a> {
    fn checked(request: &VolumeRequest<'a>) -> Result<Attributes<'a>, Status> {
        if request.attributes.len() > MAX_ATTRIBUTES {
            let what = "there are more than 64 volumeAttributes";
            return Err(invalid(what, "remove some"));
        }
        let given = HashMap::new();
        let mut all = Attributes { given };
        let mut given: Vec<_> = request.attributes.iter().collect();
        given.sort();
        for (name, value) in given {
            if name.starts_with(OF_KUBERNETES) || name.starts_with("storage.kubernetes.io/") {
                continue;
            }
            let is_known =
                OTHERS.contains(&name.as_str()) || SETTINGS.iter().any(|(known, _)| known == name);
            if !is_known {
                let what = format!("there is no volumeAttribute '{name}'");
                return Err(invalid(&what, "docs/kubernetes.md lists them"));
            }
            all.insert(name, value)?;
        }
        let access = request.capability.and_then(|one| one.access_type.as_ref());
        let flags = match access {
            Some(AccessType::Mount(mount)) => &mount.mount_flags[..],
            _ => &[],
        };
        let flags = flags.iter().map(String::as_str);
        let options = all.given.remove("mountOptions").unwrap_or_default();
        for flag in flags.chain(options.split(',')) {
            all.option(flag.trim())?;
        }
        Ok(all)
    }

    fn insert(&mut self, name: &'a str, value: &'a str) -> Result<(), Status> {
        let value = value.trim();
        if value.len() > MAX_TEXT || value.contains(char::is_control) {
            let what =
                format!("the volumeAttribute '{name}' is too long or has control characters");
            return Err(invalid(&what, "write at most 4096 letters"));
        }
        // An empty value from a template counts as not set.
        if !value.is_empty() && self.given.insert(name, value).is_some() {
            let what = format!("'{name}' is both an attribute and a mount option");
            return Err(invalid(&what, "write one of them"));
        }
        Ok(())
    }

    /// A mount option: `attr_ttl=5s`, `--attr-ttl 5s`, `region eu-central-1`.
    fn option(&mut self, flag: &'a str) -> Result<(), Status> {
        let flag = flag.trim_start_matches("--");
        let at = flag.find(['=', ' ']);
        let (name, value) = flag.split_at(at.unwrap_or(flag.len()));
        let value = at.map(|_| value[1..].trim());
        let name = name.replace('_', "-");
        if name.is_empty() || (value.is_none() && NOTHING_NEW.contains(&name.as_str())) {
            return Ok(());
        }
        let mut settings = SETTINGS.into_iter();
        match (settings.find(|(known, _)| option_of(known) == name), value) {
            (Some((known, Form::Flag)), None) => self.insert(known, "true"),
            (Some((known, _)), Some(value)) => self.insert(known, value),
            _ => {
                let what = format!("there is no mount option '{}'", one_line(&name));
                Err(invalid(&what, "docs/kubernetes.md lists them"))
            }
        }
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.given.get(name).copied()
    }

    fn flag(&self, name: &str) -> Result<bool, Status> {
        self.text(name)
            .map_or(Ok(false), |value| is_on(name, value))
    }

    fn source(&self, is_inline: bool, arguments: &Arguments) -> Result<String, Status> {
        let bucket = self.text("bucketName");
        let source = match (self.text("source"), bucket, self.text("prefix")) {
            (Some(source), None, None) => source.to_string(),
            (None, Some(bucket), prefix) if !bucket.contains('/') => {
                let prefix = prefix.unwrap_or_default().trim_matches('/');
                let slash = if prefix.is_empty() { "" } else { "/" };
                format!("s3://{bucket}/{prefix}{slash}")
            }
            (None, None, _) => {
                let remedy = "write volumeAttributes: source: s3://BUCKET/PREFIX/";
                return Err(invalid("the volume has no source", remedy));
            }
            _ => {
                let remedy = "write source, or bucketName and prefix";
                return Err(invalid("the volume has several sources", remedy));
            }
        };
        let Some(scheme) = scheme(&source) else {
            return local(&source, is_inline, arguments);
        };
        let scheme = &scheme.to_ascii_lowercase();
        let Some(store) = store_of(scheme) else {
            let what = format!("'{}' is not a source of a volume", one_line(&source));
            let remedy = "write s3://, gs://, az://, abfss://, hf:// or https:// (docs/stores.md)";
            return Err(invalid(&what, remedy));
        };
        if is_inline && store.asks_machine {
            let what = "an inline volume cannot use Azure";
            return Err(invalid(what, "use a PersistentVolume"));
        }
        if scheme == "http" && is_inline && !arguments.inline_http {
            return Err(without_tls());
        }
        // They would be visible in a process's arguments and in the mount table.
        if secrets::has_some(&source) {
            let remedy = "put them into a Secret, a signature as AZURE_STORAGE_SAS_TOKEN";
            return Err(invalid("the source has credentials or a signature", remedy));
        }
        Ok(source)
    }
}

fn without_tls() -> Status {
    let remedy = "write https://, use a PersistentVolume, or set inline.allowHttp of the chart";
    invalid("an inline volume needs TLS", remedy)
}

fn scheme(source: &str) -> Option<&str> {
    source.split_once("://").map(|(scheme, _)| scheme)
}

/// A folder of the node, which must be below an allowed folder.
fn local(source: &str, is_inline: bool, arguments: &Arguments) -> Result<String, Status> {
    let path = Path::new(source);
    let is_plain =
        path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    let allowed = |path: &Path| {
        let mut folders = arguments.local.iter();
        folders.any(|folder| path.starts_with(folder))
    };
    // Symbolic links are followed, so their target is checked too.
    let real = path.canonicalize();
    let is_allowed =
        is_plain && !is_inline && allowed(path) && real.is_ok_and(|real| allowed(&real));
    if is_allowed {
        return Ok(source.to_string());
    }
    let what = format!("'{}' is not a source of a volume", one_line(source));
    let remedy = "write s3://BUCKET/PREFIX/ or another of docs/stores.md";
    Err(invalid(&what, remedy))
}

fn is_on(name: &str, value: &str) -> Result<bool, Status> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            let what = format!("{name} is neither true nor false");
            Err(invalid(&what, "write \"true\""))
        }
    }
}

fn sized(name: &str, value: &str, most: u64) -> Result<u64, Status> {
    let Some(bytes) = quantity(value) else {
        let what = format!("{name} is not a size");
        return Err(invalid(&what, "write a size such as 512Mi or 50Gi"));
    };
    if bytes > most || bytes < 1 << 20 {
        let what = format!("{name} is {value}, and the plugin allows 1Mi to {most} bytes");
        return Err(invalid(&what, "write less, or set its limit in the chart"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
