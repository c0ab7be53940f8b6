//! Every store of objects, against its emulator: objects, folders, odd keys, faults, and what real servers write otherwise than the
//! documents say. Each table holds for all stores; what a store's protocol cannot express has a line that says why.
//! Each server that is missing is named: `skipped: needs X`.
//!
//! | repro of a fault that was found on S3 or HTTP | here, over each store |
//! |---|---|
//! | content-encoding | `answers_that_no_retry_can_mend` (Gzip): passed on where a coding is what was stored, refused where it may be of the wire |
//! | http-empty | `an_empty_object_is_read_in_each_form` |
//! | last-modified | `dates_in_each_form_are_read` |
//! | list-etag | `a_version_is_known_in_each_form` |
//! | list-no-listing | `what_is_no_listing_is_an_error` |
//! | list-truncated | `a_listing_without_a_token_is_whole_or_an_error` |
//! | one-file-name | `source::tree::single`: a row for each scheme |
//! | prefix-message | `the_name_of_a_folder_without_a_slash_names_the_slash`; of a mount `source`: a row for each scheme |
//! | retry-after | `a_time_to_come_back_is_kept` |
//! | fsspec-norange | `answers_that_no_retry_can_mend` (IgnoreRange); a small object sent whole is plain HTTP's alone |
//! | nbd-block-size, parquet-dict-zero, strace-times | of no store of objects |

use crate::common::emulators::{Cloud, Emulator};
use crate::common::stores::{Kind, Store};
use crate::common::{PASSING, UNMENDABLE, object_settings, read_all, read_source as read, watch};
use foreread::source::object::{Object, ObjectSettings, Prefix};
use foreread::source::tree::{Kind as EntryKind, Tree};
use foreread::source::{Source, SourceError};
use foreread_testing::{self as testing, Lie, ServedAnswer, ServedRequest, pattern};
use std::collections::BTreeMap;
use std::path::Path;

const MIB: usize = 1 << 20;

/// Each store in another thread.
fn each(work: impl Fn(&Store) + Sync) {
    std::thread::scope(|scope| {
        let threads = Store::all().map(|store| scope.spawn(|| work(&{ store })));
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            thread.join().expect("as it should be");
        }
    });
}

/// Deadlines that no busy machine reaches.
fn patient(store: &Store) -> ObjectSettings {
    object_settings(store.variables())
}

fn open(store: &Store, key: &str) -> Object {
    let object = Object::open_with(store.name(key), patient(store));
    object.unwrap_or_else(|error| panic!("{error}"))
}

fn prefix(store: &Store, key: &str) -> Prefix {
    let tree = Prefix::open_with(store.name(key), patient(store));
    tree.unwrap_or_else(|error| panic!("{error}"))
}

fn names(tree: &Prefix, folder: &str) -> Result<BTreeMap<String, (EntryKind, u64)>, SourceError> {
    let mut names = BTreeMap::new();
    let listed = tree.list(Path::new(folder), &mut |entry| {
        let size = entry.meta.map_or(0, |meta| meta.size);
        names.insert(entry.name.into_string().expect("text"), (entry.kind, size));
        true
    });
    listed.map(|()| names)
}

