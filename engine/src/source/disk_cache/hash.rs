//! Computes the file names and checksums of cached data.

use sha2::{Digest, Sha256};

/// Size of a block in bytes; each block has one checksum. A block is one page of the engine, so that a fetch consists of whole
/// blocks.
pub const BLOCK_BYTES: u64 = 4096;

/// The hash that identifies a version of a source: one half of a SHA-256 hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionHash([u8; 16]);

impl VersionHash {
    pub fn of(source: &str, version: &str) -> VersionHash {
        let mut hasher = Sha256::new();
        hasher.update((source.len() as u64).to_le_bytes());
        hasher.update(source.as_bytes());
        hasher.update(version.as_bytes());
        let digest = hasher.finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        VersionHash(half)
    }

    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns the hash as hexadecimal digits, which is the name of the version's files.
    pub fn name(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    /// Returns the name of the version's subfolder in the cache: the first two letters of the file name.
    pub fn folder(self) -> String {
        format!("{:02x}", self.0[0])
    }

    /// Returns the number of the version's subfolder, from 0 to 255.
    pub fn folder_number(self) -> usize {
        usize::from(self.0[0])
    }

    /// Parses the hexadecimal digits. Returns `None` if the digits are invalid.
    pub fn of_name(name: &str) -> Option<VersionHash> {
        let is_hex = name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = u128::from_str_radix(name, 16).ok();
        number
            .filter(|_| is_hex && name.len() == 32)
            .map(|number| VersionHash(number.to_be_bytes()))
    }

    /// Returns a number made from the hash; two versions rarely have the same number.
    pub fn number(self) -> u64 {
        self.0
            .iter()
            .take(8)
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    /// Computes the checksum of a block of this version. A checksum is never 0, because 0 means that the block is absent. The
    /// checksum depends on the position and the version, so the same bytes elsewhere have a different checksum.
    pub fn sum(self, block: u64, bytes: &[u8]) -> u64 {
        let place = (self.number() ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (checksum(bytes) ^ place).max(1)
    }
}

pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_round_trips() {
        let hash = VersionHash::of("s3://b/k", "v1");
        assert_eq!(VersionHash::of_name(&hash.name()), Some(hash));
        assert_eq!(hash.folder(), format!("{:02x}", hash.folder_number()));
        let name = hash.name();
        for wrong in [
            "",
            "0",
            &name[1..],
            &name.to_uppercase(),
            "+0000000000000000000000000000000",
        ] {
            let read = VersionHash::of_name(wrong);
            assert!(read.is_none() || wrong == name, "{wrong}");
        }
        assert!(hash != VersionHash::of("s3://b/", "kv1"));
    }

    #[test]
    fn a_block_has_another_checksum_at_another_place() {
        let (one, two) = (VersionHash::of("a", "1"), VersionHash::of("a", "2"));
        let bytes = [7; BLOCK_BYTES as usize];
        let sums = [
            one.sum(0, &bytes),
            one.sum(1, &bytes),
            two.sum(0, &bytes),
            one.sum(0, &bytes[1..]),
        ];
        assert!(
            sums.iter()
                .all(|sum| sums.iter().filter(|other| *other == sum).count() == 1)
        );
    }
}
