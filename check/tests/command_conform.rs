//! End-to-end tests of `foreread check conform linux --check`.

use crate::common::foreread;

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/recordings/ext4j-128.jsonl"
);

/// One page more in the recording than we read is reported with its line and is exit code 1.
#[test]
fn a_difference_is_reported() {
    let got = foreread(["conform", "linux", "--check", RECORDING]);
    let agree =
        "The policy linux-6.18 agrees with the recorded kernel.\ndecisions 1028 divergences 0\n";
    assert_eq!(got.is_done(), agree);
    let text = std::fs::read_to_string(RECORDING).expect("the recording");
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    let wrong = text.replacen("\"added\":[[", "\"added\":[[77777,0],[", 1);
    std::fs::write(file.path(), wrong).expect("written");
    let path = file.path().to_string_lossy();
    for (level, part) in [
        ("full", "the kernel's 77777:0"),
        ("pages", "only by the kernel [77777]"),
    ] {
        let got = foreread(["conform", "linux", "--level", level, "--check", &path]);
        assert_eq!(got.code, Some(1), "{}", got.err);
        assert!(
            got.out.contains("divergences 1") && got.err.contains(part),
            "{}",
            got.err
        );
    }
}

/// Each is one line, and nothing is made for it.
#[test]
fn uncheckable_profiles_are_refused() {
    let nonsense = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(nonsense.path(), "nonsense\n").expect("written");
    let nonsense = nonsense.path().to_string_lossy().into_owned();
    for (args, said) in [
        (&["linux", "--check", &nonsense][..], "line 1"),
        (
            &["linux", "--check", RECORDING, "--cluster", "x"],
            "is for 'conform rbd'",
        ),
        (&["linux", "-o", "no/such/folder"], "create it first"),
        (&["linux", "--fs", "tmpfs"], "tmpfs"),
        (&["rbd", "--check", RECORDING], "for 'conform linux'"),
        (&["rbd", "--fs", "xfs"], "are for 'conform linux'"),
        (
            &["rbd", "--cluster", "no/such.conf"],
            "no such configuration: no/such.conf",
        ),
    ] {
        let got = foreread(["conform"].into_iter().chain(args.iter().copied()));
        assert_eq!(
            (got.code, got.out.as_str()),
            (Some(2), ""),
            "{args:?}: {}",
            got.err
        );
        assert!(got.err.contains(said), "{args:?}: {}", got.err);
    }
}
