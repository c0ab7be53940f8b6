//! `foreread umount`: unmounts mounts of foreread, and names the programs that keep a mount busy.
//!
//! The command unmounts only file systems of foreread.

use crate::fail::{Fail, note, one_line};
use crate::out;
use foreread_os::host::{FOREREAD_MOUNT, Host, Mount, last_at};
use foreread_os::unmount;
use std::path::{Component, Path, PathBuf};

/// Unmount mounts of 'foreread mount'
///
/// Works like 'fusermount3 -u DIR' or 'umount DIR'. The 'foreread mount' process of that mount then saves its state and
/// ends. A busy mount stays mounted, and the programs that use it are listed as far as this user may see them. With
/// --lazy the mount is detached at once, and ends when the last file is closed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread umount mnt
  foreread umount --all")]
pub struct UmountArgs {
    /// Mount points
    #[arg(value_name = "DIR", required_unless_present = "all")]
    pub dirs: Vec<PathBuf>,
    /// Unmount all foreread mounts in this mount namespace
    #[arg(long, conflicts_with = "dirs")]
    pub all: bool,
    /// Detach a busy mount now; it ends when its last file is closed
    #[arg(long)]
    pub lazy: bool,
}

/// Maximum number of programs listed.
const MAX_NAMED: usize = 5;

/// Unmounts all given mounts, and fails if one of them remains mounted.
pub fn run(args: &UmountArgs) -> Result<(), Fail> {
    let host = Host::here();
    let all = host.mounts();
    let mut asked = if args.all {
        Vec::from_iter(all.iter().filter(|mount| mount.kind == FOREREAD_MOUNT))
    } else {
        let found = args.dirs.iter().map(|dir| found(&all, dir));
        found.collect::<Result<Vec<_>, _>>()?
    };
    // In reverse order of mounting, because mounts may be nested.
    asked.sort_by_key(|mount| std::cmp::Reverse(all.iter().position(|other| other.id == mount.id)));
    asked.dedup_by_key(|mount| mount.id);
    if asked.is_empty() {
        note("there is no foreread mount");
    }
    let mut failed = None;
    for mount in asked {
        match away(&host, mount, args.lazy) {
            Ok(()) => out::print(format!("{}\n", shown(&mount.point)))?,
            Err(fail) => {
                // The command ends with the last error.
                if let Some(Fail::Failure(earlier)) = failed.replace(fail) {
                    note(earlier);
                }
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// A path that is safe to print on a terminal.
fn shown(place: &Path) -> String {
    one_line(&place.display().to_string())
}

/// The absolute path of a folder, without a trailing slash, `.` and doubled slashes. `..` means the parent of what a link names, so the
/// system resolves what is before the last name.
fn without_parents(dir: &Path) -> PathBuf {
    let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let whole = PathBuf::from_iter(whole.components());
    let has_parents = whole.components().any(|part| part == Component::ParentDir);
    let real = match (whole.parent(), whole.file_name()) {
        _ if !has_parents => return whole,
        (Some(parent), Some(name)) => parent.canonicalize().map(|parent| parent.join(name)),
        _ => whole.canonicalize(),
    };
    real.unwrap_or(whole)
}

/// The mount at a folder, if it is ours. Names are compared first, because system calls on a hung mount block.
fn found<'a>(all: &'a [Mount], dir: &Path) -> Result<&'a Mount, Fail> {
    let whole = without_parents(dir);
    let is_below = |mount: &Mount| mount.kind == FOREREAD_MOUNT && whole.starts_with(&mount.point);
    let by_link = || {
        let real = dir
            .canonicalize()
            .ok()
            .filter(|_| !all.iter().any(is_below));
        last_at(all, &real?)
    };
    let last = last_at(all, &whole).or_else(by_link);
    match last {
        Some(mount) if mount.kind == FOREREAD_MOUNT => return Ok(mount),
        Some(mount) => {
            let what = format!("{} is {}", shown(dir), mount.kind);
            return Err(Fail::input("not a foreread mount", what, "use 'umount'"));
        }
        None => {}
    }
    let places = all.iter().filter(|mount| mount.kind == FOREREAD_MOUNT);
    let places = places.take(MAX_NAMED).map(|mount| shown(&mount.point));
    let places = Vec::from_iter(places).join(", ");
    let remedy = match places.is_empty() {
        true => "there is no foreread mount on this machine".to_string(),
        false => format!("the mounts are: {places}"),
    };
    Err(Fail::input("not a foreread mount", shown(dir), remedy))
}

fn away(host: &Host, mount: &Mount, lazy: bool) -> Result<(), Fail> {
    let Err(said) = unmount::by_commands(&mount.point, lazy) else {
        return Ok(());
    };
    let users = host.programs_in(mount);
    let place = shown(&mount.point);
    if users.is_empty() {
        let remedy = "run the command as root or as the user that mounted it; if the mount is busy, end the programs \
             that use it, or add --lazy";
        return Err(Fail::cannot(
            "not unmounted",
            format!("{place}: {said}"),
            remedy,
        ));
    }
    let users = users
        .iter()
        .take(MAX_NAMED)
        .map(|user| format!("{} ({})", user.pid, user.name));
    let users = Vec::from_iter(users).join(", ");
    let remedy = format!("end {users}, or add --lazy");
    Err(Fail::cannot("in use", place, remedy))
}
