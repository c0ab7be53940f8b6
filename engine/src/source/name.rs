//! The name of a source as given by a user: a path, `file:PATH`, or a URL that may contain a password or a token.
//!
//! `Display` and `Debug` show the name without its secrets, so no message, log or report can contain a secret by accident. Only the
//! code that opens a source uses [`SourceName::unredacted`].
//!
//! [`foreread_os::secrets`] defines which parts of a name are secret.

use foreread_os::secrets;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

/// The name of a source as given by a user: a path, `file:PATH`, or a URL that may contain a password or a token.
///
/// ```
/// use foreread::source::SourceName;
///
/// let name = SourceName::from("https://user:secret@example.org/disk.img?token=secret");
/// assert_eq!(name.to_string(), "https://example.org/disk.img?...");
/// assert_eq!(format!("{name:?}"), "\"https://example.org/disk.img?...\"");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName(OsString);

impl SourceName {
    /// Returns the name with its secrets. Use it only to open the source, never in a message.
    #[must_use]
    pub fn unredacted(&self) -> &OsStr {
        &self.0
    }

    /// Returns the name with its secrets if it is valid UTF-8. A URL is always valid UTF-8; a path may have any bytes.
    #[must_use]
    pub fn unredacted_text(&self) -> Option<&str> {
        self.0.to_str()
    }

    /// Returns the part before the first colon: `nbd` in `nbd://host`. The result is empty if there is no colon, or if a slash
    /// comes before it.
    #[must_use]
    pub fn scheme(&self) -> &str {
        let bytes = self.0.as_encoded_bytes();
        let end = bytes
            .iter()
            .position(|b| matches!(b, b':' | b'/'))
            .filter(|&at| bytes[at] == b':')
            .unwrap_or(0);
        std::str::from_utf8(&bytes[..end])
            .ok()
            .filter(|word| is_scheme(word))
            .unwrap_or_default()
    }

    /// Returns true if the name is written as a URL: a scheme, a colon and two slashes.
    #[must_use]
    pub fn is_url(&self) -> bool {
        let behind = &self.0.as_encoded_bytes()[self.scheme().len()..];
        !self.scheme().is_empty() && behind.starts_with(b"://")
    }

    /// Returns the name as the path of a file, without the prefix `file:`.
    #[must_use]
    pub fn path(&self) -> &Path {
        use std::os::unix::ffi::OsStrExt;
        let bytes = self.0.as_bytes();
        Path::new(OsStr::from_bytes(
            bytes.strip_prefix(b"file:").unwrap_or(bytes),
        ))
    }

    /// Returns true for an empty name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Removes blanks before a URL and writes its scheme in lower case: `  HTTP://h` becomes `http://h`. Any other name may be a
/// path and is kept unchanged.
impl<T: AsRef<OsStr>> From<T> for SourceName {
    fn from(name: T) -> SourceName {
        let name = name.as_ref();
        match name
            .to_str()
            .and_then(|text| text.trim_start().split_once("://"))
        {
            Some((scheme, rest)) if is_scheme(scheme) => {
                SourceName(format!("{}://{rest}", scheme.to_ascii_lowercase()).into())
            }
            _ => SourceName(name.to_os_string()),
        }
    }
}

impl From<&SourceName> for SourceName {
    fn from(name: &SourceName) -> SourceName {
        name.clone()
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&secrets::shown(&self.0.to_string_lossy()))
    }
}

impl fmt::Debug for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", secrets::shown(&self.0.to_string_lossy()))
    }
}

/// Letters, digits and `+-.` after a letter (RFC 3986, section 3.1).
fn is_scheme(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn names_are_shown_without_their_secrets() {
        let name = SourceName::from("HTTP://u:p@h/x?t=1");
        assert_eq!(
            (name.to_string(), format!("{name:?}")),
            (
                "http://h/x?...".to_string(),
                "\"http://h/x?...\"".to_string()
            )
        );
    }

    /// A scheme that is read here and not known there would show what it hides.
    #[test]
    fn every_kind_of_source_is_known_to_the_rule() {
        let kinds = super::super::KINDS.iter();
        let remote = kinds.filter(|kind| kind.form != super::super::NameForm::Path);
        for scheme in remote.flat_map(|kind| kind.schemes) {
            for name in [
                format!("{scheme}:u:secret@h/x"),
                format!("{scheme}://u:secret@h/x?sig=secret"),
            ] {
                assert!(
                    !SourceName::from(name.as_str())
                        .to_string()
                        .contains("secret"),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn kinds_and_paths() {
        let name = |text: &str| SourceName::from(text);
        assert_eq!(
            ["NBD://h", "rbd:p/i", "/a:b", "a", "a b:c"].map(|t| name(t).scheme().to_string()),
            ["nbd", "rbd", "", "", ""]
        );
        assert_eq!(
            ["file:/a", "/a", "file:file:b"].map(|t| name(t).path().to_path_buf()),
            ["/a", "/a", "file:b"].map(PathBuf::from)
        );
        assert_eq!(name(" HTTP://u:P@H/X").unredacted(), "http://u:P@H/X");
        assert_eq!(name(" a").unredacted(), " a", "a file may be called so");
    }
}
