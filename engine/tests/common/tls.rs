//! Certificates by certtool, and a client of the NBD server that speaks TLS. Never: a test.

use crate::common::nbd::{Client, has, run};
use foreread::nbd::wire;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A folder with the certificates of an authority, a server and a client, as nbdkit and libnbd name them.
pub struct Certificates(pub tempfile::TempDir);

impl Certificates {
    /// Nothing where there is no certtool.
    pub fn new() -> Option<Certificates> {
        if !has("certtool", "gnutls-bin") {
            return None;
        }
        let all = Certificates(tempfile::tempdir().expect("a directory"));
        all.key("ca");
        // Each authority has its own name: a list of revoked certificates finds its authority by that.
        let name = all
            .path()
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = format!(
            "cn = Authority {name}\nca\ncert_signing_key\ncrl_signing_key\nexpiration_days = 9\n"
        );
        let template = all.template("ca", &text);
        let (key, cert) = (all.file("ca-key.pem"), all.file("ca-cert.pem"));
        let own = [
            "--load-privkey",
            &key,
            "--template",
            &template,
            "--outfile",
            &cert,
        ];
        run(
            "certtool",
            &[&["--generate-self-signed"][..], &own].concat(),
        );
        let server = "cn = localhost\ndns_name = localhost\ntls_www_server\nsigning_key\nexpiration_days = 9\n";
        all.issue("server", server);
        all.issue(
            "client",
            "cn = client\ntls_www_client\nsigning_key\nexpiration_days = 9\n",
        );
        Some(all)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("UTF-8").to_string()
    }

    fn key(&self, role: &str) {
        let file = self.file(&format!("{role}-key.pem"));
        let words = [
            "--generate-privkey",
            "--key-type",
            "ecdsa",
            "--outfile",
            &file,
        ];
        run("certtool", &words);
    }

    fn template(&self, role: &str, text: &str) -> String {
        let path = self.file(&format!("{role}.info"));
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Has the authority issue a certificate for a new key.
    pub fn issue(&self, role: &str, text: &str) {
        self.key(role);
        let (template, key) = (
            self.template(role, text),
            self.file(&format!("{role}-key.pem")),
        );
        let (ca, ca_key) = (self.file("ca-cert.pem"), self.file("ca-key.pem"));
        let cert = self.file(&format!("{role}-cert.pem"));
        let own = [
            "--load-privkey",
            &key,
            "--template",
            &template,
            "--outfile",
            &cert,
        ];
        let authority = ["--load-ca-certificate", &ca, "--load-ca-privkey", &ca_key];
        run(
            "certtool",
            &[&["--generate-certificate"][..], &own, &authority].concat(),
        );
    }

    /// Has the authority write `ca-crl.pem`, which lists the certificate of `role`. `until` is when the list ends, if not in days.
    pub fn revoke(&self, role: &str, until: Option<&str>) {
        let dates = match until {
            None => "crl_next_update = 9\n".to_string(),
            Some(day) => {
                format!(
                    "crl_this_update_date = \"2020-01-01 00:00:00 UTC\"\ncrl_next_update_date = \"{day}\"\n"
                )
            }
        };
        let template = self.template("crl", &format!("{dates}crl_number = 1\n"));
        let (ca, ca_key, list) = (
            self.file("ca-cert.pem"),
            self.file("ca-key.pem"),
            self.file("ca-crl.pem"),
        );
        let authority = ["--load-ca-certificate", &ca, "--load-ca-privkey", &ca_key];
        let cert = self.file(&format!("{role}-cert.pem"));
        let own = [
            "--generate-crl",
            "--load-certificate",
            &cert,
            "--template",
            &template,
            "--outfile",
            &list,
        ];
        run("certtool", &[&own[..], &authority].concat());
    }

    /// A folder with some of the files.
    pub fn only(&self, files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for file in files {
            std::fs::copy(self.path().join(file), dir.path().join(file)).expect("copied");
        }
        dir
    }
}

/// A client by hand that speaks TLS.
pub type TlsClient = Client<StreamOwned<ClientConnection, UnixStream>>;

impl TlsClient {
    /// A connection on which STARTTLS was answered.
    pub fn started(socket: PathBuf) -> UnixStream {
        let mut stream = UnixStream::connect(socket).expect("connected");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        stream.read_exact(&mut [0; 18]).expect("a greeting");
        stream.write_all(&[0, 0, 0, 3]).expect("sent");
        stream.write_all(&option(5, &[])).expect("sent");
        assert_eq!(reply(&mut stream), (5, 1), "TLS is offered");
        stream
    }

    /// One that knows the authority, and trusts nothing else.
    pub fn new(socket: PathBuf, certificates: &Certificates) -> TlsClient {
        let mut roots = RootCertStore::empty();
        let ca =
            CertificateDer::from_pem_file(certificates.file("ca-cert.pem")).expect("a certificate");
        roots.add(ca).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a session");
        Client(StreamOwned::new(tls, TlsClient::started(socket)))
    }

    /// Sends an option. Option and kind of the first reply.
    pub fn option(&mut self, number: u32, data: &[u8]) -> (u32, u32) {
        self.0.write_all(&option(number, data)).expect("sent");
        reply(&mut self.0)
    }
}

pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    [
        &wire::OPTION_MAGIC.to_be_bytes()[..],
        &number.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ]
    .concat()
}

/// Option and kind of the next reply, which has no data or data that is of no interest.
pub fn reply(stream: &mut impl Read) -> (u32, u32) {
    let mut head = [0; 20];
    stream.read_exact(&mut head).expect("a reply");
    assert_eq!(head[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
    stream
        .read_exact(&mut vec![0; number(16) as usize])
        .expect("its data");
    (number(8), number(12))
}
