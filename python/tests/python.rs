//! Tests the package from Python: pytest with the module that cargo has built, next to the Python files.
//!
//! Nothing is built twice: `./setup` creates an environment with pytest, numpy and fsspec (`target/python`); this test
//! copies the shared library next to `foreread/*.py` in a folder and runs `python/tests/test_*.py` there. `./test-long
//! wheel` builds and installs a wheel. FOREREAD_PYTHON sets another interpreter; a free-threaded one needs a module
//! that was built with the same interpreter as PYO3_PYTHON (`python/free-threaded`).

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

/// An interpreter that has what the tests import; says so if there is none.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("FOREREAD_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| root().join("target/python/bin/python"));
    let imports = Command::new(&python)
        .args(["-c", "import fsspec, numpy, pytest"])
        .output();
    let there = imports.is_ok_and(|out| out.status.success());
    if !there {
        println!(
            "skipped: needs pytest, numpy and fsspec for Python (./setup makes target/python by venv and pip)"
        );
    }
    there.then_some(python)
}

/// What the name of the module ends with: cargo has built it for all versions of Python (abi3), or for one that is free-threaded.
fn suffix(python: &Path) -> String {
    let asked = "import sysconfig as s; print(s.get_config_var('EXT_SUFFIX') if s.get_config_var('Py_GIL_DISABLED') else '.abi3.so')";
    let out = Command::new(python)
        .args(["-c", asked])
        .output()
        .expect("it runs");
    String::from_utf8_lossy(&out.stdout).trim().to_string()
}

/// A folder with the package: the Python files, and the library under the name that Python looks for.
fn package(python: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let inside = dir.path().join("foreread");
    std::fs::create_dir(&inside).expect("made");
    for entry in std::fs::read_dir(root().join("python/foreread"))
        .expect("the package")
        .flatten()
    {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), inside.join(entry.file_name())).expect("copied");
        }
    }
    let built = std::env::current_exe()
        .expect("a test")
        .parent()
        .expect("a folder")
        .join("libforeread_python.so");
    std::fs::copy(built, inside.join(format!("_native{}", suffix(python))))
        .expect("cargo has built the module");
    let info = dir.path().join("foreread-0.dist-info");
    std::fs::create_dir(&info).expect("made");
    std::fs::write(info.join("METADATA"), "Name: foreread\nVersion: 0\n").expect("written");
    std::fs::write(info.join("entry_points.txt"), entry_points()).expect("written");
    dir
}

/// The entry points of pyproject.toml as an installed package has them.
fn entry_points() -> String {
    let project =
        std::fs::read_to_string(root().join("python/pyproject.toml")).expect("the project");
    let head = "[project.entry-points.\"fsspec.specs\"]\n";
    let section = project.split(head).nth(1).expect("entry points for fsspec");
    let lines = section
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.replace('"', ""));
    format!("[fsspec.specs]\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

/// How many tests a line of pytest's summary says were skipped, and what they need: `SKIPPED [2] test_examples.py:17: needs torch`.
fn skipped(line: &str) -> (usize, &str) {
    let Some((count, rest)) = line
        .strip_prefix("SKIPPED [")
        .and_then(|line| line.split_once("] "))
    else {
        return (0, "");
    };
    let why = rest.split_once(": ").map_or(rest, |(_, why)| why);
    let why = why.strip_prefix("needs ").unwrap_or(why);
    (count.parse().unwrap_or(1), why)
}

#[test]
fn skips_of_pytest_are_counted() {
    let line = "SKIPPED [2] ../tests/test_examples.py:17: needs torch";
    assert_eq!(skipped(line), (2, "torch"));
    let line = "SKIPPED [1] test_a.py:5: could not import 'b': No module";
    assert_eq!(skipped(line), (1, "could not import 'b': No module"));
    assert_eq!(skipped("1 passed, 2 skipped in 3 s"), (0, ""));
}

#[test]
fn pytest_passes() {
    let Some(python) = python() else { return };
    let package = package(&python);
    let hub = foreread_testing::HubServer::start().expect("two ports");
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    hub.put("u/r", "dir/a b", foreread::source::Mem::new(bytes));
    // A test that hangs is ended, and pytest says where it was.
    let out = Command::new("timeout")
        .args(["--kill-after=5", "900"])
        .arg(python)
        .args([
            "-m",
            "pytest",
            "-q",
            "-rsfE",
            "-p",
            "no:cacheprovider",
            "-o",
            "faulthandler_timeout=60",
        ])
        .arg(root().join("python/tests"))
        .current_dir(package.path())
        .env("PYTHONPATH", package.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RUST_BACKTRACE", "0")
        .env("FOREREAD_TEST_HUB", hub.endpoint())
        .output()
        .expect("it runs");
    let printed = String::from_utf8_lossy(&out.stdout);
    println!("{printed}");
    // `./test` counts these lines.
    for line in printed.lines() {
        let (count, what) = skipped(line);
        for _ in 0..count {
            println!("skipped: needs {what}, for a test of Python");
        }
    }
    assert!(
        out.status.success(),
        "{printed}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}
