//! The chain of Azure: an account key, a shared access signature (SAS), a connection string, an application's secret, a federated
//! token, the managed identity of a machine, the command `az`.
//!
//! ```text
//!   AZURE_STORAGE_KEY ──► AZURE_STORAGE_SAS_TOKEN ──► AZURE_STORAGE_CONNECTION_STRING ──► AZURE_CLIENT_SECRET
//!     ──► AZURE_FEDERATED_TOKEN_FILE ──► IDENTITY_ENDPOINT ──► 169.254.169.254 ──► az account get-access-token ──► none
//! ```
//! A URL with a signature (`?sv=...&sig=...`) needs none of these credentials. Tokens are valid for an hour or a day. Source: Microsoft
//! identity platform, client credentials flow; Azure managed identities, how to get a token; az account get-access-token.

use super::web::{self, MachineService, Token};
use super::{Chain, ChainAnswer, FoundCredential, process};
use crate::source::object::refusal::Unfit;
use crate::source::object::settings::ObjectSettings;
use futures_util::future::BoxFuture;
use object_store::azure::{AzureAccessKey, AzureCredential};
use serde_json::Value;
use std::borrow::Cow;
use url::Url;

/// The resource that tokens are requested for.
const RESOURCE: &str = "https://storage.azure.com/";
/// The firmware of Azure's machines contains this string (the asset tag of their chassis).
const MAKERS: [&str; 1] = ["7783-7084-3265-9085-8269-3286-77"];
const LOGIN: &str = "log in (az login), or set AZURE_STORAGE_KEY";

pub struct AzureChain {
    pub settings: ObjectSettings,
    /// Keys and signatures of the variables belong to the requested account.
    pub has_own_keys: bool,
}

impl Chain<AzureCredential> for AzureChain {
    fn find(&self) -> BoxFuture<'_, ChainAnswer<AzureCredential>> {
        Box::pin(self.find_first())
    }
}

/// The account of the emulator, whose key is public. Source: Azure Storage, use the Azurite emulator.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Returns the value of a key in the connection string; keys are case-insensitive.
pub fn connection_part<'a>(settings: &'a ObjectSettings, key: &str) -> Option<Cow<'a, str>> {
    let text = settings.variable("AZURE_STORAGE_CONNECTION_STRING")?;
    let part = |key: &str| {
        let mut parts = text.split(';').filter_map(|part| part.split_once('='));
        let found = parts.find(|(name, value)| {
            name.trim().eq_ignore_ascii_case(key) && !value.trim().is_empty()
        });
        found.map(|(_, value)| value.trim())
    };
    let of_emulator = || {
        part("UseDevelopmentStorage").filter(|value| value.eq_ignore_ascii_case("true"))?;
        let proxy = part("DevelopmentStorageProxyUri").unwrap_or("http://127.0.0.1");
        match key {
            "AccountName" => Some(Cow::Borrowed(EMULATOR)),
            "AccountKey" => Some(Cow::Borrowed(EMULATOR_KEY)),
            "BlobEndpoint" => {
                let proxy = proxy.trim_end_matches('/');
                Some(Cow::Owned(format!("{proxy}:10000/{EMULATOR}")))
            }
            _ => None,
        }
    };
    part(key).map(Cow::Borrowed).or_else(of_emulator)
}

/// Converts a signature (SAS) to the form that object_store uses.
pub fn signature(text: &str) -> AzureCredential {
    let pairs = url::form_urlencoded::parse(text.trim_start_matches('?').as_bytes());
    AzureCredential::SASToken(pairs.into_owned().collect())
}

impl AzureChain {
    fn variable(&self, name: &str) -> Option<&str> {
        self.settings.variable(name)
    }

    /// Returns true if a key or a signature (SAS) of the account is set, even if it is invalid.
    pub fn has_keys(&self) -> bool {
        !matches!(self.keys(), Ok(None))
    }

    async fn find_first(&self) -> ChainAnswer<AzureCredential> {
        if let Some(found) = self.keys()? {
            return Ok(Some(found));
        }
        if let Some(found) = self.application().await? {
            return Ok(Some(found));
        }
        if let Some(found) = self.app_service().await? {
            return Ok(Some(found));
        }
        if let Some(found) = self.machine().await? {
            return Ok(Some(found));
        }
        self.command_line().await
    }

    fn keys(&self) -> ChainAnswer<AzureCredential> {
        if !self.has_own_keys {
            return Ok(None);
        }
        let first = |names: &[&'static str]| {
            let mut named = names.iter();
            named.find_map(|name| Some((*name, Cow::Borrowed(self.variable(name)?))))
        };
        let of_string = |key| Some((CONNECTION, connection_part(&self.settings, key)?));
        let key = first(&[
            "AZURE_STORAGE_KEY",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
        ]);
        if let Some((name, key)) = key.or_else(|| of_string("AccountKey")) {
            let remedy = format!("check {name}, and that this key belongs to the storage account");
            let key = AzureAccessKey::try_new(&key).map_err(|_| {
                Unfit::new(
                    format!("{name} is not a valid storage account key"),
                    &remedy,
                )
            })?;
            let credential = AzureCredential::AccessKey(key);
            return Ok(Some(FoundCredential::new(
                credential,
                format!("the variable {name}"),
                None,
                &remedy,
            )));
        }
        let token = first(&["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"]);
        Ok(token
            .or_else(|| of_string("SharedAccessSignature"))
            .map(|(name, text)| {
                let remedy = format!(
                    "set {name} to a new shared access signature: the present signature has expired or lacks read permission"
                );
                FoundCredential::new(
                    signature(&text),
                    format!("the variable {name}"),
                    None,
                    &remedy,
                )
            }))
    }

