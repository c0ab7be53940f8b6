//! The C boundary from the side of C: the library is installed into a folder, programs are built against it as the README describes,
//! and every function is called with arguments that it must refuse.
//!
//! Example: `capi/install --prefix /tmp/x --from target/debug/deps`, then `cc read.c $(pkg-config --cflags --libs foreread)`.
//! If a compiler or pkg-config is missing, the tests that need it are skipped with a message.

use foreread_testing::command::{Got, text};
use foreread_testing::{needs, says};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder in which cargo has built the shared library for this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a test");
    test.parent().expect("in a folder").to_path_buf()
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Installs below `prefix` what cargo has built. Returns the output of the script.
fn install(prefix: &Path) -> String {
    let mut script = Command::new(home().join("install"));
    script.arg("--prefix").arg(prefix).arg("--from");
    done(script.arg(libraries()))
}

/// What a program prints that succeeds.
fn done(command: &mut Command) -> String {
    let got = Got::from(&command.output().expect("it runs"));
    got.assert_code(0);
    got.out
}

/// Whether a program is installed; prints a line if it is not.
fn have(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        println!("skipped: needs {program} (Debian: apt-get install gcc g++ pkgconf)");
    }
    there
}

/// Compiles a program of this folder, or at a path, against the header and the library that are installed in `dir`. Returns `None` if there is no compiler.
fn compile(dir: &Path, source: &str, compiler: &str) -> Option<PathBuf> {
    if !have(compiler) {
        return None;
    }
    install(dir);
    let flags = [
        format!("-I{}/include", dir.display()),
        format!("-L{}/lib", dir.display()),
        "-lforeread".into(),
    ];
    Some(build(dir, &home().join(source), compiler, &flags))
}

fn build(dir: &Path, source: &Path, compiler: &str, flags: &[String]) -> PathBuf {
    let program = dir.join("program");
    let mut cc = Command::new(compiler);
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"]);
    cc.arg(&program).arg(source).args(flags);
    done(cc.arg(format!("-Wl,-rpath,{}/lib", dir.display())));
    program
}

/// Builds with the command line that `pkg-config` gives for an installed library.
#[test]
fn pkg_config_has_the_build_line() {
    needs!(have("pkg-config") && have("cc"));
    let dir = tempfile::tempdir().expect("a directory");
    let printed = install(dir.path());
    let version = env!("CARGO_PKG_VERSION");
    for name in [
        "include/foreread.h",
        "lib/libforeread.so",
        "lib/pkgconfig/foreread.pc",
    ] {
        let path = dir.path().join(name);
        let is_named = printed.lines().any(|line| Path::new(line) == path);
        assert!(is_named, "{printed}");
    }
    let ask = |what: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", dir.path().join("lib/pkgconfig"));
        done(command.args(what).arg("foreread"))
    };
    assert_eq!(ask(&["--modversion"]).trim(), version);
    let flags = ask(&["--cflags", "--libs"]);
    let flags = Vec::from_iter(flags.split_whitespace().map(str::to_string));
    let program = build(dir.path(), &home().join("examples/read.c"), "cc", &flags);
    let file = dir.path().join("file");
    std::fs::write(&file, [1; 5000]).expect("written");
    let got = run(&program, &[text(&file)]);
    got.assert_code(0);
    assert!(got.out.starts_with("5000 bytes, "), "{}", got.out);

    // The program requires the ABI by name, not the version.
    let needed = std::fs::read(&program).expect("readable");
    let parts = if version.starts_with("0.") { 2 } else { 1 };
    let abi = version.split('.').take(parts).collect::<Vec<_>>().join(".");
    let soname = format!("\0libforeread.so.{abi}\0");
    let mut windows = needed.windows(soname.len());
    let is_linked = windows.any(|bytes| bytes == soname.as_bytes());
    assert!(is_linked, "not linked to {soname:?}");
    let real = std::fs::canonicalize(dir.path().join("lib/libforeread.so")).expect("a link to it");
    assert!(real.ends_with(format!("libforeread.so.{version}")));
}

