//! Limits of listings, listings that are used again or requested ahead, and how errors of the storage reach the program, the log and a
//! listing.

use super::*;
use crate::Options;
use crate::source::tree::{FolderNames, Single};
use crate::source::{Defaults, Source};
use std::collections::HashMap;
use std::sync::{Condvar, PoisonError};

fn meta(kind: Kind, size: u64) -> Meta {
    Meta {
        kind,
        size,
        mtime_ns: 0,
        permissions: 0o755,
        owner: None,
        version: Arc::default(),
    }
}

fn view(tree: impl Tree + 'static, options: Options) -> View {
    let engine = Engine::new(options.cache_bytes(8 << 20)).expect("an engine");
    View::new(Arc::new(tree), engine, &FuseSettings::default()).expect("a view")
}

#[test]
fn one_handle_too_many_is_refused() {
    let view = view(RefusingTree { of: "full" }, Options::default());
    let last = (0..MAX_HANDLES)
        .map(|_| view.open_folder(1).expect("a handle"))
        .last();
    assert_eq!(view.open_folder(1), Err(Errno::NFILE.raw_os_error()));
    view.release_folder(last.expect("many"));
    assert!(view.open_folder(1).is_ok(), "one that was given back");
}

/// A folder with three names: one can be looked up but not opened, one is gone, and one is refused. A folder in it cannot be listed,
/// and a link cannot be read.
struct RefusingTree {
    /// Makes the errors of each test unique, because the same line is logged only once a minute.
    of: &'static str,
}

impl RefusingTree {
    fn error(&self, what: &str, path: &Path) -> SourceError {
        let what = format!("{}: {what} {}", self.of, path.display());
        SourceError::io(Errno::ACCESS.raw_os_error(), what)
    }
}

impl Tree for RefusingTree {
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        if folder.as_os_str() == "folder" {
            return Err(self.error("list", folder));
        }
        let mut names = FolderNames::default();
        for name in ["good", "missing", "bad"] {
            assert!(names.push(name.as_ref(), Kind::File, None));
        }
        Ok(Arc::new(names))
    }

    fn lists_versions(&self) -> bool {
        true
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        let name = path.to_string_lossy();
        if name == "missing" {
            return Err(SourceError::io(
                Errno::NOENT.raw_os_error(),
                "look up missing",
            ));
        }
        if name == "bad" {
            return Err(self.error("look up", path));
        }
        let kind = match name == "good" {
            true => Kind::File,
            false => Kind::Folder,
        };
        Ok(meta(kind, 9))
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        Err(self.error("open", path))
    }

    fn link(&self, path: &Path) -> Result<PathBuf, SourceError> {
        Err(self.error("read link", path))
    }

    fn defaults(&self) -> Defaults {
        Defaults::MEMORY
    }

    fn describe(&self) -> String {
        "refusing".to_string()
    }
}

#[test]
fn storage_errors_are_logged_but_not_missing_names() {
    let view = view(RefusingTree { of: "logged" }, Options::default());
    let look = |name: &str| view.lookup(ROOT, OsStr::new(name)).map(|name| name.number);
    let denied = Errno::ACCESS.raw_os_error();
    let lines =
        crate::log::captured(|| assert_eq!(look("missing"), Err(Errno::NOENT.raw_os_error())));
    assert_eq!((lines, view.counts().failed), (Vec::new(), 0));
    let line = |work: &dyn Fn()| crate::log::captured(work).concat();
    let bad = line(&|| assert_eq!(look("bad"), Err(denied)));
    assert!(
        bad.starts_with("source failed: logged: look up bad"),
        "{bad}"
    );
    let (good, link) = (look("good").expect("there"), look("link").expect("there"));
    let opened = line(&|| assert_eq!(view.open(good), Err(denied)));
    assert!(opened.contains("open good"), "{opened}");
    let link = line(&|| assert_eq!(view.link(link), Err(denied)));
    assert!(link.contains("read link link"), "{link}");
    let folder = view
        .lookup(ROOT, OsStr::new("folder"))
        .expect("there")
        .number;
    let fh = view.open_folder(folder).expect("a handle");
    let listed = line(&|| assert_eq!(view.list(fh, 0, |_, _, _| true), Err(denied)));
    assert!(listed.contains("list folder"), "{listed}");
    assert_eq!(view.counts().failed, 4);
}

