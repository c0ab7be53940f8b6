//! The C boundary from the side of C: the library is installed into a folder, programs are built against it as the README describes,
//! and every function is called with arguments that it must refuse.
//!
//! Example: `capi/install --prefix /tmp/x --from target/debug/deps`, then `cc read.c $(pkg-config --cflags --libs foreread)`.
//! If a compiler or pkg-config is missing, the tests that need it are skipped with a message.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder in which cargo has built the shared library for this test.
fn libraries() -> PathBuf {
    std::env::current_exe()
        .expect("a test")
        .parent()
        .expect("in a folder")
        .to_path_buf()
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Installs below `prefix` what cargo has built. Returns the output of the script.
fn install(prefix: &Path) -> String {
    let mut script = Command::new(home().join("install"));
    let out = script
        .arg("--prefix")
        .arg(prefix)
        .arg("--from")
        .arg(libraries())
        .output()
        .expect("it runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text")
}

/// Whether a program is installed; prints a line if it is not.
fn have(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        println!("skipped: needs {program} (Debian: apt-get install gcc g++ pkgconf)");
    }
    there
}

/// Compiles a program against the header and the library that are installed in `dir`. Returns `None` if there is no compiler.
fn compile(dir: &Path, source: &Path, compiler: &str) -> Option<PathBuf> {
    if !have(compiler) {
        return None;
    }
    install(dir);
    let flags = [
        format!("-I{}/include", dir.display()),
        format!("-L{}/lib", dir.display()),
        "-lforeread".into(),
    ];
    Some(build(dir, source, compiler, &flags))
}

fn build(dir: &Path, source: &Path, compiler: &str, flags: &[String]) -> PathBuf {
    let program = dir.join("program");
    let mut cc = Command::new(compiler);
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags);
    cc.arg(format!("-Wl,-rpath,{}/lib", dir.display()));
    let out = cc.output().expect("it runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    program
}

/// Builds with the command line that `pkg-config` gives for an installed library.
#[test]
fn pkg_config_has_the_build_line() {
    if !have("pkg-config") || !have("cc") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let printed = install(dir.path());
    let version = env!("CARGO_PKG_VERSION");
    for name in [
        "include/foreread.h",
        "lib/libforeread.so",
        "lib/pkgconfig/foreread.pc",
    ] {
        assert!(
            printed
                .lines()
                .any(|line| Path::new(line) == dir.path().join(name)),
            "{printed}"
        );
    }
    let ask = |what: &[&str]| {
        let mut command = Command::new("pkg-config");
        command
            .env("PKG_CONFIG_PATH", dir.path().join("lib/pkgconfig"))
            .args(what)
            .arg("foreread");
        String::from_utf8(command.output().expect("it runs").stdout)
            .expect("text")
            .trim()
            .to_string()
    };
    assert_eq!(ask(&["--modversion"]), version);
    let flags: Vec<String> = ask(&["--cflags", "--libs"])
        .split_whitespace()
        .map(str::to_string)
        .collect();
    let program = build(dir.path(), &home().join("examples/read.c"), "cc", &flags);
    let file = dir.path().join("file");
    std::fs::write(&file, [1; 5000]).expect("written");
    let (code, out, err) = run(&program, &[file.to_str().expect("UTF-8")]);
    assert!(
        code == Some(0) && out.starts_with("5000 bytes, "),
        "{out}{err}"
    );

    // The program requires the ABI by name, not the version.
    let needed = std::fs::read(&program).expect("readable");
    let parts = if version.starts_with("0.") { 2 } else { 1 };
    let abi = version.split('.').take(parts).collect::<Vec<_>>().join(".");
    let soname = format!("\0libforeread.so.{abi}\0");
    assert!(
        needed
            .windows(soname.len())
            .any(|bytes| bytes == soname.as_bytes()),
        "not linked to {soname:?}"
    );
    let real = std::fs::canonicalize(dir.path().join("lib/libforeread.so")).expect("a link to it");
    assert_eq!(
        real.file_name().and_then(|n| n.to_str()),
        Some(format!("libforeread.so.{version}").as_str())
    );
}

