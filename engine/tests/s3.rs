//! Objects of S3 and folders of them, against versitygw, and what real servers say that cannot be read from.
//! Each server that is missing is named: `skipped: needs X`.

use crate::common::gateway::Gateway;
use crate::common::{self, Rng, object_settings, quiet, watch};
use foreread::source::object::{Object, ObjectSettings, Prefix};
use foreread::source::tree::{Kind, Tree};
use foreread::source::{self, Source};
use foreread::source::{SourceError, SourceOpenError};
use foreread::{Options, ReadError, Reader};
use foreread_testing::{self as testing, BucketServer, Link, Proxy, pattern};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn settings(gateway: &Gateway) -> ObjectSettings {
    watch();
    object_settings(gateway.variables())
}

fn bytes(size: u64, version: u16) -> Vec<u8> {
    pattern(0, size as usize, version)
}

fn open(gateway: &Gateway, key: &str) -> Object {
    Object::open_with(&format!("s3://bucket/{key}"), settings(gateway))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn read_all(source: &dyn Source) -> Vec<u8> {
    common::read_all(source).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn objects_of_s3_are_read_back() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    for (key, size) in [
        ("none", 0),
        ("one", 1),
        ("dir/a b+c&d=é#%41?", 70_001),
        ("large", 5 * MIB + 3),
    ] {
        gateway.put(key, bytes(size, 0));
        let object = open(&gateway, key);
        assert_eq!((object.size(), object.check()), (size, Ok(size)));
        assert!(
            object.describe().ends_with("by ETag"),
            "{}",
            object.describe()
        );
        assert!(read_all(&object) == bytes(size, 0), "{key}");
    }
    // Through the engine, in any order.
    let reader = Reader::open(
        Arc::new(open(&gateway, "large")),
        Options::default().cache_bytes(2 * MIB),
    )
    .expect("opened");
    let mut rng = Rng(3);
    let mut buf = vec![0; 100_000];
    for _ in 0..100 {
        crate::common::read_and_check(
            &reader,
            &mut buf[..rng.0 as usize % 100_000],
            rng.below(5 * MIB),
            0,
        );
        rng.next();
    }
    quiet(&reader);
}

/// Put anew under a stream of reads, over a slow link so that much is under way: bytes of one version, one notice, bytes
/// of the other.
#[test]
fn an_object_put_anew_is_noticed_and_never_mixed() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let server = std::net::SocketAddr::from(([127, 0, 0, 1], gateway.port));
    let proxy =
        Proxy::start(server, Link::new(Duration::from_millis(3), 200_000_000)).expect("a port");
    let mut settings = settings(&gateway);
    for (name, value) in &mut settings.variables {
        if name == "AWS_ENDPOINT_URL" {
            *value = format!("http://{}", proxy.address());
        }
    }
    for seed in 0..3 {
        gateway.put("x", bytes(8 * MIB, 0));
        let object = Object::open_with("s3://bucket/x", settings.clone()).expect("opened");
        let reader = Reader::open(Arc::new(object), Options::default().cache_bytes(4 * MIB))
            .expect("opened");
        let at = Rng(seed).below(5 * MIB);
        let (mut put, mut notices) = (false, 0);
        let mut buf = vec![0; 64 << 10];
        for offset in (0..8 * MIB).step_by(buf.len()) {
            if offset >= at && !put {
                gateway.put("x", bytes(8 * MIB, 1));
                put = true;
            }
            match reader.read_at(&mut buf, offset) {
                Ok(len) => {
                    let wrong = testing::check(&buf[..len], offset, u16::from(notices > 0));
                    assert_eq!(wrong, Ok(()), "seed {seed}, {notices} notices");
                }
                Err(ReadError::Changed { .. }) => notices += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(notices, 1, "seed {seed}");
        quiet(&reader);
    }
    gateway.delete("x");
    let object = Object::open_with("s3://bucket/x", settings);
    assert_eq!(
        object.err().map(|error| error.errno),
        Some(rustix::io::Errno::NOENT.raw_os_error())
    );
}

#[test]
fn an_object_that_is_gone_is_an_error_until_it_is_there_again() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    gateway.put("x", bytes(MIB, 0));
    let object = open(&gateway, "x");
    gateway.delete("x");
    let read = || object.read_at(&mut [IoSliceMut::new(&mut [0; 100])], 0);
    let gone = rustix::io::Errno::NOENT.raw_os_error();
    assert!(
        matches!(read(), Err(SourceError::Io { errno, .. }) if errno == gone),
        "{:?}",
        read()
    );
    assert!(matches!(object.check(), Err(SourceError::Io { errno, .. }) if errno == gone));
    assert_eq!(
        object.accept(),
        MIB,
        "there is nothing to accept: what was known stays"
    );
    gateway.put("x", bytes(2 * MIB, 1));
    assert!(
        matches!(read(), Err(SourceError::Changed { .. })),
        "{:?}",
        read()
    );
    assert_eq!(object.accept(), 2 * MIB);
    assert!(read_all(&object) == bytes(2 * MIB, 1));
}

#[test]
fn what_s3_refuses_is_said_in_one_line_with_a_remedy() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    gateway.put("x", bytes(10, 0));
    let refused = |name: &str, set: &[(&str, &str)]| {
        let mut settings = settings(&gateway);
        for (variable, value) in set {
            settings.variables.retain(|(own, _)| own != variable);
            settings
                .variables
                .push((variable.to_string(), value.to_string()));
        }
        let line = Object::open_with(name, settings)
            .err()
            .unwrap_or_else(|| panic!("{name} opened"))
            .to_string();
        assert!(
            !line.contains('\n')
                && !line.contains(crate::common::gateway::SECRET)
                && line.len() < 250,
            "{line}"
        );
        line
    };
    for (name, set, words) in [
        (
            "s3://bucket/y",
            &[][..],
            "answered 404 NoSuchKey; check bucket and key (a prefix ends with /)",
        ),
        (
            "s3://tekcub/x",
            &[],
            "answered 404 NoSuchBucket; check bucket and key",
        ),
        (
            "s3://bucket/x",
            &[("AWS_SECRET_ACCESS_KEY", "wrong")],
            "403 SignatureDoesNotMatch (credentials: the variable AWS_ACCESS_KEY_ID); check AWS_ACCESS_KEY_ID",
        ),
        (
            "s3://bucket/x",
            &[("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")],
            "403 AccessDenied; log in (aws sso login, aws configure), or set AWS_ACCESS_KEY_ID",
        ),
        (
            "s3://bucket/x",
            &[("AWS_ACCESS_KEY_ID", "")],
            "one of two variables of a key is missing; set AWS_ACCESS_KEY_ID",
        ),
        (
            "s3://bucket/x",
            &[("AWS_REGION", "eu-north-1")],
            "set AWS_REGION",
        ),
        (
            "s3://bucket/x",
            &[
                ("AWS_ALLOW_HTTP", ""),
                ("AWS_ENDPOINT_URL", "http://192.0.2.1"),
            ],
            "set AWS_ALLOW_HTTP=true",
        ),
        ("s3://bucket/dir/", &[], "it is a prefix, not an object"),
        ("s3://bucket/a//b", &[], "the key has an empty part"),
    ] {
        let line = refused(name, set);
        assert!(line.starts_with(name) && line.contains(words), "{line}");
    }
}

