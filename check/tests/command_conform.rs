//! `foreread check conform linux --check`, end to end.

use crate::common::foreread;

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/recordings/ext4j-128.jsonl"
);

#[test]
fn a_recording_without_a_difference() {
    let got = foreread(["conform", "linux", "--check", RECORDING]);
    let agree =
        "The policy linux-6.18 does what the recorded kernel did.\ndecisions 1028 divergences 0\n";
    assert_eq!(got.is_done(), agree);
}

/// One page more in the recording than we read is reported with its line and is exit code 1.
#[test]
fn a_difference_is_reported() {
    let text = std::fs::read_to_string(RECORDING).expect("the recording");
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(
        file.path(),
        text.replacen("\"added\":[[", "\"added\":[[77777,0],[", 1),
    )
    .expect("written");
    let path = file.path().to_string_lossy().into_owned();
    let got = foreread(["conform", "linux", "--check", path.as_str()]);
    assert_eq!(got.code, Some(1), "{}", got.err);
    assert!(
        got.out
            .starts_with("The policy linux-6.18 differs from the recorded kernel."),
        "{}",
        got.out
    );
    assert!(
        got.out.contains("divergences 1") && got.err.contains("the kernel's 77777:0"),
        "{}",
        got.err
    );
    let got = foreread([
        "conform",
        "linux",
        "--level",
        "pages",
        "--check",
        path.as_str(),
    ]);
    assert_eq!(got.code, Some(1), "{}", got.err);
    assert!(
        got.out.contains("divergences 1") && got.err.contains("only the kernel's [77777]"),
        "{}",
        got.err
    );
}

/// The predictions are a file of one line for each operation, whatever the level.
#[test]
fn predictions_are_written() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let out = folder
        .path()
        .join("ours.jsonl")
        .to_string_lossy()
        .into_owned();
    let mut seen = Vec::new();
    for level in ["full", "pages"] {
        let args = [
            "conform",
            "linux",
            "--check",
            RECORDING,
            "--level",
            level,
            "--predict",
            out.as_str(),
            "--force",
        ];
        assert!(
            foreread(args)
                .is_done()
                .ends_with("decisions 1028 divergences 0\n")
        );
        let text = std::fs::read_to_string(&out).expect("predictions");
        let operations = std::fs::read_to_string(RECORDING)
            .expect("the recording")
            .matches("\"t\":\"op\"")
            .count();
        assert_eq!(text.lines().count(), operations);
        assert!(
            text.starts_with("{\"t\":\"op\",\"i\":0,\"op\":"),
            "{}",
            &text[..80]
        );
        seen.push(text);
    }
    assert_eq!(seen[0], seen[1]);
    let nowhere = folder
        .path()
        .join("no/folder")
        .to_string_lossy()
        .into_owned();
    let got = foreread([
        "conform",
        "linux",
        "--check",
        RECORDING,
        "--predict",
        nowhere.as_str(),
    ]);
    assert_eq!(got.code, Some(2));
    assert!(
        got.err.contains("cannot write the predictions"),
        "{}",
        got.err
    );
    std::fs::copy(RECORDING, &out).expect("a copy");
    let got = foreread([
        "conform",
        "linux",
        "--check",
        out.as_str(),
        "--predict",
        out.as_str(),
    ]);
    assert!(
        got.code == Some(2) && got.err.contains("name another file"),
        "{}",
        got.err
    );
    assert!(
        foreread(["conform", "linux", "--check", out.as_str()])
            .is_done()
            .contains("decisions 1028 "),
        "untouched"
    );
}

#[test]
fn what_is_no_recording_is_said_in_one_line() {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    let path = file.path().to_string_lossy().into_owned();
    for (text, part) in [
        ("{\"t\":\"header\",\"v\":9", "line 1"),
        ("nonsense\n", "line 1"),
        (
            "{\"t\":\"op\",\"i\":0,\"op\":\"pread\"}\n",
            "before the header",
        ),
        ("\u{1f}\u{8b}", "line 1"),
    ] {
        std::fs::write(file.path(), text).expect("written");
        let got = foreread(["conform", "linux", "--check", path.as_str()]);
        assert_eq!(got.code, Some(2), "{text}: {}", got.err);
        assert!(
            got.err.contains(part) && got.err.trim_end().lines().count() == 1,
            "{text}: {}",
            got.err
        );
    }
    assert_eq!(
        foreread(["conform", "linux", "--check", "does/not/exist"]).code,
        Some(2)
    );
    // A check of nothing proves nothing.
    let header = std::fs::read_to_string(RECORDING)
        .expect("the recording")
        .lines()
        .next()
        .expect("a header")
        .to_string();
    std::fs::write(file.path(), header + "\n").expect("written");
    let got = foreread(["conform", "linux", "--check", path.as_str()]);
    assert!(
        got.code == Some(2) && got.out.is_empty() && got.err.contains("nothing to check"),
        "{}",
        got.err
    );
}

/// Options that do not fit together, and missing files, are refused before a cluster is made.
#[test]
fn what_belongs_to_the_other_is_refused() {
    let refused = |args: &[&str], told: &str| {
        let got = foreread(args);
        assert_eq!(got.code, Some(2), "{}", got.err);
        assert!(got.err.contains(told), "{}", got.err);
    };
    refused(
        &["conform", "linux", "--check", RECORDING, "--cluster", "x"],
        "are for 'conform rbd'",
    );
    refused(
        &["conform", "linux", "--sequences", "5"],
        "are for 'conform rbd'",
    );
    refused(
        &["conform", "linux", "--check", RECORDING, "--sequences", "5"],
        "are for 'conform rbd'",
    );
    refused(
        &["conform", "linux", "--check", RECORDING, "--seed", "5"],
        "'--check <REC>' cannot be used with '--seed <N>'",
    );
    refused(
        &["conform", "rbd", "--check", RECORDING],
        "--check and --predict are for 'conform linux'",
    );
    refused(
        &["conform", "rbd", "--cluster", "no/such.conf"],
        "no such configuration: no/such.conf",
    );
}

/// Without Ceph's programs it cannot be checked here, and one line says what to install.
#[test]
fn without_a_cluster_it_says_what_is_missing() {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread-check"));
    let output = command
        .args(["conform", "rbd"])
        .env("PATH", "no/such/folder")
        .output()
        .expect("the binary starts");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(
        err.contains("apt-get install ceph-mon ceph-mgr ceph-osd ceph-common"),
        "{err}"
    );
    assert_eq!((err.lines().count(), output.stdout.len()), (1, 0));
}
