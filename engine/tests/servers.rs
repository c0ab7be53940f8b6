//! Servers as they are: every switch of the bucket server, over every source that reads it. What is right in substance is read, whatever its
//! form; what is no answer is an error that says what came, and never the end of a folder.

use crate::common::watch;
use foreread::source::object::{Object, ObjectSettings, Prefix};
use foreread::source::tree::{Meta, NameBytes, Tree, max_name_bytes, name_bytes};
use foreread::source::{Source, SourceError};
use foreread_testing::{self as testing, Behaviour, BucketServer};
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Larger than what comes with the request that opens, smaller than that, and nothing.
pub const FILES: [(&str, usize); 3] = [("large", 300_017), ("nothing", 0), ("small", 1000)];
/// What is in `dir/`.
pub const NAMES: [&str; 4] = ["large", "nothing", "small", "sub"];

/// A bucket of [`FILES`].
pub fn bucket() -> BucketServer {
    watch();
    let server = BucketServer::start().expect("a port");
    FILES
        .iter()
        .for_each(|(name, size)| server.put(&format!("dir/{name}"), testing::pattern(0, *size, 0)));
    server.put("dir/sub/x", b"x".to_vec());
    server.put("other", Vec::new());
    server
}

pub fn settings(server: &BucketServer) -> ObjectSettings {
    let pause = Duration::from_millis(1);
    ObjectSettings {
        variables: server.variables(),
        pause,
        retries: 2,
        ..ObjectSettings::default()
    }
}

fn prefix(server: &BucketServer) -> Result<Prefix, String> {
    Prefix::open_with("s3://bucket/dir/", settings(server)).map_err(|error| error.to_string())
}

/// By HTTP and by S3.
fn object(server: &BucketServer, name: &str, is_s3: bool) -> Result<Object, String> {
    let key = format!("dir/{name}");
    let name = if is_s3 {
        format!("s3://bucket/{key}")
    } else {
        server.url(&key)
    };
    Object::open_with(name, settings(server)).map_err(|error| error.to_string())
}

/// In two reads, from behind the first bytes on.
fn read_all(source: &dyn Source) -> Result<Vec<u8>, SourceError> {
    let size = source.size() as usize;
    let mut bytes = vec![0; size];
    let (front, back) = bytes.split_at_mut(size / 2);
    for (part, offset) in [(back, size / 2), (front, 0)] {
        let read = source.read_at(&mut [IoSliceMut::new(part)], offset as u64)?;
        assert_eq!(read, part.len());
    }
    Ok(bytes)
}

fn check(source: &dyn Source, size: usize, version: u16, what: &str) {
    let bytes = read_all(source).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(
        (bytes.len(), testing::check(&bytes, 0, version)),
        (size, Ok(())),
        "{what}"
    );
}

fn names(tree: &dyn Tree) -> Result<Vec<(String, Option<Meta>)>, String> {
    let mut names = Vec::new();
    let listed = tree.list(Path::new(""), &mut |entry| {
        names.push((entry.name.into_string().expect("text"), entry.meta));
        true
    });
    listed.map(|()| names).map_err(|error| error.to_string())
}

/// Every file of the prefix, as it is opened after a listing and without one, twice.
fn check_prefix(server: &BucketServer, what: &str) {
    let tree = prefix(server).unwrap_or_else(|error| panic!("{what}: {error}"));
    for _ in 0..2 {
        let listed = names(&tree).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(
            listed
                .iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            NAMES,
            "{what}"
        );
        for ((name, size), (_, meta)) in FILES.iter().zip(&listed) {
            let meta = meta.as_ref().expect("known");
            let looked = tree
                .look(Path::new(name))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let (source, opened) = tree
                .open(Path::new(name))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(
                tree.is_same(&looked, &opened) && tree.is_same(meta, &opened),
                "{what}: {meta:?} {opened:?}"
            );
            check(&*source, *size, 0, what);
            let (source, _) = tree
                .open_listed(Path::new(name), meta)
                .expect("nothing is asked");
            check(&*source, *size, 0, what);
            assert_eq!(source.check(), Ok(*size as u64), "{what}");
        }
    }
}