/// versitygw has no ETag of a file that was put into its folder by another program, and refuses any that is named.
#[test]
fn a_file_that_another_program_put_into_the_bucket_is_read() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    gateway.put("dir/put", bytes(10, 0));
    std::fs::write(gateway.dir.path().join("bucket/dir/copied"), bytes(MIB, 0)).expect("written");
    let tree = Prefix::open_with("s3://bucket/dir/", settings(&gateway))
        .unwrap_or_else(|error| panic!("{error}"));
    let mut meta = None;
    tree.list(Path::new(""), &mut |entry| {
        meta = if entry.name == "copied" {
            entry.meta
        } else {
            meta.take()
        };
        true
    })
    .expect("listed");
    let meta = meta.expect("there");
    let (listed, _) = tree
        .open_listed(Path::new("copied"), &meta)
        .expect("nothing is asked");
    let (opened, of_object) = tree.open(Path::new("copied")).expect("opened");
    assert!(tree.is_same(&meta, &of_object), "{meta:?} {of_object:?}");
    for source in [listed, opened, Arc::new(open(&gateway, "dir/copied"))] {
        assert!(read_all(&*source) == bytes(MIB, 0), "{}", source.describe());
        assert_eq!(source.check(), Ok(MIB));
    }
}

/// Folders are made of keys; a listing of several pages is whole.
#[test]
fn a_prefix_is_a_tree() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    for key in [
        "top/a",
        "top/b c",
        "top/sub/x",
        "top/sub/deep/y",
        "topmost",
        "other/z",
    ] {
        gateway.put(key, bytes(1000 + key.len() as u64, 0));
    }
    // Two pages and a bit, straight into the server's folder.
    let many = gateway.dir.path().join("bucket/top/many");
    std::fs::create_dir(&many).expect("a folder");
    (0..2100).for_each(|n| std::fs::write(many.join(format!("{n:05}")), "x").expect("written"));
    let tree = Prefix::open_with("s3://bucket/top/", settings(&gateway))
        .unwrap_or_else(|error| panic!("{error}"));
    let list = |dir: &str| {
        let mut names = BTreeMap::new();
        let listed = tree.list(Path::new(dir), &mut |entry| {
            names.insert(entry.name.into_string().expect("text"), entry.kind);
            true
        });
        listed.map(|()| names)
    };
    let top = [
        ("a", Kind::File),
        ("b c", Kind::File),
        ("many", Kind::Folder),
        ("sub", Kind::Folder),
    ];
    assert_eq!(
        list(""),
        Ok(top.map(|(name, kind)| (name.to_string(), kind)).into())
    );
    assert_eq!(
        list("sub").expect("listed").keys().collect::<Vec<_>>(),
        ["deep", "x"]
    );
    assert_eq!(list("many").expect("listed").len(), 2100);
    let gone = rustix::io::Errno::NOENT.raw_os_error();
    assert_eq!(list("nowhere").map_err(|error| error.errno()), Err(gone));
    assert_eq!(list("../other").map_err(|error| error.errno()), Err(gone));
    assert_eq!(
        tree.look(Path::new("../other/z"))
            .map_err(|error| error.errno()),
        Err(gone)
    );
    assert_eq!(
        tree.look(Path::new("su")).map_err(|error| error.errno()),
        Err(gone),
        "the beginning of a name is none"
    );
    assert_eq!(
        tree.look(Path::new("sub")).map(|meta| meta.kind),
        Ok(Kind::Folder)
    );

    let seen = tree.look(Path::new("sub/deep/y")).expect("there");
    let (source, opened) = tree.open(Path::new("sub/deep/y")).expect("opened");
    assert_eq!(
        (&seen.version, seen.size, seen.kind),
        (&opened.version, opened.size, Kind::File)
    );
    assert!(read_all(&*source) == bytes(seen.size, 0));
    gateway.put("top/sub/deep/y", bytes(seen.size, 1));
    assert_ne!(
        tree.look(Path::new("sub/deep/y")).expect("there").version,
        seen.version
    );
    assert!(tree.open(Path::new("sub")).is_err());

    let whole = Prefix::open_with("s3://bucket", settings(&gateway)).expect("the whole bucket");
    assert_eq!(
        whole.look(Path::new("other/z")).map(|meta| meta.size),
        Ok(1007)
    );
    let nothing = Prefix::open_with("s3://bucket/nothing/", settings(&gateway))
        .err()
        .expect("nothing is there");
    let line = "s3://bucket/nothing/: no object has a name that begins so; check bucket and prefix (aws s3 ls s3://bucket/nothing/)";
    assert_eq!((nothing.to_string().as_str(), nothing.errno), (line, 2));
}

