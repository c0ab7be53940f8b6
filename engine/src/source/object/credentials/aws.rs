//! The chain of S3: environment variables, a web identity, a profile, the credential service of a container, the metadata service
//! of a machine.
//!
//! ```text
//!   AWS_ACCESS_KEY_ID ──► AWS_WEB_IDENTITY_TOKEN_FILE ──► profile ──► the service of a container ──► 169.254.169.254 ──► none
//!   profile:  role_arn ──► keys of source_profile or credential_source ──► AssumeRole
//!             sso_session, sso_start_url ──► the token that `aws sso login` left for it ──► GetRoleCredentials
//!                                              └─ expired ──► CreateToken with the refresh token; stored as the AWS tools store it
//!             aws_access_key_id;  credential_process
//! ```
//! If an option selects a profile, the environment variables are skipped, as in the AWS CLI. If a place is configured but gives no valid
//! credentials, the whole chain fails, because the next place could have credentials of another user. A profile with an unsupported kind
//! of credentials (`aws login`) is an error, too. foreread never asks the user for an MFA code. foreread writes to `~/.aws` only if it
//! renews a single sign-on token: it stores the new token, because the renewal may have made the old refresh token invalid. Example:
//! `[profile ci]` has `role_arn` and `source_profile = base`, and `[base]` has an access key. The access key of `base` signs one request
//! to the token service, which returns credentials that are valid for an hour. Source: AWS SDKs and Tools reference guide, standardized
//! credential providers; AWS STS API reference; EC2 user guide, IMDSv2.

use super::hosts::Hosts;
use super::profile::{self, ProfileInUse, Profiles, Section};
use super::web::{self, MachineService};
use super::{Chain, ChainAnswer, FoundCredential, process};
use crate::source::object::refusal::{Unfit, line_of};
use crate::source::object::settings::ObjectSettings;
use chrono::{DateTime, SecondsFormat, Utc};
use foreread_os::output;
use futures_util::future::BoxFuture;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use serde_json::Value;
use sha1::{Digest, Sha1};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use url::Url;

/// Maximum depth of profiles that refer to each other.
const MAX_PROFILES: usize = 8;
/// A single sign-on token is renewed this long before it expires.
const SSO_RENEWED_BEFORE: Duration = Duration::from_secs(60);
/// Keys of a profile that define how it gets credentials, in addition to those that begin with `login_`.
const CREDENTIAL_KEYS: [&str; 8] = [
    "aws_access_key_id",
    "aws_secret_access_key",
    "credential_process",
    "credential_source",
    "source_profile",
    "sso_account_id",
    "sso_role_name",
    "web_identity_token_file",
];
/// The firmware of Amazon's machines contains one of these strings.
const MAKERS: [&str; 3] = ["Amazon EC2", "amazon", "EC2"];

pub struct AwsChain {
    settings: ObjectSettings,
    /// Why the machine's metadata service had no credentials, if it should have had some.
    missing: OnceLock<Arc<str>>,
}

impl Chain<AwsCredential> for AwsChain {
    fn find(&self) -> BoxFuture<'_, ChainAnswer<AwsCredential>> {
        Box::pin(self.find_first())
    }

    fn missing(&self) -> Option<Arc<str>> {
        self.missing.get().cloned()
    }
}