fn check_objects(server: &BucketServer, what: &str, ways: &[bool]) {
    for &is_s3 in ways {
        for (name, size) in FILES {
            let source = object(server, name, is_s3)
                .unwrap_or_else(|error| panic!("{what}, {name}: {error}"));
            check(&source, size, 0, what);
            assert_eq!(source.check(), Ok(size as u64), "{what}");
        }
    }
}

/// What servers write in another way, or leave out, and mean the same by.
pub fn harmless() -> Vec<Vec<Behaviour>> {
    use Behaviour::*;
    let mut all: Vec<Vec<Behaviour>> = [
        "Friday, 02-Jan-26 03:04:05 GMT",
        "Fri Jan  2 03:04:05 2026",
        "Fri, 02 Jan 2026 03:04:05 UTC",
        "Mon, 02 Jan 2026 03:04:05 GMT",
        "2026-01-02T03:04:05Z",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "0",
        "-1",
        "",
    ]
    .map(|date| vec![Date(date)])
    .into();
    let ranges = [
        "Bytes FROM-TO/SIZE",
        "bytes=FROM-TO/SIZE",
        "bytes  FROM-TO/SIZE",
        "BYTES FROM - TO / SIZE",
    ];
    all.extend(ranges.map(|form| vec![ContentRange(form)]));
    all.extend(["", "identity", "aws-chunked", "utf-8"].map(|coding| vec![Coding(coding)]));
    let nothing = [
        (416, "bytes */0"),
        (416, ""),
        (200, ""),
        (206, "bytes 0-0/0"),
        (206, "bytes */0"),
        (204, ""),
    ];
    all.extend(nothing.map(|(status, range)| vec![Nothing(status, range)]));
    all.extend([403, 405].map(|status| vec![HeadRefused(status)]));
    all.extend([
        vec![WholeIs200],
        vec![Chunked],
        vec![Chunked, Nothing(200, "")],
        vec![Chunked, WholeIs200],
    ]);
    all.extend(versions());
    all
}

/// Versions in the forms that servers have for them.
fn versions() -> Vec<Vec<Behaviour>> {
    use Behaviour::*;
    vec![
        vec![],
        vec![BareEtag],
        vec![WeakEtag],
        vec![ListedEtag(None)],
        vec![ListedEtag(None), NoEtag],
        vec![ListedEtag(Some("other"))],
        vec![ListedEtag(Some("other")), IfMatchFails],
        vec![NoEtag],
        vec![NoEtag, DateFails],
        vec![IfMatchFails],
        vec![IfMatchFails, WeakEtag, DateFails],
        vec![ListNoDates],
        vec![ListNoDates, ListedEtag(None)],
        vec![ListLongEtags(1 << 20)],
    ]
}

#[test]
fn what_means_the_same_is_read_by_each_source() {
    for on in harmless() {
        let (server, what) = (bucket(), format!("{on:?}"));
        server.behave(&on);
        check_objects(&server, &what, &[false, true]);
        check_prefix(&server, &what);
    }
}

/// Only S3 says what was stored; over HTTP a server may have compressed it on the fly.
#[test]
fn a_stored_coding_is_passed_on_by_s3_alone() {
    let server = bucket();
    server.behave(&[Behaviour::Coding("gzip")]);
    check_objects(&server, "gzip", &[true]);
    check_prefix(&server, "gzip");
    let refused = object(&server, "small", false).err().expect("refused");
    assert!(refused.contains("compressed (gzip)"), "{refused}");
}

