//! The kinds of errors of readers and sources, with the error number of each.
//!
//! Example: a page size of 3 bytes gives [`ErrorKind::InvalidOption`] and `EINVAL`.

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

            /// The error number (errno) of this kind. If the storage has reported its own error number, the error keeps that number
            /// instead.
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
    /// The requested policy or page size does not exist or is invalid.
    InvalidOption = INVAL,
    /// The storage does not accept the request, for example a name.
    Refused = INVAL,
    /// The source does not exist.
    NotFound = NOENT,
    /// This user may not read or write the source.
    PermissionDenied = ACCESS,
    /// The source cannot be written.
    ReadOnly = ROFS,
    /// This build or this source does not support the operation.
    Unsupported = NOTSUP,
    /// The source has another version than the one that was opened or listed.
    Changed = STALE,
    /// The storage fails, ends before its stated size, or does not answer.
    Storage = IO,
    /// The source is larger than the largest supported offset.
    TooLarge = FBIG,
    /// Too many readers of one cache are open.
    TooManyReaders = MFILE,
    /// Too many reads are waiting at the same time.
    TooManyReads = AGAIN,
    /// The caches would need more memory than the limit allows.
    NoMemory = NOMEM,
    /// The bytes are beyond the end of a source that cannot grow.
    BeyondEnd = NOSPC,
    /// The engine has stopped after an internal error.
    Stopped = IO,
}

impl ErrorKind {
    /// The kind of a storage error with this number.
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
