//! The certificate authorities that clients of stores trust.
//!
//! ```text
//!   the system's (SSL_CERT_FILE, SSL_CERT_DIR, /etc/ssl/certs)      always
//!   Mozilla's list of the build                                     if the system has none and neither variable is set
//!   --ca-file, AWS_CA_BUNDLE                                        in addition
//! ```
//! Example: a minimal Debian container has no package ca-certificates. Without any list of authorities, the HTTP library (reqwest) cannot
//! create a client in such a container, not even for `http://`. With Mozilla's list, which is built in, `https://` works too. Mozilla's
//! list is not used if an environment variable specifies other certificates.

use crate::source::object::refusal::{Unfit, line_of};
use foreread_os::open::read_small_text;
use reqwest::{Certificate, ClientBuilder};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Makes a client trust these authorities, and those of `ca_file`.
pub fn trusted_by(builder: ClientBuilder, ca_file: Option<&Path>) -> Result<ClientBuilder, Unfit> {
    let built_in = BUILT_IN
        .iter()
        .filter_map(|der| Certificate::from_der(der).ok());
    let named = ca_file.map_or(Ok(Vec::new()), |path| {
        let unfit =
            |error: reqwest::Error| Unfit::new(line_of(&error), "check the certificate file");
        Certificate::from_pem_bundle(&pem(path)?).map_err(unfit)
    })?;
    Ok(built_in
        .chain(named)
        .fold(builder, ClientBuilder::add_root_certificate))
}

/// The first line of each certificate.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Mozilla's certificates, if they are trusted. The system is checked once.
static BUILT_IN: LazyLock<Vec<&'static [u8]>> = LazyLock::new(|| {
    let is_named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| std::env::var_os(name).is_some());
    if !needs_built_in(is_named.contains(&true), count_of_system) {
        return Vec::new();
    }
    tracing::info!(
        "this system has no list of certificate authorities: foreread uses Mozilla's list, which is built in"
    );
    let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    all.map(|der| &**der).collect()
});

/// Certificates (DER) of the authorities that clients of stores trust in addition to the system's. If the system has no authorities, and
/// neither SSL_CERT_FILE nor SSL_CERT_DIR is set, this is Mozilla's list, which is built into foreread. Otherwise the list is empty. Use
/// this list for other clients in the same program, so that they trust the same authorities.
#[must_use]
pub fn built_in() -> &'static [&'static [u8]] {
    &BUILT_IN
}

fn needs_built_in(is_named: bool, of_system: fn() -> usize) -> bool {
    !is_named && of_system() == 0
}

/// The number of the system's certificates, counted up to the first, which is enough to know. Reading all of them takes 4 ms,
/// and the client does that too.
fn count_of_system() -> usize {
    let has_some = |file: PathBuf| {
        let text = read_small_text(&file, MAX_FILE_BYTES);
        text.is_ok_and(|text| text.contains(BEGIN))
    };
    match openssl_probe::probe().cert_file.is_some_and(has_some) {
        true => 1,
        false => rustls_native_certs::load_native_certs().certs.len(),
    }
}

fn pem(path: &Path) -> Result<Vec<u8>, Unfit> {
    let remedy = "use a file with certificates in PEM format (--ca-file, AWS_CA_BUNDLE)";
    let unfit = |why: &str| {
        let what = format!("the certificates in {}: {why}", path.display());
        Unfit::new(what, remedy)
    };
    let text = read_small_text(path, MAX_FILE_BYTES).map_err(|error| unfit(&error.to_string()))?;
    if !text.contains(BEGIN) {
        return Err(unfit("the file has none"));
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a variable names is not added to, and Mozilla's can be read by the client.
    #[test]
    fn mozillas_are_for_systems_without_any() {
        let cases: [(bool, fn() -> usize); 3] = [(false, || 0), (true, || 0), (false, || 140)];
        let needs = cases.map(|(is_named, of_system)| needs_built_in(is_named, of_system));
        assert_eq!(needs, [true, false, false]);
        let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
        assert!(all.len() > 50, "{}", all.len());
        for der in all {
            assert!(Certificate::from_der(der).is_ok());
        }
    }
}
