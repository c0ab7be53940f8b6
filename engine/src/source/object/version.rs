//! Which version of an object is read, and whether a reply is of that one.
//!
//! A version comes from a reply, or from a listing. Servers write one ETag in several ways: without quotes, as weak, in the listing alone,
//! or as another one there than with the object. So what a listing said is compared by its ETag where that is the same, else by date and
//! size; from the first reply on the version is what that reply said. Never: asks the server.
//!
//! ```text
//!   of a reply     strong ETag     If-Match with every request      the reply's ETag and size must be the same
//!                  weak ETag       (If-Match would always fail)     ETag, date and size
//!                  a date only     If-Unmodified-Since              date and size
//!                  neither         nothing                          size
//!   of a listing   the same        until the first reply            ETag and size; or date and size
//! ```
//! Example: a listing has "a1", 10:00:00.7 and 5 bytes; the first reply says W/"b2", 10:00:00, 5 bytes: the same date and size. From now on
//! it is W/"b2" that must come.

use super::page::generation_of_etag;
use super::refusal::Refusal;
use crate::source::tree::Meta;
use chrono::{DateTime, Utc};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

#[derive(Debug)]
pub struct Version {
    /// Where it was learned first.
    meta: ObjectMeta,
    /// What the first reply said.
    replied: OnceLock<ObjectMeta>,
}

impl Version {
    /// Of a reply.
    pub fn new(meta: ObjectMeta) -> Version {
        Version {
            replied: OnceLock::from(meta.clone()),
            meta,
        }
    }

    pub fn listed(meta: ObjectMeta) -> Version {
        Version {
            meta,
            replied: OnceLock::new(),
        }
    }

    /// Of an object without bytes, as far as its server says.
    pub fn empty(
        location: Path,
        e_tag: Option<String>,
        modified: Option<DateTime<Utc>>,
    ) -> Version {
        Version::new(ObjectMeta {
            location,
            last_modified: modified.unwrap_or_default(),
            size: 0,
            e_tag,
            version: None,
        })
    }

    /// Of the attributes of a file, which a listing had.
    pub fn of_file(meta: &Meta, location: Path) -> Option<Version> {
        let etag = std::str::from_utf8(&meta.version)
            .ok()?
            .rsplitn(3, ' ')
            .nth(2)?;
        let e_tag = Some(etag).filter(|etag| !etag.is_empty());
        let e_tag = e_tag.map(|etag| {
            if is_strong(etag) {
                format!("\"{etag}\"")
            } else {
                etag.to_string()
            }
        });
        let modified = Duration::from_nanos(u64::try_from(meta.mtime_ns).unwrap_or(0));
        let last_modified = (SystemTime::UNIX_EPOCH + modified).into();
        Some(Version::listed(ObjectMeta {
            location,
            last_modified,
            size: meta.size,
            e_tag,
            version: None,
        }))
    }

    /// Of what is kept elsewhere, in the form of [`Version::exact_text`]; nothing where that is no text of a version.
    pub fn of_exact_text(text: &str, location: Path) -> Option<Version> {
        let (etag, size) = text.rsplit_once(' ')?;
        let is_tag = |byte: u8| byte.is_ascii_graphic() && byte != b'"';
        if etag.is_empty() || !etag.bytes().all(is_tag) {
            return None;
        }
        Some(Version::new(ObjectMeta {
            location,
            last_modified: SystemTime::UNIX_EPOCH.into(),
            size: size.parse().ok()?,
            e_tag: Some(format!("\"{etag}\"")),
            version: None,
        }))
    }

    /// When it was written, where a reply or a listing said so.
    pub fn modified_ns(&self) -> Option<i128> {
        let since =
            SystemTime::from(self.meta.last_modified).duration_since(SystemTime::UNIX_EPOCH);
        let ns = since.ok()?.as_nanos();
        i128::try_from(ns).ok().filter(|ns| *ns > 0)
    }

    /// What a listing said, taken for what replies say: each of them has to have this very ETag.
    pub fn into_replied(self) -> Version {
        Version::new(self.meta)
    }

    /// By a strong ETag, which no other version has.
    pub fn is_exact(&self) -> bool {
        let etag = self.now().e_tag.as_deref();
        etag.is_some_and(|etag| is_strong(etag) && !tag(etag).is_empty())
    }

    fn now(&self) -> &ObjectMeta {
        self.replied.get().unwrap_or(&self.meta)
    }

    /// No reply has said yet which version this is.
    pub fn is_listed(&self) -> bool {
        self.replied.get().is_none()
    }

    /// The first reply had the ETag of the listing.
    pub fn is_as_listed(&self) -> bool {
        let tag_of = |meta: &ObjectMeta| meta.e_tag.as_deref().map(|etag| tag(etag).to_string());
        tag_of(self.now()) == tag_of(&self.meta)
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.meta.size
    }

