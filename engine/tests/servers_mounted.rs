//! Tests of realistic servers behind real mounts, of a prefix and of one object. An existing name is shown or the
//! listing fails; a file that was refused once can be read by the next program; slow operations end with their caller,
//! and with the mount.

use crate::common::{is_alone, right, this_test, wait_until};
use crate::fuse::{Here, believed, can_mount, mount_with, small};
use crate::stores::{
    FILES, NAMES, NO_LISTINGS, bucket, endless as lists_without_end, memory_settings as settings,
    not_a_listing, unmet,
};
use foreread::front::fuse::FuseSettings;
use foreread::source::Source;
use foreread::source::object::{Object, ObjectSettings, Prefix};
use foreread::source::tree::{NameBytes, Single, Tree, max_name_bytes, name_bytes};
use foreread_testing::{self as testing, BucketServer, Link, needs, rows, says};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Nothing is believed, so that each question goes to the server.
fn mount(tree: Arc<dyn Tree>) -> Here {
    mount_with(tree, &believed(Duration::ZERO), small().policy("none"))
}

fn prefix(settings: ObjectSettings) -> Arc<dyn Tree> {
    let prefix = Prefix::open_with("s3://bucket/dir/", settings);
    Arc::new(prefix.expect("opened"))
}

fn mount_prefix(settings: ObjectSettings) -> Here {
    mount(prefix(settings))
}

fn mount_object(server: &BucketServer, name: &'static str) -> Here {
    let (url, settings) = (server.url(&format!("dir/{name}")), settings(server));
    let open = move || {
        Object::open_with(&url, settings.clone()).map(|object| Arc::new(object) as Arc<dyn Source>)
    };
    mount(Arc::new(Single::new(name, name, open).expect("opened")))
}

