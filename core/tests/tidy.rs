//! The rules of the house (docs/architecture.md), held by a test: what each room may do, how its files look.

use crate::tree::{self, File, read, sources};

/// Lines of a file before it has to be two; the house asks to look again at 800.
const MAX_LINES: usize = 800;
/// Lines of a function.
const MAX_FN_LINES: usize = 100;

fn all_sources() -> Vec<File> {
    const FOLDERS: [&str; 12] = [
        "core/src",
        "engine/src",
        "testing/src",
        "trace/src",
        "sim/src",
        "plan/src",
        "os/src",
        "pagecache/src",
        "lab/src",
        "capi/src",
        "python/src",
        "cli/src",
    ];
    FOLDERS.into_iter().flat_map(sources).collect()
}

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

#[test]
fn core_decides_and_nothing_else() {
    let why = "core may not wait, hold bytes, do I/O, ask the time or use floating point";
    let words = [
        "std::",
        "unsafe",
        "f64",
        "f32",
        "Instant",
        "SystemTime",
        "println!",
        "HashMap",
    ];
    forbid("core/src", &words, why, &[]);
    let manifest = read("core/Cargo.toml");
    let dependencies = manifest
        .split("[dependencies]")
        .nth(1)
        .expect("a section")
        .split('[')
        .next()
        .expect("its text");
    assert_eq!(dependencies.trim(), "", "core depends on nothing");
    assert!(sources("core/src").len() > 10, "the rule must reach files");
}

#[test]
fn a_policy_knows_neither_the_cache_nor_another_policy() {
    for file in sources("core/src/policy") {
        let (name, code) = (&file.name, file.code());
        if name.ends_with("policy.rs") || name.ends_with("spec.rs") {
            continue;
        }
        assert!(
            !code.contains("crate::cache"),
            "{name}: a policy sees the cache through Probe only"
        );
        let others = code.matches("super::").count();
        assert!(
            others <= 1,
            "{name}: one use of super, for the trait and what several policies share"
        );
        for info in foreread_core::policy::ALL {
            let module = info.name.replace(['-', '.'], "_");
            let itself = name.ends_with(&format!("/{module}.rs"));
            assert!(
                itself || !code.contains(&format!("{module}::")),
                "{name}: knows the policy {module}"
            );
        }
        assert!(
            file.text.lines().count() <= 300,
            "{name}: a policy is a file of at most about 250 lines"
        );
    }
}

#[test]
fn a_source_knows_only_units_and_limits() {
    let words = [
        "core::machine",
        "core::event",
        "core::policy",
        "core::cache",
        "crate::driver",
        "crate::store",
    ];
    forbid(
        "engine/src/source",
        &words,
        "a source knows only core::units and core::storage",
        &[],
    );
}

#[test]
fn the_driver_is_the_only_reader_of_the_clock() {
    let words = ["Instant::now", "SystemTime::now"];
    // A front end has deadlines for its clients, and nothing that it decides by them reaches the machine.
    // So has a source for its storage: an NBD server that is too slow, or is connected to again after a pause, a file whose
    // time moved before its size, an object store whose answer takes longer than those before.
    // A line of the log that repeats is left out for a minute.
    let except = [
        "driver",
        "front",
        "engine/src/log.rs",
        "engine/src/source/nbd/link.rs",
        "engine/src/source/nbd.rs",
        "engine/src/source/file/version.rs",
        "engine/src/source/object/fetch.rs",
        "engine/src/source/object/refusal.rs",
    ];
    forbid(
        "engine/src",
        &words,
        "the driver is the only reader of the clock",
        &except,
    );
    forbid(
        "lab/src",
        &words,
        "only what measures live reads the clock",
        &[
            "live",
            "bench",
            "lab/src/recorder.rs",
            "lab/src/warm",
            "lab/src/run/",
            "lab/src/watch.rs",
        ],
    );
    forbid("sim/src", &words, "a simulation has its own clock", &[]);
    forbid("trace/src", &words, "a trace has its own times", &[]);
    forbid("pagecache/src", &words, "the caller says when", &[]);
    forbid("plan/src", &words, "a plan has the times of its runs", &[]);
    forbid("os/src", &words, "the caller says how long", &[]);
}

#[test]
fn imports_run_one_way() {
    let above = [
        "foreread.workspace",
        "foreread-sim",
        "foreread-trace",
        "foreread-lab",
        "foreread-cli",
    ];
    let rooms = [
        ("core", &["foreread", "lab", "cli"][..]),
        ("trace", &above),
        ("sim", &above),
        ("pagecache", &above),
        (
            "plan",
            &[
                "foreread.workspace",
                "foreread-sim",
                "foreread-trace",
                "foreread-lab",
                "foreread-cli",
            ],
        ),
        ("os", &["foreread"]),
        ("engine", &above[1..]),
        ("lab", &["foreread-cli"]),
        ("capi", &above[1..]),
        ("python", &above[1..4]),
    ];
    for (room, forbidden) in rooms {
        let manifest = read(&format!("{room}/Cargo.toml"));
        let dependencies = manifest
            .split("[dependencies]")
            .nth(1)
            .expect("a section")
            .split("\n[")
            .next()
            .expect("text");
        for word in forbidden {
            assert!(!dependencies.contains(word), "{room} may not import {word}");
        }
    }
}