fn run(program: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(program)
        .args(arguments)
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn the_example_reads_a_file_to_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(program) = compile(dir.path(), &home().join("examples/read.c"), "cc") else {
        return;
    };
    let file = dir.path().join("file");
    let bytes: Vec<u8> = (0..3_000_001_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&file, &bytes).expect("written");
    let sum = bytes.iter().fold(0_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    let path = file.to_str().expect("UTF-8");
    let (code, out, err) = run(&program, &[path, "linux-6.18:max=1M"]);
    assert!(
        out.starts_with(&format!("3000001 bytes, sum {sum:016x}, ")),
        "{out}{err}"
    );
    assert_eq!(code, Some(0));
    assert!(!out.contains(" 0 bytes read ahead"), "{out}");

    let (code, out, err) = run(
        &program,
        &[dir.path().join("gone").to_str().expect("UTF-8")],
    );
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        err.contains("gone") && err.contains("No such file") && err.lines().count() == 1,
        "{err}"
    );
    let (_, _, err) = run(&program, &[path, "linux-9"]);
    assert!(
        err.contains("linux-9") && err.contains("Invalid argument"),
        "{err}"
    );
}

#[cfg(feature = "object")]
#[test]
fn the_example_reads_a_file_of_a_hub() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(program) = compile(dir.path(), &home().join("examples/read.c"), "cc") else {
        return;
    };
    let hub = foreread_testing::HubServer::start().expect("two ports");
    let bytes = foreread_testing::pattern(0, 300_000, 0);
    hub.put("u/r", "dir/a b", foreread::source::Mem::new(bytes));
    let out = Command::new(&program)
        .arg("hf://u/r/dir/a b")
        .envs(hub.variables())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.starts_with("300000 bytes, "), "{out:?}");
}

/// Wrong calls that do not break the rules of C: each is refused with errno and a line, and later calls work.
#[test]
fn wrong_calls_are_refused_and_right_ones_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(program) = compile(dir.path(), &home().join("tests/calls.c"), "cc") else {
        return;
    };
    let file = dir.path().join("file");
    std::fs::write(
        &file,
        (0..100_000_u32)
            .map(|i| (i % 251) as u8)
            .collect::<Vec<_>>(),
    )
    .expect("written");
    let (code, out, err) = run(&program, &[file.to_str().expect("UTF-8")]);
    assert_eq!(
        (code, out.trim()),
        (Some(0), "all calls as the header says"),
        "{err}"
    );
}

#[test]
fn the_header_is_cxx_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = dir.path().join("program.cc");
    std::fs::write(
        &source,
        "#include \"foreread.h\"\nint main() { foreread_close(nullptr); return *foreread_error(); }\n",
    )
    .expect("written");
    let Some(program) = compile(dir.path(), &source, "c++") else {
        return;
    };
    assert_eq!(run(&program, &[]).0, Some(0));
}

/// The library exports every function of the header, and no other name of foreread.
#[test]
fn the_header_declares_all_functions() {
    let header = std::fs::read_to_string(home().join("include/foreread.h")).expect("readable");
    let source = std::fs::read_to_string(home().join("src/lib.rs")).expect("readable");
    let names = |text: &str, before: &str| -> Vec<String> {
        let mut found: Vec<String> = (text.lines())
            .filter(|line| {
                line.contains(before) && line.contains("foreread_") && line.contains('(')
            })
            .filter(|line| !line.trim_start().starts_with(['*', '/']))
            .filter_map(|line| {
                let name = &line[line.find("foreread_")?..];
                Some(name[..name.find('(')?].to_string())
            })
            .collect();
        found.sort();
        found.dedup();
        found
    };
    let declared: Vec<String> = names(&header, "foreread_")
        .into_iter()
        .filter(|n| !n.contains(' '))
        .collect();
    assert_eq!(declared, names(&source, "extern \"C\" fn"));
    assert_eq!(declared.len(), 13, "{declared:?}");
}
