//! A unix socket that has a place in the file system, and leaves none behind.
//!
//! It is made in a directory that no other user can enter and moved to its place when its mode is set, so there is no moment at which
//! others could connect. Never: takes the place of a file, or of a server that still answers.
//!
//! ```text
//!   .foreread-XXXX/s (0600) ──rename──► PATH ──dropped──► removed, if it is still this socket
//! ```

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// See the head of this file.
pub struct UnixSocket {
    pub socket: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// A socket at `path`, in place of one that no server answers.
    pub fn bind(path: &Path) -> std::io::Result<UnixSocket> {
        make_way(path)?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // 0700, with a name that cannot be guessed.
        let dir = tempfile::Builder::new().prefix(".foreread-").tempdir_in(parent)?;
        let hidden = dir.path().join("s");
        let socket = UnixListener::bind(&hidden)?;
        std::fs::set_permissions(&hidden, Permissions::from_mode(0o600))?;
        let inode = std::fs::symlink_metadata(&hidden)?.ino();
        std::fs::rename(&hidden, path)?;
        Ok(UnixSocket { socket, path: path.to_path_buf(), inode })
    }

    /// One that another process has made: its file is not ours to remove.
    #[cfg(feature = "nbd")]
    pub fn inherited(socket: UnixListener) -> std::io::Result<UnixSocket> {
        let path = socket.local_addr()?.as_pathname().unwrap_or(Path::new("")).to_path_buf();
        // No file has this number.
        Ok(UnixSocket { socket, path, inode: 0 })
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

/// Refuses a place that is taken. A socket that no server answers was left by a killed one, and may be replaced.
fn make_way(path: &Path) -> std::io::Result<()> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.file_type().is_socket() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(ErrorKind::AddrInUse.into()),
    }
}
