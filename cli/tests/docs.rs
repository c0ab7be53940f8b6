//! Tests the commands in the documentation for users: the parser accepts each command, and the command runs in a folder
//! that has the files it names, or [`NOT_RUN`] gives the reason why it does not run.
//!
//! A block without a language is a shell script; if lines start with `$ `, the other lines are output.
//! `python/tests/test_docs.py` runs the Python blocks; `.github/workflows/links.yml` checks the links.

use crate::common::{BINARY, Got, can_mount, needs, safetensors};
use foreread::source::Mem;
use foreread_testing::{BucketServer, HubServer};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const PAGES: [&str; 6] = [
    "README.md",
    "docs/guide.md",
    "docs/stores.md",
    "docs/operation.md",
    "docs/python.md",
    "docs/kubernetes.md",
];

/// How a command begins that does not run here, and the reason why.
const NOT_RUN: &str = "\
cargo run --release -p foreread | It builds another profile than the tests; every test run compiles the examples.
cargo run --release -- compare | It measures for half a minute; cli/tests/compare.rs has shorter runs.
cargo run --release -- | It builds another profile than the tests; what follows -- is parsed, and runs below.
cargo install | It builds everything again; ./test-long features builds these features.
pip install | It builds a wheel; ./test-long wheel does that.
./release | It makes packages for many minutes; ./test-long release does that.
apt-get install | It changes the system; bench/release-tried installs the package on a bare one.
rpm -i | It changes the system; bench/release-tried installs the package on a bare one.
tar -C /usr/local | It changes the system; bench/release-tried unpacks the tarball on a bare one.
sudo foreread doctor | It changes the readahead of a disk of this machine; cli/tests/doctor.rs has a made /sys.
foreread compare --on /dev/sdb | It measures for 90 seconds; cli/tests/compare.rs has shorter runs.
foreread run --pid | It needs a process that runs; cli/tests/run.rs starts one.
foreread watch | It reports every 10 seconds until Ctrl-C; its own tests use --once.
foreread check | It is the command foreread-check, whose tests run it.
capi/install | It builds the C library again; capi's tests compile and run programs.
cc program.c | It needs the installed C library; capi's tests compile and run programs.
aws sso login | It needs an account.
gcloud auth | It needs an account.
az login | It needs an account.
foreread mount gs:// | It needs an account; engine/tests/stores.rs reads from an emulator.
foreread mount abfss:// | It needs an account; engine/tests/stores.rs reads from an emulator.
foreread compare --on az:// | It needs an account; engine/tests/stores.rs reads from an emulator.
python3 -c | It needs the package; python/tests/test_docs.py runs it.
skopeo | It needs a registry of images.
helm | It needs a cluster; contrib/helm/check renders the chart.
kubectl | It needs a cluster; csi-sanity runs in csi/tests.
foreread-csi | It serves as root at fixed paths; csi/tests runs it.";

fn not_run() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = NOT_RUN.lines();
    lines.map(|line| line.split_once(" | ").expect("a reason"))
}

/// Names in the pages, and what the folder of the test has for them.
const REPLACED: [(&str, &str); 5] = [
    ("/dev/sdb", "disk.img"),
    ("/var/cache/foreread", "kept"),
    ("--metrics 9100", "--metrics 127.0.0.1:0"),
    ("revoked.pem", "server-cert.pem"),
    ("target/tools/versitygw", "versitygw"),
];

/// Functions of each script, which unmounts at its end what `mount -d` has left. `serves` runs a server until it says on stdout that it
/// serves; `settle` waits for the one that began last.
const FUNCTIONS: &str = r#"
set -eo pipefail
trap 'for one in $(jobs -p); do kill "$one" || true; done; wait; ! mountpoint -q mnt || foreread umount --lazy mnt || true' EXIT
serves() {
    "$@" > said &
    until [ -s said ]; do kill -0 $!; sleep 0.05; done
    kill $!; wait $!; rm said
}
settle() {
    case "$1" in
    *versitygw*) until (: > /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do kill -0 $!; sleep 0.05; done ;;
    *) until mountpoint -q mnt; do kill -0 $!; sleep 0.05; done ;;
    esac
}
"#;

fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("the workspace")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The shell blocks of a page: their commands, each on one line, without remarks.
fn blocks(name: &str) -> Vec<Vec<String>> {
    let text = page(name).replace("\\\n", " ");
    let mut blocks = Vec::new();
    // Every other part is a block, which begins with its language.
    for part in text.split("\n```").skip(1).step_by(2) {
        let (language, body) = part.split_once('\n').unwrap_or((part, ""));
        let languages = ["", "rust", "toml", "python", "c", "yaml", "text"];
        let is_known = languages.contains(&language);
        assert!(is_known, "{name}: a block of '{language}'");
        if !language.is_empty() {
            continue;
        }
        let shows_output = body.lines().any(|line| line.starts_with("$ "));
        let lines = body.lines().filter_map(|line| match shows_output {
            true => line.strip_prefix("$ "),
            false => Some(line),
        });
        let command = |line: &str| line.split(" # ").next().unwrap_or(line).trim().to_string();
        blocks.push(lines.map(command).filter(|line| !line.is_empty()).collect());
    }
    blocks
}

/// The commands in backticks in a page's text.
fn inline(name: &str) -> Vec<String> {
    let text = page(name);
    let outside = text.split("\n```").step_by(2).flat_map(str::lines);
    let spans = outside.flat_map(|line| line.split('`').skip(1).step_by(2));
    let commands = spans.filter(|span| span.starts_with("foreread "));
    commands.map(str::to_string).collect()
}

