//! Tests each link of each store's credential chain against simulated services that answer like the real ones: which
//! credentials a request carries, when they are renewed, and the text of errors. Every secret is a canary.

use crate::common::watch;
use foreread::source::object::{Object, ObjectSettings};
use foreread::source::{Source, SourceOpenError};
use foreread_testing::{HttpServer, ServedAnswer, ServedRequest, says};
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CANARY: &str = "canary7d1c";
const SIZE: u64 = 4 << 20;

/// A request: its first line, its headers, and its body.
struct Request {
    line: String,
    seen: ServedRequest,
    body: String,
}

/// Answers by a function of a request; what that leaves is the object, for credentials that are valid.
struct Services {
    server: HttpServer,
    /// What `authorization` has to contain for the object.
    valid: Arc<Mutex<String>>,
}

impl Services {
    fn start(
        valid: &str,
        answer: impl Fn(&Request) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Services {
        Services::of(SIZE, valid, answer)
    }

    fn of(
        size: u64,
        valid: &str,
        answer: impl Fn(&Request) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Services {
        watch();
        let valid = Arc::new(Mutex::new(valid.to_string()));
        let own = Arc::clone(&valid);
        let server = HttpServer::start(move |seen, body| {
            let request = Request {
                line: format!("{} {} ", seen.method, seen.target),
                seen: seen.clone(),
                body: String::from_utf8_lossy(body).into_owned(),
            };
            Ok(match answer(&request) {
                Some((status, body)) => ServedAnswer::new(status, body),
                None => object(seen, size, &own.lock().expect("no panic")),
            })
        });
        let server = server.expect("a port");
        Services { server, valid }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    fn count(&self, path: &str) -> usize {
        let seen = self.server.seen();
        let targets = seen.iter().map(|seen| format!("{} ", seen.target));
        targets.filter(|target| target.contains(path)).count()
    }
}

/// Each byte is the low byte of its offset.
fn object(seen: &ServedRequest, size: u64, valid: &str) -> ServedAnswer {
    if !seen
        .header("authorization")
        .unwrap_or_default()
        .contains(valid)
    {
        return ServedAnswer::error(400, "ExpiredToken");
    }
    let range = seen.range().unwrap_or(0..1);
    let (from, end) = (range.start, range.end.min(size));
    let bytes: Vec<u8> = (from..end).map(|n| n as u8).collect();
    let mut answer = ServedAnswer::new(206, bytes);
    answer.set("content-range", &format!("bytes {from}-{}/{size}", end - 1));
    answer.set("etag", "\"e\"");
    answer.set("x-goog-generation", "1");
    answer.set("last-modified", "Fri, 02 Jan 2026 03:04:05 GMT");
    answer
}

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.seen.header(name)
}

fn settings(variables: &[(&str, &str)]) -> ObjectSettings {
    ObjectSettings {
        variables: variables
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        pause: Duration::from_millis(1),
        ..ObjectSettings::default()
    }
}

fn open(name: &str, settings: ObjectSettings) -> Result<Object, SourceOpenError> {
    let object = Object::open_with(name, settings);
    if let Err(error) = &object {
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error}");
    }
    object
}

fn keys(id: &str) -> String {
    format!(
        "{{\"AccessKeyId\":\"{id}\",\"SecretAccessKey\":\"{CANARY}\",\"Token\":\"{CANARY}\",\
         \"SessionToken\":\"{CANARY}\",\"Version\":1,\"Expiration\":\"2036-01-02T03:04:05Z\"}}"
    )
}

fn sts(id: &str) -> String {
    format!(
        "<R><Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{CANARY}</SecretAccessKey>\
         <SessionToken>{CANARY}</SessionToken><Expiration>2036-01-02T03:04:05Z</Expiration></Credentials></R>"
    )
}

/// The services that Amazon's chain asks; `ID` in an access key says which of them gave it.
fn amazon(request: &Request) -> Option<(u16, String)> {
    let line = &request.line;
    let signed_by = header(request, "authorization").unwrap_or_default();
    if line.contains("Action=AssumeRoleWithWebIdentity") {
        assert!(line.contains(&format!("WebIdentityToken={CANARY}")) && signed_by.is_empty());
        return Some((200, sts("IDWEB")));
    }
    if line.contains("Action=AssumeRole") {
        assert!(
            signed_by.contains("Credential=IDBASE/") && line.contains("ExternalId=x"),
            "{line}"
        );
        return Some((200, sts("IDROLE")));
    }
    if line.contains("/federation/credentials") {
        assert_eq!(header(request, "x-amz-sso_bearer_token"), Some(CANARY));
        let keys = format!(
            "{{\"roleCredentials\":{{\"accessKeyId\":\"IDSSO\",\"secretAccessKey\":\"{CANARY}\",\
             \"sessionToken\":\"{CANARY}\",\"expiration\":2082862845000}}}}"
        );
        return Some((200, keys));
    }
    if line.starts_with("POST /token ") {
        let asked: serde_json::Value = serde_json::from_str(&request.body).expect("JSON");
        assert_eq!(asked["grantType"], "refresh_token");
        let is_known = asked["refreshToken"] == format!("{CANARY}-first");
        let answer = format!(
            "{{\"accessToken\":\"{CANARY}\",\"expiresIn\":3600,\"refreshToken\":\"{CANARY}-second\"}}"
        );
        let refused = "{\"error\":\"invalid_grant\"}".to_string();
        return Some(if is_known {
            (200, answer)
        } else {
            (400, refused)
        });
    }
    if line.contains("/container") {
        assert_eq!(header(request, "authorization"), Some(CANARY));
        return Some((200, keys("IDCONTAINER")));
    }
    if line.starts_with("PUT /latest/api/token") {
        return Some((200, CANARY.to_string()));
    }
    if line.contains("/security-credentials/") {
        assert_eq!(header(request, "x-aws-ec2-metadata-token"), Some(CANARY));
        let is_role = line.contains("/security-credentials/reader ");
        return Some((
            200,
            if is_role {
                keys("IDMACHINE")
            } else {
                "reader\n".to_string()
            },
        ));
    }
    None
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// A home with profiles of each kind.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a folder");
    let script = write(
        home.path(),
        "give keys.sh",
        &format!("#!/bin/sh\necho '{}'\n", keys("IDPROCESS")),
    );
    // A line break in a key, which cannot be part of a header.
    let odd = "cat <<'E'\n{\"AccessKeyId\":\"i\",\"SecretAccessKey\":\"s\\u000a\"}\nE\n";
    let odd = write(home.path(), "odd.sh", odd);
    write(
        home.path(),
        ".aws/config",
        &format!(
            "[default]\nregion = eu-1\n[profile corp]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n\
             [profile old]\nsso_start_url = https://old\nsso_region = eu-1\nsso_account_id = 1\nsso_role_name = r\n\
             [profile nologin]\nsso_start_url = https://none\nsso_region = eu-1\nsso_account_id = 1\nsso_role_name = r\n\
             [profile ended]\nsso_session: e\nsso_account_id: 1\nsso_role_name: r\n\
             [sso-session s]\nsso_start_url = https://start\nsso_region = eu-1\n\
             [sso-session e]\n    sso_start_url = https://start\n    sso_region = eu-1\n\
             [profile login]\nlogin_session = arn:l\nregion = eu-1\n\
             [profile bylogin]\nrole_arn = arn:r\nsource_profile = login\n\
             [profile half]\naws_access_key_id = IDHALF\n\
             [profile role]\nrole_arn = arn:r\nsource_profile = base\nexternal_id = x\n\
             [profile circle]\nrole_arn = arn:r\nsource_profile = circle2\n\
             [profile circle2]\nrole_arn = arn:r\nsource_profile = circle\n\
             [profile mfa]\nrole_arn = arn:r\nsource_profile = base\nmfa_serial = m\n\
             [profile program]\ncredential_process = sh \"{script}\"\n\
             [profile odd]\ncredential_process = sh \"{odd}\"\n\
             [profile failing]\ncredential_process = sh -c 'echo {CANARY}; exit 3'\n"
        ),
    );
    let base = format!("[base]\naws_access_key_id = IDBASE\naws_secret_access_key = {CANARY}\n");
    write(home.path(), ".aws/credentials", &base);
    let token = |url: &str, at: &str| {
        format!("{{\"startUrl\":\"{url}\",\"accessToken\":\"{CANARY}\",\"expiresAt\":\"{at}\"}}")
    };
    // By the SHA-1 of "s" and of "https://old".
    let logins = [
        (S_LOGIN, token("https://start", "2036-01-02T03:04:05Z")),
        (OLD_LOGIN, token("https://old", "2020-01-02T03:04:05UTC")),
        // Another program's of the same start URL, which lasts longer.
        (
            "aws-toolkit",
            token("https://start", "2037-01-02T03:04:05Z").replace(CANARY, "other"),
        ),
        (E_LOGIN, ended_login()),
    ];
    for (name, login) in logins {
        write(home.path(), &format!(".aws/sso/cache/{name}.json"), &login);
    }
    home
}

/// Names of files of logins: the SHA-1 of "s", of "e" and of "https://old".
const S_LOGIN: &str = "a0f1490a20d0211c997b44bc357e1972deab8ae3";
const E_LOGIN: &str = "58e6b3a414a1e090dfc6029add0f3555ccba127f";
const OLD_LOGIN: &str = "3dbfcfb8178f8ce8f73712c57098fc9f2cb54d8c";

/// A login whose token has ended, and whose refresh token has not.
fn ended_login() -> String {
    format!(
        "{{\"startUrl\":\"https://start\",\"region\":\"eu-1\",\"accessToken\":\"old\",\"expiresAt\":\"2020-01-02T03:04:05Z\",\
         \"clientId\":\"c\",\"clientSecret\":\"{CANARY}\",\"registrationExpiresAt\":\"2036-01-02T03:04:05Z\",\
         \"refreshToken\":\"{CANARY}-first\"}}"
    )
}

#[test]
fn each_link_of_the_chain_of_s3_signs_requests() {
    let services = Services::start("Credential=ID", amazon);
    let (home, url) = (home(), services.url());
    let token = write(home.path(), "token", CANARY);
    let container = format!("{url}/container");
    let here = home.path().display().to_string();
    let common = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_ENDPOINT_URL_STS", &url),
        ("AWS_ENDPOINT_URL_SSO", &url),
        ("AWS_ENDPOINT_URL_SSO_OIDC", &url),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url),
        ("HOME", &here),
    ];
    let env = [
        ("AWS_ACCESS_KEY_ID", "IDENV"),
        ("AWS_SECRET_ACCESS_KEY", CANARY),
    ];
    let web = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.as_str()),
        ("AWS_ROLE_ARN", "arn:w"),
    ];
    let pod = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.as_str()),
    ];
    let all = [&env[..], &web[..], &pod[..]].concat();
    let profile = |name| vec![("AWS_PROFILE", name)];
    for (id, variables, link) in [
        ("IDENV", all.clone(), "AWS_ACCESS_KEY_ID"),
        ("IDWEB", [&web[..], &pod[..]].concat(), "web identity"),
        ("IDBASE", profile("base"), "profile base"),
        ("IDROLE", profile("role"), "role arn:r by profile base"),
        ("IDSSO", profile("corp"), "profile corp (SSO)"),
        ("IDSSO", profile("ended"), "profile ended (SSO)"),
        ("IDPROCESS", profile("program"), "profile program"),
        ("IDCONTAINER", pod.to_vec(), "role of the container"),
        ("IDMACHINE", Vec::new(), "role reader of this machine"),
    ] {
        *services.valid.lock().expect("no panic") = format!("Credential={id}/");
        let settings = settings(&[&common[..], &variables].concat());
        let object =
            open("s3://bucket/key", settings.clone()).unwrap_or_else(|e| panic!("{id}: {e}"));
        assert_eq!(object.size(), SIZE, "{id}");
        // Where it is refused, the error names it.
        *services.valid.lock().expect("no panic") = "nothing".to_string();
        drop(object);
        let error = open("s3://bucket/key", settings).err().expect("refused");
        assert!(error.to_string().contains("ExpiredToken"), "{error}");
        assert!(error.why.contains(link), "{error}");
    }
    // The renewed login is kept: its first refresh token is worth nothing now.
    let renewals = services.server.seen();
    let renewals = renewals.iter().filter(|seen| seen.target == "/token");
    assert_eq!(renewals.count(), 1);
    let login = home.path().join(format!(".aws/sso/cache/{E_LOGIN}.json"));
    let login: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(login).expect("there")).expect("JSON");
    assert_eq!(login["refreshToken"], format!("{CANARY}-second"));
    assert_eq!(
        (login["clientId"].as_str(), login["accessToken"].as_str()),
        (Some("c"), Some(CANARY))
    );
    // An option goes before the variables.
    *services.valid.lock().expect("no panic") = "Credential=IDBASE/".to_string();
    let settings = ObjectSettings {
        profile: Some("base".to_string()),
        ..settings(&[&common[..], &all].concat())
    };
    assert!(open("s3://bucket/key", settings).is_ok());
}

