//! Settings of the NBD server.

#[cfg(feature = "tls")]
use super::tls::NbdTls;
use crate::front::observe::Observer;
use crate::nbd::handshake::TlsOffer;
use foreread_os::host::Host;
use std::sync::Arc;
use std::time::Duration;

/// Default of [`NbdSettings::max_clients`].
pub const MAX_CLIENTS: u32 = 2048;
/// Default of [`NbdSettings::max_helpers`].
pub const MAX_HELPERS: u32 = 256;
/// Default of [`NbdSettings::max_owed_bytes`]: one piece for each helper.
pub const MAX_OWED_BYTES: u64 = 64 << 20;

/// Helpers and answers may each use this fraction of the machine's or control group's memory.
const MEMORY_PART: u64 = 16;
/// Memory of a serving thread.
const HELPER_BYTES: u64 = 256 << 10;
const MIN_HELPERS: u64 = 8;

/// Helpers and bytes of answers for this much memory.
fn limits_in(memory: u64) -> (u32, u64) {
    let share = memory / MEMORY_PART;
    let helpers = (share / HELPER_BYTES).clamp(MIN_HELPERS, MAX_HELPERS.into());
    (helpers as u32, MAX_OWED_BYTES.min(share))
}

/// Settings of the NBD server. All limits apply to the whole server.
#[derive(Clone, Debug)]
pub struct NbdSettings {
    /// Name of the export. The empty name always means it too.
    pub export: String,
    /// One line about it.
    pub description: String,
    /// Clients may write. Default no. The reader has to allow it ([`crate::Reader::allow_writes`]).
    pub writable: bool,
    /// A writable source is locked against other writers: see [`crate::Reader::lock`]. Default yes.
    pub lock: bool,
    /// Most clients at once. Default [`MAX_CLIENTS`].
    pub max_clients: u32,
    /// Most threads beyond one for each client: the second and later requests in flight of every client share them. Default
    /// [`MAX_HELPERS`], or fewer on a machine of less than 1 GiB. A thread that serves holds up to 256 KiB; there are more of them than cores only as far as requests
    /// wait.
    pub max_helpers: u32,
    /// Maximum bytes of answers kept for slow clients. Default [`MAX_OWED_BYTES`], or a
    /// sixteenth of the memory if that is less. What would be more is read again when its client takes it.
    pub max_owed_bytes: u64,
    /// How long a client may take to agree on an export. Default 10 s.
    pub handshake: Duration,
    /// How long a client may take to send the head of a request or 256 KiB of what it brings, and to take 256 KiB of an
    /// answer, in all and not from byte to byte. Default 30 s.
    pub stall: Duration,
    /// The certificate for TLS, and whether clients must use it. Default none: no encryption.
    #[cfg(feature = "tls")]
    pub tls: Option<NbdTls>,
    /// The observer of each request. Default none.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for NbdSettings {
    fn default() -> NbdSettings {
        let (max_helpers, max_owed_bytes) = limits_in(Host::here().memory_bytes());
        NbdSettings {
            export: String::new(),
            description: String::new(),
            writable: false,
            lock: true,
            max_clients: MAX_CLIENTS,
            max_helpers,
            max_owed_bytes,
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            #[cfg(feature = "tls")]
            tls: None,
            observer: None,
        }
    }
}

impl NbdSettings {
    pub(super) fn tls_offer(&self) -> TlsOffer {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return if tls.is_required() {
                TlsOffer::Required
            } else {
                TlsOffer::Optional
            };
        }
        TlsOffer::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_control_group_has_fewer_helpers_and_answers() {
        let of = |mib: u64| limits_in(mib << 20);
        assert_eq!(of(64), (16, 4 << 20));
        assert_eq!(of(256), (64, 16 << 20));
        assert_eq!(of(4096), (MAX_HELPERS, MAX_OWED_BYTES));
        assert_eq!(of(1), (8, 64 << 10));
    }
}