impl AwsChain {
    pub fn new(settings: ObjectSettings) -> AwsChain {
        AwsChain {
            settings,
            missing: OnceLock::new(),
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.settings.variable(name)
    }

    async fn find_first(&self) -> ChainAnswer<AwsCredential> {
        if self.settings.profile.is_none() {
            if let Some(found) = self.variables()? {
                return Ok(Some(found));
            }
            let (file, role) = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN");
            let both = (self.variable(file), self.variable(role));
            if let (Some(_), None) = both {
                let remedy = "set AWS_ROLE_ARN, or unset AWS_WEB_IDENTITY_TOKEN_FILE";
                return Err(Unfit::new(
                    "AWS_WEB_IDENTITY_TOKEN_FILE is set without AWS_ROLE_ARN",
                    remedy,
                ));
            }
            if let (Some(file), Some(role)) = both {
                let session = self.variable("AWS_ROLE_SESSION_NAME");
                return self.web_identity(file, role, session, "web identity").await;
            }
        }
        if let Some(found) = self.profile().await? {
            return Ok(Some(found));
        }
        if let Some(found) = self.container().await? {
            return Ok(Some(found));
        }
        self.machine().await
    }

    fn variables(&self) -> ChainAnswer<AwsCredential> {
        let key = self.variable("AWS_ACCESS_KEY_ID");
        let secret = self.variable("AWS_SECRET_ACCESS_KEY");
        let (Some(key_id), Some(secret_key)) = (key, secret) else {
            let remedy = "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither";
            let why = "only one of the two variables of an access key is set";
            let is_none = key.is_none() && secret.is_none();
            return if is_none {
                Ok(None)
            } else {
                Err(Unfit::new(why, remedy))
            };
        };
        let credential = AwsCredential {
            key_id: key_id.to_string(),
            secret_key: secret_key.to_string(),
            token: self.variable("AWS_SESSION_TOKEN").map(str::to_string),
        };
        let (link, remedy) = if self.settings.key_is_argument {
            (
                "the arguments key and secret",
                "check the arguments key, secret and token, and that these credentials have read permission",
            )
        } else {
            (
                "the variable AWS_ACCESS_KEY_ID",
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and that these credentials have read permission",
            )
        };
        Ok(Some(FoundCredential::new(credential, link, None, remedy)))
    }

    async fn profile(&self) -> ChainAnswer<AwsCredential> {
        let (name, is_asked) = profile::name_of(&self.settings);
        let all = Profiles::read(&self.settings)?;
        if !all.profiles.contains_key(name) {
            if is_asked {
                let why = format!(
                    "there is no profile {name}; the existing profiles are: {}",
                    all.names()
                );
                let remedy = match all.profiles.is_empty() {
                    true => "select no profile, or create one ('aws configure')",
                    false => "select an existing profile (--profile, AWS_PROFILE)",
                };
                return Err(Unfit::new(why, remedy));
            }
            return Ok(None);
        }
        let mut seen = BTreeSet::new();
        self.of_profile(&all, name, &mut seen).await
    }

    fn of_profile<'a>(
        &'a self,
        all: &'a Profiles,
        name: &'a str,
        seen: &'a mut BTreeSet<String>,
    ) -> BoxFuture<'a, ChainAnswer<AwsCredential>> {
        Box::pin(async move {
            let refuse = |why: String| Unfit::new(why, "correct ~/.aws/config");
            let Some(keys) = all.profiles.get(name) else {
                return Err(refuse(format!("there is no profile {name}")));
            };
            let is_new = seen.insert(name.to_string()) && seen.len() <= MAX_PROFILES;
            // A profile may assume its role with its own keys.
            let takes_role = is_new && keys.contains_key("role_arn");
            if !is_new && !has_keys(keys) {
                return Err(refuse(format!("profile {name} refers to itself")));
            }
            if takes_role {
                return self.role(all, name, keys, seen).await;
            }
            if let Some(sso) = Sso::of(all, name, keys)? {
                return self.sso(name, sso).await;
            }
            if let Some(credential) = keys_of(keys) {
                let remedy = format!(
                    "check the access key of profile {name}, and that it has read permission"
                );
                return Ok(Some(FoundCredential::new(
                    credential,
                    format!("profile {name}"),
                    None,
                    &remedy,
                )));
            }
            if let Some(command) = keys.get("credential_process") {
                return of_process(name, command).await;
            }
            // The next link would read as another user.
            let is_way = |key: &&String| {
                key.starts_with("login_") || CREDENTIAL_KEYS.contains(&key.as_str())
            };
            keys.keys().find(is_way).map_or(Ok(None), |key| {
                let why = format!("profile {name} has {key}, but no supported source of credentials");
                let remedy = format!(
                    "create a profile with 'credential_process = aws configure export-credentials --profile {name} --format process', and select that profile"
                );
                Err(Unfit::new(why, &remedy))
            })
        })
    }

    /// `role_arn`: assumed with the credentials of another profile, of the environment, or of a token.
    async fn role<'a>(
        &'a self,
        all: &'a Profiles,
        name: &'a str,
        keys: &'a Section,
        seen: &'a mut BTreeSet<String>,
    ) -> ChainAnswer<AwsCredential> {
        let role = keys.get("role_arn").map(String::as_str).unwrap_or_default();
        let session = keys.get("role_session_name").map(String::as_str);
        if let Some(file) = keys.get("web_identity_token_file") {
            let link = format!("profile {name} (web identity)");
            return self.web_identity(file, role, session, &link).await;
        }
        if keys.contains_key("mfa_serial") {
            let why = format!("profile {name} needs the code of an MFA device (mfa_serial)");
            let remedy = "use temporary credentials (aws sts get-session-token), or single sign-on";
            return Err(Unfit::new(why, remedy));
        }
        let source = match (keys.get("source_profile"), keys.get("credential_source")) {
            (Some(source), _) => self.of_profile(all, source, seen).await?,
            (None, Some(source)) => match source.as_str() {
                "Environment" => self.variables()?,
                "EcsContainer" => self.container().await?,
                "Ec2InstanceMetadata" => self.machine().await?,
                _ => None,
            },
            (None, None) => None,
        };
        let Some(source) = source else {
            let why = format!(
                "profile {name} has a role_arn, but there are no credentials to assume that role with"
            );
            let remedy = "check source_profile or credential_source in ~/.aws/config";
            return Err(Unfit::new(why, remedy));
        };
        let mut query = vec![
            ("Action", "AssumeRole"),
            ("RoleArn", role),
            ("RoleSessionName", session.unwrap_or("foreread")),
        ];
        let optional = [
            ("ExternalId", "external_id"),
            ("DurationSeconds", "duration_seconds"),
        ];
        for (parameter, key) in optional {
            query.extend(keys.get(key).map(|value| (parameter, value.as_str())));
        }
        let region = keys.get("region").map(String::as_str);
        let link = format!("profile {name}, role {role} by {}", source.link.name);
        let remedy = format!(
            "check that {} may assume role {role}, and that the role has read permission",
            source.link.name
        );
        self.sts(&query, region, Some(&source.credential), &link, &remedy)
            .await
    }

    async fn web_identity(
        &self,
        file: &str,
        role: &str,
        session: Option<&str>,
        link: &str,
    ) -> ChainAnswer<AwsCredential> {
        let remedy = "check AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN";
        let path = self.settings.expand(file);
        let token = web::read_file("the web identity token", &path, remedy)?;
        let query = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("RoleArn", role),
            ("RoleSessionName", session.unwrap_or("foreread")),
            ("WebIdentityToken", token.trim()),
        ];
        let link = format!("{link}, role {role}");
        let remedy = format!("check that role {role} trusts the token, and has read permission");
        self.sts(&query, None, None, &link, &remedy).await
    }

    /// Sends a request to the token service.
    async fn sts(
        &self,
        query: &[(&str, &str)],
        region: Option<&str>,
        signed_by: Option<&AwsCredential>,
        link: &str,
        remedy: &str,
    ) -> ChainAnswer<AwsCredential> {
        let own = self
            .settings
            .region
            .as_deref()
            .or(self.variable("AWS_REGION"));
        let region = own.or(region).or(self.variable("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or("us-east-1");
        let unfit = |why: String| Unfit::new(format!("{link}: {why}"), remedy);
        let mut url = self.service("STS", region, "").map_err(unfit)?;
        url.query_pairs_mut()
            .append_pair("Version", "2011-06-15")
            .extend_pairs(query);
        let signed = signed_headers(&url, region, signed_by).map_err(unfit)?;
        let client = web::client(self.settings.ca_file.as_deref())?;
        let request = client.post(url).headers(signed);
        let answer = web::send(request).await;
        let answer = answer.map_err(|why| unfit(format!("the token service: {why}")))?;
        if answer.status != 200 {
            let code = element(&answer.text, "Code").unwrap_or_default();
            let why = format!("the token service answered {} {code}", answer.status);
            return Err(unfit(why.trim_end().to_string()));
        }
        let part = |name: &str| element(&answer.text, name);
        let keys = part("AccessKeyId").zip(part("SecretAccessKey"));
        let keys = keys.and_then(|(id, secret)| credential(id, secret, part("SessionToken")));
        let credential = keys.ok_or_else(|| {
            unfit("the reply of the AWS token service (STS) has no credentials".to_string())
        })?;
        let expires = part("Expiration").and_then(super::time_of);
        Ok(Some(FoundCredential::new(
            credential, link, expires, remedy,
        )))
    }

    /// The URL of a call to a service that receives a token or a signed request.
    fn service(&self, service: &str, region: &str, path: &str) -> Result<Url, String> {
        let profile = ProfileInUse::of(&self.settings);
        let named = profile.endpoint(&self.settings, service);
        let endpoint = named.unwrap_or_else(|| {
            let hosts = Hosts::of(&self.settings, &profile, region);
            let service = match service {
                "STS" => "sts",
                "SSO" => "portal.sso",
                _ => "oidc",
            };
            format!("https://{}", hosts.host(service))
        });
        let url = Url::parse(&format!("{}/{path}", endpoint.trim_end_matches('/')));
        let allows_http = self.settings.is_on("AWS_ALLOW_HTTP");
        let url = url.ok().filter(|url| super::is_private(url) || allows_http);
        url.ok_or_else(|| format!("the endpoint of {service} is not an https URL"))
    }

    /// Single sign-on, with the token of `aws sso login`.
    async fn sso(&self, name: &str, sso: Sso<'_>) -> ChainAnswer<AwsCredential> {
        let remedy = format!("aws sso login --profile {name}");
        let unfit = |why: &str| Unfit::new(format!("profile {name}: {why}"), &remedy);
        let token = self.sso_token(&sso).await.map_err(|why| unfit(&why))?;
        let url = self.service("SSO", sso.region, "federation/credentials");
        let url = url.map_err(|why| unfit(&why))?;
        let client = web::client(self.settings.ca_file.as_deref())?;
        let request = client
            .get(url)
            .query(&[("role_name", sso.role), ("account_id", sso.account)])
            .header("x-amz-sso_bearer_token", &token);
        let what = format!("profile {name}, single sign-on");
        let json = web::send_for_json(&what, request, &remedy).await?;
        let part = |key| web::text(&json, &["roleCredentials", key]);
        let keys = part("accessKeyId").zip(part("secretAccessKey"));
        let keys = keys.and_then(|(id, secret)| credential(id, secret, part("sessionToken")));
        let credential = keys.ok_or_else(|| unfit("its reply contains no credentials"))?;
        let millis = json
            .pointer("/roleCredentials/expiration")
            .and_then(Value::as_u64);
        let expires = millis.map(super::at_millis);
        Ok(Some(FoundCredential::new(
            credential,
            &format!("profile {name} (SSO)"),
            expires,
            &remedy,
        )))
    }

    /// The token that a login has stored for this session, which no other program shares. Renewed if it has expired.
    async fn sso_token(&self, sso: &Sso<'_>) -> Result<String, String> {
        let hash = Sha1::digest(sso.login.as_bytes());
        let name: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let home = self.settings.home();
        let path = home.map(|home| home.join(format!(".aws/sso/cache/{name}.json")));
        let text = path
            .as_deref()
            .and_then(|path| web::read_file("the login", path, "").ok());
        let json = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let (Some(path), Some(json)) = (path, json) else {
            return Err("there is no cached login of single sign-on".to_string());
        };
        let token = web::text(&json, &["accessToken"]).filter(|text| web::is_header(text));
        let expires = web::text(&json, &["expiresAt"]).and_then(time_of_tools);
        let is_valid =
            expires.is_none_or(|expires| expires > SystemTime::now() + SSO_RENEWED_BEFORE);
        if let Some(token) = token.filter(|_| is_valid) {
            return Ok(token.to_string());
        }
        let ended = "the session of single sign-on has expired";
        self.sso_renewed(sso, &path, json)
            .await
            .map_err(|why| match why.is_empty() {
                true => ended.to_string(),
                false => format!("{ended}, and cannot be renewed: {why}"),
            })
    }

    /// Gets a new token with the refresh token of a login. The error is empty if there is no refresh token.
    async fn sso_renewed(
        &self,
        sso: &Sso<'_>,
        path: &Path,
        mut login: Value,
    ) -> Result<String, String> {
        let part = |key| web::text(&login, &[key]).ok_or_else(String::new);
        let registered = part("registrationExpiresAt").ok().and_then(time_of_tools);
        if registered.is_some_and(|until| until <= SystemTime::now()) {
            return Err(String::new());
        }
        let body = serde_json::json!({
            "grantType": "refresh_token",
            "clientId": part("clientId")?,
            "clientSecret": part("clientSecret")?,
            "refreshToken": part("refreshToken")?,
        });
        let url = self.service("SSO_OIDC", sso.region, "token")?;
        let client = web::client(self.settings.ca_file.as_deref()).map_err(|unfit| unfit.why)?;
        let request = client
            .post(url)
            .header("content-type", "application/json")
            .body(body.to_string());
        let answer = web::send_for_json("the token service", request, "").await;
        let answer = answer.map_err(|unfit| unfit.why)?;
        let token = web::text(&answer, &["accessToken"]).filter(|text| web::is_header(text));
        let token = token
            .ok_or("the reply of the token service has no token")?
            .to_string();
        let seconds = answer.get("expiresIn").and_then(Value::as_u64);
        let expires = DateTime::<Utc>::from(super::in_seconds(seconds.unwrap_or(0)));
        login["accessToken"] = token.as_str().into();
        login["expiresAt"] = expires.to_rfc3339_opts(SecondsFormat::Secs, true).into();
        if let Some(refresh) = web::text(&answer, &["refreshToken"]) {
            login["refreshToken"] = refresh.into();
        }
        if let Err(error) = output::write(path, login.to_string().as_bytes(), true) {
            tracing::warn!("cannot store the renewed session of single sign-on: {error}");
        }
        Ok(token)
    }

    /// The credential service of a container: ECS, and EKS pod identity.
    async fn container(&self) -> ChainAnswer<AwsCredential> {
        let relative = self.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = self.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let url = match (relative, full) {
            (Some(path), _) => format!("http://169.254.170.2{path}"),
            (None, Some(url)) => url.to_string(),
            (None, None) => return Ok(None),
        };
        let remedy = "check AWS_CONTAINER_CREDENTIALS_FULL_URI, and the role of the task or pod";
        let refuse = |why: &str| {
            Unfit::new(
                format!("the credential service of the container: {why}"),
                remedy,
            )
        };
        let url = Url::parse(&url).map_err(|_| refuse("its address is not a URL"))?;
        if url.scheme() != "https" && !is_near(&url) {
            return Err(refuse(
                "http is allowed only for loopback, 169.254.170.2 and 169.254.170.23",
            ));
        }
        let mut request = MachineService::Named.client()?.get(url);
        let file = self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let token = match (file, self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")) {
            (Some(file), _) => Some(web::read_file("the token", Path::new(file), remedy)?),
            (None, token) => token.map(str::to_string),
        };
        if let Some(token) = token.as_deref().map(str::trim) {
            if !web::is_header(token) {
                return Err(refuse(
                    "the authorization token has characters that an HTTP header must not have",
                ));
            }
            request = request.header("authorization", token);
        }
        let json =
            web::send_for_json("the credential service of the container", request, remedy).await?;
        let link = "the role of the container";
        of_json(&json, link, remedy)
            .ok_or_else(|| refuse("its reply contains no credentials"))
            .map(Some)
    }

    /// The metadata service of a machine (IMDSv2). A service that does not answer counts as absent.
    async fn machine(&self) -> ChainAnswer<AwsCredential> {
        if self.settings.is_on("AWS_EC2_METADATA_DISABLED") {
            return Ok(None);
        }
        let named = self.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        // The AWS tools wait for it just as long.
        let service = match named {
            Some(_) => MachineService::Expected,
            None => MachineService::of(false, &MAKERS),
        };
        let client = service.client()?;
        let begun = Instant::now();
        let root = named
            .unwrap_or("http://169.254.169.254")
            .trim_end_matches('/');
        let seconds = "x-aws-ec2-metadata-token-ttl-seconds";
        let token = client
            .put(format!("{root}/latest/api/token"))
            .header(seconds, "21600");
        let Some(token) = web::good(token).await.filter(|token| web::is_header(token)) else {
            if let Some(limit) = service.was_late(begun) {
                let why = format!(
                    "the metadata service of this machine ({root}) gave no answer within {limit:?}: a container needs a hop limit \
                     of 2 (aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2)"
                );
                let _ = self.missing.set(why.into());
            }
            return Ok(None);
        };
        let get = |path: &str| {
            let folder = "latest/meta-data/iam/security-credentials";
            let request = client.get(format!("{root}/{folder}/{path}"));
            request.header("x-aws-ec2-metadata-token", &token)
        };
        let role = web::good(get("")).await;
        let role = role.and_then(|text| text.lines().next().map(str::to_string));
        let Some(role) = role.filter(|role| !role.is_empty() && !role.contains('/')) else {
            return Ok(None);
        };
        let json = web::good_json(get(&role)).await;
        let remedy = format!("check that role {role} of this machine has read permission");
        let link = format!("role {role} of this machine");
        Ok(json.and_then(|json| of_json(&json, &link, &remedy)))
    }
}

/// A profile's single sign-on settings.
struct Sso<'a> {
    /// The name by which the AWS tools store a login: the session, or the start URL of a profile without a session.
    login: &'a str,
    region: &'a str,
    account: &'a str,
    role: &'a str,
}

