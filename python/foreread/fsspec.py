"""foreread as a cache for fsspec: the cache type `foreread` for files of any filesystem, and the protocol `foreread::`.

    import foreread.fsspec                                  # registers the cache type

    with fsspec.open("s3://bucket/key", cache_type="foreread") as file: ...
    with fsspec.open("foreread::s3://bucket/key") as file: ...      # needs no import

    file.read ──► ForereadCache._fetch ──► Handle ──► engine: what to read, when, how much at once
                                                        └─ fetcher(start, end), from several threads ──► the filesystem

Files of one protocol share an engine, its cache and its measurements. fsspec has no entry points for cache types, so the cache type
`foreread` exists only after this module has been imported.
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
"""Default number of concurrent fetches for an asynchronous filesystem or a function."""

LARGEST = 8 << 20
"""Bytes of the largest fetch, the same as for an object. The policy requests that much if a program reads sequentially, or much at once.
Each fetch costs the other filesystem a millisecond of CPU time in Python; with 1 MiB that was more than the storage took."""

LARGEST_SERIAL = 1 << 20
"""Bytes of the largest fetch if only one may run at a time: a reader waits for the whole fetch."""

LISTINGS = {"use_listings_cache", "listings_expiry_time", "max_paths", "asynchronous", "loop", "batch_size"}
"""Options of every fsspec filesystem, which are passed to the other filesystem."""


class _Locks:
    """The locks of this module. A forked child creates new locks, because the thread that held one may be missing there."""

    def __init__(self) -> None:
        self.opening = threading.Lock()
        self.of_filesystem: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()

    def serial(self, fs: Any) -> threading.RLock:
        """The lock of a filesystem that only one thread at a time may call."""
        with self.opening:
            return self.of_filesystem.setdefault(fs, threading.RLock())


_locks = _Locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.__init__)


class _InTurn:
    """The fetcher of a filesystem that only one thread at a time may call."""

    def __init__(self, fetcher: Callable[[int, int], bytes], fs: Any) -> None:
        self.fetcher = fetcher
        self.fs = fs

    def __call__(self, start: int, end: int) -> bytes:
        with _locks.serial(self.fs):
            return self.fetcher(start, end)


class _WholeIfRefused:
    """The fetcher of a file that is no larger than a block.

    fsspec's HTTP filesystem raises ValueError if a server does not support ranges, unless the request is for the whole file. In that
    case the whole file is fetched, and kept as long as it is open.
    """

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
                        raise ValueError(f"got {len(whole)} bytes of a file of {self.size} bytes in one request")
                    self.whole = whole
        return self.whole[start:end]


class ForereadCache(BaseCache):
    """Reads through a foreread engine, whose policy decides what is fetched ahead.

    Parameters
    ----------
    blocksize: int
        A file of at most this size is fetched in one request if the server does not support ranges. The policy chooses the sizes of
        other fetches.
    fetcher: Callable[[int, int], bytes]
        Returns the bytes from start to end.
    size: int
        Size of the file in bytes.
    policy: str, optional
        A readahead policy. The default is the policy given to `foreread.configure`, otherwise "auto".
    cache: int or str, optional
        Size of the cache that files of one protocol share: a number of bytes, or a string such as "256 MiB" (the default).
    concurrency: int, optional
        Number of concurrent fetches. The default is 8 if the filesystem is asynchronous (s3fs, gcsfs, adlfs, http) or unknown.
        Otherwise it is 1, because a synchronous filesystem may have a single connection, which two threads may not share.
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
        # Another thread may have opened a handle first.
        if self._handle is not handle:
            handle.close()
        return self._handle

    def stats(self) -> dict[str, int]:
        """Returns the counters of this file, like `foreread.File.stats`; empty before the first read."""
        return self._handle.stats() if self._handle and not self._handle.closed else {}

    def explain(self) -> str:
        """Returns a few lines of text that say what readahead does for this file, and why."""
        return self._handle.explain() if self._handle else "nothing was read yet\n"

    def prefetch(self, ranges: list[tuple[int, int]]) -> None:
        """Announces that each (offset, length) will be read."""
        if self.size:
            (self._handle or self._open()).prefetch(ranges)

    def close(self) -> None:
        """Closes the handle; fsspec calls this when it closes the file."""
        if self._handle is not None:
            self._handle.close()

    # fsspec increments these attributes; here the engine counts, so setting them has no effect.
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
        """Bytes that were requested from the filesystem."""
        return self._handle.asked_bytes if self._handle else 0

    @total_requested_bytes.setter
    def total_requested_bytes(self, _: int) -> None:
        pass

    def _log_stats(self) -> str:
        # fsspec calls this for each read, even if nothing is logged.
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
        How to create the other filesystem, if `fs` is not given.
    policy, cache, concurrency:
        Like those of `ForereadCache`.

    Any other option raises `TypeError`. Give options of the other filesystem as `target_options`, or, with a URL `foreread::...`, under the
    name of its protocol: `{"s3": {"key": ...}}`.

    Files that the other filesystem does not read through an fsspec cache (local files, files in memory) are opened unchanged. All
    operations except opening are passed to the other filesystem.
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
        # The other filesystem is called from threads, which one made with `asynchronous=True` refuses ("Loop is not running").
        own = {key: value for key, value in (target_options or {}).items() if key != "asynchronous"}
        self.fs = filesystem(target_protocol, **own) if fs is None else fs
        if getattr(self.fs, "asynchronous", False):
            raise ValueError("the filesystem was made with asynchronous=True; give one without it")
        options = {"policy": policy, "cache": cache, "concurrency": concurrency}
        self.cache_options = {key: value for key, value in options.items() if value is not None}

    @property
    def fsid(self) -> str:
        return f"foreread-{self.fs.fsid}"

    def unstrip_protocol(self, name: str) -> str:
        """Returns the URL of a path, such as `foreread://s3://bucket/key`.

        `fsspec.open` accepts it with `target_options`, DuckDB through the registered filesystem.
        """
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
    """The first protocol name of a filesystem, which may have several."""
    return protocol if isinstance(protocol, str) else protocol[0]


