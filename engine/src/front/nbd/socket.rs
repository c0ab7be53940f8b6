//! A common type for the sockets of the NBD server, unix and TCP.
//!
//! Every wait for a socket has a deadline.

use crate::front::unix::UnixSocket;
use crate::front::{FrontError, FrontErrorKind};
use crate::nbd::wire::keep_alive;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg,
};
use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of bytes that are read from the source and sent to a client in one step.
pub const PIECE_BYTES: usize = 256 << 10;

/// The address on which the server listens.
#[derive(Clone, Debug)]
pub enum Listen {
    /// A unix socket that only its owner can access.
    Unix(PathBuf),
    /// A TCP address. Any client that reaches it can read everything, unless TLS verifies clients.
    Tcp(SocketAddr),
    /// A listening unix or TCP socket from systemd. It is not removed at the end.
    Inherited(Arc<OwnedFd>),
}

/// A time limit for the client. The time starts when the server first waits for the client.
pub struct Deadline {
    time: Duration,
    at: Option<Instant>,
}

impl Deadline {
    pub fn within(time: Duration) -> Deadline {
        Deadline { time, at: None }
    }

    pub fn at(&mut self) -> Instant {
        *self.at.get_or_insert_with(|| Instant::now() + self.time)
    }
}

pub enum Listener {
    Unix(UnixSocket),
    Tcp(TcpListener),
}

impl Listener {
    pub fn bind(listen: &Listen) -> Result<Listener, FrontError> {
        let (bound, place) = match listen {
            Listen::Unix(path) => (
                UnixSocket::bind(path).map(Listener::Unix),
                path.display().to_string(),
            ),
            Listen::Tcp(address) => (
                TcpListener::bind(address).map(Listener::Tcp),
                address.to_string(),
            ),
            Listen::Inherited(socket) => (
                inherited(socket),
                "the socket that systemd passed".to_string(),
            ),
        };
        let bound = bound.and_then(|listener| {
            match &listener {
                Listener::Unix(unix) => unix.socket.set_nonblocking(true)?,
                Listener::Tcp(socket) => socket.set_nonblocking(true)?,
            }
            Ok(listener)
        });
        bound.map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => {
                    "stop the server that uses this address, or use another address"
                }
                ErrorKind::NotFound => "create the folder",
                ErrorKind::AlreadyExists => "it is not a socket; use another path",
                ErrorKind::PermissionDenied => match listen {
                    Listen::Unix(_) => "use a path that you may write to",
                    _ => "use a port from 1024 on, or run as root",
                },
                _ => "use another address",
            };
            let what = format!("cannot listen ({error})");
            FrontError::new(FrontErrorKind::Address, what, place, remedy).caused_by(error)
        })
    }

    pub fn accept(&self) -> std::io::Result<Socket> {
        let (fd, peer) = match self {
            Listener::Unix(unix) => {
                let stream = unix.socket.accept()?.0;
                // A whole piece fits, so that no thread waits for a client that reads its answers. TCP adjusts its buffers itself.
                // The kernel counts twice the requested size, or twice the system's limit (208 KiB by default).
                let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, PIECE_BYTES);
                (stream.into(), "unix".to_string())
            }
            Listener::Tcp(socket) => {
                let (stream, peer) = socket.accept()?;
                // A small answer must not wait for a larger one.
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                (stream.into(), peer.to_string())
            }
        };
        Ok(Socket { fd, peer })
    }

    /// The address as a URI; `tls` selects the scheme for TLS.
    pub fn uri(&self, export: &str, tls: bool) -> String {
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Listener::Unix(unix) => {
                format!("{scheme}+unix:///{export}?socket={}", unix.path().display())
            }
            Listener::Tcp(socket) => {
                let address = socket
                    .local_addr()
                    .map_or_else(|_| String::new(), |a| a.to_string());
                format!("{scheme}://{address}/{export}")
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(unix) => unix.socket.as_fd(),
            Listener::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// A listener on a socket that the caller has created.
fn inherited(socket: &OwnedFd) -> std::io::Result<Listener> {
    let family = rustix::net::getsockname(socket)?.address_family();
    let socket = socket.try_clone()?;
    if family == AddressFamily::UNIX {
        Ok(Listener::Unix(UnixSocket::inherited(UnixListener::from(
            socket,
        ))?))
    } else {
        Ok(Listener::Tcp(TcpListener::from(socket)))
    }
}

pub struct Socket {
    fd: OwnedFd,
    /// The client's address, for the log.
    pub peer: String,
}

impl Socket {
    /// Closes one direction of the socket or both; threads that wait for the socket wake up.
    pub fn shutdown(&self, how: Shutdown) {
        // It fails only if it is already closed.
        let _ = rustix::net::shutdown(&self.fd, how);
    }

    /// Whether unread bytes have arrived.
    pub fn has_more(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(self.as_fd(), &mut [0_u8; 1][..], flags).is_ok_and(|(got, _)| got > 0)
    }

    /// Reads available bytes without waiting. Returns `WouldBlock` if there are none, and 0 at the end of the stream.
    pub fn receive_now(&self, buf: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match recv(self.as_fd(), &mut *buf, RecvFlags::DONTWAIT) {
                Ok((got, _)) => return Ok(got),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends as many bytes of `parts` as fit into the socket's buffer, and if all fit, as one packet. Returns `WouldBlock` if the buffer
    /// is full.
    pub fn send_now(&self, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            let mut none = SendAncillaryBuffer::default();
            match sendmsg(self.as_fd(), parts, &mut none, flags) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    /// Waits until the socket is readable or the client has disconnected.
    pub fn wait_to_receive(&self, deadline: &mut Deadline) -> std::io::Result<()> {
        self.wait(PollFlags::IN, deadline)
    }

    /// Waits until the socket's buffer has room, or the client has disconnected.
    pub fn wait_to_send(&self, deadline: &mut Deadline) -> std::io::Result<()> {
        self.wait(PollFlags::OUT, deadline)
    }

    fn wait(&self, what: PollFlags, deadline: &mut Deadline) -> std::io::Result<()> {
        let until = deadline.at();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let time = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(self, what)], Some(&time)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_keepalive;
    use std::net::TcpStream;

    #[test]
    fn a_tcp_client_that_is_gone_is_noticed() {
        let listener = Listener::bind(&Listen::Tcp(([127, 0, 0, 1], 0).into())).expect("a port");
        let Listener::Tcp(socket) = &listener else {
            unreachable!("it is one")
        };
        let _client =
            TcpStream::connect(socket.local_addr().expect("an address")).expect("connected");
        let stream = loop {
            match listener.accept() {
                Ok(stream) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(socket_keepalive(stream.as_fd()), Ok(true));
    }
}
