//! `foreread umount`: takes mounts of foreread away, and says which programs hold one that is in use.
//!
//! Never: takes away a mount of another file system.

use crate::fail::{Fail, note};
use crate::out;
use foreread_os::host::{Host, Mount};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// The type of our mounts.
const KIND: &str = "fuse.foreread";
/// Programs that are named.
const MAX_NAMED: usize = 5;

/// Unmounts all that are named, and fails if one stayed.
pub fn run(args: &UmountArgs) -> Result<(), Fail> {
    let host = Host::here();
    let mounts = host.mounts().into_iter().filter(|mount| mount.kind == KIND);
    let mounts = Vec::from_iter(mounts);
    let asked = if args.all {
        mounts
    } else {
        let found = args.dirs.iter().map(|dir| found(&mounts, dir));
        found.collect::<Result<Vec<_>, _>>()?
    };
    if asked.is_empty() {
        note("nothing of foreread is mounted");
    }
    let mut failed = None;
    for mount in asked {
        match away(&host, &mount, args.lazy) {
            Ok(()) => out::print(format!("{}\n", mount.point.display()))?,
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

/// The place of the mount as the kernel has it. A mount without its server cannot be looked at, so the name is compared.
fn found(mounts: &[Mount], dir: &Path) -> Result<Mount, Fail> {
    let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let name = whole.file_name().map(ToOwned::to_owned);
    let above = whole.parent().and_then(|above| above.canonicalize().ok());
    let real = match (above, name) {
        (Some(above), Some(name)) => above.join(name),
        _ => whole.clone(),
    };
    // A link to the folder: what it is of can be asked where the mount answers.
    let link = dir.canonicalize().ok();
    let is_at = |mount: &&Mount| {
        mount.point == real || mount.point == whole || Some(&mount.point) == link.as_ref()
    };
    let found = mounts.iter().rev().find(is_at);
    found.cloned().ok_or_else(|| {
        let places = mounts.iter().map(|mount| mount.point.display().to_string());
        let places = Vec::from_iter(places.take(MAX_NAMED)).join(", ");
        let remedy = match places.is_empty() {
            true => "nothing of foreread is mounted here".to_string(),
            false => format!("mounted are: {places}"),
        };
        Fail::input("no mount of foreread", dir.display(), remedy)
    })
}

fn away(host: &Host, mount: &Mount, lazy: bool) -> Result<(), Fail> {
    let tries: [(&str, &[&str]); 2] = match lazy {
        true => [
            ("fusermount3", &["-u", "-z", "--"]),
            ("umount", &["-l", "--"]),
        ],
        false => [("fusermount3", &["-u", "--"]), ("umount", &["--"])],
    };
    let mut said = String::new();
    for (program, arguments) in tries {
        let mut command = Command::new(program);
        let command = command
            .args(arguments)
            .arg(&mount.point)
            .stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => said = String::from_utf8_lossy(&output.stderr).trim().to_string(),
            Err(error) if said.is_empty() => said = format!("{program}: {error}"),
            Err(_) => {}
        }
    }
    let users = host.programs_in(mount);
    let place = mount.point.display();
    if users.is_empty() {
        let remedy = "end what uses it, or use --lazy";
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