    /// Text that differs where versions differ, as far as listings say.
    pub fn text(&self) -> String {
        let etag = self.meta.e_tag.as_deref().unwrap_or_default();
        // The date of a strong ETag is of no meaning.
        let date = if is_strong(etag) && !etag.is_empty() {
            0
        } else {
            self.meta.last_modified.timestamp()
        };
        format!("{} {date} {}", etag.trim_matches('"'), self.meta.size)
    }

    /// Its ETag and its size.
    pub fn exact_text(&self) -> String {
        let etag = self.now().e_tag.as_deref().unwrap_or_default();
        format!("{} {}", tag(etag), self.size())
    }

    /// Seconds since 1970; nothing where the server did not say.
    pub fn modified(&self) -> Option<u64> {
        modified(self.now())
    }

    /// By what a change is noticed.
    pub fn told_by(&self) -> &'static str {
        match (&self.now().e_tag, self.modified()) {
            (Some(etag), _) if generation_of_etag(etag).is_some() => "generation",
            (Some(etag), _) if is_strong(etag) => "ETag",
            (Some(_), Some(_)) => "weak ETag, date and size",
            (Some(_), None) => "weak ETag and size",
            (None, Some(_)) => "date and size",
            (None, None) => "size alone",
        }
    }

    /// Asks for this version only, as far as the server can be asked.
    pub fn condition(&self) -> GetOptions {
        let own = self.now();
        let strong = own
            .e_tag
            .as_deref()
            .filter(|etag| is_strong(etag))
            .map(|etag| format!("\"{}\"", tag(etag)));
        let date = self
            .modified()
            .filter(|_| strong.is_none())
            .map(|_| own.last_modified);
        GetOptions {
            if_match: strong,
            if_unmodified_since: date,
            ..GetOptions::default()
        }
    }

    /// Asks for any other version only.
    pub fn condition_unless(&self) -> GetOptions {
        GetOptions {
            if_none_match: self.condition().if_match,
            ..GetOptions::default()
        }
    }

    /// Is another answer about the object of this version?
    pub fn same(&self, other: &Version) -> Result<(), Refusal> {
        self.check(other.now())
    }

    /// What a refused part of this version means: only ranges inside of it are asked for, so an object that ends before that
    /// is another.
    pub fn refused(&self, refusal: Refusal) -> Refusal {
        let had = self.meta.size;
        match refusal {
            Refusal::Empty { .. } => Refusal::Changed(format!("it is empty, and had {had} bytes")),
            Refusal::PastEnd { size: None } => {
                Refusal::Changed(format!("it is shorter, and had {had} bytes"))
            }
            Refusal::PastEnd { size: Some(size) } if size < had => {
                Refusal::Changed(format!("it has {size} bytes, and had {had}"))
            }
            other => other,
        }
    }

    /// Is a reply of this version? The first one settles what a listing left open.
    pub fn check(&self, reply: &ObjectMeta) -> Result<(), Refusal> {
        if let Some(own) = self.replied.get() {
            return same(own, reply);
        }
        alike(&self.meta, reply)?;
        // Another part may have been answered meanwhile, and that answer counts.
        same(self.replied.get_or_init(|| reply.clone()), reply)
    }

    /// The same version, as far as both say: one of a listing, the other of a reply or of another listing.
    pub fn is_alike(&self, other: &Version) -> bool {
        alike(self.now(), other.now()).is_ok()
    }
}

