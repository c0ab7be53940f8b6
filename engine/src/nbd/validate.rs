//! Validates every request before it is executed; each rule has its own error.
//!
//! Validation has no side effects. The caller discards the payload of a refused request.

use super::wire::{Request, command, command_flag, errno, transmission};

/// Maximum number of bytes of a request: by the protocol, every client may assume that 32 MiB are allowed.
pub const MAX_LEN: u32 = 32 << 20;

/// The properties of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// One line for `nbdinfo`. May be empty.
    pub description: String,
    /// In bytes.
    pub size: u64,
    /// See [`super::wire::transmission`].
    pub flags: u16,
    /// The preferred request size in bytes: a power of two, at least 512.
    pub preferred: u32,
    /// Clients may ask where its holes are ([`super::wire::allocation`]).
    pub knows_holes: bool,
}

/// What to do for a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Send these bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u32,
    },
    /// Prefetch these bytes.
    Cache {
        /// First byte.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u32,
    },
    /// Write the payload, which has `len` bytes.
    Write {
        /// First byte.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u32,
        /// Reply only when the data survives a power failure.
        safe: bool,
    },
    /// Write zeroes.
    Zero {
        /// First byte.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u32,
        /// Reply only when the zeroes survive a power failure.
        safe: bool,
    },
    /// Report extents.
    Status {
        /// First byte.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u32,
        /// Report only the first extent, and not beyond the range.
        one: bool,
    },
    /// Flush; a read-only export has nothing to flush.
    Flush,
    /// The client disconnects. There is no reply.
    Disconnect,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// See [`errno`].
    pub error: u32,
    /// The message, for clients that show it.
    pub message: &'static str,
    /// Bytes of payload that follow the request and must be discarded.
    pub payload: u32,
}