#[test]
fn parts_that_cannot_be_placed_are_refused_by_name() {
    for (on, words) in [
        (
            Behaviour::ContentRange("bytes FROM-TO/*"),
            "Content-Range: bytes 0-999/*",
        ),
        (
            Behaviour::ContentRange("items FROM-TO/SIZE"),
            "Content-Range: items 0-999/1000",
        ),
        (Behaviour::ContentRange(""), "its 206 has no Content-Range"),
    ] {
        let server = bucket();
        server.behave(&[on]);
        for is_s3 in [false, true] {
            let refused = object(&server, "small", is_s3).err().expect("refused");
            assert!(refused.contains(words), "{refused}");
        }
        let tree = prefix(&server).expect("listed");
        let (_, meta) = names(&tree).expect("listed").remove(0);
        let (source, _) = tree
            .open_listed(Path::new("large"), &meta.expect("known"))
            .expect("nothing is asked");
        let refused = read_all(&*source).expect_err("refused").to_string();
        assert!(refused.contains("Content-Range"), "{refused}");
    }
    // Without ranges a small object is read, and a large one is named.
    let server = bucket();
    server.behave(&[Behaviour::NoRanges]);
    for is_s3 in [false, true] {
        for (name, size) in &FILES[1..] {
            check(
                &object(&server, name, is_s3).expect("opened"),
                *size,
                0,
                name,
            );
        }
        let refused = object(&server, "large", is_s3).err().expect("refused");
        assert!(refused.contains("does not know ranges"), "{refused}");
    }
}

/// However a version is written, another one is noticed: a reader gets bytes of one or an error, and the next one the new bytes.
#[test]
fn a_change_is_noticed_in_each_form_of_a_version() {
    for on in versions() {
        let (server, what) = (bucket(), format!("{on:?}"));
        server.behave(&on);
        let tree = prefix(&server).expect("opened");
        let (_, meta) = names(&tree).expect("listed").remove(0);
        let meta = meta.expect("known");
        let (source, _) = tree
            .open_listed(Path::new("large"), &meta)
            .expect("nothing is asked");
        let object = object(&server, "large", false).expect("opened");
        let unread = tree
            .open_listed(Path::new("large"), &meta)
            .expect("nothing is asked")
            .0;
        check(&*source, FILES[0].1, 0, &what);
        server.put("dir/large", testing::pattern(0, FILES[0].1, 1));
        // Where neither listing nor object says more than the size, the first reader of a listed file gets the file there is.
        let tells_nothing =
            on.contains(&Behaviour::ListNoDates) && on.contains(&Behaviour::ListedEtag(None));
        let changed = |source: &dyn Source| {
            let error = read_all(source).expect_err(&what);
            assert!(
                matches!(error, SourceError::Changed { .. }),
                "{what}: {error}"
            );
        };
        changed(&*source);
        changed(&object);
        assert!(
            matches!(object.check(), Err(SourceError::Changed { .. })),
            "{what}"
        );
        if tells_nothing {
            check(&*unread, FILES[0].1, 1, &what);
        } else {
            changed(&*unread);
        }
        assert_eq!(object.accept(), FILES[0].1 as u64);
        check(&object, FILES[0].1, 1, &what);
        let (new, _) = tree.open(Path::new("large")).expect("opened");
        check(&*new, FILES[0].1, 1, &what);
    }
}

/// A server that refuses its own version is asked once more for the first part, and without conditions from then on.
#[test]
fn conditions_that_a_server_refuses_are_left_out() {
    for on in [
        vec![Behaviour::IfMatchFails],
        vec![Behaviour::NoEtag, Behaviour::DateFails],
    ] {
        let server = bucket();
        server.behave(&on);
        let object = object(&server, "large", true).expect("opened");
        for n in 0..10 {
            let mut buf = [0; 1000];
            object
                .read_at(&mut [IoSliceMut::new(&mut buf)], n * 1000)
                .expect("read");
            testing::check(&buf, n * 1000, 0).expect("right bytes");
        }
        assert_eq!(
            (object.asked().requests, object.asked().retries),
            (12, 0),
            "{on:?}: one more than the reads"
        );
    }
}

