//! `parquet`: traces for pandas, DuckDB and the like, in and out; built with the feature `parquet` only.
//!
//! ```text
//!   t_start_ns t_end_ns   nanoseconds since the trace began, or null     file file_id file_size   name, number, bytes
//!   offset len_req        bytes                                          stream tid               open description, thread
//!   len_ret               bytes that came, or null                       after                    as in csv, or null
//!   op                    0 read, 1 pread, 2 fault, 3 write, 8 to 12 hints    flags   1 ahead, 2 direct, 4 executable
//! ```
//!
//! One file holds all: the name of a file is a column (a dictionary, so it costs bits), not a second table. What holds for
//! the whole trace is in the key-value metadata. The list of contents is at the end of such a file, so what is no plain
//! file (a pipe, a compressed trace) is first copied into an unnamed temporary file. A table of others is read where its
//! columns have these names. What a file claims (`footer.rs`, `pages.rs`) is checked before the library believes it.
//! Never: more than one page a column at a time.

#[cfg(feature = "parquet")]
mod footer;
#[cfg(feature = "parquet")]
mod pages;
#[cfg(feature = "parquet")]
mod quiet;
#[cfg(feature = "parquet")]
mod read;
#[cfg(feature = "parquet")]
mod thrift;
#[cfg(feature = "parquet")]
mod write;

use crate::format::{Fit, Format};

const MAGIC: &[u8] = b"PAR1";

pub static FORMAT: Format = Format {
    name: "parquet",
    summary: "Parquet: columns t_start_ns, file, offset, len_req and others; ns, bytes",
    keys: &[],
    detect: |head| Fit::sure_if(head.starts_with(MAGIC)),
    #[cfg(feature = "parquet")]
    import: Some(read::import),
    #[cfg(feature = "parquet")]
    export: Some(write::export),
    #[cfg(not(feature = "parquet"))]
    import: Some(absent::import),
    #[cfg(not(feature = "parquet"))]
    export: Some(absent::export),
};

/// Says what to do where the feature is not built in.
#[cfg(not(feature = "parquet"))]
mod absent {
    use crate::error::{TraceError, TracePosition};
    use crate::format::{ExportReport, Output, Pairs};
    use crate::input::Input;
    use crate::{Header, Import, Items};
    use std::path::Path;

    fn refuse(path: &Path) -> TraceError {
        let what = "Parquet is not built into this foreread";
        TraceError::new(
            path,
            TracePosition::Whole,
            what,
            "build it with --features parquet",
        )
    }

    pub fn import(inputs: Vec<Input>, _: Pairs) -> Result<Import, TraceError> {
        Err(refuse(inputs.first().map_or(Path::new("-"), Input::path)))
    }

    pub fn export(
        _: &Header,
        _: Pairs,
        _: Items,
        output: Output,
    ) -> Result<ExportReport, TraceError> {
        Err(refuse(&output.path))
    }
}

#[cfg(feature = "parquet")]
mod columns {
    //! What the columns are called and mean, for reading and writing.

    use crate::Op;
    use foreread_core::event::Advice;

    pub const SCHEMA: &str = "message trace {
        optional int64 t_start_ns;
        optional int64 t_end_ns;
        required binary file (STRING);
        required int32 file_id (INTEGER(32, false));
        optional int64 file_size;
        required int32 stream (INTEGER(32, false));
        required int32 tid (INTEGER(32, false));
        required int32 op (INTEGER(8, false));
        required int64 offset;
        required int64 len_req;
        optional int64 len_ret;
        required int32 flags (INTEGER(16, false));
        optional binary after (STRING);
    }";

    /// Version of the columns, in the key `schema_version`.
    pub const SCHEMA_VERSION: &str = "1";

    const OPS: [(i64, Op); 9] = [
        (0, Op::Read),
        (1, Op::Read),
        (2, Op::Fault),
        (3, Op::Write),
        (8, Op::Hint(Advice::Normal)),
        (9, Op::Hint(Advice::Sequential)),
        (10, Op::Hint(Advice::Random)),
        (11, Op::Hint(Advice::WillNeed)),
        (12, Op::Hint(Advice::DontNeed)),
    ];

    pub fn op(code: i64) -> Option<Op> {
        OPS.iter()
            .find(|(known, _)| *known == code)
            .map(|(_, op)| *op)
    }

    pub fn code(op: Op) -> i32 {
        OPS.iter()
            .find(|(_, known)| *known == op)
            .map_or(0, |(code, _)| i32::try_from(*code).expect("small"))
    }
}