fn read_right(object: &Object, offset: u64, len: usize) {
    let bytes = read(object, offset, len).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(bytes.len(), len);
    testing::check(&bytes, offset, 0).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Is it a request for names?
fn lists(seen: &ServedRequest) -> bool {
    ["list-type=2", "comp=list", "/api/"]
        .iter()
        .any(|part| seen.target.contains(part))
}

/// Changes answers that have the bytes of an object.
fn edit_objects(
    store: &Store,
    edit: impl Fn(&ServedRequest, &mut ServedAnswer) + Send + Sync + 'static,
) {
    store.objects.edit(move |seen, answer| {
        if !lists(seen) && !seen.target.contains("/resolve/") {
            edit(seen, answer);
        }
    });
}

/// The keys have what a URL would change.
#[test]
fn objects_of_each_store_are_read_back() {
    each(|store| {
        for (key, size) in [
            ("none", 0),
            ("one", 1),
            ("dir/a b+c&d=é#%41", 70_001),
            ("large", 5 * MIB + 3),
        ] {
            store.put(key, pattern(0, size, 0));
            let (object, name) = (open(store, key), store.name(key));
            let size = size as u64;
            assert_eq!((object.size(), object.check()), (size, Ok(size)), "{name}");
            let is_right = read_all(&object) == Ok(pattern(0, size as usize, 0));
            assert!(is_right, "{name}");
        }
        let error = Object::open_with(store.name("nothing"), patient(store));
        let error = error.err().expect("there is none");
        let noent = rustix::io::Errno::NOENT.raw_os_error();
        assert_eq!(error.errno, noent, "{error}");
        let error = Object::open_with(store.name("dir/"), patient(store));
        let error = error.err().expect("a prefix");
        assert!(error.to_string().contains("prefix"), "{error}");
    });
}

const ODD_KEYS: [&str; 49] = [
    "plain",
    "a b",
    "a+b",
    "a%20b",
    "a%2Fb",
    "a&b",
    "a=b",
    "a?b",
    "a#b",
    "a;b",
    "a:b",
    "a,b",
    "a'b",
    "a\"b",
    "a<b>c",
    "a\\b",
    "a|b",
    "a*b",
    "a[b]",
    "a{b}",
    "a^b",
    "a`b",
    "a~b",
    "a@b",
    "a!b",
    "a$b",
    "(a)",
    " lead",
    "trail ",
    "trail.",
    ".hidden",
    "...",
    "é",
    "e\u{301}",
    "日本",
    "\u{1F600}",
    "a\u{a0}b",
    "\u{200b}zw",
    "\u{feff}bom",
    "\u{85}nel",
    "a\u{2028}b",
    "\u{fffe}",
    "%",
    "%%",
    "%25",
    "a%zz",
    "-rf",
    "CON",
    "a\u{7f}b",
];

/// Keys that cannot be written.
fn unwritable(kind: Kind) -> &'static [&'static str] {
    match kind {
        // Refused by object_store, which reads no such key either.
        Kind::S3 => &["a\u{7f}b"],
        // To Azure a backslash is a slash; azurite takes the second, and answers 500 to every listing from then on.
        Kind::Azure => &["a\\b", "\u{fffe}", "a\u{7f}b"],
        Kind::Google | Kind::Hub => &[],
    }
}

/// Keys that a listing has, and that are names of files.
fn is_listed(kind: Kind, key: &str) -> bool {
    // XML has no such character: versitygw and fake-gcs-server write another in its place.
    let is_no_xml = matches!(kind, Kind::S3 | Kind::Google) && key == "\u{fffe}";
    !is_no_xml && !key.contains('\u{7f}')
}

/// A file by its name, and in a folder, whatever text the name is.
#[test]
fn odd_keys_are_read_by_name_and_in_a_folder() {
    each(|store| {
        let is_put = |key: &&str| !unwritable(store.kind).contains(key);
        let there: Vec<&str> = ODD_KEYS.into_iter().filter(is_put).collect();
        for key in &there {
            store.put(&format!("o/{key}"), key.as_bytes().to_vec());
        }
        let tree = prefix(store, "o/");
        let listed = names(&tree, "").unwrap_or_else(|error| panic!("{error}"));
        let mut shown = there;
        shown.retain(|key| is_listed(store.kind, key));
        let mut sorted = shown.clone();
        sorted.sort_unstable();
        let listed: Vec<&str> = listed.keys().map(String::as_str).collect();
        let listed: Vec<&str> = listed
            .into_iter()
            .filter(|key| *key != "\u{fffd}")
            .collect();
        assert_eq!(listed, sorted, "{:?}", store.kind);
        for key in shown {
            let object = open(store, &format!("o/{key}"));
            assert_eq!(read_all(&object).as_deref(), Ok(key.as_bytes()), "{key}");
            let (source, _) = tree
                .open(Path::new(key))
                .unwrap_or_else(|e| panic!("{key}: {e}"));
            assert_eq!(read_all(&*source).as_deref(), Ok(key.as_bytes()), "{key}");
        }
    });
}

