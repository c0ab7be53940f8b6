//! Checks, bind-mounts and unmounts the mounts of foreread on this node, each within a time limit. The list of mounts is read from the
//! kernel's mount table and stored nowhere else.
//!
//! ```text
//!   mountinfo   0:52 / .../globalmount  fuse.foreread s3://models/      the mount that `foreread mount` made
//!               0:52 / .../pods/.../mount fuse.foreread s3://models/    a bind mount of it: the same device
//! ```
//! A system call on a hung mount may never return. Therefore each call runs on a separate thread, which is abandoned
//! after a time limit. While an abandoned thread still works on a path, no second thread is started for this path.

use crate::refusal::{invalid, one_line, refused};
use crate::state::Claims;
use foreread_os::host::{FOREREAD_MOUNT, Host, Mount, last_at};
use foreread_os::threads::Task;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{StatVfs, statvfs};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};

/// The file system type of foreread's mounts on kernels before 5.5.
const OLD_KIND: &str = "fuse";
/// Time limit for the health check of a mount. The kubelet asks every minute, and a healthy mount answers in less than a
/// millisecond.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a mount or an unmount.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// Prefixes of the names of processes that unmount: the mount itself, which runs in the background as /proc/self/exe, and the
/// command that it may run.
const SERVERS: [&str; 3] = ["exe", "foreread", "fusermount"];
/// Interval of checks for a server that cannot be waited for.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of stacked mounts on a path.
const MAX_STACKED: usize = 16;

pub enum MountAnswer {
    Answers(Box<StatVfs>),
    /// Its server has ended, or answers with an error.
    Failed(String),
    /// Its server does not answer within the time limit.
    Silent,
}

#[derive(Clone, Debug)]
pub struct MountTable {
    host: Arc<Host>,
    /// Paths that a thread is checking now.
    asked: Claims<PathBuf>,
}

impl MountTable {
    pub fn here() -> MountTable {
        MountTable {
            host: Arc::new(Host::here()),
            asked: Claims::default(),
        }
    }

    /// Returns the topmost mount at a path, of any file system type.
    pub fn at(&self, place: &Path) -> Option<Mount> {
        last_at(&self.host.mounts(), place).cloned()
    }

    /// Returns the number of processes that serve mounts of foreread on this node. Mounts with the same device number have the same server.
    pub fn servers(&self) -> usize {
        let mounts = self.host.mounts();
        let ours = mounts.iter().filter(|mount| is_ours(mount));
        let devices: BTreeSet<String> = ours.map(|mount| mount.number.to_string()).collect();
        devices.len()
    }

    pub async fn asked(&self, place: &Path) -> MountAnswer {
        let place = place.to_path_buf();
        let claim = self.asked.claimed(&place);
        let Ok(claim) = tokio::time::timeout(ANSWER_TIMEOUT, claim).await else {
            return MountAnswer::Silent;
        };
        // Held until the thread has its answer; also released if the thread cannot be started.
        let answer = within(ANSWER_TIMEOUT, move || {
            let _claim = claim;
            statvfs(&place)
        });
        match answer.await {
            Some(Ok(stat)) => MountAnswer::Answers(Box::new(stat)),
            Some(Err(error)) => MountAnswer::Failed(Error::from(error).to_string()),
            None => MountAnswer::Silent,
        }
    }

    /// Waits until no server process is starting or ending at a mount point. Otherwise the server of a removed mount could unmount the next
    /// mount at the same path, and a mount started by a killed plugin could still appear. Returns whether there is a mount after the wait.
    pub async fn settled(&self, place: &Path) -> Result<bool, Status> {
        let settled = async {
            loop {
                let (own, at) = (self.clone(), place.to_path_buf());
                match within(CHANGE_TIMEOUT, move || own.settles(&at)).await {
                    Some(Some(is_mounted)) => return is_mounted,
                    Some(None) => {}
                    // No thread is available for it now, so wait.
                    None => tokio::time::sleep(LOOKS_EVERY).await,
                }
            }
        };
        let settled = tokio::time::timeout(CHANGE_TIMEOUT, settled).await;
        settled.map_err(|_| {
            let what = format!("an earlier mount at {} is still running", place.display());
            let remedy = "end its process; the kubelet retries the call";
            refused(Code::Unavailable, &what, remedy)
        })
    }

    /// Whether a path has a mount, once no server has the path among its arguments. `None` after a change, which may be another mount.
    fn settles(&self, place: &Path) -> Option<bool> {
        // Opened before the checks, so that a change in between is not missed.
        let table = self.host.mount_changes().ok();
        if self.at(place).is_some() {
            return Some(true);
        }
        let mut given = self.host.programs_given(place);
        let is_server = |name: &str| SERVERS.iter().any(|begin| name.starts_with(begin));
        given.retain(|program| is_server(&program.name));
        if given.is_empty() {
            return Some(false);
        }
        let ends: Vec<OwnedFd> = given.iter().filter_map(|one| end_of(one.pid)).collect();
        let limit = match ends.len() == given.len() && table.is_some() {
            true => CHANGE_TIMEOUT,
            false => LOOKS_EVERY,
        };
        let ends = ends.iter().map(|end| PollFd::new(end, PollFlags::IN));
        let table = table.iter();
        let changes = table.map(|table| PollFd::new(table, PollFlags::PRI | PollFlags::ERR));
        let mut events: Vec<PollFd<'_>> = ends.chain(changes).collect();
        let _ = poll(&mut events, Timespec::try_from(limit).ok().as_ref());
        None
    }

