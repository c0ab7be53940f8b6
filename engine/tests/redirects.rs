//! Tests of redirects: for every store, every status, every kind of target host and every kind of credential, what the
//! other server receives.
//!
//! Credentials are canaries. The other server records its requests; none may contain a credential, in a header or in
//! its URL, or reveal the origin. For stores that sign their requests, a redirect is an error with the name of the
//! host.

use crate::common::{object_settings, part_of, read_right, refused, settings_of, watch};
use foreread::source::Source;
use foreread::source::object::{Object, ObjectSettings, Prefix};
use foreread_testing::{HttpServer, ServedAnswer, ServedRequest, needs, rows, says};
use std::sync::{Arc, Mutex};

const CANARY: &str = "CANARY";
const SIZE: u64 = 100_000;

/// Access to S3, in which `{A}` is the host and port of the first server, as everywhere here.
const S3: &str = "AWS_ACCESS_KEY_ID=AKCANARY AWS_SECRET_ACCESS_KEY=sCANARY AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://{A}";

/// Whether a redirect to another host is followed, what is asked for, and the variables.
const ROWS: &str = "\
yes | http://userCANARY:pwCANARY@{A}/x |
yes | http://{A}/x?token=tCANARY&sig=sCANARY |
yes | http://{A}/x?X-Amz-Signature=sCANARY&X-Amz-Credential=cCANARY&X-Amz-Security-Token=tCANARY |
no | s3://bucket/key | {S3}
no | s3://bucket/key | {S3} AWS_SESSION_TOKEN=tokenCANARY
no | s3://bucket/key | AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://{A} AWS_EC2_METADATA_DISABLED=true AWS_SKIP_SIGNATURE=true
no | gs://bucket/key | GOOGLE_BEARER_TOKEN=bCANARY CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=http://{A}
no | az://container/key | AZURE_STORAGE_ACCOUNT=account AZURE_STORAGE_KEY=Q0FOQVJZ AZURE_STORAGE_ENDPOINT=http://{A}/account
no | az://container/key | AZURE_STORAGE_ACCOUNT=account AZURE_STORAGE_SAS_TOKEN=sv=2022-11-02&se=2099&sig=sCANARY AZURE_STORAGE_ENDPOINT=http://{A}/account
yes | hf://user/repo/file | HF_TOKEN=hf_CANARY HF_ENDPOINT=http://{A}
yes | hf://user/repo/file | HOME=/nonexistent HF_ENDPOINT=http://{A}";

/// Settings with these variables.
fn settings(variables: &str, at: &str) -> ObjectSettings {
    settings_of(&variables.replace("{S3}", S3).replace("{A}", at))
}

fn is_clean(what: &str, text: &str) {
    let lower = text.to_ascii_lowercase();
    let secret = [CANARY, "Q0FOQVJZ"].map(str::to_ascii_lowercase);
    let found = secret.iter().any(|secret| lower.contains(secret));
    assert!(!found, "{what}: {text}");
}

/// A server of the object.
fn serves() -> HttpServer {
    watch();
    HttpServer::start(|seen, _| Ok(part_of(seen, SIZE))).expect("a port")
}

/// A redirect.
fn moved(status: u16, location: &str) -> ServedAnswer {
    let mut answer = ServedAnswer::new(status, "");
    answer.set("location", location);
    answer
}

#[test]
fn no_other_server_gets_a_credential() {
    let to = Arc::new(Mutex::new((0_u16, String::new())));
    let asked = Arc::clone(&to);
    let first = HttpServer::start(move |_, _| {
        let (status, location) = asked.lock().expect("no panic").clone();
        Ok(moved(status, &location))
    });
    let first = first.expect("a port");
    let mut followed = 0;
    for [is_followed, name, variables] in rows(ROWS) {
        let is_followed = is_followed == "yes";
        for status in [301, 302, 303, 307, 308] {
            for host in ["127.0.0.1", "localhost"] {
                let other = serves();
                let place = format!("http://{host}:{}", other.address().port());
                *to.lock().expect("no panic") = (status, format!("{place}/moved"));
                let at = first.address().to_string();
                let settings = settings(variables, &at);
                let what = format!("{name} {variables} {status} {host}");
                let name = name.replace("{A}", &at);
                let opened = Object::open_with(name.as_str(), settings.clone());
                let folder = name.contains("://").then(|| {
                    let folder = name.replace("/key", "/").replace("/file", "/");
                    Prefix::open_with(folder.as_str(), settings).map(drop)
                });
                let errors = opened.as_ref().err().into_iter();
                let of_folder = folder.as_ref().and_then(|folder| folder.as_ref().err());
                for error in errors.chain(of_folder) {
                    is_clean(&what, &error.to_string());
                }
                let seen = other.seen();
                for request in &seen {
                    is_clean(&what, &request.target);
                    for (name, value) in &request.headers {
                        is_clean(&format!("{what}, {name}"), value);
                        let may = ["referer", "authorization", "cookie", "proxy-authorization"];
                        let is_of_account = name.starts_with("x-") || may.contains(&&**name);
                        assert!(!is_of_account, "{what}: {name}: {value}");
                    }
                }
                assert_eq!(!seen.is_empty(), is_followed, "{what}");
                if is_followed {
                    followed += seen.len();
                } else {
                    let error = refused(opened, &what).to_string();
                    says(&error, &[&format!("redirects to {place}")]);
                }
            }
        }
    }
    assert!(followed >= 50, "{followed}");
}

