//! Tests that the help of every command fits one screen, and that the files generated from the arguments are complete.
//! The texts are in `snapshots/`.

use crate::common::foreread;
use crate::common::help::{commands, fits};
use std::process::{Command, Stdio};

#[test]
fn short_help_fits_24_lines_of_80_columns() {
    fits(&[]);
    // `check` is another program, which may not be there.
    for command in commands().iter().filter(|name| *name != "check") {
        fits(&[command]);
    }
}

#[test]
fn without_a_command_the_help_goes_to_stderr() {
    let got = foreread::<&str>([]);
    assert_eq!((got.code, got.out.as_str()), (Some(2), ""));
    assert!(got.err.contains("Usage: foreread"), "{}", got.err);
    let version = format!("foreread {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(foreread(["-V"]).is_done(), version);
    let long = foreread(["--version"]).is_done().to_string();
    assert!(long.starts_with(&(version + "features: ")), "{long}");
}

#[test]
fn help_leads_to_the_command() {
    for path in [&["compare"][..], &["trace", "import"]] {
        let asked = foreread([&["help"], path].concat());
        let long = foreread([path, &["--help"]].concat());
        assert_eq!(asked.is_done(), long.is_done(), "{path:?}");
    }
}

#[test]
fn completions_and_manual_pages_have_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = foreread(["completions", shell]);
        for command in commands() {
            assert!(script.is_done().contains(&command), "{shell}: {command}");
        }
    }
    assert!(foreread(["man"]).is_done().contains(".TH foreread 1"));
    let dir = tempfile::tempdir().expect("a scratch directory");
    foreread(["man", dir.path().to_str().expect("UTF-8")]).is_done();
    for command in commands() {
        let path = dir.path().join(format!("foreread-{command}.1"));
        let page = std::fs::read_to_string(&path);
        renders(&page.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
}

/// Has groff read the page, where groff is installed: it must complain of nothing.
fn renders(page: &str) {
    let groff = Command::new("groff")
        .args(["-man", "-Tascii", "-ww"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut groff) = groff else {
        println!("skipped: needs groff to render the manual pages");
        return;
    };
    std::io::Write::write_all(&mut groff.stdin.take().expect("piped"), page.as_bytes())
        .expect("groff reads");
    let output = groff.wait_with_output().expect("groff ends");
    assert!(output.status.success() && !output.stdout.is_empty());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