def _known(options: dict[str, Any], protocol: str | None) -> None:
    """Refuses options that would have no effect. The error does not contain their values."""
    unknown = [key for key in options if key not in LISTINGS]
    if unknown:
        other = protocol or "s3"
        raise TypeError(
            f"foreread:: has no option {unknown[0]!r}; it has cache, policy and concurrency. "
            f'Options of {other}:// are given by its name: {{"{other}": {{"key": ...}}, "foreread": {{"cache": "1 GiB"}}}}'
        )


def _other_path(given: Any) -> Any:
    """Converts a path for the other filesystem: DuckDB and others write `foreread://bucket/key`."""
    if isinstance(given, list):
        return [_other_path(path) for path in given]
    return given.removeprefix("foreread://") if isinstance(given, str) else given


def _protocol(url: str) -> str | None:
    """The protocol of a URL. Returns `None` for a path, which may contain a colon too."""
    protocol, colon, _ = url.partition("://")
    return protocol if colon and protocol in known_implementations and protocol != "foreread" else None


def _delegated(name: str) -> Callable[..., Any]:
    def method(self: ForereadFileSystem, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.fs, name)(*map(_other_path, args), **kwargs)

    method.__name__ = name
    method.__doc__ = "Calls the method of the other filesystem."
    return method


register_implementation("foreread", ForereadFileSystem, clobber=True)

for _name in (
    "cat cat_file cat_ranges checksum copy cp_file created du exists expand_path find get get_file glob info "
    "invalidate_cache isdir isfile ls makedir makedirs mkdir modified mv mv_file pipe pipe_file put put_file rm rm_file "
    "rmdir sign sizes touch ukey walk"
).split():
    setattr(ForereadFileSystem, _name, _delegated(_name))
