//! TLS of the NBD server: its certificates, and the session of a client.
//!
//! The certificate files have the same names as for nbdkit and libnbd. A session encrypts at most [`SEND_BYTES`] at a time, and reports
//! them as sent when the kernel has all their TLS records. So for a client that does not read its answers, the session buffers at most
//! [`SEND_BYTES`]. A lock guards each session; the lock is held while bytes are encrypted and copied, never while a thread waits for the
//! client.
//!
//! ```text
//!   DIR/server-cert.pem   the certificate sent to clients, with intermediate certificates
//!   DIR/server-key.pem    its key
//!   DIR/ca-cert.pem       the authority that issues the clients' certificates, if they are required
//!   DIR/ca-crl.pem        its list of revoked certificates, if there is one
//! ```
//!
//! Not supported: pre-shared keys (PSK), resumption of sessions, early data.

use super::socket::{Deadline, Socket};
use crate::front::{FrontError, FrontErrorKind};
use crate::nbd::pem;
use crate::sync::lock;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::Error as PemError;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    NoServerSessionStorage, ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::{CertificateError, RootCertStore, ServerConfig, ServerConnection};
use std::fmt;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Maximum number of bytes that are encrypted before the kernel has taken them.
const SEND_BYTES: usize = 64 << 10;
/// How often the socket is read in one receive: a record has up to 16 KiB, and the library reads 4 KiB at a time.
const READS_AT_ONCE: u32 = 8;

/// The certificate of an NBD server, and its requirements for clients. Clients without TLS are refused unless
/// [`NbdTls::allow_plain`] is set.
#[derive(Clone)]
pub struct NbdTls {
    config: Arc<ServerConfig>,
    required: bool,
}

impl fmt::Debug for NbdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdTls")
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

impl NbdTls {
    /// Loads `server-cert.pem` and `server-key.pem` from a directory. With `verify_peer`, a client must present a certificate that
    /// `ca-cert.pem` has issued. If there is a revocation list `ca-crl.pem`, the certificate must not be on it.
    ///
    /// # Errors
    /// Returns an error if a file is missing or has the wrong content, the key does not belong to the certificate, or the certificate is
    /// not valid now.
    pub fn load(dir: impl AsRef<Path>, verify_peer: bool) -> Result<NbdTls, FrontError> {
        let dir = dir.as_ref();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let (cert_path, key_path, ca_path) = (
            dir.join("server-cert.pem"),
            dir.join("server-key.pem"),
            dir.join("ca-cert.pem"),
        );
        let certs = certificates(&cert_path)?;
        let key = pem::key(&key_path).map_err(|error| unreadable(&key_path, &error))?;
        let roots = match verify_peer || ca_path.exists() {
            true => authorities(&ca_path)?,
            false => RootCertStore::empty(),
        };
        check_dates(&certs, &roots, &provider, &cert_path)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&cert_path, &error))?;
        let builder = if verify_peer {
            builder.with_client_cert_verifier(verifier(dir, roots, provider)?)
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder
            .with_single_cert(certs, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => wrong(
                    "the key does not belong to the certificate in server-cert.pem",
                    &key_path,
                    "use the key of this certificate, or create both again",
                ),
                error => unusable(&cert_path, &error),
            })?;
        // Sessions are not resumed on other connections, so no state is kept between connections.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(NbdTls {
            config: Arc::new(config),
            required: true,
        })
    }

    /// Also accepts clients without TLS, whose identity is not checked and whose data is not encrypted.
    #[must_use]
    pub fn allow_plain(self) -> NbdTls {
        NbdTls {
            required: false,
            ..self
        }
    }

    /// Whether the server refuses clients without TLS.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FrontError> {
    pem::certificates(path).map_err(|error| unreadable(path, &error))
}

fn authorities(path: &Path) -> Result<RootCertStore, FrontError> {
    pem::authorities(certificates(path)?).map_err(|error| unusable(path, &error))
}

