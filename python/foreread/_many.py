"""Many files in a known order: `read_files` reads each whole, the next ones before their turn.

    names ──► [ given to the caller ] [ next ] [ begun ] [ begun ] ... [ not begun ]
                                      └──────── `concurrency` files ───┘

An object of a hundred kilobytes costs a round trip however fast the link is, so what counts is how many are under way. Each is
opened and read by a thread, which waits without the interpreter; opening an object and reading its first bytes is one request.
The threads start with the first file that is asked for, so a generator may be made before a fork and used behind it.
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
"""Files under way unless the caller says otherwise: 32 of 100 kB fill 100 MB/s over 30 ms."""


def read_files(
    names: Iterable[str | bytes | os.PathLike[Any]],
    *,
    concurrency: int = CONCURRENCY,
    on_error: Literal["raise", "return", "omit"] = "raise",
    cache: int | str | None = None,
    policy: str | None = None,
    **account: Unpack[Account],
) -> Iterator[Any]:
    """Gives the bytes of each file, in the order of `names`, which may be endless.

    `concurrency` files are opened and read before their turn, so as many are in memory at most; it is meant for files of up
    to some megabytes. The other arguments are those of `open`. What `open` or `read` raises for a file is raised in
    its turn, and ends the generator; with `on_error="return"` it comes in place of the bytes, and with "omit" the file is left
    out, as in `cat` of fsspec. A generator that is closed or dropped begins no more files.

        for name, data in zip(names, foreread.read_files(names)):
            ...
    """
    if isinstance(names, (str, bytes)):
        raise TypeError(f"names {names!r}: give a list of names")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError(f"concurrency {concurrency!r}: write how many files are read at once, at least 1")

    if on_error not in ("raise", "return", "omit"):
        raise ValueError(f"on_error {on_error!r}: write 'raise', 'return' or 'omit'")

    def read(name: str | bytes | os.PathLike[Any]) -> bytes:
        with open_raw(name, cache=cache, policy=policy, **account) as file:
            return file.readall()

    return _in_order(read, iter(names), concurrency, on_error)


def _in_order(read: Any, names: Iterator[Any], concurrency: int, on_error: str) -> Iterator[Any]:
    # Not with the package: it imports logging.
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
        # Those that run end by themselves.
        pool.shutdown(wait=False, cancel_futures=True)
