//! Reads files that an earlier build wrote: `golden/` has a file of each format on disk (docs/operation.md, "Formats").
//!
//! ```text
//!   golden/trace.frt m.plan none.events model.toml cache/foreread-cache-2/...
//! ```
//! If the version number of a format changes: remove `golden/`, then `FOREREAD_BLESS=1 cargo test --all-features
//! golden` writes it.

use crate::common::{BINARY, says};
use foreread::source::Mem;
use foreread::source::disk_cache::{DiskCache, DiskCacheSettings, FreeSpace};
use foreread::source::object::ObjectSettings;
use foreread::{Engine, Options};
use foreread_testing::{BucketServer, ExactSource};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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
    let mut command = assert_cmd::Command::new(BINARY);
    let variables = std::env::vars_os().map(|(name, _)| name);
    for name in variables.filter(|name| name.to_string_lossy().starts_with("FOREREAD_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", "/dev/null").current_dir(dir);
    let done = command.args(words.split(' ')).assert().success();
    String::from_utf8(done.get_output().stdout.clone()).expect("text")
}

/// A cache on disk in this folder.
fn opened(dir: &Path) -> DiskCache {
    let settings = DiskCacheSettings {
        free: FreeSpace::Bytes(0),
        reads_slow_disk: true,
        ..DiskCacheSettings::new(dir)
    };
    DiskCache::open(settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Writes one of each.
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
    let cache = opened(&dir.join("cache"));
    let engine = Engine::new(Options::default().disk_cache(&cache)).expect("an engine");
    let bytes = Mem::new(vec![7; 64 * KIB]);
    let source = Arc::new(ExactSource::new(bytes, "s3://b/d", "\"v1\""));
    let reader = engine.open(source).expect("opened");
    let mut buf = vec![0; 64 * KIB];
    assert_eq!(reader.read_at(&mut buf, 0).expect("read"), buf.len());
    drop((reader, engine));
    let server = BucketServer::start().expect("a port");
    server.put("d/a", vec![1; 10]);
    let settings = ObjectSettings {
        variables: server.variables(),
        ..ObjectSettings::default()
    };
    let tree = cache.open_prefix("s3://bucket/", settings);
    let tree = tree.unwrap_or_else(|error| panic!("{error}"));
    tree.names(Path::new("d")).expect("listed");
    assert!(cache.flush(Duration::from_secs(60)), "written");
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
    says(&done("trace info trace.frt"), &["3: 3 reads (0.27 MB)"]);
    let plan = done("trace info m.plan");
    says(&plan, &["plan: 1 range of 1 file (1067 bytes), of headers"]);
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
    let cache = opened(&dir.join("cache"));
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
