//! Certificates by certtool, and a client of the NBD server that speaks TLS. Never: a test.

use crate::common::nbd::{Client, Served, has, option, run};
use foreread::front::nbd::NbdTls;
use foreread::nbd::wire;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// A folder with the certificates of an authority, a server and a client, as nbdkit and libnbd name them.
pub struct Certificates(pub tempfile::TempDir);

impl Certificates {
    /// Nothing where there is no certtool.
    pub fn new() -> Option<Certificates> {
        crate::common::watch();
        if !has("certtool", "gnutls-bin") {
            return None;
        }
        let all = Certificates(tempfile::tempdir().expect("a directory"));
        all.key("ca");
        // Each authority has its own name: a list of revoked certificates finds its authority by that.
        let name = all.path().file_name().expect("a name").to_string_lossy();
        let text = format!(
            "cn = Authority {name}\nca\ncert_signing_key\ncrl_signing_key\nexpiration_days = 9\n"
        );
        let key = all.file("ca-key.pem");
        let own = ["--generate-self-signed", "--load-privkey", &key];
        all.make(&own, ("ca", &text), "ca-cert.pem");
        all.issue_server("expiration_days = 9\n");
        all.issue_client("client");
        Some(all)
    }

    /// Runs certtool by a template, which gets the name `role`.
    fn make(&self, own: &[&str], (role, text): (&str, &str), out: &str) {
        let template = self.file(&format!("{role}.info"));
        std::fs::write(&template, text).expect("written");
        let out = self.file(out);
        let rest = ["--template", &template, "--outfile", &out];
        run("certtool", &[own, &rest].concat());
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("UTF-8").to_string()
    }

    /// What a server loads; with `verify` its clients need a certificate.
    pub fn server(&self, verify: bool) -> NbdTls {
        NbdTls::load(self.path(), verify).expect("loaded")
    }

    fn key(&self, role: &str) {
        let file = self.file(&format!("{role}-key.pem"));
        let words = "--generate-privkey --key-type ecdsa --outfile".split(' ');
        run("certtool", &Vec::from_iter(words.chain([file.as_str()])));
    }

    /// Has the authority issue a certificate for a new key.
    fn issue(&self, role: &str, text: &str) {
        self.key(role);
        let key = self.file(&format!("{role}-key.pem"));
        let own = ["--generate-certificate", "--load-privkey", &key];
        self.by_authority(&own, (role, text), &format!("{role}-cert.pem"));
    }

    fn by_authority(&self, own: &[&str], template: (&str, &str), out: &str) {
        let (ca, key) = (self.file("ca-cert.pem"), self.file("ca-key.pem"));
        let authority = ["--load-ca-certificate", &ca, "--load-ca-privkey", &key];
        self.make(&[own, &authority].concat(), template, out);
    }

    /// A new certificate of the server, with these lines about its time.
    pub fn issue_server(&self, times: &str) {
        let name = "cn = localhost\ndns_name = localhost\ntls_www_server\nsigning_key\n";
        self.issue("server", &format!("{name}{times}"));
    }

    /// One that has expired, or is not valid yet.
    pub fn issue_server_of(&self, from: &str, to: &str) {
        let times = format!("activation_date = {from:?}\nexpiration_date = {to:?}\n");
        self.issue_server(&times);
    }

    /// A new certificate of a client with this name.
    pub fn issue_client(&self, name: &str) {
        let text = format!("cn = {name}\ntls_www_client\nsigning_key\nexpiration_days = 9\n");
        self.issue("client", &text);
    }

    /// Has the authority write `ca-crl.pem`, which lists the certificate of `role`. `until` is when the list ends, if not in days.
    pub fn revoke(&self, role: &str, until: Option<&str>) {
        let dates = until.map_or("crl_next_update = 9\n".to_string(), |day| {
            let begin = "crl_this_update_date = \"2020-01-01 00:00:00 UTC\"";
            format!("{begin}\ncrl_next_update_date = \"{day}\"\n")
        });
        let cert = self.file(&format!("{role}-cert.pem"));
        let own = ["--generate-crl", "--load-certificate", &cert];
        let text = format!("{dates}crl_number = 1\n");
        self.by_authority(&own, ("crl", &text), "ca-crl.pem");
    }

    /// A folder with some of the files.
    pub fn only(&self, files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for file in files {
            std::fs::copy(self.path().join(file), dir.path().join(file)).expect("copied");
        }
        dir
    }

    /// A folder of a client that trusts this authority, and shows a certificate of another.
    pub fn with_client_of(&self, others: &Certificates) -> tempfile::TempDir {
        let dir = others.only(&["client-cert.pem", "client-key.pem"]);
        std::fs::copy(self.file("ca-cert.pem"), dir.path().join("ca-cert.pem")).expect("copied");
        dir
    }
}

/// A client by hand that speaks TLS.
pub type TlsClient = Client<StreamOwned<ClientConnection, UnixStream>>;

impl TlsClient {
    /// A connection on which STARTTLS was answered.
    pub fn started(served: &Served) -> UnixStream {
        let mut stream = served.connect();
        stream.read_exact(&mut [0; 18]).expect("a greeting");
        stream.write_all(&[0, 0, 0, 3]).expect("sent");
        stream.write_all(&option(5, &[])).expect("sent");
        assert_eq!(reply(&mut stream), (5, 1), "TLS is offered");
        stream
    }

    /// One that knows the authority, and trusts nothing else.
    pub fn new(served: &Served, certificates: &Certificates) -> TlsClient {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(certificates.file("ca-cert.pem"));
        roots.add(ca.expect("a certificate")).expect("an authority");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions();
        let config = config.expect("versions").with_root_certificates(roots);
        let config = config.with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a session");
        Client(StreamOwned::new(tls, TlsClient::started(served)))
    }

    /// Sends an option. Option and kind of the first reply.
    pub fn option(&mut self, number: u32, data: &[u8]) -> (u32, u32) {
        self.0.write_all(&option(number, data)).expect("sent");
        reply(&mut self.0)
    }
}

/// Option and kind of the next reply, which has no data or data that is of no interest.
pub fn reply(stream: &mut impl Read) -> (u32, u32) {
    let mut head = [0; 20];
    stream.read_exact(&mut head).expect("a reply");
    assert_eq!(head[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
    let mut data = vec![0; number(16) as usize];
    stream.read_exact(&mut data).expect("its data");
    (number(8), number(12))
}
