//! versitygw, an S3 server over a folder: started on a free port, ended with the value.

use foreread_testing::machine::{self, Running};
use std::process::Command;

pub const KEY: &str = "testkey";
pub const SECRET: &str = "hushhushhush";

/// A running server with one bucket, `bucket`.
pub struct Gateway {
    _server: Running,
    pub endpoint: String,
    dir: tempfile::TempDir,
}

impl Gateway {
    /// Nothing, with a line that says so, where versitygw is not installed.
    pub fn start() -> Option<Gateway> {
        let version = Command::new("versitygw").arg("--version").output();
        if version.is_err() {
            println!("skipped: needs versitygw (./setup builds it)");
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("files/bucket/data")).expect("a bucket");
        std::fs::create_dir(dir.path().join("users")).expect("made");
        let (server, port) = machine::server(|port| {
            let mut command = Command::new("versitygw");
            let line = format!("--port 127.0.0.1:{port} --quiet --iam-cache-disable --iam-dir");
            command.args(line.split(' ')).arg(dir.path().join("users"));
            command.arg("posix").arg(dir.path().join("files"));
            command.envs([("ROOT_ACCESS_KEY", KEY), ("ROOT_SECRET_KEY", SECRET)]);
            command
        });
        Some(Gateway {
            _server: server,
            endpoint: format!("http://127.0.0.1:{port}"),
            dir,
        })
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.path().join("files/bucket/data").join(name);
        std::fs::write(path, bytes).expect("room");
    }

    /// One more key, which may read everything.
    pub fn add_key(&self, key: &str, secret: &str) {
        self.administer(&["create-user", "-a", key, "-s", secret, "-r", "admin"]);
    }

    pub fn remove_key(&self, key: &str) {
        self.administer(&["delete-user", "-a", key]);
    }

    fn administer(&self, what: &[&str]) {
        let mut command = Command::new("versitygw");
        let own = ["admin", "-a", KEY, "-s", SECRET, "--endpoint-url"];
        command.args(own).arg(&self.endpoint);
        let done = command.args(what).output().expect("started");
        assert!(done.status.success(), "{done:?}");
    }
}