/// One 412 to an object that is as it was is no error, and one to both questions is one error.
#[test]
fn a_single_412_is_no_change() {
    let server = bucket();
    let object = object(&server, "large", true).expect("opened");
    server.behave(&[Behaviour::Fails412(1)]);
    check(&object, FILES[0].1, 0, "once");
    server.behave(&[Behaviour::Fails412(2)]);
    assert!(matches!(
        read_all(&object),
        Err(SourceError::Changed { .. })
    ));
    check(&object, FILES[0].1, 0, "behind it");
}

/// A server that wants to be left alone for longer than a pause is left alone, as long as the read has time; longer, and the read fails
/// at once and says so.
#[test]
fn a_time_to_come_back_is_kept() {
    let server = bucket();
    let object = object(&server, "large", true).expect("opened");
    server.behave(&[Behaviour::RetryAfter("6", 1)]);
    let begun = Instant::now();
    check(&object, FILES[0].1, 0, "after 6 s");
    assert!(begun.elapsed() >= Duration::from_secs(6));
    for after in ["3600", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        server.behave(&[Behaviour::RetryAfter(after, 1)]);
        let error = read_all(&object).expect_err("too long").to_string();
        assert!(
            error.contains("503 SlowDown, to be asked again after"),
            "{error}"
        );
        check(&object, FILES[0].1, 0, "the next one");
    }
}

/// What a listing may be written as.
pub fn listings() -> Vec<Vec<Behaviour>> {
    use Behaviour::*;
    let two = || ListPage(2);
    vec![
        vec![two()],
        vec![ListTokenAtEnd("")],
        vec![ListTokenAtEnd("more")],
        vec![two(), ListTokenAtEnd("more")],
        vec![ListNoToken, two()],
        vec![ListNoToken, ListPage(3)],
        vec![ListEmptyFirstPage],
        vec![ListEmptyFirstPage, two()],
        vec![ListNoDelimiter],
        vec![ListNoDelimiter, two()],
        vec![ListUrlEncoded],
        vec![ListBom],
        vec![ListBlanks],
        vec![ListNamespace],
        vec![Chunked],
        vec![ListError("InternalError", 2)],
        vec![ListError("SlowDown", 1), two()],
    ]
}

#[test]
fn a_listing_is_read_in_each_form() {
    for on in listings() {
        let (server, what) = (bucket(), format!("{on:?}"));
        server.behave(&on);
        check_prefix(&server, &what);
    }
}

/// What is no listing, or not all of one, and the words that say so.
pub fn no_listings() -> Vec<(Behaviour, &'static str)> {
    use Behaviour::*;
    let buckets = "<?xml version=\"1.0\"?><ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>";
    let denied = "<Error><Code>AccessDenied</Code><Message>No</Message></Error>";
    vec![
        (
            ListBody("<html><head><meta><title>Log in</title></head><body>Log in</body></html>"),
            "an HTML page in place",
        ),
        (
            ListBody("<!DOCTYPE html><html></html>"),
            "an HTML page in place",
        ),
        (
            ListBody(buckets),
            "a list of buckets (ListAllMyBucketsResult) in place",
        ),
        (
            ListBody("{\"objects\": []}"),
            "JSON ({\"objects\": []}) in place",
        ),
        (ListBody("OK\n"), "a text (OK) in place"),
        (ListBody(""), "nothing (an empty body) in place"),
        (
            ListBody(denied),
            "an error in place of a listing: AccessDenied (No)",
        ),
        (ListStatus(404), "the server answered 404"),
        (ListStatus(403), "the server answered 403"),
        (ListStatus(204), "nothing (an empty body) in place"),
        (
            ListError("InternalError", u64::MAX),
            "an error in place of a listing: InternalError",
        ),
        (
            ListError("Other", u64::MAX),
            "an error in place of a listing: Other",
        ),
        (ListCut, "the listing cannot be read"),
        (ListCountsOneMore, "keys, and has"),
        (ListNoPrefix, "has other keys"),
    ]
}

