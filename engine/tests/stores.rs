//! Tests of every object store, with its emulator and with a bucket in memory: objects, folders, odd keys, each fault,
//! and differences between real servers and their documentation. Each table holds for all stores; if a protocol cannot
//! express something, its row gives the reason. A real server that is missing is reported: `skipped: needs X`.

use crate::common::stores::{Kind, Store};
use crate::common::{
    PASSING, UNMENDABLE, changed, object_settings, read_all, read_right, read_source as read,
    refused, watch,
};
use foreread::source::object::{Object, ObjectSettings, Prefix};
use foreread::source::tree::{Kind as EntryKind, Tree};
use foreread::source::{Source, SourceError};
use foreread_testing::emulators::{Cloud, Emulator, SECRET};
use foreread_testing::{
    BucketServer, Lie, ServedAnswer, ServedRequest, needs, pattern, rows, says,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// Each store in another thread.
fn each(work: impl Fn(&Store) + Sync) {
    std::thread::scope(|scope| {
        let threads = Store::every().map(|store| scope.spawn(|| work(&{ store })));
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            thread.join().expect("as it should be");
        }
    });
}

/// Each that has names.
fn each_tree(work: impl Fn(&Store) + Sync) {
    each(|store| {
        if store.kind != Kind::Http {
            work(store);
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
    let names = tree.names(Path::new(folder))?;
    let shown = names.entries().map(|entry| {
        let size = entry.meta.map_or(0, |meta| meta.size);
        (entry.name.into_string().expect("text"), (entry.kind, size))
    });
    Ok(shown.collect())
}

/// Is it a request for names?
pub fn lists(seen: &ServedRequest) -> bool {
    let parts = ["list-type=2", "comp=list", "/api/"];
    parts.iter().any(|part| seen.target.contains(part))
}

/// A source has these bytes of a version, and no more.
#[track_caller]
fn has(source: &dyn Source, size: usize, version: u16, what: &str) {
    assert!(read_all(source) == Ok(pattern(0, size, version)), "{what}");
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

/// Changes the text of listings.
fn edit_listing(seen: &ServedRequest, answer: &mut ServedAnswer, edit: impl Fn(String) -> String) {
    if lists(seen) {
        answer.body = edit(String::from_utf8_lossy(&answer.body).into()).into_bytes();
    }
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
            let length = size as u64;
            assert_eq!((object.size(), object.check()), (length, Ok(length)));
            has(&object, size, 0, &name);
        }
        let nothing = Object::open_with(store.name("nothing"), patient(store));
        let error = refused(nothing, "there is none");
        assert_eq!(error.errno, Errno::NOENT.raw_os_error(), "{error}");
        if store.kind != Kind::Http {
            let folder = Object::open_with(store.name("dir/"), patient(store));
            says(&refused(folder, "dir/").to_string(), &["prefix"]);
        }
    });
}

const ODD_KEYS: [&[&str]; 2] = [
    &[
        "plain", "a b", "a+b", "a%20b", "a%2Fb", "a&b", "a=b", "a?b", "a#b", "a;b", "a:b", "a,b",
        "a'b", "a\"b", "a<b>c", "a\\b", "a|b", "a*b", "a[b]", "a{b}", "a^b", "a`b", "a~b", "a@b",
        "a!b", "a$b", "(a)", " lead", "trail ", "trail.", ".hidden", "...", "é", "e\u{301}",
        "日本", "a\u{a0}b", "\u{fffe}", "%", "%%", "%25", "a%zz", "-rf", "CON", "a\u{7f}b",
    ],
    &[
        "\u{1F600}",
        "\u{200b}zw",
        "\u{feff}bom",
        "\u{85}nel",
        "a\u{2028}b",
    ],
];

/// Keys that cannot be written.
fn unwritable(kind: Kind) -> &'static [&'static str] {
    match kind {
        // Refused by object_store, which reads no such key either.
        Kind::S3 => &["a\u{7f}b"],
        // To Azure a backslash is a slash; azurite takes the second, and answers 500 to every listing from then on.
        Kind::Azure => &["a\\b", "\u{fffe}", "a\u{7f}b"],
        Kind::Google | Kind::Hub | Kind::Memory | Kind::Http => &[],
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
    each_tree(|store| {
        let is_put = |key: &&str| !unwritable(store.kind).contains(key);
        let all = ODD_KEYS.into_iter().flatten().copied();
        let there: Vec<&str> = all.filter(is_put).collect();
        for key in &there {
            store.put(&format!("o/{key}"), key.as_bytes().to_vec());
        }
        let tree = prefix(store, "o/");
        let listed = names(&tree, "").unwrap_or_else(|error| panic!("{error}"));
        let mut shown = there;
        shown.retain(|key| is_listed(store.kind, key));
        let mut sorted = shown.clone();
        sorted.sort_unstable();
        let listed = listed.keys().map(String::as_str);
        let listed: Vec<&str> = listed.filter(|key| *key != "\u{fffd}").collect();
        assert_eq!(listed, sorted, "{:?}", store.kind);
        for key in shown {
            let object = open(store, &format!("o/{key}"));
            assert_eq!(read_all(&object).as_deref(), Ok(key.as_bytes()), "{key}");
            let opened = tree.open(Path::new(key));
            let (source, _) = opened.unwrap_or_else(|e| panic!("{key}: {e}"));
            assert_eq!(read_all(&*source).as_deref(), Ok(key.as_bytes()), "{key}");
        }
    });
}

/// Google unpacks what is stored as gzip unless it is asked not to, by either of its protocols; a proxy may do so anywhere.
#[test]
fn compressed_objects_are_read_as_stored() {
    let unpacked = |answer: &mut ServedAnswer| {
        answer.status = 200;
        answer.set("content-range", "");
        answer.set("etag", "W/\"unpacked\"");
        (answer.body, answer.is_chunked) = (vec![7; 1000], true);
    };
    each(|store| {
        store.put("dir/x", pattern(0, 300_000, 0));
        for (name, value) in [
            ("x-goog-stored-content-encoding", "gzip"),
            ("warning", "214 UploadServer gunzipped"),
            ("", ""),
        ] {
            // Nothing says that it is unpacked: a store that keeps codings has parts of a known length.
            if name.is_empty() && matches!(store.kind, Kind::Hub | Kind::Http) {
                continue;
            }
            edit_objects(store, move |seen, answer| {
                let is_stored = name.starts_with("x-goog");
                if answer.status > 206 || seen.range().is_none() {
                    return;
                }
                if is_stored {
                    answer.set(name, value);
                }
                if seen.header("accept-encoding") == Some("gzip") {
                    if is_stored {
                        answer.set("content-encoding", "gzip");
                    }
                } else {
                    unpacked(answer);
                    if !name.is_empty() {
                        answer.set(name, value);
                    }
                }
            });
            let what = format!("{:?}, {name}", store.kind);
            let object = Object::open_with(store.name("dir/x"), patient(store));
            let object = object.unwrap_or_else(|error| panic!("{what}: {error}"));
            has(&object, 300_000, 0, &what);
            if store.kind != Kind::Http {
                let tree = prefix(store, "dir/");
                let meta = tree.look(Path::new("x")).expect("there");
                let (listed, _) = tree.open_listed(Path::new("x"), &meta).expect("opens");
                has(&*listed, 300_000, 0, &what);
            }
        }
        edit_objects(store, move |_, answer| {
            unpacked(answer);
            answer.set("x-goog-stored-content-encoding", "gzip");
        });
        let opened = Object::open_with(store.name("dir/x"), patient(store));
        let error = refused(opened, "unpacked").to_string();
        assert!(error.contains("decompresses the stored object"), "{error}");
    });
}

/// A blob that marks a folder is no file: of Data Lake, or left by a tool. Other stores have no such marks.
#[test]
fn the_marker_of_an_azure_folder_is_not_a_file() {
    needs!(let store = Store::start(Kind::Azure));
    store.put("dir/x", pattern(0, 10, 0));
    store.put("dir/full", Vec::new());
    store.put("dir/full/y", pattern(0, 10, 0));
    store.put("dir/void", Vec::new());
    for (header, value, element) in [
        (
            "x-ms-resource-type",
            "directory",
            "<ResourceType>directory</ResourceType></Properties>",
        ),
        (
            "x-ms-meta-hdi_isfolder",
            "true",
            "</Properties><Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>",
        ),
        (
            "X-Ms-Meta-Hdi_Isfolder",
            "True",
            "</Properties><Metadata><Other>1</Other><Hdi_Isfolder>True</Hdi_Isfolder></Metadata>",
        ),
    ] {
        store.objects.edit(move |seen, answer| {
            let path = seen.target.split('?').next().unwrap_or_default();
            if !lists(seen) && (path.ends_with("/full") || path.ends_with("/void")) {
                answer.set(header, value);
            }
            let has_metadata = seen.target.contains("include=metadata");
            if has_metadata || header == "x-ms-resource-type" {
                let is_mark = |part: &str| part.contains("dir/full<") || part.contains("dir/void<");
                let mark = |part: &str| match is_mark(part) {
                    true => part.replacen("</Properties>", element, 1),
                    false => part.to_string(),
                };
                edit_listing(seen, answer, |text| {
                    text.split_inclusive("</Blob>").map(mark).collect()
                });
            }
        });
        let tree = prefix(&store, "dir/");
        let listed = names(&tree, "").expect("listed");
        let is_folder = |(_, (kind, _)): &(_, &(EntryKind, u64))| *kind == EntryKind::Folder;
        let folders = listed.iter().filter(is_folder).map(|(name, _)| &name[..]);
        let found = (Vec::from_iter(folders), listed.len());
        assert_eq!(found, (vec!["full", "void"], 3), "{header}");
        for (folder, inside) in [("full", 1), ("void", 0)] {
            let what = format!("{header}: {folder}");
            let meta = tree.look(Path::new(folder)).map(|meta| meta.kind);
            assert_eq!(meta, Ok(EntryKind::Folder), "{what}");
            let within = names(&tree, folder).map(|names| names.len());
            assert_eq!(within, Ok(inside), "{what}");
            names(&prefix(&store, &format!("dir/{folder}/")), "").expect(&what);
            let file = Object::open_with(store.name(&format!("dir/{folder}")), patient(&store));
            let error = refused(file, "a folder");
            assert_eq!(error.errno, Errno::ISDIR.raw_os_error());
            assert_eq!(error.remedy, "add a / at the end of the name");
        }
        assert!(names(&tree, "nothing").is_err(), "{header}");
    }
}

/// A server that does not say in a part how long the object is.
#[test]
fn a_part_without_the_total_size_is_refused() {
    let server = bucket();
    server.edit(|_, answer| {
        let range = answer.header("content-range").unwrap_or_default();
        let range = range.replace("/300017", "/*");
        answer.set("content-range", &range);
    });
    let sizeless = Object::open_with("s3://bucket/dir/large", memory_settings(&server));
    let words = ["how long the object is (Content-Range: bytes 0-131071/*)"];
    says(&refused(sizeless, "no size").to_string(), &words);
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
        let changed = |object: &Object| changed(read(object, 150_000, 100_000).map(drop), "");
        changed(&object);
        // A server that looks at no condition; the headers of the others are signed.
        if matches!(store.kind, Kind::Memory | Kind::Http) {
            store.objects.lie(Lie::NoCondition, 2);
            changed(&object);
        }
        assert_eq!(object.accept(), 300_000);
        has(&object, 300_000, 1, "accepted");
        store.delete("x");
        let gone = Errno::NOENT.raw_os_error();
        let read = read_all(&object).map_err(|error| error.errno());
        assert_eq!(read, Err(gone));
        assert_eq!(object.accept(), 300_000, "there is nothing to accept");
        store.put("x", pattern(0, 200_000, 2));
        changed(&object);
        assert_eq!(object.accept(), 200_000);
        has(&object, 200_000, 2, "accepted");
    });
}