#[test]
fn a_link_that_fails_says_what_to_run() {
    let services = Services::start("nothing", |request| {
        let line = &request.line;
        let fails = ["Action=", "/container", "/token "]
            .iter()
            .any(|part| line.contains(part));
        fails.then(|| {
            (
                403,
                format!("<Error><Code>AccessDenied</Code><Message>{CANARY}</Message></Error>"),
            )
        })
    });
    let (home, url) = (home(), services.url());
    let here = home.path().display().to_string();
    let container = format!("{url}/container");
    for (variables, why, remedy) in [
        (
            vec![("AWS_PROFILE", "absent")],
            "there is no profile absent; the existing profiles are: base, bylogin, circle",
            "--profile",
        ),
        (
            vec![("AWS_PROFILE", "old")],
            "has expired",
            "aws sso login --profile old",
        ),
        (
            vec![("AWS_PROFILE", "nologin")],
            "there is no cached login",
            "aws sso login --profile nologin",
        ),
        (
            vec![("AWS_PROFILE", "ended")],
            "has expired, and cannot be renewed: the token service: it answered 403",
            "aws sso login --profile ended",
        ),
        (
            vec![("AWS_PROFILE", "login")],
            "profile login has login_session, but no supported",
            "aws configure export-credentials --profile login",
        ),
        (
            vec![("AWS_PROFILE", "bylogin")],
            "profile login has login_session",
            "aws configure export-credentials --profile login",
        ),
        (
            vec![("AWS_PROFILE", "half")],
            "profile half has aws_access_key_id",
            "credential_process",
        ),
        (vec![("AWS_PROFILE", "mfa")], "mfa_serial", "single sign-on"),
        (
            vec![("AWS_PROFILE", "circle")],
            "refers to itself",
            "~/.aws/config",
        ),
        (
            vec![("AWS_PROFILE", "odd")],
            "printed no credentials",
            "in a shell",
        ),
        (
            vec![("AWS_PROFILE", "failing")],
            "failed (exit status: 3)",
            "in a shell to see why",
        ),
        (
            vec![("AWS_PROFILE", "role")],
            "the token service answered 403 AccessDenied",
            "check that profile base may assume role",
        ),
        (
            vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container)],
            "it answered 403",
            "role of the task or pod",
        ),
        (
            vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.org/x")],
            "loopback",
            "check AWS_CONTAINER",
        ),
    ] {
        let common = [
            ("AWS_ENDPOINT_URL", url.as_str()),
            ("AWS_ENDPOINT_URL_STS", &url),
            ("AWS_ENDPOINT_URL_SSO_OIDC", &url),
            // A link that fails is not passed over to the role of the machine.
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url),
            ("HOME", &here),
        ];
        let error = open(
            "s3://bucket/key",
            settings(&[&common[..], &variables].concat()),
        );
        let error = error.err().expect("refused");
        assert!(
            error.why.contains(why) && error.remedy.contains(remedy),
            "{error}"
        );
    }
}

