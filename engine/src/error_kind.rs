//! The kinds of errors of readers and sources, and the error number of each.
//!
//! Example: a page of 3 bytes is [`ErrorKind::InvalidOption`] and `EINVAL`.

use rustix::io::Errno;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $errno:ident,)*) => {
        /// The kind of an error of a reader or a source, for callers that match on it.
        ///
        /// Example: after [`ErrorKind::Changed`] a program restarts with the new version; after [`ErrorKind::Storage`]
        /// it may read again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl ErrorKind {
            /// Every kind.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind,)*];

            /// Its error number. An error that a storage numbers itself keeps that number.
            #[must_use]
            pub const fn errno(self) -> i32 {
                match self {
                    $(ErrorKind::$kind => Errno::$errno.raw_os_error(),)*
                }
            }
        }
    };
}

kinds! {
    /// A requested policy or page size does not exist or does not fit.
    InvalidOption = INVAL,
    /// The storage does not accept the request, such as a name.
    Refused = INVAL,
    /// There is no such source.
    NotFound = NOENT,
    /// This user may not read or write it.
    PermissionDenied = ACCESS,
    /// It cannot be written.
    ReadOnly = ROFS,
    /// This build, or the source, has no way to do it.
    Unsupported = NOTSUP,
    /// It is another version than the one that was opened or listed.
    Changed = STALE,
    /// The storage fails, ends before its size, or does not answer.
    Storage = IO,
    /// It has more bytes than are counted.
    TooLarge = FBIG,
    /// More readers of one cache are open than there are numbers for.
    TooManyReaders = MFILE,
    /// Too many reads wait at once.
    TooManyReads = AGAIN,
    /// The caches would take more memory than they may.
    NoMemory = NOMEM,
    /// The bytes are beyond the end of a source that cannot grow.
    BeyondEnd = NOSPC,
    /// The engine has stopped after an internal error.
    Stopped = IO,
}

impl ErrorKind {
    /// The kind of an error that a storage has numbered.
    pub(crate) fn of_storage(errno: i32) -> ErrorKind {
        match Errno::from_raw_os_error(errno) {
            Errno::INVAL => ErrorKind::Refused,
            Errno::NOENT => ErrorKind::NotFound,
            Errno::ACCESS | Errno::PERM => ErrorKind::PermissionDenied,
            Errno::ROFS => ErrorKind::ReadOnly,
            Errno::NOTSUP => ErrorKind::Unsupported,
            Errno::STALE => ErrorKind::Changed,
            _ => ErrorKind::Storage,
        }
    }
}
