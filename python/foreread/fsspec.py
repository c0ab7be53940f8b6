"""foreread below fsspec: the cache type `foreread` for files of any filesystem, and the protocol `foreread::`.

    import foreread.fsspec                                  # registers the cache type

    with fsspec.open("s3://bucket/key", cache_type="foreread") as file: ...
    with fsspec.open("foreread::s3://bucket/key") as file: ...      # needs no import

    file.read ──► ForereadCache._fetch ──► Handle ──► engine: what to read, when, how much at once
                                                        └─ fetcher(start, end), from several threads ──► the filesystem

Files of one protocol share an engine, its cache and what it has measured. fsspec has no entry points for cache types, so
that name exists once this module is imported.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec import filesystem, get_filesystem_class, register_implementation
from fsspec.caching import BaseCache, register_cache
from fsspec.implementations.chained import ChainedFileSystem
from fsspec.registry import known_implementations

from . import _native
from ._file import cache_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ForereadCache", "ForereadFileSystem"]

REQUESTS = 8
"""Fetches at once of a filesystem that is asynchronous, or of a function."""

LARGEST = 8 << 20
"""Bytes of the largest fetch, as of an object: the policy asks for as much where a program reads on and on, or much at once. Each fetch
costs the Python of the other filesystem a millisecond of the processor, which with 1 MiB was more than the storage took."""

LARGEST_SERIAL = 1 << 20
"""The same where fetches take turns: a reader waits for the whole of one."""

LISTINGS = {"use_listings_cache", "listings_expiry_time", "max_paths", "asynchronous", "loop", "batch_size"}
"""Options of every filesystem of fsspec, which this one leaves to the other."""


class _Locks:
    """What threads take turns by. New in a forked child, where the thread that held one is not."""

    def __init__(self) -> None:
        self.opening = threading.Lock()
        self.of_filesystem: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()

    def serial(self, fs: Any) -> threading.RLock:
        """The lock of a filesystem that two threads may not call at once."""
        with self.opening:
            return self.of_filesystem.setdefault(fs, threading.RLock())


_locks = _Locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.__init__)


class _InTurn:
    """The fetcher of a filesystem that two threads may not call at once."""

    def __init__(self, fetcher: Callable[[int, int], bytes], fs: Any) -> None:
        self.fetcher = fetcher
        self.fs = fs

    def __call__(self, start: int, end: int) -> bytes:
        with _locks.serial(self.fs):
            return self.fetcher(start, end)


class _WholeIfRefused:
    """The fetcher of a file that is no larger than a block. fsspec's HTTP raises ValueError where a server has no ranges, unless the
    request is for the whole file: then that is fetched, and kept for as long as the file is open."""

    def __init__(self, fetcher: Callable[[int, int], bytes], size: int) -> None:
        self.fetcher, self.size = fetcher, size
        self.lock = threading.Lock()
        self.whole: bytes | None = None

    def __call__(self, start: int, end: int) -> bytes:
        if self.whole is None:
            try:
                return self.fetcher(start, end)
            except ValueError:
                if (start, end) == (0, self.size):
                    raise
            with self.lock:
                if self.whole is None:
                    whole = self.fetcher(0, self.size)
                    if len(whole) != self.size:
                        raise ValueError(f"{len(whole)} bytes came of a file of {self.size}, in one request")
                    self.whole = whole
        return self.whole[start:end]


class ForereadCache(BaseCache):
    """Reads through an engine of foreread, whose policy decides what is fetched ahead.

    Parameters
    ----------
    blocksize: int
        A file that is no larger is fetched in one request where the server has no ranges. The sizes of other fetches are the policy's.
    fetcher: Callable[[int, int], bytes]
        Returns the bytes from start to end.
    size: int
        Bytes of the file.
    policy: str, optional
        A readahead policy; default what `foreread.configure` was given, else "auto".
    cache: int or str, optional
        Size of the cache that files of one protocol share: bytes, or a text such as "256 MiB" (the default).
    concurrency: int, optional
        Fetches at once. Default 8 where the filesystem is asynchronous (s3fs, gcsfs, adlfs, http) or unknown, else 1: a
        filesystem that is not may keep one connection, which two threads may not use.
    """

    name: ClassVar[str] = "foreread"

    def __init__(
        self,
        blocksize: int,
        fetcher: Callable[[int, int], bytes],
        size: int,
        policy: str | None = None,
        cache: int | str | None = None,
        concurrency: int | None = None,
    ) -> None:
        self._handle: _native.Handle | None = None
        super().__init__(blocksize, fetcher, size)
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency {concurrency}: write a number above 0")
        self._policy, self._cache, self._concurrency = policy, cache_bytes(cache), concurrency

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start = 0 if start is None else max(start, 0)
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        handle = self._handle or self._open()
        return handle.read_at(start, stop - start)

    def _open(self) -> _native.Handle:
        file = getattr(self.fetcher, "__self__", None)
        fs = getattr(file, "fs", None)
        is_serial = fs is not None and not getattr(fs, "async_impl", False)
        requests = self._concurrency or (1 if is_serial else REQUESTS)
        largest = LARGEST_SERIAL if is_serial else LARGEST
        kind = _first(getattr(fs, "protocol", "function"))
        name = str(getattr(file, "path", None) or getattr(self.fetcher, "__name__", "a function"))
        fetch = self.fetcher if fs is None or requests > 1 else _InTurn(self.fetcher, fs)
        if self.size <= self.blocksize:
            fetch = _WholeIfRefused(fetch, self.size)
        settings = (self._policy, self._cache)
        handle = _native.Handle.by_function(fetch, self.size, name, kind, (requests, largest), settings)
        with _locks.opening:
            if self._handle is None:
                self._handle = handle
        # Another thread may have been first.
        if self._handle is not handle:
            handle.close()
        return self._handle

    def stats(self) -> dict[str, int]:
        """The counters of this file, as `foreread.File.stats`; empty before the first read."""
        return self._handle.stats() if self._handle and not self._handle.closed else {}

    def explain(self) -> str:
        """What readahead does for this file, and why, in a few lines for people."""
        return self._handle.explain() if self._handle else "nothing was read yet\n"

    def prefetch(self, ranges: list[tuple[int, int]]) -> None:
        """Says that each (offset, length) will be read."""
        if self.size:
            (self._handle or self._open()).prefetch(ranges)

    def close(self) -> None:
        """Closes it; fsspec does so with the file."""
        if self._handle is not None:
            self._handle.close()

    # fsspec counts by attributes; here the engine counts.
    @property
    def hit_count(self) -> int:
        """Reads that found all their bytes cached or in flight."""
        stats = self.stats()
        return stats.get("hits", 0) + stats.get("late_hits", 0)

    @hit_count.setter
    def hit_count(self, _: int) -> None:
        pass

    @property
    def miss_count(self) -> int:
        """Reads that had to fetch."""
        return self.stats().get("misses", 0)

    @miss_count.setter
    def miss_count(self, _: int) -> None:
        pass

    @property
    def total_requested_bytes(self) -> int:
        """Bytes that were asked of the filesystem."""
        return self._handle.asked_bytes if self._handle else 0

    @total_requested_bytes.setter
    def total_requested_bytes(self, _: int) -> None:
        pass

    def _log_stats(self) -> str:
        # Called for each read, whether a log is kept or not.
        return ""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None}


register_cache(ForereadCache, clobber=True)


class ForereadFileSystem(ChainedFileSystem):
    """Another filesystem whose files are read through foreread: `foreread::s3://bucket/key`.

    Parameters
    ----------
    fs: AbstractFileSystem, optional
        The other filesystem.
    target_protocol, target_options:
        What it is made from, where it is not given.
    policy, cache, concurrency:
        As for `ForereadCache`.

    An option that is none of these is a `TypeError`: those of the other filesystem are `target_options`, or behind `foreread::` are given
    by its protocol, `{"s3": {"key": ...}}`.

    Files that the other filesystem does not read through a cache of fsspec (local ones, those in memory) are left as they
    are. Everything but opening is the other filesystem's.
    """

    protocol: ClassVar[str] = "foreread"

    def __init__(
        self,
        fs: Any = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        policy: str | None = None,
        cache: int | str | None = None,
        concurrency: int | None = None,
        fo: str | None = None,
        **kwargs: Any,
    ) -> None:
        _known(kwargs, target_protocol or (fs and _first(fs.protocol)))
        super().__init__(**kwargs)
        if fs is None and target_protocol is None:
            raise ValueError("no filesystem: write foreread::s3://BUCKET/KEY, or give fs or target_protocol")
        self.fs = filesystem(target_protocol, **(target_options or {})) if fs is None else fs
        options = {"policy": policy, "cache": cache, "concurrency": concurrency}
        self.cache_options = {key: value for key, value in options.items() if value is not None}

    @property
    def fsid(self) -> str:
        return f"foreread-{self.fs.fsid}"

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path: `foreread://s3://bucket/key`. `fsspec.open` takes it with `target_options`, DuckDB by the filesystem."""
        return f"foreread://{self.fs.unstrip_protocol(_other_path(name))}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        other = _other_path(os.fspath(path))
        protocol = _protocol(other)
        return get_filesystem_class(protocol)._strip_protocol(other) if protocol else super()._strip_protocol(other)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        protocol = _protocol(_other_path(path))
        return {"target_protocol": protocol} if protocol else {}

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        if mode == "rb":
            options = {**self.cache_options, **(kwargs.pop("cache_options", None) or {})}
            kwargs.update(cache_type="foreread", cache_options=options)
        if block_size is not None:
            kwargs["block_size"] = block_size
        return self.fs._open(path, mode=mode, **kwargs)


