//! Credentials that can be renewed.

use futures_util::future::BoxFuture;
use std::time::Instant;

/// Renews what was refused.
pub trait Renew: Send + Sync {
    /// A request that was made at `asked` was refused: are there others since? Asks at most once a minute.
    fn renew(&self, asked: Instant) -> BoxFuture<'_, bool>;
}
