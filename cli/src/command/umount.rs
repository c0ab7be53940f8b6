//! `foreread umount`: takes mounts of foreread away, and says which programs hold one that is in use.
//!
//! Never: takes away a mount of another file system.

use crate::fail::{Fail, note, one_line};
use crate::out;
use foreread_os::host::{FOREREAD_MOUNT, Host, Mount, last_at};
use foreread_os::unmount;
use std::path::{Path, PathBuf};

/// Unmount what 'foreread mount' has mounted
///
/// As 'fusermount3 -u DIR' or 'umount DIR' does. The command that serves the mount ends then, when it has kept what it learned. A mount
/// that is in use stays, and programs that use it are named, as far as this user may see them; with --lazy it goes from its folder at once, and ends
/// when they have closed their files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread umount mnt
  foreread umount --all")]
pub struct UmountArgs {
    /// Folders that are mounted on
    #[arg(value_name = "DIR", required_unless_present = "all")]
    pub dirs: Vec<PathBuf>,
    /// Unmount every mount of foreread that is seen here
    #[arg(long, conflicts_with = "dirs")]
    pub all: bool,
    /// Take one that is in use from its folder now; it ends with its last file
    #[arg(long)]
    pub lazy: bool,
}

/// Programs that are named.
const MAX_NAMED: usize = 5;

/// Unmounts all that are named, and fails if one stayed.
pub fn run(args: &UmountArgs) -> Result<(), Fail> {
    let host = Host::here();
    let all = host.mounts();
    let mut asked = if args.all {
        Vec::from_iter(all.iter().filter(|mount| mount.kind == FOREREAD_MOUNT))
    } else {
        let found = args.dirs.iter().map(|dir| found(&all, dir));
        found.collect::<Result<Vec<_>, _>>()?
    };
    // The last mounted first: one may be in a folder of another.
    asked.sort_by_key(|mount| std::cmp::Reverse(all.iter().position(|other| other.id == mount.id)));
    asked.dedup_by_key(|mount| mount.id);
    if asked.is_empty() {
        note("nothing of foreread is mounted");
    }
    let mut failed = None;
    for mount in asked {
        match away(&host, mount, args.lazy) {
            Ok(()) => out::print(format!("{}\n", shown(&mount.point)))?,
            Err(fail) => {
                // The last is what the command ends with.
                if let Some(Fail::Failure(earlier)) = failed.replace(fail) {
                    note(earlier);
                }
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// A place as a terminal may show it.
fn shown(place: &Path) -> String {
    one_line(&place.display().to_string())
}

/// The mount that a folder shows, if it is ours. Names are compared first: a mount whose server does not answer cannot be looked at.
fn found<'a>(all: &'a [Mount], dir: &Path) -> Result<&'a Mount, Fail> {
    // Without a slash at its end, `.` and doubled slashes; `..` stays.
    let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let whole = PathBuf::from_iter(whole.components());
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
            return Err(Fail::input(
                "no mount of foreread",
                what,
                "'umount' takes it away",
            ));
        }
        None => {}
    }
    let places = all.iter().filter(|mount| mount.kind == FOREREAD_MOUNT);
    let places = places.take(MAX_NAMED).map(|mount| shown(&mount.point));
    let places = Vec::from_iter(places).join(", ");
    let remedy = match places.is_empty() {
        true => "nothing of foreread is mounted here".to_string(),
        false => format!("mounted are: {places}"),
    };
    Err(Fail::input("no mount of foreread", shown(dir), remedy))
}

fn away(host: &Host, mount: &Mount, lazy: bool) -> Result<(), Fail> {
    let Err(said) = unmount::by_commands(&mount.point, lazy) else {
        return Ok(());
    };
    let users = host.programs_in(mount);
    let place = shown(&mount.point);
    if users.is_empty() {
        let remedy = "run it as its user or as root; where it is in use, end that or use --lazy";
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
    let remedy = format!("end {users}, or use --lazy");
    Err(Fail::cannot("in use", place, remedy))
}
