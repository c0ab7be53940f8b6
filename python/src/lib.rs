//! foreread for Python: the extension module `foreread._native`. The package `foreread` builds its Python objects on it.
//!
//! No thread waits while it is attached to the interpreter, no panic reaches Python, and a forked child does not use the engines of its
//! parent.
//!
//! ```text
//!   foreread/_file.py: File(io.RawIOBase) ──► Handle ──► foreread::Reader ──► engine of its kind (process.rs)
//!   foreread/fsspec.py: the cache type ─────► Handle ──► Fetcher, a source that calls a Python function
//!   foreread/__main__.py: the command ──────► foreread_cli::main
//! ```

mod buffer;
mod calls;
mod error;
mod fetcher;
mod handle;
mod opened;
mod position;
mod process;
mod ranges;
mod report;
mod tasks;
mod wait;

use pyo3::prelude::*;

// docs/decisions/0245-python-threads-forks-and-signals.md explains thread safety without a GIL.
#[pymodule(name = "_native", gil_used = false)]
mod native {
    use super::{calls, error, process, report};
    use foreread::parse_size;
    use pyo3::prelude::*;
    use pyo3::types::{PyDict, PyList};
    use std::ffi::OsString;

    #[pymodule_export]
    use super::handle::Handle;

    #[pymodule_export]
    use super::tasks::Tasks;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Bytes of a size such as "256 MiB"; its units are powers of two.
    #[pyfunction]
    fn size(text: &str) -> PyResult<u64> {
        let bad = |_| {
            error::invalid(format!(
                "size {text:?}: write a number with K, M, G or T, such as \"256 MiB\""
            ))
        };
        parse_size(text.trim()).map_err(bad)
    }

    /// Sets the policy and the caches of files opened later.
    #[pyfunction]
    #[pyo3(signature = (policy=None, cache=None, stores=None, disk_cache=None))]
    fn configure(
        py: Python<'_>,
        policy: Option<String>,
        cache: Option<u64>,
        stores: Option<String>,
        disk_cache: Option<String>,
    ) -> PyResult<()> {
        error::guarded(|| {
            if let Some(stores) = stores {
                let set = foreread::source::object::configure(&stores);
                set.map_err(pyo3::exceptions::PyValueError::new_err)?;
            }
            process::configure(py, policy.as_deref(), cache, disk_cache.as_deref())
                .map_err(|failed| error::of_open(&failed, ""))
        })
    }

    /// The counters of each engine.
    #[pyfunction]
    fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
        error::guarded(|| {
            let list = PyList::empty(py);
            for (kind, engine) in process::engines() {
                // Also dropped there, because it may be the last reference to an engine that another thread has just released.
                let (stats, gauges, policy, cache_bytes) = py.detach(|| {
                    let policy = engine.policy().to_string();
                    let found = (
                        engine.stats(),
                        engine.gauges(),
                        policy,
                        engine.cache_bytes(),
                    );
                    drop(engine);
                    found
                });
                let dict: Bound<'_, PyDict> = report::counters(py, &[stats], report::Of::Engine)?;
                dict.set_item("kind", kind)?;
                dict.set_item("policy", policy)?;
                dict.set_item("cache_bytes", cache_bytes)?;
                dict.set_item("held_bytes", gauges.held_bytes)?;
                dict.set_item("open_files", gauges.opens)?;
                list.append(dict)?;
            }
            Ok(list)
        })
    }

    /// Runs the command `foreread` with these arguments, starting with its name. Returns the exit code. To start itself again, the
    /// command executes `start`; `file` is the binary that contains its code.
    #[pyfunction]
    fn command(
        py: Python<'_>,
        arguments: Vec<OsString>,
        start: Vec<OsString>,
        file: OsString,
    ) -> PyResult<u8> {
        let file = file.into();
        error::guarded(|| {
            foreread_cli::set_program(foreread_cli::Program { start, file });
            // The command runs no Python code.
            Ok(py.detach(|| foreread_cli::main(&arguments)))
        })
    }

    /// Called by Python around a fork and before the interpreter ends.
    #[pyfunction]
    fn before_fork(py: Python<'_>) {
        process::before_fork(py);
    }

    #[pyfunction]
    fn after_fork_in_parent() {
        process::after_fork_in_parent();
    }

    #[pyfunction]
    fn after_fork_in_child() {
        process::after_fork_in_child();
    }

    /// Waits a few seconds at most until fetched data is written to disk caches.
    #[pyfunction]
    fn flush_disk_caches(py: Python<'_>) {
        let engines = process::engines();
        py.detach(|| {
            process::flush_disk_caches(&engines);
            drop(engines);
        });
    }

    #[pyfunction]
    fn end(py: Python<'_>) {
        flush_disk_caches(py);
        py.detach(calls::end);
    }

    /// Panics in debug builds, for tests that no panic crosses into Python.
    #[cfg(debug_assertions)]
    #[pyfunction]
    fn panic() -> PyResult<()> {
        error::guarded(|| panic!("on request"))
    }
}
