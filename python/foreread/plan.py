"""Plans for files of a known format: the header says which ranges a reader will need, and they are fetched in few requests.

    import foreread
    from foreread import plan

    with foreread.open("s3://bucket/model.safetensors") as file:
        weights = plan.safetensors(file, ["embed.weight"]).numpy()          # or .torch(); no name: all tensors
    table = plan.parquet("s3://bucket/table.parquet", columns=["price"], row_groups=[0, 1]).read()

                header or footer                what is needed             neighbours as one
    file ──► [ read: 1 or 2 requests ] ──► ranges of tensors or chunks ──► requests ──► read: one buffer, 64 MiB ahead

A gap between two ranges is read if it is at most 8 KiB, and all gaps together are at most 5 % of the needed bytes. The policy of the
file reads nothing ahead of a plan. Headers come from storage and may be damaged, so they are checked before use.
"""

from __future__ import annotations

import bisect
import io
import json
import os
from typing import TYPE_CHECKING, Any

from ._file import open_raw
from ._zarr import ZarrPlan, zarr

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ._file import File
    from ._open import BufferedFile

__all__ = ["ParquetPlan", "Plan", "SafetensorsPlan", "ZarrPlan", "parquet", "safetensors", "zarr"]

GAP_BYTES = 8192
"""A gap of up to this many bytes is read, because that costs less than a request. Arrow's coalescing uses the same value."""

HEADER_BYTES = 100_000_000
"""Maximum length of the header of a safetensors file, according to its specification."""

FIRST_BYTES = 64 << 10
"""Bytes read first for a header or a footer; most headers fit."""

DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}
NUMPY = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4", "F32": "<f4",
    "U64": "<u8", "I64": "<i8", "F64": "<f8", "C64": "<c8",
}
TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "BF16": "bfloat16",
    "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}


