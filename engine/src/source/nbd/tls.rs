//! TLS of the NBD source: trusted authorities, client certificate, and the session with a server.
//!
//! The file names are those of nbdkit and libnbd. The folder of these files is given by `tls-certificates=DIR` in the source's
//! name. The default is the first of libnbd's folders that exists: `/etc/pki/libnbd` for root, `~/.pki/libnbd` and
//! `~/.config/pki/libnbd` for other users. The files are read for each connection, so a renewed certificate is used from the next
//! connection on.
//!
//! ```text
//!   DIR/ca-cert.pem       the authorities that issue servers' certificates; without it the system's
//!   DIR/ca-crl.pem        the certificates that they have revoked; optional
//!   DIR/client-cert.pem   the client's certificate and key, for servers that require one; optional
//!   DIR/client-key.pem
//! ```
//!
//! One lock guards each TLS session. The lock is held while bytes are encrypted or decrypted, never during a system call on the
//! socket. The client never accepts pre-shared keys (PSK), never resumes a session, and never sends early data.

use super::failure::{EPROTO, LinkError, NoTls};
use super::socket::ServerSocket;
use super::uri::{PeerCheck, ServerPlace, TlsTerms};
use crate::nbd::pem;
use crate::source::EINVAL;
use crate::sync::lock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    RootCertStore, SignatureScheme,
};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Maximum encrypted bytes received from the socket at a time: several records of 16 KiB.
const INBOX_BYTES: usize = 128 << 10;
const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();

/// The keys of the connection, and the received bytes that are not decrypted yet.
pub struct Session {
    tls: Mutex<ClientConnection>,
    /// Used only by the receiving thread.
    inbox: Mutex<Inbox>,
}

struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Session {
    pub fn new(place: &ServerPlace, terms: &TlsTerms) -> Result<Session, LinkError> {
        let name = match (&terms.check, place) {
            (PeerCheck::Name(name), _) => name,
            (PeerCheck::Authority | PeerCheck::Nothing, ServerPlace::Tcp { host, .. }) => host,
            (PeerCheck::Authority | PeerCheck::Nothing, ServerPlace::Unix(_)) => "localhost",
        };
        let name = ServerName::try_from(name.to_string()).map_err(|_| {
            LinkError::no_tls(
                EINVAL,
                "the server name to verify with TLS is not a valid host name",
                "add tls-hostname=NAME, where NAME is the host name in the server's certificate",
            )
        })?;
        let config = config(terms)?;
        let tls = ClientConnection::new(Arc::new(config), name).map_err(|error| wrong(&error))?;
        Ok(Session {
            tls: Mutex::new(tls),
            inbox: Mutex::new(Inbox {
                bytes: vec![0; INBOX_BYTES].into(),
                start: 0,
                end: 0,
            }),
        })
    }

    /// Advances the handshake by one step, with at most one wait for the server. Returns true when the handshake is complete.
    pub fn agree(&self, socket: &ServerSocket) -> std::io::Result<bool> {
        self.send(socket, &[])?;
        if lock(&self.tls).is_handshaking() {
            let stepped = self.receive(socket, &mut []);
            // Our reply, including an alert that ends the session.
            let said = self.send(socket, &[]);
            stepped.and(said)?;
        }
        Ok(!lock(&self.tls).is_handshaking())
    }

    /// Encrypts bytes and sends them. Only one caller may send at a time.
    pub fn send(&self, socket: &ServerSocket, bytes: &[u8]) -> std::io::Result<()> {
        let mut records = Vec::new();
        {
            let mut tls = lock(&self.tls);
            tls.writer().write_all(bytes)?;
            while tls.wants_write() {
                tls.write_tls(&mut records)?;
            }
        }
        socket.send(&records)
    }

    /// Receives some decrypted bytes. Returns `None` if only a part of a TLS record has arrived. Waits for the server at most once.
    /// Only one caller may receive at a time.
    pub fn receive(&self, socket: &ServerSocket, buf: &mut [u8]) -> std::io::Result<Option<usize>> {
        let mut inbox = lock(&self.inbox);
        if let Some(got) = inbox.decrypt(&mut lock(&self.tls), buf)? {
            return Ok(Some(got));
        }
        inbox.start = 0;
        inbox.end = socket.receive(&mut inbox.bytes)?;
        if inbox.end == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        inbox.decrypt(&mut lock(&self.tls), buf)
    }
}

