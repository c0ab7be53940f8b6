//! Checks the rules of docs/architecture.md: what each crate may do, and what its files look like.

use crate::tree::{self, File, read, sources};

/// Lines of a file before it has to be two; the house asks to look again at 800.
const MAX_LINES: usize = 800;
/// Folders of policies, one file each, and what a file has that is one.
const POLICY_FOLDERS: [&str; 2] = ["core/src/policy", "history/src/policy"];
const INFO: &str = "pub static INFO: Info = Info {";
/// Lines of a function.
const MAX_FN_LINES: usize = 100;
/// The crates, whose sources are in `src`.
const CRATES: &str = "core history engine testing trace sim plan os attach/pagecache attach observe report lab check capi csi python cli";

pub fn all_folders() -> impl Iterator<Item = String> {
    CRATES.split(' ').map(|room| format!("{room}/src"))
}

fn all_sources() -> Vec<File> {
    all_folders().flat_map(|folder| sources(&folder)).collect()
}

/// No file below a folder has one of these words, but those that are named.
fn forbid(below: &str, words: &[&str], why: &str, except: &[&str]) {
    for file in sources(below) {
        if except.iter().any(|e| file.name.contains(e)) {
            continue;
        }
        for (number, line) in file.code().lines().enumerate() {
            if let Some(word) = words.iter().find(|w| line.contains(**w)) {
                panic!("{}:{}: '{word}': {why}", file.name, number + 1);
            }
        }
    }
}

/// The same for the folders of a table: each line has one, and the files that are left out.
fn forbid_in(table: &str, words: &[&str], why: &str) {
    for line in table.lines() {
        let mut cells = line.split_whitespace();
        let room = format!("{}/src", cells.next().expect("a crate"));
        forbid(&room, words, why, &Vec::from_iter(cells));
    }
}

/// The dependencies that a crate is shipped with.
fn dependencies(room: &str) -> String {
    let manifest = read(&format!("{room}/Cargo.toml"));
    let section = manifest.split("[dependencies]").nth(1).expect("a section");
    section.split("\n[").next().expect("its text").to_string()
}

/// A member of a group that shares a cache on disk may exchange a name for a link at any time.
#[test]
fn a_disk_cache_is_changed_by_descriptors() {
    let words = ["chmodat", "chownat", "utimensat", "set_permissions"];
    let why = "change what openat2 has opened, by its descriptor";
    forbid("engine/src/source/disk_cache", &words, why, &[]);
}

#[test]
fn core_decides_and_nothing_else() {
    let why = "core may not wait, hold bytes, do I/O, ask the time or use floating point";
    let words = "std:: unsafe f64 f32 Instant SystemTime println! HashMap".split(' ');
    forbid("core/src", &Vec::from_iter(words), why, &[]);
    assert_eq!(dependencies("core").trim(), "", "core depends on nothing");
    assert!(sources("core/src").len() > 10, "the rule must reach files");
}

#[test]
fn a_policy_knows_neither_the_cache_nor_another_policy() {
    let policies = || POLICY_FOLDERS.into_iter().flat_map(sources);
    for file in policies() {
        let (name, code) = (&file.name, file.code());
        let mut shared = ["policy.rs", "spec.rs", "policy/auto.rs"].iter();
        if shared.any(|end| name.ends_with(end)) {
            continue;
        }
        let cache = code.contains("crate::cache") || code.contains("core::cache");
        assert!(!cache, "{name}: a policy sees the cache through Probe only");
        // For the trait and what several policies share.
        let others = code.matches("super::").count();
        assert!(others <= 1, "{name}: one use of super");
        for policy in policies().filter(|file| file.text.contains(INFO)) {
            let module = policy.name.rsplit('/').next().expect("a name");
            let module = module.trim_end_matches(".rs");
            let itself = name.ends_with(&format!("/{module}.rs"));
            let knows = code.contains(&format!("{module}::"));
            assert!(itself || !knows, "{name}: knows the policy {module}");
        }
        let lines = file.text.lines().count();
        assert!(lines <= 450, "{name}: at most about 400 lines");
    }
}

