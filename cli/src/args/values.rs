//! Parsers for argument values: sizes, times, addresses, hints. The parsers accept no trailing text.

#![cfg_attr(
    not(any(feature = "mount", feature = "serve")),
    allow(dead_code, reason = "servers alone take some of them")
)]

use foreread::{Advice, MIN_MEMORY_BYTES};
use foreread_core::units::{SizeError, parse_size};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Parses a number of bytes: `512`, `128K`, `2G`.
pub fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("it must be more than zero bytes".to_string()),
        Ok(bytes) => Ok(bytes),
        Err(SizeError::NotASize) => Err("it is not a size such as 512, 128K or 2G".to_string()),
        Err(_) => Err("it is too large; a file has at most 4194304T".to_string()),
    }
}

/// Parses the cache size of a server (`serve` or `mount`).
pub fn cache(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < MIN_MEMORY_BYTES {
        Err("a cache has at least 1M; sizes take K, M, G, T".to_string())
    } else {
        Ok(bytes)
    }
}

/// The hints that apply to all reads through an open file description.
const HINTS: [(&str, Advice); 3] = [
    ("normal", Advice::Normal),
    ("sequential", Advice::Sequential),
    ("random", Advice::Random),
];

/// Parses a hint that applies to all reads through an open file description.
pub fn hint(word: &str) -> Result<Advice, String> {
    let found = HINTS.iter().find(|(name, _)| *name == word);
    let hint = found.map(|(_, hint)| *hint);
    hint.ok_or_else(|| "it is not normal, sequential or random".to_string())
}

/// Returns the word for a hint.
pub fn hint_name(hint: Advice) -> &'static str {
    let found = HINTS.iter().find(|(_, known)| *known == hint);
    found.map_or("", |(name, _)| name)
}

/// Parses an address. If the text is only a port, the address is 127.0.0.1.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse()
        .map_err(|_| "write PORT or ADDRESS:PORT, such as 10809 or 192.0.2.1:10809".to_string())
}

/// Parses the duration of a measurement, 1s to 1h. A number without a unit means seconds.
#[cfg(feature = "lab")]
pub fn measuring(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => time(text)?,
    };
    if (1.0..=3600.0).contains(&time.as_secs_f64()) {
        Ok(time)
    } else {
        Err("from 1s to 1h".to_string())
    }
}

/// Parses the interval at which statistics or recordings are written.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|_| "write a time such as 5s or 1min".to_string())?;
    if time < Duration::from_millis(100) {
        Err("at least 100ms".to_string())
    } else {
        Ok(time)
    }
}

/// Maximum time to trust a listing. A mount that should ignore changes for longer must be remounted daily.
#[cfg(feature = "mount")]
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Parses a duration that may be zero.
#[cfg(feature = "mount")]
pub fn ttl(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|_| "write a time such as 5s, or 0s".to_string())?;
    if time > MAX_TTL {
        Err("at most 1day".to_string())
    } else {
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_an_address_is_local() {
        assert_eq!(
            address("10809").expect("a port").to_string(),
            "127.0.0.1:10809"
        );
        assert_eq!(
            address("0.0.0.0:1").expect("an address").to_string(),
            "0.0.0.0:1"
        );
        assert_eq!(
            address("[::1]:1").expect("an address").to_string(),
            "[::1]:1"
        );
        assert!(
            address("localhost:1").is_err() && address("99999").is_err() && address("").is_err()
        );
    }

    #[test]
    fn a_cache_of_five_bytes_is_a_slip() {
        assert_eq!(
            cache("5").map_err(|why| why.contains("at least 1M")),
            Err(true)
        );
        assert_eq!((cache("1M"), cache("2G")), (Ok(1 << 20), Ok(2 << 30)));
    }

    #[test]
    fn times() {
        assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
        #[cfg(feature = "lab")]
        assert_eq!(
            ["15", "1min", "500ms", "2h"].map(|text| measuring(text).ok()),
            [Some(15), Some(60), None, None].map(|time| time.map(Duration::from_secs))
        );
        assert!(time("1ms").is_err() && time("soon").is_err());
    }
}