#[test]
fn a_prefix_of_each_store_is_a_tree() {
    each_tree(|store| {
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
        let small = |path: &str| tree.small_folder(Path::new(path));
        let all = small("").map(|names| names.map(|names| names.len()));
        assert!(all == Ok(Some(3)) && small("nothing").is_err());
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
            has(&*source, meta.size as usize, 0, path);
            assert!(tree.is_same(&meta, &opened), "{path}");
            let (source, opened) = tree.open(Path::new(path)).expect("opens");
            assert_eq!(source.size(), opened.size);
            let is_same = tree.is_same(&meta, &opened);
            assert!(is_same, "a listing and a reply agree: {path}");
        }
        let gone = Errno::NOENT.raw_os_error();
        for path in ["nothing", "su", "../other"] {
            let found = tree.look(Path::new(path)).map(|meta| meta.size);
            assert_eq!(found.map_err(|error| error.errno()), Err(gone), "{path}");
        }
        assert!(names(&tree, "../other").is_err() && tree.open(Path::new("sub")).is_err());
        let nothing = Prefix::open_with(store.name("nothing/"), patient(store));
        let error = refused(nothing, "nothing/").to_string();
        says(&error, &["no object has this prefix"]);
        let folder = Object::open_with(store.name("top"), patient(store));
        let error = refused(folder, "a folder").remedy;
        let written = "a folder is written with / at its end";
        let words = ["a prefix ends with /", written];
        assert!(words.iter().any(|words| error.contains(words)), "{error}");
    });
}

