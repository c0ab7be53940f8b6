//! The variables of OpenTelemetry that are read: their names and meaning are those of its specification.
//!
//! A value that means nothing is refused before anything begins. An empty one counts as not set.
//!
//! ```text
//!   OTEL_EXPORTER_OTLP_ENDPOINT=http://host:4318 ──► http://host:4318/v1/traces, .../v1/metrics
//!   OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=URL       ──► URL as it is
//! ```

use crate::fail::Fail;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const DEFAULT_NAME: &str = "foreread";
/// Slowest spans of a second that are kept by default.
const DEFAULT_SLOWEST: f64 = 20.0;
const MAX_SLOWEST: f64 = 1000.0;
/// Longest text that a key of a resource or of a header may have.
const MAX_TEXT: usize = 8 << 10;
const SAMPLERS: &str =
    "slowest, always_on, always_off, traceidratio, and each with parentbased_ before it";

/// Where one signal goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub url: Url,
    pub headers: HeaderMap,
}

/// Which spans are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    Off,
    All,
    /// This part of them, by lot.
    Ratio(f64),
    /// This number of each second, those that took longest.
    Slowest(usize),
}

/// The span of another program that this command is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentSpan {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub is_sampled: bool,
}

/// What the environment asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub traces: Option<Receiver>,
    pub metrics: Option<Receiver>,
    /// For one request.
    pub timeout: Duration,
    /// From one request of spans to the next.
    pub span_delay: Duration,
    /// Spans that wait, at most.
    pub queue_spans: usize,
    /// Spans of one request, at most.
    pub batch_spans: usize,
    /// From one request of metrics to the next.
    pub metric_interval: Duration,
    pub sampling: Sampling,
    /// A parent decides for what it is parent of.
    pub is_parent_based: bool,
    pub parent: Option<ParentSpan>,
    /// Attributes of all that is sent.
    pub resource: Vec<(String, String)>,
}

