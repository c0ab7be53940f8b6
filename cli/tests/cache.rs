//! Tests `foreread cache` on folders that are valid, damaged, hostile, or missing.

use crate::common::{BINARY, Got, disk_cache, foreread, list_in, says, text};
use foreread::source::Mem;
use foreread_testing::{BucketServer, ExactSource};
use serde_json::{Value, json};
use std::fs;
use std::io::IoSliceMut;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A folder with a cache, filled by the engine.
struct Filled {
    dir: tempfile::TempDir,
}

impl Filled {
    fn new(sources: &[(&str, u64)]) -> Filled {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = disk_cache(dir.path());
        for (name, size) in sources {
            let bytes = Mem::new(vec![7; *size as usize]);
            let source = cache.over(Arc::new(ExactSource::new(bytes, name, "\"v1\"")));
            let mut buf = vec![0; *size as usize];
            let read = source.read_at(&mut [IoSliceMut::new(&mut buf)], 0);
            assert_eq!(read, Ok(*size as usize));
        }
        assert!(cache.flush(Duration::from_secs(60)), "written");
        Filled { dir }
    }

    fn path(&self) -> &str {
        text(self.dir.path())
    }

    fn run(&self, command: &str, more: &[&str]) -> Got {
        foreread(["cache", command, self.path()].iter().chain(more))
    }

    fn json(&self, command: &str, more: &[&str]) -> Value {
        self.run(command, &[more, &["--json"]].concat()).json()
    }

    fn numbers<const N: usize>(&self, words: &[&str], keys: [&str; N]) -> [Option<u64>; N] {
        let json = self.json(words[0], &words[1..]);
        keys.map(|key| json[key].as_u64())
    }

    /// What the listing of the cache has of this kind.
    fn sources(&self, kind: &str, more: &[&str]) -> Vec<String> {
        let listed = self.json("list", more);
        let listed = listed[kind].as_array().expect("a list").iter();
        let source = |one: &Value| one["source"].as_str().expect("text").to_string();
        listed.map(source).collect()
    }

    /// The files whose names end so, in order.
    fn files(&self, is_one: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let mut all = files(self.dir.path());
        all.retain(|path| is_one(&path.file_name().expect("a name").to_string_lossy()));
        all.sort();
        all
    }

    /// The files of all versions.
    fn objects(&self) -> Vec<PathBuf> {
        self.files(|name| name.ends_with(".data") || name.ends_with(".sums"))
    }

    /// The file of a version that ends so.
    fn file(&self, source: &str, ending: &str) -> PathBuf {
        let listed = self.json("list", &[source]);
        let file = listed["versions"][0]["file"].as_str().expect("a file");
        let folder = self.dir.path().join("foreread-cache-2");
        folder.join(format!("{file}{ending}"))
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a folder").flatten();
    let below = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        _ => vec![entry.path()],
    };
    entries.flat_map(below).collect()
}

fn three() -> Filled {
    Filled::new(&[
        ("s3://b/a/one", 3 * MIB),
        ("s3://b/a/two", 2 * MIB + 5),
        ("s3://b/c", 100),
    ])
}

#[test]
fn list_and_stat_show_the_content() {
    let cache = three();
    let listed = cache.json("list", &[]);
    assert_eq!(listed["schema"], "foreread.cache-list/1");
    let names = ["s3://b/a/one", "s3://b/a/two", "s3://b/c"];
    assert_eq!(cache.sources("versions", &[]), names);
    let two = &listed["versions"][1];
    assert_eq!(
        (&two["version"], &two["used_again"]),
        (&json!("\"v1\""), &json!(false))
    );
    let sizes = ["size_bytes", "held_bytes"].map(|key| two[key].as_u64());
    assert_eq!(sizes, [Some(2 * MIB + 5); 2]);
    let text = cache.run("list", &["s3://b/a/"]);
    let lines = Vec::from_iter(text.is_done().lines());
    let is_right = lines.len() == 3 && lines[1].ends_with("s3://b/a/one");
    assert!(is_right && lines[2].contains("100 %"), "{}", text.out);
    let blocks = |path: &PathBuf| path.metadata().expect("there").blocks();
    let on_disk = cache.objects().iter().map(blocks).sum::<u64>() * 512;
    let keys = [
        "versions",
        "sources",
        "versions_again",
        "held_bytes",
        "file_bytes",
    ];
    let wanted = [3, 3, 0, 5 * MIB + 105, on_disk].map(Some);
    assert_eq!(cache.numbers(&["stat"], keys), wanted);
    assert!(cache.run("stat", &[]).is_done().starts_with("on disk"));
}

