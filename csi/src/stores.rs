//! A table of the object stores that volumes can use (docs/stores.md).

/// A kind of object store that volumes can use.
pub struct VolumeStore {
    pub schemes: &'static [&'static str],
    /// If a Secret has all variables of one of these sets, it has the first link of the store's credential chain, so no other link
    /// is used.
    pub keys: &'static [&'static [&'static str]],
    /// Whether its chain ends with the machine's identity, whatever the Secret contains.
    pub asks_machine: bool,
    /// The variable that allows plain HTTP.
    allow_http: Option<&'static str>,
}

/// All stores. `http` is refused for inline volumes.
const STORES: [VolumeStore; 5] = [
    VolumeStore {
        schemes: &["s3"],
        keys: &[&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]],
        asks_machine: false,
        allow_http: Some("AWS_ALLOW_HTTP"),
    },
    VolumeStore {
        schemes: &["gs", "gcs"],
        keys: &[&["GOOGLE_APPLICATION_CREDENTIALS"]],
        asks_machine: false,
        allow_http: Some("GOOGLE_ALLOW_HTTP"),
    },
    VolumeStore {
        schemes: &["az", "abfs", "abfss"],
        keys: &[
            &["AZURE_STORAGE_KEY"],
            &["AZURE_STORAGE_SAS_TOKEN"],
            &["AZURE_STORAGE_CONNECTION_STRING"],
            &["AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"],
        ],
        asks_machine: true,
        allow_http: Some("AZURE_ALLOW_HTTP"),
    },
    VolumeStore {
        schemes: &["hf"],
        keys: &[&["HF_TOKEN"]],
        asks_machine: false,
        allow_http: Some("HF_ALLOW_HTTP"),
    },
    VolumeStore {
        schemes: &["https", "http"],
        keys: &[],
        asks_machine: false,
        allow_http: None,
    },
];

/// Environment variables that allow a store without TLS.
pub fn allow_http() -> impl Iterator<Item = &'static str> {
    STORES.iter().filter_map(|store| store.allow_http)
}

pub fn store_of(scheme: &str) -> Option<&'static VolumeStore> {
    STORES.iter().find(|store| store.schemes.contains(&scheme))
}