/// A default profile of `aws login` is not passed over to the role of the machine either.
#[test]
fn the_default_profile_is_not_an_exception() {
    let services = Services::start("", amazon);
    let (home, url) = (tempfile::tempdir().expect("a folder"), services.url());
    write(
        home.path(),
        ".aws/config",
        "[default]\nlogin_session = arn:l\n",
    );
    let here = home.path().display().to_string();
    let variables = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url),
        ("HOME", &here),
    ];
    let error = open("s3://bucket/key", settings(&variables)).err();
    let error = error.expect("refused");
    assert!(
        error.why.contains("profile default has login_session"),
        "{error}"
    );
    assert_eq!(services.count("/latest/"), 0);
}

/// A container whose packets of IMDSv2 go one hop: the token is asked for, and never comes.
#[test]
fn a_silent_metadata_service_is_named() {
    let quiet = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = format!("http://{}", quiet.local_addr().expect("bound"));
    let services = Services::start("Credential=", |_| None);
    let url = services.url();
    let variables = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &at),
    ];
    let error = open("s3://bucket/key", settings(&variables))
        .err()
        .expect("refused");
    for words in [
        "the metadata service of this machine",
        "no answer within 1s",
        "hop limit of 2",
    ] {
        assert!(error.why.contains(words), "{error}");
    }
    let without = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let error = open("s3://bucket/key", settings(&without))
        .err()
        .expect("refused");
    assert!(!error.why.contains("metadata"), "{error}");
}

