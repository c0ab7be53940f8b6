//! A compact listing of a folder: names and attributes, for folders with a million objects.
//!
//! Each name takes one record in a large block of memory, and four bytes in an index of these records. A [`Meta`] or an [`Entry`] is
//! created from the record each time that a caller requests it. An ETag of 32 hex digits takes 16 bytes, and a number takes as many bytes
//! as it needs.
//!
//! ```text
//!   places  ─► flags │ length, name │ size, seconds, permissions, owner │ version      sorted by name at the end
//!   example:     1        1 + 15         3       5          2                  16          = 43 bytes, and 4 of its place
//! ```
//! Memory is counted towards the process's limit ([`NameBytes`]) when it is allocated, before a name is stored in it. Once sorted, a
//! listing never contains a name twice.

use super::account::NameBytes;
use super::{Entry, Kind, Meta};
use memmap2::MmapMut;
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Maximum bytes of a piece of memory: the first piece is small, and each next one is twice as large as the one before.
const PIECE_BYTES: usize = 1 << PIECE_BITS;
const PIECE_BITS: u32 = 18;
const FIRST_BYTES: usize = 1 << 10;
/// Maximum pieces: a place of four bytes cannot address more.
const MAX_PIECES: usize = 1 << (u32::BITS - PIECE_BITS);
const NANOS: i128 = 1_000_000_000;

/// The optional fields of a record; its two lowest bits are its kind.
mod has {
    pub const META: u8 = 4;
    pub const OWNER: u8 = 8;
    /// This bit means that the version is stored as two parts: a strong ETag of 16 bytes in hex digits, and the size of the object.
    pub const DIGEST: u8 = 16;
    /// This bit means that the time is stored in whole seconds.
    pub const SECONDS: u8 = 32;
}

/// The names in one folder, and the attributes of each name in the listing.
#[derive(Debug, Default)]
pub struct FolderNames {
    pieces: Vec<Piece>,
    places: Vec<u32>,
    bytes: NameBytes,
}

/// Memory for records. A large piece is mapped directly from the system, and returned at once: memory that an allocator keeps
/// from a listing would stay with the process, and the next listing would add to it.
#[derive(Debug)]
struct Piece {
    memory: PieceMemory,
    len: usize,
}

#[derive(Debug)]
enum PieceMemory {
    Small(Box<[u8]>),
    Mapped(MmapMut),
}

impl Piece {
    /// Returns `None` if the system has no memory.
    fn new(bytes: usize) -> Option<Piece> {
        let memory = if bytes < PIECE_BYTES {
            PieceMemory::Small(vec![0; bytes].into())
        } else {
            PieceMemory::Mapped(crate::system::map(bytes).ok()?)
        };
        Some(Piece { memory, len: 0 })
    }

    fn bytes(&self) -> &[u8] {
        match &self.memory {
            PieceMemory::Small(bytes) => bytes,
            PieceMemory::Mapped(bytes) => bytes,
        }
    }

    /// Adds a record. Returns where it is, or `None` if there is no room.
    fn push(&mut self, record: &[u8]) -> Option<usize> {
        let at = self.len;
        let bytes = match &mut self.memory {
            PieceMemory::Small(bytes) => &mut bytes[..],
            PieceMemory::Mapped(bytes) => &mut bytes[..],
        };
        // A place can address no more bytes than a usual piece has.
        let room = bytes
            .get_mut(at..at + record.len())
            .filter(|_| at < PIECE_BYTES)?;
        room.copy_from_slice(record);
        self.len += record.len();
        Some(at)
    }
}

