//! Open files and their readers: source, size and version.
//!
//! A file has a number from the time when its first reader opens until its last reader closes; then the number is reused. A listed file
//! gets its number before its first reader opens, and keeps it for as long as it is listed. When a source changes, its file gets a new
//! version number. Version numbers are unique over all files, so that a late answer from an old version is recognised.
//!
//! Example: file 0 is opened at version 1 and read by two readers. When its source changes, [`Files::change`] sets version 2 and size 0.
//! The thread that noticed the change asks the source for its size, and [`Files::accept`] sets it.
//!
//! ```text
//!   No ──change──► Due ──the noticing thread──► Asked ──accept: the size──► No
//! ```

use super::lock::Remote;
use crate::error::Fault;
use crate::source::Source;
use crate::store::SizedVersion;
use foreread_core::event::Error;
use foreread_core::machine::MAX_IDS;
use foreread_core::units::{ByteRange, FileId, OpenId};
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file description, with the file to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    pub file: FileId,
    pub open: OpenId,
}

/// A key that distinguishes a file from later files with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey {
    file: FileId,
    first_version: u64,
}

struct File {
    source: Remote<dyn Source>,
    /// Whether the source delivers its bytes in a stream.
    streams: bool,
    known: SizedVersion,
    accepting: VersionCheck,
    first_version: u64,
    /// Number of open descriptions. Closing the last one removes the file, unless it is listed.
    opens: u32,
    is_listed: bool,
    /// How long its storage took to answer when it was opened; consumed by its first reader.
    answer_ns: Option<u64>,
}

/// Whether a changed source has reported its new size. Until then nothing is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionCheck {
    /// It has reported its size, or it never changed.
    No,
    /// The thread that noticed the change still has to ask.
    Due,
    /// That thread is asking.
    Asked,
}

#[derive(Default)]
pub struct Files {
    /// Indexed by file number; `None` for a free number.
    files: Vec<Option<File>>,
    free_files: Vec<u32>,
    /// Number of versions so far, over all files.
    versions: u64,
    /// The file of each open description, by number; `None` for a free number.
    opens: Vec<Option<FileId>>,
    free_opens: Vec<u32>,
}

impl Files {
    // ---- getters ----

    /// Number of files that have a reader.
    pub fn len(&self) -> usize {
        self.files
            .iter()
            .flatten()
            .filter(|file| file.opens > 0)
            .count()
    }

    /// Number of open descriptions.
    pub fn opens(&self) -> usize {
        self.opens.len() - self.free_opens.len()
    }

    /// Size and version of the file; both are zero after its last reader has closed.
    #[inline]
    pub fn known(&self, file: FileId) -> SizedVersion {
        self.get(file)
            .map_or(SizedVersion::default(), |file| file.known)
    }

    /// Like [`Files::known`], but also returns true if the source has changed and has not reported its new size yet.
    #[inline]
    pub fn known_now(&self, file: FileId) -> (SizedVersion, bool) {
        self.get(file).map_or_else(Default::default, |file| {
            (file.known, file.accepting != VersionCheck::No)
        })
    }

    pub fn source(&self, file: FileId) -> Option<Remote<dyn Source>> {
        self.get(file).map(|file| file.source.share())
    }

    /// A key that distinguishes the file from later files with the same number.
    pub fn key(&self, file: FileId) -> Option<FileKey> {
        self.get(file).map(|entry| FileKey {
            file,
            first_version: entry.first_version,
        })
    }

    pub fn number(&self, key: FileKey) -> Option<FileId> {
        (self.key(key.file)? == key).then_some(key.file)
    }

    /// The number of the file, if it still exists and still has the version with which it was added.
    pub fn unchanged(&self, key: FileKey) -> Option<FileId> {
        self.number(key)
            .filter(|file| self.known(*file).version == key.first_version)
    }

    /// Whether the source delivers its bytes in a stream.
    pub fn streams(&self, file: FileId) -> bool {
        self.get(file).is_some_and(|file| file.streams)
    }

    /// Whether the file's source has changed and has not reported its new size yet.
    #[inline]
    pub fn is_accepting(&self, file: FileId) -> bool {
        self.get(file)
            .is_some_and(|file| file.accepting != VersionCheck::No)
    }

