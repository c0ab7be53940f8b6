//! Credentials for stores: each kind of store finds them by its own chain; they are shared in a process, and renewed before they
//! expire.
//!
//! A chain is a list of places to search, such as variables, files and the metadata service of a machine; foreread uses the first
//! place that has credentials. Each place is a link of the chain. The chain is searched when a store is opened, with a time
//! limit. Reads do not search the chain as long as the credentials are valid. A secret is never shown, and never stored on disk.
//!
//! ```text
//!   open ──► Keeper ──► Chain: link, link, link ──► Found (credentials, the link's name, the time they expire)
//!   request ──► get ──┬─ valid: at once
//!                     ├─ expiring soon: used at once, and the chain is queried in the background
//!                     └─ expired (the machine slept): after the chain
//!   401, 403, ExpiredToken ──► renew, once a minute ──► new credentials: the request is retried
//! ```
//! Example: the role of a machine has credentials for six hours. Five minutes before they expire, the first request starts a
//! renewal and uses the old credentials without waiting.

pub mod aws;
pub mod azure;
pub mod google;
pub mod hosts;
mod process;
pub mod profile;
pub mod web;

use super::network;
use super::refusal::{Link, Refusal, Unfit};
use crate::sync::lock;
use futures_util::future::BoxFuture;
use object_store::CredentialProvider;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::time::timeout;
use url::Url;

/// Time limit of a whole chain. Chosen value: long enough for a slow process of the user; foreread never waits for a browser.
const CHAIN_LIMIT: Duration = Duration::from_secs(30);
/// Credentials are renewed this long before they expire, or at half of their lifetime if that is shorter.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// Minimum interval after a failed renewal, or one caused by a refusal.
const PAUSE: Duration = Duration::from_secs(60);

/// Pause after a failed chain.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// Credentials, with the place in the chain where they were found.
pub struct FoundCredential<C> {
    pub credential: C,
    pub link: Link,
    /// `None` if no expiry is known.
    pub expires: Option<SystemTime>,
}

impl<C> FoundCredential<C> {
    pub fn new(
        credential: C,
        link: impl Into<String>,
        expires: Option<SystemTime>,
        remedy: impl Into<String>,
    ) -> FoundCredential<C> {
        let (name, remedy) = (link.into().into(), remedy.into().into());
        FoundCredential {
            credential,
            link: Link { name, remedy },
            expires,
        }
    }
}

/// The result of searching a credential chain: an error if a place in the chain is configured but gives no valid credentials.
pub type ChainAnswer<C> = Result<Option<FoundCredential<C>>, Unfit>;

/// A list of places in which foreread searches for the credentials of one kind of store, from the first to the last.
pub trait Chain<C>: Send + Sync {
    /// The credentials of the first configured link. Returns `None` if no link is configured.
    fn find(&self) -> BoxFuture<'_, ChainAnswer<C>>;

    /// Why an expected link had no credentials.
    fn missing(&self) -> Option<Arc<str>> {
        None
    }
}

/// Holds the credentials that a chain has found, and renews them.
pub struct Keeper<C> {
    store: &'static str,
    chain: Box<dyn Chain<C>>,
    state: Mutex<State<C>>,
    /// Held while the chain is queried.
    asking: tokio::sync::Mutex<()>,
}

struct State<C> {
    held: Option<HeldCredential<C>>,
    /// The chain is being queried in the background.
    is_renewing: bool,
    /// When the chain was last queried because of a refusal.
    refused_at: Option<Instant>,
    /// When the credentials last changed.
    changed_at: Option<Instant>,
    /// When the chain last failed, and why.
    failed: Option<(Instant, Unfit)>,
}

struct HeldCredential<C> {
    credential: Arc<C>,
    link: Link,
    expires: Option<SystemTime>,
    renewed_from: Option<SystemTime>,
}

pub trait Renew: Send + Sync {
    /// A request made at `asked` was refused: returns whether there are newer credentials. Queries the chain at most once a
    /// minute.
    fn renew(&self, asked: Instant) -> BoxFuture<'_, bool>;

    /// The current credentials.
    fn link(&self) -> Option<Link>;
}

type Answer<'a, C> = BoxFuture<'a, object_store::Result<Arc<C>>>;

/// Passes the credentials that a `Keeper` holds to the library object_store.
pub struct Provider<C>(pub Arc<Keeper<C>>);

