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
/// Default of [`NbdSettings::max_owed_bytes`]: one piece of an answer for each helper thread.
pub const MAX_OWED_BYTES: u64 = 64 << 20;

/// Helpers and kept answers may each use this fraction of the memory of the machine or control group.
const MEMORY_PART: u64 = 16;
/// Memory of a serving thread.
const HELPER_BYTES: u64 = 256 << 10;
const MIN_HELPERS: u64 = 8;

/// The number of helpers and the bytes of kept answers for this much memory.
fn limits_in(memory: u64) -> (u32, u64) {
    let share = memory / MEMORY_PART;
    let helpers = (share / HELPER_BYTES).clamp(MIN_HELPERS, MAX_HELPERS.into());
    (helpers as u32, MAX_OWED_BYTES.min(share))
}

/// Settings of the NBD server. All limits apply to the whole server.
#[derive(Clone, Debug)]
pub struct NbdSettings {
    /// Name of the export. The empty name always selects it too.
    pub export: String,
    /// A one-line description.
    pub description: String,
    /// Whether clients may write. Default no. The reader must allow it ([`crate::Reader::allow_writes`]).
    pub writable: bool,
    /// Whether a writable source is locked against other writers: see [`crate::Reader::lock`]. Default yes.
    pub lock: bool,
    /// Maximum number of connected clients. Default [`MAX_CLIENTS`].
    pub max_clients: u32,
    /// Maximum number of requests in flight in addition to one per client. Each may need a thread; short reads of a source whose queue
    /// can be polled need none. Default [`MAX_HELPERS`], or fewer on a machine with less than 1 GiB. A serving thread uses up to
    /// 256 KiB. There are more threads than cores only while requests wait.
    pub max_helpers: u32,
    /// Maximum bytes of answers kept for slow clients. Default [`MAX_OWED_BYTES`], or a sixteenth of the memory if that is less.
    /// Answers beyond the limit are read again when their client takes them.
    pub max_owed_bytes: u64,
    /// How long a client may take for the handshake. Default 10 s.
    pub handshake: Duration,
    /// How long a client may take to send the head of a request or 256 KiB of its payload, and to take 256 KiB of an answer. The
    /// limit is for the whole, not per byte. Default 30 s.
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
