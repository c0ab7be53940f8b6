//! The version of an object, and whether a reply belongs to it.
//!
//! A [`Validator`] is what a store reports in a listing or a reply: ETag, date, size. The text form of a validator identifies the
//! version in a mount, in a listing on disk and in the disk cache. A reader reads only one [`Version`] of an object. The version
//! first comes from a listing or a reply; from the first reply on, every reply must have the same validator. This module sends no
//! requests.
//!
//! ```text
//!   Validator, as text              is the version exactly?   condition              two replies are equal in
//!   "e1f0" 4096                     yes, by a strong ETag     If-Match               ETag, size
//!   W/"e1f0" 1795750000 4096        no (If-Match would fail)  If-Unmodified-Since    ETag, date, size
//!   1795750000 4096                 no                        If-Unmodified-Since    date, size
//!   0 4096                          no                        none                   size
//!
//!   a listing and a reply           the same ETag and size, or the same date (in seconds) and size, as far as both have them
//! ```
//! Servers do not write an ETag the same way everywhere: the ETag may lack quotes, or be marked as weak. Replies for an object
//! may lack the ETag, or have another ETag than the listing. So foreread compares a listing with a reply less strictly than two
//! replies.
//!
//! Example: a listing has the ETag "a1", the time 10:00:00.7 and 5 bytes. The first reply has the ETag W/"b2", the time 10:00:00
//! and 5 bytes. This reply is accepted, because date and size are those of the listing. From then on, every reply must have the
//! ETag W/"b2".

use super::page::generation_of_etag;
use super::refusal::Refusal;
use crate::source::tree::Meta;
use chrono::{DateTime, Utc};
use object_store::{GetOptions, ObjectMeta};
use std::fmt::{self, Display, Formatter};
use std::sync::OnceLock;

/// An ETag, however it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ETag {
    tag: String,
    is_weak: bool,
}

impl ETag {
    /// Parses an ETag. Returns `None` if it is empty or invalid in a header.
    fn of(text: &str) -> Option<ETag> {
        let strong = text.strip_prefix("W/");
        let tag = strong.unwrap_or(text).trim_matches('"');
        let is_tag = !tag.is_empty() && !tag.chars().any(char::is_control);
        is_tag.then(|| ETag {
            tag: tag.to_string(),
            is_weak: strong.is_some(),
        })
    }
}

impl Display for ETag {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let weak = if self.is_weak { "W/" } else { "" };
        write!(f, "{weak}\"{}\"", self.tag)
    }
}

/// What a store reports about a version of an object, in a listing or in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validator {
    e_tag: Option<ETag>,
    /// Modification time, if the store reports it.
    modified: Option<DateTime<Utc>>,
    size: u64,
}

impl Validator {
    pub fn new(e_tag: Option<&str>, modified: Option<DateTime<Utc>>, size: u64) -> Validator {
        Validator {
            e_tag: e_tag.and_then(ETag::of),
            modified: modified.filter(|date| date.timestamp() > 0),
            size,
        }
    }

    pub fn of(meta: &ObjectMeta) -> Validator {
        Validator::new(meta.e_tag.as_deref(), Some(meta.last_modified), meta.size)
    }