impl Inbox {
    /// Decrypts until there are bytes for `buf`, or nothing is left. A handshake continues until it is complete.
    fn decrypt(
        &mut self,
        tls: &mut ClientConnection,
        buf: &mut [u8],
    ) -> std::io::Result<Option<usize>> {
        let mut filled = 0;
        loop {
            if filled < buf.len() {
                match tls.reader().read(&mut buf[filled..]) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Ok(0) => return Ok(Some(filled)),
                    other => {
                        filled += other?;
                        continue;
                    }
                }
            }
            let done = filled == buf.len() && !(buf.is_empty() && tls.is_handshaking());
            if done || self.start == self.end {
                return Ok((filled > 0).then_some(filled));
            }
            let mut rest = &self.bytes[self.start..self.end];
            self.start += tls.read_tls(&mut rest)?;
            tls.process_new_packets()
                .map_err(|error| std::io::Error::other(explained(&error)))?;
        }
    }
}

fn config(terms: &TlsTerms) -> Result<ClientConfig, LinkError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let folder = folder(terms)?;
    let verifier = Verifier {
        authorities: match terms.check {
            PeerCheck::Nothing => None,
            _ => Some(authorities(folder.as_deref(), &provider)?),
        },
        by_name: matches!(terms.check, PeerCheck::Name(_)),
        provider: Arc::clone(&provider),
    };
    let has_name = verifier.by_name;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let own = folder.map(|dir| (dir.join("client-cert.pem"), dir.join("client-key.pem")));
    let own = own.filter(|(cert, key)| !pem::is_absent(cert) || !pem::is_absent(key));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = pem::certificates(&cert).map_err(|error| unusable(&cert, &error))?;
            let secret = pem::key(&key).map_err(|error| unusable(&key, &error))?;
            builder
                .with_client_auth_cert(chain, secret)
                .map_err(|error| unusable(&key, &error))?
        }
    };
    config.resumption = Resumption::disabled();
    config.enable_sni = has_name;
    Ok(config)
}

/// The folder with the files, if it exists.
fn folder(terms: &TlsTerms) -> Result<Option<PathBuf>, LinkError> {
    if let Some(named) = &terms.certificates {
        return match named.is_dir() {
            true => Ok(Some(named.clone())),
            false => Err(LinkError::no_tls(
                EINVAL,
                format!("{} is not a folder", named.display()),
                "use the folder that has ca-cert.pem (tls-certificates=DIR)",
            )),
        };
    }
    let is_root = rustix::process::geteuid().is_root();
    let folders = default_folders(is_root, std::env::var_os("HOME").map(PathBuf::from));
    Ok(folders.into_iter().find(|dir| dir.is_dir()))
}

fn default_folders(is_root: bool, home: Option<PathBuf>) -> Vec<PathBuf> {
    if is_root {
        return vec![PathBuf::from("/etc/pki/libnbd")];
    }
    let home = home.filter(|home| home.is_absolute());
    home.map_or_else(Vec::new, |home| {
        vec![home.join(".pki/libnbd"), home.join(".config/pki/libnbd")]
    })
}

