//! Computes the file names and checksums of cached data.

use sha2::{Digest, Sha256};

/// Size of a block in bytes; each block has one checksum. A block is one page of the engine, so that a fetch consists of whole
/// blocks.
pub const BLOCK_BYTES: u64 = 4096;

/// The hash that identifies a version of a source: one half of a SHA-256 hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionHash(u128);

impl VersionHash {
    pub fn of(source: &str, version: &str) -> VersionHash {
        let mut hasher = Sha256::new();
        hasher.update((source.len() as u64).to_le_bytes());
        hasher.update(source.as_bytes());
        hasher.update(version.as_bytes());
        let digest = hasher.finalize();
        VersionHash(
            digest
                .first_chunk()
                .map_or(0, |half| u128::from_be_bytes(*half)),
        )
    }

    pub fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Returns the hash as hexadecimal digits, which is the name of the version's files.
    pub fn name(self) -> String {
        format!("{:032x}", self.0)
    }

    /// Returns the name of the version's subfolder in the cache: the first two letters of the file name.
    pub fn folder(self) -> String {
        format!("{:02x}", self.folder_number())
    }

    /// Returns the number of the version's subfolder, from 0 to 255.
    pub fn folder_number(self) -> usize {
        (self.0 >> 120) as usize
    }

    /// Parses the hexadecimal digits. Returns `None` if the digits are invalid.
    pub fn of_name(name: &str) -> Option<VersionHash> {
        // Parsing also accepts a sign and capital letters.
        let hash = VersionHash(u128::from_str_radix(name, 16).ok()?);
        (hash.name() == name).then_some(hash)
    }

    /// Returns a number made from the hash; two versions rarely have the same number.
    pub fn number(self) -> u64 {
        (self.0 >> 64) as u64
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
        let name = hash.name();
        assert_eq!(VersionHash::of_name(&name), Some(hash));
        assert_eq!(hash.folder(), format!("{:02x}", hash.folder_number()));
        for wrong in [
            "",
            &name[1..],
            &"F".repeat(32),
            "+0000000000000000000000000000000",
        ] {
            assert_eq!(VersionHash::of_name(wrong), None, "{wrong}");
        }
        assert!(hash != VersionHash::of("s3://b/", "kv1"));
    }

    #[test]
    fn a_block_has_another_checksum_at_another_place() {
        let (one, two) = (VersionHash::of("a", "1"), VersionHash::of("a", "2"));
        let bytes = [7; BLOCK_BYTES as usize];
        let place = one.sum(0, &bytes);
        let others = [
            one.sum(1, &bytes),
            two.sum(0, &bytes),
            one.sum(0, &bytes[1..]),
        ];
        assert!(!others.contains(&place));
    }
}