/// A generation and an ETag: a read of the version that was replaced is an error, and never the other's bytes. (A file of a hub stays at its commit: `hub.rs`.)
#[test]
fn a_replaced_object_is_noticed_by_its_version() {
    each(|store| {
        if store.kind == Kind::Hub {
            return;
        }
        store.put("x", pattern(0, 300_000, 0));
        let object = open(store, "x");
        store.put("x", pattern(0, 300_000, 1));
        let read = read_all(&object);
        assert!(matches!(read, Err(SourceError::Changed { .. })), "{read:?}");
        assert_eq!(object.accept(), 300_000);
        assert_eq!(read_all(&object), Ok(pattern(0, 300_000, 1)));
        store.delete("x");
        let gone = rustix::io::Errno::NOENT.raw_os_error();
        let read = read_all(&object);
        assert!(
            matches!(read, Err(SourceError::Io { errno, .. }) if errno == gone),
            "{read:?}"
        );
        assert_eq!(object.accept(), 300_000, "there is nothing to accept");
        store.put("x", pattern(0, 200_000, 2));
        let read = read_all(&object);
        assert!(matches!(read, Err(SourceError::Changed { .. })), "{read:?}");
        assert_eq!(object.accept(), 200_000);
        assert_eq!(read_all(&object), Ok(pattern(0, 200_000, 2)));
    });
}

#[test]
fn a_prefix_of_each_store_is_a_tree() {
    each(|store| {
        let keys = [
            "top/a",
            "top/b c",
            "top/sub/d",
            "top/sub/deep/e",
            "other",
            "top.x",
        ];
        for (size, key) in keys.iter().enumerate() {
            store.put(key, pattern(0, size + 1, 0));
        }
        let tree = prefix(store, "top/");
        let wanted = [
            ("a", (EntryKind::File, 1)),
            ("b c", (EntryKind::File, 2)),
            ("sub", (EntryKind::Folder, 0)),
        ];
        let wanted = wanted.map(|(name, what)| (name.to_string(), what));
        assert_eq!(names(&tree, ""), Ok(wanted.into_iter().collect()));
        assert_eq!(names(&tree, "sub").map(|names| names.len()), Ok(2));
        assert!(names(&tree, "nothing").is_err());
        let sub = tree.look(Path::new("sub")).map(|meta| meta.kind);
        assert_eq!(sub, Ok(EntryKind::Folder));
        for path in ["a", "sub/deep/e"] {
            let meta = tree.look(Path::new(path)).expect("there");
            let mut others = 0;
            let ahead = tree.look_ahead(Path::new(path), &mut |_, _| others += 1);
            assert_eq!(ahead.map(|meta| meta.size), Ok(meta.size));
            let named = if path == "a" { 2 } else { 0 };
            assert_eq!(others, named, "{path}: what is named beside it");
            let (source, opened) = tree.open_listed(Path::new(path), &meta).expect("opens");
            assert_eq!(read_all(&*source), Ok(pattern(0, meta.size as usize, 0)));
            assert!(tree.is_same(&meta, &opened), "{path}");
            let (source, opened) = tree.open(Path::new(path)).expect("opens");
            assert_eq!(source.size(), opened.size);
            let is_same = tree.is_same(&meta, &opened);
            assert!(is_same, "a listing and a reply agree: {path}");
        }
        assert!(tree.look(Path::new("nothing")).is_err());
        let error = Prefix::open_with(store.name("nothing/"), patient(store)).err();
        let error = error.expect("none").to_string();
        assert!(error.contains("no object has a name"), "{error}");
    });
}

/// Of Azure no page begins behind a key.
#[test]
fn a_look_up_in_a_large_folder_brings_names_that_begin_alike() {
    each(|store| {
        if store.kind != Kind::Azure {
            return;
        }
        for number in 0..1005 {
            store.put(&format!("many/{number:04}"), vec![0]);
        }
        let tree = prefix(store, "many/");
        for (name, others) in [("0007", 999), ("1003", 4)] {
            let mut named = 0;
            let found = tree.look_ahead(Path::new(name), &mut |_, _| named += 1);
            assert_eq!((found.map(|meta| meta.size), named), (Ok(1), others));
        }
        assert!(tree.look_ahead(Path::new("2"), &mut |_, _| {}).is_err());
    });
}

#[test]
fn the_name_of_a_folder_without_a_slash_names_the_slash() {
    each(|store| {
        store.put("top/a", pattern(0, 10, 0));
        let error = Object::open_with(store.name("top"), patient(store));
        let error = error.err().expect("a folder").remedy;
        let words = [
            "a prefix ends with /",
            "a folder is written with / at its end",
        ];
        assert!(words.iter().any(|words| error.contains(words)), "{error}");
    });
}