/// As the first page, and as the second: an error that says what came, and no name of the first page.
#[test]
fn what_is_no_listing_is_an_error_on_each_page() {
    for (on, words) in no_listings() {
        let server = bucket();
        server.behave(std::slice::from_ref(&on));
        let refused = prefix(&server)
            .err()
            .unwrap_or_else(|| panic!("{on:?} is a listing"));
        assert!(
            refused.contains(words) && refused.lines().count() == 1,
            "{on:?}: {refused}"
        );
        server.behave(&[]);
        let tree = prefix(&server).expect("opened");
        server.behave(std::slice::from_ref(&on));
        let refused = names(&tree).expect_err(words);
        assert!(refused.contains(words), "{on:?}: {refused}");
        let refused = tree.look(Path::new("large")).expect_err(words).to_string();
        assert!(refused.contains(words), "{on:?}: {refused}");
        if on != Behaviour::ListNoPrefix {
            server.behave_by_page(&[Behaviour::ListPage(2)], std::slice::from_ref(&on));
            let refused = names(&tree).expect_err(words);
            assert!(refused.contains(words), "{on:?} as page 2: {refused}");
        }
        server.behave(&[]);
        assert_eq!(names(&tree).expect("listed").len(), NAMES.len());
    }
}

/// A listing that does not come to its end is given up at once where that is seen, else after its time.
#[test]
fn a_listing_without_an_end_ends() {
    let two = Behaviour::ListPage(2);
    for (on, words, most) in [
        (
            vec![Behaviour::ListSameToken],
            "gives the token \"same\" a second time",
            2,
        ),
        (
            vec![Behaviour::ListVersionOne, two],
            "(it does not know start-after)",
            2,
        ),
        (
            vec![Behaviour::ListEndless],
            "no new name came within 300ms",
            u64::MAX,
        ),
    ] {
        let server = bucket();
        // Short where the time ends it, so that a busy machine does not end the others by it.
        let stall = Duration::from_millis(if most == u64::MAX { 100 } else { 10_000 });
        let settings = ObjectSettings {
            stall,
            ..settings(&server)
        };
        let tree = Prefix::open_with("s3://bucket/dir/", settings).expect("opened");
        let before = server.requests().lists;
        server.behave(&on);
        let refused = names(&tree).expect_err(words);
        assert!(refused.contains(words), "{on:?}: {refused}");
        assert!(server.requests().lists - before <= most, "{on:?}");
    }
}

/// Names that do not fit are an error with the limit, and what was taken is given back.
#[test]
fn names_that_take_too_many_bytes_are_an_error() {
    // The account is that of the process.
    crate::common::alone(
        module_path!(),
        "names_that_take_too_many_bytes_are_an_error",
        || {
            let server = bucket();
            let tree = prefix(&server).expect("opened");
            let mut others = NameBytes::default();
            assert!(others.grow(max_name_bytes() - name_bytes() - 600));
            assert!(!others.grow(601), "there is a limit");
            let before = name_bytes();
            let refused = names(&tree).expect_err("four names");
            assert!(
                refused.contains(&format!(
                    "more than {} bytes, which is the limit",
                    max_name_bytes()
                )),
                "{refused}"
            );
            assert_eq!(name_bytes(), before, "given back");
            drop(others);
            assert_eq!(names(&tree).expect("listed").len(), NAMES.len());
            assert_eq!(name_bytes(), 0);
        },
    );
}

/// A tree that answers while its caller needs it, and no longer.
#[test]
fn a_listing_that_is_not_needed_any_more_is_given_up() {
    let server = bucket();
    let hour = Duration::from_secs(3600);
    let settings = ObjectSettings {
        stall: hour,
        total: hour,
        ..settings(&server)
    };
    let tree = Prefix::open_with("s3://bucket/dir/", settings).expect("opened");
    server.behave(&[Behaviour::ListEndless]);
    server.link(testing::Link::new(Duration::from_millis(100), 0));
    let need = {
        let begun = server.requests().lists;
        let server = Arc::new(server);
        move || server.requests().lists < begun + 2
    };
    let refused = foreread::source::tree::while_needed(Arc::new(need), || names(&tree))
        .expect_err("given up");
    assert!(refused.contains("nothing needs it any more"), "{refused}");
}
