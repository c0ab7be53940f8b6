"""Files for asyncio: `await file.read_at(...)`, without a thread for each read.

    import foreread.aio

    async with foreread.aio.open("s3://bucket/key") as file:
        head = await file.read_at(0, 4096)
        parts = await file.read_ranges([(1 << 20, 4096), (5 << 20, 4096)])

Any number of tasks may read one file. Cached data is returned without a switch to another task. Otherwise the engine fetches the data,
and wakes the event loop through a descriptor that the loop watches. If a task is cancelled, its read is cancelled too. Opening a file
waits in a thread. A process has up to 64 threads for that, because the loop's own executor has few (six on two cores), and programs
open a thousand objects with one `gather`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from . import _file, _native, _open

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from typing_extensions import Unpack

__all__ = ["AsyncFile", "open"]

TOGETHER = 64
"""Maximum number of ranges of one `read_ranges` that are read at once."""

OPENING = 64
"""Maximum number of files that a process opens or closes at once."""

_of_loop: weakref.WeakKeyDictionary[Any, _native.Tasks] = weakref.WeakKeyDictionary()


_openers: ThreadPoolExecutor | None = None
_making = threading.Lock()


def _executor() -> ThreadPoolExecutor:
    global _openers
    if _openers is None:
        # Event loops in two threads may get here at the same time.
        with _making:
            if _openers is None:
                _openers = ThreadPoolExecutor(OPENING, "foreread-open")
    return _openers


def _forget_openers() -> None:
    # A forked child has none of these threads, and not the thread that may have held the lock.
    global _openers, _making
    _openers, _making = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_openers)


def _tasks(loop: asyncio.AbstractEventLoop) -> _native.Tasks:
    tasks = _of_loop.get(loop)
    if tasks is None:
        tasks = _of_loop[loop] = _native.Tasks()
        loop.add_reader(tasks.fileno(), tasks.run)
    return tasks


class AsyncFile:
    """A file, object or image for asyncio tasks. Made by `foreread.aio.open`.

    Positions and lengths are in bytes; there is no current position. A read that fails raises `OSError` with `errno` and
    `filename`; a read of a closed file raises `ValueError`.
    """

    def __init__(self, file: _file.File | _open.BufferedFile) -> None:
        self._file = file

    @property
    def name(self) -> str:
        """The name that was opened, without passwords and tokens."""
        return self._file.name

    @property
    def size(self) -> int:
        """Size of the source in bytes, as far as it is known."""
        return self._file.size

    async def read_at(self, offset: int, length: int) -> bytes:
        """Returns `length` bytes from `offset` on, or fewer if the file ends first."""
        loop = asyncio.get_running_loop()
        tasks, future = _tasks(loop), loop.create_future()
        begun = tasks.begin(self._file._handle, offset, length, future)
        if isinstance(begun, bytes):
            return begun
        try:
            return await future
        finally:
            tasks.forget(begun)

    async def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes of each `(offset, length)`, in the order of the list. Up to 64 ranges are read at once."""
        turn = asyncio.Semaphore(TOGETHER)

        async def one(offset: int, length: int) -> bytes:
            async with turn:
                return await self.read_at(offset, length)

        reads = [asyncio.ensure_future(one(offset, length)) for offset, length in ranges]
        try:
            return list(await asyncio.gather(*reads))
        finally:
            for read in reads:
                read.cancel()

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announces that each `(offset, length)` will be read, and returns at once."""
        self._file.prefetch(ranges)

    def stats(self) -> dict[str, int]:
        """Returns the counters of this file, like `foreread.File.stats`."""
        return self._file.stats()

    def explain(self) -> str:
        """Returns a few lines of text that say what readahead does for this file, and why."""
        return self._file.explain()

    async def close(self) -> None:
        """Closes the file. Reads in progress still succeed; later reads raise `ValueError`."""
        await asyncio.get_running_loop().run_in_executor(_executor(), self._file.close)

    async def __aenter__(self) -> AsyncFile:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<foreread.aio.AsyncFile {self.name!r}>"


class _Opening:
    """`await open(...)` returns the file; `async with open(...)` also closes it at the end."""

    def __init__(self, opening: Any) -> None:
        self._opening, self._file = opening, None

    async def _open(self) -> AsyncFile:
        return AsyncFile(await asyncio.get_running_loop().run_in_executor(_executor(), self._opening))

    def __await__(self) -> Generator[Any, None, AsyncFile]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncFile:
        self._file = await self._open()
        return self._file

    async def __aexit__(self, *_: object) -> None:
        await self._file.close()


def open(  # noqa: A001 (as io.open)
    name: str | bytes | os.PathLike[Any],
    *,
    cache: int | str | None = None,
    policy: str | None = None,
    **account: Unpack[_file.Account],
) -> _Opening:
    """Opens a file, an object or an image for the tasks of an event loop: `await open(name)`, or `async with open(name)`.

    Arguments and errors are those of `foreread.open`; files opened by either function share engines and caches.
    """
    return _Opening(functools.partial(_file.open_raw, name, cache=cache, policy=policy, **account))