def _first(protocol: str | tuple[str, ...]) -> str:
    """The protocol of a filesystem that may have several names."""
    return protocol if isinstance(protocol, str) else protocol[0]


def _known(options: dict[str, Any], protocol: str | None) -> None:
    """Refuses options that would have no effect, without their values."""
    unknown = [key for key in options if key not in LISTINGS]
    if unknown:
        other = protocol or "s3"
        raise TypeError(
            f"foreread:: has no option {unknown[0]!r}; it has cache, policy and concurrency. "
            f'Options of {other}:// are given by its name: {{"{other}": {{"key": ...}}, "foreread": {{"cache": "1 GiB"}}}}'
        )


def _other_path(given: Any) -> Any:
    """A path as the other filesystem has it: DuckDB and others name files `foreread://bucket/key`."""
    if isinstance(given, list):
        return [_other_path(path) for path in given]
    return given.removeprefix("foreread://") if isinstance(given, str) else given


def _protocol(url: str) -> str | None:
    """The protocol of a URL; nothing of a path, which may have a colon, too."""
    protocol, colon, _ = url.partition("://")
    return protocol if colon and protocol in known_implementations and protocol != "foreread" else None


def _delegated(name: str) -> Callable[..., Any]:
    def method(self: ForereadFileSystem, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.fs, name)(*map(_other_path, args), **kwargs)

    method.__name__ = name
    method.__doc__ = "As the other filesystem."
    return method


register_implementation("foreread", ForereadFileSystem, clobber=True)

for _name in (
    "cat cat_file cat_ranges checksum copy cp_file created du exists expand_path find get get_file glob info "
    "invalidate_cache isdir isfile ls makedir makedirs mkdir modified mv mv_file pipe pipe_file put put_file rm rm_file "
    "rmdir sign sizes touch ukey walk"
).split():
    setattr(ForereadFileSystem, _name, _delegated(_name))
