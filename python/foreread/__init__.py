"""Readahead (prefetch) for S3, HTTP, NBD, RBD and files.

    import foreread

    with foreread.open("s3://bucket/key") as file:
        head = file.read(4096)
        parts = file.read_ranges([(1 << 20, 4096), (5 << 20, 4096)])

With fsspec, use the URL `foreread::s3://bucket/key`, or `import foreread.fsspec` and `cache_type="foreread"` for any filesystem.
"""

import atexit as _atexit
import os as _os

from . import _native
from ._file import File, _flush_in_children, configure, stats
from ._many import read_files
from ._open import BufferedFile, open  # noqa: A004
from ._store import open_in_store

__all__ = ["BufferedFile", "File", "aio", "configure", "lab", "open", "open_in_store", "plan", "read_files", "stats"]
__version__ = _native.VERSION

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(
        before=_native.before_fork,
        after_in_parent=_native.after_fork_in_parent,
        after_in_child=_native.after_fork_in_child,
    )
_atexit.register(_native.end)
if _os.environ.get("FOREREAD_DISK_CACHE"):
    _flush_in_children()


def __getattr__(name: str) -> object:
    # These modules are imported on first use, so that the interpreter starts faster.
    if name in {"aio", "lab", "plan"}:
        import importlib

        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "aio", "lab", "plan"])