/// The words of each call of `foreread` in a line.
fn calls(line: &str) -> Vec<Vec<String>> {
    let line = line.replace("cargo run --release -- ", "foreread ");
    let words = |part: &str| {
        let words = part.split_whitespace().map(|word| word.trim_matches('\''));
        words.map(str::to_string).collect()
    };
    let parts = line.split("; ").map(|part| part.trim_end_matches('&'));
    let parts = parts.map(|part| part.trim_start_matches("sudo "));
    let calls = parts.filter_map(|part| part.strip_prefix("foreread "));
    calls.map(words).collect()
}

/// The parser takes these arguments: with `--help` behind them it shows the help of the command and refuses what it does not know.
fn is_parsed(page: &str, mut words: Vec<String>) {
    let end = words.iter().position(|word| word == "--");
    words.insert(end.unwrap_or(words.len()), "--help".to_string());
    let check = Path::new(BINARY).with_file_name("foreread-check");
    if words[0] == "check" && !check.exists() {
        return println!("skipped: needs foreread-check (cargo test --workspace builds it)");
    }
    let got = crate::common::foreread(&words);
    let is_help = got.code == Some(0) && got.out.contains("Usage: foreread");
    assert!(is_help, "{page}: foreread {words:?}: {}", got.err);
}

#[test]
fn commands_of_the_pages_are_parsed() {
    for name in PAGES {
        let lines = blocks(name).concat().into_iter().chain(inline(name));
        for words in lines.flat_map(|line| calls(&line)) {
            // A word in capitals is a placeholder.
            if words[0] != "COMMAND" && words[0] != "-h" {
                is_parsed(name, words);
            }
        }
    }
}

/// A folder with what the pages name: data, programs, a model, a profile.
fn folder(page: &str, bytes: &[u8]) -> tempfile::TempDir {
    let mut dir = tempfile::Builder::new();
    let dir = dir.prefix(page).tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    let dir = dir.expect("a folder");
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, bytes).expect("written");
    };
    put("big.bin", bytes);
    put("disk.img", &bytes.repeat(8));
    put("load.py", b"print(len(open('big.bin', 'rb').read()))");
    let load = b"print(len(open('model/a.safetensors', 'rb').read()))";
    put("serve.py", load);
    put("model/a.safetensors", &safetensors(100_000));
    let keys = b"[dev]\naws_access_key_id = k\naws_secret_access_key = s\n";
    put("home/.aws/credentials", keys);
    for program in ["app", "program"] {
        let script = b"#!/bin/sh\nexec cat big.bin disk.img > /dev/null\n";
        put(program, script);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.path().join(program), mode).expect("changed");
    }
    fs::create_dir(dir.path().join("mnt")).expect("made");
    dir
}

#[test]
fn commands_of_the_pages_run() {
    needs!(can_mount());
    let bytes: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let store = BucketServer::start().expect("a port");
    let hub = HubServer::start().expect("two ports");
    for key in ["data/big.bin", "train/a", "data/f1", "data/f2", "big.bin"] {
        store.put(key, bytes.clone());
    }
    let model = Mem::new(safetensors(100_000));
    hub.put("openai-community/gpt2", "model.safetensors", model);
    let variables = [store.variables(), hub.variables()].concat();
    let mut used = BTreeSet::new();
    for name in PAGES {
        let dir = folder(&name.replace('/', "-"), &bytes);
        for block in blocks(name) {
            let mut script = FUNCTIONS.to_string();
            for line in &block {
                if let Some((begin, _)) = not_run().find(|(begin, _)| line.starts_with(begin)) {
                    used.insert(begin);
                    continue;
                }
                let replace = |line: String, (from, to): &(&str, &str)| line.replace(from, to);
                let line = REPLACED.iter().fold(line.clone(), replace);
                let line = line.replace("7171", "$PORT");
                let is_server = ["foreread mount", "foreread serve"];
                let is_server = is_server.iter().any(|begin| line.starts_with(begin));
                // `mount -d` returns once it is mounted.
                let is_server = is_server && !line.contains(" -d ");
                script += &match line.strip_suffix('&') {
                    Some(_) => format!("{line}\nsettle '{line}'\n"),
                    None if is_server => format!("serves {line}\n"),
                    None => format!("{line}\n"),
                };
            }
            runs(name, dir.path(), &script, &variables);
        }
    }
    for (begin, why) in not_run() {
        let is_right = used.contains(&begin) && why.ends_with('.');
        assert!(is_right, "'{begin}' is in no page any more");
    }
}

#[track_caller]
fn runs(page: &str, dir: &Path, script: &str, variables: &[(String, String)]) {
    // Free now; versitygw says if another program has taken it since.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr());
    let port = port.expect("a port").port();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(BINARY).parent().expect("a folder");
    let ours = [own.to_path_buf(), root().join("target/tools")];
    let path = std::env::join_paths(ours.into_iter().chain(std::env::split_paths(&path)));
    // Long enough for any machine: it ends a command that waits for something which does not come.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=20", "600", "bash", "-c", script]);
    command.current_dir(dir).stdin(Stdio::null());
    command.env("PATH", path.expect("a path"));
    command.env("HOME", dir.join("home"));
    command.env("PORT", port.to_string());
    // rclone cannot load it.
    command.env_remove("AWS_CA_BUNDLE");
    command.env("XDG_CONFIG_HOME", "/dev/null");
    command.envs(variables.iter().cloned());
    let got = Got::from(&command.output().expect("bash starts"));
    let Got { code, out, err } = got;
    assert_eq!(code, Some(0), "{page}:\n{script}\n{out}{err}");
}