    /// Parses a text that [`Validator::text`] has made. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Validator> {
        let (rest, size) = text.rsplit_once(' ')?;
        let (e_tag, seconds) = match rest.rsplit_once(' ') {
            _ if rest.starts_with('"') => (Some(rest), 0),
            Some((weak, seconds)) => (Some(weak), seconds.parse().ok()?),
            None => (None, rest.parse().ok()?),
        };
        let modified = DateTime::from_timestamp(seconds, 0)?;
        let said = Validator::new(e_tag, Some(modified), size.parse().ok()?);
        Some(said).filter(|said| said.text() == text)
    }

    /// Creates a validator from the attributes of a file. [`Meta::version`] is the validator's text form; the attributes also have
    /// the date, which the text form lacks if there is a strong ETag.
    pub fn of_file(meta: &Meta) -> Option<Validator> {
        let said = Validator::parse(std::str::from_utf8(&meta.version).ok()?)?;
        let seconds = i64::try_from(meta.mtime_ns / 1_000_000_000).ok()?;
        let date = DateTime::from_timestamp(seconds, 0).filter(|_| seconds > 0);
        Some(Validator {
            modified: said.modified.or(date),
            ..said
        })
    }

    /// Returns the text form. Two versions have different texts if the store reports any difference between them.
    pub fn text(&self) -> String {
        let (size, seconds) = (self.size, self.seconds().unwrap_or(0));
        match &self.e_tag {
            // The date next to a strong ETag has no meaning: machines of one cluster may report different dates.
            Some(strong) if !strong.is_weak => format!("{strong} {size}"),
            Some(weak) => format!("{weak} {seconds} {size}"),
            None => format!("{seconds} {size}"),
        }
    }

    /// Returns true if the validator has a strong ETag, which identifies one version exactly.
    pub fn is_exact(&self) -> bool {
        self.e_tag.as_ref().is_some_and(|e_tag| !e_tag.is_weak)
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Nanoseconds since 1970.
    pub fn modified_ns(&self) -> Option<i128> {
        self.modified?.timestamp_nanos_opt().map(i128::from)
    }

    /// Returns the seconds since 1970, which is the resolution of HTTP dates.
    pub fn seconds(&self) -> Option<i64> {
        Some(self.modified?.timestamp())
    }

    /// Returns the properties by which a change is detected, for messages.
    pub fn told_by(&self) -> &'static str {
        match (&self.e_tag, self.modified) {
            (Some(e_tag), _) if generation_of_etag(&e_tag.tag).is_some() => "generation",
            (Some(e_tag), _) if !e_tag.is_weak => "ETag",
            (Some(_), Some(_)) => "weak ETag, date and size",
            (Some(_), None) => "weak ETag and size",
            (None, Some(_)) => "date and size",
            (None, None) => "size alone",
        }
    }

    /// Returns request options with the condition that the object still has this version: `If-Match` with a strong ETag,
    /// otherwise `If-Unmodified-Since`, if there is a date.
    pub fn condition(&self) -> GetOptions {
        let strong = self.e_tag.as_ref().filter(|e_tag| !e_tag.is_weak);
        GetOptions {
            if_match: strong.map(ETag::to_string),
            if_unmodified_since: self.modified.filter(|_| strong.is_none()),
            ..GetOptions::default()
        }
    }

    /// Returns request options with the condition that the object has another version (`If-None-Match`).
    pub fn condition_unless(&self) -> GetOptions {
        GetOptions {
            if_none_match: self.condition().if_match,
            ..GetOptions::default()
        }
    }

    /// Checks that two replies have the same version.
    fn same(&self, reply: &Validator) -> Result<(), Refusal> {
        self.same_size(reply)?;
        match (&self.e_tag, &reply.e_tag) {
            (Some(_), None) => return Err(Refusal::NoEtag),
            // Without an ETag the version was identified by date and size, or size alone, which another version may share.
            (None, Some(_)) => {
                return Err(changed(
                    "the server now sends an ETag for it, but sent none before",
                ));
            }
            (Some(mine), Some(theirs)) if mine.tag != theirs.tag => return Err(other_etag()),
            (Some(mine), Some(_)) if !mine.is_weak => return Ok(()),
            _ => {}
        }
        if reply.modified != self.modified {
            return Err(other_date());
        }
        Ok(())
    }

    /// Compares a listing with a reply, or with another listing.
    pub fn alike(&self, other: &Validator) -> Result<(), Refusal> {
        self.same_size(other)?;
        let dates = self.seconds().zip(other.seconds());
        match (&self.e_tag, &other.e_tag) {
            (Some(mine), Some(theirs)) if mine.tag == theirs.tag => Ok(()),
            (Some(_), Some(_)) if dates.is_none_or(|(mine, theirs)| mine != theirs) => {
                Err(other_etag())
            }
            _ if dates.is_some_and(|(mine, theirs)| mine != theirs) => Err(other_date()),
            _ => Ok(()),
        }
    }

    fn same_size(&self, other: &Validator) -> Result<(), Refusal> {
        let (has, had) = (other.size, self.size);
        if has == had {
            return Ok(());
        }
        Err(changed(&format!("it now has {has} bytes, but had {had}")))
    }
}

fn changed(why: &str) -> Refusal {
    Refusal::Changed(why.to_string())
}