/// The verifier of the clients' certificates. With a revocation list, a client is refused unless a list that is still valid covers
/// its authority: an expired list, or the list of another authority, must not admit every client.
fn verifier(
    dir: &Path,
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, FrontError> {
    let (ca_path, list_path) = (dir.join("ca-cert.pem"), dir.join("ca-crl.pem"));
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if !pem::is_absent(&list_path) {
        let lists = pem::revoked(&list_path).map_err(|error| unlisted(&list_path, &error))?;
        builder = builder.with_crls(lists).enforce_revocation_expiration();
    }
    builder.build().map_err(|error| match error {
        VerifierBuilderError::InvalidCrl(_) => unlisted(&list_path, &error),
        error => unusable(&ca_path, &error),
    })
}

fn unlisted(path: &Path, error: &dyn fmt::Display) -> FrontError {
    wrong(
        format!("the certificate revocation list cannot be used ({error})"),
        path,
        "let the authority issue it again (certtool --generate-crl), or remove it if no certificate is revoked",
    )
}

/// Refuses a certificate that every client would refuse because of its dates. Whether clients trust its authority is for them to
/// decide.
fn check_dates(
    certs: &[CertificateDer<'_>],
    roots: &RootCertStore,
    provider: &CryptoProvider,
    path: &Path,
) -> Result<(), FrontError> {
    let Some((own, between)) = certs.split_first() else {
        return Ok(());
    };
    let own = ParsedCertificate::try_from(own).map_err(|error| unusable(path, &error))?;
    let algorithms = provider.signature_verification_algorithms.all;
    let checked = verify_server_cert_signed_by_trust_anchor(
        &own,
        roots,
        between,
        UnixTime::now(),
        algorithms,
    );
    let (what, remedy) = match checked {
        Err(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => (
            "the certificate has expired",
            "get a new certificate, and start the server again",
        ),
        Err(rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        )) => (
            "the certificate is not valid yet",
            "check the clock of this machine, or wait until it is valid",
        ),
        _ => return Ok(()),
    };
    Err(wrong(what, path, remedy))
}

fn wrong(what: impl Into<String>, path: &Path, remedy: &str) -> FrontError {
    FrontError::new(FrontErrorKind::Certificate, what, path.display(), remedy)
}

fn unreadable(path: &Path, error: &PemError) -> FrontError {
    let (what, remedy) = match error {
        PemError::Io(error) if error.kind() == ErrorKind::NotFound => (
            "a file for TLS is missing".to_string(),
            "the folder must contain server-cert.pem and server-key.pem, and ca-cert.pem for --tls-verify-peer",
        ),
        PemError::Io(error) => (
            format!("a file for TLS cannot be read ({error})"),
            "give the user that runs the server read permission",
        ),
        PemError::NoItemsFound => (
            "a file for TLS has no certificate or key".to_string(),
            "it must be PEM text with a certificate, or with a key without a password",
        ),
        error => (
            format!("a file for TLS is not PEM text ({error})"),
            "create it again",
        ),
    };
    wrong(what, path, remedy)
}

fn unusable(path: &Path, error: &dyn fmt::Display) -> FrontError {
    wrong(
        format!("TLS cannot use it ({error})"),
        path,
        "create it again, for example with certtool or openssl and an RSA key of 2048 bits or an EC key",
    )
}

/// The TLS session of a client: its keys, and bytes that are encrypted or decrypted but not delivered yet.
pub struct Session(Mutex<SessionState>);

struct SessionState {
    tls: ServerConnection,
    /// Number of bytes that were encrypted and not reported as sent, because some of their records were not sent yet.
    encrypted: usize,
}

impl Session {
    /// Runs the TLS handshake with a client, within the remaining time of its handshake.
    pub fn agree(
        socket: &Socket,
        tls: &NbdTls,
        deadline: &mut Deadline,
    ) -> std::io::Result<Session> {
        let mut state = SessionState {
            tls: ServerConnection::new(Arc::clone(&tls.config)).map_err(broken)?,
            encrypted: 0,
        };
        loop {
            match state.flush(socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    socket.wait_to_send(deadline)?;
                    continue;
                }
                other => other?,
            }
            if !state.tls.is_handshaking() {
                return Ok(Session(Mutex::new(state)));
            }
            if Instant::now() > deadline.at() {
                return Err(ErrorKind::TimedOut.into());
            }
            match state.receive(socket) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    socket.wait_to_receive(deadline)?
                }
                other => drop(other?),
            }
        }
    }

    /// Whether there are unread decrypted bytes, or the client has closed the session.
    pub fn holds_more(&self) -> bool {
        // The error persists: the next receive returns it.
        lock(&self.0).tls.process_new_packets().map_or(true, |now| {
            now.plaintext_bytes_to_read() > 0 || now.peer_has_closed()
        })
    }

    /// Like [`Socket::receive_now`], but returns decrypted bytes.
    pub fn receive_now(&self, socket: &Socket, buf: &mut [u8]) -> std::io::Result<usize> {
        let mut state = lock(&self.0);
        for _ in 0..READS_AT_ONCE {
            match state.tls.reader().read(buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            state.receive(socket)?;
            // Replies of the protocol itself. If there is no room now, they are sent with the next bytes.
            let _ = state.flush(socket);
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// Like [`Socket::send_now`], but encrypts the bytes. If the result is `WouldBlock`, the caller must repeat the call, which then
    /// sends the rest of the encrypted bytes and returns their number.
    pub fn send_now(&self, socket: &Socket, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        let mut state = lock(&self.0);
        if state.encrypted == 0 {
            let mut room = SEND_BYTES;
            let cut = parts.iter().map(|part| {
                let part = &part[..part.len().min(room)];
                room -= part.len();
                IoSlice::new(part)
            });
            let parts: Vec<IoSlice<'_>> = cut.collect();
            state.encrypted = state.tls.writer().write_vectored(&parts)?;
        }
        state.flush(socket)?;
        match std::mem::take(&mut state.encrypted) {
            // Records of the protocol itself took the room; they are sent now.
            0 => Err(ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }

    /// Sends close_notify to the client, if the socket has room for it.
    pub fn say_goodbye(&self, socket: &Socket) {
        let mut state = lock(&self.0);
        state.tls.send_close_notify();
        let _ = state.flush(socket);
    }
}

impl SessionState {
    /// Reads encrypted bytes from the socket once. Returns 0 at the end.
    fn receive(&mut self, socket: &Socket) -> std::io::Result<usize> {
        let got = self.tls.read_tls(&mut Raw(socket))?;
        if let Err(error) = self.tls.process_new_packets() {
            // The client is told the reason.
            let _ = self.flush(socket);
            return Err(broken(error));
        }
        Ok(got)
    }

    /// Sends all encrypted bytes. Returns `WouldBlock` if there is no room for the rest.
    fn flush(&mut self, socket: &Socket) -> std::io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut Raw(socket))?;
        }
        Ok(())
    }
}

fn broken(error: rustls::Error) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, error)
}

/// The socket in the form that the library needs.
struct Raw<'a>(&'a Socket);

impl Read for Raw<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.receive_now(buf)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.send_now(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> std::io::Result<usize> {
        self.0.send_now(bufs)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