impl<'a> Sso<'a> {
    fn of(all: &'a Profiles, name: &str, keys: &'a Section) -> Result<Option<Sso<'a>>, Unfit> {
        let session = keys.get("sso_session");
        if session.is_none() && !keys.contains_key("sso_start_url") {
            return Ok(None);
        }
        let shared = session.and_then(|session| all.sso_sessions.get(session));
        let key = |key: &str| {
            let value = keys
                .get(key)
                .or_else(|| shared?.get(key))
                .map(String::as_str);
            value.ok_or_else(|| {
                let why = format!("profile {name} has no {key}");
                Unfit::new(why, format!("aws configure sso --profile {name}"))
            })
        };
        let region = key("sso_region")?;
        if !region
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            return Err(Unfit::new(
                "sso_region is not a region",
                "correct ~/.aws/config",
            ));
        }
        let start_url = key("sso_start_url")?;
        Ok(Some(Sso {
            login: session.map_or(start_url, String::as_str),
            region,
            account: key("sso_account_id")?,
            role: key("sso_role_name")?,
        }))
    }
}

/// Parses a time as the AWS tools write it; older versions end it with UTC.
fn time_of_tools(text: &str) -> Option<SystemTime> {
    super::time_of(&text.replace("UTC", "Z"))
}

fn has_keys(keys: &Section) -> bool {
    keys.contains_key("aws_access_key_id") && keys.contains_key("aws_secret_access_key")
}