/// Of Azure no page begins behind a key.
#[test]
fn a_look_up_in_a_large_folder_brings_names_that_begin_alike() {
    needs!(let store = Store::start(Kind::Azure));
    for number in 0..1005 {
        store.put(&format!("many/{number:04}"), vec![0]);
    }
    let tree = prefix(&store, "many/");
    for (name, others) in [("0007", 999), ("1003", 4)] {
        let mut named = 0;
        let found = tree.look_ahead(Path::new(name), &mut |_, _| named += 1);
        assert_eq!((found.map(|meta| meta.size), named), (Ok(1), others));
    }
    assert!(tree.look_ahead(Path::new("2"), &mut |_, _| {}).is_err());
    let small = tree.small_folder(Path::new(""));
    assert_eq!(small.map(|names| names.is_some()), Ok(false));
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
        (Kind::S3 | Kind::Memory | Kind::Google | Kind::Azure, Lie::Gzip) => Meaning::Right,
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
                let is_change = matches!(error, SourceError::Changed { .. });
                let line = error.to_string();
                let is_right = line.contains(words) && !line.contains('\n');
                assert!(is_right && !is_change, "{what}: {line}");
            } else {
                assert_eq!(got, Ok(pattern(8192, 4096, 0)), "{what}");
            }
            assert_eq!(object.asked().retries, 0, "{what}");
            store.honest();
            read_right(&object, 8192, 4096, 0);
        }
        // Another version than the one that was asked for: once it may be wrong, twice it is a change.
        for lie in [Lie::OtherEtag, Lie::OtherSize] {
            if (store.kind, &lie) == (Kind::Hub, &Lie::OtherEtag) {
                // The content server's ETag means nothing.
                continue;
            }
            store.objects.lie(lie.clone(), 1);
            read_right(&object, 8192, 4096, 0);
            store.objects.lie(lie.clone(), 2);
            let what = format!("{:?}, {lie:?}", store.kind);
            changed(read(&object, 8192, 4096), &what);
            store.honest();
        }
    });
}