    fn get(&self, file: FileId) -> Option<&File> {
        self.files.get(file.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, file: FileId) -> Option<&mut File> {
        self.files.get_mut(file.0 as usize)?.as_mut()
    }

    // ---- files and readers ----

    /// Adds a file. Returns `None` if there are too many files.
    pub fn add(
        &mut self,
        source: Remote<dyn Source>,
        size: u64,
        streams: bool,
        answer_ns: Option<u64>,
    ) -> Option<FileId> {
        let number = take_number(&mut self.files, &mut self.free_files, MAX_IDS)?;
        self.versions += 1;
        let version = self.versions;
        self.files[number as usize] = Some(File {
            source,
            streams,
            known: SizedVersion { size, version },
            accepting: VersionCheck::No,
            first_version: version,
            opens: 0,
            is_listed: false,
            answer_ns,
        });
        Some(FileId(number))
    }

    /// Opens another reader, and returns it with the size of the file. Returns `None` if there are too many readers.
    pub fn open(&mut self, file: FileId) -> Option<(OpenId, u64)> {
        let entry = self.files.get_mut(file.0 as usize)?.as_mut()?;
        let open = take_number(&mut self.opens, &mut self.free_opens, MAX_IDS)?;
        entry.opens += 1;
        self.opens[open as usize] = Some(file);
        Some((OpenId(open), entry.known.size))
    }

    /// Closes a reader, and returns its file. Returns `None` if the reader is closed already.
    pub fn close(&mut self, open: OpenId) -> Option<FileId> {
        let file = self.opens.get_mut(open.0 as usize)?.take()?;
        self.free_opens.push(open.0);
        self.get_mut(file)?.opens -= 1;
        Some(file)
    }

    /// Whether the file has no reader and is not listed, and must be removed.
    pub fn is_unused(&self, file: FileId) -> bool {
        let file = self.get(file);
        file.is_some_and(|file| file.opens == 0 && !file.is_listed)
    }

    /// Returns and clears the response time of the file's storage; only the first reader of a file needs it.
    pub fn take_answer_ns(&mut self, file: FileId) -> Option<u64> {
        self.get_mut(file)?.answer_ns.take()
    }

    /// Marks the file as listed: it is kept even without a reader.
    pub fn list(&mut self, file: FileId) {
        if let Some(entry) = self.get_mut(file) {
            entry.is_listed = true;
        }
    }

    /// Marks the file as no longer listed, and returns it: it is kept only while it has a reader.
    pub fn unlist(&mut self, key: FileKey) -> Option<FileId> {
        let file = self.number(key)?;
        self.get_mut(file)?.is_listed = false;
        Some(file)
    }

    /// Frees a file's number. Returns the file's source, which the caller must drop without the lock.
    pub fn remove(&mut self, file: FileId) -> Option<Remote<dyn Source>> {
        let gone = self.files.get_mut(file.0 as usize)?.take()?;
        self.free_files.push(file.0);
        Some(gone.source)
    }

    // ---- versions ----

    /// Reports the size of this version of the source. Returns true if this size is larger than the size known before.
    pub fn grow(&mut self, file: FileId, version: u64, size: u64) -> bool {
        let entry = self.at_version(file, version);
        entry.is_some_and(|entry| {
            let before = entry.known.size;
            entry.known.size = before.max(size);
            size > before
        })
    }

    /// Reports that the source no longer has `version`. Returns true for the first report of this change. The new version can be read
    /// only after [`Files::accept`] has set its size, because the source is asked for the size without the lock.
    pub fn change(&mut self, file: FileId, version: u64) -> bool {
        let (size, next) = (0, self.versions + 1);
        let Some(entry) = self.at_version(file, version) else {
            return false;
        };
        entry.known = SizedVersion {
            size,
            version: next,
        };
        entry.accepting = VersionCheck::Due;
        self.versions = next;
        true
    }

    /// The file, if it has this version.
    fn at_version(&mut self, file: FileId, version: u64) -> Option<&mut File> {
        let file = self.get_mut(file)?;
        (file.known.version == version).then_some(file)
    }

    /// Returns a changed source that must be asked for its size, and the file's new version number. Only the first call after a change
    /// returns the source; the calling thread must ask the source for its size.
    pub fn begin_accept(&mut self, file: FileId) -> Option<(Remote<dyn Source>, u64)> {
        let entry = self.get_mut(file)?;
        if entry.accepting != VersionCheck::Due {
            return None;
        }
        entry.accepting = VersionCheck::Asked;
        Some((entry.source.share(), entry.known.version))
    }

    /// Sets the size that the source has reported. Returns false if the source has changed again or the file is closed.
    pub fn accept(&mut self, file: FileId, version: u64) -> bool {
        let entry = self.at_version(file, version);
        entry.is_some_and(|entry| {
            entry.accepting = VersionCheck::No;
            true
        })
    }
}

/// Takes an unused number below `limit`: a freed number, or the next new one.
fn take_number<T>(list: &mut Vec<Option<T>>, free: &mut Vec<u32>, limit: u32) -> Option<u32> {
    if let Some(number) = free.pop() {
        return Some(number);
    }
    let number = u32::try_from(list.len()).ok().filter(|&n| n < limit)?;
    list.push(None);
    Some(number)
}

/// The version of a source that a reader expects. The cursor decides whether a read may start.
///
/// Example: a reader opened at version 1 reads a file that is now at version 4. The read fails with `Changed`, and the cursor moves to
/// version 4; the next read is served from version 4. A reader that is pinned to version 1 keeps this version, and all its reads fail.
///
/// ```text
///   a newer version ──► Changed once ──► reads the new one
///                  └──► pinned: Changed, now and ever after
///   a larger size   ──► continues: the same version, longer
///                  └──► pinned to its size: Changed, now and ever after
/// ```
///
/// A pinned reader (a reader that never changes to another version) has reported a size to a client that has its own cache, such as an
/// NBD client. A sample of a file's bytes cannot prove that the file was only appended to. So a pinned reader treats a file with another
/// size as another version.
pub struct VersionCursor {
    version: AtomicU64,
    pin: Pin,
}

#[derive(Clone, Copy)]
enum Pin {
    /// Not pinned.
    No,
    /// Pinned to this version; it may grow.
    Version,
    /// Pinned to this version with this size.
    Exact(u64),
}

impl VersionCursor {
    pub fn new(version: u64) -> VersionCursor {
        VersionCursor {
            version: AtomicU64::new(version),
            pin: Pin::No,
        }
    }