#[test]
fn a_source_knows_only_units_and_limits() {
    let words = "core::machine core::event core::policy core::cache crate::driver crate::store";
    let words = Vec::from_iter(words.split(' '));
    let why = "a source knows only core::units and core::storage";
    forbid("engine/src/source", &words, why, &[]);
}

#[test]
fn the_driver_is_the_only_reader_of_the_clock() {
    // A front end has deadlines for its clients, and nothing that it decides by them reaches the machine.
    // So has a source for its storage: an NBD server that is too slow, or is connected to again after a pause, a file whose
    // time moved before its size, an object store whose answer takes longer than those before.
    // Credentials expire at a time of the wall clock; replies have dates, and an address of a hub lasts for a time.
    // A cache on disk: what of it was used when, how fast it is, how long another process is waited for.
    // A line of the log that repeats is left out for a minute.
    let engine = "driver front engine/src/log.rs source/nbd/link.rs source/nbd/stream.rs source/nbd.rs source/file/version.rs \
        source/object/credentials source/object/network.rs source/object/fetch.rs source/object/body.rs source/object/reply.rs \
        source/object/store/hub/signed.rs source/disk_cache/ source/disk_cache.rs";
    let table = format!(
        "engine {engine}
        lab live lab/src/glance.rs lab/src/probe/measure.rs lab/src/verdict/kept.rs
        attach attach/src/warm attach/src/run/ attach/src/watch.rs attach/src/doctor.rs attach/src/doctor/measure.rs
        observe observe/src/record/active.rs observe/src/recorder.rs
        check conform bench/rates.rs check/src/store.rs
        report
        sim
        history
        trace
        attach/pagecache
        plan
        os
        csi csi/src/metrics.rs"
    );
    let why = "the driver is the only reader of the clock, beside what measures and what waits";
    forbid_in(&table, &["Instant::now", "SystemTime::now"], why);
}

/// A crate, and those that it may not import.
const IMPORTS: &str = "\
core foreread lab cli
trace foreread.workspace foreread-sim foreread-trace foreread-history foreread-lab foreread-cli
sim foreread.workspace foreread-sim foreread-trace foreread-history foreread-lab foreread-cli
history foreread.workspace foreread-trace foreread-lab foreread-cli
attach/pagecache foreread.workspace foreread-sim foreread-trace foreread-history foreread-lab foreread-cli
observe foreread-sim foreread-lab foreread-attach foreread-cli
attach foreread-cli foreread-check
plan foreread.workspace foreread-sim foreread-trace foreread-lab foreread-cli
os foreread
engine foreread-sim foreread-trace foreread-history foreread-lab foreread-cli
report foreread.workspace foreread-sim foreread-trace foreread-history foreread-lab foreread-cli
lab foreread-cli foreread-check foreread-attach foreread-observe
cli foreread-check
capi foreread-sim foreread-trace foreread-history foreread-lab foreread-cli
csi foreread.workspace foreread-sim foreread-trace foreread-history foreread-lab foreread-cli
python foreread-sim foreread-trace foreread-history foreread-lab";

#[test]
fn imports_run_one_way() {
    for line in IMPORTS.lines() {
        let (room, forbidden) = line.split_once(' ').expect("words");
        let dependencies = dependencies(room);
        for word in forbidden.split(' ') {
            assert!(!dependencies.contains(word), "{room} may not import {word}");
        }
    }
}