#[test]
fn no_shipped_crate_depends_on_the_test_doubles() {
    // These two start the Ceph cluster of `conform rbd`.
    let except = ["lab", "cli"];
    let manifest = read("Cargo.toml");
    let members = manifest
        .split("members = [")
        .nth(1)
        .and_then(|text| text.split(']').next())
        .expect("a list");
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.contains(&"testing"), "the rule must reach crates");
    for room in members.iter().filter(|room| !except.contains(room)) {
        let manifest = read(&format!("{room}/Cargo.toml"));
        let shipped = manifest.split("[dev-dependencies]").next().expect("text");
        assert!(
            !shipped.contains("foreread-testing = "),
            "{room} may not import foreread-testing"
        );
    }
}

/// A file of a user is opened after a look, and an output follows no link (`os/src`). Files of /proc and /sys are the kernel's.
#[test]
fn files_of_users_are_opened_in_one_way() {
    let words = [
        " File::open(",
        "(File::open(",
        " File::create(",
        "(File::create",
        "fs::read(",
        "fs::write(",
        "OpenOptions::new(",
    ];
    let why = "foreread_os::open and foreread_os::output open files of users";
    for room in ["cli/src", "plan/src", "trace/src", "sim/src"] {
        forbid(
            room,
            &words,
            why,
            &["cli/src/signals.rs", "cli/src/record.rs"],
        );
    }
    // These read what the kernel says, or files that they have made.
    let kernel = [
        "tracefs",
        "watch",
        "conform",
        "reproduce",
        "record/",
        "bench.rs",
        "runs_file.rs",
    ];
    forbid(
        "lab/src",
        &words,
        why,
        &[
            &kernel[..],
            &["run/find.rs", "warm/files.rs", "probe/settings.rs"],
        ]
        .concat(),
    );
}

#[test]
fn unsafe_has_its_rooms() {
    let rooms = ["engine/src/source/file/uring/", "engine/src/source/rbd/"];
    forbid(
        "engine/src",
        &["unsafe "],
        "unsafe only in the io_uring and librbd rooms",
        &rooms,
    );
    for file in rooms
        .into_iter()
        .chain(["capi/src", "python/src", "pagecache/src"])
        .flat_map(sources)
    {
        let lines: Vec<&str> = file.text.lines().collect();
        for (i, line) in lines
            .iter()
            .enumerate()
            .filter(|(_, l)| l.contains("unsafe {"))
        {
            let reason = lines[i.saturating_sub(6)..=i]
                .iter()
                .any(|l| l.contains("SAFETY"));
            assert!(
                reason,
                "{}:{}: an unsafe block without its SAFETY line: {line}",
                file.name,
                i + 1
            );
        }
    }
    for room in ["trace/src", "sim/src", "plan/src", "os/src", "lab/src"] {
        forbid(room, &["unsafe "], "no unsafe where nothing is served", &[]);
    }
    forbid("cli/src", &["unsafe "], "no unsafe in the command", &[]);
    forbid(
        "python/src",
        &["unsafe "],
        "unsafe only where Python's memory is",
        &["python/src/buffer.rs"],
    );
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
        for (line, length) in functions(&file.text) {
            assert!(
                length <= MAX_FN_LINES,
                "{name}:{line}: a function of {length} lines"
            );
        }
    }
}

/// First line and length of every function: from `fn` to the brace at the same indent (the formatter sees to that).
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |l: &str| l.len() - l.trim_start().len();
    let is_fn = |l: &str| {
        let words = l.split("fn ").next().unwrap_or("");
        l.contains("fn ")
            && words
                .split_whitespace()
                .all(|w| w.starts_with("pub") || ["const", "async"].contains(&w))
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

#[test]
fn every_policy_has_a_row_and_a_golden_table() {
    let page = read("docs/policies.md");
    for info in foreread_core::policy::ALL {
        assert!(
            page.contains(&format!("| `{}` |", info.name)),
            "docs/policies.md has no row for {}",
            info.name
        );
        let golden = tree::root()
            .join("core/tests/golden")
            .join(format!("{}.txt", info.name));
        assert!(
            info.name == "none" || golden.exists(),
            "no golden table for {}",
            info.name
        );
    }
}

/// A policy is a module and an entry of the list; the compiler asks for neither.
#[test]
fn every_policy_is_in_the_list() {
    let files = sources("core/src/policy");
    let policies = files
        .iter()
        .filter(|file| file.text.contains("pub static INFO"))
        .count();
    assert_eq!(
        policies,
        foreread_core::policy::ALL.len(),
        "a file with an INFO is a policy of policy::ALL"
    );
}

#[test]
fn no_path_of_a_home_folder() {
    let files = tree::files("");
    assert!(files.len() > 100, "the rule must reach files");
    for File { name, text } in files {
        for home in [
            concat!("/ro", "ot/"),
            concat!("/ho", "me/"),
            concat!("/Us", "ers/"),
        ] {
            assert!(!text.contains(home), "{name}: names {home}");
        }
    }
}

/// SEMANTICS.md says so; a test build checks it anyway, so only the setting can be looked at.
#[test]
fn a_release_build_checks_arithmetic() {
    let manifest = read("Cargo.toml");
    for package in ["foreread-core", "foreread"] {
        let section = manifest
            .split(&format!("[profile.release.package.{package}]\n"))
            .nth(1);
        let checks = section.and_then(|text| text.lines().next());
        assert_eq!(
            checks,
            Some("overflow-checks = true"),
            "release builds of {package}"
        );
    }
}
