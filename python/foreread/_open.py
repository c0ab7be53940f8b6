"""`foreread.open`: takes the arguments of the built-in `open` and returns the same kinds of files, for reading only.

    mode "rb"                  BufferedFile(io.BufferedReader) ──► File(io.RawIOBase) ──► Handle, in the extension module
    mode "rb", buffering=0     File
    mode "r"                   io.TextIOWrapper ──► BufferedFile ──► File

The buffer serves lines, `peek` and small reads: a line costs no call of the extension module. The methods for ranges
(`read_at`, `read_ranges`, `prefetch`) bypass the buffer.
"""

from __future__ import annotations

import io
import weakref
from typing import TYPE_CHECKING, Any, Literal, overload

from ._file import File, open_raw

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from typing_extensions import Unpack

    from . import _native
    from ._file import Account

BUFFER_BYTES = 32 << 10
"""Buffer size: a small read fetches this many bytes from the file below. Twice the size saves 2 % if all lines are read, but if a
program seeks and reads a little, the additional bytes are fetched for nothing."""


class BufferedFile(io.BufferedReader):
    """A file, object or image that is read with readahead. Made by `foreread.open`.

    It has the methods of a file of the built-in `open`: `read`, `readline`, `peek`, `readinto`, `seek`, iteration over lines. In
    addition, `read_at`, `read_ranges` and `prefetch` do not move the position and may be called from any number of threads.
    A read that fails raises `OSError` with `errno` and `filename`; a read of a closed file raises `ValueError`. `raw` is the
    file without a buffer.
    """

    raw: File

    @property
    def _handle(self) -> _native.Handle:
        return self.raw._handle

    @property
    def size(self) -> int:
        """Size of the source in bytes, as far as it is known; if a file was appended to, it grows when it is read to its end."""
        return self.raw.size

    def read_at(self, offset: int, length: int) -> bytes:
        """Returns `length` bytes from `offset` on, or fewer if the file ends first."""
        return self.raw.read_at(offset, length)

    def readinto_at(self, buffer: Any, offset: int) -> int:
        """Fills a writable buffer with the bytes from `offset` on. Returns the number of bytes read."""
        return self.raw.readinto_at(buffer, offset)

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes of each `(offset, length)`, in the order of the list, like `File.read_ranges`."""
        return self.raw.read_ranges(ranges)

    def readinto_ranges(self, buffer: Any, ranges: Iterable[tuple[int, int]]) -> list[int]:
        """Fills a writable buffer with the bytes of each `(offset, length)`, like `File.readinto_ranges`."""
        return self.raw.readinto_ranges(buffer, ranges)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announces that each `(offset, length)` will be read: the ranges are fetched in the background, as far as there is room."""
        self.raw.prefetch(ranges)

    def stats(self) -> dict[str, int]:
        """Returns the counters of this file since it was opened, like `File.stats`. The counted reads are those of the buffer."""
        return self.raw.stats()

    def explain(self) -> str:
        """Returns a few lines of text that say what readahead does for this file, and why."""
        return self.raw.explain()

    def __repr__(self) -> str:
        if self.raw is None:
            return "<foreread.BufferedFile detached>"
        return f"<foreread.BufferedFile {self.raw.name!r}{' closed' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        raise TypeError("an open file cannot be pickled; pickle its name, and open it where it is read")