/// Names of folders: shown, removed with what is below them, and not by the name of one object. A text that is hostile is not shown.
#[test]
fn listings_are_shown_and_removed_by_folder() {
    let cache = three();
    let server = BucketServer::start().expect("a port");
    for key in ["d/a", "d/b", "d/sub/x", "e/y"] {
        server.put(key, vec![1; 10]);
    }
    let list = || {
        list_in(
            &disk_cache(cache.dir.path()),
            &server,
            &["", "d", "d/sub", "e"],
        )
    };
    list();
    let bucket = "s3://bucket/";
    let all = ["", "d/", "d/sub/", "e/"].map(|folder| format!("{bucket}{folder}"));
    let sources = |more: &[&str]| cache.sources("listings", more);
    assert_eq!(sources(&[]), all);
    let counts = cache.numbers(&["stat"], ["listings", "listed_names"]);
    assert_eq!(counts, [Some(4), Some(7)]);
    says(cache.run("list", &[]).is_done(), &["s3://bucket/d/sub/"]);
    assert_eq!(sources(&["s3://bucket/d/"]), all[1..3]);
    cache.run("remove", &["s3://bucket/d/"]).is_done();
    assert_eq!(sources(&[]), [bucket, "s3://bucket/e/"]);
    let files = cache.files(|name| name.len() == 32);
    let text = fs::read_to_string(&files[0]).expect("a text");
    fs::write(&files[0], text.replace("s3://", "\u{1b}[2J")).expect("written");
    assert_eq!(sources(&[]).len(), 1);
    cache.run("remove", &["--yes"]).is_done();
    assert_eq!(cache.files(|name| name.len() == 32), [] as [PathBuf; 0]);
    list();
    assert_eq!(sources(&[]), all);
}

#[test]
fn verify_finds_and_removes_invalid_blocks() {
    let cache = three();
    let first = cache.run("verify", &[]);
    assert!(first.is_done().starts_with("3 versions read"));
    says(&first.out, &[" 0 wrong"]);
    let open = |path: &Path| {
        let mut options = fs::File::options();
        options.write(true).open(path).expect("opened")
    };
    // One block, a header, and a link in the place of a file.
    let one = cache.file("s3://b/a/one", ".data");
    open(&one).write_all_at(&[1], 70_000).expect("changed");
    let small = cache.file("s3://b/c", ".sums");
    open(&small).set_len(50).expect("cut");
    let two = cache.file("s3://b/a/two", ".data");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let moved = elsewhere.path().join("moved");
    fs::rename(&two, &moved).expect("moved");
    symlink(&moved, &two).expect("a link");
    let kept = cache.json("verify", &["--dry-run"]);
    let counts = ["versions", "wrong", "removed"].map(|key| kept[key].as_u64());
    assert_eq!(counts, [Some(3), Some(3), Some(0)]);
    let faults = kept["faults"].as_array().expect("a list");
    let offsets = faults.iter().filter_map(|fault| fault["offset"].as_u64());
    assert_eq!(Vec::from_iter(offsets), [69_632, 0, 0]);
    let removed = cache.run("verify", &[]);
    assert_eq!(removed.code, Some(1));
    says(&removed.out, &["3 wrong and removed"]);
    says(&removed.err, &["3 blocks are wrong"]);
    says(cache.run("verify", &[]).is_done(), &["1 version read"]);
    let left = cache.json("list", &[]);
    let held = left["versions"][0]["held_bytes"].as_u64();
    assert_eq!(held, Some(3 * MIB - 4096));
    assert!(moved.exists(), "what a link names is left alone");
}