#[test]
fn transient_errors_are_retried() {
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
            read_right(&object, 4096, 50_000, 0);
            // An emulator may be late on a busy machine.
            let retries = object.asked().retries - before;
            assert!(retries >= 2, "{:?}, {lie:?}", store.kind);
        }
    });
}

#[test]
fn a_time_to_come_back_is_kept() {
    each(|store| {
        store.put("x", pattern(0, MIB, 0));
        let object = open(store, "x");
        store.objects.lie(Lie::Status(503, Some(2)), 1);
        let begun = Instant::now();
        read_right(&object, 4096, 50_000, 0);
        assert!(begun.elapsed() >= Duration::from_secs(2));
        assert_eq!(object.asked().retries, 1);
        store.objects.lie(Lie::Status(503, Some(3600)), 1);
        let error = read(&object, 4096, 10).expect_err("too long").to_string();
        says(&error, &["retry after 3600 s"]);
        read_right(&object, 4096, 50_000, 0);
    });
}

#[test]
fn an_empty_object_is_read_in_each_form() {
    each(|store| {
        store.put("none", Vec::new());
        let forms = "416 bytes */0|416 |200 |206 bytes 0-0/0|206 bytes */0|204 ";
        for (status, range) in forms.split('|').filter_map(|form| form.split_once(' ')) {
            let status = status.parse().expect("a number");
            edit_objects(store, move |seen, answer| {
                if seen.range().is_some() {
                    answer.status = status;
                    answer.set("content-range", range);
                    answer.body.clear();
                }
            });
            let object = open(store, "none");
            let what = format!("{:?}: {status} {range}", store.kind);
            assert_eq!((object.size(), object.check()), (0, Ok(0)), "{what}");
            has(&object, 0, 0, &what);
        }
    });
}

type Form = fn(&ServedRequest, &mut ServedAnswer);

/// What servers write of a version, or leave out. `listed`: of a listing.
const FORMS: [(&str, Form); 10] = [
    ("plain", |_, _| {}),
    ("bare", |seen, answer| {
        if !lists(seen) {
            let etag = answer.header("etag").unwrap_or_default().replace('"', "");
            answer.set("etag", &etag);
        }
    }),
    ("weak", |seen, answer| {
        if let Some(etag) = answer.header("etag").filter(|_| !lists(seen)) {
            let etag = format!("W/{etag}");
            answer.set("etag", &etag);
        }
    }),
    ("none", |seen, answer| {
        if !lists(seen) {
            answer.set("etag", "");
        }
    }),
    // versitygw, of a file that another program put into its folder.
    ("412", |seen, answer| {
        if seen.header("if-match").is_some() || seen.header("x-goog-if-generation-match").is_some()
        {
            *answer = ServedAnswer::new(412, "");
        }
    }),
    ("412 without ETag", |seen, answer| {
        if seen.header("if-unmodified-since").is_some() {
            *answer = ServedAnswer::new(412, "");
        } else if !lists(seen) {
            answer.set("etag", "");
        }
    }),
    ("listed: none", |seen, answer| {
        without(seen, answer, &["ETag"])
    }),
    // Google's, by S3's protocol.
    ("listed: generation", |seen, answer| {
        let more = "<Generation>1700000000000001</Generation><ETag>";
        edit_listing(seen, answer, |text| text.replace("<ETag>", more));
    }),
    ("listed: no date", |seen, answer| {
        without(seen, answer, &["LastModified", "Last-Modified"]);
    }),
    ("listed: neither", |seen, answer| {
        let all = ["ETag", "Etag", "LastModified", "Last-Modified"];
        without(seen, answer, &all);
    }),
];

/// A listing without some of its elements.
fn without(seen: &ServedRequest, answer: &mut ServedAnswer, elements: &[&str]) {
    edit_listing(seen, answer, |mut text| {
        for element in elements {
            let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
            while let Some((front, rest)) = text.split_once(&begin) {
                let rest = rest.split_once(&end).map_or("", |(_, rest)| rest);
                text = format!("{front}{rest}");
            }
        }
        text
    });
}

/// Of Google a version is the generation, a number, and of the hub what the hub says: there the ETag of a reply means nothing in any form.
/// Azure has an ETag with every reply, and one without is refused (`answers_that_no_retry_can_mend`).
fn has_form(kind: Kind, form: &str) -> bool {
    let is_own = kind == Kind::Google && form == "listed: generation";
    !(is_own || kind == Kind::Azure && ["none", "412 without ETag"].contains(&form))
}

