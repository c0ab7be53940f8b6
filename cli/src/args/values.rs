//! How the values of arguments are read. Never: accepts what only looks like one.

use foreread_core::units::{PageSize, SizeError, parse_size};
use foreread_lab::report::Price;
use std::time::Duration;

/// A number of bytes: `512`, `128K`, `2G`.
pub fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("nothing can be done with zero bytes".to_string()),
        Ok(bytes) => Ok(bytes),
        Err(SizeError::NotASize) => Err("it is not a size such as 512, 128K or 2G".to_string()),
        Err(SizeError::TooLarge) => Err("it is too large; a file has at most 4194304T".to_string()),
    }
}

/// How often something is said.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|_| "write a time such as 5s or 1min".to_string())?;
    if time < Duration::from_millis(100) { Err("at least 100ms".to_string()) } else { Ok(time) }
}

/// What `--price` takes.
pub fn price(text: &str) -> Result<Box<Price>, String> {
    Price::parse(text).map(Box::new).map_err(|error| error.to_string())
}

/// A cache page.
pub fn page_size(text: &str) -> Result<PageSize, String> {
    PageSize::new(size(text)?).ok_or_else(|| "it is not a power of two from 512 to 1M".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
        assert!(time("1ms").is_err() && time("soon").is_err());
    }
}