/// The names before the refused name are returned first; the error is returned when the listing continues.
#[test]
fn a_name_that_is_refused_does_not_look_like_the_end_of_a_folder() {
    let view = view(RefusingTree { of: "listed" }, Options::default());
    let fh = view.open_folder(ROOT).expect("a handle");
    let mut places = Vec::new();
    let mut list = |from| {
        view.list_known(fh, from, |known| {
            places.push(known.place);
            true
        })
    };
    assert_eq!(list(0), Ok(()));
    assert_eq!(
        list(3),
        Err(Errno::ACCESS.raw_os_error()),
        "behind a name that is gone"
    );
    assert_eq!(places, [1, 2, 3], "both dots, and the good one");
}

/// One file that cannot be read beyond an offset.
struct TornFile;

/// The size of the file, and how much of it can be read.
const TORN: (u64, u64) = (1 << 20, 384 << 10);

impl Source for TornFile {
    fn size(&self) -> u64 {
        TORN.0
    }

    fn read_at(
        &self,
        bufs: &mut [std::io::IoSliceMut<'_>],
        offset: u64,
    ) -> Result<usize, SourceError> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if offset + len as u64 > TORN.1 {
            let what = "torn".to_string();
            return Err(SourceError::io(5, what));
        }
        bufs.iter_mut().for_each(|buf| buf.fill(7));
        Ok(len)
    }

    fn describe(&self) -> String {
        "torn".to_string()
    }

    fn defaults(&self) -> Defaults {
        Defaults::MEMORY
    }
}

fn torn(policy: &str) -> (View, u64) {
    let open = || Ok(Arc::new(TornFile) as Arc<dyn Source>);
    let tree = Single::new("file", "torn", open).expect("opened");
    let view = view(tree, Options::default().policy(policy));
    let file = view.lookup(ROOT, OsStr::new("file")).expect("it is there");
    let (fh, _) = view.open(file.number).expect("opened");
    (view, fh)
}

fn read(view: &View, fh: u64, offset: u64) -> Result<(usize, bool), KernelErrno> {
    let mut got = Err(0);
    view.read(fh, offset, 128 << 10, |bytes| {
        got = bytes.map(<[u8]>::to_vec);
    });
    got.map(|bytes| (bytes.len(), bytes.iter().all(|byte| *byte == 7)))
}

/// A read that jumps also fetches what the kernel will request next; an error there does not fail the read.
#[test]
fn a_failed_readahead_fails_no_read() {
    let (view, fh) = torn("linux-6.18");
    let whole = Ok((128 << 10, true));
    assert_eq!(read(&view, fh, 64 << 10), whole, "all of it is there");
    assert_eq!(
        read(&view, fh, 256 << 10),
        whole,
        "what is behind it is torn"
    );
    assert_eq!(read(&view, fh, 384 << 10), Err(5));
}

#[test]
fn without_readahead_only_demanded_bytes_are_fetched() {
    for policy in ["none", "auto:max-overfetch=1"] {
        let (view, fh) = torn(policy);
        assert_eq!(read(&view, fh, 64 << 10), Ok((128 << 10, true)), "{policy}");
        assert_eq!(view.engine.stats().source_bytes, 128 << 10, "{policy}");
    }
}

/// Number of folders of [`Shelves`].
const SHELVES: usize = 20;

/// Folders with a file each, and how often each of them was listed.
#[derive(Default)]
struct Shelves {
    listed: Arc<Listed>,
}

#[derive(Default)]
struct Listed {
    times: Mutex<HashMap<PathBuf, usize>>,
    changed: Condvar,
    /// The listing of the second folder ends only when the third, and that of the third only when the fourth has begun.
    is_waiting: bool,
}

fn shelf(n: usize) -> String {
    format!("shelf-{n:02}")
}

impl Listed {
    fn times(&self, folder: &str) -> usize {
        let times = lock(&self.times).get(Path::new(folder)).copied();
        times.unwrap_or(0)
    }

    fn begun(&self, folder: &Path) {
        let mut times = lock(&self.times);
        *times.entry(folder.to_path_buf()).or_default() += 1;
        self.changed.notify_all();
        let next = (1..3).find(|n| self.is_waiting && folder == Path::new(&shelf(*n)));
        while let Some(next) = next
            && !times.contains_key(Path::new(&shelf(next + 1)))
        {
            let waited = self.changed.wait_timeout(times, Duration::from_secs(60));
            let (woken, late) = waited.unwrap_or_else(PoisonError::into_inner);
            assert!(!late.timed_out(), "{} is not listed ahead", shelf(next + 1));
            times = woken;
        }
    }
}