/// A listing and a reply write one version in two forms, or one of them says none; and a server that refuses its own version.
#[test]
fn a_version_is_known_in_each_form() {
    each(|store| {
        store.put("dir/x", pattern(0, 300_000, 0));
        // Another one in the listing than with the object.
        let other: Form = |seen, answer| {
            if !lists(seen) {
                answer.set("etag", "\"other-2\"");
            }
        };
        for (form, edit) in FORMS.into_iter().chain([("other", other)]) {
            if !has_form(store.kind, form) {
                continue;
            }
            store.objects.edit(edit);
            let what = format!("{:?}, {form}", store.kind);
            if store.kind != Kind::Http {
                let tree = prefix(store, "dir/");
                let meta = tree.look(Path::new("x")).expect("there");
                for _ in 0..2 {
                    let listed = tree.open_listed(Path::new("x"), &meta);
                    let (source, _) = listed.expect("nothing is asked");
                    has(&*source, 300_000, 0, &what);
                }
                let (_, opened) = tree.open(Path::new("x")).expect("opens");
                assert!(tree.is_same(&meta, &opened), "{what}: {meta:?} {opened:?}");
                if ["plain", "listed: generation"].contains(&form) {
                    assert!(tree.names_exactly(&meta), "{what}: a cache may keep it");
                }
            }
            let object = open(store, "dir/x");
            has(&object, 300_000, 0, &what);
            assert_eq!(object.check(), Ok(300_000), "{what}");
        }
    });
}

/// However a version is written, another one is noticed: a reader gets bytes of one or an error, and the next one the new bytes.
#[test]
fn a_change_is_noticed_in_each_form_of_a_version() {
    each_tree(|store| {
        if store.kind == Kind::Hub {
            return;
        }
        let size = 300_000;
        for (form, edit) in FORMS {
            if !has_form(store.kind, form) {
                continue;
            }
            store.put("dir/x", pattern(0, size, 0));
            store.objects.edit(edit);
            let what = format!("{:?}, {form}", store.kind);
            let tree = prefix(store, "dir/");
            let meta = tree.look(Path::new("x")).expect("there");
            let listed = || {
                tree.open_listed(Path::new("x"), &meta)
                    .expect("nothing is asked")
                    .0
            };
            let (known, object, unread) = (listed(), open(store, "dir/x"), listed());
            has(&*known, size, 0, &what);
            // Within the second of its date a listed file is read in the version that is there.
            if store.kind != Kind::Memory {
                std::thread::sleep(Duration::from_millis(1100));
            }
            store.put("dir/x", pattern(0, size, 1));
            let is_changed = |source: &dyn Source| {
                changed(read(source, 150_000, 100_000).map(drop), &what);
            };
            is_changed(&*known);
            is_changed(&object);
            changed(object.check(), &what);
            // A listing that says no more than the size: the first reader of a listed file gets the file that is there.
            if form == "listed: neither" && store.kind != Kind::Google {
                has(&*unread, size, 1, &what);
            } else {
                is_changed(&*unread);
            }
            assert_eq!(object.accept(), size as u64);
            has(&object, size, 1, &what);
            let (new, _) = tree.open(Path::new("x")).expect("opens");
            has(&*new, size, 1, &what);
        }
    });
}

/// Answers in place of a listing: the status, the words of the error, and the body.
pub const NO_LISTINGS: &str = "\
200 | an HTML page in place | <html><head><title>Log in</title></head><body>Log in</body></html>
200 | an HTML page in place | <!DOCTYPE html><html></html>
200 | in place of a listing | <?xml version=\"1.0\"?><ListAllMyBucketsResult></ListAllMyBucketsResult>
200 | in place of a listing | {\"objects\": []}
200 | a text (OK) in place | OK
200 | nothing (an empty body) in place |
204 | nothing (an empty body) in place |
200 | in place of a listing | <Error><Code>Other</Code><Message>No</Message></Error>
403 | answered 403 |
404 | 404 |";

/// Gives this answer to requests for names whose target has the part.
pub fn not_a_listing(
    part: &'static str,
    status: &str,
    body: &'static str,
) -> impl Fn(&ServedRequest, &mut ServedAnswer) + Send + Sync + 'static {
    let status = status.parse().expect("a number");
    move |seen, answer| {
        if lists(seen) && seen.target.contains(part) {
            answer.status = status;
            answer.body = body.as_bytes().to_vec();
        }
    }
}

/// As the first page, and as the second of a bucket in memory: an error that says what came, and no name of the first page.
#[test]
fn invalid_listings_are_errors() {
    each_tree(|store| {
        store.put("dir/x", pattern(0, 10, 0));
        let tree = prefix(store, "dir/");
        for [status, words, body] in rows(NO_LISTINGS) {
            store.names.edit(not_a_listing("", status, body));
            let what = format!("{:?}: {status} {body}", store.kind);
            let error = names(&tree, "").expect_err(&what).to_string();
            // JSON of the hub: what came in its place is not named.
            let words = match store.kind {
                Kind::Hub if status.starts_with('2') => "in place of a listing",
                _ => words,
            };
            let is_right = error.contains(words) && !error.contains('\n');
            assert!(is_right, "{what}: {error}");
            assert!(tree.look(Path::new("x")).is_err(), "{what}");
            let opened = Prefix::open_with(store.name("dir/"), patient(store));
            assert!(opened.is_err(), "{what}");
        }
        store.honest();
        assert_eq!(names(&tree, "").map(|names| names.len()), Ok(1));
    });
    let server = bucket();
    let tree = in_memory(&server, "s3://bucket/dir/");
    server.set_page(2);
    for [status, words, body] in rows(NO_LISTINGS) {
        server.edit(not_a_listing("continuation-token", status, body));
        says(&names(&tree, "").expect_err(body).to_string(), &[words]);
    }
    // Half of a page, and one that comes right when it is asked for again.
    server.edit(|_, answer| answer.body.truncate(answer.body.len() / 2));
    let error = names(&tree, "").expect_err("half").to_string();
    says(&error, &["the listing cannot be read"]);
    let is_due = times(2);
    server.edit(move |seen, answer| {
        if lists(seen) && is_due() {
            answer.body = ServedAnswer::error(200, "InternalError").body;
        }
    });
    assert_eq!(names(&tree, "").map(|names| names.len()), Ok(NAMES.len()));
}

