//! What a server means by a code and a message, where both together name a remedy.
//!
//! Example: 403 `AccessDenied` with "... is not authorized to perform: kms:Decrypt" is about the key of the object, not about the object.

/// The letters of a text in lower case, for words that servers write in several ways.
pub(super) fn letters(text: &str) -> String {
    let letters = text.chars().filter(char::is_ascii_alphabetic);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Known refusals, recognised by the servers' messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The decryption key must be sent with each request: SSE-C, and the equivalents of Google and Azure.
    RequestKey,
    /// The caller may not use the decryption key, or the key is disabled.
    ServiceKey,
    /// The bucket must be in the host name.
    VirtualHost,
}

/// Letters of codes and messages, and their meaning. Source: error responses of S3, Google Cloud Storage and Azure Blob
/// Storage; of OSS, COS, OBS and TOS.
const MEANINGS: [(&str, Meaning); 12] = [
    ("serversideencryption", Meaning::RequestKey),
    ("customerencryptionkey", Meaning::RequestKey),
    ("customerspecifiedencryption", Meaning::RequestKey),
    ("customerprovidedkey", Meaning::RequestKey),
    ("kmsdecrypt", Meaning::ServiceKey),
    ("kmskey", Meaning::ServiceKey),
    ("awskms", Meaning::ServiceKey),
    ("keyvault", Meaning::ServiceKey),
    ("virtualhost", Meaning::VirtualHost),
    ("virtualstyle", Meaning::VirtualHost),
    ("leveldomain", Meaning::VirtualHost),
    ("pathstyle", Meaning::VirtualHost),
];

impl Meaning {
    pub(super) fn of(code: &str, message: &str) -> Option<Meaning> {
        // KMS.DisabledException
        if code.starts_with("KMS.") {
            return Some(Meaning::ServiceKey);
        }
        let text = letters(code) + " " + &letters(message);
        let found = MEANINGS.iter().find(|(words, _)| text.contains(words));
        found.map(|(_, meaning)| *meaning)
    }

    pub(super) fn remedy(self) -> &'static str {
        match self {
            Meaning::RequestKey => {
                "copy the object so that the store manages its key (SSE-S3, SSE-KMS): foreread does not support keys sent by the client (SSE-C)"
            }
            Meaning::ServiceKey => {
                "allow these credentials to decrypt with the object's key (kms:Decrypt), and check that the key is enabled"
            }
            Meaning::VirtualHost => {
                "set AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true: this server expects the bucket as part of the host name"
            }
        }
    }
}