fn keys_of(keys: &Section) -> Option<AwsCredential> {
    let key = |name: &str| keys.get(name).map(String::as_str);
    let (id, secret) = (key("aws_access_key_id")?, key("aws_secret_access_key")?);
    credential(id, secret, key("aws_session_token"))
}

/// Creates credentials. Returns `None` if a part cannot be used in a header.
fn credential(key_id: &str, secret_key: &str, token: Option<&str>) -> Option<AwsCredential> {
    let parts = [Some(key_id), Some(secret_key), token];
    let are_headers = parts.into_iter().flatten().all(web::is_header);
    are_headers.then(|| AwsCredential {
        key_id: key_id.to_string(),
        secret_key: secret_key.to_string(),
        token: token.map(str::to_string),
    })
}

async fn of_process(name: &str, command: &str) -> ChainAnswer<AwsCredential> {
    let remedy = format!("run the credential_process of profile {name} in a shell to see why");
    let what = format!("the credential_process of profile {name}");
    let text = process::run(&what, command, &remedy).await?;
    let json = serde_json::from_str::<Value>(&text).ok();
    let credential =
        json.and_then(|json| of_json(&json, &format!("profile {name} (process)"), &remedy));
    let why = || Unfit::new(format!("{what} printed no credentials"), &remedy);
    credential.map(Some).ok_or_else(why)
}