/// What one of [`UNMENDABLE`] is to a store: the words of its error, no error, or nothing that its protocol can say.
#[derive(PartialEq, Eq)]
enum Meaning {
    Error(&'static str),
    Right,
    /// Why.
    NotSaid(&'static str),
}

fn meaning(kind: Kind, lie: &Lie, words: &'static str) -> Meaning {
    match (kind, lie) {
        (Kind::S3 | Kind::Google | Kind::Azure, Lie::Gzip) => Meaning::Right,
        (Kind::Hub, Lie::NoEtag) => {
            Meaning::NotSaid("the hub has the ETag, not the content server")
        }
        (Kind::Hub, Lie::Status(403, _)) => Meaning::Error("403 AddressRefused"),
        _ => Meaning::Error(words),
    }
}

/// One request, one line, and the next read starts clean.
#[test]
fn answers_that_no_retry_can_mend() {
    each(|store| {
        store.put("x", pattern(0, MIB, 0));
        let object = open(store, "x");
        for (lie, words) in UNMENDABLE {
            let meaning = meaning(store.kind, &lie, words);
            if matches!(meaning, Meaning::NotSaid(_)) {
                continue;
            }
            store.objects.lie(lie.clone(), u64::MAX);
            let what = format!("{:?}, {lie:?}", store.kind);
            let got = read(&object, 8192, 4096);
            if let Meaning::Error(words) = meaning {
                let error = got.expect_err(&what);
                assert!(
                    matches!(error, SourceError::Io { .. } | SourceError::Other { .. }),
                    "{what}: {error:?}"
                );
                let line = error.to_string();
                assert!(
                    line.contains(words) && !line.contains('\n'),
                    "{what}: {line}"
                );
            } else {
                assert_eq!(got, Ok(pattern(8192, 4096, 0)), "{what}");
            }
            assert_eq!(object.asked().retries, 0, "{what}");
            store.honest();
            read_right(&object, 8192, 4096);
        }
        // Another version than the one that was asked for: once it may be wrong, twice it is a change.
        for lie in [Lie::OtherEtag, Lie::OtherSize] {
            if (store.kind, &lie) == (Kind::Hub, &Lie::OtherEtag) {
                // The content server's ETag means nothing.
                continue;
            }
            store.objects.lie(lie.clone(), 1);
            read_right(&object, 8192, 4096);
            store.objects.lie(lie.clone(), 2);
            let got = read(&object, 8192, 4096);
            let is_changed = matches!(got, Err(SourceError::Changed { .. }));
            assert!(is_changed, "{:?}, {lie:?}: {got:?}", store.kind);
            store.honest();
        }
    });
}

#[test]
fn answers_that_pass_are_asked_for_again() {
    each(|store| {
        store.put("x", pattern(0, MIB, 0));
        let settings = ObjectSettings {
            retries: 8,
            ..store.settings()
        };
        let object = Object::open_with(store.name("x"), settings).expect("opens");
        for lie in PASSING {
            store.objects.lie(lie.clone(), 2);
            let before = object.asked().retries;
            read_right(&object, 4096, 50_000);
            // An emulator may be late on a busy machine.
            assert!(
                object.asked().retries >= before + 2,
                "{:?}, {lie:?}",
                store.kind
            );
        }
    });
}

#[test]
fn a_time_to_come_back_is_kept() {
    each(|store| {
        store.put("x", pattern(0, MIB, 0));
        let object = open(store, "x");
        store.objects.lie(Lie::Status(503, Some(2)), 1);
        let begun = std::time::Instant::now();
        read_right(&object, 4096, 50_000);
        assert!(begun.elapsed() >= std::time::Duration::from_secs(2));
        assert_eq!(object.asked().retries, 1);
        store.objects.lie(Lie::Status(503, Some(3600)), 1);
        let error = read(&object, 4096, 10).expect_err("too long").to_string();
        assert!(error.contains("to be asked again after 3600 s"), "{error}");
        read_right(&object, 4096, 50_000);
    });
}

#[test]
fn an_empty_object_is_read_in_each_form() {
    each(|store| {
        store.put("none", Vec::new());
        for (status, range) in [
            (416, "bytes */0"),
            (416, ""),
            (200, ""),
            (206, "bytes 0-0/0"),
            (206, "bytes */0"),
            (204, ""),
        ] {
            edit_objects(store, move |seen, answer| {
                if seen.range.is_some() {
                    answer.status = status;
                    answer.set("content-range", range);
                    answer.body.clear();
                }
            });
            let object = open(store, "none");
            let what = format!("{:?}: {status} {range}", store.kind);
            assert_eq!(
                (object.size(), read_all(&object)),
                (0, Ok(Vec::new())),
                "{what}"
            );
            assert_eq!(object.check(), Ok(0), "{what}");
        }
    });
}

#[test]
fn dates_in_each_form_are_read() {
    each(|store| {
        store.put("x", pattern(0, 300_000, 0));
        for date in [
            "Friday, 02-Jan-26 03:04:05 GMT",
            "Fri Jan  2 03:04:05 2026",
            "Fri, 02 Jan 2026 03:04:05 UTC",
            "Fri, 02 Jan 2026 03:04:05 +0000",
            "Fri, 02-Jan-2026 03:04:05 GMT",
            "Mon, 02 Jan 2026 03:04:05 GMT",
            "2026-01-02T03:04:05Z",
            "0",
            "-1",
            "",
        ] {
            edit_objects(store, move |_, answer| answer.set("last-modified", date));
            let object = open(store, "x");
            assert_eq!(read_all(&object), Ok(pattern(0, 300_000, 0)), "{date}");
            assert_eq!(object.check(), Ok(300_000), "{date}");
        }
    });
}

/// A listing and a reply write one version in two forms, or one of them says none; and a server that refuses its own version.
#[test]
fn a_version_is_known_in_each_form() {
    type Form = fn(&ServedRequest, &mut ServedAnswer);
    let bare: Form = |_, answer| {
        let etag = answer.header("etag").unwrap_or_default().replace('"', "");
        answer.set("etag", &etag);
    };
    let weak: Form = |_, answer| {
        if let Some(etag) = answer.header("etag").map(|etag| format!("W/{etag}")) {
            answer.set("etag", &etag);
        }
    };
    let none: Form = |_, answer| answer.set("etag", "");
    let other: Form = |_, answer| answer.set("etag", "\"other-2\"");
    let unmet: Form = |seen, answer| {
        if seen.if_match.is_some() || seen.header("x-goog-if-generation-match").is_some() {
            *answer = ServedAnswer {
                status: 412,
                ..ServedAnswer::default()
            };
        }
    };
    // Of Google a version is the generation, a number, and of the hub what the hub says: there the ETag means nothing in any form. Azure has
    // an ETag with every reply, and one without is refused (`answers_that_no_retry_can_mend`).
    each(|store| {
        store.put("dir/x", pattern(0, 300_000, 0));
        for (what, form) in [
            ("bare", bare),
            ("weak", weak),
            ("none", none),
            ("other", other),
            ("412", unmet),
        ] {
            if (store.kind, what) == (Kind::Azure, "none") {
                continue;
            }
            store.honest();
            let tree = prefix(store, "dir/");
            let meta = tree.look(Path::new("x")).expect("there");
            edit_objects(store, form);
            for _ in 0..2 {
                let (source, _) = tree
                    .open_listed(Path::new("x"), &meta)
                    .expect("nothing is asked");
                let read = read_all(&*source);
                let is_right = read == Ok(pattern(0, 300_000, 0));
                assert!(is_right, "{:?}, {what}: {:?}", store.kind, read.err());
            }
            let object = open(store, "dir/x");
            let is_right = read_all(&object) == Ok(pattern(0, 300_000, 0));
            assert!(is_right, "{:?}, {what}", store.kind);
        }
    });
}

#[test]
fn what_is_no_listing_is_an_error() {
    each(|store| {
        store.put("dir/x", pattern(0, 10, 0));
        let tree = prefix(store, "dir/");
        for (status, body) in [
            (
                200,
                "<html><head><title>Log in</title></head><body>Log in</body></html>",
            ),
            (200, "<!DOCTYPE html><html></html>"),
            (
                200,
                "<?xml version=\"1.0\"?><ListAllMyBucketsResult></ListAllMyBucketsResult>",
            ),
            (200, "{\"objects\": []}"),
            (200, "OK\n"),
            (200, ""),
            (
                200,
                "<Error><Code>Other</Code><Message>No</Message></Error>",
            ),
            (204, ""),
        ] {
            store.names.edit(move |seen, answer| {
                if lists(seen) {
                    answer.status = status;
                    answer.body = body.as_bytes().to_vec();
                }
            });
            let what = format!("{:?}: {status} {body}", store.kind);
            let error = names(&tree, "").expect_err(&what).to_string();
            let is_line = error.contains("in place of a listing") && !error.contains('\n');
            assert!(is_line, "{what}: {error}");
            assert!(tree.look(Path::new("x")).is_err(), "{what}");
            let opened = Prefix::open_with(store.name("dir/"), patient(store));
            assert!(opened.is_err(), "{what}");
        }
        store.honest();
        assert_eq!(names(&tree, "").map(|names| names.len()), Ok(1));
    });
}

/// XML as servers write it: behind a mark, behind blanks. (The hub writes JSON.)
#[test]
fn a_listing_is_read_in_each_form() {
    type Form = fn(String) -> Vec<u8>;
    let forms: [Form; 2] = [
        |text| format!("\u{feff}{}", text.trim_start_matches('\u{feff}')).into_bytes(),
        |text| format!("\n\n  {}", text.trim_start_matches('\u{feff}')).into_bytes(),
    ];
    each(|store| {
        if store.kind == Kind::Hub {
            return;
        }
        store.put("dir/x é", pattern(0, 10, 0));
        for form in forms {
            store.names.edit(move |seen, answer| {
                if lists(seen) {
                    let text = String::from_utf8_lossy(&answer.body).into_owned();
                    answer.body = form(text);
                }
            });
            let listed = names(&prefix(store, "dir/"), "").map(|names| names.into_keys().collect());
            assert_eq!(listed, Ok(vec!["x é".to_string()]), "{:?}", store.kind);
        }
    });
}

/// Of S3 and Google, whose pages say that there are more: names are never missing in silence. Azure and the hub have one word for both,
/// the marker or the link of the next page, and a page without it is the last.
#[test]
fn a_listing_without_a_token_is_whole_or_an_error() {
    each(|store| {
        if matches!(store.kind, Kind::Azure | Kind::Hub) {
            return;
        }
        for n in 0..5 {
            store.put(&format!("dir/{n}"), pattern(0, 10, 0));
        }
        let tree = prefix(store, "dir/");
        store.names.edit(|seen, answer| {
            if lists(seen) {
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                // The last name is of the page that the token would have led to.
                let is_first = !seen.target.contains("start-after");
                let last = text.rfind("<Contents>").filter(|_| is_first);
                let end = text.rfind("</Contents>").map(|at| at + "</Contents>".len());
                let cut = last
                    .zip(end)
                    .map(|(from, to)| format!("{}{}", &text[..from], &text[to..]));
                let text = cut.unwrap_or(text);
                // fake-gcs-server says nothing.
                let text = text.replace("<IsTruncated>false</IsTruncated>", "");
                let more = "<IsTruncated>true</IsTruncated></ListBucketResult>";
                let more = text.replace("</ListBucketResult>", more);
                let more = if is_first { more } else { text };
                answer.body = more.replace("<KeyCount>5", "<KeyCount>4").into_bytes();
            }
        });
        match names(&tree, "") {
            Ok(names) => assert_eq!(names.len(), 5, "{:?}", store.kind),
            Err(error) => assert!(error.to_string().contains("listing"), "{error}"),
        }
    });
}

fn settings(emulator: &Emulator) -> ObjectSettings {
    watch();
    object_settings(emulator.variables())
}

/// The first failed request says what to run.
#[test]
fn without_credentials_the_remedy_is_a_login() {
    let Some(emulator) = Emulator::start(Cloud::Azure) else {
        return;
    };
    emulator.put("x", pattern(0, 10, 0));
    let variables = emulator.variables().into_iter();
    let without: Vec<_> = variables
        .filter(|(name, _)| name != "AZURE_STORAGE_KEY")
        .collect();
    let open = |settings| {
        Object::open_with(&emulator.name("x"), settings)
            .err()
            .expect("refused")
    };
    let error = open(ObjectSettings {
        variables: without.clone(),
        ..settings(&emulator)
    });
    assert!(error.remedy.starts_with("az login"), "{error}");
    let error = open(ObjectSettings {
        no_sign_request: true,
        ..settings(&emulator)
    });
    assert!(error.remedy.starts_with("az login"), "{error}");
    let key = "Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5";
    let wrong = [
        without,
        vec![("AZURE_STORAGE_KEY".to_string(), key.to_string())],
    ]
    .concat();
    let error = open(ObjectSettings {
        variables: wrong,
        ..settings(&emulator)
    });
    assert!(error.why.contains("AZURE_STORAGE_KEY"), "{error}");
    assert!(!error.to_string().contains(key), "{error}");
}
