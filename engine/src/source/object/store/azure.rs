//! Azure Blob Storage and Data Lake: `az://CONTAINER/KEY`, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY`,
//! `https://ACCOUNT.blob.core.windows.net/CONTAINER/KEY` with or without a signature (`?sv=...&sig=...`).
//!
//! Requests carry the first credentials that are found ([`AzureChain`]), or none. If a key of its account is set, a URL without a
//! signature is requested with this key; otherwise it is first requested without credentials. The library object_store reads blobs, but
//! cannot list single pages. So this module requests the pages of listings itself; object_store only signs these requests.
//!
//! ```text
//!   ?restype=container&comp=list&delimiter=/&include=metadata&prefix=dir/ ──► Blobs: Blob (Name, Properties, Metadata), BlobPrefix (Name); NextMarker
//! ```
//! A blob of 0 bytes may be a marker for a folder: Data Lake marks folders with `ResourceType`, some tools with the metadata
//! `hdi_isfolder`. Source: Azure Blob Storage REST API, List Blobs, Get Blob; Data Lake Storage, known issues (hdi_isfolder).

use super::{Listing, Place, Store, check, connector, keeper_of, may_be_plain, no_retries};
use crate::source::object::credentials::Provider;
use crate::source::object::credentials::azure::{AzureChain, connection_part, signature};
use crate::source::object::page::{ListedObject, Page, PageRequest, PageText, xml};
use crate::source::object::refusal::{Account, Advice, Refusal, Unfit, line_of};
use crate::source::object::reply::Wire;
use crate::source::object::settings::ObjectSettings;
use futures_util::future::BoxFuture;
use object_store::azure::{AzureAuthorizer, AzureCredential, MicrosoftAzureBuilder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientOptions, CredentialProvider, StaticCredentialProvider};
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use url::Url;

/// The domains of account hosts, after `.blob.` or `.dfs.`: of the public cloud, of the clouds of China, the US government and
/// Germany, of zones and of Fabric.
const AZURE_DOMAINS: [&str; 6] = [
    "core.windows.net",
    "core.chinacloudapi.cn",
    "core.usgovcloudapi.net",
    "core.cloudapi.de",
    "storage.azure.net",
    "fabric.microsoft.com",
];
/// The API version of listing requests.
const API: &str = "2021-12-02";

static ADVICE: Advice = Advice {
    refused: "check that you have read permission (Storage Blob Data Reader)",
    unsigned: "log in (az login), or set AZURE_STORAGE_KEY: without credentials only public containers can be read",
    absent: "check the names of the account, the container and the blob (az storage blob list); the name of a prefix ends with /",
    elsewhere: "check account, container and key (az storage blob list)",
    list: "az storage blob list;",
    no_listing: "check AZURE_STORAGE_ENDPOINT: it must be a server with the API of Azure Blob Storage, not a web page",
};

/// The remedies for a URL that has a signature.
static SIGNED: Advice = Advice {
    refused: "create a new URL: the signature in this URL has expired, or does not permit reading or listing",
    ..ADVICE
};

static WIRE: Wire = Wire {
    stores_codings: true,
    accept_encoding: "identity",
    generation: None,
    has_versions: true,
    is_account: true,
    page,
};

/// Variables that are checked before they are used.
const VARIABLES: &[&str] = &[
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
];
const URLS: &[&str] = &["AZURE_STORAGE_ENDPOINT"];

#[derive(Debug, PartialEq, Eq)]
pub struct AzurePlace {
    /// `None` if the settings must define it.
    account: Option<AccountHost>,
    container: String,
    key: String,
    /// The signature in the URL: `sv=...&sig=...`.
    signature: Option<String>,
    /// It is written as a URL.
    is_url: bool,
}

/// Returns true if a text is the URL of a blob, or of a prefix in a container. Other URLs, such as those of snapshots and of the
/// root container, are read by plain HTTP.
pub fn is_url(text: &str) -> bool {
    let Ok(place) = of_url(text, "") else {
        return false;
    };
    let is_signed = place.signature.is_some();
    let is_blob = place.account.is_some() && !place.key.is_empty() && !place.key.contains("//");
    let has_query = text.contains('?');
    is_blob && (is_signed || !has_query)
}