/// One link of each chain whose credentials end: the name of an object, the variables, and what the link's service is asked by.
const ENDING: [(&str, [&str; 3], &str); 3] = [
    (
        "s3://bucket/key",
        ["AWS_ENDPOINT_URL", "AWS_EC2_METADATA_SERVICE_ENDPOINT", ""],
        "/security-credentials/reader ",
    ),
    (
        "gs://bucket/key",
        [
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE",
            "",
            "GCE_METADATA_HOST",
        ],
        "/computeMetadata/",
    ),
    (
        "az://box/key",
        [
            "AZURE_STORAGE_ENDPOINT",
            "AZURE_POD_IDENTITY_AUTHORITY_HOST",
            "",
        ],
        "/oauth2/token",
    ),
];

fn ending_settings(services: &Services, [store, url, host]: [&str; 3]) -> ObjectSettings {
    let own = services.url();
    let address = own.trim_start_matches("http://");
    let variables = [
        (store, own.as_str()),
        (url, &own),
        (host, address),
        ("AZURE_STORAGE_ACCOUNT", "acc"),
    ];
    settings(&variables)
}

/// The credentials that the service of a link gives now: their number is in each.
fn ending(request: &Request, number: u64) -> Option<(u16, String)> {
    if request.line.contains("/security-credentials/reader ") {
        return Some((200, keys(&format!("ID{number}"))));
    }
    if request.line.contains("/computeMetadata/") || request.line.contains("/oauth2/token") {
        let token = format!("TOKEN{CANARY}ID{number}/");
        return Some((
            200,
            format!("{{\"access_token\":\"{token}\",\"expires_in\":3600}}"),
        ));
    }
    amazon(request)
}

