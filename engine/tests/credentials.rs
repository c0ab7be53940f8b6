//! Tests each link of each store's credential chain against simulated services that answer like the real ones: which
//! credentials a request carries, when they are renewed, and the text of errors. Every secret is a canary.

use crate::common::{in_threads, part_of, read_right, refused, settings_of as settings, watch};
use foreread::source::object::{Object, ObjectSettings};
use foreread::source::{Source, SourceOpenError};
use foreread_testing::{HttpServer, ServedAnswer, ServedRequest, rows, says};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

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
            let authorization = header(&request, "authorization").unwrap_or_default();
            let is_valid = authorization.contains(&*own.lock().expect("no panic"));
            Ok(match answer(&request) {
                Some((status, body)) => ServedAnswer::new(status, body),
                None if is_valid => part_of(seen, size),
                None => ServedAnswer::error(400, "ExpiredToken"),
            })
        });
        let server = server.expect("a port");
        Services { server, valid }
    }

    /// From now on this is what `authorization` has to contain.
    fn accept(&self, valid: &str) {
        *self.valid.lock().expect("no panic") = valid.to_string();
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

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.seen.header(name)
}

fn open(name: &str, settings: ObjectSettings) -> Result<Object, SourceOpenError> {
    let object = Object::open_with(name, settings);
    if let Err(error) = &object {
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error}");
    }
    object
}

fn keys(id: &str) -> String {
    json!({
        "AccessKeyId": id, "SecretAccessKey": CANARY, "Token": CANARY, "SessionToken": CANARY,
        "Version": 1, "Expiration": "2036-01-02T03:04:05Z",
    })
    .to_string()
}