class _BelowText(BufferedFile):
    """The buffer of a text file. It reads `closed` at each line, so `closed` is a slot, which `File` updates when it is closed."""

    __slots__ = ("closed",)

    def __init__(self, raw: File, buffer_size: int) -> None:
        _set_closed(self, False)
        super().__init__(raw, buffer_size)
        raw._above = weakref.ref(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "closed":
            raise AttributeError("attribute 'closed' of 'foreread.BufferedFile' objects is not writable")
        super().__setattr__(name, value)

    def below_is_closed(self) -> None:
        """Called when the file below is closed, by this object or by another owner."""
        _set_closed(self, True)


_set_closed = _BelowText.__dict__["closed"].__set__


def _is_text(mode: str) -> bool:
    """Whether a mode means text, by the rules of the built-in `open`."""
    if not isinstance(mode, str):
        raise TypeError(f"mode {mode!r}: write a text, such as 'rb' or 'r'")
    letters = set(mode)
    if len(letters) < len(mode) or letters - set("rwxabt+") or {"b", "t"} <= letters or len(letters & set("rwxa")) != 1:
        raise ValueError(f"invalid mode: {mode!r}; write 'rb' for bytes or 'r' for text")
    if letters & set("wxa+"):
        raise io.UnsupportedOperation(f"mode {mode!r}: foreread only reads; write 'rb' for bytes or 'r' for text")
    return "b" not in letters


@overload
def open(
    name: str | bytes | os.PathLike[Any],
    mode: Literal["rb", "br"] = ...,
    buffering: Literal[-1] = ...,
    encoding: None = ...,
    errors: None = ...,
    newline: None = ...,
    *,
    cache: int | str | None = ...,
    policy: str | None = ...,
    **account: Unpack[Account],
) -> BufferedFile: ...
@overload
def open(
    name: str | bytes | os.PathLike[Any],
    mode: Literal["rb", "br"] = ...,
    *,
    buffering: Literal[0],
    cache: int | str | None = ...,
    policy: str | None = ...,
    **account: Unpack[Account],
) -> File: ...
@overload
def open(
    name: str | bytes | os.PathLike[Any],
    mode: Literal["r", "rt", "tr"],
    buffering: int = ...,
    encoding: str | None = ...,
    errors: str | None = ...,
    newline: str | None = ...,
    *,
    cache: int | str | None = ...,
    policy: str | None = ...,
    **account: Unpack[Account],
) -> io.TextIOWrapper: ...
@overload
def open(
    name: str | bytes | os.PathLike[Any],
    mode: str = ...,
    buffering: int = ...,
    encoding: str | None = ...,
    errors: str | None = ...,
    newline: str | None = ...,
    *,
    cache: int | str | None = ...,
    policy: str | None = ...,
    **account: Unpack[Account],
) -> BufferedFile | File | io.TextIOWrapper: ...
def open(  # noqa: A001 (as io.open)
    name: str | bytes | os.PathLike[Any],
    mode: str = "rb",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    cache: int | str | None = None,
    policy: str | None = None,
    **account: Unpack[Account],
) -> BufferedFile | File | io.TextIOWrapper:
    """Opens a file, an object or an image for reading, like the built-in `open`.

    `name` is a path, or `s3://BUCKET/KEY`, `gs://`, `az://`, `hf://USER/REPO/PATH`, `http(s)://HOST/PATH`, `nbd(s)://HOST/EXPORT`,
    `rbd:POOL/IMAGE`, `file:PATH`.
    `mode` is "rb" for bytes (the default: a `BufferedFile`) or "r" for text (an `io.TextIOWrapper`). `buffering` is the size of the buffer,
    32 KiB by default; 0 means no buffer, for bytes only (a `File`). `encoding`, `errors` and `newline` are for text, with the same
    meaning as for the built-in `open`.
    `cache` is the size of the cache that files with the same kind of storage, policy and cache size share. It is a number of bytes, or a
    string such as "256 MiB" (the default, unless `configure` has set another). `policy` is a readahead policy (default "auto", which
    needs no settings); `foreread list policies` lists the policies.
    For an `s3://` name, `key`, `secret` and `token`, or `profile`, select the account, `endpoint` the server and `region` the region; the
    defaults are those of the environment or of `configure`. `no_sign_request=True` sends requests without credentials. `endpoint_url`
    and `anon` are the s3fs names of `endpoint` and `no_sign_request`. `stores` has settings for this object in the form of
    `configure`, such as `{"total": 10, "retries": 1}`.

    Raises `OSError` with errno and name if the source cannot be read, `io.UnsupportedOperation` for a mode that writes, and
    `ValueError` for an invalid mode, policy or size. In a forked process the file is opened again at its first read.
    """
    text = _is_text(mode)
    if not isinstance(buffering, int):
        raise TypeError(f"buffering {buffering!r}: write a number of bytes, or 0 for none")
    if buffering < -1:
        raise ValueError(f"buffering {buffering}: write a number of bytes, 0 for none, or -1 for the default")
    if text and buffering == 0:
        raise ValueError("text needs a buffer; leave buffering out, or open for bytes ('rb')")
    given = [key for key, value in [("encoding", encoding), ("errors", errors), ("newline", newline)] if value is not None]
    if given and not text:
        raise ValueError(f"{given[0]} is only for text; write mode 'r', or leave it out")
    raw = open_raw(name, cache=cache, policy=policy, **account)
    if buffering == 0:
        return raw
    # 1 means line buffering, which matters only for writing.
    size = buffering if buffering > 1 else BUFFER_BYTES
    try:
        if not text:
            return BufferedFile(raw, size)
        made = io.TextIOWrapper(_BelowText(raw, size), io.text_encoding(encoding), errors, newline, buffering == 1)
        made.mode = mode  # type: ignore[misc]
        return made
    except BaseException:
        raw.close()
        raise