fn listed(here: &Here) -> std::io::Result<Vec<String>> {
    let names = fs::read_dir(here.dir.path())?
        .map(|entry| Ok(entry?.file_name().into_string().expect("text")));
    let mut names: Vec<String> = names.collect::<std::io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// A single object has the date that its store has of it, as in the listing of its folder; so has the folder that shows it.
#[test]
fn a_single_object_has_its_date() {
    needs!(can_mount());
    let (server, (name, _)) = (bucket(), FILES[0]);
    let date = |path: &Path| {
        let date = fs::metadata(path).and_then(|meta| meta.modified());
        date.expect("a date")
    };
    let whole = mount_prefix(settings(&server));
    let listed = date(&whole.path(name));
    whole.end();
    let here = mount_object(&server, name);
    assert!(listed > std::time::SystemTime::UNIX_EPOCH);
    let dates = (date(&here.path(name)), date(here.dir.path()));
    assert_eq!(dates, (listed, listed));
    here.end();
}

/// An object is replaced within the second by one of its size: what the kernel and the mount have of the old one is not mixed with the new
/// one, whether the file's reader is still there or was given up for those of other files.
#[test]
fn a_replacement_that_only_the_etag_tells_is_never_mixed() {
    needs!(can_mount());
    let (size, others) = (600_000, 200);
    for given_up in [false, true] {
        let server = bucket();
        server.put("dir/a", testing::pattern(0, size, 1));
        (0..others).for_each(|n| server.put(&format!("dir/other{n}"), vec![7; 10]));
        let believed = believed(Duration::from_secs(600));
        let here = mount_with(prefix(settings(&server)), &believed, small().policy("none"));
        here.names("");
        let mut part = vec![0; 300_000];
        here.open("a").read_exact_at(&mut part, 0).expect("read");
        right(&part, 0, 1);
        server.put_within_the_second("dir/a", testing::pattern(0, size, 2));
        for other in (0..others).filter(|_| given_up) {
            here.read(&format!("other{other}")).expect("read");
        }
        let stale = |error: std::io::Error| {
            assert_eq!(error.raw_os_error(), Some(Errno::STALE.raw_os_error()));
        };
        let mut tries = (0..5).filter_map(|_| here.read("a").map_err(stale).ok());
        right(&tries.next().expect("five tries are enough"), 0, 2);
        here.end();
    }
}

#[test]
fn an_invalid_listing_is_not_an_empty_folder() {
    needs!(can_mount());
    let server = bucket();
    server.set_page(2);
    let here = mount_prefix(settings(&server));
    for [status, _, body] in rows(NO_LISTINGS) {
        let what = format!("{status} {body}");
        for is_second in [false, true] {
            assert_eq!(listed(&here).expect("a listing"), NAMES, "before {what}");
            let part = if is_second { "continuation-token" } else { "" };
            server.edit(not_a_listing(part, status, body));
            assert!(listed(&here).is_err(), "{what}: {:?}", listed(&here));
            if !is_second {
                let error = fs::metadata(here.path("large")).expect_err("asked");
                let noent = Some(Errno::NOENT.raw_os_error());
                assert_ne!(error.raw_os_error(), noent, "{what}");
                let mut order = here.planner.begin();
                let pushed = order.push(Path::new("small"));
                assert!(pushed.is_err() && order.unknown() == 0, "{what}");
            }
            server.honest();
        }
    }
    assert_eq!(listed(&here).expect("a listing"), NAMES);
    here.end();
}

/// A 412 to both questions fails the read that waits, and no later one: the mount does not keep a reader that has taken it for a change.
#[test]
fn a_file_that_was_refused_is_read_by_the_next_program() {
    needs!(can_mount());
    let server = bucket();
    let believed = believed(Duration::from_secs(3600));
    let prefix = prefix(settings(&server));
    let of_prefix = mount_with(prefix, &believed, small().policy("none"));
    for here in [of_prefix, mount_object(&server, "large")] {
        let at = |offset: u64| {
            let mut buf = [0; 4096];
            let read = here.open("large").read_exact_at(&mut buf, offset);
            read.map(|()| right(&buf, offset, 0))
        };
        at(0).expect("read");
        unmet(&server, 2);
        let refused = at(150_000).expect_err("a change, as far as is known");
        assert_eq!(refused.raw_os_error(), Some(Errno::STALE.raw_os_error()));
        server.honest();
        for offset in [200_000, 250_000] {
            at(offset).unwrap_or_else(|error| panic!("{offset}: {error}"));
        }
        here.end();
    }
}

/// Pages that come slowly and without an end, of a tree that would wait for an hour.
fn endless() -> (BucketServer, Here) {
    let server = bucket();
    let hour = Duration::from_secs(3600);
    let here = mount_prefix(ObjectSettings {
        stall: hour,
        total: hour,
        ..settings(&server)
    });
    lists_without_end(&server);
    server.link(Link::new(Duration::from_millis(200), 0));
    (server, here)
}

/// Starts `ls` and waits until its listing is under way.
fn list(server: &BucketServer, here: &Here) -> std::process::Child {
    let before = server.requests().lists;
    let mut ls = Command::new("ls");
    let ls = ls.arg(here.dir.path()).stdout(Stdio::null());
    let ls = ls.stderr(Stdio::null()).spawn().expect("started");
    wait_until("it lists", || server.requests().lists >= before + 2);
    ls
}

/// The kernel passes no interrupt on, so the mount looks. A program that was killed ends though the storage has not answered.
#[test]
fn a_program_that_is_killed_while_it_lists_ends() {
    needs!(can_mount());
    let (server, here) = endless();
    for signal in ["-KILL", "-TERM", "-INT"] {
        let mut ls = list(&server, &here);
        foreread_testing::machine::signal(ls.id(), signal);
        assert!(!ls.wait().expect("it ends").success());
    }
    server.honest();
    server.link(Link::new(Duration::ZERO, 0));
    assert_eq!(listed(&here).expect("a listing"), NAMES);
    here.end();
}

/// A mount that is stopped while a program lists it ends, and the program with an error.
#[test]
fn a_mount_that_is_stopped_ends_its_listings() {
    needs!(can_mount());
    let (server, here) = endless();
    let mut ls = list(&server, &here);
    here.stop.stop().expect("unmounted");
    assert!(!ls.wait().expect("it ends").success());
    here.joined();
}

/// A name of a long listing is a place in it, with a number that it keeps as long as its version is the same. One that is asked about has
/// that number as well.
#[test]
fn the_names_of_a_long_listing_take_little_memory() {
    // The account is that of the process.
    needs!(is_alone(this_test!()));
    needs!(can_mount());
    let server = bucket();
    let name = |n: u64| format!("image-{n:05}");
    let many = 10_000;
    (0..many).for_each(|n| server.put(&format!("dir/{}", name(n)), vec![b'x'; 9]));
    let here = mount_prefix(settings(&server));
    let numbers = || -> BTreeMap<String, u64> {
        let entries = fs::read_dir(here.dir.path()).expect("listed");
        let entries = Vec::from_iter(entries.map(|entry| entry.expect("listed")));
        let name = |entry: &fs::DirEntry| entry.file_name().into_string().expect("text");
        let numbers = entries.iter().map(|entry| (name(entry), entry.ino()));
        let numbers = BTreeMap::from_iter(numbers);
        assert_eq!(numbers.len(), entries.len(), "each name once");
        numbers
    };
    let first = numbers();
    assert_eq!(first.len() as u64, many + NAMES.len() as u64);
    let each = name_bytes() / many;
    assert!(each < 100, "{each} bytes a name");
    for n in [0, 1, 4_999, many - 1] {
        assert_eq!(here.ino(&name(n)), first[&name(n)]);
        assert_eq!(here.read(&name(n)).expect("read"), vec![b'x'; 9]);
    }
    assert_eq!(numbers(), first, "listed again");
    // Another version of a name that was read, and of one that was not; a new name, and one that is gone.
    let (read, unread, gone) = (name(1), name(7), name(3));
    server.put(&format!("dir/{read}"), b"other".to_vec());
    server.put(&format!("dir/{unread}"), b"another".to_vec());
    server.put("dir/image-00000-new", Vec::new());
    server.delete(&format!("dir/{gone}"));
    let second = numbers();
    for (name, number) in &second {
        let is_other = [&read, &unread, "image-00000-new"].contains(&name.as_str());
        assert_eq!(first.get(name) != Some(number), is_other, "{name}");
    }
    assert_eq!(second.len(), first.len());
    assert!(!second.contains_key(&gone) && fs::metadata(here.path(&gone)).is_err());
    assert_eq!(here.read(&read).expect("read"), b"other");
    assert_eq!(here.read(&unread).expect("read"), b"another");
    assert_eq!(here.ino(&unread), second[&unread]);
    here.end();
    assert_eq!(name_bytes(), 0, "a mount that ends gives everything back");
}

/// A folder whose names do not fit is an error of the listing, and so is one name too many of those that the kernel knows.
#[test]
fn names_that_do_not_fit_end_a_listing() {
    // The account is that of the process.
    needs!(is_alone(this_test!()));
    needs!(can_mount());
    let dir = tempfile::tempdir().expect("a folder");
    (0..1000).for_each(|n| drop(File::create(dir.path().join(n.to_string())).expect("made")));
    let server = bucket();
    (0..1000).for_each(|n| server.put(&format!("dir/{n}"), Vec::new()));
    let local = foreread::source::open_tree(dir.path()).expect("a tree");
    let count = NAMES.len() + 1000;
    let prefix = prefix(settings(&server));
    for (tree, count) in [(local, 1000), (prefix, count)] {
        let here = mount(Arc::clone(&tree));
        let (before, mut others) = (name_bytes(), NameBytes::default());
        assert!(others.grow(max_name_bytes() - before - 5_000));
        let why = tree.names(Path::new("")).expect_err("too many");
        says(&why.to_string(), &["exceed the limit of"]);
        let error = listed(&here).expect_err("too many");
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        let is_right = matches!(errno, Some(Errno::OVERFLOW | Errno::TOOBIG));
        assert!(is_right, "{error}");
        drop(others);
        assert_eq!(listed(&here).expect("listed").len(), count);
        here.end();
    }
    assert_eq!(name_bytes(), 0, "a mount that ends gives everything back");
}

/// Another program takes the mount away; what is mounted below it, or in its place, stays.
#[test]
fn the_end_of_a_mount_takes_no_other_away() {
    needs!(can_mount());
    let server = bucket();
    let other = |dir: &Path, what: &[&str]| {
        let done = Command::new(what[0]).args(&what[1..]).arg(dir).status();
        assert!(done.expect("mount is there").success(), "{what:?}");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    other(dir, &["mount", "-t", "tmpfs", "below"]);
    let tree = prefix(settings(&server));
    let engine = foreread::Engine::for_tree(small(), &*tree).expect("an engine");
    let mounted = foreread::front::fuse::Mount::new(tree, engine, dir, &FuseSettings::default());
    let (mount, stop) = mounted.expect("mounted");
    let runs = std::thread::spawn(move || mount.run());
    fs::read_dir(dir).expect("it answers");
    other(dir, &["umount"]);
    runs.join().expect("no panic").expect("it ended well");
    let lines = || fs::read_to_string("/proc/self/mountinfo").expect("Linux");
    let is_there = |lines: &str| lines.contains(&format!("{} ", dir.display()));
    let after = lines();
    // A handle that is used too late takes nothing away either.
    assert!(stop.stop().is_err());
    let later = lines();
    other(dir, &["umount"]);
    assert!(is_there(&after) && is_there(&later) && !is_there(&lines()));
}
