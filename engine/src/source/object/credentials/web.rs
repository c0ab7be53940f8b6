//! Requests to credential services: token services, and the metadata service of a machine.
//!
//! ```text
//!   of a machine   http, no proxy; 10 s if a setting specifies it, 1 s if the firmware indicates it, else 40 ms
//!   others         https, with the proxies and certificates of the environment, 10 s
//! ```
//! This module never follows a redirect, never reads more than 64 KiB of a reply, and never includes a reply in an error.

use crate::source::object::authorities;
use crate::source::object::refusal::{Unfit, line_of, one_line};
use foreread_os::host::Host;
use foreread_os::open::read_small_text;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use url::form_urlencoded;

/// Time limit of a service that a setting specifies, or that is reached over a network.
const LIMIT: Duration = Duration::from_secs(10);
/// Time limit of the service of a machine.
const MACHINE_LIMIT: Duration = Duration::from_secs(1);
/// Time limit if nothing indicates that the machine has such a service. Chosen value: such services reply within 5 ms, and a
/// start without credentials should have no visible delay.
const GUESS_LIMIT: Duration = Duration::from_millis(40);
/// Maximum size of a reply.
const MAX_BYTES: usize = 64 << 10;
/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A reply of a service: its status and its text.
pub struct WebAnswer {
    pub status: u16,
    pub text: String,
}

/// How likely it is that the machine has a metadata service.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MachineService {
    /// A setting specifies the service.
    Named,
    /// The machine belongs to that cloud.
    Expected,
    Guessed,
}

impl MachineService {
    /// Decides how likely a metadata service is: the service is expected if the machine's firmware reports one of `makers` as the
    /// manufacturer. `is_named` is true if a setting specifies the service.
    pub fn of(is_named: bool, makers: &[&str]) -> MachineService {
        let maker = Host::here().maker();
        let says = makers.iter().any(|of| maker.contains(of));
        if is_named {
            MachineService::Named
        } else if says {
            MachineService::Expected
        } else {
            MachineService::Guessed
        }
    }

    fn limit(self) -> Duration {
        match self {
            MachineService::Named => LIMIT,
            MachineService::Expected => MACHINE_LIMIT,
            MachineService::Guessed => GUESS_LIMIT,
        }
    }

    /// Returns the time limit if it has passed without a reply and this machine should have a metadata service; otherwise `None`.
    pub fn was_late(self, begun: Instant) -> Option<Duration> {
        let is_late = self != MachineService::Guessed && begun.elapsed() >= self.limit();
        is_late.then(|| self.limit())
    }

    /// Returns an HTTP client for the metadata service.
    pub fn client(self) -> Result<Client, Unfit> {
        let builder = Client::builder().no_proxy().redirect(Policy::none());
        let builder = builder.connect_timeout(self.limit()).timeout(self.limit());
        made(authorities::trusted_by(builder, None)?.build())
    }
}

/// Returns an HTTP client for services that are reached over a network.
pub fn client(ca_file: Option<&Path>) -> Result<Client, Unfit> {
    let builder = Client::builder().redirect(Policy::none()).timeout(LIMIT);
    made(authorities::trusted_by(builder, ca_file)?.build())
}

fn made<T>(made: reqwest::Result<T>) -> Result<T, Unfit> {
    made.map_err(|error| Unfit::new(line_of(&error), "check SSL_CERT_FILE"))
}

/// Sends a request. An error is one line without the URL of the request, because the URL may contain a secret.
pub async fn send(request: RequestBuilder) -> Result<WebAnswer, String> {
    let line = |error: reqwest::Error| line_of(&error.without_url());
    let mut answer = request.send().await.map_err(line)?;
    let status = answer.status().as_u16();
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(line)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_BYTES {
            return Err(format!("the reply is longer than {MAX_BYTES} bytes"));
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| "the reply is not text".to_string())?;
    Ok(WebAnswer { status, text })
}