/// Of S3 and Google, whose pages say that there are more: names are never missing in silence. Azure and the hub have one word for both,
/// the marker or the link of the next page, and a page without it is the last.
#[test]
fn a_listing_without_a_token_is_whole_or_an_error() {
    each_tree(|store| {
        if matches!(store.kind, Kind::Azure | Kind::Hub) {
            return;
        }
        for n in 0..5 {
            store.put(&format!("dir/{n}"), pattern(0, 10, 0));
        }
        let tree = prefix(store, "dir/");
        store.names.edit(|seen, answer| {
            // The last name is of the page that the token would have led to.
            let is_first = !seen.target.contains("start-after");
            edit_listing(seen, answer, |mut text| {
                let end = text.rfind("</Contents>").map(|at| at + "</Contents>".len());
                // fake-gcs-server says nothing.
                let last = text.rfind("<Contents>").zip(end).filter(|_| is_first);
                if let Some((from, to)) = last {
                    text.replace_range(from..to, "");
                }
                text = text.replace("<IsTruncated>false</IsTruncated>", "");
                if is_first {
                    let more = "<IsTruncated>true</IsTruncated></ListBucketResult>";
                    text = text.replace("</ListBucketResult>", more);
                }
                text.replace("<KeyCount>5", "<KeyCount>4")
            });
        });
        match names(&tree, "") {
            Ok(names) => assert_eq!(names.len(), 5, "{:?}", store.kind),
            Err(error) => assert!(error.to_string().contains("listing"), "{error}"),
        }
    });
}

/// A server that refuses its own version is asked once more for the first part, and without conditions from then on.
#[test]
fn conditions_that_a_server_refuses_are_left_out() {
    let is_refusing = |(form, _): &(&str, Form)| form.starts_with("412");
    for (form, edit) in FORMS.into_iter().filter(is_refusing) {
        let server = bucket();
        server.edit(edit);
        let object = Object::open_with("s3://bucket/dir/large", memory_settings(&server));
        let object = object.expect("opens");
        (0..10).for_each(|n| read_right(&object, n * 1000, 1000, 0));
        let asked = (object.asked().requests, object.asked().retries);
        assert_eq!(asked, (12, 0), "{form}: one more than the reads");
    }
}

/// True as often as it says.
fn times(many: u64) -> impl Fn() -> bool {
    let count = AtomicU64::new(0);
    move || count.fetch_add(1, Ordering::Relaxed) < many
}

/// Refuses requests for parts behind the first 128 KiB by 412, as often as it says.
pub fn unmet(server: &BucketServer, many: u64) {
    let is_due = times(many);
    server.edit(move |seen, answer| {
        if seen.range().is_some_and(|range| range.start >= 128 << 10) && is_due() {
            *answer = ServedAnswer::error(412, "PreconditionFailed");
        }
    });
}

/// One 412 to an object that is as it was is no error, and one to both questions is one error.
#[test]
fn a_single_412_is_not_a_change() {
    let server = bucket();
    let object = Object::open_with("s3://bucket/dir/large", memory_settings(&server));
    let object = object.expect("opens");
    unmet(&server, 1);
    read_right(&object, 150_000, 100_000, 0);
    unmet(&server, 2);
    changed(read(&object, 150_000, 100_000), "a 412 to both");
    read_right(&object, 150_000, 100_000, 0);
}

/// A server that knows no ranges: a small object is read, and a large one is refused.
#[test]
fn a_server_without_ranges_is_refused() {
    each(|store| {
        store.put("large", pattern(0, 200_000, 0));
        store.put("small", pattern(0, 100_000, 0));
        store.objects.lie(Lie::IgnoreRange, u64::MAX);
        let large = Object::open_with(store.name("large"), patient(store));
        let error = refused(large, "no ranges").to_string();
        says(&error, &["it does not support ranges; use a server that"]);
        has(&open(store, "small"), 100_000, 0, "it is whole");
    });
}

/// Objects of a bucket in memory: larger than what comes with the request that opens, smaller than that, and nothing.
pub const FILES: [(&str, usize); 3] = [("large", 300_017), ("nothing", 0), ("small", 1000)];
/// What is in `dir/`.
pub const NAMES: [&str; 4] = ["large", "nothing", "small", "sub"];

/// A bucket of [`FILES`].
pub fn bucket() -> BucketServer {
    watch();
    let server = BucketServer::start().expect("a port");
    for (name, size) in FILES {
        server.put(&format!("dir/{name}"), pattern(0, size, 0));
    }
    server.put("dir/sub/x", b"x".to_vec());
    server.put("other", Vec::new());
    server
}