/// All of an object in order by each of four threads, a quarter each.
fn read_in_threads(object: &Object, record: u64) {
    let quarter = object.size() / 4;
    std::thread::scope(|scope| {
        for reader in 0..4 {
            scope.spawn(move || {
                let mut buf = vec![0; record as usize];
                for at in (reader * quarter..(reader + 1) * quarter).step_by(buf.len()) {
                    let read = object.read_at(&mut [IoSliceMut::new(&mut buf)], at);
                    let read = read.unwrap_or_else(|error| panic!("{at}: {error}"));
                    let is_right = buf.iter().zip(at..).all(|(byte, at)| *byte == at as u8);
                    assert!(read == buf.len() && is_right, "{at}");
                }
            });
        }
    });
}

/// A machine that slept, or a clock that was set: what was valid is refused in the middle of 64 MiB. All readers go on with the next
/// credentials, which are asked for once.
#[test]
fn credentials_that_expire_while_it_reads_fail_no_read() {
    for (name, variables, service) in ENDING {
        let (asked, record) = (AtomicU64::new(0), 64 << 10);
        let size = 64 << 20;
        let services = Services::of(size, "", move |request| {
            // Half of it has been asked for.
            let is_second = asked.load(Ordering::Relaxed) > size / record / 2;
            let number = 1 + u64::from(is_second);
            ending(request, number).or_else(|| {
                asked.fetch_add(1, Ordering::Relaxed);
                let authorization = header(request, "authorization").unwrap_or_default();
                let is_valid = authorization.contains(&format!("ID{number}/"));
                let expired = "<Error><Code>ExpiredToken</Code></Error>".to_string();
                (!is_valid).then_some((400, expired))
            })
        });
        let object = open(name, ending_settings(&services, variables)).expect("opens");
        read_in_threads(&object, record);
        let given = services.count(service);
        assert_eq!(given, 2, "{name}: one at the start, one renewal");
        assert_eq!(object.check(), Ok(size));
    }
}