/// Parses credentials in the format of container and machine services and of credential processes.
fn of_json(json: &Value, link: &str, remedy: &str) -> Option<FoundCredential<AwsCredential>> {
    let part = |name| web::text(json, &[name]);
    let token = part("Token").or(part("SessionToken"));
    let credential = credential(part("AccessKeyId")?, part("SecretAccessKey")?, token)?;
    let expires = web::text(json, &["Expiration"]).and_then(super::time_of);
    Some(FoundCredential::new(credential, link, expires, remedy))
}

/// Whether a URL refers to loopback, or to the addresses of ECS and EKS.
fn is_near(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    super::is_loopback(url) || ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"].contains(&host)
}

/// The text of the first element with that name; keys and times need no unescaping.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text).filter(|text| web::is_header(text))
}

/// The signed headers of a request without a body.
fn signed_headers(
    url: &Url,
    region: &str,
    by: Option<&AwsCredential>,
) -> Result<http::HeaderMap, String> {
    let request = http::Request::post(url.as_str()).body(bytes::Bytes::new().into());
    let mut request =
        request.map_err(|_| "the request for the token service has an invalid URL".to_string())?;
    if let Some(credential) = by {
        let signed =
            AwsAuthorizer::new(credential, "sts", region).try_authorize(&mut request, None);
        signed.map_err(|error| line_of(&error))?;
    }
    Ok(request.headers().clone())
}