fn other_etag() -> Refusal {
    changed("its ETag has changed")
}

fn other_date() -> Refusal {
    changed("its date has changed")
}

/// The version of an object that a reader reads; it never changes to another version by itself.
#[derive(Debug)]
pub struct Version {
    first: Validator,
    /// The first reply's validator.
    replied: OnceLock<Validator>,
}

impl Version {
    /// Creates a version from a listing; the first reply adds what the listing does not contain.
    pub fn listed(said: Validator) -> Version {
        Version {
            first: said,
            replied: OnceLock::new(),
        }
    }

    /// Creates a version from a reply, or from data that is treated like a reply: every later reply must have the same validator.
    pub fn replied(said: Validator) -> Version {
        Version {
            replied: OnceLock::from(said.clone()),
            first: said,
        }
    }

    /// Returns the current validator of this version.
    pub fn now(&self) -> &Validator {
        self.replied.get().unwrap_or(&self.first)
    }

    pub fn size(&self) -> u64 {
        self.first.size
    }

    /// Returns true if no reply has confirmed the version yet.
    pub fn is_listed(&self) -> bool {
        self.replied.get().is_none()
    }

    /// Returns true if the first reply had the same ETag as the listing.
    pub fn is_as_listed(&self) -> bool {
        let tag_of = |said: &Validator| said.e_tag.as_ref().map(|e_tag| e_tag.tag.clone());
        tag_of(self.now()) == tag_of(&self.first)
    }

    /// Converts the error of a request for a part of this version. Only ranges within the version are requested, so an object that
    /// ends earlier has changed.
    pub fn refused(&self, refusal: Refusal) -> Refusal {
        let had = self.size();
        match refusal {
            Refusal::Empty { .. } => changed(&format!("it is now empty, but had {had} bytes")),
            Refusal::PastEnd { size: None } => changed(&format!(
                "it is now shorter than the {had} bytes that it had"
            )),
            Refusal::PastEnd { size: Some(size) } if size < had => {
                changed(&format!("it now has {size} bytes, but had {had}"))
            }
            other => other,
        }
    }