pub fn read(text: &str) -> Result<AzurePlace, Unfit> {
    let write = "write az://CONTAINER/KEY, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY or \
                 https://ACCOUNT.blob.core.windows.net/CONTAINER/KEY";
    if text.starts_with("http") {
        return of_url(text, write);
    }
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let (front, key) = rest.split_once('/').unwrap_or((rest, ""));
    let (container, host) = front.split_once('@').unwrap_or((front, ""));
    let account = match host {
        "" => None,
        host => {
            let account = AccountHost::of(host);
            Some(account.ok_or_else(|| {
                Unfit::new("the name of the Azure storage account is missing", write)
            })?)
        }
    };
    place(account, container, key, None)
        .ok_or_else(|| Unfit::new("the container is missing", write))
}

fn of_url(text: &str, write: &str) -> Result<AzurePlace, Unfit> {
    let none = || Unfit::new("it is not the URL of a blob", write);
    let url = Url::parse(text).map_err(|_| none())?;
    let host = url.host_str().unwrap_or_default();
    let account = AccountHost::of(host);
    if !url.username().is_empty() || url.password().is_some() || url.scheme() != "https" {
        return Err(none());
    }
    let path = percent_decode_str(url.path().trim_start_matches('/')).decode_utf8();
    let path = path.map_err(|_| none())?;
    let (container, key) = path.split_once('/').unwrap_or((&path, ""));
    let signature = url.query().filter(|query| query.contains("sig="));
    let place = place(account, container, key, signature).ok_or_else(none)?;
    Ok(AzurePlace {
        is_url: true,
        ..place
    })
}

fn place(
    account: Option<AccountHost>,
    container: &str,
    key: &str,
    signature: Option<&str>,
) -> Option<AzurePlace> {
    let is_name = |text: &str| {
        let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'$';
        !text.is_empty() && text.bytes().all(is_letter)
    };
    let is_account = |account: &AccountHost| is_name(&account.account);
    (is_name(container) && account.as_ref().is_none_or(is_account)).then(|| AzurePlace {
        account,
        container: container.to_string(),
        key: key.to_string(),
        signature: signature.map(str::to_string),
        is_url: false,
    })
}

impl Place for AzurePlace {
    fn key(&self) -> &str {
        &self.key
    }

    /// A URL is often that of a public blob in any account. The login of this machine may be of another tenant, which the
    /// server refuses even for public blobs. And no token should go to an account that does not need one.
    fn may_be_public(&self, settings: &ObjectSettings) -> bool {
        let account = self.account.as_ref().filter(|_| self.is_url);
        let is_plain = self.signature.is_none() && !settings.no_sign_request;
        account.is_some_and(|host| {
            let (_, is_own) = self.named_endpoint(&host.account, settings);
            is_plain && !chain(settings, is_own).has_keys()
        })
    }

