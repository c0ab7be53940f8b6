//! Whose certificates the clients of stores trust.
//!
//! ```text
//!   the system's (SSL_CERT_FILE, SSL_CERT_DIR, /etc/ssl/certs)      always
//!   Mozilla's, those of the build                                   where the system has none and no variable names some
//!   --ca-file, AWS_CA_BUNDLE                                        beside these
//! ```
//! Example: a bare container of Debian has no package ca-certificates. reqwest makes no client there, not even one for `http://`; with
//! Mozilla's `https://` works too. Never: trusts Mozilla's where a variable names others.

use crate::source::object::refusal::{Unfit, line_of};
use foreread_os::open::read_small_text;
use object_store::ClientOptions;
use reqwest::ClientBuilder;
use std::path::Path;
use std::sync::LazyLock;

/// Has a client trust them, and those of `ca_file`.
///
/// # Errors
/// The file cannot be read.
pub fn trusted_by_web(
    builder: ClientBuilder,
    ca_file: Option<&Path>,
) -> Result<ClientBuilder, Unfit> {
    use reqwest::Certificate;
    let built_in = BUILT_IN
        .iter()
        .filter_map(|der| Certificate::from_der(der).ok());
    let named = ca_file.map_or(Ok(Vec::new()), |path| {
        Certificate::from_pem_bundle(&pem(path)?).map_err(unfit)
    })?;
    let all = built_in.chain(named);
    Ok(all.fold(builder, ClientBuilder::add_root_certificate))
}

/// The same for the clients of object_store.
///
/// # Errors
/// The file cannot be read.
pub fn trusted_by(options: ClientOptions, ca_file: Option<&Path>) -> Result<ClientOptions, Unfit> {
    use object_store::client::Certificate;
    let built_in = BUILT_IN
        .iter()
        .filter_map(|der| Certificate::from_der(der).ok());
    let named = ca_file.map_or(Ok(Vec::new()), |path| {
        Certificate::from_pem_bundle(&pem(path)?).map_err(unfit)
    })?;
    let all = built_in.chain(named);
    Ok(all.fold(options, ClientOptions::with_root_certificate))
}

/// Longest file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Mozilla's, where they are trusted. The system is looked at once.
static BUILT_IN: LazyLock<Vec<&'static [u8]>> = LazyLock::new(|| {
    let is_named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| std::env::var_os(name).is_some());
    let of_system = rustls_native_certs::load_native_certs().certs.len();
    if !needs_built_in(is_named.contains(&true), of_system) {
        return Vec::new();
    }
    tracing::info!(
        "this system has no certificates of authorities: Mozilla's of this build are trusted"
    );
    let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    all.map(|der| &**der).collect()
});

/// Certificates (DER) of the authorities that stores' clients trust beside the system's: Mozilla's of this build where the system has none and
/// neither SSL_CERT_FILE nor SSL_CERT_DIR is set, else nothing. For other clients of a program that shall trust the same.
#[must_use]
pub fn built_in() -> &'static [&'static [u8]] {
    &BUILT_IN
}

fn needs_built_in(is_named: bool, of_system: usize) -> bool {
    of_system == 0 && !is_named
}

/// The certificates of a file, as text.
///
/// # Errors
/// It cannot be read, or holds none.
fn pem(path: &Path) -> Result<Vec<u8>, Unfit> {
    let remedy = "name a file of certificates in PEM form (--ca-file, AWS_CA_BUNDLE)";
    let unfit = |why: &str| {
        let what = format!("the certificates in {}: {why}", path.display());
        Unfit::new(what, remedy)
    };
    let text = read_small_text(path, MAX_FILE_BYTES).map_err(|error| unfit(&error.to_string()))?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(unfit("there are none"));
    }
    Ok(text.into_bytes())
}

fn unfit(error: impl std::error::Error + 'static) -> Unfit {
    Unfit::new(line_of(&error), "check the file of certificates")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a variable names is not added to, and Mozilla's can be read by both clients.
    #[test]
    fn mozillas_are_for_systems_without_any() {
        let cases = [(false, 0), (true, 0), (false, 140)];
        let needs = cases.map(|(is_named, of_system)| needs_built_in(is_named, of_system));
        assert_eq!(needs, [true, false, false]);
        let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
        assert!(all.len() > 50, "{}", all.len());
        for der in all {
            assert!(reqwest::Certificate::from_der(der).is_ok());
            assert!(object_store::client::Certificate::from_der(der).is_ok());
        }
    }
}
