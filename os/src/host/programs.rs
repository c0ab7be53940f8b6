//! Finds programs that have files of a device open or mapped. Files that are already open keep the readahead setting that the device had
//! when they were opened.
//!
//! ```text
//!   proc/4711/fdinfo/3    mnt_id: 27   ──► proc/4711/mountinfo: 27 is 254:0
//!   proc/4711/maps        fe:00 1234   ──► 254:0
//! ```
//! This module reads only `/proc`, never the files of programs, because the server of their file system may hang. Only root sees
//! processes of other users.

use super::devices::entries;
use super::{DeviceNumber, Host, Mount, mapped_files, text};
use std::collections::HashMap;
use std::fs::read_link;
use std::path::{Path, PathBuf};

/// Maximum number of descriptors checked in a process.
const MAX_DESCRIPTORS: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenProgram {
    pub pid: u32,
    pub name: String,
}

impl OpenProgram {
    fn new(pid: u32, folder: &Path) -> OpenProgram {
        let name = text(&folder.join("comm")).unwrap_or_default();
        let name = name.chars().filter(|letter| !letter.is_control()).collect();
        OpenProgram { pid, name }
    }
}

impl Host {
    /// Returns the programs, except this process, that have a file of one of these devices open or mapped.
    pub fn programs_on(&self, numbers: &[DeviceNumber]) -> Vec<OpenProgram> {
        // Mount identifiers are unique on the machine, so each is looked up once.
        let mut mounts: HashMap<u64, DeviceNumber> = HashMap::new();
        let mut found = Vec::new();
        for (pid, folder) in self.other_processes() {
            if maps_one(&folder, numbers) || self.opens_one(&folder, pid, numbers, &mut mounts) {
                found.push(OpenProgram::new(pid, &folder));
            }
        }
        found.sort_by_key(|program| program.pid);
        found
    }

    /// Returns how many bytes each process has read from storage, by pid, for the processes that this user may inspect; the
    /// calling process is omitted.
    pub fn storage_reads(&self) -> HashMap<u32, u64> {
        let read = |(pid, folder): (u32, PathBuf)| {
            let io = text(&folder.join("io"))?;
            let bytes = io
                .lines()
                .find_map(|line| line.strip_prefix("read_bytes:"))?;
            Some((pid, bytes.trim().parse().ok()?))
        };
        self.other_processes().filter_map(read).collect()
    }

    /// Returns the processes that have this path among their arguments. Also returns processes without arguments that are ending: their
    /// first thread has ended, but another thread may still be in a system call. The calling process is omitted.
    pub fn programs_given(&self, path: &Path) -> Vec<OpenProgram> {
        use std::os::unix::ffi::OsStrExt;
        let has = |folder: &Path| {
            let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
            if line.is_empty() {
                return entries(&folder.join("task")).count() > 1;
            }
            let mut words = line.split(|byte| *byte == 0);
            words.any(|word| word == path.as_os_str().as_bytes())
        };
        let given = self.other_processes().filter(|(_, folder)| has(folder));
        given
            .map(|(pid, folder)| OpenProgram::new(pid, &folder))
            .collect()
    }

    /// Returns the programs that use a mount: they have a file in it open or mapped, or their working directory is in it. The
    /// calling process is omitted.
    pub fn programs_in(&self, mount: &Mount) -> Vec<OpenProgram> {
        let mut found = self.programs_on(&[mount.number]);
        for (pid, folder) in self.other_processes() {
            // Only the name is compared; no file system is accessed.
            let is_in = read_link(folder.join("cwd")).is_ok_and(|at| at.starts_with(&mount.point));
            if is_in && found.iter().all(|program| program.pid != pid) {
                found.push(OpenProgram::new(pid, &folder));
            }
        }
        found.sort_by_key(|program| program.pid);
        found
    }

    /// The numbers of all processes except this one, with their folders in proc.
    fn other_processes(&self) -> impl Iterator<Item = (u32, PathBuf)> {
        let own = std::process::id();
        entries(&self.proc).filter_map(move |folder| {
            let pid = folder.file_name()?.to_str()?.parse().ok()?;
            (pid != own).then_some((pid, folder))
        })
    }

    fn opens_one(
        &self,
        folder: &Path,
        pid: u32,
        numbers: &[DeviceNumber],
        mounts: &mut HashMap<u64, DeviceNumber>,
    ) -> bool {
        let mut is_looked_up = false;
        for file in entries(&folder.join("fdinfo")).take(MAX_DESCRIPTORS) {
            let info = text(&file).unwrap_or_default();
            let mut ids = info.lines().filter_map(|line| line.strip_prefix("mnt_id:"));
            let Some(id) = ids.next().and_then(|id| id.trim().parse::<u64>().ok()) else {
                continue;
            };
            if !mounts.contains_key(&id) && !is_looked_up {
                let its = self.mounts_of(&pid.to_string());
                mounts.extend(its.iter().map(|mount| (mount.id, mount.number)));
                is_looked_up = true;
            }
            let number = mounts.get(&id);
            if number.is_some_and(|number| numbers.contains(number)) {
                return true;
            }
        }
        false
    }
}

/// `7f12a000-7f12b000 r--p 00000000 fe:00 1234  /usr/lib/libc.so.6`
fn maps_one(folder: &Path, numbers: &[DeviceNumber]) -> bool {
    let maps = text(&folder.join("maps")).unwrap_or_default();
    mapped_files(&maps).any(|mapping| numbers.contains(&mapping.device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_what_it_has_open_or_mapped() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let write = |file: &str, text: &str| {
            let path = root.path().join("proc").join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        // Numbers from 4000000 on: no real process has such a number.
        write("4000001/comm", "opens\n");
        let info = "pos:\t0\nflags:\t0100000\nmnt_id:\t27\n";
        write("4000001/fdinfo/3", info);
        let mount = "27 1 254:0 / / rw - ext4 /dev/vda rw\n";
        write("4000001/mountinfo", mount);
        write("4000002/comm", "maps\n");
        let mapping = "7f00-7f01 r--p 00000000 fe:00 12 /usr/lib/libc.so.6\n";
        write("4000002/maps", mapping);
        write("4000003/comm", "neither\n");
        write("4000003/maps", "7f00-7f01 r--p\n7f00-7f01 r--p 0 zz:00 0\n");
        write("4000003/fdinfo/0", "mnt_id:\tx\n");
        let host = Host::below(root.path());
        let number = DeviceNumber::parse("254:0").expect("a number");
        let found = host.programs_on(&[number]);
        let names: Vec<&str> = found.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["opens", "maps"]);
    }
}