    /// Pins the reader to its version, and also to `size` if a size is given.
    pub fn pin(&mut self, size: Option<u64>) {
        self.pin = size.map_or(Pin::Version, Pin::Exact);
    }

    /// The size that the reader is pinned to, if any.
    pub fn size(&self) -> Option<u64> {
        match self.pin {
            Pin::Exact(size) => Some(size),
            Pin::No | Pin::Version => None,
        }
    }

    /// The cursor for a clone of this reader, if the source is now at `version`. If the reader is pinned (never changes to another
    /// version), the clone is pinned to the same version.
    pub fn again(&self, version: u64) -> VersionCursor {
        let version = if self.is_pinned() {
            self.version.load(Ordering::Relaxed)
        } else {
            version
        };
        VersionCursor {
            version: AtomicU64::new(version),
            pin: self.pin,
        }
    }

    fn is_pinned(&self) -> bool {
        !matches!(self.pin, Pin::No)
    }

    /// Whether a read of a file with this version and size may start without further checks.
    #[inline]
    pub fn allows(&self, known: SizedVersion) -> bool {
        self.version.load(Ordering::Relaxed) == known.version
            && self.size().is_none_or(|pinned| pinned == known.size)
    }

    /// Whether the reader knows this version. If the reader knows another version, `version` is recorded as known from now on.
    pub fn knows(&self, version: u64) -> bool {
        let known = self.version.load(Ordering::Relaxed) == version;
        if !known {
            self.told(version);
        }
        known
    }

    /// Sets the version that the reader knows, unless the reader is pinned.
    pub fn told(&self, version: u64) {
        if !self.is_pinned() {
            self.version.store(version, Ordering::Relaxed);
        }
    }
}

/// Whether a read may start immediately, must wait until the source has reported its size, must first ask the source for its size, or has
/// already ended.
pub enum Admission {
    /// The read ends at once: the source has another version, or the range is beyond its end.
    Over(Result<usize, Fault>),
    /// The source has changed and its size is not known yet.
    Accepting,
    /// The read reaches the known end, so the source must be asked for its size.
    Ask,
    /// The source is being asked.
    Asking,
    Open,
}

/// Whether a read has already asked the source for its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeQuestion {
    NotAsked,
    Asking,
    Answered,
}

/// Decides whether a read of `range` may start on this file.
#[inline]
pub fn admit(
    files: &Files,
    file: FileId,
    cursor: &VersionCursor,
    range: ByteRange,
    question: SizeQuestion,
) -> Admission {
    let (known, accepting) = files.known_now(file);
    if !cursor.knows(known.version) {
        return Admission::Over(Err(Fault::Read(Error::Changed)));
    }
    if accepting {
        return Admission::Accepting;
    }
    match question {
        SizeQuestion::Asking => return Admission::Asking,
        SizeQuestion::NotAsked if range.end() > known.size && !range.is_empty() => {
            return Admission::Ask;
        }
        SizeQuestion::NotAsked | SizeQuestion::Answered => {}
    }
    if cursor.size().is_some_and(|pinned| pinned != known.size) {
        return Admission::Over(Err(Fault::Read(Error::Changed)));
    }
    if range.is_empty() || range.start() >= known.size {
        return Admission::Over(Ok(0));
    }
    Admission::Open
}

/// The result of a finished read. If the source grew during the read, some of the returned bytes may be newer than others.
#[inline]
pub fn settle(
    files: &Files,
    file: FileId,
    cursor: &VersionCursor,
    outcome: Result<usize, Fault>,
) -> Result<usize, Fault> {
    if cursor.size().is_none() && outcome.is_ok() {
        return outcome;
    }
    let known = files.known(file);
    let grew = cursor.size().is_some_and(|pinned| pinned != known.size);
    let outcome = if grew {
        outcome.and(Err(Fault::Read(Error::Changed)))
    } else {
        outcome
    };
    let is_changed = matches!(
        &outcome,
        Err(Fault::Read(Error::Changed) | Fault::Source(Error::Changed, _))
    );
    if is_changed {
        cursor.told(known.version);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_end_at_the_limit() {
        let (mut list, mut free): (Vec<Option<u8>>, Vec<u32>) = Default::default();
        let taken: Vec<Option<u32>> = (0..4)
            .map(|_| take_number(&mut list, &mut free, 3))
            .collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), None]);
        free.push(1);
        assert_eq!(
            (
                take_number(&mut list, &mut free, 3),
                take_number(&mut list, &mut free, 3)
            ),
            (Some(1), None)
        );
    }
}