    pub fn check(&self, reply: &Validator) -> Result<(), Refusal> {
        if let Some(own) = self.replied.get() {
            return own.same(reply);
        }
        self.first.alike(reply)?;
        // Another part may have been received meanwhile; then its validator counts.
        self.replied.get_or_init(|| reply.clone()).same(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tree::Kind;

    fn said(e_tag: Option<&str>, date: &str, size: u64) -> Validator {
        Validator::new(e_tag, Some(date.parse().expect("a date")), size)
    }

    const DAY: &str = "2026-01-02T03:04:05.700Z";
    const NONE: &str = "1970-01-01T00:00:00Z";

    /// The text of a file's version is what a listing said, and is asked for as that.
    #[test]
    fn a_version_has_one_text() {
        for (e_tag, date, text, asked) in [
            (Some("\"abc-2\""), DAY, "\"abc-2\" 7", Some("\"abc-2\"")),
            (Some("abc"), NONE, "\"abc\" 7", Some("\"abc\"")),
            (Some("\"a b 5\""), DAY, "\"a b 5\" 7", Some("\"a b 5\"")),
            (Some("\"W/x\""), DAY, "\"W/x\" 7", Some("\"W/x\"")),
            (Some("W/\"abc\""), DAY, "W/\"abc\" 1767323045 7", None),
            (Some("W/abc"), NONE, "W/\"abc\" 0 7", None),
            (None, DAY, "1767323045 7", None),
            (Some("\"\""), DAY, "1767323045 7", None),
            (Some("\"a\nb\""), DAY, "1767323045 7", None),
            (None, NONE, "0 7", None),
        ] {
            let listed = said(e_tag, date, 7);
            assert_eq!(listed.text(), text);
            let file = Meta {
                kind: Kind::File,
                size: 7,
                mtime_ns: listed.seconds().map_or(0, i128::from) * 1_000_000_000,
                permissions: 0,
                owner: None,
                version: text.as_bytes().into(),
            };
            let named = Validator::of_file(&file).expect("a version");
            assert_eq!(named.seconds(), listed.seconds());
            assert_eq!((named.text().as_str(), named.size()), (text, 7));
            assert_eq!(
                (named.alike(&listed), named.is_exact()),
                (Ok(()), asked.is_some())
            );
            let condition = named.condition();
            assert_eq!(condition.if_match.as_deref(), asked);
            let by_date = asked.is_none() && date == DAY;
            assert_eq!(condition.if_unmodified_since.is_some(), by_date, "{text}");
        }
        let bad = "|7|\"a\"|\"a\" -7|\"a\" +7|a 7|W/\"a\" 7|\"a\" 1 7|\"a 7|\"\" 7|05 7|-1 7| 7|\"a\n\" 7|9999999999999999999 7";
        for text in bad.split('|') {
            assert_eq!(Validator::parse(text), None, "{text}");
        }
    }

    /// An ETag, a date of January 2026 (or none) and a size.
    fn of(text: &str) -> Validator {
        let [e_tag, date, size] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let date = match date.split_once(':') {
            Some((day, second)) => format!("2026-01-{day}T03:04:{second}Z"),
            None => NONE.to_string(),
        };
        let size = size.parse().expect(text);
        said((e_tag != "-").then_some(e_tag), &date, size)
    }

    /// A listing or an earlier reply, a reply, and whether this is of the same version. A listing and the first reply agree in ETag, or in
    /// date and size; then replies must agree with the first one. An empty ETag is none.
    const PAIRS: &str = "\
        list: \"a\" 02:05.7 7 | a - 7            | same
        list: \"a\" 02:05.7 7 | W/\"a\" - 7      | same
        list: W/\"a\" - 7     | \"a\" 02:05.7 7  | same
        list: \"a\" 02:05.7 7 | \"a\" 03:00 7    | same
        list: - 02:05.7 7     | \"a\" 02:05 7    | same
        list: \"a\" 02:05.7 7 | - 02:05 7        | same
        list: \"a\" 02:05.7 7 | - - 7            | same
        list: \"a\" 02:05.7 7 | \"b\" 02:05 7    | same
        list: \"a\" 02:05.7 7 | \"b\" 02:06 7    | other
        list: \"a\" 02:05.7 7 | \"b\" - 7        | other
        list: \"a\" - 7       | \"b\" - 7        | other
        list: - 02:05.7 7     | \"a\" 02:06 7    | other
        list: \"a\" 02:05.7 7 | \"a\" 02:05.7 8  | other
        reply: \"a\" 02:05.7 7 | W/a - 7         | same
        reply: \"a\" 02:05.7 7 | - 02:05.7 7     | other
        reply: \"a\" 02:05.7 7 | \"b\" 02:05.7 7 | other
        reply: \"\" 02:05.7 7  | W/\"\" 02:05.7 7 | same
        reply: - 02:05.7 7    | - 02:06.7 7      | other
        reply: - 02:05.7 7    | - - 7            | other
        reply: - 02:05.7 7    | - 02:05.7 8      | other
        reply: - 02:05.7 7    | \"a\" 02:05.7 7  | other
        reply: - - 7          | - - 7            | same
        reply: - - 7          | - 02:05.7 7      | other";

    #[test]
    fn versions_are_compared_by_common_fields() {
        for row in PAIRS.lines() {
            let [known, reply, is] = row.split('|').collect::<Vec<_>>()[..] else {
                panic!("{row}")
            };
            let (from, known) = known.split_once(':').expect(row);
            let is_listed = from.trim() == "list";
            let reply = of(reply);
            let version = match is_listed {
                true => Version::listed(of(known)),
                false => Version::replied(of(known)),
            };
            let is_same = is.trim() == "same";
            assert_eq!(version.check(&reply).is_ok(), is_same, "{row}");
            // A reply of another version settles nothing.
            assert_eq!(version.is_listed(), is_listed && !is_same, "{row}");
            if is_same {
                assert_eq!(version.check(&reply), Ok(()), "{row}");
                let other = said(Some("\"c\""), DAY, reply.size());
                assert!(version.check(&other).is_err(), "{row}");
            }
        }
        let version = Version::replied(of("\"a\" 02:05.7 7"));
        assert_eq!(version.check(&of("- 02:05.7 7")), Err(Refusal::NoEtag));
    }
}