impl Settings {
    /// Nothing where no receiver is named, or telemetry is switched off.
    ///
    /// # Errors
    /// A value that means nothing.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Settings>, Fail> {
        let set = Variables(|name: &str| {
            variable(name)
                .map(|value| value.trim().to_string())
                .filter(|value| !value.is_empty())
        });
        if set
            .text("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
        {
            return Ok(None);
        }
        let (traces, metrics) = (set.receiver("TRACES")?, set.receiver("METRICS")?);
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        let sampler = set
            .text("OTEL_TRACES_SAMPLER")
            .unwrap_or_else(|| "parentbased_slowest".to_string());
        let (is_parent_based, rule) = match sampler.strip_prefix("parentbased_") {
            Some(rule) => (true, rule),
            None => (false, &sampler[..]),
        };
        let sampling = set.sampling(&sampler, rule)?;
        let queue_spans = set
            .whole("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?
            .clamp(1, 1 << 20);
        Ok(Some(Settings {
            traces,
            metrics,
            timeout: set.time("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)?,
            span_delay: set.time("OTEL_BSP_SCHEDULE_DELAY", 5_000)?,
            queue_spans,
            batch_spans: set
                .whole("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?
                .clamp(1, queue_spans),
            metric_interval: set.time("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?,
            sampling,
            is_parent_based,
            parent: set.text("TRACEPARENT").as_deref().and_then(parent),
            resource: set.resource()?,
        }))
    }

    /// Where it goes, for people: without user, password and query.
    pub fn place(&self) -> String {
        let mut places: Vec<String> = [&self.traces, &self.metrics]
            .into_iter()
            .flatten()
            .map(Receiver::place)
            .collect();
        places.dedup();
        places.join(" and ")
    }

    /// Whether the span of a whole command is sent.
    #[cfg(feature = "lab")]
    pub fn takes_command(&self, parent: Option<&ParentSpan>) -> bool {
        match parent {
            Some(parent) if self.is_parent_based => parent.is_sampled,
            // One span a command: a ratio is for what comes often.
            _ => self.sampling != Sampling::Off,
        }
    }
}

impl Receiver {
    /// Its address without what may be secret.
    pub fn place(&self) -> String {
        let url = &self.url;
        let port = url.port().map_or(String::new(), |port| format!(":{port}"));
        let host = url.host_str().unwrap_or_default();
        format!("{}://{host}{port}{}", url.scheme(), url.path())
    }
}

struct Variables<F>(F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    /// The variable of one signal, or that of all, and its name.
    fn of_signal(&self, signal: &str, what: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_{what}");
        let all = format!("OTEL_EXPORTER_OTLP_{what}");
        [own, all]
            .into_iter()
            .find_map(|name| Some((self.text(&name)?, name)))
    }

    fn receiver(&self, signal: &str) -> Result<Option<Receiver>, Fail> {
        let Some((text, name)) = self.of_signal(signal, "ENDPOINT") else {
            return Ok(None);
        };
        match self.text(&format!("OTEL_{signal}_EXPORTER")).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                let place = format!("OTEL_{signal}_EXPORTER={other}");
                return Err(Fail::input("no such exporter", place, "write otlp or none"));
            }
        }
        if let Some((protocol, name)) = self.of_signal(signal, "PROTOCOL")
            && protocol != "http/protobuf"
        {
            return Err(Fail::input(
                "no such protocol of telemetry here",
                format!("{name}={protocol}"),
                "write http/protobuf, and the port of OTLP over HTTP in the endpoint, which is 4318",
            ));
        }
        let mut url = endpoint(&text, &name)?;
        if name == ENDPOINT {
            let path = format!(
                "{}/v1/{}",
                url.path().trim_end_matches('/'),
                signal.to_lowercase()
            );
            url.set_path(&path);
        }
        let headers = match self.of_signal(signal, "HEADERS") {
            Some((text, name)) => headers(&text, &name)?,
            None => HeaderMap::new(),
        };
        Ok(Some(Receiver { url, headers }))
    }

    fn whole(&self, name: &str, otherwise: usize) -> Result<usize, Fail> {
        let Some(text) = self.text(name) else {
            return Ok(otherwise);
        };
        text.parse()
            .map_err(|_| Fail::input("no whole number", format!("{name}={text}"), "write digits"))
    }

    /// Milliseconds, at least one.
    fn time(&self, name: &str, otherwise_ms: usize) -> Result<Duration, Fail> {
        match self.whole(name, otherwise_ms)? as u64 {
            0 => Err(Fail::input(
                "no time",
                format!("{name}=0"),
                "write 1 or more milliseconds",
            )),
            ms => Ok(Duration::from_millis(ms)),
        }
    }

    fn sampling(&self, sampler: &str, rule: &str) -> Result<Sampling, Fail> {
        let argument = |otherwise: f64, most: f64| {
            const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
            let Some(text) = self.text(ARGUMENT) else {
                return Ok(otherwise);
            };
            let number = text.parse().ok().filter(|n| (0.0..=most).contains(n));
            let remedy = format!("write a number from 0 to {most} for {sampler}");
            number.ok_or_else(|| Fail::input("no such part", format!("{ARGUMENT}={text}"), remedy))
        };
        match rule {
            "always_on" => Ok(Sampling::All),
            "always_off" => Ok(Sampling::Off),
            "traceidratio" => argument(1.0, 1.0).map(Sampling::Ratio),
            "slowest" => match argument(DEFAULT_SLOWEST, MAX_SLOWEST)? as usize {
                0 => Ok(Sampling::Off),
                spans => Ok(Sampling::Slowest(spans)),
            },
            _ => Err(Fail::input(
                "no such sampler",
                format!("OTEL_TRACES_SAMPLER={sampler}"),
                format!("write one of {SAMPLERS}"),
            )),
        }
    }

    fn resource(&self) -> Result<Vec<(String, String)>, Fail> {
        const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let mut all = match self.text(ATTRIBUTES) {
            Some(text) => pairs(&text, ATTRIBUTES)?,
            None => Vec::new(),
        };
        if let Some(name) = self.text("OTEL_SERVICE_NAME") {
            all.retain(|(key, _)| key != "service.name");
            all.push(("service.name".to_string(), name));
        }
        let defaults = [
            ("service.name", DEFAULT_NAME.to_string()),
            ("service.version", env!("CARGO_PKG_VERSION").to_string()),
            // Two mounts of one machine have counters of the same names.
            ("service.instance.id", super::sender::instance_id()),
            ("process.pid", std::process::id().to_string()),
            ("telemetry.sdk.name", DEFAULT_NAME.to_string()),
            ("telemetry.sdk.language", "rust".to_string()),
            (
                "telemetry.sdk.version",
                env!("CARGO_PKG_VERSION").to_string(),
            ),
        ];
        for (key, value) in defaults {
            if all.iter().all(|(known, _)| known != key) {
                all.push((key.to_string(), value));
            }
        }
        Ok(all)
    }
}

fn endpoint(text: &str, name: &str) -> Result<Url, Fail> {
    let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let url = Url::parse(text).ok().filter(is_http);
    let remedy = "write a URL such as http://localhost:4318";
    // The text may hold a password: only a URL is known to be redacted.
    let url = url.ok_or_else(|| Fail::input("no URL of a receiver", name, remedy))?;
    if url.scheme() == "https" && cfg!(not(feature = "tls")) {
        let remedy = "write http://, or build it with the feature tls";
        return Err(Fail::input("this build has no TLS", name, remedy));
    }
    Ok(url)
}

fn headers(text: &str, name: &str) -> Result<HeaderMap, Fail> {
    let mut headers = HeaderMap::new();
    for (key, value) in pairs(text, name)? {
        let header = HeaderName::try_from(key)
            .ok()
            .zip(HeaderValue::try_from(value).ok());
        let (key, mut value) = header.ok_or_else(|| {
            // Without the text: of `Authorization: KEY==` the key is before the first '='.
            let remedy = "write KEY=VALUE,KEY=VALUE, not KEY: VALUE";
            Fail::input("no header of HTTP", name, remedy)
        })?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

/// `key=value,key=value`, the values percent-encoded.
fn pairs(text: &str, name: &str) -> Result<Vec<(String, String)>, Fail> {
    let remedy = "write KEY=VALUE,KEY=VALUE, with %2C for a comma";
    // Without the text: a header may be a key of an account.
    let wrong = || Fail::input("no list of pairs", name, remedy);
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        let value = decoded(value.trim()).ok_or_else(wrong)?;
        let key = key.trim().to_string();
        let fits = !key.is_empty() && key.len() + value.len() <= MAX_TEXT;
        fits.then_some((key, value)).ok_or_else(wrong)
    };
    text.split(',')
        .filter(|part| !part.trim().is_empty())
        .map(pair)
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

/// `00-TRACE-SPAN-FLAGS` of W3C Trace Context. One that is wrong counts as none, as that document asks.
fn parent(text: &str) -> Option<ParentSpan> {
    let mut parts = text.split('-');
    let [version, trace, span, flags] = [(); 4].map(|()| parts.next());
    let [version] = hex::<1>(version?)?;
    // Later versions may have more parts.
    let is_known = version != 0xff && (version > 0 || parts.next().is_none());
    let [flags] = hex::<1>(flags?)?;
    let parent = ParentSpan {
        trace: hex(trace?)?,
        span: hex(span?)?,
        is_sampled: flags & 1 == 1,
    };
    let is_valid = is_known && parent.trace != [0; 16] && parent.span != [0; 8];
    is_valid.then_some(parent)
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    if text.len() != 2 * N || !text.bytes().all(is_hex) {
        return None;
    }
    let mut bytes = [0; N];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fail::input_line;

    fn of(set: &[(&str, &str)]) -> Result<Option<Settings>, Fail> {
        Settings::of(|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_string())
        })
    }

    #[test]
    fn variables_mean_what_their_specification_says() {
        assert_eq!(of(&[]).expect("fine"), None);
        assert_eq!(of(&[(ENDPOINT, " ")]).expect("fine"), None);
        let off = [(ENDPOINT, "http://h:4318"), ("OTEL_SDK_DISABLED", "true")];
        assert_eq!(of(&off).expect("fine"), None);
        let settings = of(&[
            (ENDPOINT, "http://h:4318/base/"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:1/own"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb, x = 1"),
            ("OTEL_SERVICE_NAME", "data"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=other,team=storage",
            ),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_BSP_SCHEDULE_DELAY", "250"),
        ]);
        let settings = settings.expect("fine").expect("on");
        assert_eq!(
            settings.place(),
            "http://h:4318/base/v1/traces and http://m:1/own"
        );
        let headers = settings.traces.expect("on").headers;
        let headers = headers
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_bytes()));
        assert_eq!(
            Vec::from_iter(headers),
            [("api-key", "a,b"), ("x", "1")].map(|(k, v)| (k, v.as_bytes()))
        );
        assert_eq!(settings.sampling, Sampling::Ratio(0.25));
        assert!(settings.is_parent_based);
        assert_eq!(settings.span_delay, Duration::from_millis(250));
        let value = |key: &str| {
            let mut found = settings.resource.iter().filter(|(known, _)| known == key);
            let value = found.next().map(|(_, value)| value.clone());
            assert!(found.next().is_none(), "{key} twice");
            value
        };
        assert_eq!(value("service.name").as_deref(), Some("data"));
        assert_eq!(value("team").as_deref(), Some("storage"));
        assert!(value("service.instance.id").is_some());
        let only = [(ENDPOINT, "http://h"), ("OTEL_TRACES_EXPORTER", "none")];
        let only = of(&only).expect("fine").expect("on");
        assert!(only.traces.is_none() && only.metrics.is_some());
        assert_eq!(only.sampling, Sampling::Slowest(20));
    }