/// Returns the `Keeper` for a chain. All stores in this process with an equal `key` share one `Keeper`. Returns `None` if the
/// chain finds no credentials.
pub fn keeper<C, H>(
    store: &'static str,
    key: impl Hash,
    chain: impl FnOnce() -> H,
) -> Result<Option<Arc<Keeper<C>>>, Unfit>
where
    C: Send + Sync + PartialEq + 'static,
    H: Chain<C> + 'static,
{
    let key = identified(store, key);
    if network::hold().has_none(key, PAUSE) {
        return Ok(None);
    }
    let keeper = network::hold().keeper(key, || Keeper::new(store, Box::new(chain())));
    if lock(&keeper.state).held.is_none() {
        let found = network::wait(keeper.ask());
        found.map_err(|refusal| Unfit::new(refusal.to_string(), "try again"))??;
    }
    let has_some = lock(&keeper.state).held.is_some();
    if !has_some {
        network::hold().set_none(key, keeper.chain.missing());
    }
    Ok(has_some.then_some(keeper))
}

/// Returns the reason why an expected place had no credentials ([`Chain::missing`]), if the chain with this `key` found
/// none.
pub fn missing(store: &'static str, key: impl Hash) -> Option<Arc<str>> {
    network::hold().missing(identified(store, key))
}

fn identified(store: &'static str, key: impl Hash) -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEYS.hash_one((store, key))
}

/// Whether a URL refers to this machine.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns true if a secret may be sent to this URL: it must use https, or be on this machine.
pub fn is_private(url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && is_loopback(url)
}

/// The time `seconds` from now.
fn in_seconds(seconds: u64) -> SystemTime {
    // A century is enough for any token.
    SystemTime::now() + Duration::from_secs(seconds.min(100 * 365 * 86_400))
}

/// A time in milliseconds since 1970.
fn at_millis(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis.min(1 << 52))
}

/// A time such as 2026-01-02T03:04:05Z.
fn time_of(text: &str) -> Option<SystemTime> {
    let time = chrono::DateTime::parse_from_rfc3339(text).ok()?;
    Some(at_millis(u64::try_from(time.timestamp_millis()).ok()?))
}

