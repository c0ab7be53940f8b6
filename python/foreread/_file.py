"""Files without a buffer: the `io.RawIOBase` below what `foreread.open` returns (`_open.py`), and the settings of all files.

The bytes, the cache, the readahead and the position are in the extension module; this file has the rules of Python's files.
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
    """Bytes of a size that is a number or a text such as "256 MiB"."""
    if cache is None:
        return None
    if isinstance(cache, str):
        return _native.size(cache)
    if isinstance(cache, bool) or not isinstance(cache, int):
        raise TypeError(f"cache {cache!r}: write bytes as a number, or a text such as '256 MiB'")
    if not 0 < cache < 1 << 60:
        raise ValueError(f"cache {cache}: write a number of bytes above 0")
    return cache


ACCOUNT = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "profile": "profile",
    "endpoint": "endpoint",
    "region": "region",
    "no_sign_request": "no_sign_request",
}
"""What `open` takes of an account of S3, and its name in the extension module."""

OTHER_NAMES = {"endpoint_url": "endpoint", "anon": "no_sign_request"}
"""What s3fs calls them."""


class Account(TypedDict, total=False):
    """Whose credentials a file of `s3://` is read with, and from which server; what is left out is the environment's."""

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
    """A file, object or image that is read with readahead, without a buffer of Python's. Made by `foreread.open(name, buffering=0)`;
    `raw` of a buffered file is one.

    Positions and lengths are in bytes. `read_at`, `read_ranges` and `prefetch` do not move the position and may be called
    from any number of threads. `read`, `readinto` and `seek` share one position: threads that read one file at the same time
    get bytes that follow each other, each once, so for the same bytes give each thread a separate file.
    A read that fails raises `OSError` with `errno` and `filename`; one of a closed file `ValueError`.
    """

    # A slot: Python's buffered readers ask for `closed` at each line, and that of `io.RawIOBase` takes longer than the line.
    __slots__ = ("_above", "_handle", "closed")

    def __init__(self, handle: _native.Handle) -> None:
        _set_closed(self, False)
        self._above: Callable[[], Any] | None = None
        self._handle = handle

    def __setattr__(self, name: str, value: Any) -> None:
        # A program may not set what Python's own files do not let it set.
        if name == "closed":
            raise AttributeError("attribute 'closed' of 'foreread.File' objects is not writable")
        super().__setattr__(name, value)

    @property
    def name(self) -> str:
        """What was opened, without passwords and tokens."""
        return self._handle.name

    @property
    def mode(self) -> str:
        """Always "rb"."""
        return "rb"

    @property
    def size(self) -> int:
        """Bytes of the source, as far as is known; a file that is appended to grows when it is read to its end."""
        return self._handle.size()

    def readable(self) -> bool:
        """True; `ValueError` once it is closed."""
        self._check()
        return True

    def seekable(self) -> bool:
        """True; `ValueError` once it is closed."""
        self._check()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes from the position on, fewer only at the end; all that are left without a size."""
        if size is None or size < 0:
            return self.readall()
        return self._handle.read(size)

    def readall(self) -> bytes:
        """The bytes from the position to the end."""
        data = self._handle.read(max(self._handle.size() - self._handle.position, 1))
        # The source may have grown.
        parts = [data]
        while data and (data := self._handle.read(1 << 20)):
            parts.append(data)
        return b"".join(parts) if len(parts) > 1 else parts[0]

    def readinto(self, buffer: Any, /) -> int:
        """Fills a writable buffer (bytearray, memoryview, array) from the position on, without a copy between.

        Returns how many bytes there were: fewer than the buffer holds only at the end.
        """
        return self._handle.read_next_into(buffer)

    def write(self, data: Any, /) -> int:
        """Raises `io.UnsupportedOperation`: files are read only."""
        raise io.UnsupportedOperation("write: the file is open for reading")

    def read_at(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on, `length` of them unless the end comes first."""
        return self._handle.read_at(offset, length)

    def readinto_at(self, buffer: Any, offset: int) -> int:
        """Fills a writable buffer with the bytes from `offset` on. Returns how many there were."""
        return self._handle.read_into(buffer, offset)

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`, in the order of the list; they are fetched several at once.

        A range that reaches beyond the end gives what there is. At most 64 MiB, or a quarter of the cache, are fetched
        before they are read.
        """
        return self._handle.read_ranges(list(ranges))

    def readinto_ranges(self, buffer: Any, ranges: Iterable[tuple[int, int]]) -> list[int]:
        """Fills a writable buffer with the bytes of each `(offset, length)`, one behind the other.

        Returns how many there were of each: fewer than its length only where the end comes first. Fetched as by
        `read_ranges`, in pieces of 8 MiB, and copied to their place as they arrive. Raises `ValueError` for a buffer
        that is too small.
        """
        return self._handle.read_ranges_into(list(ranges), buffer)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Says that each `(offset, length)` will be read: they are fetched in the background, as far as there is room."""
        self._handle.prefetch(list(ranges))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Moves the position: from the start, the position (`SEEK_CUR`) or the end (`SEEK_END`). Returns the new one."""
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
        """The counters of this file since it was opened. Keys that end in `_bytes` are bytes, in `_ns` nanoseconds,
        the others count. `hits`, `late_hits` and `misses` are reads that found all bytes cached, that waited for
        readahead in flight, and that had to fetch; `ra_bytes` were read ahead, of which `used_bytes` were read by the
        program and `unused_bytes` dropped before; `stall_ns` is the time that reads waited.
        """
        return self._handle.stats()

    def explain(self) -> str:
        """What readahead does for this file, and why, in a few lines for people."""
        return self._handle.explain()

    def close(self) -> None:
        """Closes it. Reads that other threads are in end well; later ones raise `ValueError`."""
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
    """What is said of an account, as the extension module has it."""
    options: dict[str, Any] = dict(account)
    stores = options.pop("stores", None)
    given: dict[str, str] = {}
    for key, value in options.items():
        own = OTHER_NAMES.get(key, key)
        if own not in ACCOUNT:
            names = ", ".join([*ACCOUNT, "stores", "cache", "policy"])
            raise TypeError(f"open() got an unexpected keyword argument {key!r}; of a source it takes {names}")
        kind = bool if own == "no_sign_request" else str
        if value is None or value is False and kind is bool:
            continue
        if not isinstance(value, kind):
            raise TypeError(f"{key}: write {'True or False' if kind is bool else 'a text'}")
        if own in given:
            raise TypeError(f"{own} is given twice, by two names")
        given[own] = "" if kind is bool else value
    for key in ("key", "secret", "profile"):
        if given.get(key) == "":
            raise ValueError(f"{key} is empty; give one, or leave it out for the environment's account")
    if "profile" in given and "key" in given:
        raise ValueError("profile and key are two accounts; give one of them")
    if "no_sign_request" in given and ("key" in given or "profile" in given):
        raise ValueError("no_sign_request (anon) is without an account; leave it or the account out")
    if given and not name.startswith("s3://"):
        raise ValueError(f"{next(iter(given))} is for s3://; others take their account from variables, or from configure(stores=...)")
    if ("key" in given) != ("secret" in given) or ("token" in given and "key" not in given):
        raise ValueError("key and secret belong together, and token to both; give key and secret, or none")
    if "key" in given:
        # Not the token of another key.
        given.setdefault("token", "")
    settings = [(ACCOUNT[key], value) for key, value in given.items()]
    if stores:
        if name.partition("://")[0].lower() not in OF_OBJECTS:
            raise ValueError(f"stores is for names of objects: {', '.join(f'{scheme}://' for scheme in OF_OBJECTS)}")
        settings.insert(0, ("stores", _notation(stores)))
    return settings


OF_OBJECTS = ("s3", "gs", "gcs", "az", "azure", "abfs", "abfss", "hf", "http", "https")
"""What the names of objects begin with."""


def _notation(stores: Mapping[str, str | bool | int]) -> str:
    """Settings of stores as the extension module has them: `first-byte=5,no-sign-request=true`."""
    parts = []
    for key, value in stores.items():
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if "," in word:
            raise ValueError(f"{key} with a comma; name it without one")
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
    """A file without a buffer; arguments and errors are those of `foreread.open`."""
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
    """Sets the caches and the policy of files that are opened from now on and say nothing else, and how stores are asked.

    `stores` replaces what was set before: `profile`, `region`, `endpoint_url`, `ca_file` (texts), `no_sign_request` (or `anon`) and
    `requester_pays` (True or False), such as `{"profile": "dev"}`; `{}` is nothing. Without it the conventions of each
    store hold: variables, files of its tools, the role of the machine. How long a server is waited for is set there, too: `first_byte`,
    `stall` and `total` (seconds, default 10, 10 and 60), and `retries` (4).

    `disk_cache` is a folder in which bytes of objects are kept between runs and for other processes, of at most
    `disk_cache_size` bytes (a number, or a text such as "50 GiB", which it is without). A text may have the other keys of
    `--disk-cache` behind a comma; "" is none. Default what the variable FOREREAD_DISK_CACHE names.

    What is left out stays. Raises `OSError` for a folder that cannot be used, `ValueError` for a policy, a size or a setting that does not exist.
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
    """Has worker processes of `multiprocessing`, which end without atexit, write what they have fetched."""
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
    """The counters of each engine of this process: one for each kind of storage, policy and cache size in use.

    Beside the keys of `File.stats`: `kind`, `policy`, `cache_bytes` (the limit), `held_bytes` (in use), `open_files`,
    `source_reads` and `source_bytes` (what was asked of the storage).
    """
    return _native.stats()