#[test]
fn no_shipped_crate_depends_on_the_test_doubles() {
    // It starts the Ceph cluster of `conform rbd`.
    let except = ["check"];
    let manifest = read("Cargo.toml");
    let members = manifest.split("members = [").nth(1);
    let members = members.and_then(|text| text.split(']').next());
    let members = members.expect("a list").split('"').skip(1).step_by(2);
    let members: Vec<&str> = members.collect();
    assert!(members.contains(&"testing"), "the rule must reach crates");
    for room in members.iter().filter(|room| !except.contains(room)) {
        let manifest = read(&format!("{room}/Cargo.toml"));
        let shipped = manifest.split("[dev-dependencies]").next().expect("text");
        let is_there = shipped.contains("foreread-testing = ");
        assert!(!is_there, "{room} may not import foreread-testing");
    }
}

/// A file of a user is opened after a look, and an output follows no link (`os/src`). Files of /proc and /sys are the kernel's.
#[test]
fn files_of_users_are_opened_in_one_way() {
    let words = " File::open(|(File::open(| File::create(|(File::create|fs::read(|fs::write(|OpenOptions::new(";
    let words = Vec::from_iter(words.split('|'));
    // The exceptions read what the kernel says, or files that they have made.
    let table = "cli cli/src/signals.rs cli/src/command/record.rs
        plan
        trace
        sim
        history
        lab probe/settings.rs src/grid.rs
        observe tracefs record/ sample/
        attach run/find.rs warm/files.rs
        check conform bench/
        report
        csi csi/src/state.rs";
    let why = "foreread_os::open and foreread_os::output open files of users";
    forbid_in(table, &words, why);
}

/// One module has the facts of the host.
#[test]
fn facts_of_the_host_are_read_in_one_place() {
    let words = ["/sys/", "\"/sys\"", "\"/proc/", "\"/proc\""];
    let except = [
        "os/src/",                            // it, and descriptors of this process
        "observe/src/",                       // processes, their files, tracefs
        "attach/src/run/find.rs",             // files that a thread has open
        "attach/src/doctor/pins.rs",          // paths in files of settings, which are not opened
        "attach/src/planning.rs",             // names of a trace, which are not opened
        "trace/src/formats/strace/calls.rs",  // the same
        "attach/pagecache/src/program.rs",    // this program again
        "engine/src/front/fuse/kernel.rs",    // signals of a thread
        "cli/src/signals.rs",                 // signals and terminal of this process
        "check/src/conform/live.rs",          // when a process began
        "check/src/conform/live/record.rs",   // what is measured: flags of pages
        "check/src/conform/live/pressure.rs", // what is measured: reclaim
        "testing/src/",                       // processes and files of tests
    ];
    let why = "foreread_os::host has the facts of the host, foreread_os::open paths of descriptors";
    for folder in all_folders() {
        forbid(&folder, &words, why, &except);
    }
}