pub fn memory_settings(server: &BucketServer) -> ObjectSettings {
    ObjectSettings {
        retries: 2,
        ..object_settings(server.variables())
    }
}

fn in_memory(server: &BucketServer, name: &str) -> Prefix {
    watch();
    Prefix::open_with(name, memory_settings(server)).unwrap_or_else(|error| panic!("{error}"))
}

fn kinds(tree: &Prefix, folder: &str) -> Result<Vec<(String, EntryKind)>, i32> {
    let names = names(tree, folder).map_err(|error| error.errno())?;
    let kinds = names.into_iter().map(|(name, (kind, _))| (name, kind));
    Ok(kinds.collect())
}

/// A listing that does not come to its end is given up at once where that is seen, else after its time.
#[test]
fn a_listing_without_an_end_ends() {
    let page = |inside: &str| {
        format!("<ListBucketResult><IsTruncated>true</IsTruncated>{inside}</ListBucketResult>")
    };
    let key = "<Contents><Key>dir/a</Key><Size>1</Size></Contents>";
    let token = |token: &str| format!("<NextContinuationToken>{token}</NextContinuationToken>");
    let same = page(&format!("{}{key}", token("same")));
    // Version 1 of the interface: `marker` alone is looked at.
    let first = page(key);
    for (page, words, most) in [
        (Some(same), "sends the token \"same\" a second time", 2),
        (Some(first), "(it ignores start-after)", 2),
        (None, "no new name came within 300ms", u64::MAX),
    ] {
        let server = bucket();
        // Short where the time ends it, so that a busy machine does not end the others by it.
        let stall = Duration::from_millis(if most == u64::MAX { 100 } else { 10_000 });
        let settings = ObjectSettings {
            stall,
            ..memory_settings(&server)
        };
        let tree = Prefix::open_with("s3://bucket/dir/", settings).expect("opens");
        let before = server.requests().lists;
        match page {
            Some(page) => server.edit(move |_, answer| answer.body = page.clone().into_bytes()),
            None => endless(&server),
        }
        says(&names(&tree, "").expect_err(words).to_string(), &[words]);
        assert!(server.requests().lists - before <= most, "{words}");
    }
}

/// Pages without a key, each with a new token.
pub fn endless(server: &BucketServer) {
    let pages = AtomicU64::new(0);
    server.edit(move |seen, answer| {
        if lists(seen) {
            let token = pages.fetch_add(1, Ordering::Relaxed);
            let token = format!("<NextContinuationToken>{token}</NextContinuationToken>");
            let head = "<ListBucketResult><IsTruncated>true</IsTruncated>";
            answer.body = format!("{head}{token}</ListBucketResult>").into_bytes();
        }
    });
}

/// Keys that no file can be called by do not hide the others, wherever they are, on whichever page.
#[test]
fn odd_keys_are_left_out_and_counted_once() {
    let server = BucketServer::start().expect("a port");
    let keys = "dir/a|dir//c|dir/..|dir/.|dir/b\tc|dir/b\nc|dir/sub/x|dir/\u{7f}/y|odd//|/x";
    for key in keys.split('|') {
        server.put(key, b"bytes".to_vec());
    }
    server.put("marked/", Vec::new());
    for letters in [300, 301] {
        server.put(&format!("dir/{}", "n".repeat(letters)), Vec::new());
    }
    let tree = in_memory(&server, "s3://bucket");
    let file = |name: &str| (name.to_string(), EntryKind::File);
    let folder = |name: &str| (name.to_string(), EntryKind::Folder);
    let root = ["dir", "marked", "odd"].map(folder);
    assert_eq!(kinds(&tree, ""), Ok(root.to_vec()));
    assert_eq!(tree.left_out(), 1, "/x");
    for _ in 0..2 {
        assert_eq!(kinds(&tree, "dir"), Ok(vec![file("a"), folder("sub")]));
        assert_eq!(tree.left_out(), 9);
    }
    // It is there, with nothing to show.
    let odd = (kinds(&tree, "odd"), tree.left_out());
    assert_eq!(odd, (Ok(vec![]), 10));
    assert_eq!(kinds(&tree, "marked"), Ok(vec![]), "an empty folder is one");
    assert_eq!(kinds(&tree, "gone"), Err(Errno::NOENT.raw_os_error()));
    let (source, _) = tree.open(Path::new("dir/a")).expect("opened");
    assert_eq!(read_all(&*source).as_deref(), Ok(&b"bytes"[..]));
    // The first key there is, is an odd one; and a prefix that is one itself says so.
    let odd = in_memory(&server, "s3://bucket/odd/");
    assert_eq!(kinds(&odd, ""), Ok(vec![]));
    let odd = Prefix::open_with("s3://bucket/dir//", memory_settings(&server));
    let line = refused(odd, "dir//").to_string();
    says(&line, &["the prefix has an empty part"]);
    // A page of odd keys alone, and one behind it.
    (0..1200).for_each(|n| server.put(&format!("many/{n:04}\n"), Vec::new()));
    server.put("many/last", Vec::new());
    let many = (kinds(&tree, "many"), tree.left_out());
    assert_eq!(many, (Ok(vec![file("last")]), 1210));
}

