//! A unix socket in the file system, removed when it is dropped.
//!
//! The socket is created in a directory that no other user can enter. The socket is moved to its path only after its file mode is set, so
//! that no other user can connect before. The new socket never replaces a regular file, or the socket of a server that still answers.
//!
//! ```text
//!   .foreread-RANDOM/s (0600) ──rename──► PATH ──dropped──► removed, if it is still this socket
//! ```

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::Permissions;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

pub struct UnixSocket {
    pub socket: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// Creates a socket at `path`; if the path is the socket of a server that has ended, it is replaced.
    pub fn bind(path: &Path) -> std::io::Result<UnixSocket> {
        make_way(path)?;
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // An error of the folder itself names no temporary file.
        std::fs::metadata(parent)?;
        // The mode is 0700, and the name cannot be guessed.
        let dir = tempfile::Builder::new()
            .prefix(".foreread-")
            .tempdir_in(parent)?;
        let hidden = dir.path().join("s");
        let socket = UnixListener::bind(&hidden)?;
        std::fs::set_permissions(&hidden, Permissions::from_mode(0o600))?;
        let inode = std::fs::symlink_metadata(&hidden)?.ino();
        std::fs::rename(&hidden, path)?;
        Ok(UnixSocket {
            socket,
            path: path.to_path_buf(),
            inode,
        })
    }

    /// Uses a socket that another process has created; its file is not removed.
    #[cfg(feature = "nbd")]
    pub fn inherited(socket: UnixListener) -> std::io::Result<UnixSocket> {
        let path = socket
            .local_addr()?
            .as_pathname()
            .unwrap_or(Path::new(""))
            .to_path_buf();
        // No file has this inode number.
        Ok(UnixSocket {
            socket,
            path,
            inode: 0,
        })
    }

    #[cfg(feature = "nbd")]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl UnixSocket {
    pub fn remove(&self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|m| m.ino() == self.inode) {
            // The socket of another server at this path is not removed.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Connects to a unix socket without waiting. (A blocking connect(2) would wait while the listen queue is full, possibly forever.)
///
/// # Errors
/// Returns `WouldBlock` if a process listens on the socket but does not accept connections. Returns `ConnectionRefused` if no process
/// listens on the socket.
pub fn knock(path: &Path) -> std::io::Result<UnixStream> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Refuses a path that is in use, with the reason. A socket without a listener was left by a killed server, and may be replaced.
fn make_way(path: &Path) -> std::io::Result<()> {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !meta.file_type().is_socket() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "the path is a file, not a socket",
        ));
    }
    let taken = |what| Err(Error::new(ErrorKind::AddrInUse, what));
    match knock(path) {
        Ok(_) => taken("in use: another server listens on this path"),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED) => Ok(()),
            Some(Errno::AGAIN) => {
                taken("in use: another program listens on this path, but accepts no connections")
            }
            Some(Errno::PROTOTYPE) => {
                taken("in use: the path is a datagram socket of another program")
            }
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// No case waits: another program's listener never accepts, and its queue is full.
    #[test]
    fn a_socket_path_in_use_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let said = |path: &Path| UnixSocket::bind(path).err().expect("refused").to_string();
        let foreign = UnixListener::bind(&path).expect("made");
        assert_eq!(said(&path), "in use: another server listens on this path");
        let mut waiting = Vec::new();
        loop {
            match knock(&path) {
                Ok(stream) => waiting.push(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(
            said(&path).contains("accepts no connections"),
            "{}",
            said(&path)
        );
        drop(foreign);
        let own =
            UnixSocket::bind(&path).expect("a socket that a killed server has left is replaced");
        drop(own);
        let datagrams = UnixDatagram::bind(&path).expect("made");
        assert!(said(&path).contains("datagram socket"), "{}", said(&path));
        drop(datagrams);
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "text").expect("room");
        assert!(said(&path).contains("not a socket"), "{}", said(&path));
    }
}
