//! versitygw, an S3 server over a folder, for tests: started on a free port, ended with the value.

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const KEY: &str = "testkey";
pub const SECRET: &str = "testsecret";

/// A running server with one bucket, `bucket`.
pub struct Gateway {
    child: Child,
    pub port: u16,
    pub dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Gateway {
    /// Nothing, with a line that says so, where versitygw is not installed.
    pub fn start() -> Option<Gateway> {
        let quiet = |command: &mut Command| {
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok()
        };
        if !quiet(Command::new("versitygw").arg("--version")) {
            println!("skipped: needs versitygw (./setup builds it)");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("bucket")).expect("a bucket");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        // Another program may take the port in between: then the next one.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0")
                .and_then(|l| l.local_addr())
                .expect("a port")
                .port();
            let mut command = Command::new("versitygw");
            command
                .args([
                    "--port",
                    &format!("127.0.0.1:{port}"),
                    "--keep-alive",
                    "--quiet",
                    "posix",
                ])
                .arg(dir.path());
            command
                .env("ROOT_ACCESS_KEY", KEY)
                .env("ROOT_SECRET_KEY", SECRET);
            let mut child = command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("started");
            let until = Instant::now() + Duration::from_secs(20);
            while child.try_wait().expect("a child").is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Some(Gateway {
                        child,
                        port,
                        dir,
                        runtime,
                    });
                }
                assert!(Instant::now() < until, "versitygw does not answer");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("versitygw does not start");
    }

    /// What the environment of its user would hold.
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let all = [
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &endpoint),
            ("AWS_ALLOW_HTTP", "true"),
        ];
        all.iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    fn bucket(&self) -> impl ObjectStore {
        let builder = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_region("us-east-1");
        let builder = builder
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true);
        builder
            .with_access_key_id(KEY)
            .with_secret_access_key(SECRET)
            .build()
            .expect("a client")
    }

    /// Through S3, so that it has an ETag.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        let put = async {
            self.bucket()
                .put(&Path::parse(key).expect("a key"), PutPayload::from(bytes))
                .await
        };
        self.runtime.block_on(put).expect("put");
    }

    pub fn delete(&self, key: &str) {
        self.runtime
            .block_on(async {
                self.bucket()
                    .delete(&Path::parse(key).expect("a key"))
                    .await
            })
            .expect("deleted");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
