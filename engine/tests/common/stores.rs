//! Every store of objects by its emulator, so that one table of a test holds for each: versitygw, fake-gcs-server, azurite, and the hub
//! and the bucket of `foreread-testing`, that by S3 and by HTTP. In front of each a proxy gives wrong answers.
//!
//! ```text
//!   reader ──► names, objects (the same but for the hub, whose objects come from a content server) ──► the emulator
//! ```

use super::{short_settings, watch};
use foreread::source::object::ObjectSettings;
use foreread_testing::emulators::{Cloud, Emulator};
use foreread_testing::{BucketServer, HubServer, LyingProxy};
use std::net::SocketAddr;
use std::sync::Arc;

/// Of a key in a URL.
const URL_PATH: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC.remove(b'/');

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    S3,
    Google,
    Azure,
    Hub,
    /// The bucket in memory, by S3.
    Memory,
    /// The same by HTTP: it has no names.
    Http,
}

enum Server {
    Emulator(Emulator),
    Hub(HubServer),
    Bucket(BucketServer),
}

/// A running store with one bucket.
pub struct Store {
    pub kind: Kind,
    server: Server,
    /// In front of what lists names.
    pub names: Arc<LyingProxy>,
    /// In front of what has the bytes.
    pub objects: Arc<LyingProxy>,
}

impl Store {
    /// Those that are installed; the others are named.
    pub fn all() -> impl Iterator<Item = Store> {
        let kinds = [Kind::S3, Kind::Google, Kind::Azure, Kind::Hub];
        kinds.into_iter().filter_map(Store::start)
    }

    /// The same, and those in memory.
    pub fn every() -> impl Iterator<Item = Store> {
        let kinds = [Kind::Memory, Kind::Http];
        Store::all().chain(kinds.into_iter().filter_map(Store::start))
    }

    pub fn start(kind: Kind) -> Option<Store> {
        watch();
        let server = match kind {
            Kind::S3 => Server::Emulator(Emulator::start(Cloud::S3)?),
            Kind::Google => Server::Emulator(Emulator::start(Cloud::Google)?),
            Kind::Azure => Server::Emulator(Emulator::start(Cloud::Azure)?),
            Kind::Hub => Server::Hub(HubServer::start().expect("two ports")),
            Kind::Memory | Kind::Http => Server::Bucket(BucketServer::start().expect("a port")),
        };
        let proxy = |to| Arc::new(LyingProxy::start(to).expect("a port"));
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (names, objects) = match &server {
            Server::Emulator(Emulator { port, .. }) => (local(*port), local(*port)),
            Server::Bucket(bucket) => (bucket.address(), bucket.address()),
            Server::Hub(hub) => hub.addresses().into(),
        };
        let objects = proxy(objects);
        let (names, objects) = match &server {
            Server::Hub(hub) => {
                hub.send_to(objects.address());
                (proxy(names), objects)
            }
            _ => (Arc::clone(&objects), objects),
        };
        Some(Store {
            kind,
            server,
            names,
            objects,
        })
    }

    /// What the environment of its user would hold; requests go through the proxies.
    pub fn variables(&self) -> Vec<(String, String)> {
        let (port, variables) = match &self.server {
            Server::Emulator(emulator) => (emulator.port, emulator.variables()),
            Server::Hub(hub) => (hub.addresses()[0].port(), hub.variables()),
            Server::Bucket(bucket) => (bucket.address().port(), bucket.variables()),
        };
        let (own, proxy) = (format!("127.0.0.1:{port}"), self.names.address());
        let through = |value: String| value.replace(&own, &proxy.to_string());
        let variables = variables.into_iter();
        let through = variables.map(|(name, value)| (name, through(value)));
        through.collect()
    }

    /// The name of an object, or of all below a prefix.
    pub fn name(&self, key: &str) -> String {
        match self.kind {
            Kind::S3 | Kind::Memory => format!("s3://bucket/{key}"),
            Kind::Google => format!("gs://bucket/{key}"),
            Kind::Azure => format!("az://bucket/{key}"),
            Kind::Hub => format!("hf://u/r/{key}"),
            Kind::Http => {
                let key = percent_encoding::utf8_percent_encode(key, URL_PATH);
                format!("http://{}/bucket/{key}", self.objects.address())
            }
        }
    }

    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        match &self.server {
            Server::Emulator(emulator) => emulator.put(key, bytes),
            Server::Hub(hub) => hub.put("u/r", key, foreread::source::Mem::new(bytes)),
            Server::Bucket(bucket) => bucket.put(key, bytes),
        }
    }

    /// Not of the hub: what was opened at a commit stays.
    pub fn delete(&self, key: &str) {
        match &self.server {
            Server::Emulator(emulator) => emulator.delete(key),
            Server::Bucket(bucket) => bucket.delete(key),
            Server::Hub(_) => panic!("a commit keeps its files"),
        }
    }

    /// Short pauses and deadlines.
    pub fn settings(&self) -> ObjectSettings {
        short_settings(self.variables())
    }

    /// The server's own answers from now on.
    pub fn honest(&self) {
        self.names.honest();
        self.objects.honest();
    }
}
