//! Validates every request before it is executed; each rule has its own error.
//!
//! Validation has no side effects. The caller discards the payload of a refused request.

use super::wire::{Request, command, command_flag, errno, transmission};

/// Maximum number of bytes of a request: by the protocol, every client may assume that 32 MiB are allowed.
pub const MAX_LEN: u32 = 32 << 20;
/// The request size that the server prefers.
pub const PREFERRED_LEN: u32 = 4096;

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

    /// A row has a writable (rw) or read-only export of 1 GiB, the command, its flags, the range, and the answer.
    const ROWS: &str = "\
        rw WRITE 0 1073741312 512 = Write { offset: 1073741312, len: 512, safe: false }
        rw WRITE 1 0 33554432 = Write { offset: 0, len: 33554432, safe: true }
        rw WRITE_ZEROES 2 0 1073741824 = Zero { offset: 0, len: 1073741824, safe: false }
        rw WRITE 0 0 33554433 = 22, more than 33554432 bytes at once, 33554433
        rw WRITE 0 1073741312 513 = 28, beyond the end of the export, 513
        rw WRITE_ZEROES 0 18446744073709551615 1 = 28, beyond the end of the export, 0
        rw WRITE 0 0 0 = 22, a request of zero bytes, 0
        rw WRITE 2 0 9 = 22, unknown flag, 9
        rw TRIM 0 0 9 = 22, trim is not supported, 0
        rw READ 0 0 1 = Read { offset: 0, len: 1 }
        ro READ 0 0 1 = Read { offset: 0, len: 1 }
        ro READ 5 1073741312 512 = Read { offset: 1073741312, len: 512 }
        ro READ 0 0 33554432 = Read { offset: 0, len: 33554432 }
        ro CACHE 0 0 1073741824 = Cache { offset: 0, len: 1073741824 }
        ro FLUSH 0 0 0 = Flush
        ro DISC 0 9 9 = Disconnect
        ro READ 0 1073741824 1 = 22, beyond the end of the export, 0
        ro READ 0 1073741823 2 = 22, beyond the end of the export, 0
        ro READ 0 18446744073709551615 4294967295 = 22, beyond the end of the export, 0
        ro CACHE 0 18446744073709551615 1 = 22, beyond the end of the export, 0
        ro READ 0 0 0 = 22, a request of zero bytes, 0
        ro READ 0 0 33554433 = 22, more than 33554432 bytes at once, 0
        ro READ 32768 0 1 = 22, unknown flag, 0
        ro CACHE 4 0 1 = 22, unknown flag, 0
        ro FLUSH 0 0 1 = 22, a flush must have no range, 0
        ro BLOCK_STATUS 0 0 1 = 22, no metadata context was agreed on, 0
        ro 99 0 0 1 = 22, unknown command, 0
        ro WRITE 0 0 4096 = 1, the export is read-only, 4096
        ro WRITE_ZEROES 0 0 4294967295 = 1, the export is read-only, 0
        ro TRIM 0 0 1 = 1, the export is read-only, 0";
    /// The names of the commands, by number.
    const COMMANDS: &str = "READ WRITE DISC FLUSH TRIM CACHE WRITE_ZEROES BLOCK_STATUS";

    #[test]
    fn each_rule_has_its_error() {
        for row in ROWS.lines().map(str::trim_start) {
            let (asked, wanted) = row.split_once(" = ").expect(row);
            let words: Vec<&str> = asked.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect(row);
            let command = COMMANDS.split(' ').position(|name| name == words[1]);
            let request = Request {
                flags: number(2) as u16,
                command: command.map_or(99, |number| number as u16),
                cookie: 1,
                offset: number(3),
                len: number(4) as u32,
            };
            let export = Export {
                name: String::new(),
                description: String::new(),
                size: 1 << 30,
                flags: u16::from(words[0] == "ro") * transmission::READ_ONLY,
                knows_holes: false,
            };
            let answer = match validate(&request, &export) {
                Ok(order) => format!("{order:?}"),
                Err(Refusal {
                    error,
                    message,
                    payload,
                }) => format!("{error}, {message}, {payload}"),
            };
            assert_eq!(answer, wanted, "{row}");
        }
    }
}
