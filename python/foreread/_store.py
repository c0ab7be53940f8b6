"""`foreread.open_in_store`: reads an object of an obstore store with readahead.

    file.read ──► engine: what to read, when, how much at once ──► store.get(path, range, if_match), from several threads

The store uses its own credentials, retries and connections; foreread requests ranges of one version from it.
"""

from __future__ import annotations

import errno
from typing import Any

from . import _native
from ._file import File, cache_bytes
from ._open import BUFFER_BYTES, BufferedFile

REQUESTS = 16
"""Default number of concurrent requests, the same as for an `s3://` name."""

LARGEST = 1 << 20
"""Bytes of the largest request. A reader gets its bytes only when the whole request has arrived."""


def open_in_store(
    store: Any, path: str, *, cache: int | str | None = None, policy: str | None = None, concurrency: int = REQUESTS
) -> BufferedFile:
    """Opens an object of an obstore store (`obstore.store.S3Store` and others) for reading, as `foreread.open` opens a name.

    It first requests the size and version of the object. Each later request states that version by its ETag, otherwise by its date.
    If the object has been replaced, a read raises the store's exception (`obstore.exceptions.PreconditionError`), or an `OSError` with
    ESTALE if the answer has another ETag, size or (without a strong ETag) date. If the store gives neither ETag nor date, only the
    size is compared. `cache` and `policy` are as for `open`; `concurrency` is the maximum number of concurrent requests.

    If a process is forked while the file is open, the child must open the file again, because an obstore store does not work after a fork.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency}: write a number above 0")
    meta = store.head(path)
    version, date, size = _version(meta), meta["last_modified"], meta["size"]
    condition: dict[str, Any] = {}
    if _is_strong(meta["e_tag"]):
        condition = {"if_match": meta["e_tag"]}
    elif date.timestamp() > 0:  # If an object has no date, obstore reports 1970.
        condition = {"if_unmodified_since": date}

    def fetch(start: int, end: int) -> bytes:
        answer = store.get(path, options={"range": (start, end), **condition})
        if _version(answer.meta) != version:
            raise OSError(errno.ESTALE, "the object has changed since it was opened", path)
        return bytes(answer.bytes())

    handle = _native.Handle.by_function(fetch, size, path, type(store).__name__, (concurrency, LARGEST), (policy, cache_bytes(cache)))
    return BufferedFile(File(handle), BUFFER_BYTES)


def _is_strong(etag: str | None) -> bool:
    return etag is not None and not etag.startswith("W/") and etag.strip('"') != ""


def _version(meta: Any) -> tuple[Any, ...]:
    """The values that are equal in all answers about one version.

    With a strong ETag the date is left out, because it may differ between the machines of a cluster.
    """
    return meta["size"], meta["e_tag"], None if _is_strong(meta["e_tag"]) else meta["last_modified"]