/// The services that Amazon's chain asks; `ID` in an access key says which of them gave it.
fn amazon(request: &Request) -> Option<(u16, String)> {
    let line = &request.line;
    let signed_by = header(request, "authorization").unwrap_or_default();
    let sts = |id: &str| {
        format!(
            "<R><Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{CANARY}</SecretAccessKey>\
             <SessionToken>{CANARY}</SessionToken><Expiration>2036-01-02T03:04:05Z</Expiration></Credentials></R>"
        )
    };
    let given = if line.contains("Action=AssumeRoleWithWebIdentity") {
        assert!(line.contains(&format!("WebIdentityToken={CANARY}")) && signed_by.is_empty());
        sts("IDWEB")
    } else if line.contains("Action=AssumeRole") {
        assert!(signed_by.contains("Credential=IDBASE/"), "{line}");
        assert!(line.contains("ExternalId=x"), "{line}");
        sts("IDROLE")
    } else if line.contains("/federation/credentials") {
        assert_eq!(header(request, "x-amz-sso_bearer_token"), Some(CANARY));
        let keys = json!({
            "accessKeyId": "IDSSO", "secretAccessKey": CANARY, "sessionToken": CANARY,
            "expiration": 2_082_862_845_000_u64,
        });
        json!({ "roleCredentials": keys }).to_string()
    } else if line.starts_with("POST /token ") {
        let asked: serde_json::Value = serde_json::from_str(&request.body).expect("JSON");
        assert_eq!(asked["grantType"], "refresh_token");
        if asked["refreshToken"] != format!("{CANARY}-first") {
            return Some((400, "{\"error\":\"invalid_grant\"}".to_string()));
        }
        let next = format!("{CANARY}-second");
        json!({ "accessToken": CANARY, "expiresIn": 3600, "refreshToken": next }).to_string()
    } else if line.contains("/container") {
        assert_eq!(header(request, "authorization"), Some(CANARY));
        keys("IDCONTAINER")
    } else if line.starts_with("PUT /latest/api/token") {
        CANARY.to_string()
    } else if line.contains("/security-credentials/") {
        assert_eq!(header(request, "x-aws-ec2-metadata-token"), Some(CANARY));
        match line.contains("/security-credentials/reader ") {
            true => keys("IDMACHINE"),
            false => "reader\n".to_string(),
        }
    } else {
        return None;
    };
    Some((200, given))
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
    let script = format!("#!/bin/sh\necho '{}'\n", keys("IDPROCESS"));
    let script = write(home.path(), "give keys.sh", &script);
    // A line break in a key, which cannot be part of a header.
    let odd = "cat <<'E'\n{\"AccessKeyId\":\"i\",\"SecretAccessKey\":\"s\\u000a\"}\nE\n";
    let odd = write(home.path(), "odd.sh", odd);
    let sso = "sso_account_id = 1\nsso_role_name = r\n";
    let config = format!(
        "[default]\nregion = eu-1\n[profile corp]\nsso_session = s\n{sso}\
         [profile old]\nsso_start_url = https://old\nsso_region = eu-1\n{sso}\
         [profile nologin]\nsso_start_url = https://none\nsso_region = eu-1\n{sso}\
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
    );
    write(home.path(), ".aws/config", &config);
    let base = format!("[base]\naws_access_key_id = IDBASE\naws_secret_access_key = {CANARY}\n");
    write(home.path(), ".aws/credentials", &base);
    let token = |url: &str, at: &str, token: &str| {
        json!({ "startUrl": url, "accessToken": token, "expiresAt": at }).to_string()
    };
    let logins = [
        (
            S_LOGIN,
            token("https://start", "2036-01-02T03:04:05Z", CANARY),
        ),
        (
            OLD_LOGIN,
            token("https://old", "2020-01-02T03:04:05UTC", CANARY),
        ),
        // Another program's of the same start URL, which lasts longer.
        (
            "aws-toolkit",
            token("https://start", "2037-01-02T03:04:05Z", "other"),
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
    json!({
        "startUrl": "https://start", "region": "eu-1", "accessToken": "old",
        "expiresAt": "2020-01-02T03:04:05Z", "clientId": "c", "clientSecret": CANARY,
        "registrationExpiresAt": "2036-01-02T03:04:05Z", "refreshToken": format!("{CANARY}-first"),
    })
    .to_string()
}

#[test]
fn each_link_of_the_chain_of_s3_signs_requests() {
    let services = Services::start("Credential=ID", amazon);
    let (home, common) = (home(), of_amazon(&services));
    let common = format!("{common} HOME={}", home.path().display());
    let token = write(home.path(), "token", CANARY);
    let env = format!("AWS_ACCESS_KEY_ID=IDENV AWS_SECRET_ACCESS_KEY={CANARY}");
    let web = format!("AWS_WEB_IDENTITY_TOKEN_FILE={token} AWS_ROLE_ARN=arn:w");
    let pod =
        "AWS_CONTAINER_CREDENTIALS_FULL_URI={A}/container AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
    let pod = format!("{}={token}", pod.replace("{A}", &services.url()));
    let table = format!(
        "{env} {web} {pod} | Credential=IDENV/ | AWS_ACCESS_KEY_ID
         {web} {pod} | Credential=IDWEB/ | web identity
         AWS_PROFILE=base | Credential=IDBASE/ | profile base
         AWS_PROFILE=role | Credential=IDROLE/ | role arn:r by profile base
         AWS_PROFILE=corp | Credential=IDSSO/ | profile corp (SSO)
         AWS_PROFILE=ended | Credential=IDSSO/ | profile ended (SSO)
         AWS_PROFILE=program | Credential=IDPROCESS/ | profile program
         {pod} | Credential=IDCONTAINER/ | role of the container
         | Credential=IDMACHINE/ | role reader of this machine"
    );
    each_is_used(&services, "s3://bucket/key", &common, &table);
    // The renewed login is kept: its first refresh token is worth nothing now.
    let seen = services.server.seen();
    let renewals = seen.iter().filter(|seen| seen.target == "/token");
    assert_eq!(renewals.count(), 1);
    let login = home.path().join(format!(".aws/sso/cache/{E_LOGIN}.json"));
    let login = std::fs::read_to_string(login).expect("there");
    let login: serde_json::Value = serde_json::from_str(&login).expect("JSON");
    assert_eq!(login["refreshToken"], format!("{CANARY}-second"));
    let kept = (&login["clientId"], &login["accessToken"]);
    assert_eq!(kept, (&"c".into(), &CANARY.into()));
    // An option goes before the variables.
    services.accept("Credential=IDBASE/");
    let settings = ObjectSettings {
        profile: Some("base".to_string()),
        ..settings(&format!("{common} {env} {web} {pod}"))
    };
    assert!(open("s3://bucket/key", settings).is_ok());
}

/// The variables that lead Amazon's chain to the services of a test.
fn of_amazon(services: &Services) -> String {
    let url = services.url();
    let services = ["", "_STS", "_SSO", "_SSO_OIDC"];
    let all = services.map(|service| format!("AWS_ENDPOINT_URL{service}={url}"));
    let all = all.join(" ");
    format!("{all} AWS_EC2_METADATA_SERVICE_ENDPOINT={url}")
}

/// A row: variables, the `authorization` that they lead to, and the name of the link, which an error has if that is refused.
fn each_is_used(services: &Services, name: &str, common: &str, table: &str) {
    for [variables, valid, link] in rows(table) {
        let settings = settings(&format!("{common} {variables}"));
        services.accept(valid);
        let object = open(name, settings.clone()).unwrap_or_else(|e| panic!("{link}: {e}"));
        assert_eq!(object.size(), SIZE, "{link}");
        drop(object);
        services.accept("nothing");
        let why = refused(open(name, settings), link).why;
        says(&why, &["ExpiredToken", link]);
    }
}

/// Profiles that give no credentials, why, and what helps.
const FAILING_PROFILES: &str = "\
absent | there is no profile absent; the existing profiles are: base, bylogin, circle | --profile
old | has expired | aws sso login --profile old
nologin | there is no cached login | aws sso login --profile nologin
ended | has expired, and cannot be renewed: the token service: it answered 403 | aws sso login --profile ended
login | profile login has login_session, but no supported | aws configure export-credentials --profile login
bylogin | profile login has login_session | aws configure export-credentials --profile login
half | profile half has aws_access_key_id | credential_process
mfa | mfa_serial | single sign-on
circle | refers to itself | ~/.aws/config
odd | printed no credentials | in a shell
failing | failed (exit status: 3) | in a shell to see why
role | the token service answered 403 AccessDenied | check that profile base may assume role";

#[test]
fn a_link_that_fails_says_what_to_run() {
    let services = Services::start("nothing", |request| {
        let fails = ["Action=", "/container", "/token "];
        let fails = fails.iter().any(|part| request.line.contains(part));
        let text = format!("<Error><Code>AccessDenied</Code><Message>{CANARY}</Message></Error>");
        fails.then_some((403, text))
    });
    let (home, common) = (home(), of_amazon(&services));
    let common = format!("{common} HOME={}", home.path().display());
    let fails = |variable: &str, why: &str, remedy: &str| {
        let opened = open("s3://bucket/key", settings(&format!("{common} {variable}")));
        let error = refused(opened, variable);
        says(&error.why, &[why]);
        says(&error.remedy, &[remedy]);
    };
    for [profile, why, remedy] in rows(FAILING_PROFILES) {
        fails(&format!("AWS_PROFILE={profile}"), why, remedy);
    }
    let at = |url: &str| format!("AWS_CONTAINER_CREDENTIALS_FULL_URI={url}");
    let container = at(&format!("{}/container", services.url()));
    fails(&container, "it answered 403", "role of the task or pod");
    let elsewhere = at("http://example.org/x");
    fails(&elsewhere, "loopback", "check AWS_CONTAINER");
    let config = "[default]\nlogin_session = arn:l\n";
    write(home.path(), ".aws/config", config);
    fails("", "profile default has login_session", "");
    // None of them is passed over to the role of the machine.
    assert_eq!(services.count("/latest/"), 0);
}

/// A container whose packets of IMDSv2 go one hop: the token is asked for, and never comes.
#[test]
fn a_silent_metadata_service_is_named() {
    let quiet = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = format!("http://{}", quiet.local_addr().expect("bound"));
    let services = Services::start("Credential=", |_| None);
    let why_of = |variable: &str| {
        let variables = format!("AWS_ENDPOINT_URL={} {variable}", services.url());
        refused(open("s3://bucket/key", settings(&variables)), variable).why
    };
    let why = why_of(&format!("AWS_EC2_METADATA_SERVICE_ENDPOINT={at}"));
    let remedy = "hop limit of 2";
    says(&why, &["the metadata service of this machine", remedy]);
    says(&why, &["no answer within 1s"]);
    let why = why_of("AWS_EC2_METADATA_DISABLED=true");
    assert!(!why.contains("metadata"), "{why}");
}

/// One link of each chain whose credentials end: the name of an object, the variables, and what the link's service is asked by.
const ENDING: [[&str; 3]; 3] = [
    [
        "s3://bucket/key",
        "AWS_ENDPOINT_URL=http://{A} AWS_EC2_METADATA_SERVICE_ENDPOINT=http://{A}",
        "/security-credentials/reader ",
    ],
    [
        "gs://bucket/key",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=http://{A} GCE_METADATA_HOST={A}",
        "/computeMetadata/",
    ],
    [
        "az://box/key",
        "AZURE_STORAGE_ACCOUNT=acc AZURE_STORAGE_ENDPOINT=http://{A} AZURE_POD_IDENTITY_AUTHORITY_HOST=http://{A}",
        "/oauth2/token",
    ],
];

fn ending_settings(services: &Services, variables: &str) -> ObjectSettings {
    settings(&variables.replace("{A}", &services.server.address().to_string()))
}

/// An answer with a token.
fn token(token: &str) -> String {
    json!({ "access_token": format!("TOKEN{token}"), "expires_in": 3600 }).to_string()
}

/// A token for a credential that the service knows, or this status.
fn token_if(is_known: bool, status: u16) -> (u16, String) {
    match is_known {
        true => (200, token(CANARY)),
        false => (status, "{\"error\":\"bad\"}".to_string()),
    }
}

/// The credentials that the service of a link gives now: their number is in each.
fn ending(request: &Request, number: u64) -> Option<(u16, String)> {
    if request.line.contains("/security-credentials/reader ") {
        return Some((200, keys(&format!("ID{number}"))));
    }
    if request.line.contains("/computeMetadata/") || request.line.contains("/oauth2/token") {
        return Some((200, token(&format!("{CANARY}ID{number}/"))));
    }
    amazon(request)
}

/// All of an object in order by each of four threads, a quarter each.
fn read_in_threads(object: &Object, record: u64) {
    let quarter = object.size() / 4;
    in_threads(4, |reader| {
        for at in (reader * quarter..(reader + 1) * quarter).step_by(record as usize) {
            read_right(object, at, record as usize, 0);
        }
    });
}

/// A machine that slept, or a clock that was set: what was valid is refused in the middle of 64 MiB. All readers go on with the next
/// credentials, which are asked for once.
#[test]
fn credentials_that_expire_while_it_reads_fail_no_read() {
    for [name, variables, service] in ENDING {
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
    let services = Services::start(&format!("Bearer TOKEN{CANARY}"), move |request| {
        let line = &request.line;
        if line.contains("/computeMetadata/") {
            assert_eq!(header(request, "metadata-flavor"), Some("Google"));
            return Some((200, token(CANARY)));
        }
        if line.contains("/token") {
            let is_known = request.body.contains("grant_type=refresh_token")
                || request.body.contains(&format!("subject_token={CANARY}"));
            return Some(token_if(is_known, 400));
        }
        let answer = json!({
            "accessToken": format!("TOKEN{CANARY}"), "expireTime": "2036-01-02T03:04:05Z",
        });
        line.contains("/impersonate")
            .then(|| (200, answer.to_string()))
    });
    let (home, url) = (tempfile::tempdir().expect("a folder"), services.url());
    let subject = write(home.path(), "subject", CANARY);
    let user = json!({
        "type": "authorized_user", "client_id": "i", "client_secret": CANARY,
        "refresh_token": CANARY, "token_uri": format!("{url}/token"),
    });
    let user = user.to_string();
    let external = json!({
        "type": "external_account", "audience": "a", "subject_token_type": "t",
        "token_url": format!("{url}/token"), "credential_source": { "file": subject },
        "service_account_impersonation_url": format!("{url}/impersonate"),
    });
    let own = ".config/gcloud/application_default_credentials.json";
    write(home.path(), own, &user);
    let bad = user.replace("authorized_user", "other");
    let [user_file, external, bad] = [
        ("user.json", user),
        ("external.json", external.to_string()),
        ("bad.json", bad),
    ]
    .map(|(name, text)| write(home.path(), name, &text));
    let common = format!("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE={url}");
    let valid = format!("Bearer TOKEN{CANARY}");
    let table = format!(
        "GOOGLE_APPLICATION_CREDENTIALS={user_file} | {valid} | GOOGLE_APPLICATION_CREDENTIALS (a user)
         GOOGLE_APPLICATION_CREDENTIALS={external} | {valid} | workload identity
         HOME={} | {valid} | the login of gcloud
         GCE_METADATA_HOST={} | {valid} | service account of this machine",
        home.path().display(),
        services.server.address()
    );
    each_is_used(&services, "gs://bucket/key", &common, &table);
    let bad = settings(&format!("{common} GOOGLE_APPLICATION_CREDENTIALS={bad}"));
    let error = refused(open("gs://bucket/key", bad), "bad.json");
    says(&error.remedy, &["gcloud auth application-default login"]);
}

#[test]
fn each_link_of_the_chain_of_azure_is_used() {
    let services = Services::start("", move |request| {
        let line = &request.line;
        let is_asked = line.contains("/oauth2/v2.0/token") || line.contains("/identity");
        let is_known = request.body.contains(CANARY)
            || header(request, "x-identity-header") == Some(CANARY)
            || header(request, "metadata") == Some("true");
        // Azure writes the number as a text.
        let (status, text) = token_if(is_known, 401);
        is_asked.then(|| (status, text.replace("3600", "\"3600\"")))
    });
    let (home, url) = (tempfile::tempdir().expect("a folder"), services.url());
    let federated = write(home.path(), "federated", CANARY);
    let application = format!("AZURE_TENANT_ID=t AZURE_CLIENT_ID=c AZURE_AUTHORITY_HOST={url}");
    let connection = format!("AccountName=acc;AccountKey=Y2FuYXJ5;BlobEndpoint={url}");
    let bearer = format!("Bearer TOKEN{CANARY}");
    let table = format!(
        "AZURE_STORAGE_KEY=Y2FuYXJ5 | SharedKey acc: | AZURE_STORAGE_KEY
         AZURE_STORAGE_CONNECTION_STRING={connection} | SharedKey acc: | CONNECTION_STRING
         AZURE_STORAGE_SAS_TOKEN=sv=1&sig={CANARY} | | AZURE_STORAGE_SAS_TOKEN
         {application} AZURE_CLIENT_SECRET={CANARY} | {bearer} | AZURE_CLIENT_SECRET
         {application} AZURE_FEDERATED_TOKEN_FILE={federated} | {bearer} | federated token
         IDENTITY_ENDPOINT={url}/identity IDENTITY_HEADER={CANARY} | {bearer} | identity of the App Service application
         AZURE_POD_IDENTITY_AUTHORITY_HOST={url} | {bearer} | identity of this machine"
    );
    let common = format!("AZURE_STORAGE_ENDPOINT={url} AZURE_STORAGE_ACCOUNT=acc");
    each_is_used(&services, "az://box/key", &common, &table);
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
        let settings = ending_settings(&services, ENDING[2][1]);
        const NAME: &str = "https://acc.blob.core.windows.net/box/key";
        let object = open(NAME, settings.clone());
        let is_absent = refused.is_some_and(|(_, code)| code == "BlobNotFound");
        assert_eq!(object.is_ok(), !is_absent, "{refused:?}");
        assert_eq!(services.count("/oauth2/token"), tokens, "{refused:?}");
        // A key of that very account goes with the first request.
        let mut keyed = settings;
        let key = ("AZURE_STORAGE_KEY".to_string(), "Y2FuYXJ5".to_string());
        keyed.variables.push(key);
        let before = services.count("/box/key");
        assert!(open(NAME, keyed).is_ok());
        assert_eq!(services.count("/box/key") - before, 1, "{refused:?}");
    }
}