impl FolderNames {
    /// Returns the number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns how many bytes of memory these names use, as counted towards the process's limit for names.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.bytes()
    }

    /// Adds a name. Returns false if the name would exceed the memory limit.
    #[must_use]
    pub fn push(&mut self, name: &OsStr, kind: Kind, meta: Option<&Meta>) -> bool {
        let record = record(name.as_bytes(), kind, meta);
        if self.places.len() == self.places.capacity() {
            let more = (self.places.len() / 2).max(64);
            if !self.bytes.grow(4 * more as u64) {
                return false;
            }
            self.places.reserve_exact(more);
        }
        let fits = self.pieces.last_mut().and_then(|piece| piece.push(&record));
        let Some(at) = fits.or_else(|| self.push_piece(&record)) else {
            return false;
        };
        let piece = self.pieces.len() - 1;
        self.places.push((piece as u32) << PIECE_BITS | at as u32);
        true
    }

    /// Adds a record in a new piece.
    fn push_piece(&mut self, record: &[u8]) -> Option<usize> {
        let usual = self.pieces.last().map_or(FIRST_BYTES, |last| {
            (2 * last.bytes().len()).clamp(FIRST_BYTES, PIECE_BYTES)
        });
        // A record that is longer than a piece gets a piece to itself.
        let bytes = usual.max(record.len());
        if self.pieces.len() == MAX_PIECES || !self.bytes.grow(bytes as u64) {
            return None;
        }
        let mut piece = Piece::new(bytes)?;
        let at = piece.push(record);
        self.pieces.push(piece);
        at
    }

    /// Sorts the complete listing, and removes duplicates: of several equal names it keeps a folder, or else the first. `hidden` is
    /// called with the name of each file that was removed because a folder has the same name.
    pub fn sort(&mut self, hidden: &mut dyn FnMut(&OsStr)) {
        let FolderNames { pieces, places, .. } = self;
        let key = |place: u32| {
            let record = at(pieces, place);
            (name(record), kind(record) != Kind::Folder)
        };
        if !places.is_sorted_by(|&a, &b| key(a).0 < key(b).0) {
            places.sort_by(|&a, &b| key(a).cmp(&key(b)));
            places.dedup_by(|b, a| {
                let ((name, is_file), (before, other)) = (key(*b), key(*a));
                if name == before && is_file && !other {
                    hidden(OsStr::from_bytes(name));
                }
                name == before
            });
        }
    }

    fn record(&self, index: usize) -> Option<&[u8]> {
        self.places.get(index).map(|&place| at(&self.pieces, place))
    }

    /// Returns the name at an index.
    #[must_use]
    pub fn name(&self, index: usize) -> Option<&OsStr> {
        self.record(index)
            .map(|record| OsStr::from_bytes(name(record)))
    }

    /// Returns the kind of the name at an index.
    #[must_use]
    pub fn kind(&self, index: usize) -> Option<Kind> {
        self.record(index).map(kind)
    }

    /// Returns the attributes of the name at an index, if the listing has more than the kind.
    #[must_use]
    pub fn meta(&self, index: usize) -> Option<Meta> {
        self.record(index).and_then(meta)
    }

    /// Returns the entry at an index: name, kind and attributes.
    #[must_use]
    pub fn entry(&self, index: usize) -> Option<Entry> {
        let record = self.record(index)?;
        Some(Entry {
            name: OsStr::from_bytes(name(record)).into(),
            kind: kind(record),
            meta: meta(record),
        })
    }

    /// Returns all entries in their order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.len()).filter_map(|index| self.entry(index))
    }

    /// Returns the index of a name in the sorted listing. `near` is a guess of that index, which makes the search faster.
    #[must_use]
    pub fn find(&self, wanted: &OsStr, near: usize) -> Option<usize> {
        if self.name(near) == Some(wanted) {
            return Some(near);
        }
        let by_name = |&place: &u32| name(at(&self.pieces, place)).cmp(wanted.as_bytes());
        self.places.binary_search_by(by_name).ok()
    }

    /// Returns true if two entries have equal names and equal attributes.
    #[must_use]
    pub fn is_same(&self, index: usize, other: &FolderNames, at: usize) -> bool {
        self.record(index) == other.record(at)
    }

    /// Compares two names.
    #[must_use]
    pub fn order(&self, index: usize, other: &FolderNames, at: usize) -> Ordering {
        self.name(index).cmp(&other.name(at))
    }
}

