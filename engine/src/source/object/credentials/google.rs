//! The chain of Google Cloud Storage: a file that an environment variable specifies, the file that `gcloud` has stored, the
//! metadata service of a machine.
//!
//! ```text
//!   GOOGLE_APPLICATION_CREDENTIALS ──► ~/.config/gcloud/application_default_credentials.json ──► metadata server ──► none
//!   service_account     a signed claim ──► a token        (object_store signs)
//!   authorized_user     a refresh token ──► a token
//!   external_account    another provider's token, from a file or a URL ──► the token service ──► a service account's token
//! ```
//! Tokens are valid for about an hour. Source: Google Cloud, application default credentials; AIP-4117 (external accounts).

use super::web::{self, MachineService, Token};
use super::{Chain, ChainAnswer, FoundCredential};
use crate::source::object::refusal::{Unfit, line_of, one_line};
use crate::source::object::settings::ObjectSettings;
use futures_util::future::BoxFuture;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use url::Url;

/// What a token may be used for.
const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_only";
const CLOUD_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The firmware of Google's machines contains this string.
const MAKERS: [&str; 1] = ["Google"];
const REMEDY: &str =
    "log in (gcloud auth application-default login), or set GOOGLE_APPLICATION_CREDENTIALS";

/// The credential chain of Google Cloud Storage, for given settings.
pub struct GoogleChain(pub ObjectSettings);

impl Chain<GcpCredential> for GoogleChain {
    fn find(&self) -> BoxFuture<'_, ChainAnswer<GcpCredential>> {
        Box::pin(self.find_first())
    }
}

impl GoogleChain {
    async fn find_first(&self) -> ChainAnswer<GcpCredential> {
        if let Some(token) = self.0.variable("GOOGLE_BEARER_TOKEN") {
            let token = Token {
                token: token.to_string(),
                expires: None,
            };
            let remedy = "set GOOGLE_BEARER_TOKEN again";
            return Ok(Some(found(
                token,
                "the variable GOOGLE_BEARER_TOKEN",
                remedy,
            )));
        }
        let variable = "GOOGLE_APPLICATION_CREDENTIALS";
        if let Some(path) = self.0.variable(variable) {
            return self.file(variable, &self.0.expand(path)).await.map(Some);
        }
        if let Some(path) = self.login().filter(|path| path.exists()) {
            return self.file("the login of gcloud", &path).await.map(Some);
        }
        self.machine().await
    }

    /// The file that `gcloud auth application-default login` writes.
    fn login(&self) -> Option<PathBuf> {
        let named = self.0.variable("CLOUDSDK_CONFIG").map(PathBuf::from);
        let folder = named.or_else(|| Some(self.0.home()?.join(".config/gcloud")))?;
        Some(folder.join("application_default_credentials.json"))
    }