fn authorities(
    folder: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, LinkError> {
    let path = |file| {
        folder
            .map(|dir| dir.join(file))
            .filter(|path| !pem::is_absent(path))
    };
    let roots = match path("ca-cert.pem") {
        Some(path) => pem::certificates(&path)
            .map_err(|error| unusable(&path, &error))
            .and_then(|all| pem::authorities(all).map_err(|error| unusable(&path, &error)))?,
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
    };
    if roots.is_empty() {
        return Err(LinkError::no_tls(
            EINVAL,
            "this machine has no certificates of trusted authorities",
            "put ca-cert.pem into the folder tls-certificates=DIR, or install ca-certificates",
        ));
    }
    let mut builder =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if let Some(path) = path("ca-crl.pem") {
        let lists = pem::revoked(&path).map_err(|error| unusable(&path, &error))?;
        builder = builder.with_crls(lists).enforce_revocation_expiration();
    }
    builder.build().map_err(|error| {
        let path = path("ca-crl.pem").unwrap_or_default();
        unusable(&path, &error)
    })
}

fn unusable(path: &Path, error: &dyn fmt::Display) -> LinkError {
    LinkError::no_tls(
        EINVAL,
        format!("{} cannot be used for TLS ({error})", path.display()),
        "the folder must have PEM files with the names of nbdkit and libnbd: ca-cert.pem, and either both client-cert.pem and client-key.pem or neither",
    )
}

#[derive(Debug)]
struct Verifier {
    /// `None`: any certificate is accepted.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// Whether the certificate must contain the server's name.
    by_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        match authorities.verify_server_cert(own, between, name, ocsp, now) {
            // The name is checked last, when everything else is valid.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.by_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn wrong(error: &rustls::Error) -> LinkError {
    LinkError::Insecure(Box::new(explained(error)))
}

/// The error with a remedy. The text may quote the server's certificate.
fn explained(error: &rustls::Error) -> NoTls {
    let text: String = error
        .to_string()
        .chars()
        .filter(|c| !c.is_control())
        .take(300)
        .collect();
    let (errno, why, remedy) = match error {
        rustls::Error::InvalidCertificate(error) => {
            let (why, remedy) = refused_certificate(error);
            (EPROTO, why, remedy)
        }
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        ) => (
            EACCES,
            "the server requires another client certificate",
            "put a client-cert.pem and client-key.pem that the server's authority issued into the folder tls-certificates=DIR",
        ),
        rustls::Error::AlertReceived(
            AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::ProtocolVersion,
        )
        | rustls::Error::PeerIncompatible(_) => (
            EPROTO,
            "the server and foreread support no common TLS version or cipher",
            "configure the server for TLS 1.2 or 1.3 with an X.509 certificate; pre-shared keys (PSK) are not supported",
        ),
        _ => (
            EPROTO,
            "the server's TLS data is invalid",
            "check the address, and whether a proxy or firewall on the way changes the data",
        ),
    };
    NoTls {
        errno,
        why: format!("{why} ({text})"),
        remedy: remedy.to_string(),
    }
}

fn refused_certificate(error: &CertificateError) -> (&'static str, &'static str) {
    match error {
        CertificateError::UnknownIssuer => (
            "the server's certificate is not from a trusted authority",
            "put the authority's certificate into ca-cert.pem in the folder tls-certificates=DIR",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "the server's certificate is for another name",
            "connect by a name or address that the certificate lists (dns_name, ip_address), or add tls-hostname=NAME with one of them",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
            "the server's certificate has expired",
            "have a new certificate issued for the server",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "the server's certificate is not valid yet",
            "check the clock of this machine, or wait until the certificate is valid",
        ),
        CertificateError::Revoked => (
            "the server's certificate was revoked",
            "have a new certificate issued for the server",
        ),
        CertificateError::UnknownRevocationStatus
        | CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => (
            "ca-crl.pem has no valid revocation list of the authority that issued the server's certificate",
            "let the authority issue a new list (certtool --generate-crl), or remove ca-crl.pem if no certificate is revoked",
        ),
        _ => (
            "the server's certificate is invalid for this use",
            "have the certificate issued again for use by a server (tls_www_server), for example with certtool or openssl",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_are_those_of_libnbd() {
        let home = || Some(PathBuf::from("/u"));
        assert_eq!(
            default_folders(true, home()),
            [Path::new("/etc/pki/libnbd")]
        );
        let own = ["/u/.pki/libnbd", "/u/.config/pki/libnbd"].map(PathBuf::from);
        assert_eq!(default_folders(false, home()), own);
        assert!(default_folders(false, None).is_empty());
        assert!(default_folders(false, Some("u".into())).is_empty());
    }
}
