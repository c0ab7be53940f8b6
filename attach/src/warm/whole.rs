//! A plan of whole files: the given files and all files below the given folders, sorted by name within each folder.

use super::{LeftOut, MAX_LEFT_OUT};
use foreread_os::open::look;
use foreread_plan::runs::{Account, Full};
use foreread_plan::{MAX_FILES, Plan, PlanFile, PlanRange};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes a plan of these files and folders, and returns it with the files that are left out. Links to folders below a
/// given folder are not followed.
pub fn whole_files(paths: &[PathBuf]) -> (Plan, Vec<LeftOut>) {
    let mut walk = Walk::default();
    for path in paths {
        if walk.is_full {
            break;
        }
        // A link that is given itself is followed.
        match look(path) {
            Ok(looked) if looked.meta().is_dir() => walk.folder(path),
            _ => walk.file(path.clone()),
        }
    }
    (walk.plan, walk.left_out)
}

#[derive(Default)]
struct Walk {
    plan: Plan,
    left_out: Vec<LeftOut>,
    account: Account,
    /// Whether the plan has as many files as it may have: the search stops.
    is_full: bool,
}

impl Walk {
    fn folder(&mut self, at: &Path) {
        // Folders that are still to be read count too; the given path itself does not.
        let mut folders = vec![at.to_path_buf()];
        while let Some(at) = folders.pop().filter(|_| !self.is_full) {
            self.account.give_back::<PathBuf>(at.as_os_str().len());
            // A folder that cannot be read completely is left out completely: otherwise half of it would look like
            // all of it.
            match entries(&at, &self.account) {
                Err(why) => self.leave_out(at, why),
                Ok((files, below)) => {
                    files.into_iter().for_each(|name| self.file(at.join(name)));
                    for name in below.iter().rev() {
                        let below = at.join(name);
                        match self.account.take::<PathBuf>(below.as_os_str().len()) {
                            Ok(()) => folders.push(below),
                            Err(full) => self.fill(below, &full.to_string()),
                        }
                    }
                }
            }
        }
    }

    fn file(&mut self, mut path: PathBuf) {
        if self.is_full {
            return;
        }
        if self.plan.files.len() >= MAX_FILES {
            return self.fill(path, &format!("more than {MAX_FILES} files"));
        }
        let looked = look(&path).and_then(foreread_os::open::UnopenedFile::regular);
        let looked = match looked {
            Ok(looked) => looked,
            Err(error) => return self.leave_out(path, error.to_string()),
        };
        path.shrink_to_fit();
        if let Err(full) = self.account.take::<(PlanFile, PlanRange)>(path.capacity()) {
            return self.fill(path, &full.to_string());
        }
        let (number, size) = (self.plan.files.len() as u32, looked.meta().len());
        self.plan.files.push(PlanFile::of(path, looked.meta()));
        if size > 0 {
            self.plan.ranges.push(PlanRange::of(number, &(0..size)));
        }
    }

    /// The plan is full: this path and all others are left out.
    fn fill(&mut self, path: PathBuf, why: &str) {
        if !std::mem::replace(&mut self.is_full, true) {
            let why = format!("{why}; this path and all later paths are left out");
            self.leave_out(path, why);
        }
    }

    fn leave_out(&mut self, path: PathBuf, why: String) {
        // The last entry says that the plan is full, so it is always added.
        if self.left_out.len() < MAX_LEFT_OUT || self.is_full {
            self.left_out.push(LeftOut { path, why });
        }
    }
}

/// The files and the folders in a folder, by name. Links and other kinds of files are left out.
fn entries(at: &Path, account: &Account) -> Result<(Vec<OsString>, Vec<OsString>), String> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    // These names are freed when the folder is done, so they are counted separately from the plan's.
    let mut account = account.clone();
    let text = |error: std::io::Error| error.to_string();
    for entry in fs::read_dir(at).map_err(text)? {
        let entry = entry.map_err(text)?;
        let kind = match entry.file_type() {
            // The entry was removed after the folder was read.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            kind => kind.map_err(text)?,
        };
        let to = match kind {
            _ if kind.is_file() => &mut files,
            _ if kind.is_dir() => &mut folders,
            _ => continue,
        };
        let name = entry.file_name();
        account
            .take::<OsString>(name.len())
            .map_err(|full: Full| full.to_string())?;
        to.push(name);
    }
    files.sort();
    folders.sort();
    Ok((files, folders))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 250,000 files in a folder whose path has 3,900 bytes: nearly 1 GB of paths. The limit comes first, and is said.
    #[test]
    fn the_paths_of_a_plan_have_a_limit_of_bytes() {
        let mut walk = Walk::default();
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let file = root.path().join("file");
        fs::write(&file, "x").expect("room");
        // Names of one file that are as long as a path may be.
        let mut long = root.path().to_path_buf().into_os_string();
        while long.len() < 3_900 {
            long.push("/.");
        }
        let long = PathBuf::from(long);
        for _ in 0..250_000 {
            walk.file(PathBuf::from(format!("{}/./file", long.display())));
        }
        let files = &walk.plan.files;
        let bytes: usize = files.iter().map(|file| file.path.capacity()).sum();
        let most = foreread_plan::runs::MAX_BYTES;
        assert!(walk.is_full && bytes <= most, "{bytes}");
        let count = files.len();
        assert!((60_000..70_000).contains(&count), "{count}");
        let [LeftOut { why, .. }] = &walk.left_out[..] else {
            panic!("it is said once");
        };
        let has = |part| why.contains(part);
        assert!(
            has("more than 256 MiB") && has("and all later paths"),
            "{why}"
        );
    }

    #[test]
    fn what_is_left_out_is_named_up_to_a_limit() {
        let none: Vec<PathBuf> = (0..MAX_LEFT_OUT + 9)
            .map(|n| format!("/no/such/{n}").into())
            .collect();
        let (plan, left_out) = whole_files(&none);
        assert_eq!((plan.files.len(), left_out.len()), (0, MAX_LEFT_OUT));
    }
}