#[test]
fn unsafe_has_its_rooms() {
    let rooms = ["engine/src/source/file/uring/", "engine/src/source/rbd/"];
    let rest = "engine engine/src/source/file/uring/ engine/src/source/rbd/
        trace
        sim
        history
        plan
        os
        observe
        attach
        report
        lab
        check
        csi
        cli
        python python/src/buffer.rs";
    let why = "unsafe only at the boundaries of io_uring, librbd, the page cache, C and Python";
    forbid_in(rest, &["unsafe "], why);
    let whole = ["capi/src", "python/src", "attach/pagecache/src"];
    for file in rooms.into_iter().chain(whole).flat_map(sources) {
        let lines: Vec<&str> = file.text.lines().collect();
        let is_unsafe = |i: &usize| lines[*i].contains("unsafe {");
        for i in (0..lines.len()).filter(is_unsafe) {
            let mut before = lines[i.saturating_sub(6)..=i].iter();
            let reason = before.any(|l| l.contains("SAFETY"));
            let (name, line) = (&file.name, i + 1);
            assert!(reason, "{name}:{line}: an unsafe block without SAFETY");
        }
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for File { name, text } in all_sources() {
        assert!(text.starts_with("//!"), "{name}: opens with what it is for");
    }
}

#[test]
fn files_and_functions_are_short() {
    for file in all_sources() {
        let name = &file.name;
        let lines = file.code().trim_end().lines().count();
        assert!(lines <= MAX_LINES, "{name}: {lines} lines before its tests");
        for (line, length) in functions(&file.code()) {
            let is_short = length <= MAX_FN_LINES;
            assert!(is_short, "{name}:{line}: a function of {length} lines");
        }
    }
}

/// First line and length of every function: from `fn` to the brace at the same indent (the formatter sees to that).
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |l: &str| l.len() - l.trim_start().len();
    let is_fn = |l: &str| {
        let mut words = l.split("fn ").next().unwrap_or("").split_whitespace();
        let is_before = |w: &str| w.starts_with("pub") || ["const", "async"].contains(&w);
        l.contains("fn ") && words.all(is_before)
    };
    let starts = (0..lines.len()).filter(|&i| is_fn(lines[i].trim_start()));
    starts
        .map(|start| {
            // A body on the line of its head ends there.
            let one_line = lines[start].trim_end().ends_with('}');
            let close = format!("{}}}", " ".repeat(indent(lines[start])));
            let end = (start..lines.len())
                .find(|&i| lines[i] == close)
                .unwrap_or(start);
            (start + 1, if one_line { 1 } else { end - start + 1 })
        })
        .collect()
}

/// The policies of a folder: file and name.
fn policies(folder: &str) -> Vec<(File, String)> {
    let files = sources(folder).into_iter();
    files
        .filter_map(|file| {
            let info = file.text.split(INFO).nth(1)?.to_string();
            let name = info.split("name: \"").nth(1)?.split('"').next()?;
            Some((file, name.to_string()))
        })
        .collect()
}

#[test]
fn every_policy_has_a_row_and_a_golden_table() {
    let page = read("docs/policies.md");
    let mut checked = 0;
    for folder in POLICY_FOLDERS {
        let tables = folder.replace("src/policy", "tests/golden");
        for (_, name) in policies(folder) {
            let has_row = page.contains(&format!("| `{name}` |"));
            assert!(has_row, "docs/policies.md has no row for {name}");
            let golden = tree::root().join(&tables).join(format!("{name}.txt"));
            let has_table = name == "none" || golden.exists();
            assert!(has_table, "no golden table for {name}");
            checked += 1;
        }
    }
    assert!(checked > 12, "the rule must reach policies: {checked}");
}

/// A policy is a module and an entry of the list; the compiler asks for neither.
#[test]
fn every_policy_is_in_the_list() {
    for folder in POLICY_FOLDERS {
        let list = read(&format!("{folder}.rs"));
        for (file, _) in policies(folder) {
            let module = file.name.rsplit('/').next().expect("a name");
            let row = format!("&{}::INFO", module.trim_end_matches(".rs"));
            assert!(list.contains(&row), "{folder}.rs lists {}", file.name);
        }
    }
    let files = policies("core/src/policy").len();
    assert_eq!(files, foreread_core::policy::ALL.len());
}

#[test]
fn no_path_of_a_home_folder() {
    let files = tree::files("");
    assert!(files.len() > 100, "the rule must reach files");
    for File { name, text } in files {
        for home in ["ro ot", "ho me", "Us ers"] {
            let home = format!("/{}/", home.replace(' ', ""));
            assert!(!text.contains(&home), "{name}: names {home}");
        }
    }
}

/// SEMANTICS.md says so; a test build checks it anyway, so only the setting can be looked at.
#[test]
fn a_release_build_checks_arithmetic() {
    let manifest = read("Cargo.toml");
    for package in ["foreread-core", "foreread"] {
        let head = format!("[profile.release.package.{package}]\n");
        let section = manifest.split(&head).nth(1);
        let checks = section.and_then(|text| text.lines().next());
        assert_eq!(checks, Some("overflow-checks = true"), "{package}");
    }
}