#[test]
fn each_link_of_the_chain_of_google_is_a_token() {
    let token = format!("{{\"access_token\":\"TOKEN{CANARY}\",\"expires_in\":3600}}");
    let services = Services::start(&format!("Bearer TOKEN{CANARY}"), move |request| {
        let line = &request.line;
        if line.contains("/computeMetadata/") {
            assert_eq!(header(request, "metadata-flavor"), Some("Google"));
            return Some((200, token.clone()));
        }
        if line.contains("/token") {
            let is_known = request.body.contains("grant_type=refresh_token")
                || request.body.contains(&format!("subject_token={CANARY}"));
            return Some(if is_known {
                (200, token.clone())
            } else {
                (400, "{\"error\":\"bad\"}".to_string())
            });
        }
        if line.contains("/impersonate") {
            let answer = format!(
                "{{\"accessToken\":\"TOKEN{CANARY}\",\"expireTime\":\"2036-01-02T03:04:05Z\"}}"
            );
            return Some((200, answer));
        }
        None
    });
    let (home, url) = (tempfile::tempdir().expect("a folder"), services.url());
    let subject = write(home.path(), "subject", CANARY);
    let user = format!(
        "{{\"type\":\"authorized_user\",\"client_id\":\"i\",\"client_secret\":\"{CANARY}\",\
         \"refresh_token\":\"{CANARY}\",\"token_uri\":\"{url}/token\"}}"
    );
    let external = format!(
        "{{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":\"t\",\
         \"token_url\":\"{url}/token\",\"service_account_impersonation_url\":\"{url}/impersonate\",\
         \"credential_source\":{{\"file\":\"{subject}\"}}}}"
    );
    let user_file = write(home.path(), "user.json", &user);
    write(
        home.path(),
        ".config/gcloud/application_default_credentials.json",
        &user,
    );
    let external = write(home.path(), "external.json", &external);
    let bad = write(
        home.path(),
        "bad.json",
        &user.replace("authorized_user", "other"),
    );
    let (here, host) = (
        home.path().display().to_string(),
        services.server.address().to_string(),
    );
    for (variable, link) in [
        (
            ("GOOGLE_APPLICATION_CREDENTIALS", user_file.as_str()),
            "GOOGLE_APPLICATION_CREDENTIALS (a user)",
        ),
        (
            ("GOOGLE_APPLICATION_CREDENTIALS", &external),
            "workload identity",
        ),
        (("HOME", &here), "the login of gcloud"),
        (
            ("GCE_METADATA_HOST", &host),
            "service account of this machine",
        ),
    ] {
        *services.valid.lock().expect("no panic") = format!("Bearer TOKEN{CANARY}");
        let settings = settings(&[("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", &url), variable]);
        let object =
            open("gs://bucket/key", settings.clone()).unwrap_or_else(|e| panic!("{link}: {e}"));
        assert_eq!(object.size(), SIZE, "{link}");
        says(&object.describe(), &["generation"]);
        drop(object);
        *services.valid.lock().expect("no panic") = "nothing".to_string();
        let error = open("gs://bucket/key", settings).err().expect("refused");
        assert!(
            error.why.contains("ExpiredToken") && error.why.contains(link),
            "{error}"
        );
    }
    let variables = [
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", url.as_str()),
        ("GOOGLE_APPLICATION_CREDENTIALS", &bad),
    ];
    let error = open("gs://bucket/key", settings(&variables))
        .err()
        .expect("refused");
    assert!(
        error
            .remedy
            .contains("gcloud auth application-default login"),
        "{error}"
    );
}

