"""`lab.sweep`: every trace with every policy, device and cache, on the cores of this machine or on a Dask cluster.

    sweep ──► foreread sweep --dry-run: which cells are not in out/cells.jsonl
      ├─ no client: foreread sweep --resume, over the cores, with its progress bar
      └─ client:    tasks in that order, each some short cells of a trace or one long: `foreread sweep` of them, on a worker
                                                                                        └─► lines, appended to the file
    all cells ──► Table, and the Parquet dataset out/dataset (by device and policy)

A cell is one line. If a sweep is interrupted, only the cells that were being measured are lost.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

KEYS = {
    "trace": "string", "device": "string", "policy": "string", "cache_bytes": "int64", "page_bytes": "int64", "runs": "int64",
    "seed": "int64", "foreread": "string", "trace_bytes": "int64", "bound_s": "double",
}
COUNTS = (
    "demand_reads demand_bytes ra_planned_ops ra_planned_bytes ra_ops ra_bytes refused_bytes source_reads source_bytes used_bytes "
    "late_bytes unused_bytes unresolved_bytes failed_bytes thrash_bytes distinct_bytes hits late_hits misses failed_reads"
).split()
REALS = (
    "time_s time_s_low time_s_high latency_s throughput_mb_s stall_s p50_us p95_us p99_us p999_us max_us accuracy timeliness "
    "overfetch"
).split()
SWEEP_COLUMNS: dict[str, str] = {**KEYS, **dict.fromkeys(COUNTS, "int64"), **dict.fromkeys(REALS, "double")}
"""The columns of a sweep and their Arrow types. Names that end in `_bytes` are in bytes, `_s` in seconds, `_us` in microseconds."""


def _size(size: int | str) -> str:
    """A size in the notation of the command."""
    return str(size).replace(" ", "")


def _cells(asked: list[str], progress: bool = False) -> list[dict[str, Any]]:
    from .lab import command

    return [json.loads(line) for line in command(*asked, "--json", "-", progress=progress).splitlines()]


def _arguments(traces: list[str], policies: list[str], devices: list[str], caches: list[str], runs: int, seed: int) -> list[str]:
    asked = ["sweep", *traces, "--on", ",".join(devices), "--policy", ",".join(policies), "--runs", str(runs), "--seed", str(seed)]
    return asked + (["--vary", "memory=" + ",".join(caches)] if caches else [])


TASK_BYTES = 1_750_000
"""Maximum size of a task with several cells, in bytes of traces times runs: a quarter of a second if a cell takes 25 ms for 175 kB.
A process takes 50 ms to start, which is too much for a single such cell. If a worker is killed, its whole task is measured again."""


def _tasks(missing: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Groups the keys into tasks, in their order. Short cells of one trace, device and cache share a task.

    A workload gets a task for each cell, because its length is not known.
    """
    tasks: list[list[dict[str, Any]]] = []
    open_tasks: dict[Any, list[dict[str, Any]]] = {}
    for key in missing:
        same = (key["trace"], key["device"], key["cache_bytes"])
        cost = key["trace_bytes"] * key["runs"]
        task = open_tasks.get(same)
        if task is None or cost == 0 or cost * (len(task) + 1) > TASK_BYTES:
            task = open_tasks[same] = []
            tasks.append(task)
        task.append(key)
    return tasks


