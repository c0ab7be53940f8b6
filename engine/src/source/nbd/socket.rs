//! A TCP or unix socket to a server, read and written by several threads.
//!
//! No wait is longer than the time that a server may be silent, and TCP keepalive detects a peer that has vanished.

use super::failure::NO_ADDRESS;
use super::uri::ServerPlace;
use crate::nbd::wire::keep_alive;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A TCP or unix socket. Both are read, written and shut down by the same system calls, so one type has both.
pub struct ServerSocket(TcpStream);

impl ServerSocket {
    pub fn connect(place: &ServerPlace, silence: Duration) -> std::io::Result<ServerSocket> {
        let socket = match place {
            ServerPlace::Unix(path) => OwnedFd::from(UnixStream::connect(path)?).into(),
            ServerPlace::Tcp { host, port } => dial(host, *port, silence)?,
        };
        socket.set_read_timeout(Some(silence))?;
        socket.set_write_timeout(Some(silence))?;
        Ok(ServerSocket(socket))
    }

    pub fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        (&self.0).write_all(bytes)
    }

    /// Receives the bytes that have arrived; returns 0 at the end of the stream. Waits at most for the silence timeout.
    pub fn receive(&self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match (&self.0).read(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    pub fn hang_up(&self) {
        // This fails only if the socket is closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Connects to the first address of a host that accepts.
fn dial(host: &str, port: u16, silence: Duration) -> std::io::Result<TcpStream> {
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| std::io::Error::other(format!("{NO_ADDRESS} ({error})")))?;
    let mut last = std::io::Error::from(ErrorKind::NotFound);
    for address in found {
        match TcpStream::connect_timeout(&address, silence) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;

    #[test]
    fn a_tcp_server_that_is_gone_is_noticed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let place = ServerPlace::Tcp {
            host: "127.0.0.1".to_string(),
            port,
        };
        let socket = ServerSocket::connect(&place, Duration::from_secs(5)).expect("connected");
        let stream = socket.0;
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(Duration::from_secs(120)));
    }
}
