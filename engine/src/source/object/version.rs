//! Which version of an object is read, and whether a reply is of that one.
//!
//! Never: asks the server.
//!
//! ```text
//!   strong ETag         If-Match with every request        the reply's ETag and size must be the same
//!   weak ETag           (If-Match would always fail)       ETag without W/, date and size
//!   a date only         If-Unmodified-Since                date and size
//!   neither             nothing                            size
//! ```

use super::refusal::Refusal;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta};

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    meta: ObjectMeta,
}

impl Version {
    pub fn new(meta: ObjectMeta) -> Version {
        Version { meta }
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.meta.size
    }

    /// Text that differs where versions differ, as far as can be told, and is the same from a listing and from a reply.
    pub fn text(&self) -> String {
        let etag = self.meta.e_tag.as_deref().unwrap_or_default();
        let date = if is_strong(etag) && !etag.is_empty() { 0 } else { self.meta.last_modified.timestamp() };
        format!("{} {date} {}", etag.trim_matches('"'), self.meta.size)
    }

    /// The version that [`Version::text`] names, where every request can name it: one with a strong ETag.
    pub fn of_text(text: &str, location: Path) -> Option<Version> {
        let mut parts = text.rsplitn(3, ' ');
        let (size, date, etag) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        // The date of a strong ETag is of no meaning.
        let last_modified = "1970-01-01T00:00:00Z".parse().ok()?;
        let e_tag = Some(format!("\"{etag}\"")).filter(|_| date == "0" && !etag.is_empty() && is_strong(etag))?;
        Some(Version { meta: ObjectMeta { location, last_modified, size, e_tag: Some(e_tag), version: None } })
    }

    /// Seconds since 1970; nothing where the server did not say.
    pub fn modified(&self) -> Option<u64> {
        u64::try_from(self.meta.last_modified.timestamp()).ok().filter(|&seconds| seconds > 0)
    }

    /// By what a change is noticed.
    pub fn told_by(&self) -> &'static str {
        match (&self.meta.e_tag, self.modified()) {
            (Some(etag), _) if is_strong(etag) => "ETag",
            (Some(_), Some(_)) => "weak ETag, date and size",
            (Some(_), None) => "weak ETag and size",
            (None, Some(_)) => "date and size",
            (None, None) => "size alone",
        }
    }

    /// Asks for this version only, as far as the server can be asked.
    pub fn condition(&self) -> GetOptions {
        let strong = self.meta.e_tag.clone().filter(|etag| is_strong(etag));
        let date = self.modified().filter(|_| strong.is_none()).map(|_| self.meta.last_modified);
        GetOptions { if_match: strong, if_unmodified_since: date, ..GetOptions::default() }
    }

    /// Is another answer about the object of this version?
    pub fn same(&self, other: &Version) -> Result<(), Refusal> {
        self.check(&other.meta)
    }

    /// What a refused part of this version means: only ranges inside of it are asked for, so an object that ends before that
    /// is another.
    pub fn refused(&self, refusal: Refusal) -> Refusal {
        let had = self.meta.size;
        match refusal {
            Refusal::PastEnd { size: 0 } => Refusal::Changed(format!("it is shorter, and had {had} bytes")),
            Refusal::PastEnd { size } if size < had => Refusal::Changed(format!("it has {size} bytes, and had {had}")),
            other => other,
        }
    }

    /// Is a reply of this version?
    pub fn check(&self, reply: &ObjectMeta) -> Result<(), Refusal> {
        let own = &self.meta;
        if reply.size != own.size {
            return Err(Refusal::Changed(format!("it has {} bytes, and had {}", reply.size, own.size)));
        }
        match (&own.e_tag, &reply.e_tag) {
            (Some(_), None) => return Err(Refusal::NoEtag),
            (Some(mine), Some(theirs)) if tag(mine) != tag(theirs) => {
                return Err(Refusal::Changed("its ETag is another".to_string()));
            }
            // A strong ETag says all; dates may differ between the machines of a cluster.
            (Some(mine), Some(_)) if is_strong(mine) => return Ok(()),
            _ => {}
        }
        if reply.last_modified != own.last_modified {
            return Err(Refusal::Changed("its date is another".to_string()));
        }
        Ok(())
    }
}

fn is_strong(etag: &str) -> bool {
    !etag.starts_with("W/")
}

fn tag(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: Option<&str>) -> Version {
        let last_modified = "2026-01-02T03:04:05Z".parse().expect("a date");
        let e_tag = etag.map(str::to_string);
        Version::new(ObjectMeta { location: Path::from("a"), last_modified, size: 7, e_tag, version: None })
    }

    /// What a listing has told is asked for with the same ETag, and nothing else is taken for a version.
    #[test]
    fn a_text_names_a_version_only_by_a_strong_etag() {
        for etag in ["\"abc-2\"", "abc", "\"with space\""] {
            let named = Version::of_text(&version(Some(etag)).text(), Path::from("a")).expect("a version");
            let quoted = format!("\"{}\"", etag.trim_matches('"'));
            assert_eq!((named.condition().if_match, named.size()), (Some(quoted), 7));
            assert_eq!(named.text(), version(Some(etag)).text());
        }
        for none in [Some("W/\"abc\""), Some(""), None] {
            assert_eq!(Version::of_text(&version(none).text(), Path::from("a")), None, "{none:?}");
        }
        assert_eq!(Version::of_text("", Path::from("a")), None);
    }
}
