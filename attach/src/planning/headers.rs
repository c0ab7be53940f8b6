//! The plan of files whose format says where their parts are: header first, then the parts that are asked for, in file order.

use foreread_os::failure::{Failure, FailureKind};
use foreread_os::open::look;
use foreread_plan::account::Account;
use foreread_plan::layout::{self, Format, LayoutError, Names, Part};
use foreread_plan::{MAX_FILES, MAX_RANGES, Plan, PlanFile, PlanRange};
use std::fs::Metadata;
use std::ops::Range;
use std::path::{Path, PathBuf};

fn remedy(error: &LayoutError) -> &'static str {
    match error {
        LayoutError::Io(_) => "check the path and its permissions",
        LayoutError::NoSuchName(_) => "check --tensors (or --columns); '*' is for any characters",
        LayoutError::Other { remedy, .. } => remedy,
        LayoutError::TooLarge(_) => "name fewer files",
        _ => "check --format and the file",
    }
}

/// The plan of these files; of zarr, of these folders.
///
/// # Errors
/// A header cannot be read, or has no such parts.
pub fn of_headers(format: Format, paths: &[PathBuf], names: &Names) -> Result<Plan, Failure> {
    let mut making = HeaderPlanBuilder::default();
    for path in paths {
        let bad = |error: LayoutError| Failure {
            place: path.display().to_string(),
            remedy: remedy(&error).to_string(),
            ..Failure::of(FailureKind::Input, error)
        };
        making.plan.made_from.push(path.display().to_string());
        if format == Format::Zarr {
            for file in layout::zarr(path, names).map_err(bad)? {
                let meta = look(&file.path)
                    .map_err(|error| bad(error.into()))?
                    .meta()
                    .clone();
                making
                    .add(&file.path, &meta, std::slice::from_ref(&(0..file.size)))
                    .map_err(bad)?;
            }
            continue;
        }
        let looked = look(path).and_then(foreread_os::open::UnopenedFile::regular);
        let looked = looked.map_err(|error| bad(error.into()))?;
        let file = looked.for_reading().map_err(|error| bad(error.into()))?;
        let parts = layout::parts(format, &file, names).map_err(bad)?;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for Part { range, .. } in parts {
            match ranges.last_mut() {
                Some(last) if (last.start..=last.end).contains(&range.start) => {
                    last.end = last.end.max(range.end)
                }
                _ => ranges.push(range),
            }
        }
        making.add(path, looked.meta(), &ranges).map_err(bad)?;
    }
    Ok(making.plan)
}

/// The plan while it is made.
#[derive(Default)]
struct HeaderPlanBuilder {
    plan: Plan,
    account: Account,
}

impl HeaderPlanBuilder {
    fn add(
        &mut self,
        path: &Path,
        meta: &Metadata,
        ranges: &[Range<u64>],
    ) -> Result<(), LayoutError> {
        let path = std::path::absolute(path)?;
        let HeaderPlanBuilder { plan, account } = self;
        if plan.files.len() >= MAX_FILES || plan.ranges.len() + ranges.len() > MAX_RANGES {
            return Err(LayoutError::Damaged(
                "more files or parts than a plan may have".to_string(),
            ));
        }
        let number = plan.files.len() as u32;
        account.take::<PlanFile>(path.capacity())?;
        plan.files.push(PlanFile::of(path, meta));
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            account.take::<PlanRange>(0)?;
            plan.ranges.push(PlanRange::of(number, range));
        }
        Ok(())
    }
}