    /// The token of an application, obtained with its secret or with a cluster's token.
    async fn application(&self) -> ChainAnswer<AzureCredential> {
        let tenant = self
            .variable("AZURE_TENANT_ID")
            .zip(self.variable("AZURE_CLIENT_ID"));
        let Some((tenant, client)) = tenant else {
            return Ok(None);
        };
        let mut form = vec![
            ("grant_type", "client_credentials"),
            ("client_id", client),
            ("scope", "https://storage.azure.com/.default"),
        ];
        let (token, link);
        if let Some(secret) = self.variable("AZURE_CLIENT_SECRET") {
            form.push(("client_secret", secret));
            link = "the variable AZURE_CLIENT_SECRET";
        } else if let Some(file) = self.variable("AZURE_FEDERATED_TOKEN_FILE") {
            let remedy = "check AZURE_FEDERATED_TOKEN_FILE";
            token = web::read_file("the federated token", &self.settings.expand(file), remedy)?;
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            form.extend([
                ("client_assertion_type", kind),
                ("client_assertion", token.trim()),
            ]);
            link = "the federated token of a workload";
        } else {
            return Ok(None);
        }
        let host = self.variable("AZURE_AUTHORITY_HOST");
        let host = host
            .unwrap_or("https://login.microsoftonline.com")
            .trim_end_matches('/');
        let remedy = "check AZURE_TENANT_ID, AZURE_CLIENT_ID and the role Storage Blob Data Reader";
        let url = format!("{host}/{tenant}/oauth2/v2.0/token");
        let url = Url::parse(&url).ok().filter(super::is_private);
        let url =
            url.ok_or_else(|| Unfit::new("AZURE_AUTHORITY_HOST is not an https URL", remedy))?;
        let request = web::client(self.settings.ca_file.as_deref())?.post(url);
        let request = web::with_form(request, &form);
        let token = web::send_for_token(link, request, remedy).await?;
        Ok(Some(of_token(token, link, remedy)))
    }

    /// The identity of an application of App Service or Functions.
    async fn app_service(&self) -> ChainAnswer<AzureCredential> {
        let both = self
            .variable("IDENTITY_ENDPOINT")
            .zip(self.variable("IDENTITY_HEADER"));
        let Some((endpoint, header)) = both else {
            return Ok(None);
        };
        let (what, remedy) = (
            "the managed identity of the App Service application",
            "check that the application has the role Storage Blob Data Reader",
        );
        let url = Url::parse(endpoint)
            .map_err(|_| Unfit::new("IDENTITY_ENDPOINT is not a URL", remedy))?;
        let request = MachineService::Named
            .client()?
            .get(url)
            .header("x-identity-header", header);
        let request = request.query(&self.identity_query("2019-08-01"));
        let token = web::send_for_token(what, request, remedy).await?;
        Ok(Some(of_token(token, what, remedy)))
    }

    fn identity_query(&self, version: &'static str) -> Vec<(&'static str, &str)> {
        let query = [("api-version", version), ("resource", RESOURCE)];
        let client = self.variable("AZURE_CLIENT_ID").map(|id| ("client_id", id));
        query.into_iter().chain(client).collect()
    }

    /// The managed identity of a machine. A service that does not answer counts as absent.
    async fn machine(&self) -> ChainAnswer<AzureCredential> {
        let named = self.variable("AZURE_POD_IDENTITY_AUTHORITY_HOST");
        let client = MachineService::of(named.is_some(), &MAKERS).client()?;
        let root = named
            .unwrap_or("http://169.254.169.254")
            .trim_end_matches('/');
        let request = client.get(format!("{root}/metadata/identity/oauth2/token"));
        let query = self.identity_query("2018-02-01");
        let json = web::good_json(request.header("metadata", "true").query(&query)).await;
        let Some(json) = json else {
            return Ok(None);
        };
        let what = "the managed identity of this machine";
        let remedy =
            "check that the managed identity of this machine has the role Storage Blob Data Reader";
        let token = Token::of(what, &json, remedy)?;
        Ok(Some(of_token(token, what, remedy)))
    }

    /// The login of the Azure CLI. Without a login, `az` is not started: it takes half a second.
    async fn command_line(&self) -> ChainAnswer<AzureCredential> {
        let folder = self
            .variable("AZURE_CONFIG_DIR")
            .map(|path| self.settings.expand(path));
        let folder = folder.or_else(|| Some(self.settings.home()?.join(".azure")));
        if !folder.is_some_and(|folder| folder.join("azureProfile.json").exists()) {
            return Ok(None);
        }
        let what = "the login of az";
        let command = format!("az account get-access-token --resource {RESOURCE} -o json");
        let text = process::run(what, &command, LOGIN).await?;
        let json = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let refuse = || Unfit::new(format!("{what} returned no token"), LOGIN);
        let token = web::text(&json, &["accessToken"]).filter(|token| web::is_header(token));
        let token = token.ok_or_else(refuse)?.to_string();
        let seconds = json.get("expires_on").and_then(Value::as_u64);
        let expires = seconds.map(|seconds| super::at_millis(seconds.saturating_mul(1000)));
        let expires = expires.or(Some(super::in_seconds(600)));
        let remedy = "check that you have the role Storage Blob Data Reader (az login)";
        Ok(Some(of_token(Token { token, expires }, what, remedy)))
    }
}

const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";

fn of_token(token: Token, link: &str, remedy: &str) -> FoundCredential<AzureCredential> {
    FoundCredential::new(
        AzureCredential::BearerToken(token.token),
        link,
        token.expires,
        remedy,
    )
}