/// An object and a folder of one name: the folder is shown, and the object is counted once, whichever question finds both.
#[test]
fn an_object_that_a_folder_hides_is_counted_once() {
    let server = BucketServer::start().expect("a port");
    for key in "d/w d/x d/x-1 d/x/y d/x.txt d/z/x d/z/x/y".split(' ') {
        server.put(key, b"bytes".to_vec());
    }
    let shown = |name: &str| match name {
        "x" | "z" => (name.to_string(), EntryKind::Folder),
        _ => (name.to_string(), EntryKind::File),
    };
    let tree = in_memory(&server, "s3://bucket/d/");
    for _ in 0..2 {
        let all = ["w", "x", "x-1", "x.txt", "z"].map(shown);
        assert_eq!((kinds(&tree, ""), tree.left_out()), (Ok(all.into()), 1));
    }
    assert_eq!(kinds(&tree, "z"), Ok(vec![shown("x")]));
    assert_eq!(tree.left_out(), 2);
    let look = |tree: &Prefix, path: &str| tree.look(Path::new(path)).expect("there").kind;
    let ahead = |tree: &Prefix, path: &str| {
        let meta = tree.look_ahead(Path::new(path), &mut |_, _| {});
        meta.expect("there").kind
    };
    for asked in [look, ahead] {
        let tree = in_memory(&server, "s3://bucket/d/");
        assert_eq!((asked(&tree, "x"), tree.left_out()), (EntryKind::Folder, 1));
        assert_eq!((asked(&tree, "w"), tree.left_out()), (EntryKind::File, 1));
    }
    let object = Object::open_with("s3://bucket/d/x", memory_settings(&server));
    let bytes = read_all(&object.expect("by its own name"));
    assert_eq!(bytes.as_deref(), Ok(&b"bytes"[..]));
}

#[test]
fn refusals_of_s3_are_one_line_with_a_remedy() {
    watch();
    needs!(let gateway = Emulator::start(Cloud::S3));
    gateway.put("x", pattern(0, 10, 0));
    for [name, set, words] in rows(REFUSED_BY_S3) {
        let mut settings = object_settings(gateway.variables());
        for (variable, value) in set
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
        {
            settings.variables.retain(|(own, _)| own != variable);
            settings.variables.push((variable.into(), value.into()));
        }
        let line = refused(Object::open_with(name, settings), name).to_string();
        let is_line = !line.contains('\n') && line.len() < 250;
        assert!(is_line && !line.contains(SECRET), "{line}");
        assert!(line.starts_with(name) && line.contains(words), "{line}");
    }
}

/// What is opened, with these variables in place of the right ones, and what the line says.
const REFUSED_BY_S3: &str = "\
s3://bucket/y | | answered 404 NoSuchKey; check the bucket, the key (the name of a prefix ends with /)
s3://tekcub/x | | answered 404 NoSuchBucket; the bucket does not exist: check its name
s3://bucket/x | AWS_SECRET_ACCESS_KEY=wrong | 403 SignatureDoesNotMatch (credentials: the variable AWS_ACCESS_KEY_ID); check AWS_ACCESS_KEY_ID
s3://bucket/x | AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= | 403 AccessDenied; log in (aws sso login, aws configure), or set AWS_ACCESS_KEY_ID
s3://bucket/x | AWS_ACCESS_KEY_ID= | only one of the two variables of an access key is set; set both AWS_ACCESS_KEY_ID
s3://bucket/x | AWS_REGION=eu-north-1 | set AWS_REGION
s3://bucket/x | AWS_ALLOW_HTTP= AWS_ENDPOINT_URL=http://192.0.2.1 | set AWS_ALLOW_HTTP=true
s3://bucket/dir/ | | it is a prefix, not an object
s3://bucket/a//b | | the key has an empty part";

/// The first failed request says what to run.
#[test]
fn without_credentials_the_remedy_is_a_login() {
    watch();
    needs!(let emulator = Emulator::start(Cloud::Azure));
    emulator.put("x", pattern(0, 10, 0));
    let variables = emulator.variables().into_iter();
    let is_no_key = |(name, _): &(String, _)| name != "AZURE_STORAGE_KEY";
    let without = Vec::from_iter(variables.filter(is_no_key));
    let open = |settings| refused(Object::open_with(&emulator.name("x"), settings), "x");
    let unsigned = ObjectSettings {
        no_sign_request: true,
        ..object_settings(emulator.variables())
    };
    let by_option = "leave --no-sign-request out; if that is not enough, log in (az login)";
    for (settings, remedy) in [
        (object_settings(without.clone()), "log in (az login)"),
        (unsigned, by_option),
    ] {
        let error = open(settings);
        assert!(error.remedy.starts_with(remedy), "{error}");
    }
    let key = "Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5";
    let wrong = vec![("AZURE_STORAGE_KEY".to_string(), key.to_string())];
    let error = open(object_settings([without, wrong].concat()));
    assert!(error.why.contains("AZURE_STORAGE_KEY"), "{error}");
    assert!(!error.to_string().contains(key), "{error}");
}
