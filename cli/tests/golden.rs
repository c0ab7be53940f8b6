//! Reads files that an earlier build wrote: `golden/` has a file of each format on disk (docs/operation.md, "Formats").
//!
//! ```text
//!   golden/trace.frt m.plan none.events model.toml cache/foreread-cache-2/...
//! ```
//! If the version number of a format changes: remove `golden/`, then `FOREREAD_BLESS=1 cargo test --all-features
//! golden` writes it.

use crate::common::{FOREREAD, disk_cache, list_in, says};
use foreread::source::Mem;
use foreread::{Engine, Options};
use foreread_testing::{BucketServer, ExactSource};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

const KIB: usize = 1 << 10;
const CSV: &str = "start_ns,end_ns,file,file_size,open,op,offset,length,returned,flags,after
0,1000000,golden.bin,1048576,0,read,0,131072,131072,,
1200000,2200000,golden.bin,1048576,0,read,131072,131072,131072,,
2500000,2600000,golden.bin,1048576,0,read,524288,4096,4096,,
";

/// What the command prints that is run in this folder.
fn done_in(dir: &Path, words: &str) -> String {
    let plain = [("XDG_CONFIG_HOME", "/dev/null"), ("FOREREAD_POLICY", "")];
    let plain = plain.map(|(name, value)| (name, OsStr::new(value)));
    let got = FOREREAD.at(dir, &plain, words.split(' '));
    got.assert_code(0);
    got.out
}

fn write(dir: &Path) {
    fs::create_dir_all(dir).expect("made");
    let run = |words: &str| drop(done_in(dir, words));
    fs::write(dir.join("t.csv"), CSV).expect("written");
    fs::write(dir.join("golden.bin"), vec![b'g'; 1 << 20]).expect("written");
    let header = r#"{"w":{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}}"#;
    let len = (header.len() as u64).to_le_bytes();
    let model = [&len[..], header.as_bytes(), &[0; 1000]].concat();
    fs::write(dir.join("m.safetensors"), model).expect("written");
    run("trace import t.csv --out trace.frt");
    run("plan --format safetensors m.safetensors -o m.plan");
    run("probe model:rbd -o model.toml");
    run("compare trace.frt --on golden.bin --policy none --runs 1 --event-log .");
    fs::rename(dir.join("trace.frt-none-0.log"), dir.join("none.events")).expect("a log");
    for scratch in ["t.csv", "golden.bin", "m.safetensors"] {
        fs::remove_file(dir.join(scratch)).expect("removed");
    }
    let cache = disk_cache(&dir.join("cache"));
    let engine = Engine::new(Options::default().disk_cache(&cache)).expect("an engine");
    let bytes = Mem::new(vec![7; 64 * KIB]);
    let source = Arc::new(ExactSource::new(bytes, "s3://b/d", "\"v1\""));
    let reader = engine.open(source).expect("opened");
    let mut buf = vec![0; 64 * KIB];
    assert_eq!(reader.read_at(&mut buf, 0).expect("read"), buf.len());
    drop((reader, engine));
    let server = BucketServer::start().expect("a port");
    server.put("d/a", vec![1; 10]);
    list_in(&cache, &server, &["d"]);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    fs::set_permissions(to, Permissions::from_mode(0o700)).expect("set");
    for entry in fs::read_dir(from).expect("a folder") {
        let from = entry.expect("an entry").path();
        let to = to.join(from.file_name().expect("a name"));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("copied");
            fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("set");
        }
    }
}

/// Every reader of the formats, over a copy of the folder.
fn read(golden: &Path) {
    let scratch = tempfile::tempdir().expect("a folder");
    let dir = scratch.path().join("g");
    copy(golden, &dir);
    let done = |words: &str| done_in(&dir, words);
    says(&done("trace info trace.frt"), &["3: 3 reads (266 kB)"]);
    let plan = done("trace info m.plan");
    says(&plan, &["plan: 1 range of 1 file (1.07 kB), from headers"]);
    let more = "--on model:model.toml --size 1M --runs 1 --policy none --json -";
    let compared = done(&format!("compare random:count=16 {more}"));
    says(&compared, &["foreread.compare/1"]);
    let log = fs::read(dir.join("none.events")).expect("a log");
    let checked = foreread::eventlog::check_log(&log[..]).expect("it is read");
    assert!(checked.events >= 9 && checked.actions >= 6, "{checked:?}");
    let stat = done("cache stat cache --json");
    let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
    let counts = ["versions", "held_bytes", "listings"].map(|key| stat[key].as_u64());
    let wanted = [1, 64 * KIB as u64, 1].map(Some);
    assert_eq!(counts, wanted, "{stat}");
    let cache = disk_cache(&dir.join("cache"));
    let other = ExactSource::new(Mem::new(vec![9; 64 * KIB]), "s3://b/d", "\"v1\"");
    let engine = Engine::new(Options::default().disk_cache(&cache)).expect("an engine");
    let reader = engine.open(Arc::new(other)).expect("opened");
    let mut buf = vec![0; 64 * KIB];
    assert_eq!(reader.read_at(&mut buf, 0).expect("read"), buf.len());
    let is_held = buf.iter().all(|byte| *byte == 7);
    assert!(is_held, "from the disk, and not from the store");
}

#[test]
fn files_of_earlier_builds_are_read() {
    let scratch = tempfile::tempdir().expect("a folder");
    let now = scratch.path().join("now");
    write(&now);
    read(&now);
    if std::env::var_os("FOREREAD_BLESS").is_some() && !golden().exists() {
        copy(&now, &golden());
    }
    read(&golden());
}