#[test]
fn remove_and_trim_take_versions_away() {
    let cache = three();
    let hint = cache.run("remove", &["s3://b/a"]);
    hint.refuses("write s3://b/a/ for all sources below it");
    let none = cache.run("remove", &["s3://b/zz"]);
    none.refuses("no version of it is in the cache");
    let one = cache.run("remove", &["s3://b/a/one"]);
    assert!(one.is_done().starts_with("1 version removed"));
    assert_eq!(cache.objects().len(), 3);
    // The oldest goes first.
    let oldest = cache.file("s3://b/a/two", ".sums");
    let file = fs::File::options().write(true).open(&oldest).expect("open");
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1000);
    file.set_modified(long_ago).expect("dated");
    let trimmed = cache.run("trim", &["--size", "1200K"]);
    assert!(trimmed.is_done().contains(" removed; "), "{}", trimmed.out);
    assert!(!oldest.exists());
    cache.run("remove", &[]).refuses("add --yes");
    assert_eq!(cache.objects().len(), 1);
    // It is only read while the file with its size is a folder.
    let size = format!("{}/foreread-cache-2/size", cache.path());
    fs::rename(&size, format!("{size}-moved")).expect("moved");
    fs::create_dir(&size).expect("a folder");
    let trimmed = cache.run("trim", &["--size", "1M"]);
    let words = ["cannot change the disk cache: Read-only file system"];
    says(trimmed.assert_code(2), &words);
    let warmed = foreread(["warm", "--disk-cache", cache.path(), "s3://b/a"]);
    says(warmed.assert_code(2), &["the disk cache is read-only"]);
    fs::remove_dir(&size).expect("removed");
    let last = cache.run("remove", &["--yes"]);
    assert!(last.is_done().starts_with("1 version"));
    assert_eq!(cache.objects(), Vec::<PathBuf>::new());
    assert_eq!(cache.run("list", &[]).is_done(), "The cache is empty.\n");
}

/// The cache has room for one of two sources, so the second evicts what was fetched for the first.
#[test]
fn warm_fails_if_a_source_evicts_another() {
    let server = BucketServer::start().expect("a port");
    for key in ["a/1", "a/2", "b/1", "b/2"] {
        server.put(key, vec![7; 6 << 20]);
    }
    let warm = |sources: &[&str]| {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = format!("{},size=20M,free=0", text(dir.path()));
        let mut command = Command::new(BINARY);
        command.args(["warm", "--disk-cache", &cache]).args(sources);
        let out = command.envs(server.variables()).output();
        Got::from(&out.expect("it starts"))
    };
    warm(&["s3://bucket/a/"]).is_done();
    let both = warm(&["s3://bucket/a/", "s3://bucket/b/"]);
    let words = ["the disk cache is full", "was evicted again"];
    says(both.assert_code(1), &words);
}

#[test]
fn folders_writable_by_others_are_refused() {
    let cache = three();
    let inner = format!("{}/foreread-cache-2", cache.path());
    fs::set_permissions(cache.path(), PermissionsExt::from_mode(0o777)).expect("open to all");
    let others = cache.run("list", &[]);
    let words = ["other users can write to it", "others=trusted"];
    says(others.is_refused(), &words);
    let trusted = format!("{},others=trusted", cache.path());
    let listed = foreread(["cache", "list", &trusted]);
    assert_eq!(listed.is_done().lines().count(), 4);
    // A link in place of the folder of the format.
    let linked = tempfile::tempdir().expect("a folder");
    symlink(&inner, linked.path().join("foreread-cache-2")).expect("a link");
    let linked = text(linked.path());
    foreread(["cache", "remove", linked, "--yes"]).refuses("has no folder");
    assert_eq!(cache.objects().len(), 5);
}

/// A folder of another version of the format is neither read nor changed, with and without a cache beside it; an older one is named, with
/// how to remove it.
#[test]
fn a_folder_of_another_format_is_not_touched() {
    for (version, is_old) in [(9, false), (1, true)] {
        let filled = Filled::new(&[("s3:b/a", 5000)]);
        let name = format!("foreread-cache-{version}");
        let other = filled.dir.path().join(&name);
        fs::create_dir(&other).expect("made");
        fs::write(other.join("size"), "not ours\n").expect("written");
        let is_there = |command: &str| assert_eq!(files(&other), [other.join("size")], "{command}");
        let said = filled.run("stat", &[]);
        let words = Vec::from_iter(said.is_done().split_whitespace()).join(" ");
        let how = format!("'rm -r {}/{name}'", filled.path());
        assert_eq!(words.contains(&how), is_old, "{words}");
        assert_eq!(filled.json("stat", &[])["has_old_folder"], is_old);
        for line in ["trim --size 1", "remove", "list"] {
            let words = Vec::from_iter(line.split(' '));
            filled.run(words[0], &words[1..]).is_done();
            is_there(line);
        }
        fs::remove_dir_all(filled.dir.path().join("foreread-cache-2")).expect("removed");
        let reason = match is_old {
            true => "foreread-cache-1 of an older version",
            false => "it has no folder foreread-cache-2;",
        };
        for command in ["list", "stat", "verify", "remove"] {
            filled.run(command, &[]).refuses(reason);
            is_there(command);
        }
    }
}
