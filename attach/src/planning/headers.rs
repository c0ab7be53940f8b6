//! Plans files whose format says where their parts are: the header first, then the selected parts, in file order. A file may
//! be any source, such as `hf://USER/REPO/model.safetensors`: only its header is read.

use foreread::source::{self, Source, SourceName};
use foreread_os::failure::{Failure, FailureKind};
use foreread_os::open::look;
use foreread_plan::layout::{self, Format, LayoutError, Names, Part};
use foreread_plan::runs::Account;
use foreread_plan::{MAX_FILES, MAX_RANGES, Plan, PlanFile, PlanRange};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

fn remedy(error: &LayoutError) -> &'static str {
    match error {
        LayoutError::Io(_) => "check the path and its permissions",
        LayoutError::NoSuchName(_) => "check --tensors; '*' matches any characters",
        LayoutError::Other { remedy, .. } => remedy,
        LayoutError::TooLarge(_) => "name fewer files",
        _ => "check --format and the file",
    }
}

pub fn of_headers(format: Format, paths: &[PathBuf], names: &Names) -> Result<Plan, Failure> {
    let mut making = HeaderPlanBuilder::default();
    for path in paths {
        let name = SourceName::from(path.as_path());
        let is_remote = source::is_remote(&name);
        // A remote name is stored as it is displayed, so that a plan contains no secrets.
        let place = match is_remote {
            true => name.to_string(),
            false => path.display().to_string(),
        };
        let bad = |error: LayoutError| Failure {
            place: place.clone(),
            remedy: remedy(&error).to_string(),
            ..Failure::of(FailureKind::Input, error)
        };
        let (file, parts) = if is_remote {
            let source = source::open(&name).map_err(|error| {
                Failure::new(FailureKind::Input, error.why, error.what, error.remedy)
            })?;
            let file = PlanFile::sized(place.clone(), source.size());
            (file, layout::parts(format, &RemoteFile(source), names))
        } else {
            let looked = look(path).and_then(foreread_os::open::UnopenedFile::regular);
            let looked = looked.map_err(|error| bad(error.into()))?;
            let file = looked.for_reading().map_err(|error| bad(error.into()))?;
            let path = std::path::absolute(path).map_err(|error| bad(error.into()))?;
            let planned = PlanFile::of(path, looked.meta());
            (planned, layout::parts(format, &file, names))
        };
        let ranges = joined(parts.map_err(bad)?);
        making.add(file, &ranges).map_err(bad)?;
        making.plan.made_from.push(place);
    }
    Ok(making.plan)
}

/// Ranges of the parts; adjacent parts are merged.
fn joined(parts: Vec<Part>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for Part { range, .. } in parts {
        match ranges.last_mut() {
            Some(last) if (last.start..=last.end).contains(&range.start) => {
                last.end = last.end.max(range.end)
            }
            _ => ranges.push(range),
        }
    }
    ranges
}

/// Reads a source that is not a file.
struct RemoteFile(Arc<dyn Source>);

impl layout::ReadAt for RemoteFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.size())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let bufs = &mut [IoSliceMut::new(&mut buf[done..])];
            let read = self.0.read_at(bufs, offset + done as u64);
            match read.map_err(|error| io::Error::other(error.to_string()))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read,
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct HeaderPlanBuilder {
    plan: Plan,
    account: Account,
}

impl HeaderPlanBuilder {
    fn add(&mut self, file: PlanFile, ranges: &[Range<u64>]) -> Result<(), LayoutError> {
        let HeaderPlanBuilder { plan, account } = self;
        if plan.files.len() >= MAX_FILES || plan.ranges.len() + ranges.len() > MAX_RANGES {
            return Err(LayoutError::Damaged(
                "more files or parts than a plan may have".to_string(),
            ));
        }
        let number = plan.files.len() as u32;
        account.take::<PlanFile>(file.path.capacity())?;
        plan.files.push(file);
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            account.take::<PlanRange>(0)?;
            plan.ranges.push(PlanRange::of(number, range));
        }
        Ok(())
    }
}