def _together(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merges ranges into few requests: ranges that touch or overlap, and small gaps as long as all gaps are at most 5 % of the bytes."""
    left = sum(length for _, length in ranges) // 20
    merged: list[tuple[int, int]] = []
    for start, length in sorted(one for one in ranges if one[1] > 0):
        if merged:
            first, had = merged[-1]
            gap = start - (first + had)
            if gap <= 0 or gap <= min(GAP_BYTES, left):
                left -= max(gap, 0)
                merged[-1] = (first, max(had, start + length - first))
                continue
        merged.append((start, length))
    return merged


class Plan:
    """Ranges of a file that will be read, and the requests for them: `requests` are `(offset, length)` in file order.

    `bytes_needed` is the number of requested bytes; `bytes_fetched` includes the gaps between the ranges.
    """

    def __init__(self, file: File | BufferedFile, ranges: Iterable[tuple[int, int]]) -> None:
        self.file = file
        self.ranges = list(ranges)
        self.requests = _together(self.ranges)
        self._data: memoryview | None = None
        starts, at = [], 0
        for start, length in self.requests:
            starts.append((start, length, at))
            at += length
        self._starts, self.bytes_fetched = starts, at
        self.bytes_needed = sum(length for _, length in self.ranges)

    def fetch(self) -> None:
        """Reads everything into one buffer, unless it has been read already. Raises `OSError` if the file is too short."""
        if self._data is None:
            data = _memory(self.bytes_fetched)
            got = self.file.readinto_ranges(data, self.requests)
            for (start, length, _), came in zip(self._starts, got):
                if came < length:
                    raise OSError(f"{self.file.name}: the file ends at {start + came}, but the plan reads up to {start + length}; is the file complete?")
            self._data = data

    def view(self, offset: int, length: int) -> memoryview | None:
        """Returns the planned bytes at an offset, without a copy; `None` if they are not planned. The first call fetches everything."""
        behind = bisect.bisect_right(self._starts, offset, key=lambda request: request[0])
        if behind == 0:
            return memoryview(b"") if length == 0 else None
        start, had, at = self._starts[behind - 1]
        if offset + length > start + had:
            return None
        self.fetch()
        assert self._data is not None
        return self._data[at + offset - start : at + offset - start + length]

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.file.name!r}: {self.bytes_needed} bytes in {len(self.ranges)} ranges, "
            f"{self.bytes_fetched} bytes in {len(self.requests)} requests>"
        )


def _memory(length: int) -> memoryview:
    """A buffer to fill. If numpy is installed, the buffer is not zeroed first."""
    try:
        import numpy as np
    except ImportError:
        return memoryview(bytearray(length))
    return memoryview(np.empty(length, dtype=np.uint8))


class SafetensorsPlan(Plan):
    """Tensors of a safetensors file. Arrays and tensors are views of one buffer, which lives as long as any of them."""

    def __init__(self, file: File | BufferedFile, tensors: dict[str, tuple[str, list[int], int, int]], metadata: dict[str, str]) -> None:
        super().__init__(file, [(start, length) for _, _, start, length in tensors.values()])
        self.metadata = metadata
        self._tensors = tensors

    @property
    def names(self) -> list[str]:
        """The names of the tensors that will be read."""
        return list(self._tensors)

    def _each(self) -> Iterator[tuple[str, str, list[int], memoryview]]:
        for name, (dtype, shape, start, length) in self._tensors.items():
            view = self.view(start, length)
            assert view is not None
            yield name, dtype, shape, view

    def numpy(self) -> dict[str, Any]:
        """Returns the tensors as numpy arrays. BF16, which numpy lacks, is returned as uint16; F8 and smaller types raise `TypeError`."""
        import numpy as np

        found = {}
        for name, dtype, shape, view in self._each():
            kind = NUMPY.get("U16" if dtype == "BF16" else dtype)
            if kind is None:
                raise TypeError(f"tensor {name!r} is of {dtype}, which numpy lacks; use torch()")
            found[name] = np.frombuffer(view, dtype=kind).reshape(shape)
        return found

    def torch(self) -> dict[str, Any]:
        """Returns the tensors as torch tensors on the CPU."""
        import torch

        found = {}
        for name, dtype, shape, view in self._each():
            kind = getattr(torch, TORCH.get(dtype, ""), None)
            if kind is None:
                raise TypeError(f"tensor {name!r} is of {dtype}, which this torch lacks")
            found[name] = torch.frombuffer(view, dtype=kind).reshape(shape) if len(view) else torch.empty(shape, dtype=kind)
        return found


def _broken(file: File | BufferedFile, why: str) -> ValueError:
    return ValueError(f"{file.name}: {why}; is it a complete safetensors file?")


def _header(file: File | BufferedFile) -> tuple[dict[str, Any], int]:
    """Reads the header of a safetensors file. Returns it and the offset of the data. The file has 8 bytes of length, JSON, data."""
    # Read as ranges: after a read at the start of a file the policy would read ahead, but the tensors may be elsewhere.
    (head,) = file.read_ranges([(0, FIRST_BYTES)])
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or not 2 <= length <= min(HEADER_BYTES, file.size - 8):
        raise _broken(file, f"a header of {length} bytes in a file of {file.size}")
    text = head[8 : 8 + length]
    if len(text) < length:
        text += file.read_ranges([(len(head), 8 + length - len(head))])[0]
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(file, f"its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise _broken(file, "its header is not an object")
    return header, 8 + length


def _tensor(file: File | BufferedFile, name: str, entry: Any, data: int) -> tuple[str, list[int], int, int]:
    """Returns type, shape, offset and length of a tensor, after checking them."""
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [start, end, *shape]
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
            raise TypeError
        bits = DTYPE_BITS[dtype]
    except (TypeError, KeyError, ValueError):
        raise _broken(file, f"tensor {name!r} has an invalid type, shape or offsets") from None
    for n in shape:
        bits *= n
    if end < start or data + end > file.size or (end - start) * 8 != bits:
        raise _broken(file, f"tensor {name!r} is at {start}..{end} of the data, which does not fit its shape or the file")
    return dtype, shape, data + start, end - start


def _opened(file: Any, opening: dict[str, Any]) -> Any:
    """Returns an open file as it is, or opens a name. A file opened here is closed with the last plan that uses it."""
    if isinstance(file, (str, bytes, os.PathLike)):
        return open_raw(file, **opening)
    if opening:
        raise TypeError(f"{next(iter(opening))} is for a name; an open file already has its settings")
    return file


def safetensors(
    file: File | BufferedFile | str | os.PathLike[Any], tensors: Iterable[str] | None = None, **opening: Any
) -> SafetensorsPlan:
    """Makes a plan to read the given tensors of a safetensors file, by default all. Reads the header with one or two requests.

    `file` is an open file, or a name; further arguments are those of `foreread.open`.

    Raises `KeyError` if the file has no tensor of a given name, `ValueError` if the header is invalid.
    """
    if isinstance(tensors, str):
        raise TypeError(f"tensors {tensors!r}: give a list of names")
    file = _opened(file, opening)
    header, data = _header(file)
    metadata = header.pop("__metadata__", None)
    names = list(header) if tensors is None else list(dict.fromkeys(tensors))
    for name in names:
        if name not in header:
            raise KeyError(f"{file.name} has no tensor {name!r}; it has {len(header)}, such as {list(header)[:3]}")
    found = {name: _tensor(file, name, header[name], data) for name in names}
    return SafetensorsPlan(file, found, metadata if isinstance(metadata, dict) else {})


class _Planned(io.RawIOBase):
    """A file that returns planned bytes from a plan's buffer, and reads all other bytes from the file."""

    def __init__(self, plan: Plan, tail: bytes) -> None:
        self._plan, self._tail, self._position = plan, tail, 0
        self._tail_at = plan.file.size - len(tail)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._plan.file.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> Any:
        left = max(self._plan.file.size - self._position, 0)
        size = left if size is None or size < 0 else min(size, left)
        at, self._position = self._position, self._position + size
        if at >= self._tail_at:
            return self._tail[at - self._tail_at : at - self._tail_at + size]
        view = self._plan.view(at, size)
        return self._plan.file.read_at(at, size) if view is None else view


class ParquetPlan(Plan):
    """Column chunks of a Parquet file."""

    def __init__(self, file: File | BufferedFile, ranges: list[tuple[int, int]], tail: bytes, metadata: Any, row_groups: list[int], columns: Any) -> None:
        super().__init__(file, ranges)
        self.metadata, self.row_groups, self.columns, self._tail = metadata, row_groups, columns, tail

    def read(self, **options: Any) -> Any:
        """Returns the columns as a `pyarrow.Table`. The options are those of `pyarrow.parquet.ParquetFile.read_row_groups`."""
        import pyarrow.parquet as pq

        opened = pq.ParquetFile(_Planned(self, self._tail), metadata=self.metadata, pre_buffer=False)
        return opened.read_row_groups(self.row_groups, columns=self.columns, **options)


def _is_named(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def parquet(
    file: File | BufferedFile | str | os.PathLike[Any],
    columns: Sequence[str] | None = None,
    row_groups: Iterable[int] | None = None,
    **opening: Any,
) -> ParquetPlan:
    """Makes a plan to read the given columns and row groups of a Parquet file, by default all. Needs pyarrow, which reads the footer.

    `file` is an open file, or a name; further arguments are those of `foreread.open`.

    Write a column of a nested type with its parts (`a.b`) or with its first part, as in pyarrow. Raises `KeyError` for a
    column and `IndexError` for a row group that the file does not have, `pyarrow.ArrowInvalid` for a file that is not Parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(columns, str):
        raise TypeError(f"columns {columns!r}: give a list of names")
    file = _opened(file, opening)
    size = file.size
    tail = file.read_at(max(size - FIRST_BYTES, 0), FIRST_BYTES)
    needed = int.from_bytes(tail[-8:-4], "little") + 8 if len(tail) >= 12 and tail[-4:] in (b"PAR1", b"PARE") else 0
    if len(tail) < needed <= size:
        tail = file.read_at(size - needed, needed - len(tail)) + tail
    try:
        metadata = pq.read_metadata(_Planned(Plan(file, []), tail))
    except pa.ArrowException as error:
        raise pa.ArrowInvalid(f"{file.name}: {error}") from None
    groups = list(range(metadata.num_row_groups)) if row_groups is None else list(row_groups)
    for group in groups:
        if not 0 <= group < metadata.num_row_groups:
            raise IndexError(f"{file.name} has no row group {group}; it has {metadata.num_row_groups}")
    paths = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    for name in columns or ():
        if not any(_is_named(path, name) for path in paths):
            raise KeyError(f"{file.name} has no column {name!r}; it has {len(paths)}, such as {paths[:3]}")
    wanted = [n for n, path in enumerate(paths) if columns is None or any(_is_named(path, name) for name in columns)]
    ranges = []
    for group in groups:
        row_group = metadata.row_group(group)
        for n in wanted:
            chunk = row_group.column(n)
            start = chunk.data_page_offset
            if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
                start = chunk.dictionary_page_offset
            length = chunk.total_compressed_size
            if start < 4 or length < 0 or start + length > size:
                raise pa.ArrowInvalid(f"{file.name}: column {paths[n]!r} of row group {group} extends beyond the end of the file; is the file complete?")
            ranges.append((start, length))
    return ParquetPlan(file, ranges, tail, metadata, groups, None if columns is None else list(columns))
