"""Files without a buffer: the `io.RawIOBase` below the files that `foreread.open` returns (`_open.py`), and the settings of all files.

The extension module holds the bytes, the cache, the readahead and the position; this module implements Python's file interface.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any, TypedDict

from . import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import Unpack


def cache_bytes(cache: int | str | None) -> int | None:
    """Converts a size to bytes: a number, or a string such as "256 MiB"."""
    if cache is None:
        return None
    given = _native.size(cache) if isinstance(cache, str) else cache
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"cache {cache!r}: write bytes as a number, or a text such as '256 MiB'")
    if not 1 << 20 <= given < 1 << 60:
        raise ValueError(f"cache {cache}: a cache has at least 1 MiB")
    return given


ACCOUNT = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "profile": "profile",
    "endpoint": "endpoint",
    "region": "region",
    "no_sign_request": "no_sign_request",
}
"""The S3 account arguments of `open`, and their names in the extension module."""

OTHER_NAMES = {"endpoint_url": "endpoint", "anon": "no_sign_request"}
"""Alternative names, as used by s3fs."""


class Account(TypedDict, total=False):
    """The credentials and the server for an `s3://` file; defaults come from the environment."""

    key: str | None
    secret: str | None
    token: str | None
    profile: str | None
    endpoint: str | None
    endpoint_url: str | None
    region: str | None
    no_sign_request: bool | None
    anon: bool | None
    stores: Mapping[str, str | bool | int] | None


class File(io.RawIOBase):
    """A file, object or image that is read with readahead, without Python's buffer. Made by `foreread.open(name, buffering=0)`;
    the attribute `raw` of a buffered file is a `File` too.

    Positions and lengths are in bytes. `read_at`, `read_ranges` and `prefetch` do not move the position and may be called
    from any number of threads. `read`, `readinto` and `seek` share one position: if several threads read one file at the
    same time, each byte goes to only one of them. To read the same bytes in each thread, give each thread a separate file.
    A read that fails raises `OSError` with `errno` and `filename`; a read of a closed file raises `ValueError`.
    """

    # `closed` is a slot because Python's buffered readers read it at each line, and the property of `io.RawIOBase` is slower than the line.
    __slots__ = ("_above", "_handle", "closed")

    def __init__(self, handle: _native.Handle) -> None:
        _set_closed(self, False)
        self._above: Callable[[], Any] | None = None
        self._handle = handle

    def __setattr__(self, name: str, value: Any) -> None:
        # Python's own files do not allow a program to set `closed` either.
        if name == "closed":
            raise AttributeError("attribute 'closed' of 'foreread.File' objects is not writable")
        super().__setattr__(name, value)

    @property
    def name(self) -> str:
        """The name that was opened, without passwords and tokens."""
        return self._handle.name

    @property
    def mode(self) -> str:
        """Always "rb"."""
        return "rb"

    @property
    def size(self) -> int:
        """Size of the source in bytes, as far as it is known; if a file was appended to, it grows when it is read to its end."""
        return self._handle.size()

    def readable(self) -> bool:
        """Returns True; raises `ValueError` if the file is closed."""
        self._check()
        return True

    def seekable(self) -> bool:
        """Returns True; raises `ValueError` if the file is closed."""
        self._check()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns `size` bytes from the position on, or fewer at the end of the file. Without a size, returns all remaining bytes."""
        if size is None or size < 0:
            return self.readall()
        return self._handle.read(size)

    def readall(self) -> bytes:
        """Returns the bytes from the position to the end."""
        data = self._handle.read(max(self._handle.size() - self._handle.position, 1))
        # The source may have grown.
        parts = [data]
        while data and (data := self._handle.read(1 << 20)):
            parts.append(data)
        return b"".join(parts) if len(parts) > 1 else parts[0]

    def readinto(self, buffer: Any, /) -> int:
        """Fills a writable buffer (bytearray, memoryview, array) from the position on, without an intermediate copy.

        Returns the number of bytes read; it is smaller than the buffer only at the end of the file.
        """
        return self._handle.read_next_into(buffer)

    def write(self, data: Any, /) -> int:
        """Raises `io.UnsupportedOperation`: files are read only."""
        raise io.UnsupportedOperation("write: the file is open for reading")

    def read_at(self, offset: int, length: int) -> bytes:
        """Returns `length` bytes from `offset` on, or fewer if the file ends first."""
        return self._handle.read_at(offset, length)

    def readinto_at(self, buffer: Any, offset: int) -> int:
        """Fills a writable buffer with the bytes from `offset` on. Returns the number of bytes read."""
        return self._handle.read_into(buffer, offset)

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes of each `(offset, length)`, in the order of the list. Several ranges are fetched at once.

        A range that extends beyond the end of the file is cut there. At most 64 MiB, or a quarter of the cache, are fetched ahead.
        """
        return self._handle.read_ranges(list(ranges))

    def readinto_ranges(self, buffer: Any, ranges: Iterable[tuple[int, int]]) -> list[int]:
        """Fills a writable buffer with the bytes of each `(offset, length)`, one range after the other.

        Returns the number of bytes of each range; it is smaller than the length only if the file ends first. The ranges are fetched
        as by `read_ranges`, in pieces of 8 MiB, and copied as they arrive. Raises `ValueError` if the buffer is too small.
        """
        return self._handle.read_ranges_into(list(ranges), buffer)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announces that each `(offset, length)` will be read: the ranges are fetched in the background, as far as there is room."""
        self._handle.prefetch(list(ranges))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Moves the position, relative to the start, the current position (`SEEK_CUR`) or the end (`SEEK_END`). Returns the new position."""
        handle = self._handle
        while True:
            before = handle.position
            if whence == io.SEEK_SET:
                position = offset
            elif whence == io.SEEK_CUR:
                position = before + offset
            elif whence == io.SEEK_END:
                position = handle.size() + offset
            else:
                raise ValueError(f"whence {whence}: write os.SEEK_SET, os.SEEK_CUR or os.SEEK_END")
            self._check()
            if not 0 <= position < 1 << 63:
                raise ValueError(f"seek to {position}: a position is from 0 to 2**63 - 1")
            if handle.move_position(before, position):
                return position

    def tell(self) -> int:
        """The position, in bytes."""
        self._check()
        return self._handle.position

    def stats(self) -> dict[str, int]:
        """Returns the counters of this file since it was opened. Values of keys that end in `_bytes` are in bytes, those of keys that end
        in `_ns` in nanoseconds; the others are counts. `hits` are reads that found all bytes cached, `late_hits` waited for readahead in
        flight, and `misses` had to fetch. `ra_bytes` were read ahead; the program read `used_bytes` of them, and `unused_bytes` were
        dropped unread. `stall_ns` is the time that reads waited.
        """
        return self._handle.stats()

    def explain(self) -> str:
        """Returns a few lines of text that say what readahead does for this file, and why."""
        return self._handle.explain()

    def close(self) -> None:
        """Closes the file. Reads in progress in other threads still succeed; later reads raise `ValueError`."""
        handle = getattr(self, "_handle", None)
        if handle is not None:
            handle.close()
        super().close()
        _set_closed(self, True)
        above = self._above and self._above()
        if above is not None:
            above.below_is_closed()

    def _check(self) -> None:
        if self._handle.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        return f"<foreread.File {self.name!r}{' closed' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        raise TypeError("an open file cannot be pickled; pickle its name, and open it where it is read")


_set_closed = File.__dict__["closed"].__set__


def _given(name: str, account: Account) -> list[tuple[str, str]]:
    """Checks the account arguments, and converts them to the form that the extension module takes."""
    options: dict[str, Any] = dict(account)
    stores = options.pop("stores", None)
    given: dict[str, str] = {}
    for key, value in options.items():
        own = OTHER_NAMES.get(key, key)
        if own not in ACCOUNT:
            names = ", ".join([*ACCOUNT, "stores", "cache", "policy"])
            raise TypeError(f"open() got an unexpected keyword argument {key!r}; its arguments for a source are {names}")
        kind = bool if own == "no_sign_request" else str
        if value is None or value is False and kind is bool:
            continue
        if not isinstance(value, kind):
            raise TypeError(f"{key}: write {'True or False' if kind is bool else 'a text'}")
        if own in given:
            raise TypeError(f"{own} is given twice, under two names")
        given[own] = "" if kind is bool else value
    for key in ("key", "secret", "profile"):
        if given.get(key) == "":
            raise ValueError(f"{key} is empty; give one, or leave it out for the environment's account")
    if "profile" in given and "key" in given:
        raise ValueError("profile and key select two accounts; give only one of them")
    if "no_sign_request" in given and ("key" in given or "profile" in given):
        raise ValueError("no_sign_request (anon) means requests without an account; give either no_sign_request or an account")
    if given and not name.startswith("s3://"):
        raise ValueError(f"{next(iter(given))} is only for s3://; other stores take their account from variables, or from configure(stores=...)")
    if ("key" in given) != ("secret" in given) or ("token" in given and "key" not in given):
        raise ValueError("key, secret and token belong together; give key and secret, with or without token, or none of them")
    if "key" in given:
        # Do not combine the key with the environment's token, which belongs to another key.
        given.setdefault("token", "")
    settings = [(ACCOUNT[key], value) for key, value in given.items()]
    if stores:
        if name.partition("://")[0].lower() not in OF_OBJECTS:
            raise ValueError(f"stores is only for names of objects: {', '.join(f'{scheme}://' for scheme in OF_OBJECTS)}")
        settings.insert(0, ("stores", _notation(stores)))
    return settings


OF_OBJECTS = ("s3", "gs", "gcs", "az", "azure", "abfs", "abfss", "hf", "http", "https")
"""The schemes of object names."""


def _notation(stores: Mapping[str, str | bool | int]) -> str:
    """Converts store settings to the form that the extension module takes: `first-byte=5,no-sign-request=true`."""
    parts = []
    for key, value in stores.items():
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if "," in word:
            raise ValueError(f"{key} contains a comma; write it without a comma")
        own = {"endpoint": "endpoint_url", "anon": "no_sign_request"}.get(key, key)
        parts.append(f"{own.replace('_', '-')}={word}")
    return ",".join(parts)


def open_raw(
    name: str | bytes | os.PathLike[Any],
    *,
    cache: int | str | None = None,
    policy: str | None = None,
    **account: Unpack[Account],
) -> File:
    """Opens a file without a buffer; arguments and errors are those of `foreread.open`."""
    text = os.fsdecode(os.fspath(name))
    if "\0" in text:
        raise ValueError("name with a null character; write a path or a URL")
    given = _given(text, account)
    sys.audit("open", name, "r", os.O_RDONLY)
    return File(_native.Handle.by_name(text, (policy, cache_bytes(cache)), given))


_flushes = False
_hooks: list[object] = []


def configure(
    *,
    cache: int | str | None = None,
    policy: str | None = None,
    stores: Mapping[str, str | bool | int] | None = None,
    disk_cache: str | os.PathLike[str] | None = None,
    disk_cache_size: int | str | None = None,
) -> None:
    """Sets the defaults for files that are opened from now on: cache size, policy, disk cache, and settings for object stores.

    `stores` replaces all store settings of earlier calls: `profile`, `region`, `endpoint_url`, `ca_file` (strings), `no_sign_request` (or
    `anon`) and `requester_pays` (True or False). Example: `{"profile": "dev"}`; `{}` removes all settings. Anything not set follows the
    conventions of each store: variables, files of its tools, the role of the machine. `stores` also takes the timeouts `first_byte`,
    `stall` and `total` (seconds, default 10, 10 and 60), and the number of `retries` (4).

    `disk_cache` is a folder in which bytes of objects are kept between runs and for other processes. It takes at most
    `disk_cache_size` bytes (a number, or a string such as "50 GiB", the default). The string `disk_cache` may have the other keys of
    `--disk-cache` after a comma; "" means no disk cache. The default is the value of the variable FOREREAD_DISK_CACHE.

    Arguments that are left out change nothing. Raises `OSError` if the folder cannot be used, and `ValueError` for an invalid policy,
    size or setting.
    """
    text = None if stores is None else _notation(stores)
    folder = None if disk_cache is None else os.fspath(disk_cache)
    if disk_cache_size is not None:
        if not folder:
            raise ValueError("disk_cache_size without disk_cache; name the folder as well")
        folder += f",size={cache_bytes(disk_cache_size)}"
    _native.configure(policy, cache_bytes(cache), text, folder)
    if folder:
        _flush_in_children()


def _flush_in_children() -> None:
    """Makes worker processes of `multiprocessing`, which end without atexit, write their fetched data to the disk cache."""
    global _flushes  # noqa: PLW0603
    if _flushes:
        return
    _flushes = True
    from multiprocessing import util

    def in_child(_: object) -> None:
        util.Finalize(None, _native.flush_disk_caches, exitpriority=10)

    util.register_after_fork(in_child, in_child)
    _hooks.append(in_child)


def stats() -> list[dict[str, int | str]]:
    """Returns the counters of each engine of this process. There is one engine for each kind of storage, policy and cache size in use.

    In addition to the keys of `File.stats` each has `kind`, `policy`, `cache_bytes` (the limit), `held_bytes` (in use), `open_files`,
    `source_reads` and `source_bytes` (requests to the storage, and their bytes).
    """
    return _native.stats()
