//! The pages of a listing, one after the other, to an end that comes.
//!
//! A server may give fewer than 1000 keys a page, also none (S3 does so where many objects were deleted), but not without end. A listing
//! has a time in all, which grows with its names, and a time in which a new name must come; it may not come back to where it was. Never:
//! takes a page that is missing for the end.
//!
//! ```text
//!   page ──token──► page ──key──► page ──► End
//!              │            └─ a key that is not behind that one: the server does not know start-after
//!              └─ one that it gave before
//! ```
//! Example: a bucket of 1,000,000 objects has 1,000 pages. They may take 60 s and 2 ms for each name, 34 minutes; one that gives an empty
//! page every 8 s ends after the fourth.

use super::fetch::{self, Tries};
use super::page::{Next, Page, Wanted};
use super::refusal::{Refusal, one_line};
use super::settings::ObjectSettings;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::timeout;

/// Keys of one page: what S3 gives at most.
pub const MAX_KEYS: usize = 1000;
/// Pages of one listing.
const MAX_PAGES: usize = 1 << 14;
/// Time that a listing has for each name, beside the total: S3 sends a thousand in 0.2 s.
const TIME_OF_A_NAME: Duration = Duration::from_millis(2);
/// In units of the longest time from one byte to the next: how long a listing may go on without a new name.
const STALLS: u32 = 3;

/// See the head of this file.
pub struct Pages<'a> {
    s3: &'a AmazonS3,
    settings: &'a ObjectSettings,
    prefix: &'a str,
    most: usize,
    next: Option<Next>,
    pages: usize,
    /// What identifies the tokens so far.
    tokens: HashSet<u64>,
    hasher: RandomState,
    clock: Tries,
    /// Names so far, and when the last of them came.
    names: usize,
    named_at: Duration,
}

impl<'a> Pages<'a> {
    /// Keys that begin with `prefix`, those with a `/` behind that as one; at most `most` keys a page, and from behind a key.
    pub fn new(
        s3: &'a AmazonS3,
        settings: &'a ObjectSettings,
        prefix: &'a str,
        most: usize,
        after: Option<String>,
    ) -> Pages<'a> {
        let (next, clock) = (
            Some(after.map_or(Next::End, Next::After)),
            Tries::within(settings.total),
        );
        let (tokens, hasher) = (HashSet::new(), RandomState::new());
        let (names, named_at) = (0, Duration::ZERO);
        Pages {
            s3,
            settings,
            prefix,
            most,
            next,
            pages: 0,
            tokens,
            hasher,
            clock,
            names,
            named_at,
        }
    }

    /// The caller has this many names now.
    pub fn named(&mut self, names: usize) {
        if names > self.names {
            (self.names, self.named_at) = (names, self.clock.elapsed());
        }
    }

    /// The next page; nothing behind the last.
    pub async fn next(&mut self) -> Result<Option<Page>, Refusal> {
        let Some(next) = self.next.take() else {
            return Ok(None);
        };
        let total = self.settings.total
            + TIME_OF_A_NAME.saturating_mul(u32::try_from(self.names).unwrap_or(u32::MAX));
        let left = total.saturating_sub(self.clock.elapsed());
        let page = timeout(left, self.page(&next))
            .await
            .unwrap_or(Err(Refusal::Total(total)))?;
        self.pages += 1;
        self.check(&next, &page)?;
        self.next = Some(page.next.clone()).filter(|next| *next != Next::End);
        Ok(Some(page))
    }

    /// Is a page behind the one before it, and may another follow?
    fn check(&mut self, next: &Next, page: &Page) -> Result<(), Refusal> {
        if let (Next::After(key), Some(first), true) = (next, &page.first, self.pages > 1)
            && first <= key
        {
            let key = one_line(key);
            return Err(Refusal::Endless(format!(
                "IsTruncated is true without a token, and behind \"{key}\" the server gives the same keys again \
                 (it does not know start-after)"
            )));
        }
        match &page.next {
            Next::End => return Ok(()),
            Next::Token(token) if !self.tokens.insert(self.hasher.hash_one(token)) => {
                let token = one_line(token);
                return Err(Refusal::Endless(format!(
                    "the server gives the token \"{token}\" a second time"
                )));
            }
            _ => {}
        }
        if self.pages == MAX_PAGES {
            return Err(Refusal::TooMany(format!(
                "the listing has more than {MAX_PAGES} pages"
            )));
        }
        let patience = self.settings.stall.saturating_mul(STALLS);
        if self.clock.elapsed().saturating_sub(self.named_at) >= patience {
            return Err(Refusal::NoNames(patience));
        }
        Ok(())
    }

    async fn page(&self, next: &Next) -> Result<Page, Refusal> {
        let mut options = PaginatedListOptions {
            delimiter: Some("/".into()),
            max_keys: Some(self.most),
            ..PaginatedListOptions::default()
        };
        match next {
            Next::End => {}
            Next::Token(token) => options.page_token = Some(token.clone()),
            Next::After(key) => options.offset = Some(key.clone()),
        }
        options.extensions.insert(Wanted {
            prefix: self.prefix.to_string(),
            most: self.most,
        });
        let prefix = Some(self.prefix).filter(|prefix| !prefix.is_empty());
        let mut tries = Tries::within(self.settings.total);
        loop {
            let limit = self.settings.first_byte + self.settings.stall;
            let page = timeout(limit, self.s3.list_paginated(prefix, options.clone())).await;
            let page = page.map_err(|_| Refusal::FirstByte(limit));
            match page.and_then(|page| page.map_err(|error| Refusal::of(&error))) {
                Ok(mut answer) => return Ok(answer.result.extensions.remove().unwrap_or_default()),
                Err(refusal) => fetch::pause(self.settings, &refusal, &mut tries).await?,
            }
        }
    }
}