    async fn file(&self, link: &str, path: &Path) -> Result<FoundCredential<GcpCredential>, Unfit> {
        let text = web::read_file(link, path, REMEDY)?;
        let refuse = |why: &str| Unfit::new(format!("{link} {}: {why}", path.display()), REMEDY);
        let json: Value = serde_json::from_str(&text).map_err(|_| refuse("it is not JSON"))?;
        let key = |key: &str| web::text(&json, &[key]);
        let need = |name: &str| key(name).ok_or_else(|| refuse(&format!("it has no {name}")));
        match key("type") {
            Some("service_account") => {
                let account = need("client_email")?;
                let link = format!("{link} (service account {account})");
                let token = service_account(&text, self.0.ca_file.as_deref())
                    .await
                    .map_err(|why| refuse(&why))?;
                let remedy = format!("check that {account} has read permission");
                Ok(found(token, &link, &remedy))
            }
            Some("authorized_user") => {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("client_id", need("client_id")?),
                    ("client_secret", need("client_secret")?),
                    ("refresh_token", need("refresh_token")?),
                ];
                let url = key("token_uri").unwrap_or("https://oauth2.googleapis.com/token");
                let request = self.client()?.post(address(link, url)?);
                let request = web::with_form(request, &form);
                let token = web::send_for_token(link, request, REMEDY).await?;
                Ok(found(token, &format!("{link} (a user)"), REMEDY))
            }
            Some("external_account") => {
                let token = self.external(link, &json).await?;
                Ok(found(token, &format!("{link} (workload identity)"), REMEDY))
            }
            Some(other) => Err(refuse(&format!("its type is unknown: {}", one_line(other)))),
            None => Err(refuse("it has no type")),
        }
    }

    /// Workload identity federation: exchanges a token of another provider for one of Google.
    async fn external(&self, link: &str, json: &Value) -> Result<Token, Unfit> {
        let refuse = |why: &str| Unfit::new(format!("{link}: {why}"), REMEDY);
        let need = |path: &[&str]| {
            let why = || refuse(&format!("it has no {}", path.join(".")));
            web::text(json, path).ok_or_else(why)
        };
        let subject = match web::text(json, &["credential_source", "file"]) {
            Some(path) => web::read_file(link, Path::new(path), REMEDY)?,
            None => {
                let url = need(&["credential_source", "url"]).map_err(|_| {
                    refuse(
                        "only external account tokens from a file or a URL are supported, not those from AWS or an executable",
                    )
                })?;
                let mut request = self.client()?.get(address(link, url)?);
                let headers = json.pointer("/credential_source/headers");
                for (name, value) in headers.and_then(Value::as_object).into_iter().flatten() {
                    request = request.header(name, value.as_str().unwrap_or_default());
                }
                let answer = web::send(request).await.map_err(|why| refuse(&why))?;
                if answer.status != 200 {
                    return Err(refuse(&format!(
                        "the subject's token: answered {}",
                        answer.status
                    )));
                }
                answer.text
            }
        };
        let field = web::text(
            json,
            &["credential_source", "format", "subject_token_field_name"],
        );
        let subject = match field {
            Some(field) => {
                let json = serde_json::from_str::<Value>(&subject).unwrap_or_default();
                web::text(&json, &[field]).unwrap_or_default().to_string()
            }
            None => subject.trim().to_string(),
        };
        let form = [
            (
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ),
            (
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:access_token",
            ),
            ("audience", need(&["audience"])?),
            ("subject_token_type", need(&["subject_token_type"])?),
            ("subject_token", &subject),
            ("scope", CLOUD_SCOPE),
        ];
        let url = address(link, need(&["token_url"])?)?;
        let request = web::with_form(self.client()?.post(url), &form);
        let token = web::send_for_token(link, request, REMEDY).await?;
        let Some(url) = web::text(json, &["service_account_impersonation_url"]) else {
            return Ok(token);
        };
        let body = json!({ "scope": [SCOPE] }).to_string();
        let request = self
            .client()?
            .post(address(link, url)?)
            .bearer_auth(&token.token);
        let request = request
            .header("content-type", "application/json")
            .body(body);
        let answer = web::send_for_json(link, request, REMEDY).await?;
        let token = web::text(&answer, &["accessToken"]).filter(|text| web::is_header(text));
        let token = token
            .ok_or_else(|| refuse("the reply to impersonating the service account has no token"))?;
        Ok(Token {
            token: token.to_string(),
            expires: web::text(&answer, &["expireTime"]).and_then(super::time_of),
        })
    }

    /// The metadata server. A server that does not answer counts as absent.
    async fn machine(&self) -> ChainAnswer<GcpCredential> {
        let named = self.0.variable("GCE_METADATA_HOST");
        let client = MachineService::of(named.is_some(), &MAKERS).client()?;
        let host = named.unwrap_or("169.254.169.254");
        let path = "computeMetadata/v1/instance/service-accounts/default/token";
        let request = client
            .get(format!("http://{host}/{path}"))
            .header("metadata-flavor", "Google");
        let json = web::good_json(request).await;
        let Some(json) = json else {
            return Ok(None);
        };
        let remedy = "check that the service account of this machine has read permission (scope devstorage.read_only)";
        let token = Token::of("the metadata server", &json, remedy)?;
        Ok(Some(found(
            token,
            "the service account of this machine",
            remedy,
        )))
    }

    fn client(&self) -> Result<reqwest::Client, Unfit> {
        web::client(self.0.ca_file.as_deref())
    }
}

/// Makes object_store use this client.
#[derive(Debug)]
struct OwnClient(HttpClient);

impl HttpConnector for OwnClient {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.0.clone())
    }
}

/// Gets a service account's token; object_store signs the claim. The token is new, and valid for an hour.
async fn service_account(json: &str, ca_file: Option<&Path>) -> Result<Token, String> {
    let client = web::client(ca_file).map_err(|unfit| unfit.why)?;
    let store = GoogleCloudStorageBuilder::new()
        .with_bucket_name("none")
        .with_http_connector(OwnClient(HttpClient::new(client)))
        .with_service_account_key(json)
        .build();
    let store = store.map_err(|error| line_of(&error))?;
    let credential = store.credentials().get_credential().await;
    let credential = credential.map_err(|error| line_of(&error))?;
    Ok(Token {
        token: credential.bearer.clone(),
        expires: Some(super::in_seconds(3600)),
    })
}

/// The URL of a service that a file specifies: https, or http to this machine.
fn address(link: &str, text: &str) -> Result<Url, Unfit> {
    let is_of_machine =
        |url: &Url| url.scheme() == "http" && url.host_str() == Some("169.254.169.254");
    let url = Url::parse(text).ok();
    let url = url.filter(|url| super::is_private(url) || is_of_machine(url));
    url.ok_or_else(|| {
        Unfit::new(
            format!("{link}: the URL of a token service must start with https"),
            REMEDY,
        )
    })
}

fn found(token: Token, link: &str, remedy: &str) -> FoundCredential<GcpCredential> {
    let credential = GcpCredential {
        bearer: token.token,
    };
    FoundCredential::new(credential, link, token.expires, remedy)
}