/// Compares what two replies say.
fn same(own: &ObjectMeta, reply: &ObjectMeta) -> Result<(), Refusal> {
    same_size(own, reply)?;
    match (&own.e_tag, &reply.e_tag) {
        (Some(_), None) => return Err(Refusal::NoEtag),
        // Without an ETag it was told by date and size, or size alone, which another version may have as well.
        (None, Some(_)) => {
            return Err(Refusal::Changed(
                "it has an ETag now, and had none".to_string(),
            ));
        }
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

/// Compares what a listing says with a reply.
fn alike(listed: &ObjectMeta, reply: &ObjectMeta) -> Result<(), Refusal> {
    same_size(listed, reply)?;
    let dates = modified(listed).zip(modified(reply));
    match (&listed.e_tag, &reply.e_tag) {
        (Some(mine), Some(theirs)) if tag(mine) == tag(theirs) => Ok(()),
        (Some(_), Some(_)) if dates.is_none_or(|(mine, theirs)| mine != theirs) => {
            Err(Refusal::Changed("its ETag is another".to_string()))
        }
        _ if dates.is_some_and(|(mine, theirs)| mine != theirs) => {
            Err(Refusal::Changed("its date is another".to_string()))
        }
        _ => Ok(()),
    }
}

fn same_size(own: &ObjectMeta, reply: &ObjectMeta) -> Result<(), Refusal> {
    if reply.size == own.size {
        return Ok(());
    }
    Err(Refusal::Changed(format!(
        "it has {} bytes, and had {}",
        reply.size, own.size
    )))
}

/// Seconds since 1970, in which HTTP counts; nothing where nothing was said.
fn modified(of: &ObjectMeta) -> Option<u64> {
    u64::try_from(of.last_modified.timestamp())
        .ok()
        .filter(|&seconds| seconds > 0)
}

fn is_strong(etag: &str) -> bool {
    !etag.starts_with("W/")
}

/// What an ETag says, however it is written.
fn tag(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Bytes that are asked for when an object is opened. Chosen: 1.3 ms of a connection of 100 MB/s, and the largest read of the
/// kernel above a mount.
pub const FIRST_BYTES: u64 = 128 << 10;
/// Fetches behind them after which they are dropped. Chosen: more than a read is cut into, since the pieces of one come in any order.
const MAX_ELSEWHERE: u32 = 16;
/// Bytes that are held for objects that are open and were not read yet, in this process: 128 objects.
const MAX_HELD: u64 = 16 << 20;

static HELD: AtomicU64 = AtomicU64::new(0);

/// Leave to hold the first bytes of one object.
#[derive(Debug)]
pub struct Room;

impl Room {
    /// Nothing where as many are held as there may be.
    pub fn take() -> Option<Room> {
        let more = |held: u64| Some(held + FIRST_BYTES).filter(|held| *held <= MAX_HELD);
        HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()
            .map(|_| Room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        HELD.fetch_sub(FIRST_BYTES, Ordering::Relaxed);
    }
}

/// The first bytes of an object, which come with the answer that names its version.
///
/// An object is opened by a request for its first bytes: the answer has the version, and a reader that begins at the front has
/// its bytes after one round trip and not after two. An object of up to [`FIRST_BYTES`] is read by that request alone.
/// Never: keeps more than [`MAX_HELD`] bytes for all objects, or gives a byte of another version.
///
/// ```text
///   open ──► held ──a fetch takes some of them──► held
///                 └─as many were taken; MAX_ELSEWHERE fetches began behind them; another version──► dropped
/// ```
/// Example: an object of 1 MiB. The fetch of 0..64 KiB takes its bytes from here. The next, of 64..256 KiB, takes 64 KiB
/// and asks the server for the rest; nothing is held then.
#[derive(Default)]
pub struct FirstBytes(Mutex<Option<FirstPart>>);

struct FirstPart {
    bytes: Arc<[u8]>,
    /// Bytes that fetches took.
    taken: usize,
    /// Fetches that began behind them.
    elsewhere: u32,
    _room: Room,
}

impl FirstBytes {
    pub fn new(bytes: Vec<u8>, room: Option<Room>) -> FirstBytes {
        let held = |room| FirstPart {
            bytes: bytes.into(),
            taken: 0,
            elsewhere: 0,
            _room: room,
        };
        FirstBytes(Mutex::new(
            room.map(held).filter(|held| !held.bytes.is_empty()),
        ))
    }

    /// Those of `range` that are held, which are its front, passed to `with`.
    pub fn front<T>(&self, range: &Range<u64>, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let (bytes, end) = {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let held = first.as_mut()?;
            let bytes = Arc::clone(&held.bytes);
            let end = range.end.min(bytes.len() as u64);
            held.taken += end.saturating_sub(range.start) as usize;
            held.elsewhere += u32::from(range.start >= end);
            if held.taken >= bytes.len() || held.elsewhere == MAX_ELSEWHERE {
                *first = None;
            }
            (bytes, end)
        };
        bytes
            .get(range.start as usize..end as usize)
            .filter(|front| !front.is_empty())
            .map(with)
    }

    /// Of another version.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tree::Kind;

    fn meta(etag: Option<&str>, date: &str, size: u64) -> ObjectMeta {
        let last_modified = date.parse().expect("a date");
        ObjectMeta {
            location: Path::from("a"),
            last_modified,
            size,
            e_tag: etag.map(str::to_string),
            version: None,
        }
    }

    const DAY: &str = "2026-01-02T03:04:05.700Z";
    const NONE: &str = "1970-01-01T00:00:00Z";

    /// What the attributes of a file say is asked for as what the listing said.
    #[test]
    fn the_attributes_of_a_file_name_its_version() {
        for (etag, asked) in [
            (Some("\"abc-2\""), Some("\"abc-2\"")),
            (Some("abc"), Some("\"abc\"")),
            (Some("\"with space\""), Some("\"with space\"")),
            (Some("W/\"abc\""), None),
            (None, None),
        ] {
            let listed = Version::listed(meta(etag, DAY, 7));
            let (kind, version) = (Kind::File, listed.text().into_bytes().into());
            let file = Meta {
                kind,
                size: 7,
                mtime_ns: 1_767_323_045_000_000_000,
                permissions: 0,
                owner: None,
                version,
            };
            let named = Version::of_file(&file, Path::from("a")).expect("a version");
            let condition = named.condition();
            assert_eq!((condition.if_match.as_deref(), named.size()), (asked, 7));
            assert_eq!(condition.if_unmodified_since.is_some(), asked.is_none());
            assert!(
                named.text() == listed.text() && named.is_alike(&listed),
                "{etag:?}"
            );
        }
    }

    /// A listing and the first reply agree in ETag, or in date and size; then replies must agree with the first one.
    #[test]
    fn a_listing_is_compared_in_what_both_say_and_replies_with_the_first() {
        let a = Some("\"a\"");
        for (listed, reply, is_same) in [
            (meta(a, DAY, 7), meta(Some("a"), NONE, 7), true),
            (meta(a, DAY, 7), meta(Some("W/\"a\""), NONE, 7), true),
            (meta(Some("W/\"a\""), NONE, 7), meta(a, DAY, 7), true),
            (meta(a, DAY, 7), meta(a, "2026-01-03T00:00:00Z", 7), true),
            (meta(None, DAY, 7), meta(a, "2026-01-02T03:04:05Z", 7), true),
            (meta(a, DAY, 7), meta(None, "2026-01-02T03:04:05Z", 7), true),
            (meta(a, DAY, 7), meta(None, NONE, 7), true),
            (
                meta(a, DAY, 7),
                meta(Some("\"b\""), "2026-01-02T03:04:05Z", 7),
                true,
            ),
            (
                meta(a, DAY, 7),
                meta(Some("\"b\""), "2026-01-02T03:04:06Z", 7),
                false,
            ),
            (meta(a, DAY, 7), meta(Some("\"b\""), NONE, 7), false),
            (meta(a, NONE, 7), meta(Some("\"b\""), NONE, 7), false),
            (
                meta(None, DAY, 7),
                meta(a, "2026-01-02T03:04:06Z", 7),
                false,
            ),
            (meta(a, DAY, 7), meta(a, DAY, 8), false),
        ] {
            let version = Version::listed(listed.clone());
            assert_eq!(
                version.check(&reply).is_ok(),
                is_same,
                "{listed:?} {reply:?}"
            );
            assert_eq!(
                version.is_listed(),
                !is_same,
                "a reply of another version settles nothing"
            );
            if is_same {
                assert_eq!(version.check(&reply), Ok(()));
                let other = ObjectMeta {
                    e_tag: Some("\"c\"".to_string()),
                    ..reply.clone()
                };
                assert!(version.check(&other).is_err(), "{reply:?}");
            }
        }
        let version = Version::new(meta(a, DAY, 7));
        assert_eq!(version.check(&meta(Some("W/a"), NONE, 7)), Ok(()));
        assert_eq!(version.check(&meta(None, DAY, 7)), Err(Refusal::NoEtag));
        assert!(
            version.check(&meta(Some("\"b\""), DAY, 7)).is_err(),
            "what a reply said is no listing"
        );
    }
}

#[cfg(test)]
mod first_tests {
    use super::*;

    #[test]
    fn they_are_held_until_as_many_were_taken() {
        let first = || FirstBytes::new((0..100).collect(), Room::take());
        let front = |first: &FirstBytes, range| first.front(&range, <[u8]>::to_vec);
        let held = first();
        assert_eq!(
            front(&held, 50..200),
            Some((50..100).collect()),
            "the pieces of a read, in any order"
        );
        assert_eq!(front(&held, 0..10), Some((0..10).collect()));
        assert_eq!(front(&held, 10..50), Some((10..50).collect()));
        assert_eq!(front(&held, 0..10), None, "dropped");
        let held = first();
        for _ in 1..MAX_ELSEWHERE {
            assert_eq!(front(&held, 100..101), None);
        }
        assert_eq!(front(&held, 0..1), Some(vec![0]));
        assert_eq!((front(&held, 100..101), front(&held, 0..1)), (None, None));
        let held = first();
        held.forget();
        assert_eq!(front(&held, 0..1), None);
        assert!(front(&FirstBytes::new(Vec::new(), Room::take()), 0..1).is_none());
    }

    /// The other test of this file holds one at most.
    #[test]
    fn there_is_room_for_so_many() {
        let rooms: Vec<Room> = std::iter::from_fn(Room::take).take(1000).collect();
        assert!((100..=128).contains(&rooms.len()), "{}", rooms.len());
        drop(rooms);
        assert!(Room::take().is_some());
    }
}
