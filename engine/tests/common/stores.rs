//! Every store of objects by its emulator, so that one table of a test holds for each: versitygw, fake-gcs-server, azurite, and the hub
//! of `foreread-testing`. In front of each a proxy gives wrong answers.
//!
//! ```text
//!   reader ──► names, objects (the same but for the hub, whose objects come from a content server) ──► the emulator
//! ```

use super::emulators::{Cloud, Emulator};
use super::gateway::Gateway;
use super::{short_settings, watch};
use foreread::source::object::ObjectSettings;
use foreread_testing::{HubServer, LyingProxy};
use std::net::SocketAddr;
use std::sync::Arc;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    S3,
    Google,
    Azure,
    Hub,
}

enum Server {
    Gateway(Gateway),
    Emulator(Emulator),
    Hub(HubServer),
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
        watch();
        let kinds = [Kind::S3, Kind::Google, Kind::Azure, Kind::Hub];
        kinds.into_iter().filter_map(Store::start)
    }

    pub fn start(kind: Kind) -> Option<Store> {
        let server = match kind {
            Kind::S3 => Server::Gateway(Gateway::start()?),
            Kind::Google => Server::Emulator(Emulator::start(Cloud::Google)?),
            Kind::Azure => Server::Emulator(Emulator::start(Cloud::Azure)?),
            Kind::Hub => Server::Hub(HubServer::start().expect("two ports")),
        };
        let proxy = |to| Arc::new(LyingProxy::start(to).expect("a port"));
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (names, objects) = match &server {
            Server::Gateway(Gateway { port, .. }) | Server::Emulator(Emulator { port, .. }) => {
                let both = proxy(local(*port));
                (Arc::clone(&both), both)
            }
            Server::Hub(hub) => {
                let [names, objects] = hub.addresses().map(proxy);
                hub.send_to(objects.address());
                (names, objects)
            }
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
            Server::Gateway(gateway) => (gateway.port, gateway.variables()),
            Server::Emulator(emulator) => (emulator.port, emulator.variables()),
            Server::Hub(hub) => (hub.addresses()[0].port(), hub.variables()),
        };
        let (own, proxy) = (format!("127.0.0.1:{port}"), self.names.address());
        let through = |value: String| value.replace(&own, &proxy.to_string());
        let variables = variables.into_iter();
        variables
            .map(|(name, value)| (name, through(value)))
            .collect()
    }

    /// The name of an object, or of all below a prefix.
    pub fn name(&self, key: &str) -> String {
        match self.kind {
            Kind::S3 => format!("s3://bucket/{key}"),
            Kind::Google => format!("gs://bucket/{key}"),
            Kind::Azure => format!("az://bucket/{key}"),
            Kind::Hub => format!("hf://u/r/{key}"),
        }
    }

    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        match &self.server {
            Server::Gateway(gateway) => gateway.put(key, bytes),
            Server::Emulator(emulator) => emulator.put(key, bytes),
            Server::Hub(hub) => hub.put("u/r", key, foreread::source::Mem::new(bytes)),
        }
    }

    /// Not of the hub: what was opened at a commit stays.
    pub fn delete(&self, key: &str) {
        match &self.server {
            Server::Gateway(gateway) => gateway.delete(key),
            Server::Emulator(emulator) => emulator.delete(key),
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
