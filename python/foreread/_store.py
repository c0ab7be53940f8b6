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

    Asks for its size and version first. Each request names that version by its ETag, where the store has one: of an object that
    was replaced a read raises what the store raises (`obstore.exceptions.PreconditionError`). `cache` and `policy` are as
    for `open`, `concurrency` is how many requests there may be at once.

    A process that is forked while the file is open must open it anew: a store of obstore does not outlive a fork.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency}: write a number above 0")
    meta = store.head(path)
    size, etag = meta["size"], meta["e_tag"]
    # The condition takes no weak ETag.
    condition = {"if_match": etag} if etag and not etag.startswith("W/") else {"if_unmodified_since": meta["last_modified"]}

    def fetch(start: int, end: int) -> bytes:
        answer = store.get(path, options={"range": (start, end), **condition})
        if answer.meta["e_tag"] != etag or answer.meta["size"] != size:
            raise OSError(errno.ESTALE, "the object has changed since it was opened", path)
        return bytes(answer.bytes())

    handle = _native.Handle.by_function(fetch, size, path, type(store).__name__, (concurrency, LARGEST), (policy, cache_bytes(cache)))
    return BufferedFile(File(handle), BUFFER_BYTES)