    fn connect(&self, settings: &ObjectSettings) -> Result<Store, Unfit> {
        check(settings, VARIABLES, URLS)?;
        let named = self.account.as_ref().map(|host| host.account.clone());
        let Some(account) = named.or_else(|| own_account(settings)) else {
            let remedy = "set AZURE_STORAGE_ACCOUNT, or write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY";
            return Err(Unfit::new("the account is missing", remedy));
        };
        let account = account.as_str();
        let (named, is_own) = self.named_endpoint(account, settings);
        let allow_http = may_be_plain(named.as_deref(), settings, "AZURE_ALLOW_HTTP")?;
        let endpoint = named.unwrap_or_else(|| match &self.account {
            Some(host) => format!("https://{}", host.blob),
            None => format!("https://{account}.blob.{}", AZURE_DOMAINS[0]),
        });
        let settings = &of_cloud(settings, &endpoint);
        let connector = connector(settings, allow_http, &WIRE, None)?;
        let client = connector.connect(&ClientOptions::new());
        let remedy = "check account and container";
        let unfit = |error: object_store::Error| Unfit::new(line_of(&error), remedy);
        let client = client.map_err(unfit)?;
        let builder = MicrosoftAzureBuilder::new()
            .with_account(account)
            .with_container_name(&self.container)
            .with_endpoint(endpoint.clone())
            .with_retry(no_retries())
            .with_http_connector(connector);
        let mut keeper = None;
        if self.signature.is_none() {
            let key = if is_own {
                "Azure"
            } else {
                "Azure, another account"
            };
            keeper = keeper_of(key, settings, || chain(settings, is_own))?;
        }
        let signature = self.signature.as_deref().map(signature);
        let provider: Option<Arc<dyn CredentialProvider<Credential = AzureCredential>>> =
            match (&keeper, signature) {
                (Some(keeper), _) => Some(Arc::new(Provider(keeper.clone()))),
                (None, Some(signature)) => Some(Arc::new(StaticCredentialProvider::new(signature))),
                (None, None) => None,
            };
        let builder = match &provider {
            Some(provider) => builder.with_credentials(provider.clone()),
            None => builder.with_skip_signature(true),
        };
        let store = builder.build().map_err(unfit)?;
        let listing = AzureListing {
            client,
            url: format!("{endpoint}/{}", self.container),
            account: account.to_string(),
            provider,
        };
        let server = format!("{endpoint}/{}", self.container);
        let store = Store::new(Arc::new(store), Arc::new(listing), &ADVICE, keeper, &server);
        Ok(match self.signature {
            Some(_) => Store {
                account: Account::without_chain(&SIGNED),
                ..store
            },
            None => store,
        })
    }
}

impl AzurePlace {
    /// The endpoint that variables set for this account, and whether the variables belong to this account. A signature belongs
    /// to the URL that contains it.
    fn named_endpoint(&self, account: &str, settings: &ObjectSettings) -> (Option<String>, bool) {
        let is_own = own_account(settings).is_none_or(|own| own == account);
        let named = settings.variable("AZURE_STORAGE_ENDPOINT");
        let named = named.map(str::to_string);
        let part = |key| connection_part(settings, key).map(|text| text.into_owned());
        let of_cloud = || {
            let domain = part("EndpointSuffix").filter(|_| self.account.is_none())?;
            let protocol = part("DefaultEndpointsProtocol").unwrap_or("https".to_string());
            Some(format!("{protocol}://{account}.blob.{domain}"))
        };
        let named = named.or_else(|| part("BlobEndpoint")).or_else(of_cloud);
        let named = named.filter(|_| is_own && self.signature.is_none());
        (
            named.map(|text| text.trim_end_matches('/').to_string()),
            is_own,
        )
    }
}

fn chain(settings: &ObjectSettings, has_own_keys: bool) -> AzureChain {
    AzureChain {
        settings: settings.clone(),
        has_own_keys,
    }
}

