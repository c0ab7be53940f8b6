//! A browser without a window, to see a page as people do. It is Debian's package `chromium`.
//!
//! Never: reaches a network (pages are files, and all that could is switched off), or leaves its profile behind.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Names under which it is found.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A page takes a second or two; after this long the browser hangs.
const MAX_SECONDS: u64 = 120;

/// How a page is looked at.
#[derive(Clone, Copy)]
pub struct Look {
    pub width: u32,
    pub dark: bool,
}

/// What the browser said of a page.
pub struct RenderedPage {
    /// The document after it was laid out.
    pub dom: String,
    /// Lines that reached the console.
    pub console: Vec<String>,
}

/// The browser, if there is one.
pub fn find() -> Option<&'static str> {
    let found = NAMES.into_iter().find(|name| {
        let version = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    });
    if found.is_none() {
        println!("skipped: needs chromium");
    }
    found
}

/// Loads a page.
pub fn see(browser: &str, page: &Path, look: Look) -> RenderedPage {
    let profile = tempfile::tempdir().expect("a scratch directory");
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--enable-logging=stderr",
        "--v=0",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("--window-size={},844", look.width));
    command.arg(format!(
        "--blink-settings=preferredColorScheme={}",
        u8::from(!look.dark)
    ));
    command.arg(format!("file://{}", page.display()));
    let output = run(command, profile.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    let console = errors
        .lines()
        .filter(|l| l.contains("CONSOLE"))
        .map(ToString::to_string)
        .collect();
    RenderedPage {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        console,
    }
}

/// Runs it to its end, into files: a pipe without a reader would stop it.
fn run(mut command: Command, scratch: &Path) -> Output {
    let file = |name: &str| std::fs::File::create(scratch.join(name)).expect("a scratch file");
    command
        .stdin(Stdio::null())
        .stdout(file("out"))
        .stderr(file("err"));
    let mut child = command.spawn().expect("it was there a moment ago");
    let end = Instant::now() + Duration::from_secs(MAX_SECONDS);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if Instant::now() > end {
            child.kill().expect("a child of ours");
            panic!("the browser hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let read = |name: &str| std::fs::read(scratch.join(name)).expect("written");
    Output {
        status,
        stdout: read("out"),
        stderr: read("err"),
    }
}