    /// Makes the content of `from` visible at `to`, by a read-only bind mount.
    pub async fn bind(&self, from: &Path, to: &Path) -> Result<(), Status> {
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        let place = to.clone();
        let bound = within(CHANGE_TIMEOUT, move || {
            rustix::mount::mount_bind(&from, &to)?;
            let flags =
                MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            let is_read_only = rustix::mount::mount_remount(&to, flags, c"");
            if is_read_only.is_err() {
                let _ = rustix::mount::unmount(&to, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            }
            is_read_only
        });
        changed("cannot bind the mount on", &place, bound.await)
    }

    /// Unmounts all mounts of foreread at a path. If `lazily` is true, mounts that are in use are also detached (umount2(2) with
    /// MNT_DETACH).
    pub async fn unmount(&self, place: &Path, lazily: bool) -> Result<(), Status> {
        for _ in 0..MAX_STACKED {
            let Some(mount) = self.at(place) else {
                return Ok(());
            };
            if !is_ours(&mount) {
                let what = format!("{} is a mount of {}", place.display(), mount.kind);
                return Err(refused(Code::FailedPrecondition, &what, "use 'umount'"));
            }
            let flags = match lazily {
                true => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
                false => UnmountFlags::NOFOLLOW,
            };
            let own = place.to_path_buf();
            let done = within(CHANGE_TIMEOUT, move || rustix::mount::unmount(&own, flags)).await;
            changed("cannot unmount", place, done)?;
        }
        let what = format!("{} has too many stacked mounts", place.display());
        Err(refused(Code::Internal, &what, "use 'umount'"))
    }
}

pub fn is_ours(mount: &Mount) -> bool {
    mount.kind == FOREREAD_MOUNT || mount.kind == OLD_KIND
}

/// Converts a path to the form in which the mount table contains it: symbolic links in its parent folders are resolved.
/// The path itself is not accessed, because its server may hang.
pub fn resolved(place: &str) -> Result<PathBuf, Status> {
    let path = Path::new(place);
    let name = path
        .file_name()
        .filter(|_| path.is_absolute() && place.len() < 4096);
    let (Some(name), Some(above)) = (name, path.parent()) else {
        let what = format!("'{}' is not the absolute path of a folder", one_line(place));
        return Err(invalid(&what, "use a path below the kubelet's folder"));
    };
    Ok(above
        .canonicalize()
        .map_or_else(|_| path.to_path_buf(), |above| above.join(name)))
}

/// Creates an empty mount point.
pub fn make_folder(place: &Path) -> Result<(), Status> {
    match std::fs::create_dir_all(place) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let what = format!("cannot make {}: {error}", place.display());
            Err(refused(Code::Internal, &what, "check the folder above it"))
        }
        _ => Ok(()),
    }
}

/// Removes a mount point. A folder that contains files is kept, because the plugin did not create them.
pub fn remove_folder(place: &Path) -> Result<(), Status> {
    match std::fs::remove_dir(place) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let what = format!("cannot remove {}: {error}", place.display());
            Err(refused(Code::Internal, &what, "check its content"))
        }
        _ => Ok(()),
    }
}

/// A descriptor that becomes readable when a process ends.
fn end_of(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

async fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let waited = tokio::task::spawn_blocking(move || {
        let task = Task::start("foreread-csi-mount", work).ok()?;
        task.within(patience)
    });
    waited.await.ok().flatten()
}

fn changed(what: &str, place: &Path, done: Option<rustix::io::Result<()>>) -> Result<(), Status> {
    let log = "see the log of the node";
    let (code, why, remedy) = match done {
        Some(Ok(())) => return Ok(()),
        Some(Err(rustix::io::Errno::BUSY)) => {
            let remedy = "end the programs that have its files open";
            (Code::Internal, "it is in use".to_string(), remedy)
        }
        Some(Err(error)) => (Code::Internal, Error::from(error).to_string(), log),
        None => {
            let why = "the system call did not return in time";
            (Code::DeadlineExceeded, why.to_string(), log)
        }
    };
    let what = format!("{what} {}: {why}", place.display());
    Err(refused(code, &what, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_absolute_and_links_above_them_are_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let real = dir.path().canonicalize().expect("there");
        std::os::unix::fs::symlink(&real, real.join("link")).expect("made");
        let place = format!("{}/link/x", real.display());
        assert_eq!(resolved(&place).expect("good"), real.join("x"));
        for place in ["", "a", "/", "a/b", "/a/..", &"/x".repeat(3000)] {
            assert!(resolved(place).is_err(), "{place}");
        }
    }

    #[test]
    fn folders_with_files_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let place = dir.path().join("a/b");
        make_folder(&place).expect("made");
        make_folder(&place).expect("there");
        std::fs::write(place.join("x"), "1").expect("room");
        assert!(remove_folder(&place).is_err() && place.join("x").exists());
        std::fs::remove_file(place.join("x")).expect("removed");
        remove_folder(&place).expect("removed");
        remove_folder(&place).expect("gone");
    }
}