fn in_memory(server: &BucketServer, name: &str) -> Result<Prefix, SourceOpenError> {
    watch();
    Prefix::open_with(
        name,
        ObjectSettings {
            variables: server.variables(),
            ..ObjectSettings::default()
        },
    )
}

fn names(tree: &Prefix, folder: &str) -> Result<Vec<(String, Kind)>, i32> {
    let mut names = Vec::new();
    let listed = tree.list(Path::new(folder), &mut |entry| {
        names.push((entry.name.into_string().expect("text"), entry.kind));
        true
    });
    listed.map(|()| names).map_err(|error| error.errno())
}

/// Keys that no file can be called by do not hide the others, wherever they are, on whichever page.
#[test]
fn odd_keys_are_left_out_and_counted_once() {
    let server = BucketServer::start().expect("a port");
    for key in [
        "dir/a",
        "dir//c",
        "dir/..",
        "dir/.",
        "dir/b\tc",
        "dir/b\nc",
        "dir/sub/x",
        "dir/\u{7f}/y",
        "odd//",
        "/x",
    ] {
        server.put(key, b"bytes".to_vec());
    }
    server.put("marked/", Vec::new());
    server.put(&format!("dir/{}", "n".repeat(300)), Vec::new());
    let tree = in_memory(&server, "s3://bucket").unwrap_or_else(|error| panic!("{error}"));
    let file = |name: &str| (name.to_string(), Kind::File);
    let folder = |name: &str| (name.to_string(), Kind::Folder);
    assert_eq!(
        names(&tree, ""),
        Ok(vec![folder("dir"), folder("marked"), folder("odd")])
    );
    assert_eq!(tree.left_out(), 1, "/x");
    for _ in 0..2 {
        assert_eq!(names(&tree, "dir"), Ok(vec![file("a"), folder("sub")]));
        assert_eq!(tree.left_out(), 8);
    }
    assert_eq!(
        (names(&tree, "odd"), tree.left_out()),
        (Ok(vec![]), 9),
        "it is there, with nothing to show"
    );
    assert_eq!(names(&tree, "marked"), Ok(vec![]), "an empty folder is one");
    assert_eq!(
        names(&tree, "gone"),
        Err(rustix::io::Errno::NOENT.raw_os_error())
    );
    let (source, _) = tree.open(Path::new("dir/a")).expect("opened");
    assert_eq!(read_all(&*source), b"bytes");
    // The first key there is, is an odd one; and a prefix that is one itself says so.
    assert_eq!(
        names(
            &in_memory(&server, "s3://bucket/odd/").expect("mounted"),
            ""
        ),
        Ok(vec![])
    );
    let line = in_memory(&server, "s3://bucket/dir//")
        .err()
        .expect("refused")
        .to_string();
    assert!(line.contains("the prefix has an empty part"), "{line}");
    // A page of odd keys alone, and one behind it.
    (0..1200).for_each(|n| server.put(&format!("many/{n:04}\n"), Vec::new()));
    server.put("many/last", Vec::new());
    assert_eq!(
        (names(&tree, "many"), tree.left_out()),
        (Ok(vec![file("last")]), 1209)
    );
}

/// Python's server answers any range with the whole file, which is taken as long as it is small.
#[test]
fn a_server_without_ranges_is_refused() {
    watch();
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("x"), pattern(0, 200_000, 0)).expect("written");
    std::fs::write(dir.path().join("small"), pattern(0, 100_000, 0)).expect("written");
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    let mut command = Command::new("python3");
    command
        .args([
            "-m",
            "http.server",
            "--bind",
            "127.0.0.1",
            &port.to_string(),
        ])
        .current_dir(dir.path());
    let Ok(mut child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        println!("skipped: needs python3 (apt-get install python3)");
        return;
    };
    for _ in 0..1000 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let line = source::open(&format!("http://127.0.0.1:{port}/x"))
        .map(|_| ())
        .expect_err("no ranges")
        .to_string();
    let small =
        source::open(&format!("http://127.0.0.1:{port}/small")).map(|source| read_all(&*source));
    drop((child.kill(), child.wait()));
    assert!(small.expect("opened") == pattern(0, 100_000, 0));
    let words = "the server sends the whole object where a part was asked for: it does not know ranges; use a server that";
    assert!(line.contains(words), "{line}");
}
