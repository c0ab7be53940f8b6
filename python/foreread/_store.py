"""`foreread.open_in_store`: an object of a store of obstore, read with readahead.

    file.read ──► engine: what to read, when, how much at once ──► store.get(path, range, if_match), from several threads

The store has its own credentials, retries and connections; foreread asks it for ranges of one version.
"""

from __future__ import annotations

import errno
from typing import Any

from . import _native
from ._file import File, cache_bytes
from ._open import BUFFER_BYTES, BufferedFile

REQUESTS = 16
"""Requests at once, unless a caller says otherwise: as many as of an `s3://` name."""

LARGEST = 1 << 20
"""Bytes of the largest request. One is served when all of it is there."""


def open_in_store(
    store: Any, path: str, *, cache: int | str | None = None, policy: str | None = None, concurrency: int = REQUESTS
) -> BufferedFile:
    """Opens an object of a store of obstore (`obstore.store.S3Store` and others) for reading, as `foreread.open` opens a name.

    Asks for its size and version first. Each request names that version by its ETag, or else by its date: of an object that
    was replaced a read raises what the store raises (`obstore.exceptions.PreconditionError`), or an `OSError` with ESTALE if the
    answer has another ETag, size or (without a strong ETag) date. If the store gives neither ETag nor date, size alone is compared.
    `cache` and `policy` are as for `open`, `concurrency` is how many requests there may be at once.

    A process that is forked while the file is open must open it anew: a store of obstore does not outlive a fork.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency}: write a number above 0")
    meta = store.head(path)
    version, date, size = _version(meta), meta["last_modified"], meta["size"]
    condition: dict[str, Any] = {}
    if _is_strong(meta["e_tag"]):
        condition = {"if_match": meta["e_tag"]}
    elif date.timestamp() > 0:  # Without one a store of obstore has 1970.
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
    """What two answers about one version have in common. A strong ETag needs no date: those of a cluster's machines may differ."""
    return meta["size"], meta["e_tag"], None if _is_strong(meta["e_tag"]) else meta["last_modified"]
