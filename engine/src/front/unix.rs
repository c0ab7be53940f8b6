//! A unix socket that has a place in the file system, and leaves none behind.
//!
//! It is made in a directory that no other user can enter and moved to its place when its mode is set, so there is no moment at which
//! others could connect. Never: takes the place of a file, or of a server that still answers.
//!
//! ```text
//!   .foreread-XXXX/s (0600) ──rename──► PATH ──dropped──► removed, if it is still this socket
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
    /// A socket at `path`, in place of one that no server answers.
    pub fn bind(path: &Path) -> std::io::Result<UnixSocket> {
        make_way(path)?;
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // 0700, with a name that cannot be guessed.
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

    /// One that another process has made: its file is not ours to remove.
    #[cfg(feature = "nbd")]
    pub fn inherited(socket: UnixListener) -> std::io::Result<UnixSocket> {
        let path = socket
            .local_addr()?
            .as_pathname()
            .unwrap_or(Path::new(""))
            .to_path_buf();
        // No file has this number.
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
    /// Takes its file away.
    pub fn remove(&self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|m| m.ino() == self.inode) {
            // Another server's socket in its place stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Connects without waiting: a listener whose queue is full keeps a plain connect(2) until it accepts, which may be never.
///
/// # Errors
/// `WouldBlock`: something listens and does not accept. `ConnectionRefused`: nothing listens any more.
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

/// Refuses a place that is taken, and says by what. A socket that no server answers was left by a killed one, and may be replaced.
fn make_way(path: &Path) -> std::io::Result<()> {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !meta.file_type().is_socket() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "a file that is no socket is there",
        ));
    }
    let taken = |what| Err(Error::new(ErrorKind::AddrInUse, what));
    match knock(path) {
        Ok(_) => taken("in use: a server listens there"),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED) => Ok(()),
            Some(Errno::AGAIN) => {
                taken("in use: another program listens there, and accepts no connections")
            }
            Some(Errno::PROTOTYPE) => {
                taken("in use: a socket of another kind (datagrams) is there")
            }
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// None of these is waited for: the listener of another program never accepts, and its queue is full.
    #[test]
    fn a_place_that_is_taken_is_refused_at_once_with_what_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let said = |path: &Path| UnixSocket::bind(path).err().expect("refused").to_string();
        let foreign = UnixListener::bind(&path).expect("made");
        assert_eq!(said(&path), "in use: a server listens there");
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
        assert!(said(&path).contains("datagrams"), "{}", said(&path));
        drop(datagrams);
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "text").expect("room");
        assert!(said(&path).contains("no socket"), "{}", said(&path));
    }
}
