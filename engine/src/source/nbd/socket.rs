//! A TCP or unix socket to a server, read and written by several threads.
//!
//! No wait is longer than the time that a server may be silent, and TCP keepalive detects a peer that has vanished.

use super::failure::NO_ADDRESS;
use super::uri::ServerPlace;
use crate::nbd::wire::keep_alive;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A TCP or unix socket.
pub enum ServerSocket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl ServerSocket {
    pub fn connect(place: &ServerPlace, silence: Duration) -> std::io::Result<ServerSocket> {
        match place {
            ServerPlace::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(silence))?;
                stream.set_write_timeout(Some(silence))?;
                Ok(ServerSocket::Unix(stream))
            }
            ServerPlace::Tcp { host, port } => {
                let mut last = std::io::Error::from(ErrorKind::NotFound);
                let found = (host.as_str(), *port).to_socket_addrs();
                for address in found
                    .map_err(|error| std::io::Error::other(format!("{NO_ADDRESS} ({error})")))?
                {
                    match TcpStream::connect_timeout(&address, silence) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            keep_alive(&stream)?;
                            stream.set_read_timeout(Some(silence))?;
                            stream.set_write_timeout(Some(silence))?;
                            return Ok(ServerSocket::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    pub fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            ServerSocket::Unix(s) => (&*s).write_all(bytes),
            ServerSocket::Tcp(s) => (&*s).write_all(bytes),
        }
    }

    /// Receives the bytes that have arrived; returns 0 at the end of the stream. Waits at most for the silence timeout.
    pub fn receive(&self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let got = match self {
                ServerSocket::Unix(s) => (&*s).read(bytes),
                ServerSocket::Tcp(s) => (&*s).read(bytes),
            };
            match got {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    pub fn hang_up(&self) {
        // This fails only if the socket is closed already.
        let _ = match self {
            ServerSocket::Unix(s) => s.shutdown(Shutdown::Both),
            ServerSocket::Tcp(s) => s.shutdown(Shutdown::Both),
        };
    }
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
        let Ok(ServerSocket::Tcp(stream)) = ServerSocket::connect(&place, Duration::from_secs(5))
        else {
            panic!("connected")
        };
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(Duration::from_secs(120)));
    }
}
