//! How the values of arguments are read. Never: accepts what only looks like one.

use foreread_core::units::{PageSize, SizeError, parse_size};
use foreread_lab::report::Price;

/// A number of bytes: `512`, `128K`, `2G`.
pub fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("nothing can be done with zero bytes".to_string()),
        Ok(bytes) => Ok(bytes),
        Err(SizeError::NotASize) => Err("it is not a size such as 512, 128K or 2G".to_string()),
        Err(SizeError::TooLarge) => Err("it is too large; a file has at most 4194304T".to_string()),
    }
}

/// What `--price` takes.
pub fn price(text: &str) -> Result<Box<Price>, String> {
    Price::parse(text).map(Box::new).map_err(|error| error.to_string())
}

/// A cache page.
pub fn page_size(text: &str) -> Result<PageSize, String> {
    PageSize::new(size(text)?).ok_or_else(|| "it is not a power of two from 512 to 1M".to_string())
}