#[test]
fn each_link_of_the_chain_of_azure_is_used() {
    let services = Services::start("", move |request| {
        let line = &request.line;
        if line.contains("/oauth2/v2.0/token") || line.contains("/identity") {
            let is_known = request.body.contains(CANARY)
                || header(request, "x-identity-header") == Some(CANARY)
                || header(request, "metadata") == Some("true");
            let token = format!("{{\"access_token\":\"TOKEN{CANARY}\",\"expires_in\":\"3600\"}}");
            return Some(if is_known {
                (200, token)
            } else {
                (401, "{\"error\":\"bad\"}".to_string())
            });
        }
        None
    });
    let (home, url) = (tempfile::tempdir().expect("a folder"), services.url());
    let federated = write(home.path(), "federated", CANARY);
    let identity = format!("{url}/identity");
    let connection = format!("AccountName=acc;AccountKey=Y2FuYXJ5;BlobEndpoint={url}");
    let application = [
        ("AZURE_TENANT_ID", "t"),
        ("AZURE_CLIENT_ID", "c"),
        ("AZURE_AUTHORITY_HOST", url.as_str()),
    ];
    let with = |more: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        let all = application.iter().chain(more);
        all.map(|(name, value)| (*name, value.to_string()))
            .collect()
    };
    let plain = |more: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        more.iter()
            .map(|(name, value)| (*name, value.to_string()))
            .collect()
    };
    let bearer = format!("Bearer TOKEN{CANARY}");
    for (variables, authorization, link) in [
        (
            plain(&[("AZURE_STORAGE_KEY", "Y2FuYXJ5")]),
            "SharedKey acc:",
            "AZURE_STORAGE_KEY",
        ),
        (
            plain(&[("AZURE_STORAGE_CONNECTION_STRING", &connection)]),
            "SharedKey acc:",
            "CONNECTION_STRING",
        ),
        (
            plain(&[("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=canary7d1c")]),
            "",
            "AZURE_STORAGE_SAS_TOKEN",
        ),
        (
            with(&[("AZURE_CLIENT_SECRET", CANARY)]),
            &bearer,
            "AZURE_CLIENT_SECRET",
        ),
        (
            with(&[("AZURE_FEDERATED_TOKEN_FILE", &federated)]),
            &bearer,
            "federated token",
        ),
        (
            plain(&[
                ("IDENTITY_ENDPOINT", &identity),
                ("IDENTITY_HEADER", CANARY),
            ]),
            &bearer,
            "identity of the App Service application",
        ),
        (
            plain(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &url)]),
            &bearer,
            "identity of this machine",
        ),
    ] {
        *services.valid.lock().expect("no panic") = authorization.to_string();
        let mut all = vec![
            ("AZURE_STORAGE_ENDPOINT", url.as_str()),
            ("AZURE_STORAGE_ACCOUNT", "acc"),
        ];
        all.extend(
            variables
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        let settings = settings(&all);
        let object =
            open("az://box/key", settings.clone()).unwrap_or_else(|e| panic!("{link}: {e}"));
        assert_eq!(object.size(), SIZE, "{link}");
        drop(object);
        *services.valid.lock().expect("no panic") = "nothing".to_string();
        let error = open("az://box/key", settings).err().expect("refused");
        assert!(error.why.contains(link), "{error}");
    }
}

/// A public blob of any account is read without a token; a private one is asked for again with it, and one that is not there is not.
#[test]
fn an_azure_url_is_first_requested_without_a_token() {
    for (refused, tokens) in [
        (None, 0),
        (Some((404, "ResourceNotFound")), 1),
        (Some((409, "PublicAccessNotPermitted")), 1),
        (Some((401, "NoAuthenticationInformation")), 1),
        (Some((403, "AuthorizationFailure")), 1),
        (Some((404, "BlobNotFound")), 0),
    ] {
        let services = Services::start("", move |request| {
            let is_signed = header(request, "authorization").is_some();
            let refused = refused.filter(|_| !is_signed);
            ending(request, 1).or_else(|| {
                let (status, code) = refused?;
                Some((status, format!("<Error><Code>{code}</Code></Error>")))
            })
        });
        let settings = ending_settings(&services, ENDING[2].1);
        let object = open(
            "https://acc.blob.core.windows.net/box/key",
            settings.clone(),
        );
        let is_absent = refused.is_some_and(|(_, code)| code == "BlobNotFound");
        assert_eq!(object.is_ok(), !is_absent, "{refused:?}");
        assert_eq!(services.count("/oauth2/token"), tokens, "{refused:?}");
        // A key of that very account goes with the first request.
        let mut keyed = settings;
        let key = ("AZURE_STORAGE_KEY".to_string(), "Y2FuYXJ5".to_string());
        keyed.variables.push(key);
        let before = services.count("/box/key");
        assert!(open("https://acc.blob.core.windows.net/box/key", keyed).is_ok());
        assert_eq!(services.count("/box/key") - before, 1, "{refused:?}");
    }
}
