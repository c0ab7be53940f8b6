//! Tests of holes in a file: what the library reports about them, and what NBD clients do with that.

use crate::common::nbd::{MIB, Served, has, run};
use crate::common::{named, opened};
use foreread::front::nbd::NbdSettings;
use foreread::source::Extent;
use foreread::{Options, ReadError, Reader};
use std::os::unix::fs::FileExt;

/// 64 MiB: data in the first one and in that at 40, holes between and behind.
fn sparse() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(64 * MIB).expect("a hole");
    for start in [0, 40 * MIB] {
        file.as_file()
            .write_all_at(&foreread_testing::pattern(start, MIB as usize, 0), start)
            .expect("written");
    }
    file.as_file().sync_all().expect("on disk");
    file
}

fn of(file: &tempfile::NamedTempFile) -> Reader {
    Reader::open(file.path().to_str().expect("UTF-8"), Options::default()).expect("opened")
}

#[test]
fn a_reader_reports_holes() {
    let file = sparse();
    let reader = of(&file);
    assert!(reader.knows_holes());
    let data = |len| Extent {
        len,
        is_hole: false,
    };
    let hole = |len| Extent { len, is_hole: true };
    let all = [data(MIB), hole(39 * MIB), data(MIB), hole(23 * MIB)];
    assert_eq!(reader.extents(0, 64 * MIB, 9).expect("said"), all);
    assert_eq!(
        reader.extents(0, u64::MAX, 9).expect("said"),
        all,
        "the end of the file is the end"
    );
    assert_eq!(reader.extents(0, 64 * MIB, 2).expect("said"), all[..2]);
    assert_eq!(
        reader.extents(10 * MIB, 11 * MIB, 9).expect("said"),
        [hole(30 * MIB)],
        "as far as it goes"
    );
    assert_eq!(
        reader.extents(64 * MIB - 1, 64 * MIB, 9).expect("said"),
        [hole(1)]
    );
    assert_eq!(reader.extents(64 * MIB, u64::MAX, 9).expect("said"), []);
    // Another version has other holes.
    file.as_file()
        .write_all_at(&[1; 4096], 20 * MIB)
        .expect("written");
    let error = reader.extents(0, 64 * MIB, 9).expect_err("it has changed");
    assert!(matches!(error, ReadError::Changed { .. }), "{error}");
    assert_eq!(
        reader
            .extents(0, 64 * MIB, 9)
            .expect("of the new version")
            .len(),
        6
    );
}

#[test]
fn a_source_that_knows_no_holes_is_all_data() {
    let reader = opened(named(MIB), Options::default());
    assert!(!reader.knows_holes());
    let all = reader.extents(4096, MIB, 9).expect("said");
    assert_eq!(
        all,
        [Extent {
            len: MIB - 4096,
            is_hole: false
        }]
    );
    if has("nbdinfo", "libnbd-bin") {
        let info = run(
            "nbdinfo",
            &["--json", &Served::of(reader, NbdSettings::default()).uri()],
        );
        assert!(!info.contains("base:allocation"), "{info}");
    }
}

/// They read the map, and of a copy the data alone is asked for.
#[test]
fn clients_copy_only_data() {
    if !has("nbdinfo", "libnbd-bin")
        || !has("nbdcopy", "libnbd-bin")
        || !has("qemu-img", "qemu-utils")
    {
        return;
    }
    let file = sparse();
    let served = Served::of(of(&file), NbdSettings::default());
    let map: Vec<String> = run("nbdinfo", &["--map", &served.uri()])
        .lines()
        .map(|line| {
            line.split_whitespace()
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        map,
        [
            "0 1048576 0",
            "1048576 40894464 3",
            "41943040 1048576 0",
            "42991616 24117248 3"
        ]
    );
    let seen = run("qemu-img", &["map", "--output=json", &served.uri()]);
    assert_eq!(
        (
            seen.matches("\"data\": true").count(),
            seen.matches("\"zero\": true").count()
        ),
        (2, 2),
        "{seen}"
    );
    let before = (served.counts)().bytes;
    let copy = served.dir.path().join("copy");
    run("nbdcopy", &[&served.uri(), copy.to_str().expect("UTF-8")]);
    let bytes = (served.counts)().bytes - before;
    assert!(bytes <= 3 * MIB, "{bytes} bytes for 2 MiB of data");
    assert!(
        std::fs::read(&copy).expect("copied") == std::fs::read(file.path()).expect("there"),
        "right bytes"
    );
}