/// The bytes from a place to the end of its piece.
fn tail(pieces: &[Piece], place: u32) -> &[u8] {
    &pieces[(place >> PIECE_BITS) as usize].bytes()[(place & (PIECE_BYTES as u32 - 1)) as usize..]
}

fn at(pieces: &[Piece], place: u32) -> &[u8] {
    let mut rest = tail(pieces, place);
    let len = number(&mut rest) as usize;
    &rest[..len]
}

fn record(name: &[u8], kind: Kind, meta: Option<&Meta>) -> Vec<u8> {
    let mut flags = match kind {
        Kind::File => 0,
        Kind::Folder => 1,
        Kind::Link => 2,
    };
    let mut body = Vec::with_capacity(64 + name.len());
    put(&mut body, name.len() as u64);
    body.extend(name);
    if let Some(meta) = meta {
        flags |= has::META;
        put(&mut body, meta.size);
        let seconds = u64::try_from(meta.mtime_ns / NANOS);
        match seconds {
            Ok(seconds) if meta.mtime_ns % NANOS == 0 => {
                flags |= has::SECONDS;
                put(&mut body, seconds);
            }
            _ => body.extend(meta.mtime_ns.to_le_bytes()),
        }
        put(&mut body, u64::from(meta.permissions));
        if let Some((user, group)) = meta.owner {
            flags |= has::OWNER;
            put(&mut body, u64::from(user));
            put(&mut body, u64::from(group));
        }
        match digest(meta) {
            Some(digest) => {
                flags |= has::DIGEST;
                body.extend(digest);
            }
            None => body.extend(&*meta.version),
        }
    }
    let mut record = Vec::with_capacity(body.len() + 8);
    put(&mut record, body.len() as u64 + 1);
    record.push(flags);
    record.extend(body);
    record
}

fn kind(record: &[u8]) -> Kind {
    match record[0] & 3 {
        0 => Kind::File,
        1 => Kind::Folder,
        _ => Kind::Link,
    }
}

fn name(record: &[u8]) -> &[u8] {
    let mut rest = &record[1..];
    let len = number(&mut rest) as usize;
    &rest[..len]
}

fn meta(record: &[u8]) -> Option<Meta> {
    let (flags, mut rest) = (record[0], &record[1..]);
    let len = number(&mut rest) as usize;
    rest = &rest[len..];
    if flags & has::META == 0 {
        return None;
    }
    let size = number(&mut rest);
    let mtime_ns = if flags & has::SECONDS != 0 {
        i128::from(number(&mut rest)) * NANOS
    } else {
        i128::from_le_bytes(take(&mut rest))
    };
    let permissions = number(&mut rest) as u16;
    let owner =
        (flags & has::OWNER != 0).then(|| (number(&mut rest) as u32, number(&mut rest) as u32));
    let version: Arc<[u8]> = if flags & has::DIGEST != 0 {
        let digest = u128::from_be_bytes(take(&mut rest));
        version(digest, size).into_bytes().into()
    } else {
        rest.into()
    };
    Some(Meta {
        kind: kind(record),
        size,
        mtime_ns,
        permissions,
        owner,
        version,
    })
}

fn version(digest: u128, size: u64) -> String {
    format!("\"{digest:032x}\" {size}")
}

/// The 16 bytes of a version that has exactly this text form.
fn digest(meta: &Meta) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(&meta.version).ok()?;
    let digest = u128::from_str_radix(text.get(1..33)?, 16).ok()?;
    (version(digest, meta.size) == text).then(|| digest.to_be_bytes())
}