    #[test]
    fn a_value_that_means_nothing_is_refused_with_a_remedy() {
        let on = (ENDPOINT, "http://h:4318");
        for (set, want) in [
            (vec![(ENDPOINT, "localhost:4318")], "http://localhost:4318"),
            (
                vec![("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector")],
                "http://localhost:4318",
            ),
            (vec![on, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "4318"),
            (
                vec![on, ("OTEL_TRACES_SAMPLER", "some")],
                "slowest, always_on",
            ),
            (
                vec![on, ("OTEL_TRACES_SAMPLER_ARG", "-1")],
                "from 0 to 1000",
            ),
            (vec![on, ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")], "digits"),
            (
                vec![on, ("OTEL_EXPORTER_OTLP_HEADERS", "secret")],
                "KEY=VALUE",
            ),
            (
                vec![
                    on,
                    (
                        "OTEL_EXPORTER_OTLP_HEADERS",
                        "Authorization: Bearer secret==",
                    ),
                ],
                "not KEY: VALUE",
            ),
            (
                vec![on, ("OTEL_EXPORTER_OTLP_HEADERS", "x=%+1")],
                "KEY=VALUE",
            ),
            (vec![on, ("OTEL_BSP_SCHEDULE_DELAY", "0")], "1 or more"),
            (
                vec![on, ("OTEL_METRICS_EXPORTER", "prometheus")],
                "otlp or none",
            ),
        ] {
            let line = input_line(of(&set));
            assert!(line.contains(want), "{line}");
            assert!(!line.contains("secret"), "{line}");
        }
    }

    #[test]
    fn a_parent_is_read_as_w3c_has_it() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let found = parent(good).expect("a parent");
        assert_eq!(found.span, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert!(found.is_sampled);
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
            "zz-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parent(wrong), None, "{wrong}");
        }
    }
}
