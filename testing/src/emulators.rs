//! Servers of S3, Google Cloud Storage and Azure Blob Storage: started on a free port, ended with the value. versitygw over a folder;
//! fake-gcs-server and azurite, which hold their objects in memory.
//!
//! Example: `needs!(let server = Emulator::start(Cloud::S3))` skips a test without versitygw; else `server.put("key", bytes)` is
//! `s3://bucket/key` with `server.variables()`.

use crate::machine::{self, Running};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// The account of azurite, which is public.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// The key of versitygw.
const S3_KEY: &str = "testkey";
/// Its secret.
pub const SECRET: &str = "testsecret";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// versitygw.
    S3,
    /// fake-gcs-server.
    Google,
    /// azurite.
    Azure,
}

/// A running server with one bucket or container, `bucket`.
pub struct Emulator {
    cloud: Cloud,
    _server: Running,
    pub port: u16,
    runtime: tokio::runtime::Runtime,
    /// Where versitygw has its buckets.
    pub dir: tempfile::TempDir,
}

impl Emulator {
    /// Nothing, with a line that says so, where it is not installed.
    pub fn start(cloud: Cloud) -> Option<Emulator> {
        let program = match cloud {
            Cloud::S3 => "versitygw",
            Cloud::Google => "fake-gcs-server",
            Cloud::Azure => "azurite-blob",
        };
        if Command::new(program).arg("--help").output().is_err() {
            println!("skipped: needs {program} (./setup installs it)");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("bucket")).expect("a bucket");
        let (server, port) = machine::server(|port| {
            let arguments = match cloud {
                Cloud::S3 => "--port 127.0.0.1:PORT --keep-alive --quiet posix .",
                Cloud::Google => {
                    "-backend memory -scheme http -host 127.0.0.1 -port PORT \
                     -public-host 127.0.0.1:PORT -log-level error"
                }
                Cloud::Azure => {
                    "--blobHost 127.0.0.1 --blobPort PORT --silent --inMemoryPersistence \
                     --skipApiVersionCheck --disableTelemetry"
                }
            };
            let arguments = arguments.replace("PORT", &port.to_string());
            let mut command = Command::new(program);
            command.args(arguments.split(' ')).current_dir(dir.path());
            command.envs([("ROOT_ACCESS_KEY", S3_KEY), ("ROOT_SECRET_KEY", SECRET)]);
            command
        });
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let emulator = Emulator {
            cloud,
            _server: server,
            port,
            runtime,
            dir,
        };
        emulator.make_bucket();
        Some(emulator)
    }

    /// What the environment of its user would hold.
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = self.endpoint();
        let all = match self.cloud {
            Cloud::S3 => vec![
                ("AWS_ACCESS_KEY_ID", S3_KEY),
                ("AWS_SECRET_ACCESS_KEY", SECRET),
                ("AWS_REGION", "us-east-1"),
                ("AWS_ENDPOINT_URL", &endpoint),
                ("AWS_ALLOW_HTTP", "true"),
            ],
            Cloud::Google => vec![("STORAGE_EMULATOR_HOST", endpoint.as_str())],
            Cloud::Azure => vec![
                ("AZURE_STORAGE_ACCOUNT", ACCOUNT),
                ("AZURE_STORAGE_KEY", KEY),
                ("AZURE_STORAGE_ENDPOINT", &endpoint),
            ],
        };
        let all = all.into_iter();
        all.map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    pub fn name(&self, key: &str) -> String {
        match self.cloud {
            Cloud::S3 => format!("s3://bucket/{key}"),
            Cloud::Google => format!("gs://bucket/{key}"),
            Cloud::Azure => format!("az://bucket/{key}"),
        }
    }

    fn endpoint(&self) -> String {
        match self.cloud {
            Cloud::S3 | Cloud::Google => format!("http://127.0.0.1:{}", self.port),
            Cloud::Azure => format!("http://127.0.0.1:{}/{ACCOUNT}", self.port),
        }
    }

    /// Through S3 a file has an ETag.
    fn client(&self) -> Box<dyn ObjectStore> {
        if self.cloud == Cloud::S3 {
            let builder = AmazonS3Builder::new()
                .with_bucket_name("bucket")
                .with_region("us-east-1")
                .with_endpoint(self.endpoint())
                .with_allow_http(true)
                .with_access_key_id(S3_KEY)
                .with_secret_access_key(SECRET);
            return Box::new(builder.build().expect("a client"));
        }
        let builder = MicrosoftAzureBuilder::new()
            .with_container_name("bucket")
            .with_account(ACCOUNT)
            .with_access_key(KEY)
            .with_endpoint(self.endpoint())
            .with_allow_http(true);
        Box::new(builder.build().expect("a client"))
    }

    fn make_bucket(&self) {
        match self.cloud {
            Cloud::S3 => {}
            Cloud::Google => {
                self.send("POST", "/storage/v1/b?project=p", b"{\"name\":\"bucket\"}");
            }
            Cloud::Azure => {
                use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
                use object_store::client::{HttpConnector, ReqwestConnector};
                let url = format!("{}/bucket?restype=container", self.endpoint());
                let key = AzureCredential::AccessKey(AzureAccessKey::try_new(KEY).expect("a key"));
                let request = http::Request::put(url).header("x-ms-version", "2021-12-02");
                let request = request.header("content-length", "0");
                let mut request = request.body(Vec::new().into()).expect("a request");
                let signed = AzureAuthorizer::new(&key, ACCOUNT).try_authorize(&mut request);
                signed.expect("signed");
                let options = object_store::ClientOptions::new().with_allow_http(true);
                let client = ReqwestConnector::default().connect(&options);
                let client = client.expect("a client");
                let answer = self.runtime.block_on(client.execute(request));
                assert_eq!(answer.expect("an answer").status().as_u16(), 201);
            }
        }
    }

    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        if self.cloud == Cloud::Google {
            let path = "/upload/storage/v1/b/bucket/o?uploadType=media&name=";
            return self.send("POST", &format!("{path}{}", escaped(key)), &bytes);
        }
        let put = async {
            let key = Path::parse(key).expect("a key");
            self.client().put(&key, PutPayload::from(bytes)).await
        };
        self.runtime.block_on(put).expect("put");
    }

    pub fn delete(&self, key: &str) {
        if self.cloud == Cloud::Google {
            let path = format!("/storage/v1/b/bucket/o/{}", escaped(key));
            return self.send("DELETE", &path, &[]);
        }
        let key = Path::parse(key).expect("a key");
        let delete = async { self.client().delete(&key).await };
        self.runtime.block_on(delete).expect("deleted");
    }

    /// By the JSON interface of Google, the only one that the emulator writes by.
    fn send(&self, method: &str, path: &str, body: &[u8]) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a server");
        let request = [head.as_bytes(), body].concat();
        stream.write_all(&request).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
}

/// As one part of a URL's path.
fn escaped(key: &str) -> String {
    percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string()
}