/// Seven bits per byte, the lowest first; the highest bit is set if more bytes follow.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn number(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = take(bytes);
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (taken, rest) = bytes.split_at(N);
    *bytes = rest;
    taken.try_into().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta_of(version: &[u8], mtime_ns: i128, owner: Option<(u32, u32)>) -> Meta {
        Meta {
            kind: Kind::File,
            size: 1 << 40,
            mtime_ns,
            permissions: 0o644,
            owner,
            version: version.into(),
        }
    }

    #[test]
    fn values_round_trip() {
        let size = 1_u64 << 40;
        let versions = [
            format!("\"d41d8cd98f00b204e9800998ecf8427e\" {size}"),
            format!("\"D41D8CD98F00B204E9800998ECF8427E\" {size}"),
            format!("W/\"d41d8cd98f00b204e9800998ecf8427e\" 7 {size}"),
            format!("d41d8cd98f00b204e9800998ecf8427e {size}"),
            "\"d41d8cd98f00b204e9800998ecf8427e\" 12".to_string(),
            "\"d41d8cd98f00b204e9800998ecf8427e-12\" 5".to_string(),
            "\"d41d8cd98f00b204e9800998ecf8427\u{e4}\" 5".to_string(),
            String::new(),
            "x".repeat(PIECE_BYTES + 1),
        ];
        let times = [0, 1, 5 * NANOS, -7, i128::MAX, i128::MIN];
        let mut names = FolderNames::default();
        let mut entries = Vec::new();
        for (n, version) in versions.iter().enumerate() {
            for (m, time) in times.into_iter().enumerate() {
                let owner = [None, Some((0, u32::MAX))][m % 2];
                entries.push(Entry {
                    name: format!("{n}-{m}").into(),
                    kind: Kind::File,
                    meta: Some(meta_of(version.as_bytes(), time, owner)),
                });
            }
        }
        entries.push(Entry {
            name: OsStr::from_bytes(b"\xff\xfe").into(),
            kind: Kind::Link,
            meta: None,
        });
        for Entry { name, kind, meta } in &entries {
            assert!(names.push(name, *kind, meta.as_ref()));
        }
        assert_eq!(names.entries().collect::<Vec<_>>(), entries);
        assert!(names.entry(names.len()).is_none());
    }

    #[test]
    fn names_are_sorted_once_and_found() {
        let mut names = FolderNames::default();
        let (file, folder) = (Kind::File, Kind::Folder);
        for (name, kind) in [
            ("b", file),
            ("a", file),
            ("c", folder),
            ("a", folder),
            ("c", file),
            ("b", file),
        ] {
            assert!(names.push(OsStr::new(name), kind, None));
        }
        let mut hidden = Vec::new();
        names.sort(&mut |name| hidden.push(name.to_os_string()));
        assert_eq!(hidden, ["a", "c"], "b is there twice");
        let all: Vec<(&OsStr, Kind)> = (0..names.len())
            .filter_map(|n| names.name(n).zip(names.kind(n)))
            .collect();
        let expected = [("a", folder), ("b", file), ("c", folder)];
        assert_eq!(all, expected.map(|(name, kind)| (OsStr::new(name), kind)));
        for near in 0..4 {
            assert_eq!(names.find(OsStr::new("b"), near), Some(1));
            assert_eq!(names.find(OsStr::new("bb"), near), None);
        }
        // A server may give the folder first.
        let mut both = FolderNames::default();
        for kind in [folder, file] {
            assert!(both.push(OsStr::new("a"), kind, None));
        }
        both.sort(&mut |name| assert_eq!(name, "a"));
        assert_eq!((both.len(), both.kind(0)), (1, Some(folder)));
    }

    /// A million objects of a bucket, by the account: the figure of docs/stores.md.
    #[test]
    fn a_name_of_a_bucket_takes_less_than_64_bytes() {
        let mut names = FolderNames::default();
        let many = 100_000_u64;
        for n in 0..many {
            let version = format!("\"{n:032x}\" {n}");
            let meta = Meta {
                size: n,
                ..meta_of(version.as_bytes(), 1_700_000_000 * NANOS, None)
            };
            assert!(names.push(
                OsStr::new(&format!("image-{n:06}.jpg")),
                Kind::File,
                Some(&meta)
            ));
        }
        names.sort(&mut |_| {});
        let each = names.bytes() / many;
        assert!((40..64).contains(&each), "{each} bytes a name");
    }
}