impl<C: Send + Sync + PartialEq + 'static> Keeper<C> {
    fn new(store: &'static str, chain: Box<dyn Chain<C>>) -> Keeper<C> {
        Keeper {
            store,
            chain,
            state: Mutex::new(State {
                held: None,
                is_renewing: false,
                refused_at: None,
                changed_at: None,
                failed: None,
            }),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Returns credentials that are valid now.
    async fn get(self: &Arc<Self>) -> Result<Arc<C>, Unfit> {
        let now = SystemTime::now();
        let valid = {
            let mut state = lock(&self.state);
            let is_renewing = state.is_renewing;
            let valid = state.held.as_ref().filter(|held| held.is_valid(now));
            let is_due =
                valid.is_some_and(|held| held.renewed_from.is_some_and(|from| from <= now));
            let valid = valid.map(|held| Arc::clone(&held.credential));
            state.is_renewing |= is_due;
            if is_due && !is_renewing {
                let keeper = Arc::clone(self);
                tokio::spawn(async move {
                    keeper.renew_beside().await;
                });
            }
            valid
        };
        if let Some(credential) = valid {
            return Ok(credential);
        }
        self.ask().await?;
        let held = lock(&self.state)
            .held
            .as_ref()
            .map(|held| Arc::clone(&held.credential));
        held.ok_or_else(|| Unfit::new("its credentials are gone", "log in again"))
    }

    async fn renew_beside(&self) {
        let done = self.ask().await;
        let mut state = lock(&self.state);
        state.is_renewing = false;
        if let Err(unfit) = done {
            tracing::warn!(
                "cannot renew the credentials of {}: {}; {}",
                self.store,
                unfit.why,
                unfit.remedy
            );
            if let Some(held) = &mut state.held {
                held.renewed_from = Some(SystemTime::now() + PAUSE);
            }
        }
    }

    /// Queries the chain, unless another task has done so while this one waited. A chain that has just failed is not queried
    /// again.
    async fn ask(&self) -> Result<(), Unfit> {
        let begun = Instant::now();
        let before = lock(&self.state).changed_at;
        let _asking = self.asking.lock().await;
        if lock(&self.state).changed_at != before {
            return Ok(());
        }
        self.ask_in_turn(begun).await
    }

    /// The caller holds `asking`, since `begun` or shortly after.
    async fn ask_in_turn(&self, begun: Instant) -> Result<(), Unfit> {
        if let Some((at, unfit)) = &lock(&self.state).failed
            && (*at > begun || at.elapsed() < FAILED_FOR)
        {
            return Err(unfit.clone());
        }
        let late = || {
            let why = format!("no credentials came within {CHAIN_LIMIT:?}");
            let remedy = "check the service or the process that provides them";
            Err(Unfit::new(why, remedy))
        };
        let found = timeout(CHAIN_LIMIT, self.chain.find()).await;
        let done = match found.unwrap_or_else(|_| late()) {
            Ok(Some(found)) => {
                self.hold(found);
                Ok(())
            }
            Ok(None) if lock(&self.state).held.is_some() => {
                let why = "no source in the credential chain provides credentials any more";
                Err(Unfit::new(why, "log in again"))
            }
            Ok(None) => Ok(()),
            Err(unfit) => Err(unfit),
        };
        if let Err(unfit) = &done {
            lock(&self.state).failed = Some((Instant::now(), unfit.clone()));
        }
        done
    }

    fn hold(&self, found: FoundCredential<C>) {
        let now = SystemTime::now();
        let mut state = lock(&self.state);
        let left = found.expires.and_then(|at| at.duration_since(now).ok());
        let expires_in = left.map(|left| left.as_secs());
        tracing::info!(
            expires_in,
            "credentials of {}: {}",
            self.store,
            found.link.name
        );
        // Credentials that seem expired already indicate a wrong clock: the store may accept them.
        let expires = left.map(|left| now + left);
        let renewed_from = left.map(|left| now + left - RENEWED_BEFORE.min(left / 2));
        let is_other = state
            .held
            .as_ref()
            .is_none_or(|held| *held.credential != found.credential);
        if is_other {
            state.changed_at = Some(Instant::now());
        }
        state.held = Some(HeldCredential {
            credential: Arc::new(found.credential),
            link: found.link,
            expires,
            renewed_from,
        });
    }
}

impl<C> HeldCredential<C> {
    fn is_valid(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

impl<C: Send + Sync + PartialEq + 'static> Renew for Keeper<C> {
    fn renew(&self, asked: Instant) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            // If several requests are refused at the same time, one queries the chain. The others wait here, and then find new
            // credentials.
            let begun = Instant::now();
            let _asking = self.asking.lock().await;
            let may_ask = {
                let mut state = lock(&self.state);
                let is_other = state.changed_at.is_some_and(|at| at > asked);
                let may = !is_other && state.refused_at.is_none_or(|at| at.elapsed() > PAUSE);
                if may {
                    state.refused_at = Some(Instant::now());
                }
                may
            };
            if may_ask && let Err(unfit) = self.ask_in_turn(begun).await {
                tracing::warn!("credentials of {} are refused: {}", self.store, unfit.why);
            }
            lock(&self.state).changed_at.is_some_and(|at| at > asked)
        })
    }

    fn link(&self) -> Option<Link> {
        let state = lock(&self.state);
        state.held.as_ref().map(|held| held.link.clone())
    }
}

impl<C> std::fmt::Debug for Provider<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Provider")
    }
}