/// What is followed has the right bytes.
#[test]
fn a_plain_url_is_followed_with_its_range() {
    let other = serves();
    let location = format!("http://{}/moved?signed=1", other.address());
    let first = HttpServer::start(move |_, _| Ok(moved(302, &location))).expect("a port");
    let name = format!("http://u:{CANARY}@{}/x", first.address());
    let object = Object::open_with(name.as_str(), object_settings(Vec::new()));
    let object = object.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(object.size(), SIZE);
    read_right(&object, 70_000, 5000, 0);
    // The first server has the user, each time.
    let user = |seen: &ServedRequest| seen.header("authorization").is_some();
    assert!(first.seen().iter().all(user));
}

/// A bucket elsewhere is asked again, signed for its region, by the endpoint that was named.
#[test]
fn another_region_is_signed_again_on_the_same_host() {
    let other = serves();
    let location = format!("http://{}/moved", other.address());
    for (status, says) in [(301, true), (307, true), (308, true), (307, false)] {
        let location = location.clone();
        let first = HttpServer::start(move |seen, _| {
            let signed = seen.header("authorization").unwrap_or_default();
            if signed.contains("/eu-west-9/s3/") {
                return Ok(part_of(seen, SIZE));
            }
            if !says {
                let host = "https://bucket.s3.eu-west-9.amazonaws.com/key";
                return Ok(moved(status, host));
            }
            let mut answer = moved(status, &location);
            answer.set("x-amz-bucket-region", "eu-west-9");
            Ok(answer)
        });
        let first = first.expect("a port");
        let at = first.address().to_string();
        let opened = Object::open_with("s3://bucket/key", settings(S3, &at));
        let object = opened.unwrap_or_else(|error| panic!("{status}: {error}"));
        assert_eq!(object.size(), SIZE);
    }
    assert!(other.seen().is_empty());
}

/// A server that leads to itself, to nowhere, or to the service of this machine that gives credentials.
#[test]
fn a_redirect_that_no_request_may_follow_is_an_error() {
    watch();
    for [location, words] in rows(
        "/x | do not end
         | lead nowhere
         ftp://127.0.0.1/x | lead nowhere
         http://u:CANARY@127.0.0.1/x | lead nowhere
         http://169.254.169.254/latest/meta-data/ | to http://169.254.169.254
         http://[::ffff:a9fe:a9fe]/ | redirects to http://[::ffff:a9fe:a9fe]
         http://METADATA.google.internal/ | to http://metadata.google.internal",
    ) {
        let first = HttpServer::start(move |_, _| Ok(moved(307, location))).expect("a port");
        let name = format!("http://{}/x", first.address());
        let opened = Object::open_with(name.as_str(), object_settings(Vec::new()));
        let error = refused(opened, location).to_string();
        says(&error, &[words]);
        is_clean(location, &error);
        assert!(first.seen().len() < 10, "{location}");
    }
}

#[cfg(feature = "tls")]
mod of_tls {
    use super::*;
    use crate::common::tls::Certificates;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// Answers every request with a redirect, by TLS. Gives its port.
    fn redirector(certificates: &Certificates, location: String) -> u16 {
        let chain = CertificateDer::pem_file_iter(certificates.file("server-cert.pem"));
        let chain = chain.expect("a file").map(|one| one.expect("one"));
        let key = PrivateKeyDer::from_pem_file(certificates.file("server-key.pem"));
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(chain.collect(), key.expect("a key"));
        let config = Arc::new(config.expect("they fit"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, location) = (Arc::clone(&config), location.clone());
                std::thread::spawn(move || {
                    let tls = ServerConnection::new(config).expect("a connection");
                    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
                    let mut line = String::new();
                    while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                        line.clear();
                    }
                    let _ = write!(
                        stream.get_mut(),
                        "HTTP/1.1 307 x\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    );
                    let _ = stream.get_mut().flush();
                });
            }
        });
        port
    }

    /// From https to http no request goes, with a credential or without; another server of TLS gets none.
    #[test]
    fn no_request_leaves_tls() {
        needs!(let certificates = Certificates::new());
        let other = serves();
        let location = format!("http://{}/moved", other.address());
        let port = redirector(&certificates, location);
        let tls = |variables: &str| {
            let variables = variables.replace("http://{A}", "https://{A}");
            let mut settings = settings(&variables, &format!("localhost:{port}"));
            settings.ca_file = Some(certificates.file("ca-cert.pem").into());
            settings
        };
        let name = format!("https://u:{CANARY}@localhost:{port}/x?t={CANARY}");
        let error = refused(Object::open_with(name.as_str(), tls("")), "http").to_string();
        says(&error, &["from https to http"]);
        is_clean("https", &error);
        let error = refused(Object::open_with("s3://bucket/key", tls(S3)), "s3").to_string();
        says(&error, &["redirects to http://127.0.0.1"]);
        assert!(other.seen().is_empty());
    }
}
