//! Certificates, keys and certificate revocation lists (CRLs), as the server and the source read them from PEM files.
//!
//! A file is read in one piece, up to [`MAX_PEM_BYTES`]; a FIFO or a device at its path is refused. It is an error if the file does not
//! contain the expected certificate, key or list.

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::io::ErrorKind;
use std::path::Path;

/// Maximum bytes of a TLS file. A revocation list may be long.
const MAX_PEM_BYTES: u64 = 64 << 20;

fn text(path: &Path) -> Result<Vec<u8>, pem::Error> {
    foreread_os::open::read_small(path, MAX_PEM_BYTES).map_err(pem::Error::Io)
}

fn all<T: PemObject>(path: &Path) -> Result<Vec<T>, pem::Error> {
    let all: Vec<T> = T::pem_slice_iter(&text(path)?).collect::<Result<_, _>>()?;
    if all.is_empty() {
        return Err(pem::Error::NoItemsFound);
    }
    Ok(all)
}

pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    all(path)
}

pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, pem::Error> {
    PrivateKeyDer::from_pem_slice(&text(path)?)
}

pub fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, pem::Error> {
    all(path)
}

/// Creates the store of trusted certificate authorities (CAs) from their certificates.
pub fn authorities(
    certificates: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    certificates
        .into_iter()
        .try_for_each(|certificate| roots.add(certificate))?;
    Ok(roots)
}

/// Whether nothing exists at this path. A dangling symbolic link counts as existing, so that it causes an error later instead of being
/// ignored.
pub fn is_absent(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}
