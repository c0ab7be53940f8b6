"""Many files in a known order: `read_files` reads whole files, and starts to read the next files before they are requested.

    names ──► [ given to the caller ] [ next ] [ begun ] [ begun ] ... [ not begun ]
                                      └──────── `concurrency` files ───┘

An object of a hundred kilobytes costs a round trip, however fast the link is, so the number of concurrent reads determines the speed.
A thread opens and reads each file, and waits without the GIL; opening an object and reading its first bytes is one request.
The threads start when the first file is requested, so a generator may be created before a fork and used after it.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Literal

from ._file import open_raw

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from typing_extensions import Unpack

    from ._file import Account

CONCURRENCY = 32
"""Default number of concurrent files: 32 files of 100 kB fill a link of 100 MB/s with 30 ms latency."""


def read_files(
    names: Iterable[str | bytes | os.PathLike[Any]],
    *,
    concurrency: int = CONCURRENCY,
    on_error: Literal["raise", "return", "omit"] = "raise",
    cache: int | str | None = None,
    policy: str | None = None,
    **account: Unpack[Account],
) -> Iterator[Any]:
    """Yields the bytes of each file, in the order of `names`, which may be endless.

    Up to `concurrency` files are read ahead and kept in memory, so this is meant for files of up to some megabytes. The other
    arguments are those of `open`. If `open` or `read` raises an exception for a file, it is raised when the generator reaches the file, and
    ends the generator. With `on_error="return"` the exception is yielded instead of the bytes; with "omit" the file is skipped, as in
    `cat` of fsspec. If the generator is closed or dropped, it starts no more files.

        for name, data in zip(names, foreread.read_files(names)):
            ...
    """
    if isinstance(names, (str, bytes)):
        raise TypeError(f"names {names!r}: give a list of names")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError(f"concurrency {concurrency!r}: write the number of files to read at once, at least 1")

    if on_error not in ("raise", "return", "omit"):
        raise ValueError(f"on_error {on_error!r}: write 'raise', 'return' or 'omit'")

    def read(name: str | bytes | os.PathLike[Any]) -> bytes:
        with open_raw(name, cache=cache, policy=policy, **account) as file:
            return file.readall()

    return _in_order(read, iter(names), concurrency, on_error)


def _in_order(read: Any, names: Iterator[Any], concurrency: int, on_error: str) -> Iterator[Any]:
    # Imported here and not with the package, because it imports logging.
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(concurrency, "foreread-files")
    begun: collections.deque[Any] = collections.deque()
    try:
        while True:
            for name in names:
                begun.append(pool.submit(read, name))
                if len(begun) == concurrency:
                    break
            if not begun:
                return
            first = begun.popleft()
            try:
                data = first.result()
            except Exception as error:
                if on_error == "raise":
                    raise
                if on_error == "omit":
                    continue
                data = error
            yield data
    finally:
        # Reads that have started end by themselves.
        pool.shutdown(wait=False, cancel_futures=True)