/// Returns the reply of the machine's metadata service. Returns `None` if this machine has no such service.
pub async fn good(request: RequestBuilder) -> Option<String> {
    let answer = send(request)
        .await
        .ok()
        .filter(|answer| answer.status == 200)?;
    Some(answer.text.trim().to_string())
}

/// Like [`good`], but parses the reply as JSON.
pub async fn good_json(request: RequestBuilder) -> Option<Value> {
    serde_json::from_str(&good(request).await?).ok()
}

/// Adds a form as the body of a request.
pub fn with_form(request: RequestBuilder, form: &[(&str, &str)]) -> RequestBuilder {
    let mut body = form_urlencoded::Serializer::new(String::new());
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    request.body(body.extend_pairs(form).finish())
}

/// Sends a request. The reply must be 200 and a JSON object.
pub async fn send_for_json(
    what: &str,
    request: RequestBuilder,
    remedy: &str,
) -> Result<Value, Unfit> {
    let unfit = |why: String| Unfit::new(format!("{what}: {why}"), remedy);
    let answer = send(request).await.map_err(unfit)?;
    let json = serde_json::from_str::<Value>(&answer.text).ok();
    if answer.status != 200 {
        // OAuth 2.0 (RFC 6749, 5.2) has an error code for it.
        let word = json.as_ref().and_then(|json| text(json, &["error"]));
        let word = word
            .map(|word| format!(" {}", one_line(word)))
            .unwrap_or_default();
        return Err(unfit(format!("it answered {}{word}", answer.status)));
    }
    json.filter(Value::is_object)
        .ok_or_else(|| unfit("its reply is not a JSON object".to_string()))
}

/// Sends a request whose reply has a token.
pub async fn send_for_token(
    what: &str,
    request: RequestBuilder,
    remedy: &str,
) -> Result<Token, Unfit> {
    Token::of(what, &send_for_json(what, request, remedy).await?, remedy)
}

pub fn text<'a>(json: &'a Value, path: &[&str]) -> Option<&'a str> {
    let found = path.iter().try_fold(json, |json, key| json.get(key));
    found?.as_str().filter(|text| !text.is_empty())
}

/// A token that a service has issued, and the number of seconds for which it is valid.
pub struct Token {
    pub token: String,
    pub expires: Option<SystemTime>,
}

impl Token {
    /// Parses a token in the format of OAuth 2.0 (RFC 6749, 5.1). Some services write the seconds as text.
    pub fn of(what: &str, json: &Value, remedy: &str) -> Result<Token, Unfit> {
        let token = text(json, &["access_token"]).filter(|token| is_header(token));
        let Some(token) = token else {
            let why = format!("{what}: the reply has no usable token");
            return Err(Unfit::new(why, remedy));
        };
        let seconds = json.get("expires_in");
        let seconds =
            seconds.and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
        let expires = seconds.map(super::in_seconds);
        Ok(Token {
            token: token.to_string(),
            expires,
        })
    }
}

/// Returns true if a text can be used in an HTTP header.
pub fn is_header(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Reads a file that contains a token or a key.
pub fn read_file(what: &str, path: &Path, remedy: &str) -> Result<String, Unfit> {
    read_small_text(path, MAX_FILE_BYTES)
        .map_err(|error| Unfit::new(format!("{what} {}: {error}", path.display()), remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6749 has a number; Azure's services for machines write a text.
    #[test]
    fn a_token_expires_as_its_service_says() {
        for (seconds, ends) in [
            (Value::from(3600), true),
            (Value::from("3600"), true),
            (Value::from("soon"), false),
            (Value::Null, false),
        ] {
            let json = serde_json::json!({"access_token": "t", "expires_in": seconds});
            let token = Token::of("a service", &json, "").expect("a token");
            let left = token.expires.map(|at| at.duration_since(SystemTime::now()));
            let is_hour = left.is_some_and(|left| left.is_ok_and(|left| left.as_secs() > 3000));
            assert_eq!(
                (token.expires.is_some(), is_hour),
                (ends, ends),
                "{seconds}"
            );
        }
    }
}
