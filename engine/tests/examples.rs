//! Runs the examples and checks their output.
//!
//! `cargo test` builds the examples, not this test.

use std::process::Command;

fn run(name: &str, arguments: &[&str]) -> Option<String> {
    let mut program = std::env::current_exe().expect("a test");
    program.pop();
    program.pop();
    let program = program.join("examples").join(name);
    if !program.exists() {
        println!("skipped: needs the examples (cargo build -p foreread --examples)");
        return None;
    }
    let out = Command::new(&program)
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Some(String::from_utf8(out.stdout).expect("text"))
}

#[test]
fn each_does_what_it_says() {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(file.path(), vec![2; 1_000_000]).expect("written");
    let Some(out) = run("embed", &[file.path().to_str().expect("UTF-8")]) else {
        return;
    };
    assert!(out.starts_with("sum 2000000, "), "{out}");
    assert!(run("custom_policy", &[]).is_some_and(|out| out.starts_with("256 reads, ")));
    assert!(run("custom_source", &[]).is_some_and(|out| out.contains(" times as fast, ")));
    #[cfg(feature = "tokio")]
    assert!(run("async_source", &[]).is_some_and(|out| out.contains(" times as fast, ")));
    let source = format!("file:{}", file.path().display());
    assert!(run("tasks", &[&source, "4", "400"]).is_some_and(|out| out.contains("4 at once: ")));
    #[cfg(feature = "object")]
    assert!(run("ahead", &["1", "2", "2"]).is_some_and(|out| out.contains(" of the time (")));
}
