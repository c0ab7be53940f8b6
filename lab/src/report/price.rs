//! What reading costs in money: a price for each request and one for each byte that leaves the source.
//!
//! Written `requests=USD,gb=USD` or by the name of a list price. Price lists change, so a list price bears the month
//! it was written down in its name and is never brought up to date: a newer one is a new row of [`LIST_PRICES`].
//!
//! Never: a currency but the US dollar, tiers, minimum charges or the price of storing.

use foreread_core::notation;
use foreread_os::failure::Failure;
use serde::{Deserialize, Serialize};

const REQUESTS_PER_UNIT: f64 = 1e6;
const BYTES_PER_GB: f64 = 1e9;

/// Above this a price is a typing error, and sums stay far from infinity below it.
const HIGHEST: f64 = 1e9;

/// What requests and bytes cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// As it was written.
    pub name: String,
    /// USD for a million requests. Lists that give 1,000 requests for 0.0004 USD mean 0.40.
    pub usd_per_million_requests: f64,
    /// USD for 10^9 bytes.
    pub usd_per_gb: f64,
    /// Where the figures are from; empty where they were written out.
    pub origin: String,
}

/// A price list's row, by the month in which it was written down.
struct ListPrice {
    name: &'static str,
    usd_per_million_requests: f64,
    usd_per_gb: f64,
    origin: &'static str,
}

/// What has a name.
const LIST_PRICES: &[ListPrice] = &[
    ListPrice {
        name: "s3-2026-11",
        usd_per_million_requests: 0.40,
        usd_per_gb: 0.0,
        origin: "S3 Standard, us-east-1, GET, read in the same region: list price as generally known, check yours",
    },
    ListPrice {
        name: "s3-internet-2026-11",
        usd_per_million_requests: 0.40,
        usd_per_gb: 0.09,
        origin: "S3 Standard, us-east-1, GET, out to the internet, first tier: list price as generally known, check yours",
    },
];

impl Price {
    /// Reads `requests=USD,gb=USD`, either of them alone, or the name of a list price.
    ///
    /// # Errors
    /// An unknown name or key, a key twice, a value that is not a number from 0 to 10^9.
    pub fn parse(text: &str) -> Result<Price, Failure> {
        if let Some(list) = LIST_PRICES.iter().find(|p| p.name == text) {
            return Ok(Price {
                name: list.name.to_string(),
                usd_per_million_requests: list.usd_per_million_requests,
                usd_per_gb: list.usd_per_gb,
                origin: list.origin.to_string(),
            });
        }
        let refuse = |what: String| {
            let known: Vec<&str> = LIST_PRICES.iter().map(|p| p.name).collect();
            let known = known.join(", ");
            let remedy =
                format!("write requests=USD,gb=USD (a million requests, 10^9 bytes) or {known}");
            Failure::input(what, "", remedy)
        };
        if text.split(',').any(|part| part.trim().is_empty()) {
            return Err(refuse("no price is given".into()));
        }
        if !text.contains('=') {
            return Err(refuse(format!("unknown name '{text}'")));
        }
        let (mut usd_per_million_requests, mut usd_per_gb) = (0.0, 0.0);
        for (key, value) in notation::pairs(text).map_err(|error| refuse(error.to_string()))? {
            let number = value
                .parse()
                .ok()
                .filter(|n: &f64| (0.0..=HIGHEST).contains(n) && n.is_sign_positive());
            let number = number.ok_or_else(|| {
                refuse(format!("'{value}' is not a number from 0 to {HIGHEST:e}"))
            })?;
            match key.as_str() {
                "requests" => usd_per_million_requests = number,
                "gb" => usd_per_gb = number,
                _ => return Err(refuse(format!("unknown key '{key}'"))),
            }
        }
        Ok(Price {
            name: text.to_string(),
            usd_per_million_requests,
            usd_per_gb,
            origin: String::new(),
        })
    }

    /// What this many requests and bytes cost, in USD.
    #[must_use]
    pub fn usd(&self, requests: u64, bytes: u64) -> f64 {
        requests as f64 / REQUESTS_PER_UNIT * self.usd_per_million_requests
            + bytes as f64 / BYTES_PER_GB * self.usd_per_gb
    }
}

/// For the line beneath a table.
impl std::fmt::Display for Price {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Price {
            name,
            usd_per_million_requests: requests,
            usd_per_gb: gb,
            origin,
        } = self;
        write!(
            f,
            "{requests} USD for a million reads of the source, {gb} USD for 10^9 bytes"
        )?;
        if origin.is_empty() {
            Ok(())
        } else {
            write!(f, " ({name}: {origin})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_requests_and_bytes() {
        let price = Price::parse("requests=0.40,gb=0.09").expect("a price");
        // 2.5 million requests are 1 USD, 3 GB are 27 cents.
        assert!((price.usd(2_500_000, 3_000_000_000) - 1.27).abs() < 1e-12);
        assert!(
            (Price::parse("gb=1")
                .expect("one key")
                .usd(u64::MAX, 500_000_000)
                - 0.5)
                .abs()
                < 1e-12
        );
        assert!(
            (Price::parse("requests=1")
                .expect("one key")
                .usd(500_000, u64::MAX)
                - 0.5)
                .abs()
                < 1e-12
        );
    }

    #[test]
    fn list_prices_say_where_they_are_from() {
        for list in LIST_PRICES {
            let price = Price::parse(list.name).expect("its own name");
            assert!(price.to_string().contains("check yours"), "{price}");
            assert!(
                list.name.ends_with("-2026-11"),
                "{}: named after its month",
                list.name
            );
        }
        let s3 = |name| {
            Price::parse(name)
                .expect("a list price")
                .usd(1000, 1_000_000_000)
        };
        assert!(
            (s3("s3-2026-11") - 0.0004).abs() < 1e-12
                && (s3("s3-internet-2026-11") - 0.0904).abs() < 1e-12
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_known() {
        for (text, part) in [
            ("", "no price is given"),
            ("requests=1,", "no price is given"),
            ("requests=1,gb", "'gb' in 'requests=1,gb' is not key=value"),
            ("s3", "unknown name 's3'"),
            ("reqests=1", "unknown key 'reqests'"),
            ("=1", "'=1' in '=1' is not key=value"),
            ("requests=", "'' is not a number"),
            ("requests=-1", "'-1' is not a number"),
            ("requests=-0", "'-0' is not a number"),
            ("gb=NaN", "'NaN' is not a number"),
            ("gb=inf", "'inf' is not a number"),
            ("gb=1e300", "'1e300' is not a number"),
            ("gb=1,gb=1", "'gb=1' in 'gb=1,gb=1' sets 'gb' a second time"),
        ] {
            let error = Price::parse(text).expect_err(text).to_string();
            assert!(
                error.contains(part) && error.contains("s3-2026-11, s3-internet-2026-11"),
                "{error}"
            );
        }
    }
}