/// The account that the variables belong to. A connection string with a signature contains only its endpoint.
fn own_account(settings: &ObjectSettings) -> Option<String> {
    let named = settings.variable("AZURE_STORAGE_ACCOUNT");
    let named = named.or(settings.variable("AZURE_STORAGE_ACCOUNT_NAME"));
    if let Some(named) = named {
        return Some(named.to_string());
    }
    if let Some(named) = connection_part(settings, "AccountName") {
        return Some(named.into_owned());
    }
    let url = Url::parse(&connection_part(settings, "BlobEndpoint")?).ok()?;
    let of_path = || url.path_segments()?.next().map(str::to_string);
    let of_host = AccountHost::of(url.host_str()?).map(|host| host.account);
    of_host.or_else(of_path).filter(|name| !name.is_empty())
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct AccountHost {
    account: String,
    /// The host of its blobs; Data Lake has another host.
    blob: String,
}

impl AccountHost {
    /// Parses `ACCOUNT[.ZONE].blob.DOMAIN`, or `dfs` instead of `blob`.
    fn of(host: &str) -> Option<AccountHost> {
        let host = host.to_ascii_lowercase();
        AZURE_DOMAINS.iter().find_map(|domain| {
            let front = host.strip_suffix(domain)?.strip_suffix('.')?;
            let front = front.strip_suffix(".blob").or(front.strip_suffix(".dfs"))?;
            Some(AccountHost {
                account: front.split('.').next().unwrap_or(front).to_string(),
                blob: format!("{front}.blob.{domain}"),
            })
        })
    }
}

/// Where clouds other than the public one issue tokens. Source: Microsoft Entra, national clouds, authentication endpoints.
const AUTHORITIES: [(&str, &str); 3] = [
    (".core.chinacloudapi.cn", "https://login.chinacloudapi.cn"),
    (
        ".core.usgovcloudapi.net",
        "https://login.microsoftonline.us",
    ),
    (".core.cloudapi.de", "https://login.microsoftonline.de"),
];

/// Settings for an endpoint of any cloud.
fn of_cloud(settings: &ObjectSettings, endpoint: &str) -> ObjectSettings {
    let mut settings = settings.clone();
    let host = endpoint.rsplit("//").next().unwrap_or_default();
    let authority = AUTHORITIES.iter().find(|(end, _)| host.ends_with(end));
    let name = "AZURE_AUTHORITY_HOST";
    if let (Some((_, authority)), None) = (authority, settings.variable(name)) {
        let variable = (name.to_string(), authority.to_string());
        settings.variables.retain(|(own, _)| own != name);
        settings.variables.push(variable);
    }
    settings
}

/// Lists names of a container page by page.
struct AzureListing {
    client: HttpClient,
    /// URL of the container.
    url: String,
    account: String,
    provider: Option<Arc<dyn CredentialProvider<Credential = AzureCredential>>>,
}

impl Listing for AzureListing {
    fn page(&self, wanted: PageRequest) -> BoxFuture<'_, Result<Page, Refusal>> {
        Box::pin(async move {
            let garbled = |_| Refusal::Garbled("the URL of its listing is invalid".to_string());
            let mut url = Url::parse(&self.url).map_err(|_| garbled(()))?;
            url.query_pairs_mut().extend_pairs([
                ("restype", "container"),
                ("comp", "list"),
                ("delimiter", "/"),
                ("include", "metadata"),
                ("maxresults", &wanted.most.to_string()),
            ]);
            if !wanted.prefix.is_empty() {
                url.query_pairs_mut().append_pair("prefix", &wanted.prefix);
            }
            if let Some(token) = wanted.next.token() {
                url.query_pairs_mut().append_pair("marker", token);
            }
            let request = http::Request::get(url.as_str()).header("x-ms-version", API);
            let request = request.extension(wanted).body(bytes::Bytes::new().into());
            let mut request = request.map_err(|_| garbled(()))?;
            if let Some(provider) = &self.provider {
                let credential = provider.get_credential().await;
                let credential = credential.map_err(|error| Refusal::of(&error))?;
                let signed = AzureAuthorizer::new(&credential, &self.account);
                let signed = signed.try_authorize(&mut request);
                signed.map_err(|error| Refusal::of(&error))?;
            }
            let answer = self.client.execute(request).await;
            let mut answer = answer.map_err(|error| Refusal::of(&error))?;
            Ok(answer.extensions_mut().remove().unwrap_or_default())
        })
    }

    fn begins_behind_keys(&self) -> bool {
        false
    }

    fn marks_folders(&self) -> bool {
        true
    }
}

/// Parses a page in Azure's format.
fn page(body: &[u8], wanted: &PageRequest) -> Result<Page, Refusal> {
    let (mut said, mut blob) = (PageText::default(), ListedObject::default());
    xml::read("EnumerationResults", body, |path, text| match path {
        [_, "Blobs", "Blob", "Name"] => blob.key = std::mem::take(text),
        [_, "Blobs", "Blob", "Properties", "Content-Length"] => blob.size = std::mem::take(text),
        [_, "Blobs", "Blob", "Properties", "Last-Modified"] => blob.modified = std::mem::take(text),
        [_, "Blobs", "Blob", "Properties", "Etag"] => blob.etag = Some(std::mem::take(text)),
        // A folder of Data Lake, which the page also lists as a prefix.
        [_, "Blobs", "Blob", "Properties", "ResourceType"] if text == "directory" => {
            blob.size.clear();
            blob.is_folder = true;
        }
        [_, "Blobs", "Blob", "Metadata", name] if is_folder_mark(name, text) => {
            blob.size.clear();
            blob.is_folder = true;
        }
        [_, "Blobs", "Blob"] => said.push(std::mem::take(&mut blob)),
        [_, "Blobs", "BlobPrefix", "Name"] => said.push_prefix(std::mem::take(text)),
        [_, "NextMarker"] => said.token = std::mem::take(text),
        _ => {}
    })?;
    said.is_truncated = Some(!said.token.is_empty());
    Page::of(said, wanted)
}

