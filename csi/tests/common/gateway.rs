//! versitygw, an S3 server over a folder: started on a free port, ended with the value.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

pub const KEY: &str = "testkey";
pub const SECRET: &str = "hushhushhush";

/// A running server with one bucket, `bucket`.
pub struct Gateway {
    child: Child,
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
        // Another program may take the port in between: then the next one.
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            let address = free.expect("a port").to_string();
            let mut command = Command::new("versitygw");
            command
                .args([
                    "--port",
                    &address,
                    "--quiet",
                    "--iam-cache-disable",
                    "--iam-dir",
                ])
                .arg(dir.path().join("users"))
                .arg("posix")
                .arg(dir.path().join("files"));
            command
                .env("ROOT_ACCESS_KEY", KEY)
                .env("ROOT_SECRET_KEY", SECRET);
            let command = command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("started");
            let mut answers = false;
            super::wait_until("versitygw answers or ends", || {
                answers = TcpStream::connect(&address).is_ok();
                answers || child.try_wait().expect("a child").is_some()
            });
            if answers {
                return Some(Gateway {
                    child,
                    endpoint: format!("http://{address}"),
                    dir,
                });
            }
        }
        panic!("versitygw does not start");
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
        command.args([
            "admin",
            "-a",
            KEY,
            "-s",
            SECRET,
            "--endpoint-url",
            &self.endpoint,
        ]);
        let done = command.args(what).output().expect("started");
        assert!(done.status.success(), "{done:?}");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
