//! A memory budget for a plan while it is made or read.
//!
//! Limits on the number of files or parts do not bound memory: a path has up to 4096 bytes, a tensor's name 64 KiB. So all memory of a plan is
//! taken from one budget first, and a hostile folder or header causes an error instead of exhausting memory.
//!
//! ```text
//!   256 MiB ──take(path, 4144)──► ──take(range, 72)──► ... ──► Full: "more than 256 MiB of names, paths and ranges"
//! ```
//! Example: 250,000 files with paths of 100 bytes take 57 MB; with paths of 3,900 bytes, there is an error after 66,000.

/// The budget in bytes: 1,048,576 files with paths of 60 bytes and 2,097,152 ranges fit.
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
    /// Takes the size of a `T` plus `more` bytes that it points to.
    pub fn take<T>(&mut self, more: usize) -> Result<(), Full> {
        let bytes = size_of::<T>().saturating_add(more);
        self.left = self.left.checked_sub(bytes).ok_or(Full)?;
        Ok(())
    }

    /// Returns the memory of something that was dropped.
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