fn run(program: &Path, arguments: &[&str]) -> Got {
    let out = Command::new(program).args(arguments).output();
    Got::from(&out.expect("it runs"))
}

#[test]
fn the_example_reads_a_file_to_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    needs!(let program = compile(dir.path(), "examples/read.c", "cc"));
    let file = dir.path().join("file");
    let byte = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
    let bytes: Vec<u8> = (0..3_000_001).map(byte).collect();
    std::fs::write(&file, &bytes).expect("written");
    let add = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
    let sum = bytes.iter().fold(0, add);
    let got = run(&program, &[text(&file), "linux-6.18:max=1M"]);
    got.assert_code(0);
    says(&got.out, &[&format!("3000001 bytes, sum {sum:016x}, ")]);
    assert!(!got.out.contains(" 0 bytes read ahead"), "{}", got.out);

    let got = run(&program, &[text(&dir.path().join("gone"))]);
    says(got.assert_code(1), &["gone", "No such file"]);
    assert_eq!((got.out.as_str(), got.err.lines().count()), ("", 1));
    let got = run(&program, &[text(&file), "linux-9"]);
    says(&got.err, &["linux-9", "Invalid argument"]);
}

#[cfg(feature = "object")]
#[test]
fn the_example_reads_a_file_of_a_hub() {
    let dir = tempfile::tempdir().expect("a directory");
    needs!(let program = compile(dir.path(), "examples/read.c", "cc"));
    let hub = foreread_testing::HubServer::start().expect("two ports");
    let bytes = foreread_testing::pattern(0, 300_000, 0);
    hub.put("u/r", "dir/a b", foreread::source::Mem::new(bytes));
    let mut command = Command::new(&program);
    command.arg("hf://u/r/dir/a b").envs(hub.variables());
    says(&done(&mut command), &["300000 bytes, "]);
}

/// Wrong calls that do not break the rules of C: each is refused with errno and a line, and later calls work.
#[test]
fn wrong_calls_are_refused_and_right_ones_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    needs!(let program = compile(dir.path(), "tests/calls.c", "cc"));
    let file = dir.path().join("file");
    let bytes = Vec::from_iter((0..100_000_u32).map(|i| (i % 251) as u8));
    std::fs::write(&file, bytes).expect("written");
    let got = run(&program, &[text(&file)]);
    got.assert_code(0);
    assert_eq!(got.out.trim(), "all calls as the header says");
}

#[test]
fn the_header_is_cxx_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = dir.path().join("program.cc");
    let main = "int main() { foreread_close(nullptr); return *foreread_error(); }";
    let program = format!("#include \"foreread.h\"\n{main}\n");
    std::fs::write(&source, program).expect("written");
    needs!(let program = compile(dir.path(), text(&source), "c++"));
    run(&program, &[]).assert_code(0);
}

/// The library exports every function of the header, and no other name of foreread.
#[test]
fn the_header_declares_all_functions() {
    let header = std::fs::read_to_string(home().join("include/foreread.h")).expect("readable");
    let source = std::fs::read_to_string(home().join("src/lib.rs")).expect("readable");
    let names = |text: &str, before: &str| {
        let lines = text.lines().filter(|line| line.contains(before));
        let lines = lines.filter(|line| !line.trim_start().starts_with(['*', '/']));
        let name = |line: &str| {
            let name = &line[line.find("foreread_")?..];
            Some(name[..name.find('(')?].to_string())
        };
        BTreeSet::from_iter(lines.filter_map(name))
    };
    let mut declared = names(&header, "foreread_");
    declared.retain(|name| !name.contains(' '));
    assert_eq!(declared, names(&source, "extern \"C\" fn"));
    assert_eq!(declared.len(), 13, "{declared:?}");
}
