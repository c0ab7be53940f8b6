"""`foreread.plan.zarr`: finds the chunks that a selection of a Zarr array needs, and fetches them at once.

    selection ──► names of chunks (or shards) ──► each a file or object, up to 64 at once ──► zarr decodes them from memory

Anything else (`zarr.json`, a chunk that is not in the plan) is read when zarr asks for it. This module neither writes nor lists.
"""

from __future__ import annotations

import io
import os
from typing import Any

AT_ONCE = 64
"""Maximum number of chunks that are fetched at once."""


class ZarrPlan:
    """The chunks of a Zarr array that a selection needs. `names` has their names below the array. A chunk that was never written
    does not exist; zarr uses the fill value for it.
    """

    def __init__(self, root: str, selection: Any, opening: dict[str, Any]) -> None:
        self.root = root
        self.selection = selection
        self._opening = opening
        self._store = _chunks(root, opening)
        self._array = _zarr().open_array(self._store, mode="r")
        self.names = self._names()

    def _names(self) -> list[str]:
        import itertools

        array, metadata = self._array, self._array.metadata
        lengths = array.shards or array.chunks
        spans = []
        for part, size, length in zip(_full(self.selection, array.ndim), array.shape, lengths):
            start, stop, step = part.indices(size)
            if step < 1:
                raise ValueError(f"selection {self.selection!r}: steps must be positive")
            spans.append(sorted({at // length for at in range(start, stop, step)}))
        return [metadata.encode_chunk_key(chunk) for chunk in itertools.product(*spans)]

    def read(self) -> Any:
        """Returns the selection as a numpy array. Up to 64 chunks are fetched at once."""
        self._store.fetch(self.names)
        try:
            return self._array[self.selection]
        finally:
            self._store.forget()

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<ZarrPlan of {self.root!r}: {len(self.names)} chunks>"


def _zarr() -> Any:
    import zarr as library

    return library


def _full(selection: Any, ndim: int) -> list[slice]:
    parts = list(selection) if isinstance(selection, tuple) else [selection]
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts[at : at + 1] = [slice(None)] * (ndim - len(parts) + 1)
    if len(parts) > ndim:
        raise IndexError(f"selection {selection!r}: the array has {ndim} dimensions")
    parts += [slice(None)] * (ndim - len(parts))
    for n, part in enumerate(parts):
        if isinstance(part, int):
            parts[n] = slice(part, part + 1 or None)
        elif not isinstance(part, slice):
            raise TypeError(f"selection {selection!r}: write numbers and slices")
    return parts


def _chunks(root: str, opening: dict[str, Any]) -> Any:
    """Makes a zarr store that reads objects below a name through foreread; planned chunks come from memory."""
    import concurrent.futures

    from zarr.abc.store import Store

    from . import _file

    class Chunks(Store):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(read_only=True)
            self._planned: dict[str, bytes | None] = {}

        supports_writes = supports_deletes = supports_listing = False

        def _read(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
            try:
                file = _file.open_raw(f"{root.rstrip('/')}/{key}", **opening)
            except (FileNotFoundError, NotADirectoryError):
                return None
            with file:
                at = start if start >= 0 else max(file.size + start, 0)
                return file.read_at(at, file.size - at if length is None else length)

        def fetch(self, keys: list[str]) -> None:
            with concurrent.futures.ThreadPoolExecutor(min(AT_ONCE, max(len(keys), 1))) as pool:
                self._planned = dict(zip(keys, pool.map(self._read, keys)))

        def forget(self) -> None:
            self._planned = {}

        def _range(self, key: str, byte_range: Any) -> tuple[int, int | None]:
            if byte_range is None:
                return 0, None
            if hasattr(byte_range, "suffix"):
                return -byte_range.suffix, None
            if hasattr(byte_range, "end"):
                return byte_range.start, byte_range.end - byte_range.start
            return byte_range.offset, None

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            import asyncio

            from zarr.core.buffer import default_buffer_prototype

            start, length = self._range(key, byte_range)
            if key in self._planned:
                data = self._planned[key]
                if data is not None:
                    at = start if start >= 0 else max(len(data) + start, 0)
                    data = data[at : None if length is None else at + length]
            else:
                data = await asyncio.to_thread(self._read, key, start, length)
            return None if data is None else (prototype or default_buffer_prototype()).buffer.from_bytes(data)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> list[Any]:
            return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

        async def exists(self, key: str) -> bool:
            return await self.get(key) is not None

        async def set(self, key: str, value: Any) -> None:
            raise io.UnsupportedOperation("the store is read only")

        async def delete(self, key: str) -> None:
            raise io.UnsupportedOperation("the store is read only")

        async def list(self) -> Any:
            raise io.UnsupportedOperation("the store lists nothing")
            yield

        async def list_prefix(self, prefix: str) -> Any:
            raise io.UnsupportedOperation("the store lists nothing")
            yield

        async def list_dir(self, prefix: str) -> Any:
            raise io.UnsupportedOperation("the store lists nothing")
            yield

        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = object.__hash__

    return Chunks()


def zarr(root: str | Any, selection: Any = (), **opening: Any) -> ZarrPlan:
    """Makes a plan to read a selection (numbers and slices; by default everything) of a Zarr array below a folder or a prefix
    (`s3://bucket/array.zarr`). Needs zarr 3. `opening` takes the arguments of `foreread.open`.

    If the array does not exist, raises the exception of zarr.
    """
    return ZarrPlan(os.fspath(root), selection, opening)