/// Checks `request`, and returns what to do for it. If the client has not negotiated the metadata context for holes, the caller must pass
/// an export with [`Export::knows_holes`] unset.
///
/// # Errors
/// Returns the first rule that the request breaks.
pub fn validate(request: &Request, export: &Export) -> Result<Order, Refusal> {
    let Request {
        flags,
        command,
        offset,
        len,
        ..
    } = *request;
    let payload = if command == command::WRITE { len } else { 0 };
    let refuse = |error, message| {
        Err(Refusal {
            error,
            message,
            payload,
        })
    };
    let writes = matches!(
        command,
        command::WRITE | command::TRIM | command::WRITE_ZEROES
    );
    if writes && export.flags & transmission::READ_ONLY != 0 {
        return refuse(errno::EPERM, "the export is read-only");
    }
    let known = match command {
        command::READ => command_flag::DF,
        // The export never makes holes, so NO_HOLE changes nothing.
        command::WRITE_ZEROES => command_flag::NO_HOLE,
        command::WRITE | command::CACHE | command::FLUSH | command::DISC => 0,
        command::TRIM => return refuse(errno::EINVAL, "trim is not supported"),
        command::BLOCK_STATUS if export.knows_holes => command_flag::REQ_ONE,
        command::BLOCK_STATUS => return refuse(errno::EINVAL, "no metadata context was agreed on"),
        _ => return refuse(errno::EINVAL, "unknown command"),
    };
    // FUA has no effect on a command that does not write, but is allowed on every command.
    if flags & !(known | command_flag::FUA) != 0 {
        return refuse(errno::EINVAL, "unknown flag");
    }
    match command {
        command::DISC => return Ok(Order::Disconnect),
        command::FLUSH if offset != 0 || len != 0 => {
            return refuse(errno::EINVAL, "a flush must have no range");
        }
        command::FLUSH => return Ok(Order::Flush),
        _ => {}
    }
    if len == 0 {
        return refuse(errno::EINVAL, "a request of zero bytes");
    }
    if offset
        .checked_add(u64::from(len))
        .is_none_or(|end| end > export.size)
    {
        let error = if writes { errno::ENOSPC } else { errno::EINVAL };
        return refuse(error, "beyond the end of the export");
    }
    let safe = flags & command_flag::FUA != 0;
    match command {
        // A hint and a write of zeroes carry no data, so their length is not limited.
        command::CACHE => Ok(Order::Cache { offset, len }),
        command::WRITE_ZEROES => Ok(Order::Zero { offset, len, safe }),
        command::BLOCK_STATUS => Ok(Order::Status {
            offset,
            len,
            one: flags & command_flag::REQ_ONE != 0,
        }),
        _ if len > MAX_LEN => refuse(errno::EINVAL, "more than 33554432 bytes at once"),
        command::WRITE => Ok(Order::Write { offset, len, safe }),
        _ => Ok(Order::Read { offset, len }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        let flags = transmission::READ_ONLY;
        let (name, description) = (String::new(), String::new());
        Export {
            name,
            description,
            size: 1 << 30,
            flags,
            preferred: 4096,
            knows_holes: false,
        }
    }

    type Outcome = Result<Order, (u32, &'static str, u32)>;

    fn of(command: u16, flags: u16, offset: u64, len: u32) -> Outcome {
        on(&export(), command, flags, offset, len)
    }

    fn writable(command: u16, flags: u16, offset: u64, len: u32) -> Outcome {
        let export = Export {
            flags: 0,
            ..export()
        };
        on(&export, command, flags, offset, len)
    }

    fn on(export: &Export, command: u16, flags: u16, offset: u64, len: u32) -> Outcome {
        let request = Request {
            flags,
            command,
            cookie: 1,
            offset,
            len,
        };
        validate(&request, export).map_err(|r| (r.error, r.message, r.payload))
    }

    #[test]
    fn writes_to_what_may_be_written() {
        let (offset, len) = ((1 << 30) - 512, 512);
        assert_eq!(
            writable(command::WRITE, 0, offset, len),
            Ok(Order::Write {
                offset,
                len,
                safe: false
            })
        );
        assert_eq!(
            writable(command::WRITE, 1, 0, MAX_LEN),
            Ok(Order::Write {
                offset: 0,
                len: MAX_LEN,
                safe: true
            })
        );
        assert_eq!(
            writable(command::WRITE_ZEROES, 2, 0, 1 << 30),
            Ok(Order::Zero {
                offset: 0,
                len: 1 << 30,
                safe: false
            })
        );
        let long = Err((
            errno::EINVAL,
            "more than 33554432 bytes at once",
            MAX_LEN + 1,
        ));
        assert_eq!(writable(command::WRITE, 0, 0, MAX_LEN + 1), long);
        let beyond = |payload| Err((errno::ENOSPC, "beyond the end of the export", payload));
        assert_eq!(writable(command::WRITE, 0, offset, 513), beyond(513));
        assert_eq!(writable(command::WRITE_ZEROES, 0, u64::MAX, 1), beyond(0));
        assert_eq!(
            writable(command::WRITE, 0, 0, 0),
            Err((errno::EINVAL, "a request of zero bytes", 0))
        );
        assert_eq!(
            writable(command::WRITE, 2, 0, 9),
            Err((errno::EINVAL, "unknown flag", 9))
        );
        assert_eq!(
            writable(command::TRIM, 0, 0, 9),
            Err((errno::EINVAL, "trim is not supported", 0))
        );
        assert_eq!(
            writable(command::READ, 0, 0, 1),
            Ok(Order::Read { offset: 0, len: 1 })
        );
    }

    #[test]
    fn valid_requests_are_executed() {
        assert_eq!(
            of(command::READ, 0, 0, 1),
            Ok(Order::Read { offset: 0, len: 1 })
        );
        let last = Order::Read {
            offset: (1 << 30) - 512,
            len: 512,
        };
        assert_eq!(
            of(
                command::READ,
                command_flag::DF | command_flag::FUA,
                (1 << 30) - 512,
                512
            ),
            Ok(last)
        );
        assert_eq!(
            of(command::READ, 0, 0, MAX_LEN),
            Ok(Order::Read {
                offset: 0,
                len: MAX_LEN
            })
        );
        assert_eq!(
            of(command::CACHE, 0, 0, 1 << 30),
            Ok(Order::Cache {
                offset: 0,
                len: 1 << 30
            })
        );
        assert_eq!(
            (of(command::FLUSH, 0, 0, 0), of(command::DISC, 0, 9, 9)),
            (Ok(Order::Flush), Ok(Order::Disconnect))
        );
    }

    #[test]
    fn each_rule_has_its_error() {
        let invalid = |text| Err((errno::EINVAL, text, 0));
        let beyond = "beyond the end of the export";
        for (got, want) in [
            (of(command::READ, 0, 1 << 30, 1), invalid(beyond)),
            (of(command::READ, 0, (1 << 30) - 1, 2), invalid(beyond)),
            (of(command::READ, 0, u64::MAX, u32::MAX), invalid(beyond)),
            (of(command::CACHE, 0, u64::MAX, 1), invalid(beyond)),
            (
                of(command::READ, 0, 0, 0),
                invalid("a request of zero bytes"),
            ),
            (
                of(command::READ, 0, 0, MAX_LEN + 1),
                invalid("more than 33554432 bytes at once"),
            ),
            (of(command::READ, 0x8000, 0, 1), invalid("unknown flag")),
            (
                of(command::CACHE, command_flag::DF, 0, 1),
                invalid("unknown flag"),
            ),
            (
                of(command::FLUSH, 0, 0, 1),
                invalid("a flush must have no range"),
            ),
            (
                of(command::BLOCK_STATUS, 0, 0, 1),
                invalid("no metadata context was agreed on"),
            ),
            (of(99, 0, 0, 1), invalid("unknown command")),
            (
                of(command::WRITE, 0, 0, 4096),
                Err((errno::EPERM, "the export is read-only", 4096)),
            ),
            (
                of(command::WRITE_ZEROES, 0, 0, u32::MAX),
                Err((errno::EPERM, "the export is read-only", 0)),
            ),
            (
                of(command::TRIM, 0, 0, 1),
                Err((errno::EPERM, "the export is read-only", 0)),
            ),
        ] {
            assert_eq!(got, want);
        }
    }
}