/// Whether metadata marks a folder. Its name is case-insensitive.
fn is_folder_mark(name: &str, value: &str) -> bool {
    name.eq_ignore_ascii_case("hdi_isfolder") && value.trim().eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::object::page::NextPage;
    use crate::source::object::settings::tests::of_variables;

    /// A name, and what it means: account, container, key, signature.
    const NOTATIONS: &str = "\
        az://box/a b/c = None box 'a b/c' None
        az://box = None box '' None
        abfss://box@acc.dfs.core.windows.net/d/ = Some(\"acc\") box 'd/' None
        https://acc.blob.core.windows.net/box/a%20b = Some(\"acc\") box 'a b' None
        https://acc.blob.core.windows.net/box/a?sv=1&sig=x = Some(\"acc\") box 'a' Some(\"sv=1&sig=x\")";

    #[test]
    fn the_notations() {
        for row in NOTATIONS.lines() {
            let (text, wanted) = row.trim_start().split_once(" = ").expect(row);
            let place = read(text).expect(text);
            assert_eq!(place.is_url, text.starts_with("https"), "{text}");
            let account = place.account.map(|host| host.account);
            let (container, key, signature) = (place.container, place.key, place.signature);
            let found = format!("{account:?} {container} '{key}' {signature:?}");
            assert_eq!(found, wanted, "{text}");
        }
        for text in [
            "az://",
            "az:///k",
            "abfs://box@elsewhere/k",
            "az://u:canary@h/k",
        ] {
            let unfit = read(text).expect_err(text);
            assert!(!format!("{unfit:?}").contains("canary"), "{unfit:?}");
        }
    }

    #[test]
    fn urls_that_are_no_plain_blobs_are_left_to_http() {
        let is = |rest: &str| is_url(&format!("https://acc.blob.core.windows.net/{rest}"));
        assert!(is("box/a") && is("box/d/") && is("box/a?sv=1&sig=x"));
        assert!(!is("file.bin") && !is("box/a?snapshot=2024") && !is("box/a//b"));
        assert!(!is_url("https://example.org/box/a"));
    }

    fn connected_by(text: &str) -> ObjectSettings {
        of_variables(&[("AZURE_STORAGE_CONNECTION_STRING", text)])
    }

    /// A connection string of one account is no way to another, and a signature goes to the account that it is of.
    #[test]
    fn variables_of_one_account_are_not_for_another() {
        let settings =
            connected_by("BlobEndpoint=http://127.0.0.1:1;AccountName=one;AccountKey=Y2FuYXJ5");
        let named = |name: &str| {
            let place = read(name).expect(name);
            let account = place.account.as_ref().map(|host| host.account.clone());
            let account = account.or_else(|| own_account(&settings));
            place.named_endpoint(&account.expect("one"), &settings)
        };
        let own = Some("http://127.0.0.1:1".to_string());
        for (name, wanted) in [
            ("az://box/k", (own, true)),
            (
                "https://two.blob.core.windows.net/box/k?sig=x",
                (None, false),
            ),
            (
                "https://one.blob.core.windows.net/box/k?sig=x",
                (None, true),
            ),
            ("abfss://box@two.dfs.core.windows.net/k", (None, false)),
        ] {
            assert_eq!(named(name), wanted, "{name}");
        }
    }

    /// The endpoint and the account of an account's connection string, and where its cloud gives tokens.
    #[test]
    fn a_connection_string_names_account_and_cloud() {
        let rows = "\
            DefaultEndpointsProtocol=https;AccountName=one;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn \
                one https://one.blob.core.chinacloudapi.cn https://login.chinacloudapi.cn
            accountname=one;endpointsuffix=core.usgovcloudapi.net; one https://one.blob.core.usgovcloudapi.net https://login.microsoftonline.us
            AccountName=one;EndpointSuffix=core.cloudapi.de one https://one.blob.core.cloudapi.de https://login.microsoftonline.de
            AccountName=one;EndpointSuffix=core.windows.net one https://one.blob.core.windows.net -
            BlobEndpoint=https://one.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x one https://one.blob.core.windows.net -
            UseDevelopmentStorage=true devstoreaccount1 http://127.0.0.1:10000/devstoreaccount1 -
            usedevelopmentstorage=TRUE;DevelopmentStorageProxyUri=http://azurite/ devstoreaccount1 http://azurite:10000/devstoreaccount1 -";
        for row in rows.lines() {
            let [text, account, endpoint, authority] =
                row.split_whitespace().collect::<Vec<_>>()[..]
            else {
                panic!("{row}")
            };
            let settings = connected_by(text);
            let own = own_account(&settings).expect(text);
            let place = read("az://box/k").expect("a name");
            let (named, is_own) = place.named_endpoint(&own, &settings);
            let named = named.expect(text);
            assert_eq!(
                (own.as_str(), named.as_str(), is_own),
                (account, endpoint, true)
            );
            let cloud = of_cloud(&settings, &named);
            let found = cloud.variable("AZURE_AUTHORITY_HOST").unwrap_or("-");
            assert_eq!(found, authority, "{text}");
        }
    }

    #[test]
    fn accounts_of_each_cloud_are_known_by_their_hosts() {
        let rows = "\
            acc.dfs.core.windows.net acc.blob.core.windows.net
            ACC.DFS.core.chinacloudapi.cn acc.blob.core.chinacloudapi.cn
            acc.blob.core.usgovcloudapi.net acc.blob.core.usgovcloudapi.net
            acc.dfs.core.cloudapi.de acc.blob.core.cloudapi.de
            acc.z12.blob.storage.azure.net acc.z12.blob.storage.azure.net";
        for row in rows.lines() {
            let (host, blob) = row.trim_start().split_once(' ').expect(row);
            let found = AccountHost::of(host).expect(host);
            assert_eq!((found.account.as_str(), found.blob.as_str()), ("acc", blob));
            assert!(read(&format!("abfss://box@{host}/d/x")).is_ok(), "{host}");
        }
        let others =
            "core.windows.net blob.core.windows.net acc.file.core.windows.net acc.blob.example.org";
        for host in others.split(' ') {
            assert_eq!(AccountHost::of(host), None, "{host}");
        }
    }

    #[test]
    fn a_page_has_blobs_prefixes_and_a_marker() {
        let body = "\u{feff}<?xml version=\"1.0\"?><EnumerationResults><Blobs><Blob><Name>d/a</Name><Properties>\
            <Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified><Etag>0x8D</Etag><Content-Length>7</Content-Length>\
            </Properties></Blob><Blob><Name>d/sub</Name><Properties><ResourceType>directory</ResourceType>\
            <Content-Length>0</Content-Length></Properties></Blob><BlobPrefix><Name>d/sub/</Name></BlobPrefix><Blob><Name>d/void</Name>\
            <Properties><Content-Length>0</Content-Length></Properties><Metadata><Hdi_isfolder>true</Hdi_isfolder></Metadata></Blob></Blobs>\
            <NextMarker>m</NextMarker></EnumerationResults>";
        let wanted = PageRequest {
            prefix: "d/".to_string(),
            most: 10,
            next: NextPage::End,
        };
        let page = page(body.as_bytes(), &wanted).expect("a page");
        let object = &page.objects[0];
        assert_eq!((object.location.as_ref(), object.size), ("d/a", 7));
        assert_eq!(object.e_tag.as_deref(), Some("0x8D"));
        assert_eq!(page.folders, ["d/sub", "d/void", "d/sub"]);
        assert_eq!((page.objects.len(), page.next.token()), (1, Some("m")));
    }
}