def _measure(keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measures cells that differ only in the policy. It may run on a worker of the cluster."""
    key = keys[0]
    caches = [] if key["cache_bytes"] is None else [str(key["cache_bytes"])]
    policies = [one["policy"] for one in keys]
    asked = _arguments([key["trace"]], policies, [key["device"]], caches, key["runs"], key["seed"])
    cells = {cell["key"]["policy"]: cell for cell in _cells([*asked, "--jobs", "1"])}
    for key in keys:
        if (cell := cells.get(key["policy"])) is None or cell["key"] != key:
            raise ValueError(f"the worker has a different foreread or a different trace: {cell and cell['key']} instead of {key}")
    return [cells[key["policy"]] for key in keys]


def _on_cluster(client: Any, missing: list[dict[str, Any]], path: str, progress: bool) -> None:
    from distributed import as_completed

    # Not pure: a result that a worker lost is measured again, and no results are kept on the cluster.
    futures = {client.submit(_measure, task, pure=False, retries=2): task for task in _tasks(missing)}
    failed, done = None, 0
    for future in as_completed(futures):
        task = futures[future]
        try:
            lines = "".join(json.dumps(cell) + "\n" for cell in future.result())
            with open(path, "a") as file:
                file.write(lines)
        except Exception as error:  # noqa: BLE001 (raised when the others are kept)
            failed = failed or error
        future.release()
        done += len(task)
        if progress and sys.stderr.isatty():
            print(f"\rcells {done}/{len(missing)}", end="" if done < len(missing) else "\n", file=sys.stderr, flush=True)
    if failed is not None:
        raise failed


def _row(cell: dict[str, Any]) -> dict[str, Any]:
    from .lab import _flat

    result = cell["result"]
    row = {**_flat(result["row"]), **_flat(result), **cell["key"], "cache_bytes": result["cache_bytes"]}
    return {name: row.get(name) for name in SWEEP_COLUMNS}


def _dataset(rows: list[dict[str, Any]], out: str) -> None:
    """Writes the rows as Parquet, partitioned by device and policy, and a file with only the schema."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in SWEEP_COLUMNS.items()])
    table = pa.Table.from_pylist(rows, schema)
    partitioning = ds.partitioning(pa.schema([schema.field("device"), schema.field("policy")]), flavor="hive")
    folder = os.path.join(out, "dataset")
    ds.write_dataset(table, folder, format="parquet", partitioning=partitioning, existing_data_behavior="delete_matching")
    pq.write_metadata(schema, os.path.join(folder, "_common_metadata"))


def sweep(
    traces: Iterable[str | os.PathLike[str]],
    policies: Iterable[str] = ("none", "auto", "linux-6.18"),
    devices: Iterable[str] = ("model:rbd",),
    caches: Iterable[int | str] = (),
    *,
    out: str | os.PathLike[str],
    client: Any = None,
    runs: int = 1,
    seed: int = 1,
    progress: bool = True,
) -> Any:
    """Measures each trace or workload with each policy, device model and cache size. Returns a `Table` with a row for each cell.

    `caches` are numbers of bytes or strings such as "64M"; if there are none, the default size is used. `out` is a folder that keeps the
    cells in `cells.jsonl`. If you call it again with the same or more arguments, only the missing cells are measured. Traces are paths
    or names of objects (`s3://...`).

    Without a `client` the cells run on all cores of this machine. With a `distributed.Client` they run as tasks on its workers, which
    need foreread, and the traces under the same names. If a worker is lost, others measure its cells. If pyarrow is installed,
    `out/dataset` is a Parquet dataset of all cells, partitioned by device and policy.
    """
    from .lab import Table, command

    if isinstance(traces, (str, os.PathLike)):
        raise TypeError(f"traces {os.fspath(traces)!r}: give a list")
    folder = os.fspath(out)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "cells.jsonl")
    sizes = [_size(cache) for cache in caches]
    asked = _arguments([os.fspath(trace) for trace in traces], list(policies), list(devices), sizes, runs, seed)
    asked += ["--resume", path]
    if client is not None:
        _on_cluster(client, json.loads(command(*asked, "--dry-run")), path, progress)
        if left := json.loads(command(*asked, "--dry-run")):
            raise RuntimeError(f"{len(left)} measured cells are missing in {path}; does another program write to this file?")
    cells = _cells(asked, progress and client is None and sys.stderr.isatty())
    rows = [_row(cell) for cell in cells]
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        pass
    else:
        _dataset(rows, folder)
    return Table(rows, cells, f"sweep of {len(rows)} cells")
