//! Tests of output files: links are not followed, and existing files are not replaced without `--force`, for every
//! option that names a file.

use crate::common::foreread;
use crate::common::outputs::no_command_follows_a_link;
use foreread::eventlog::check_log_among;
use foreread_history::policies;
use std::fs;
use std::io::BufReader;
use std::os::unix::fs::symlink;
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Options that name an output, each with what it needs: `OUT` is the file, `IN` a trace.
const OPTIONS: &[&str] = &[
    "trace import IN -o OUT",
    "trace export IN --format csv -o OUT",
    "trace info IN --json OUT",
    "compare sequential --on model:nvme --json OUT",
    "compare sequential --on model:nvme --html OUT",
    "compare sequential --on model:nvme --vary policy.max=16K,1M --html OUT",
    "explain IN --json OUT",
    "explain IN --html OUT",
    "tune IN --on model:nvme --json OUT",
    "tune IN --on model:nvme --html OUT",
    "probe model:hdd-theory -o OUT",
    "probe model:hdd-theory --json OUT",
    "sweep IN --on model:nvme --json OUT",
    "record -o OUT -- true",
    "run --json OUT -- true",
    "run --html OUT -- true",
    "plan IN -o OUT",
    #[cfg(feature = "serve")]
    "serve IN --tcp 0 --record OUT",
];

#[test]
fn no_output_follows_a_link_or_replaces_a_file_unasked() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    fs::write(path("reads.csv"), "offset,len\n0,4096\n4096,4096\n").expect("room");
    let source = path("trace.frt");
    foreread([
        "trace",
        "import",
        text(&path("reads.csv")),
        "-o",
        text(&source),
    ]);
    assert!(source.exists(), "a trace to work with");
    no_command_follows_a_link(OPTIONS, dir.path(), &source);
}

/// The logs of a folder have names that anyone can know before.
#[test]
fn an_event_log_follows_no_link_and_replaces_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let (data, logs, kept) = (
        dir.path().join("data"),
        dir.path().join("logs"),
        dir.path().join("kept"),
    );
    fs::write(&data, vec![7; 1 << 20]).expect("room");
    fs::create_dir(&logs).expect("made");
    let run = |more: &[&str]| {
        let args = [
            "compare",
            "sequential",
            "--on",
            text(&data),
            "--size",
            "1M",
            "--runs",
            "1",
            "--policy",
            "none",
        ];
        foreread(
            args.iter()
                .copied()
                .chain(["--event-log", text(&logs)])
                .chain(more.iter().copied()),
        )
    };
    assert_eq!(run(&[]).code, Some(0));
    let log = fs::read_dir(&logs)
        .expect("there")
        .next()
        .expect("one")
        .expect("readable")
        .path();
    let again = run(&[]);
    assert!(
        again.is_refused().contains("it exists already"),
        "{}",
        again.err
    );
    fs::write(&kept, "kept").expect("room");
    fs::remove_file(&log).expect("removed");
    symlink(&kept, &log).expect("made");
    assert!(run(&[]).is_refused().contains("it exists already"));
    assert_eq!(run(&["--force"]).code, Some(0));
    assert_eq!(fs::read(&kept).expect("there"), b"kept");
    assert!(fs::symlink_metadata(&log).expect("there").is_file());
}

/// Pages are many files: none of them follows a link.
#[test]
fn manual_pages_follow_no_link() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("kept"), "kept").expect("room");
    symlink(dir.path().join("kept"), dir.path().join("foreread.1")).expect("made");
    let got = foreread(["man", text(dir.path())]);
    assert!(
        got.is_refused().contains("it exists already"),
        "{}",
        got.err
    );
    assert_eq!(fs::read(dir.path().join("kept")).expect("there"), b"kept");
    assert!(
        foreread(["man", text(dir.path()), "--force"])
            .is_done()
            .is_empty()
    );
    assert_eq!(fs::read(dir.path().join("kept")).expect("there"), b"kept");
    assert!(
        dir.path().join("foreread-compare.1").exists()
            && dir.path().join("foreread-trace-info.1").exists()
    );
}

/// `compare --event-log` makes the folder that it is given, and each log in it replays.
#[test]
fn the_folder_of_event_logs_is_made() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (disk, logs) = (dir.path().join("disk"), dir.path().join("new/logs"));
    std::fs::write(&disk, vec![7; 1 << 20]).expect("room");
    let on = disk.display().to_string();
    let args = [
        "compare",
        "sequential",
        "--on",
        &on,
        "--policy",
        "linux-6.18:max=128K",
        "--runs",
        "1",
        "--event-log",
    ];
    let got = foreread(args.iter().copied().chain([logs.to_str().expect("a path")]));
    assert_eq!(got.code, Some(0), "{}", got.err);
    let names: Vec<_> = std::fs::read_dir(&logs)
        .expect("it is made")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(names.len(), 2, "none and linux-6.18: {names:?}");
    for log in &names {
        let file = std::fs::File::open(log).expect("it is there");
        let same = check_log_among(BufReader::new(file), &[&policies()], None);
        assert!(same.is_ok(), "{}: {same:?}", log.display());
    }
    // A folder that cannot be made is said before anything is measured.
    let below = disk.join("logs").display().to_string();
    let got = foreread(args.iter().copied().chain([below.as_str()]));
    assert!(
        got.is_refused()
            .contains("creating the folder for event logs"),
        "{}",
        got.err
    );
    // On a model there are no logs, and no folder is made.
    let none = dir.path().join("none").display().to_string();
    let got = foreread(
        format!("compare sequential --on model:nvme --size 1M --runs 1 --event-log {none}")
            .split(' '),
    );
    assert!(
        got.code == Some(0) && !Path::new(&none).exists(),
        "{}",
        got.err
    );
}
