//! One account of the bytes that a plan holds in memory while it is made or read.
//!
//! A number of files or parts bounds nothing: a path has up to 4096 bytes, the name of a tensor 64 KiB. So whatever is kept for a plan is
//! taken out of one account first, names, paths and ranges alike, and a hostile folder or header ends with an error instead of the memory.
//!
//! ```text
//!   256 MiB ──take(path, 4144)──► ──take(range, 72)──► ... ──► Full: "more than 256 MiB of names, paths and ranges"
//! ```
//! Example: 250,000 files with paths of 100 bytes take 57 MB, 250,000 with paths of 3,900 bytes are refused after 66,000.

/// Bytes that a plan may hold: 1,048,576 files with paths of 60 bytes and 2,097,152 ranges fit.
pub const MAX_BYTES: usize = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than 256 MiB of names, paths and ranges")]
pub struct Full;

#[derive(Clone, Debug)]
pub struct Account {
    left: usize,
}

impl Default for Account {
    fn default() -> Account {
        Account { left: MAX_BYTES }
    }
}

impl Account {
    /// Takes what a `T` needs, with `more` bytes that it points to.
    pub fn take<T>(&mut self, more: usize) -> Result<(), Full> {
        let bytes = size_of::<T>().saturating_add(more);
        self.left = self.left.checked_sub(bytes).ok_or(Full)?;
        Ok(())
    }

    /// Gives back what was taken for something that is gone.
    pub fn give_back<T>(&mut self, more: usize) {
        self.left = self
            .left
            .saturating_add(size_of::<T>().saturating_add(more))
            .min(MAX_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_ends_at_its_limit() {
        let mut account = Account::default();
        account.take::<u64>(MAX_BYTES - 16).expect("there are more");
        assert_eq!(account.take::<u64>(1), Err(Full));
        account.take::<u64>(0).expect("exactly these are left");
        assert_eq!(
            (account.take::<u8>(0), account.take::<u64>(usize::MAX)),
            (Err(Full), Err(Full))
        );
        account.give_back::<u64>(0);
        assert_eq!(
            (account.take::<u64>(0), account.take::<u8>(0)),
            (Ok(()), Err(Full))
        );
    }
}
