//! The kernel version, as far as readahead rules depend on it.

use super::Host;

/// `6.17` of `6.17.0-14-generic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
        Some(KernelVersion(
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        ))
    }
}

impl Host {
    /// The kernel version, if the release string starts with one.
    pub fn kernel_version(&self) -> Option<KernelVersion> {
        KernelVersion::parse(&self.kernel_release()?)
    }
}
