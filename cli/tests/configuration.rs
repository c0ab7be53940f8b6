//! Tests the effect of FOREREAD_POLICY and the configuration files on `compare`, `explain` and `serve`, and how each reports it.

use crate::common::{BINARY, Got, Server, foreread_in, read_nbd, says};
use foreread::source::Nbd;
use foreread_testing::rows;
use std::process::Command;

/// A user whose configuration is `text`, and a disk of 1 MiB.
struct User(tempfile::TempDir);

impl User {
    fn new(text: &str) -> User {
        let user = User(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir(user.0.path().join("foreread")).expect("made");
        std::fs::write(user.0.path().join("foreread/config.toml"), text).expect("written");
        std::fs::write(user.disk(), vec![7; 1 << 20]).expect("room");
        user
    }

    fn disk(&self) -> String {
        self.0.path().join("disk").display().to_string()
    }

    fn runs(&self, policy: &str, args: &[&str]) -> Got {
        let home = ("XDG_CONFIG_HOME", self.0.path().as_os_str());
        foreread_in(&[home, ("FOREREAD_POLICY", policy.as_ref())], args)
    }

    /// Rows and notes of a comparison.
    fn compares(&self, policy: &str, on: &str, more: &[&str]) -> (Vec<String>, String) {
        let fixed = "compare sequential --size 1M --runs 1 --json - --on".split(' ');
        let args = Vec::from_iter(fixed.chain([on]).chain(more.iter().copied()));
        let got = self.runs(policy, &args);
        assert_eq!(got.code, Some(0), "{}", got.err);
        let report = got.json();
        let rows = report["rows"].as_array().expect("rows");
        let name = |row: &serde_json::Value| row["policy"].as_str().expect("a name").to_string();
        let names = rows.iter().map(name).collect();
        (names, report["notes"].to_string())
    }
}

#[test]
fn the_policy_that_is_set_is_a_row_of_compare() {
    let user = User::new("policy = \"linux-3.12\"\n");
    // What is set, what is asked for, rows that are there with the policy of explain first, a row that is not, words of the notes.
    let table = "| | linux-3.12 linux-6.18 | linux-2.6.31 | linux-3.12 is the policy set, config.toml line 1
        linux-2.6.31:max=1M | | linux-2.6.31:max=1M | linux-3.12 | is the policy set, (FOREREAD_POLICY)
        linux-3.12 | --policy none | none | linux-3.12 |";
    for [policy, more, rows, no_row, words] in rows(table) {
        let more = Vec::from_iter(more.split_whitespace());
        let (found, notes) = user.compares(policy, "model:nvme", &more);
        let rows = Vec::from_iter(rows.split(' '));
        let has = |row: &&str| found.iter().any(|found| found == row);
        assert!(rows.iter().all(has) && !has(&no_row), "{policy}: {found:?}");
        assert!(more.is_empty() || found == rows, "{found:?}");
        words.split(", ").for_each(|part| says(&notes, &[part]));
        let is_set = notes.contains("is the policy set");
        assert_eq!(is_set, !words.is_empty(), "{notes}");
        let explain = ["explain", "sequential", "--on", "model:nvme", "--json", "-"];
        let explained = user.runs(policy, &[&explain[..], &more].concat());
        explained.is_done();
        assert_eq!(explained.json()["policy"], rows[0]);
    }
}

/// The unit tests of the configuration have the errors; here are the commands that print them.
#[test]
fn errors_name_their_place() {
    let user = User::new("# a comment\npolicy = \"linux-6\"\n");
    for args in [
        &["compare", "sequential", "--on", "model:nvme"][..],
        &["explain", "sequential"],
        &["serve", &user.disk(), "--unix", "s"],
    ] {
        let error = "foreread/config.toml line 2: unknown policy: 'linux-6'";
        user.runs("", args).refuses(error);
    }
    let file = user.0.path().join("foreread/config.toml");
    std::fs::remove_file(&file).expect("there");
    std::fs::create_dir(&file).expect("made");
    user.runs("", &["compare"])
        .refuses("cannot read the configuration");
}

/// The server prints its policy with all values, and where each setting is from; a hint changes what is read ahead.
#[test]
fn serve_reports_the_origin_of_its_settings() {
    let user = User::new("policy = \"linux-6.18:max=1M+capacity\"\n");
    let said = serves(&user, &["--policy", "linux-6.18:max=1M+capacity"], 0);
    // 1 MiB of capacity is half of the smallest unit of the formula of 2010: 4 KiB.
    says(&said, &["policy linux-6.18:max=4K,", " (--policy); "]);
    says(&serves(&user, &[], 0), &["config.toml line 1); "]);
    let user = User::new("");
    let [plain, hinted] = [&[][..], &["--hint", "random"]].map(|more| serves(&user, more, 8));
    says(&plain, &[" (default); at most "]);
    says(&hinted, &["hint random: --hint"]);
    // The hint switches readahead off.
    let last = |said: &str| said.lines().last().map(str::to_string).expect("a line");
    let is_off = |said: &str| last(said).contains("readahead 0 B,");
    assert!(is_off(&hinted) && !is_off(&plain), "{plain}\n{hinted}");
}

/// What a server says on stderr that is ended after this many sequential reads.
fn serves(user: &User, more: &[&str], reads: u64) -> String {
    let socket = user.0.path().join("s");
    let _ = std::fs::remove_file(&socket);
    let mut command = Command::new(BINARY);
    command.args(["serve", &user.disk(), "--unix"]).arg(&socket);
    command.args(more).env_remove("FOREREAD_POLICY");
    let server = Server::start(command.env("XDG_CONFIG_HOME", user.0.path()));
    if reads > 0 {
        let client = Nbd::open(&server.line).expect("it serves");
        (0..reads).for_each(|n| drop(read_nbd(&client, n * 4096, 4096)));
    }
    server.ended_by("-TERM")
}