impl<C: Send + Sync + PartialEq + 'static> CredentialProvider for Provider<C> {
    type Credential = C;

    fn get_credential<'a, 'b>(&'a self) -> Answer<'b, C>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            self.0
                .get()
                .await
                .map_err(|unfit| object_store::Error::Generic {
                    store: self.0.store,
                    source: Box::new(Refusal::NoCredentials {
                        why: unfit.why,
                        remedy: unfit.remedy,
                    }),
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Gives 1, 2, 3 ...; each is valid for as long as it says.
    struct Counting {
        given: Arc<AtomicU64>,
        valid: Duration,
        fails_from: u64,
    }

    impl Chain<u64> for Counting {
        fn find(&self) -> BoxFuture<'_, ChainAnswer<u64>> {
            let n = self.given.fetch_add(1, Ordering::Relaxed) + 1;
            Box::pin(std::future::ready(if n >= self.fails_from {
                Err(Unfit::new("no more", "none"))
            } else {
                let expires = Some(SystemTime::now() + self.valid);
                Ok(Some(FoundCredential::new(n, "a counter", expires, "")))
            }))
        }
    }

    fn keeper_of(key: u64, valid: Duration, fails_from: u64) -> (Arc<Keeper<u64>>, Arc<AtomicU64>) {
        let given = Arc::new(AtomicU64::new(0));
        let chain = Counting {
            given: Arc::clone(&given),
            valid,
            fails_from,
        };
        let keeper = keeper("test", key, || chain).expect("found").expect("some");
        (keeper, given)
    }

    fn get(keeper: &Arc<Keeper<u64>>) -> Result<u64, Unfit> {
        network::wait(keeper.get())
            .expect("threads")
            .map(|credential| *credential)
    }

    /// As a clock that was set, or a machine that slept.
    fn expire(keeper: &Keeper<u64>) {
        if let Some(held) = &mut lock(&keeper.state).held {
            held.expires = Some(SystemTime::UNIX_EPOCH);
        }
    }

    #[test]
    fn a_chain_is_queried_once_while_its_credentials_are_valid() {
        let (keeper, given) = keeper_of(1, Duration::from_secs(3600), u64::MAX);
        let values: Vec<_> = (0..10).map(|_| get(&keeper)).collect();
        assert_eq!(
            (values, given.load(Ordering::Relaxed)),
            (vec![Ok(1); 10], 1)
        );
        let (again, others) = keeper_of(1, Duration::from_secs(3600), u64::MAX);
        assert!(Arc::ptr_eq(&keeper, &again), "shared in the process");
        assert_eq!(others.load(Ordering::Relaxed), 0);
        expire(&keeper);
        assert_eq!((get(&keeper), get(&keeper)), (Ok(2), Ok(2)));
    }

    #[test]
    fn they_are_renewed_beside_the_readers_before_they_expire() {
        let (keeper, given) = keeper_of(2, Duration::from_secs(3600), 3);
        let due = |keeper: &Keeper<u64>| {
            if let Some(held) = &mut lock(&keeper.state).held {
                held.renewed_from = Some(SystemTime::UNIX_EPOCH);
            }
        };
        due(&keeper);
        assert_eq!(get(&keeper), Ok(1), "the old ones, at once");
        while lock(&keeper.state).is_renewing {
            std::thread::yield_now();
        }
        assert_eq!((get(&keeper), given.load(Ordering::Relaxed)), (Ok(2), 2));
        due(&keeper);
        assert_eq!(get(&keeper), Ok(2));
        while lock(&keeper.state).is_renewing {
            std::thread::yield_now();
        }
        assert_eq!(
            get(&keeper),
            Ok(2),
            "a renewal that fails takes nothing away"
        );
        assert_eq!(given.load(Ordering::Relaxed), 3);
        expire(&keeper);
        assert_eq!(get(&keeper).expect_err("expired").why, "no more");
        let asked = given.load(Ordering::Relaxed);
        assert_eq!(get(&keeper).expect_err("expired").why, "no more");
        let now = given.load(Ordering::Relaxed);
        assert_eq!(now, asked, "all that wait get one failure");
    }

    /// One that came between another's decision to ask and its question got none.
    #[test]
    fn all_that_are_refused_at_the_same_time_get_the_answer() {
        for key in 1000..1100 {
            let (keeper, given) = keeper_of(key, Duration::from_secs(3600), u64::MAX);
            let asked = Instant::now();
            let start = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        let others = network::wait(keeper.renew(asked)).expect("threads");
                        assert!(others, "refused for good");
                    });
                }
            });
            assert_eq!(given.load(Ordering::Relaxed), 2);
        }
    }

    #[test]
    fn refused_credentials_are_renewed_once_a_minute() {
        let (keeper, given) = keeper_of(3, Duration::from_secs(3600), u64::MAX);
        let renew = |asked| network::wait(keeper.renew(asked)).expect("threads");
        let asked = Instant::now();
        assert!(renew(asked), "others now");
        assert!(renew(asked), "the same refusal of another reader");
        assert!(!renew(Instant::now()), "too soon");
        assert_eq!((get(&keeper), given.load(Ordering::Relaxed)), (Ok(2), 2));
    }
}
