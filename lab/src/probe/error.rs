//! Why a probe failed: one line that says what, where and what to do. Never: a second line.

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The source cannot be opened.
    #[error("{0}")]
    Open(#[from] foreread::source::SourceOpenError),
    /// A read of the source failed.
    #[error(
        "reading the source: {0}; check the storage, or leave the file alone while it is measured"
    )]
    Read(#[from] foreread::source::SourceError),
    /// The engine could not be set up for the hits.
    #[error("{0}")]
    Engine(#[from] foreread::OpenError),
    /// A read through the engine failed.
    #[error("{0}")]
    Hit(#[from] foreread::ReadError),
    /// There is too little to read.
    #[error(
        "{bytes} bytes are too few to measure; name a source of 8192 bytes or more, best of 1 GiB"
    )]
    Small { bytes: u64 },
    /// A read that lay within the source ended early.
    #[error(
        "the source became shorter while it was read, at offset {offset}; leave it alone and try again"
    )]
    Short {
        /// Where.
        offset: u64,
    },
    /// The system refuses the threads that are to read at once.
    #[error("{0}")]
    Threads(std::io::Error),
    /// The page cache would be measured.
    #[error(
        "{place}: direct I/O (O_DIRECT) is refused here, so the page cache would answer and not the storage; probe the \
         block device, or a file on another file system, or add --buffered to measure reads through the cache"
    )]
    Cached {
        /// Which source.
        place: String,
    },
}