impl Tree for Shelves {
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        self.listed.begun(folder);
        let mut names = FolderNames::default();
        if folder.as_os_str().is_empty() {
            let folder = meta(Kind::Folder, 0);
            (0..SHELVES)
                .for_each(|n| assert!(names.push(shelf(n).as_ref(), Kind::Folder, Some(&folder))));
        } else {
            assert!(names.push("file".as_ref(), Kind::File, Some(&meta(Kind::File, 9))));
        }
        names.sort(&mut |_| ());
        Ok(Arc::new(names))
    }

    fn lists_versions(&self) -> bool {
        true
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        let is_folder = path.components().count() < 2;
        Ok(match is_folder {
            true => meta(Kind::Folder, 0),
            false => meta(Kind::File, 9),
        })
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        Err(SourceError::io(5, path.display().to_string()))
    }

    fn defaults(&self) -> Defaults {
        Defaults::MEMORY
    }

    fn describe(&self) -> String {
        "shelves".to_string()
    }
}

fn shelves(policy: &str, attr_ttl: Duration, is_waiting: bool) -> (View, Arc<Listed>) {
    let listed = Arc::new(Listed {
        is_waiting,
        ..Listed::default()
    });
    let tree = Shelves {
        listed: Arc::clone(&listed),
    };
    let settings = FuseSettings {
        attr_ttl: Some(attr_ttl),
        ..FuseSettings::default()
    };
    let options = Options::default().cache_bytes(8 << 20).policy(policy);
    let engine = Engine::new(options).expect("an engine");
    let view = View::new(Arc::new(tree), engine, &settings);
    (view.expect("a view"), listed)
}

/// Number of names in a folder, as a program reads them.
fn list(view: &View, number: u64) -> usize {
    let fh = view.open_folder(number).expect("a handle");
    let mut names = 0;
    let listed = view.list_known(fh, 0, |_| {
        names += 1;
        true
    });
    listed.expect("listed");
    view.release_folder(fh);
    names - 2
}

fn list_shelf(view: &View, n: usize) -> usize {
    let folder = view.lookup(ROOT, OsStr::new(&shelf(n))).expect("there");
    list(view, folder.number)
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn folders_after_the_one_that_a_walk_lists_are_listed_ahead() {
    let (view, listed) = shelves("auto", MINUTE, true);
    assert_eq!(list(&view, ROOT), SHELVES);
    for n in 0..SHELVES {
        assert_eq!(list_shelf(&view, n), 1, "{n}");
    }
    for n in 0..SHELVES {
        assert_eq!(listed.times(&shelf(n)), 1, "{n}");
    }
}

#[test]
fn folders_are_not_listed_ahead_without_a_walk() {
    let none = [("none", MINUTE), ("auto", Duration::ZERO)];
    for (policy, attr_ttl) in none {
        let (view, listed) = shelves(policy, attr_ttl, false);
        list(&view, ROOT);
        (0..4).for_each(|n| _ = list_shelf(&view, n));
        assert_eq!(listed.times(&shelf(4)), 0, "{policy}");
    }
    let (view, listed) = shelves("auto", MINUTE, false);
    list(&view, ROOT);
    // Backwards, and the same folder again.
    [9, 5, 5, 1].iter().for_each(|n| _ = list_shelf(&view, *n));
    for n in [2, 3, 6, 7, 10, 11] {
        assert_eq!(listed.times(&shelf(n)), 0, "{n}");
    }
}

#[test]
fn a_trusted_listing_is_used_again_until_the_storage_says_something_else() {
    let (view, listed) = shelves("none", MINUTE, false);
    (0..3).for_each(|_| _ = list_shelf(&view, 0));
    assert_eq!(listed.times(&shelf(0)), 1);
    view.doubt(&Path::new(&shelf(0)).join("file"));
    (0..3).for_each(|_| _ = list_shelf(&view, 0));
    assert_eq!(listed.times(&shelf(0)), 2);
    let (view, listed) = shelves("none", Duration::ZERO, false);
    (0..3).for_each(|_| _ = list_shelf(&view, 0));
    assert_eq!(listed.times(&shelf(0)), 3, "nothing is trusted");
}
